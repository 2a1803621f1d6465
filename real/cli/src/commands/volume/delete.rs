//! `braid volume delete`.

use braid_admin::{Array, Failure};
use braid_terminal::Common;
use braid_terminal::output;
use serde_json::json;
use std::io::{BufRead, IsTerminal};
use std::process::ExitCode;

/// Delete a volume and all it holds
///
/// Clients that still have it open get errors from then on. There is no way back.
#[derive(clap::Args)]
pub struct Arguments {
    /// Which
    name: String,
    /// Don't ask
    #[arg(long)]
    yes: bool,
}

/// Deletes it, if that is meant.
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
        return Err(Failure::usage("not-confirmed", format!("this would delete volume '{name}' and all it holds"))
            .hint("say --yes if that is meant"));
    }
    eprint!("Delete volume '{name}' and all it holds? Write its name to confirm: ");
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(line.trim() == name)
}
