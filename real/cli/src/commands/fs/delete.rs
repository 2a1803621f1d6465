//! `braid fs delete`: deletes a file system with all its files.

use crate::commands::confirmation::confirm_deletion;
use crate::report;
use braid_admin::{Array, Failure};
use braid_terminal::Common;
use serde_json::json;
use std::process::ExitCode;

/// Delete a file system with all its files
///
/// It is refused while hosts use the file system, unless it is forced: then they get errors. This can't be undone.
#[derive(clap::Args)]
pub struct Arguments {
    /// The name of the file system
    name: String,
    /// Don't ask for confirmation
    #[arg(long)]
    yes: bool,
    /// Delete it even if hosts use it
    #[arg(long)]
    force: bool,
}

/// Deletes the file system after confirmation.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let array = Array::of(common.control());
    let Arguments { name, yes, force } = &arguments;
    array.check_file_system_deletable(name, *force).await?;
    if !yes {
        confirm_deletion("file system", "all its files", name)?;
    }
    array.delete_file_system(name, *force).await?;
    report::done(common.json, json!({"deleted": name}), || format!("file system {name} is deleted\n"))
}
