//! Volumes: converts their names and their entries in the description to the descriptions that a host needs, and to the records that the
//! control protocol reads and replaces.

use crate::array::ArrayDescription;
use crate::volumes::{Change, PlacementEntry, VolumeEntry, VolumeState};
use braid_base::{BLOCK_BYTES, DeviceId, Generation, VolumeId};
use braid_control_protocol as protocol;
use braid_control_protocol::{CopyRecord, Version, VolumeRecord};
use braid_layout::{
    Layout, LayoutError, Placement, RaidLevel, RaidLevelError, UnknownSitePolicy, VolumeDescription, VolumeError,
};
use braid_ordering::{UnknownAtomicity, UnknownOrdering};

/// Why a volume can't be found, or its entry not be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DescriptionError {
    #[error("there is no volume '{name}'")]
    NoSuchVolume {
        name: String,
        /// The volumes of the array.
        others: Vec<String>,
    },
    /// The volume can't be used yet: its creation is under way, or was interrupted.
    #[error("volume '{name}' is not completely created")]
    VolumeCreating { name: String },
    #[error("volume '{name}' is being deleted")]
    VolumeDeleting { name: String },
    /// The volume belongs to a file system, which programs would damage by writing the volume.
    #[error("volume '{volume}' belongs to file system '{file_system}': only the file system reads and writes it")]
    OfFileSystem { volume: String, file_system: String },
    #[error("a stripe unit can't have {bytes} bytes: choose a power of two from 4 KiB to 1 MiB, such as 64KiB")]
    Unit { bytes: u64 },
    #[error(transparent)]
    RaidLevel(#[from] RaidLevelError),
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The volume's parameters contradict one another.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    #[error(transparent)]
    Ordering(#[from] UnknownOrdering),
    #[error(transparent)]
    Atomicity(#[from] UnknownAtomicity),
    #[error(transparent)]
    ParitySite(#[from] UnknownSitePolicy),
}

/// The volume of an entry, as hosts know it.
pub fn describe(entry: &VolumeEntry) -> Result<VolumeDescription, DescriptionError> {
    let scheme: RaidLevel = entry.layout.parse()?;
    let moving = entry.moving.as_ref().map(placement).transpose()?;
    let description = VolumeDescription {
        id: VolumeId(entry.id),
        bytes: entry.bytes,
        layout: layout(scheme, entry.devices.len(), entry.unit)?.beginning_at(entry.first_block),
        devices: entry.devices.iter().map(|id| DeviceId(*id)).collect(),
        ordering: entry.ordering.parse()?,
        atomicity: entry.atomicity.parse()?,
        parity_site: entry.parity_site.parse()?,
        moving: moving.map(Box::new),
    };
    description.check()?;
    Ok(description)
}

/// The volume of an entry, including the target of a migration that is under way or about to begin.
pub fn describe_widest(entry: &VolumeEntry) -> Result<VolumeDescription, DescriptionError> {
    Ok(record(entry)?.widest())
}

pub fn record(entry: &VolumeEntry) -> Result<VolumeRecord, DescriptionError> {
    // No host has generation 0: whoever began in an older release is dead.
    let by = Generation(entry.by.unwrap_or_default());
    let state = match &entry.state {
        VolumeState::Creating => protocol::VolumeState::Creating { by },
        VolumeState::Ready => protocol::VolumeState::Ready,
        VolumeState::Draining { to, by } => protocol::VolumeState::Draining { to: change(to)?, by: Generation(*by) },
        VolumeState::Reordering { to, by } => {
            protocol::VolumeState::Reordering { to: change(to)?, by: Generation(*by) }
        }
        VolumeState::Deleting => protocol::VolumeState::Deleting { by },
    };
    let copied =
        entry.moving.as_ref().map(|target| CopyRecord { begun: Version(target.begun), copied_to: target.copied_to });
    Ok(VolumeRecord { volume: describe(entry)?, state, copied })
}

impl VolumeEntry {
    /// The entry of a new volume, which is being created.
    pub fn new(name: String, volume: &VolumeDescription) -> VolumeEntry {
        let own = placement_entry(&Placement { layout: volume.layout, devices: volume.devices.clone() });
        VolumeEntry {
            name,
            id: volume.id.0,
            bytes: volume.bytes,
            layout: own.layout,
            unit: own.unit,
            devices: own.devices,
            ordering: volume.ordering.name().to_string(),
            atomicity: volume.atomicity.to_string(),
            parity_site: volume.parity_site.to_string(),
            unavailable: None,
            attribute_volume: false,
            first_block: own.first_block,
            moving: volume.moving.as_deref().map(placement_entry),
            state: VolumeState::Creating,
            by: None,
        }
    }
}

/// Gives an entry the state, the ordering, the placements and the progress of a record.
pub fn set_record(entry: &mut VolumeEntry, record: &VolumeRecord) -> Result<(), DescriptionError> {
    let VolumeRecord { volume, state, copied } = record;
    entry.state = match state {
        protocol::VolumeState::Creating { .. } => VolumeState::Creating,
        protocol::VolumeState::Ready => VolumeState::Ready,
        protocol::VolumeState::Draining { to, by } => VolumeState::Draining { to: change_entry(to), by: by.0 },
        protocol::VolumeState::Reordering { to, by } => VolumeState::Reordering { to: change_entry(to), by: by.0 },
        protocol::VolumeState::Deleting { .. } => VolumeState::Deleting,
    };
    entry.by = match state {
        protocol::VolumeState::Creating { by } | protocol::VolumeState::Deleting { by } => Some(by.0),
        _ => None,
    };
    entry.ordering = volume.ordering.name().to_string();
    entry.bytes = volume.bytes;
    let before = describe(entry)?;
    if (&before.layout, &before.devices) != (&volume.layout, &volume.devices) {
        let own = Placement { layout: volume.layout, devices: volume.devices.clone() };
        let PlacementEntry { layout, unit, devices, first_block, .. } = placement_entry(&own);
        (entry.layout, entry.unit, entry.devices, entry.first_block) = (layout, unit, devices, first_block);
    }
    if before.moving != volume.moving {
        entry.moving = volume.moving.as_deref().map(placement_entry);
    }
    if let (Some(target), Some(copied)) = (&mut entry.moving, copied) {
        (target.begun, target.copied_to) = (copied.begun.0, copied.copied_to);
    }
    Ok(())
}

/// A change as the protocol knows it.
pub fn change(entry: &Change) -> Result<protocol::Change, DescriptionError> {
    Ok(match entry {
        Change::Ordering(to) => protocol::Change::Ordering(to.parse()?),
        Change::Move(to) => protocol::Change::Move(placement(to)?),
        Change::EndMove => protocol::Change::EndMove,
        Change::GiveUpMove => protocol::Change::GiveUpMove,
        Change::Grow(bytes) => protocol::Change::Grow(*bytes),
    })
}

fn change_entry(change: &protocol::Change) -> Change {
    match change {
        protocol::Change::Ordering(to) => Change::Ordering(to.name().to_string()),
        protocol::Change::Move(to) => Change::Move(placement_entry(to)),
        protocol::Change::EndMove => Change::EndMove,
        protocol::Change::GiveUpMove => Change::GiveUpMove,
        protocol::Change::Grow(bytes) => Change::Grow(*bytes),
    }
}

fn placement_entry(placement: &Placement) -> PlacementEntry {
    PlacementEntry {
        layout: placement.layout.scheme().to_string(),
        unit: placement.layout.unit_blocks() * BLOCK_BYTES as u64,
        devices: placement.devices.iter().map(|device| device.0).collect(),
        first_block: placement.layout.first_block(),
        copied_to: 0,
        begun: 0,
    }
}

fn placement(entry: &PlacementEntry) -> Result<Placement, DescriptionError> {
    let layout = layout(entry.layout.parse()?, entry.devices.len(), entry.unit)?;
    let devices = entry.devices.iter().map(|id| DeviceId(*id)).collect();
    Ok(Placement { layout: layout.beginning_at(entry.first_block), devices })
}

/// The volume of this name, if it is usable.
pub fn find<'a>(description: &'a ArrayDescription, name: &str) -> Result<&'a VolumeEntry, DescriptionError> {
    let entry = description.volume(name).ok_or_else(|| DescriptionError::NoSuchVolume {
        name: name.to_string(),
        others: description.volumes.iter().map(|volume| volume.name.clone()).collect(),
    })?;
    match entry.state {
        // Requests wait while the volume is on hold.
        VolumeState::Ready | VolumeState::Draining { .. } | VolumeState::Reordering { .. } => Ok(entry),
        VolumeState::Creating => Err(DescriptionError::VolumeCreating { name: name.to_string() }),
        VolumeState::Deleting => Err(DescriptionError::VolumeDeleting { name: name.to_string() }),
    }
}

/// The volume of this name, if programs may read and write it: it does not belong to a file system.
pub fn find_for_programs<'a>(
    description: &'a ArrayDescription,
    name: &str,
) -> Result<&'a VolumeEntry, DescriptionError> {
    match description.volume(name).and_then(|entry| description.file_system_of(entry)) {
        None => find(description, name),
        Some(owner) => {
            Err(DescriptionError::OfFileSystem { volume: name.to_string(), file_system: owner.name.clone() })
        }
    }
}

