//! `braid device add`, `fail`, `readmit`, `replace` and `remove`: changes of the devices and spares of a running array.

use super::file::confirm_overwriting;
use crate::report;
use braid_admin::device_operations::NewDevice;
use braid_admin::replacement::Replacement;
use braid_admin::{Array, Failure};
use braid_base::units::format_size;
use braid_control::{ReportedState, shell_word};
use braid_terminal::Common;
use braid_terminal::arguments::size;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Add a device, or a spare, to a running array
///
/// Creates a disk (a sparse file, or a raw disk that is overwritten), and adds it. `braid up` runs
/// the device from then on. Existing volumes do not change: only new volumes lie on the device, and
/// volumes that `braid volume migrate` moves there, by the command that is printed. A spare holds no data: it fills the slot of the
/// first device that stays out for longer than a time-out (`braid up --spare-after`).
///
/// A failure domain is a name for what fails at once: a shelf, a power supply, a machine. No two units of a stripe are put into one domain,
/// so that its failure costs each stripe one unit, like that of a single device. For example, with two devices each in shelf-1, shelf-2
/// and shelf-3, a volume of raid5:2+1 goes on when a whole shelf fails. A volume that is wider than the domains allow is refused.
///
/// Examples:
///   braid device add                                  a file in the array's folder, as large as the other devices
///   braid device add /dev/sdx --domain shelf-2        a raw disk in the failure domain shelf-2
///   braid device add --spare --size 16GiB
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct AddArgs {
    /// The file or disk [default: a new file in the array's folder]
    path: Option<PathBuf>,
    /// Its raw size [default: the whole raw disk; for a file, the size of the array's creation]
    #[arg(long, value_parser = size)]
    size: Option<u64>,
    /// Its failure domain, any name, such as the shelf that it is in: devices that fail together [default: a domain of its own]
    #[arg(long, conflicts_with = "spare")]
    domain: Option<String>,
    /// Add the disk as a spare, for a device that stays out
    #[arg(long)]
    spare: bool,
    /// Overwrite an existing file or disk
    #[arg(long)]
    overwrite: bool,
    /// Overwrite it although it has a partition table, a file system, or a disk of another array
    #[arg(long, requires = "overwrite")]
    yes: bool,
}

pub async fn add(arguments: AddArgs, common: &Common) -> Result<ExitCode, Failure> {
    let AddArgs { path, size, domain, spare, overwrite, yes } = arguments;
    let array = Array::of(common.control());
    let own = array.control().describe().await.ok().map(|described| described.array);
    confirm_overwriting(path.as_deref(), overwrite, yes, own)?;
    let new = NewDevice { path, size, overwrite };
    let (id, disk) = match spare {
        true => (None, array.add_spare(new).await?),
        false => {
            let (id, disk) = array.add_device(new, domain).await?;
            (Some(id), disk)
        }
    };
    let path = disk.path(&array.control().local().absolute());
    let hint = if id.is_some() && !common.json { use_it(&array).await? } else { String::new() };
    let json =
        json!({"device": id, "spare": spare, "file": path, "size_bytes": disk.size, "disk": disk.disk.to_string()});
    report::done(common.json, json, || {
        let (path, size) = (path.display(), format_size(disk.size));
        match id {
            Some(id) => format!("device {id} is in: {path}, {size}\n{hint}"),
            None => format!("spare {} is ready: {path}, {size}\n", disk.disk),
        }
    })
}

/// How volumes get to use a new device: the exact commands, or why not.
async fn use_it(array: &Array) -> Result<String, Failure> {
    let (devices, volumes) = array.try_targets().await?;
    let devices: Vec<String> = devices.iter().map(u16::to_string).collect();
    let line = |(name, tried): (String, Result<(), Failure>)| match tried {
        Ok(()) => format!("to use it for {name}: braid volume migrate {name} --devices {}\n", devices.join(",")),
        Err(failure) => format!("{name} can't use it now: {failure}\n"),
    };
    Ok(volumes.into_iter().map(line).collect())
}

/// Take a device out, and keep it out
///
/// The other devices serve without it, and record the writes that it misses. The command is refused if they can't serve without it, because a
/// volume lacks another device already. If a volume has no redundancy, the command is refused without --yes. Data on the device is not
/// touched: `braid device readmit` allows it to return, and it is resynchronised.
#[derive(clap::Args)]
pub struct FailArgs {
    /// The number of the device, such as 3 or d3
    #[arg(value_parser = braid_terminal::arguments::device)]
    device: u16,
    /// Accept that volumes without redundancy are unavailable until the device returns
    #[arg(long)]
    yes: bool,
}

/// Allow a device that was taken out to return
///
/// The device is resynchronised, and then it is in. If its disk was to be replaced, and the new disk has not been connected yet, the device
/// returns with its previous disk.
#[derive(clap::Args)]
pub struct ReadmitArgs {
    /// The number of the device, such as 3 or d3
    #[arg(value_parser = braid_terminal::arguments::device)]
    device: u16,
    /// Wait until it is resynchronised
    #[arg(long)]
    wait: bool,
}

pub async fn fail(arguments: FailArgs, common: &Common) -> Result<ExitCode, Failure> {
    let id = arguments.device;
    Array::of(common.control()).fail_device(id, arguments.yes).await?;
    let text = format!("device {id} is out: allow it to return with `braid device readmit {id}`\n");
    say(common, id, ReportedState::Out, text)
}

pub async fn readmit(arguments: ReadmitArgs, common: &Common) -> Result<ExitCode, Failure> {
    let ReadmitArgs { device: id, wait } = arguments;
    let member_state = Array::of(common.control()).readmit_device(id, wait).await?;
    let text = match member_state {
        ReportedState::In => format!("device {id} is in\n"),
        _ => format!("device {id} is back, and is being resynchronised: `braid status` shows the progress\n"),
    };
    say(common, id, member_state, text)
}

