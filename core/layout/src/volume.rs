//! The description of a volume, and the order of its devices on the ring.

use crate::{Absence, Layout, SitePolicy};
use braid_base::{BLOCK_BYTES, BlockRange, DeviceId, VolumeId};
use braid_ordering::{Atomicity, Ordering, WriteMode};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The description of a volume: everything that a host must know to serve it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct VolumeDescription {
    /// The number of the volume, and of its component objects.
    pub id: VolumeId,
    /// The usable size, a multiple of 4096.
    pub bytes: u64,
    pub layout: Layout,
    /// The ring: each device that holds a component, once.
    pub devices: Vec<DeviceId>,
    /// How requests of several hosts are kept apart.
    pub ordering: Ordering,
    /// What happens to interrupted hostwrites.
    pub atomicity: Atomicity,
    /// Where parity is computed.
    pub parity_site: SitePolicy,
    /// The new location, while the volume is migrating. Every write then goes to both locations, in the same transaction.
    pub moving: Option<Box<Placement>>,
}

/// The location of a volume: a layout, and the devices of its ring.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Placement {
    pub layout: Layout,
    /// The ring: each device that holds a component, once.
    pub devices: Vec<DeviceId>,
}

/// The devices of a volume that can't be used as usual, by their positions on the ring of the present location and on that of the new
/// one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Absences {
    /// On the ring of the present location.
    pub own: Absence,
    /// On the ring of the new location.
    pub target: Absence,
}

impl VolumeDescription {
    /// A volume with the usual ordering, atomicity and place of parity. It does not move.
    pub fn new(id: VolumeId, bytes: u64, layout: Layout, devices: Vec<DeviceId>) -> VolumeDescription {
        let (ordering, atomicity, parity_site) = (Ordering::Timestamp, Atomicity::Implied, SitePolicy::default());
        VolumeDescription { id, bytes, layout, devices, ordering, atomicity, parity_site, moving: None }
    }

    /// Validates the description.
    pub fn check(&self) -> Result<(), VolumeError> {
        if self.bytes == 0 || !self.bytes.is_multiple_of(BLOCK_BYTES as u64) {
            return Err(VolumeError::Size { bytes: self.bytes });
        }
        check_ring(&self.layout, &self.devices)?;
        let Some(target) = &self.moving else { return Ok(()) };
        check_ring(&target.layout, &target.devices)?;
        let of_target = BlockRange::new(target.layout.first_block(), target.layout.component_blocks(self.blocks()));
        if self.component().overlaps(of_target) {
            return Err(VolumeError::Overlap);
        }
        if !self.can_move_to(&target.layout) {
            return Err(VolumeError::Move);
        }
        Ok(())
    }

    /// True if the volume can migrate to such a layout while it is used. This requires that writes to both locations can be aborted as a
    /// whole (they are intents), that both layouts are redundant or neither is, so that devices agree on whether they can serve with one
    /// of them missing, and that an ordering separates copies from writes.
    pub fn can_move_to(&self, layout: &Layout) -> bool {
        let is_redundant = |layout: &Layout| layout.redundancy_units() > 0;
        self.mode() == WriteMode::Intent && is_redundant(layout) == is_redundant(&self.layout)
    }

    /// The volume at its new location, if it is migrating.
    pub fn target(&self) -> Option<VolumeDescription> {
        let Placement { layout, devices } = self.moving.as_deref()?.clone();
        Some(VolumeDescription { layout, devices, moving: None, ..self.clone() })
    }

    /// The present location, and the new one if the volume is migrating.
    pub fn placements(&self) -> impl Iterator<Item = (&Layout, &[DeviceId])> {
        let target = self.moving.as_deref().map(|target| (&target.layout, &target.devices[..]));
        [(&self.layout, &self.devices[..])].into_iter().chain(target)
    }

    /// All devices that hold a part of the volume: those of its ring, then those that are on the ring of the new location only.
    pub fn holders(&self) -> Vec<DeviceId> {
        self.devices.iter().copied().chain(self.newcomers()).collect()
    }

    /// The devices on the ring of the new location that are not on the present one.
    fn newcomers(&self) -> impl Iterator<Item = DeviceId> {
        let target = self.moving.iter().flat_map(|target| target.devices.iter().copied());
        target.filter(|device| !self.devices.contains(device))
    }

