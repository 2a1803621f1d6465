//! `braid volume list`.

use crate::commands::Common;
use crate::failure::Failure;
use crate::output::{self, table};
use braid_base::units::format_size;
use braid_control::VolumeState;
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
                .map(|volume| {
                    let state = match volume.state {
                        VolumeState::Ready => "",
                        VolumeState::Creating => "being created",
                        VolumeState::Deleting => "being deleted",
                    };
                    vec![volume.name.clone(), format_size(volume.bytes), volume.layout.clone(), state.to_string()]
                })
                .collect();
            table(&rows)
        },
    );
    Ok(ExitCode::SUCCESS)
}
