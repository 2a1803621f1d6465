//! The devices and spares of an array as data, what lies on a device, and where the bytes of a volume lie.

use crate::array::Array;
use crate::failure::Failure;
use crate::{device_lifecycle, volumes};
use braid_base::{BLOCK_BYTES, DeviceId};
use braid_control::{ArrayDescription, DeviceEntry, DeviceReport, DeviceState, DiskEntry, MonitorReport, RunningSet};
use braid_layout::VolumeDescription;
use braid_session::addressing;
use serde::Serialize;
use std::path::PathBuf;

/// The devices of an array, and its spares.
#[derive(Clone, Debug)]
pub struct Devices {
    pub devices: Vec<DeviceOverview>,
    pub spares: Vec<DiskEntry>,
}

/// A device as the array's folder describes it.
#[derive(Clone, Debug)]
pub struct DeviceOverview {
    pub entry: DeviceEntry,
    /// The monitor's last report on it; none if the array is not up.
    pub report: Option<DeviceReport>,
    /// Its file or disk, as an absolute path.
    pub file: PathBuf,
    /// The volumes that lie on it, or are migrating to it.
    pub volumes: Vec<String>,
    /// Its process, if `braid up` runs it.
    pub pid: Option<u32>,
    /// Where it serves.
    pub address: Option<String>,
}

/// A device, and what lies on it.
#[derive(Clone, Debug)]
pub struct DeviceContent {
    pub device: DeviceOverview,
    pub parts: Vec<VolumePart>,
}

#[derive(Clone, Debug)]
pub struct VolumePart {
    pub name: String,
    pub volume: VolumeDescription,
    /// True if the volume is migrating to the device, so that the copy may be incomplete.
    pub moving: bool,
    /// The device's position on the volume's ring.
    pub position: usize,
    /// Bytes of the device that the volume uses.
    pub bytes: u64,
    /// The units of the first stripes.
    pub first_units: Vec<LocatedUnit>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LocatedUnit {
    /// Its kind: `data`, `copy` or `parity`.
    pub kind: &'static str,
    /// The first byte of the volume that it holds or protects.
    pub offset: u64,
    /// The number of these bytes.
    pub length: u64,
}

#[derive(Clone, Debug)]
pub struct ByteLocation {
    pub volume: VolumeDescription,
    pub device: DeviceId,
    /// The byte's offset in the volume's component on that device.
    pub component_offset: u64,
    /// The blocks from which the byte's block can be reconstructed, or that are copies of it.
    pub others: Vec<RelatedBlock>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RelatedBlock {
    pub device: DeviceId,
    /// Its offset in the volume's component on that device.
    pub component_offset: u64,
    /// Its kind: `data`, `copy` or `parity`.
    pub kind: &'static str,
}

/// Stripes whose units are listed.
const STRIPES_NAMED: usize = 3;
const BLOCK: u64 = BLOCK_BYTES as u64;

impl Array {
    /// The devices of the array, and its spares.
    pub async fn devices(&self) -> Result<Devices, Failure> {
        let state = FolderState::read(self).await?;
        let devices = state.description.devices.iter().map(|entry| state.overview(self, entry)).collect();
        Ok(Devices { devices, spares: state.description.spares })
    }

    /// What lies on a device. The error is `no-such-device` if there is none of this number.
    pub async fn content_of_device(&self, id: u16) -> Result<DeviceContent, Failure> {
        let state = FolderState::read(self).await?;
        let entry = device_lifecycle::find(&state.description, id)?;
        let mut parts = Vec::new();
        for entry in state.description.volumes_on(id) {
            let volume = volumes::describe(entry)?;
            let target = volume.target();
            let sides = [(Some(volume), false), (target, true)].into_iter();
            let sides = sides.filter_map(|(volume, moving)| volume.map(|volume| (volume, moving)));
            parts
                .extend(sides.filter_map(|(volume, moving)| VolumePart::of(&entry.name, volume, moving, DeviceId(id))));
        }
        Ok(DeviceContent { device: state.overview(self, entry), parts })
    }

    /// Where a byte of a volume lies. Errors: `no-such-volume`, `bad-offset`.
    pub async fn locate(&self, volume: &str, offset: u64) -> Result<ByteLocation, Failure> {
        let name = volume;
        let volume = volumes::describe(volumes::find(&self.control().describe().await?, name)?)?;
        if offset >= volume.bytes {
            let message = format!("volume '{name}' has {} bytes, so offset {offset} is beyond its end", volume.bytes);
            return Err(Failure::usage("bad-offset", message));
        }
        let (device, block, others) = devices_of_block(&volume, offset / BLOCK);
        let related =
            |(device, block, kind): (_, u64, _)| RelatedBlock { device, component_offset: block * BLOCK, kind };
        let component_offset = block * BLOCK + offset % BLOCK;
        Ok(ByteLocation { device, component_offset, others: others.into_iter().map(related).collect(), volume })
    }
}

/// What the array's folder says of its devices.
struct FolderState {
    description: ArrayDescription,
    running: Option<RunningSet>,
    report: Option<MonitorReport>,
}

impl FolderState {
    async fn read(array: &Array) -> Result<FolderState, Failure> {
        let control = array.control();
        let (description, running) = (control.describe().await?, control.running().await?);
        // The report of a monitor that no longer runs is obsolete.
        let monitor = control.monitor().await?.filter(|_| running.is_some());
        Ok(FolderState { description, running, report: monitor.map(|monitor| monitor.report) })
    }