    /// For each position of the ring of the new location, the index of its device in [`holders`](VolumeDescription::holders).
    pub fn target_positions(&self) -> Vec<usize> {
        let holders = self.holders();
        let position = |device: &DeviceId| {
            holders.iter().position(|held| held == device).expect("a device of the target is a holder")
        };
        self.moving.iter().flat_map(|target| target.devices.iter().map(position)).collect()
    }

    /// The blocks of its component objects at the present location.
    pub fn component(&self) -> BlockRange {
        BlockRange::new(self.layout.first_block(), self.component_blocks())
    }

    /// The blocks of its object on a device: from the first to the last that it has there. `None` if it has none.
    pub fn object_on(&self, device: DeviceId) -> Option<BlockRange> {
        let there = self.placements().filter(|(_, devices)| devices.contains(&device));
        let ranges =
            there.map(|(layout, _)| BlockRange::new(layout.first_block(), layout.component_blocks(self.blocks())));
        ranges.reduce(|one, other| BlockRange::between(one.start.min(other.start), one.end().max(other.end())))
    }

    /// A first block for the components at a new location with this layout, such that they do not overlap the present ones.
    pub fn place_for(&self, layout: &Layout) -> u64 {
        let (needed, own) = (layout.component_blocks(self.blocks()), self.component());
        if needed <= own.start { 0 } else { own.end().next_multiple_of(Layout::UNIT_BLOCKS_MAX) }
    }

    /// Whether its devwrites are intents.
    pub fn mode(&self) -> WriteMode {
        WriteMode::of(self.ordering, self.atomicity)
    }

    /// The device at a position of the ring; positions after the last are those of devices on the ring of the new location.
    pub fn device_at(&self, position: usize) -> DeviceId {
        match self.devices.get(position) {
            Some(device) => *device,
            None => self.newcomers().nth(position - self.devices.len()).expect("a position belongs to a device"),
        }
    }

    /// The positions of these devices of the array on its ring. A device that is in both sets is lost.
    pub fn absence(&self, lost: &BTreeSet<DeviceId>, stale: &BTreeSet<DeviceId>) -> Absence {
        absence_of(&self.devices, lost, stale)
    }

    /// The same for both locations.
    pub fn absences(&self, lost: &BTreeSet<DeviceId>, stale: &BTreeSet<DeviceId>) -> Absences {
        let target = self.moving.as_deref().map(|target| absence_of(&target.devices, lost, stale));
        Absences { own: self.absence(lost, stale), target: target.unwrap_or_default() }
    }

    /// The usable size in blocks.
    pub fn blocks(&self) -> u64 {
        self.bytes / BLOCK_BYTES as u64
    }

    pub fn stripes(&self) -> u64 {
        self.layout.stripes(self.blocks())
    }

    /// The length in blocks of its component object on each device.
    pub fn component_blocks(&self) -> u64 {
        self.layout.component_blocks(self.blocks())
    }
}

fn check_ring(layout: &Layout, devices: &[DeviceId]) -> Result<(), VolumeError> {
    if devices.len() != layout.devices() {
        return Err(VolumeError::Ring { listed: devices.len(), ring: layout.devices() });
    }
    if !layout.first_block().is_multiple_of(Layout::UNIT_BLOCKS_MAX) {
        return Err(VolumeError::Overlap);
    }
    let mut seen = BTreeSet::new();
    match devices.iter().find(|device| !seen.insert(**device)) {
        Some(twice) => Err(VolumeError::Twice { device: *twice }),
        None => Ok(()),
    }
}

fn absence_of(devices: &[DeviceId], lost: &BTreeSet<DeviceId>, stale: &BTreeSet<DeviceId>) -> Absence {
    let mut absence = Absence::none();
    if lost.is_empty() && stale.is_empty() {
        return absence;
    }
    for (position, device) in devices.iter().enumerate() {
        if lost.contains(device) {
            absence.lose(position);
        } else if stale.contains(device) {
            absence.stale(position);
        }
    }
    absence
}

