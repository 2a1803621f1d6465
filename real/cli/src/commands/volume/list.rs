//! `braid volume list`.

use crate::commands::Common;
use crate::failure::Failure;
use crate::output::{self, table};
use braid_base::units::format_size;
use serde_json::json;
use std::process::ExitCode;

/// List the volumes of the array
#[derive(clap::Args)]
pub struct Arguments {}

/// Lists them.
pub fn run(_: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let description = common.folder().describe()?;
    output::print(
        common.json,
        || json!({"schema": 1, "volumes": description.volumes.iter().map(super::json).collect::<Vec<_>>()}),
        || {
            let rows: Vec<Vec<String>> = description
                .volumes
                .iter()
                .map(|volume| vec![volume.name.clone(), format_size(volume.bytes), volume.layout.clone()])
                .collect();
            table(&rows)
        },
    );
    Ok(ExitCode::SUCCESS)
}
