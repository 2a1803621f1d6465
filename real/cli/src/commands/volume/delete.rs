//! `braid volume delete`: deletes a volume with its content.

use crate::commands::confirmation::confirm_deletion;
use crate::report;
use braid_admin::{Array, Failure};
use braid_terminal::Common;
use serde_json::json;
use std::process::ExitCode;

/// Delete a volume with its content
///
/// Clients that still have it open get errors from then on. This can't be undone. Other volumes can use its space; the files of devices
/// stay as large as they are (docs/operations.md, "Room on the host").
#[derive(clap::Args)]
pub struct Arguments {
    /// The name of the volume
    name: String,
    /// Don't ask for confirmation
    #[arg(long)]
    yes: bool,
}

/// Deletes the volume after confirmation.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let array = Array::of(common.control());
    let name = &arguments.name;
    array.check_deletable(name).await?;
    if !arguments.yes {
        confirm_deletion("volume", "its content", name)?;
    }
    array.delete_volume(name).await?;
    report::done(common.json, json!({"deleted": name}), || format!("volume {name} is deleted\n"))
}