    fn overview(&self, array: &Array, entry: &DeviceEntry) -> DeviceOverview {
        let process = self.running.as_ref().and_then(|running| running.device(DeviceId(entry.id)));
        let reports = self.report.iter().flat_map(|report| &report.devices);
        DeviceOverview {
            entry: entry.clone(),
            report: reports.clone().find(|report| report.id == entry.id).cloned(),
            file: entry.path(&array.control().local().absolute()),
            volumes: self.description.volumes_on(entry.id).map(|volume| volume.name.clone()).collect(),
            pid: process.and_then(|process| process.pid),
            address: process
                .map(|process| &process.address)
                .or(entry.address.as_ref())
                .map(|address| addressing::absolute(array.control().local(), address)),
        }
    }
}

impl DeviceOverview {
    pub fn words(&self) -> String {
        match (self.entry.state, &self.report) {
            (DeviceState::Adding, _) => "being added".to_string(),
            (DeviceState::Removing, _) => "being removed".to_string(),
            (DeviceState::Ready, None) => "unknown".to_string(),
            (DeviceState::Ready, Some(report)) => {
                let more = match report {
                    DeviceReport { awaited_disk: Some(_), .. } => ", awaits its new disk",
                    DeviceReport { next_disk: Some(_), .. } => ", to be replaced",
                    DeviceReport { kept_out: true, .. } => ", taken out",
                    DeviceReport { join_refused: Some(_), .. } => ", refused",
                    _ => "",
                };
                format!("{}{more}", report.member_state.name())
            }
        }
    }
}

impl VolumePart {
    fn of(name: &str, volume: VolumeDescription, moving: bool, device: DeviceId) -> Option<VolumePart> {
        let layout = &volume.layout;
        let position = volume.devices.iter().position(|other| *other == device)?;
        let (unit, stripe_bytes) = (layout.unit_blocks() * BLOCK, layout.stripe_blocks() * BLOCK);
        let unit_of = |stripe: u64| {
            let begin = stripe * stripe_bytes;
            let data = (0..layout.data_units()).find(|data| layout.data_unit(stripe, *data).position == position);
            if let Some(data) = data {
                let offset = begin + data as u64 * unit;
                let length = unit.min(volume.bytes.saturating_sub(offset));
                return (length > 0).then_some(LocatedUnit { kind: "data", offset, length });
            }
            let mut redundancy = (0..layout.redundancy_units()).map(|unit| layout.redundancy_unit(stripe, unit));
            let kind = if layout.data_units() == 1 { "copy" } else { "parity" };
            let length = stripe_bytes.min(volume.bytes - begin);
            redundancy.any(|unit| unit.position == position).then_some(LocatedUnit { kind, offset: begin, length })
        };
        let first_units = (0..volume.stripes()).filter_map(unit_of).take(STRIPES_NAMED).collect();
        let bytes = volume.component_blocks() * BLOCK;
        Some(VolumePart { name: name.to_string(), volume, moving, position, bytes, first_units })
    }

    /// Bytes in a stripe unit.
    pub fn unit(&self) -> u64 {
        self.volume.layout.unit_blocks() * BLOCK
    }
}

/// The location of a volume's block: its device, and the blocks from which it can be reconstructed, or that are copies of it.
fn devices_of_block(volume: &VolumeDescription, block: u64) -> (DeviceId, u64, Vec<(DeviceId, u64, &'static str)>) {
    let layout = &volume.layout;
    let place = layout.locate(block);
    let (stripe, within) = (block / layout.stripe_blocks(), place.block % layout.unit_blocks());
    let data = (0..layout.data_units()).map(|unit| (layout.data_unit(stripe, unit), "data"));
    let kind = if layout.data_units() == 1 { "copy" } else { "parity" };
    let redundancy = (0..layout.redundancy_units()).map(|unit| (layout.redundancy_unit(stripe, unit), kind));
    let others = data.chain(redundancy).filter(|(other, _)| other.position != place.position);
    let others = others.filter(|_| layout.redundancy_units() > 0);
    let first = layout.first_block();
    let others = others.map(|(other, kind)| (volume.device_at(other.position), first + other.block + within, kind));
    (volume.device_at(place.position), first + place.block, others.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_named_by_their_content() {
        let kinds = |layout: &str, devices: u16| {
            let volume = crate::health::tests::volume(layout.parse().unwrap(), devices);
            let parts = (0..devices).filter_map(|id| VolumePart::of("v", volume.clone(), false, DeviceId(id)));
            let units = parts.flat_map(|part| part.first_units);
            units.map(|unit| unit.kind).collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!(kinds("raid5:2+1", 3), ["data", "parity"].into());
        assert_eq!(kinds("raid1:2", 2), ["data", "copy"].into());
        assert_eq!(kinds("raid0:3", 3), ["data"].into());
    }

    #[test]
    fn the_place_of_a_block_is_reported() {
        let volume = |scheme: &str, devices: u16| {
            let volume = crate::health::tests::volume(scheme.parse().unwrap(), devices);
            VolumeDescription { devices: (10..10 + devices).map(DeviceId).collect(), ..volume }
        };
        let mirrored = volume("raid1:2", 2);
        assert_eq!(mirrored.id, braid_base::VolumeId(1));
        let (device, block, others) = devices_of_block(&mirrored, 21);
        assert_eq!((block, others.len(), others[0].1, others[0].2), (21, 1, 21, "copy"));
        assert_ne!(device, others[0].0);
        let (device, block, others) = devices_of_block(&volume("raid5:4+1", 5), 64 + 3);
        assert_eq!((block, others.len()), (16 + 3, 4));
        assert!(others.iter().all(|(other, block, _)| *other != device && *block == 19));
        let count = |kind: &str| others.iter().filter(|(_, _, of)| *of == kind).count();
        assert_eq!((count("parity"), count("data")), (1, 3));
        assert!(devices_of_block(&volume("raid0:5", 5), 3).2.is_empty());
    }
}
