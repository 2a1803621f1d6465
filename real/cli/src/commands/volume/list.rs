//! `braid volume list`: prints the volumes of an array.

use crate::report;
use braid_admin::failure::Failure;
use braid_base::units::format_size;
use braid_control::VolumeState;
use braid_terminal::Common;
use braid_terminal::output::table;
use serde_json::json;
use std::process::ExitCode;

/// List the volumes of the array
#[derive(clap::Args)]
pub struct Arguments {}

/// Prints the list.
pub async fn run(_: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let description = common.control().describe().await?;
    report::done(
        common.json,
        json!({"volumes": description.volumes.iter().map(super::json).collect::<Vec<_>>()}),
        || {
            let rows: Vec<Vec<String>> = description
                .volumes
                .iter()
                .map(|volume| {
                    let state = match &volume.state {
                        VolumeState::Ready => match &volume.moving {
                            Some(target) => format!("moving to {}", target.layout),
                            None if volume.attribute_volume => "attribute volume".to_string(),
                            None => String::new(),
                        },
                        VolumeState::Creating => "being created".to_string(),
                        VolumeState::Draining { to, .. } | VolumeState::Reordering { to, .. } => {
                            format!("changing to {to}")
                        }
                        VolumeState::Deleting => "being deleted".to_string(),
                    };
                    vec![
                        volume.name.clone(),
                        format_size(volume.bytes),
                        volume.layout.clone(),
                        volume.ordering.clone(),
                        state,
                    ]
                })
                .collect();
            table(&rows)
        },
    )
}
