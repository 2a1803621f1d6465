//! `braid device add`: adds a device, or a spare, to a running array.

use super::overwriting;
use crate::report;
use braid_admin::device_operations::NewDevice;
use braid_admin::{Array, Failure};
use braid_base::units::format_size;
use braid_terminal::Common;
use braid_terminal::arguments::size;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

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
pub struct Arguments {
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

/// Adds the device.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let Arguments { path, size, domain, spare, overwrite, yes } = arguments;
    let array = Array::of(common.control());
    let own = array.control().describe().await.ok().map(|described| described.array);
    overwriting::confirm(path.as_deref(), overwrite, yes, own)?;
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
    report::done(
        common.json,
        json!({"device": id, "spare": spare, "file": path, "size_bytes": disk.size, "disk": disk.disk.to_string()}),
        || {
            let (path, size) = (path.display(), format_size(disk.size));
            match id {
                Some(id) => format!("device {id} is in: {path}, {size}\n{hint}"),
                None => format!("spare {} is ready: {path}, {size}\n", disk.disk),
            }
        },
    )
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
