//! `braid device remove`: removes a device, or a spare, from a running array.

use crate::report;
use braid_admin::{Array, Failure};
use braid_terminal::Common;
use serde_json::json;
use std::process::ExitCode;

/// Remove a device, or a spare, from a running array
///
/// The command is refused while a volume lies on the device: move the volume with `braid volume migrate` first. The file of the device is
/// not deleted. Its number is not used again.
///
/// Examples: `braid device remove 5`; for a spare, with its disk or file: `braid device remove spare.braid`
#[derive(clap::Args)]
pub struct Arguments {
    /// The number of a device; or a spare, by its file or the name of its disk
    #[arg(value_name = "DEVICE-or-SPARE")]
    which: String,
}

/// Removes the device.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let which = arguments.which;
    let path = Array::of(common.control()).remove_device(&which).await?;
    report::done(common.json, json!({"removed": which, "file": path}), || {
        format!("{which} was removed from the array; its file was not deleted: {}\n", path.display())
    })
}
