//! `braid device replace`.

use braid_admin::replacement::Replacement;
use braid_admin::{Array, Failure};
use braid_base::units::format_size;
use braid_control::ReportedState;
use braid_terminal::arguments::size;
use braid_terminal::{Common, output};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// Give a device another disk, and have it brought everything
///
/// The new disk is an empty one: a sparse file that is made, a raw disk that is overwritten, or a spare. The old disk, if it still serves, goes on
/// until the array can do without it. Then the device is started on the new one, and hosts bring it what lies on the device, while all volumes stay in
/// use. `braid status` shows how far that is; it goes on without this command. The old file stays as it is.
///
/// Examples:
///   braid device replace 3                            by a new file in the array's folder
///   braid device replace 3 /dev/sdx --overwrite       by a raw disk, whatever it holds
///   braid device replace 3 --with-spare --wait        by a spare, and wait until it has everything
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Arguments {
    /// The device's number
    device: u16,
    /// The file or disk [default: a new file in the array's folder]
    #[arg(conflicts_with = "with_spare")]
    path: Option<PathBuf>,
    /// Take the smallest spare that is large enough
    #[arg(long)]
    with_spare: bool,
    /// Its raw size [default: of a raw disk, all; of a file, that of the disk before]
    #[arg(long, value_parser = size, conflicts_with = "with_spare")]
    size: Option<u64>,
    /// Use a file or disk that is there already, whatever it holds
    #[arg(long, conflicts_with = "with_spare")]
    overwrite: bool,
    /// What lies there may be lost, where nothing makes up for it: of volumes without redundancy, and, if the device is dead, of stripes that lie on other dead devices, too
    #[arg(long)]
    lose: bool,
    /// Wait until it has everything
    #[arg(long)]
    wait: bool,
}

/// Replaces it.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let Arguments { device: id, path, with_spare, size, overwrite, lose, wait } = arguments;
    let array = Array::of(common.folder());
    let replacement = Replacement { path, with_spare, size, overwrite, lose, wait };
    let (disk, member_state) = array.replace_device(id, replacement).await?;
    let path = disk.path(&array.folder().absolute());
    output::print(
        common.json,
        || {
            let member_state = member_state.name();
            json!({"schema": 2, "device": id, "member_state": member_state, "file": path, "size": disk.size, "disk": disk.disk.to_string()})
        },
        || {
            let (path, size) = (path.display(), format_size(disk.size));
            match member_state {
                ReportedState::In => format!("device {id} is in, with all it had: {path}, {size}\n"),
                _ => format!(
                    "device {id} has another disk: {path}, {size}\nit is being brought what lies there: `braid status` shows how far\n"
                ),
            }
        },
    );
    Ok(ExitCode::SUCCESS)
}
