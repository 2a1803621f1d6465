//! `braid volume info`: prints the properties of a volume.

use crate::report;
use braid_admin::{Failure, volumes};
use braid_base::DeviceId;
use braid_base::units::format_size;
use braid_terminal::Common;
use braid_terminal::output::table;
use serde_json::json;
use std::process::ExitCode;

/// Show a volume: its size, layout and location
#[derive(clap::Args)]
pub struct Arguments {
    /// The name of the volume
    name: String,
}

/// Prints the properties of the volume.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let description = common.control().describe().await?;
    let entry = volumes::find(&description, &arguments.name)?;
    let volume = volumes::describe(entry)?;
    let component = volume.component_blocks() * braid_base::BLOCK_BYTES as u64;
    report::done(
        common.json,
        json!({
            "volume": super::json(entry),
            "stripes": volume.stripes(),
            "bytes_per_device": component,
        }),
        || {
            let devices: Vec<String> = volume.devices.iter().map(|device| device.to_string()).collect();
            let line = |name: &str, value: String| vec![name.to_string(), value];
            let mut lines = vec![
                line("name", entry.name.clone()),
                line("size", format!("{} ({} bytes)", format_size(entry.bytes), entry.bytes)),
                line("layout", entry.layout.clone()),
                line("stripe unit", format_size(entry.unit)),
                line("stripes", volume.stripes().to_string()),
                line("ordering", entry.ordering.clone()),
                line("atomicity", entry.atomicity.clone()),
                line("parity site", entry.parity_site.clone()),
                line("while unavailable", entry.unavailable().to_string()),
                line(
                    "keeps",
                    if entry.attribute_volume { "attributes of objects: it is an attribute volume" } else { "blocks" }
                        .to_string(),
                ),
                line("devices", devices.join(" ")),
                line("on each device", format_size(component)),
            ];
            if let Some(target) = &entry.moving {
                let devices: Vec<String> = target.devices.iter().map(|id| DeviceId(*id).to_string()).collect();
                let copied = target.copied_to * braid_base::BLOCK_BYTES as u64;
                lines.extend([
                    line("moving to", format!("{}, stripe unit {}", target.layout, format_size(target.unit))),
                    line("on devices", devices.join(" ")),
                    line("copied", format!("at least {} of {}", format_size(copied), format_size(entry.bytes))),
                ]);
            }
            table(&lines)
        },
    )
}
