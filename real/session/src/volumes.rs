//! Volumes: converts their names and their entries in the description to the descriptions that a host needs.

use crate::error::SessionError;
use braid_base::{BLOCK_BYTES, DeviceId, VolumeId};
use braid_control::{ArrayDescription, Change, PlacementEntry, VolumeEntry, VolumeState};
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
    match &entry.state {
        VolumeState::Draining { to: to @ Change::Move(_), .. }
        | VolumeState::Reordering { to: to @ Change::Move(_), .. } => describe(&entry.changed(to)),
        _ => describe(entry),
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
