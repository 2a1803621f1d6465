//! Volumes: converts their names and their entries in the description to the descriptions that a host needs, and to the records that the
//! control protocol reads and replaces.

use crate::error::SessionError;
use braid_base::{BLOCK_BYTES, DeviceId, Generation, VolumeId};
use braid_control::{ArrayDescription, Change, PlacementEntry, VolumeEntry, VolumeState};
use braid_control_protocol as protocol;
use braid_control_protocol::{CopyRecord, Version, VolumeRecord};
use braid_layout::{Layout, Placement, RaidLevel, VolumeDescription};

/// The volume of an entry, as hosts know it.
pub fn describe(entry: &VolumeEntry) -> Result<VolumeDescription, SessionError> {
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
pub fn describe_widest(entry: &VolumeEntry) -> Result<VolumeDescription, SessionError> {
    let VolumeRecord { volume, state, .. } = record(entry)?;
    Ok(match state {
        protocol::VolumeState::Draining { to: to @ protocol::Change::Move(_), .. }
        | protocol::VolumeState::Reordering { to: to @ protocol::Change::Move(_), .. } => to.applied_to(&volume),
        _ => volume,
    })
}

/// The record of an entry.
pub fn record(entry: &VolumeEntry) -> Result<VolumeRecord, SessionError> {
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

/// Gives an entry the state, the ordering, the placements and the progress of a record.
pub fn set_record(entry: &mut VolumeEntry, record: &VolumeRecord) -> Result<(), SessionError> {
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
pub fn change(entry: &Change) -> Result<protocol::Change, SessionError> {
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

fn placement(entry: &PlacementEntry) -> Result<Placement, SessionError> {
    let layout = layout(entry.layout.parse()?, entry.devices.len(), entry.unit)?;
    let devices = entry.devices.iter().map(|id| DeviceId(*id)).collect();
    Ok(Placement { layout: layout.beginning_at(entry.first_block), devices })
}

/// The volume of this name, if it is usable.
pub fn find<'a>(description: &'a ArrayDescription, name: &str) -> Result<&'a VolumeEntry, SessionError> {
    let entry = description.volume(name).ok_or_else(|| SessionError::NoSuchVolume {
        name: name.to_string(),
        others: description.volumes.iter().map(|volume| volume.name.clone()).collect(),
    })?;
    match entry.state {
        // Requests wait while the volume is on hold.
        VolumeState::Ready | VolumeState::Draining { .. } | VolumeState::Reordering { .. } => Ok(entry),
        VolumeState::Creating => Err(SessionError::VolumeCreating { name: name.to_string() }),
        VolumeState::Deleting => Err(SessionError::VolumeDeleting { name: name.to_string() }),
    }
}

/// The volume of this name, if programs may read and write it: it does not belong to a file system.
pub fn find_for_programs<'a>(description: &'a ArrayDescription, name: &str) -> Result<&'a VolumeEntry, SessionError> {
    match description.volume(name).and_then(|entry| description.file_system_of(entry)) {
        None => find(description, name),
        Some(owner) => Err(SessionError::OfFileSystem { volume: name.to_string(), file_system: owner.name.clone() }),
    }
}

/// The layout of `scheme` on this many devices, with units of `unit` bytes.
pub fn layout(scheme: RaidLevel, devices: usize, unit: u64) -> Result<Layout, SessionError> {
    let block = BLOCK_BYTES as u64;
    if !unit.is_multiple_of(block) {
        return Err(SessionError::Unit { bytes: unit });
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
    fn a_record_that_is_written_back_changes_nothing() {
        let draining = |to: Change| VolumeState::Draining { to, by: 3 };
        for entry in [
            entry(VolumeState::Ready, None),
            VolumeEntry { by: Some(4), ..entry(VolumeState::Creating, None) },
            VolumeEntry { by: Some(4), ..entry(VolumeState::Deleting, Some(target(5))) },
            entry(draining(Change::Ordering("device-lock".into())), None),
            // It gets its name when it begins.
            entry(draining(Change::Move(PlacementEntry { begun: 0, ..target(0) })), None),
            entry(VolumeState::Reordering { to: Change::EndMove, by: 4 }, Some(target(5))),
            entry(VolumeState::Reordering { to: Change::GiveUpMove, by: 4 }, Some(target(5))),
            entry(VolumeState::Reordering { to: Change::Grow(1 << 30), by: 4 }, None),
        ] {
            let mut written = entry.clone();
            set_record(&mut written, &record(&entry).unwrap()).unwrap();
            assert_eq!(written, entry);
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
