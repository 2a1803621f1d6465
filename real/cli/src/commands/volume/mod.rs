//! `braid volume`: creates, shows, changes, checks and deletes volumes.

mod check;
mod lifecycle;
mod map;
mod migrate;
pub mod settings;

use super::growth;
use braid_admin::Failure;
use braid_control::VolumeEntry;
use braid_terminal::Common;
use serde_json::json;
use std::process::ExitCode;

/// Create, show, change, check and delete volumes
#[derive(clap::Subcommand)]
pub enum Command {
    Create(lifecycle::CreateArgs),
    List(lifecycle::ListArgs),
    Info(lifecycle::InfoArgs),
    Delete(lifecycle::DeleteArgs),
    SetOrdering(settings::OrderingArgs),
    SetParitySite(settings::ParitySiteArgs),
    SetUnavailable(settings::UnavailableArgs),
    Map(map::Arguments),
    Migrate(migrate::Arguments),
    Resize(growth::VolumeArgs),
    Check(check::Arguments),
}

pub async fn run(command: Command, common: &Common) -> Result<ExitCode, Failure> {
    match command {
        Command::Create(arguments) => lifecycle::create(arguments, common).await,
        Command::List(arguments) => lifecycle::list(arguments, common).await,
        Command::Info(arguments) => lifecycle::info(arguments, common).await,
        Command::Delete(arguments) => lifecycle::delete(arguments, common).await,
        Command::SetOrdering(arguments) => settings::set_ordering(arguments, common).await,
        Command::SetParitySite(arguments) => settings::set_parity_site(arguments, common).await,
        Command::SetUnavailable(arguments) => settings::set_unavailable(arguments, common).await,
        Command::Map(arguments) => map::run(arguments, common).await,
        Command::Migrate(arguments) => migrate::run(arguments, common).await,
        Command::Resize(arguments) => growth::of_volume(arguments, common).await,
        Command::Check(arguments) => check::run(arguments, common).await,
    }
}

/// Tells users why the parity site of a volume has no effect, if so.
fn note_without_effect(reason: Option<&str>) {
    if let Some(reason) = reason {
        braid_terminal::tell!("note: the parity site has no effect on this volume: {reason}");
    }
}

fn json(volume: &VolumeEntry) -> serde_json::Value {
    json!({
        "name": volume.name,
        "id": volume.id,
        "size_bytes": volume.bytes,
        "layout": volume.layout,
        "unit_bytes": volume.unit,
        "devices": volume.devices,
        "ordering": volume.ordering,
        "atomicity": volume.atomicity,
        "parity_site": volume.parity_site,
        "unavailable": volume.unavailable().to_string(),
        "attribute_volume": volume.attribute_volume,
        "lifecycle": volume.state_name(),
        "moving": volume.moving.as_ref().map(|target| json!({
            "layout": target.layout,
            "unit_bytes": target.unit,
            "devices": target.devices,
            "copied_bytes": target.copied_to * braid_base::BLOCK_BYTES as u64,
        })),
    })
}
