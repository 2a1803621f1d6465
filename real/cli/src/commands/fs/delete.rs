//! `braid fs delete`: deletes a file system with all its files.

use braid_admin::{Array, Failure};
use braid_terminal::{Common, output};
use serde_json::json;
use std::io::{BufRead, IsTerminal};
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
    let array = Array::of(common.folder());
    let Arguments { name, yes, force } = &arguments;
    array.check_file_system_deletable(name, *force)?;
    if !yes && !confirmed(name)? {
        return Err(Failure::failed("not-confirmed", format!("file system '{name}' was not deleted")));
    }
    array.delete_file_system(name, *force).await?;
    output::print(common.json, || json!({"schema": 2, "deleted": name}), || format!("file system {name} is deleted\n"));
    Ok(ExitCode::SUCCESS)
}

fn confirmed(name: &str) -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::usage(
            "not-confirmed",
            format!("this would delete file system '{name}' with all its files"),
        )
        .hint("confirm with --yes"));
    }
    braid_terminal::ask!("Delete file system '{name}' with all its files? Type its name to confirm: ");
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(line.trim() == name)
}