/// Why a description of a volume is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VolumeError {
    #[error("a volume can't have {bytes} bytes: choose a multiple of 4096, not zero")]
    Size { bytes: u64 },
    #[error("the volume lists {listed} devices, but its layout is for a ring of {ring}: the description is damaged")]
    Ring {
        /// The number of devices listed.
        listed: usize,
        /// The number of devices in the layout.
        ring: usize,
    },
    /// The components of both locations overlap, or do not begin at a multiple of the largest stripe unit.
    #[error("the volume's components overlap or are misaligned: the description is damaged")]
    Overlap,
    #[error("the volume can't migrate in this way while it is used: the description is damaged")]
    Move,
    #[error("the volume lists device {device} twice: each device may hold one component only")]
    Twice { device: DeviceId },
}

/// Orders devices, each with its failure domain, into a ring on which any `width` neighbours are in different domains: then no two units
/// of a stripe share a domain. Devices of different domains keep their order.
pub fn ring_of<D: Ord + Clone + fmt::Display>(
    devices: &[(DeviceId, D)],
    width: usize,
) -> Result<Vec<DeviceId>, RingError> {
    // For each domain: the number of its devices, and the index of the first one.
    let mut domains: BTreeMap<&D, (usize, usize)> = BTreeMap::new();
    for (index, (_, domain)) in devices.iter().enumerate() {
        domains.entry(domain).or_insert((0, index)).0 += 1;
    }
    let Some((domain, (rounds, _))) = domains.iter().max_by_key(|(_, (count, _))| *count) else {
        return Err(RingError::NoDevices);
    };
    let rounds = *rounds;
    // A domain's devices must be at least `width` positions apart on the ring. This condition is also sufficient.
    if rounds * width > devices.len() {
        return Err(RingError::Crowded {
            domain: domain.to_string(),
            count: rounds,
            devices: devices.len(),
            width,
            most: devices.len() / width,
        });
    }
    // The largest domain, of `rounds` devices, divides the ring into that many arcs, each at least `width` long. One domain after the
    // other, largest first, takes the first positions of all arcs, then the second positions, and so on. A domain that takes a position
    // in every arc has its devices one arc apart. A domain smaller than `rounds` that continues from the i-th positions of the last arcs
    // to the next positions of the first arcs omits at least one arc in between.
    let mut by_domain: Vec<&(DeviceId, D)> = devices.iter().collect();
    by_domain.sort_by_key(|(_, domain)| {
        let (count, first) = domains[domain];
        (std::cmp::Reverse(count), first)
    });
    let mut arcs = vec![Vec::new(); rounds];
    for (index, (device, _)) in by_domain.into_iter().enumerate() {
        arcs[index % rounds].push(*device);
    }
    Ok(arcs.concat())
}

/// Why devices can't be ordered into a ring.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    #[error("there are no devices to lay a volume on: add some")]
    NoDevices,
    #[error(
        "{count} of {devices} devices share the failure domain {domain}, and no two of a stripe's {width} units may: with \
         so many devices, at most {most} can be in one domain; add devices elsewhere or choose a narrower layout"
    )]
    Crowded {
        /// The largest domain.
        domain: String,
        /// The number of its devices.
        count: usize,
        devices: usize,
        /// Units of a stripe.
        width: usize,
        /// The most devices that one domain may have.
        most: usize,
    },
}

