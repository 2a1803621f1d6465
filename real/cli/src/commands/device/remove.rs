//! `braid device remove`.

use braid_admin::{Array, Failure};
use braid_terminal::{Common, output};
use serde_json::json;
use std::process::ExitCode;

/// Remove a device, or a spare, from a running array
///
/// Refused while a volume lies there: `braid volume migrate` moves it away first. Its file stays, and can be removed then. The number is not used
/// again.
///
/// Examples: `braid device remove 5`, or with the name of a spare's disk or its file: `braid device remove spare.braid`
#[derive(clap::Args)]
pub struct Arguments {
    /// A device's number; or a spare: its file, or the name of its disk
    #[arg(value_name = "DEVICE-or-SPARE")]
    which: String,
}

/// Removes it.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let which = arguments.which;
    let path = Array::of(common.folder()).remove_device(&which).await?;
    output::print(
        common.json,
        || json!({"schema": 2, "removed": which, "file": path}),
        || format!("{which} is gone from the array; its file stays: {}\n", path.display()),
    );
    Ok(ExitCode::SUCCESS)
}
