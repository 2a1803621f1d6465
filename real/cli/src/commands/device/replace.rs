//! `braid device replace`: gives a device another disk, which is then rebuilt.

use super::overwriting;
use crate::report;
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
pub struct Arguments {
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

/// Replaces the disk.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let Arguments { device: id, path, with_spare, size, overwrite, yes, lose, wait } = arguments;
    let array = Array::of(common.control());
    let own = array.control().describe().await.ok().map(|described| described.array);
    overwriting::confirm(path.as_deref(), overwrite, yes, own)?;
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
    report::done(
        common.json,
        json!({
            "device": id,
            "member_state": member_state.name(),
            "file": path,
            "size_bytes": disk.size,
            "disk": disk.disk.to_string(),
            "previous_file": previous,
        }),
        || {
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
        },
    )
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
