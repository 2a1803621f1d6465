//! `braid fs status`: the file systems of an array.

use braid_admin::failure::Failure;
use braid_terminal::Common;
use braid_terminal::output::{self, table};
use serde_json::json;
use std::process::ExitCode;

/// Show the file systems of the array
#[derive(clap::Args)]
pub struct Arguments {}

/// Prints the list.
pub async fn run(_: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let file_systems = common.folder().describe()?.file_systems;
    output::print(
        common.json,
        || json!({"schema": 2, "file_systems": file_systems}),
        || {
            let rows = file_systems.iter().map(|entry| vec![entry.name.clone(), entry.state.name().to_string()]);
            table(&rows.collect::<Vec<_>>())
        },
    );
    Ok(ExitCode::SUCCESS)
}