fn say(common: &Common, id: u16, member_state: ReportedState, text: String) -> Result<ExitCode, Failure> {
    report::done(common.json, json!({"device": id, "member_state": member_state.name()}), || text)
}

/// Replace the disk of a device, and rebuild it
///
/// The new disk is empty: a sparse file that is created, a raw disk that is overwritten, or a spare.
/// If the old disk still serves, it stays in use until the other devices can serve without it. Then
/// the device is started on the new disk, and hosts rebuild its content, while all volumes stay in use.
/// The rebuild continues without this command; `braid status` shows its progress. The old file is not
/// changed, and takes its room until you delete it; the command says where it lies.
///
/// Examples:
///   braid device replace 3                            with a new file in the array's folder
///   braid device replace 3 /dev/sdx --overwrite       with a raw disk, which is overwritten
///   braid device replace 3 --with-spare --wait        with a spare, and wait until it is rebuilt
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct ReplaceArgs {
    /// The number of the device, such as 3 or d3
    #[arg(value_parser = braid_terminal::arguments::device)]
    device: u16,
    /// The new file or disk [default: a new file in the array's folder]
    #[arg(conflicts_with = "with_spare")]
    path: Option<PathBuf>,
    /// Use the smallest spare that is large enough
    #[arg(long)]
    with_spare: bool,
    /// Its raw size [default: the whole raw disk; for a file, the size of the previous disk]
    #[arg(long, value_parser = size, conflicts_with = "with_spare")]
    size: Option<u64>,
    /// Overwrite an existing file or disk
    #[arg(long, conflicts_with = "with_spare")]
    overwrite: bool,
    /// Overwrite it although it has a partition table, a file system, or a disk of another array
    #[arg(long, requires = "overwrite")]
    yes: bool,
    /// Accept the loss of data that can't be reconstructed: of volumes without redundancy, and, if the device is dead, of stripes that
    /// also lie on other dead devices
    #[arg(long)]
    lose: bool,
    /// Wait until it is rebuilt
    #[arg(long)]
    wait: bool,
}

/// A command that takes longer says what it waits for.
const SOON: Duration = Duration::from_secs(1);

/// What can be done with the previous disk.
fn old_file(previous: &Path, when: &str) -> String {
    match previous.metadata() {
        Ok(found) if found.is_file() => {
            format!("its old file is not used any more, and can be deleted {when}: rm {}\n", shell_word(previous))
        }
        Ok(_) => format!("its old disk {} can be removed, or used for something else, {when}\n", previous.display()),
        Err(_) => String::new(),
    }
}

pub async fn replace(arguments: ReplaceArgs, common: &Common) -> Result<ExitCode, Failure> {
    let ReplaceArgs { device: id, path, with_spare, size, overwrite, yes, lose, wait } = arguments;
    let array = Array::of(common.control());
    let own = array.control().describe().await.ok().map(|described| described.array);
    confirm_overwriting(path.as_deref(), overwrite, yes, own)?;
    let replacement = Replacement { path, with_spare, size, overwrite, lose, wait };
    let mut replaced = std::pin::pin!(array.replace_device(id, replacement));
    let (disk, member_state, previous) = tokio::select! {
        replaced = &mut replaced => replaced?,
        () = tokio::time::sleep(SOON) => {
            let what = if wait { "it is rebuilt" } else { "it runs on the new disk" };
            braid_terminal::tell!("device {id}: this ends when {what}; `braid status` shows the progress");
            replaced.await?
        }
    };
    let path = disk.path(&array.control().local().absolute());
    let json = json!({
        "device": id,
        "member_state": member_state.name(),
        "file": path,
        "size_bytes": disk.size,
        "disk": disk.disk.to_string(),
        "previous_file": previous,
    });
    report::done(common.json, json, || {
        let (path, size) = (path.display(), format_size(disk.size));
        let (text, when) = match member_state {
            ReportedState::In => (format!("device {id} is in, and rebuilt: {path}, {size}\n"), "now"),
            _ => (
                format!(
                    "device {id} has another disk: {path}, {size}\nit is being rebuilt: `braid status` shows the progress\n"
                ),
                "when the rebuild has ended",
            ),
        };
        text + &old_file(&previous, when)
    })
}

/// Remove a device, or a spare, from a running array
///
/// The command is refused while a volume lies on the device: move the volume with `braid volume migrate` first. The file of the device is
/// not deleted. Its number is not used again.
///
/// Examples: `braid device remove 5`; for a spare, with its disk or file: `braid device remove spare.braid`
#[derive(clap::Args)]
pub struct RemoveArgs {
    /// The number of a device; or a spare, by its file or the name of its disk
    #[arg(value_name = "DEVICE-or-SPARE")]
    which: String,
}

pub async fn remove(arguments: RemoveArgs, common: &Common) -> Result<ExitCode, Failure> {
    let which = arguments.which;
    let path = Array::of(common.control()).remove_device(&which).await?;
    report::done(common.json, json!({"removed": which, "file": path}), || {
        format!("{which} was removed from the array; its file was not deleted: {}\n", path.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_previous_disk_is_named_with_what_may_be_done_with_it() {
        let file = std::env::temp_dir().join(format!("braid old {}", std::process::id()));
        assert_eq!(old_file(&file, "now"), "", "it is gone");
        std::fs::write(&file, "").unwrap();
        let said = old_file(&file, "now");
        std::fs::remove_file(&file).unwrap();
        assert!(said.ends_with(&format!("can be deleted now: rm '{}'\n", file.display())), "{said}");
        assert!(old_file(Path::new("/dev/null"), "now").starts_with("its old disk /dev/null can be removed"));
    }
}