/// The layout of `scheme` on this many devices, with units of `unit` bytes.
pub fn layout(scheme: RaidLevel, devices: usize, unit: u64) -> Result<Layout, DescriptionError> {
    let block = BLOCK_BYTES as u64;
    if !unit.is_multiple_of(block) {
        return Err(DescriptionError::Unit { bytes: unit });
    }
    Ok(Layout::new(scheme, devices, unit / block)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(state: VolumeState, moving: Option<PlacementEntry>) -> VolumeEntry {
        VolumeEntry {
            unavailable: None,
            name: "vol0".into(),
            id: 7,
            bytes: 1 << 20,
            layout: "raid5:2+1".into(),
            unit: 4096,
            devices: vec![0, 2, 1],
            ordering: "timestamp".into(),
            atomicity: "implied".into(),
            parity_site: "at-parity".into(),
            attribute_volume: false,
            first_block: 0,
            moving,
            state,
            by: None,
        }
    }

    fn target(copied_to: u64) -> PlacementEntry {
        PlacementEntry {
            layout: "raid1:2".into(),
            unit: 8192,
            devices: vec![3, 4],
            first_block: 256,
            copied_to,
            begun: 41,
        }
    }

    #[test]
    fn a_migration_that_begins_or_ends_changes_the_placements_of_the_entry() {
        let mut moving = entry(VolumeState::Ready, None);
        let begun = change(&Change::Move(target(0))).unwrap().applied_to(&record(&moving).unwrap().volume);
        let state = protocol::VolumeState::Ready;
        let copied = Some(CopyRecord { begun: Version(41), copied_to: 0 });
        set_record(&mut moving, &VolumeRecord { volume: begun, state: state.clone(), copied }).unwrap();
        assert_eq!(moving, entry(VolumeState::Ready, Some(target(0))));
        moving.moving = Some(target(9));
        let ended = protocol::Change::EndMove.applied_to(&record(&moving).unwrap().volume);
        set_record(&mut moving, &VolumeRecord { volume: ended, state, copied: None }).unwrap();
        let there = target(0);
        let expected = VolumeEntry {
            layout: there.layout,
            unit: there.unit,
            devices: there.devices,
            first_block: there.first_block,
            ..entry(VolumeState::Ready, None)
        };
        assert_eq!(moving, expected);
    }
}
