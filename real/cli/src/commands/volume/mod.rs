//! `braid volume`: creates, shows, changes, checks and deletes volumes.

mod check;
mod lifecycle;
mod map;
mod migrate;
pub mod settings;

use super::growth;
use braid_control::VolumeEntry;
use serde_json::json;

commands! {
    /// Create, show, change, check and delete volumes
    pub enum Command {
        Create(lifecycle::CreateArgs) => lifecycle::create,
        List(lifecycle::ListArgs) => lifecycle::list,
        Info(lifecycle::InfoArgs) => lifecycle::info,
        Delete(lifecycle::DeleteArgs) => lifecycle::delete,
        SetOrdering(settings::OrderingArgs) => settings::set_ordering,
        SetParitySite(settings::ParitySiteArgs) => settings::set_parity_site,
        SetUnavailable(settings::UnavailableArgs) => settings::set_unavailable,
        Map(map::Arguments) => map::run,
        Migrate(migrate::Arguments) => migrate::run,
        Resize(growth::VolumeArgs) => growth::of_volume,
        Check(check::Arguments) => check::run,
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