/// Splits a range of a volume for several transactions: at the multiples of `whole`, into pieces of at most `most` bytes. A range that fits
/// into one piece is not split.
pub fn pieces(offset: u64, end: u64, most: u64, whole: u64) -> Vec<(u64, u64)> {
    if end - offset <= most {
        return if offset == end { Vec::new() } else { vec![(offset, end - offset)] };
    }
    let mut pieces = Vec::new();
    let mut at = offset;
    while at < end {
        let next = end.min((at / whole + 1) * whole);
        pieces.push((at, next - at));
        at = next;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RaidLevel;
    use proptest::prelude::*;

    fn volume() -> VolumeDescription {
        VolumeDescription::new(
            VolumeId(1),
            1 << 20,
            Layout::new(RaidLevel::Raid5 { data: 2 }, 3, 16).unwrap(),
            (0..3).map(DeviceId).collect(),
        )
    }

    #[test]
    fn a_sound_description_passes() {
        assert_eq!(volume().check(), Ok(()));
        assert_eq!((volume().stripes(), volume().component_blocks()), (8, 128));
    }

    #[test]
    fn unsound_descriptions_are_refused() {
        for bytes in [0, 4095, 4097, (1 << 20) + 512] {
            assert_eq!(VolumeDescription { bytes, ..volume() }.check(), Err(VolumeError::Size { bytes }));
        }
        let two = VolumeDescription { devices: vec![DeviceId(0), DeviceId(1)], ..volume() };
        assert_eq!(two.check(), Err(VolumeError::Ring { listed: 2, ring: 3 }));
        let twice = VolumeDescription { devices: vec![DeviceId(0), DeviceId(1), DeviceId(0)], ..volume() };
        assert_eq!(twice.check(), Err(VolumeError::Twice { device: DeviceId(0) }));
    }

    #[test]
    fn missing_devices_are_named_by_position() {
        let volume = VolumeDescription { devices: [7, 3, 9].map(DeviceId).to_vec(), ..volume() };
        let unavailable = |devices: &[u16]| devices.iter().copied().map(DeviceId).collect::<BTreeSet<DeviceId>>();
        let absence = volume.absence(&unavailable(&[9, 5]), &unavailable(&[9, 7, 4]));
        let mut expected = Absence::none();
        expected.lose(2);
        expected.stale(0);
        assert_eq!(absence, expected);
        assert!(volume.absence(&unavailable(&[4]), &unavailable(&[])).is_none(), "another volume's device");
    }

    fn devices(domains: &[u8]) -> Vec<(DeviceId, u8)> {
        domains.iter().enumerate().map(|(index, domain)| (DeviceId(index as u16), *domain)).collect()
    }

    #[test]
    fn devices_of_different_domains_keep_their_order() {
        assert_eq!(ring_of(&devices(&[9, 3, 7, 1]), 3), Ok((0..4).map(DeviceId).collect()));
    }

    #[test]
    fn a_crowded_domain_is_named() {
        let error = ring_of(&devices(&[0, 1, 2, 2, 3]), 3).unwrap_err();
        assert!(error.to_string().starts_with("2 of 5 devices share the failure domain 2"), "{error}");
        assert_eq!(ring_of::<u8>(&[], 3), Err(RingError::NoDevices));
    }

    proptest! {
        #[test]
        fn pieces_cover_the_range_and_none_is_too_long(
            offset in 0..1000_u64,
            length in 0..1000_u64,
            whole in 1..100_u64,
            more in 0..50_u64,
        ) {
            let most = whole + more;
            let pieces = pieces(offset, offset + length, most, whole);
            let covered: Vec<u64> = pieces.iter().flat_map(|&(start, count)| start..start + count).collect();
            prop_assert_eq!(covered, (offset..offset + length).collect::<Vec<_>>());
            prop_assert!(pieces.iter().all(|&(_, count)| count > 0 && count <= most));
            prop_assert!(length > most || pieces.len() <= 1, "a range that fits into one piece is not split");
            let ends = pieces.iter().rev().skip(1).map(|&(start, count)| start + count);
            prop_assert!(ends.into_iter().all(|end| end.is_multiple_of(whole)));
        }

        #[test]
        fn neighbours_on_a_ring_are_of_different_domains(
            width in 1usize..6,
            domains in prop::collection::vec(0u8..9, 1..30),
        ) {
            let devices = devices(&domains);
            let largest = (0..9).map(|domain| domains.iter().filter(|d| **d == domain).count()).max().unwrap();
            let Ok(ring) = ring_of(&devices, width) else {
                // By the pigeonhole principle, only impossible rings are refused.
                prop_assert!(largest * width > devices.len());
                return Ok(());
            };
            prop_assert_eq!(ring.iter().collect::<BTreeSet<_>>().len(), devices.len());
            for start in 0..ring.len() {
                let near: BTreeSet<u8> =
                    (0..width).map(|step| domains[ring[(start + step) % ring.len()].0 as usize]).collect();
                prop_assert_eq!(near.len(), width, "{:?}", ring);
            }
        }
    }
}
