//! `braid volume delete`: deletes a volume with its content.

use braid_admin::{Array, Failure};
use braid_terminal::Common;
use braid_terminal::output;
use serde_json::json;
use std::io::{BufRead, IsTerminal};
use std::process::ExitCode;

/// Delete a volume with its content
///
/// Clients that still have it open get errors from then on. This can't be undone.
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
    let array = Array::of(common.folder());
    let name = &arguments.name;
    array.check_deletable(name)?;
    if !arguments.yes && !confirmed(name)? {
        return Err(Failure::failed("not-confirmed", format!("volume '{name}' was not deleted")));
    }
    array.delete_volume(name).await?;
    output::print(common.json, || json!({"schema": 2, "deleted": name}), || format!("volume {name} is deleted\n"));
    Ok(ExitCode::SUCCESS)
}

fn confirmed(name: &str) -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::usage("not-confirmed", format!("this would delete volume '{name}' with its content"))
            .hint("confirm with --yes"));
    }
    braid_terminal::ask!("Delete volume '{name}' with its content? Type its name to confirm: ");
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(line.trim() == name)
}
