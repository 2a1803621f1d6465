//! What is recorded of a volume, and how its devices are ordered into a ring.

use crate::{Absence, Layout};
use braid_base::{BLOCK_BYTES, BlockRange, DeviceId, VolumeId};
use braid_wire::{Atomicity, Ordering, WriteMode};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A volume: all that a host must know to serve it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VolumeDescription {
    /// Its name; that of its component objects, too.
    pub id: VolumeId,
    /// Its usable size: a multiple of a block.
    pub bytes: u64,
    /// How it lies on the ring.
    pub layout: Layout,
    /// The ring: each device that holds a component, once.
    pub devices: Vec<DeviceId>,
    /// How requests of several hosts are kept apart.
    pub ordering: Ordering,
    /// What becomes of a hostwrite that is cut short.
    pub atomicity: Atomicity,
    /// Where it moves to, while it does: what is written is written there, too, in the same transaction.
    pub moving: Option<Box<Placement>>,
}

/// Where a volume lies: a layout, and the devices of its ring.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Placement {
    /// How it lies on the ring.
    pub layout: Layout,
    /// The ring: each device that holds a component, once.
    pub devices: Vec<DeviceId>,
}

/// Which devices of a volume can't be used as usual, by their positions on the ring where it lies, and on that where it moves to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Absences {
    /// Where it lies.
    pub own: Absence,
    /// Where it moves to.
    pub target: Absence,
}

impl VolumeDescription {
    /// Says what is wrong with the description, if anything.
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

    /// True if it may move to such a layout while it is used: what is written on both sides must be undone as a whole, devices must
    /// agree on whether they can do without one of them, and something must keep copies and writes apart.
    pub fn can_move_to(&self, layout: &Layout) -> bool {
        let is_redundant = |layout: &Layout| layout.redundancy_units() > 0;
        self.mode() == WriteMode::Intent && is_redundant(layout) == is_redundant(&self.layout)
    }

    /// The same volume as it lies where it moves to, if it does.
    pub fn target(&self) -> Option<VolumeDescription> {
        let Placement { layout, devices } = self.moving.as_deref()?.clone();
        Some(VolumeDescription { layout, devices, moving: None, ..self.clone() })
    }

    /// Where it lies, and where it moves to if it does.
    pub fn placements(&self) -> impl Iterator<Item = (&Layout, &[DeviceId])> {
        let target = self.moving.as_deref().map(|target| (&target.layout, &target.devices[..]));
        [(&self.layout, &self.devices[..])].into_iter().chain(target)
    }

    /// All devices that it has anything to do with: the ring, then those that only the ring has to which it moves.
    pub fn holders(&self) -> Vec<DeviceId> {
        self.devices.iter().copied().chain(self.newcomers()).collect()
    }

    /// The devices of the ring to which it moves that are not on its own.
    fn newcomers(&self) -> impl Iterator<Item = DeviceId> {
        let target = self.moving.iter().flat_map(|target| target.devices.iter().copied());
        target.filter(|device| !self.devices.contains(device))
    }

    /// Of each position of the ring to which it moves, which device of [`holders`](VolumeDescription::holders) that is.
    pub fn target_positions(&self) -> Vec<usize> {
        let holders = self.holders();
        let position = |device: &DeviceId| holders.iter().position(|held| held == device).expect("it is one of them");
        self.moving.iter().flat_map(|target| target.devices.iter().map(position)).collect()
    }

    /// The blocks of its component objects where it lies.
    pub fn component(&self) -> BlockRange {
        BlockRange::new(self.layout.first_block(), self.component_blocks())
    }

    /// The blocks of its object on a device: from the first to the last that it has there. None if it has none.
    pub fn object_on(&self, device: DeviceId) -> Option<BlockRange> {
        let there = self.placements().filter(|(_, devices)| devices.contains(&device));
        let ranges =
            there.map(|(layout, _)| BlockRange::new(layout.first_block(), layout.component_blocks(self.blocks())));
        ranges.reduce(|one, other| BlockRange::between(one.start.min(other.start), one.end().max(other.end())))
    }

    /// A block from which on the components of a volume can lie that is to move to such a layout: apart from where they are.
    pub fn place_for(&self, layout: &Layout) -> u64 {
        let (needed, own) = (layout.component_blocks(self.blocks()), self.component());
        if needed <= own.start { 0 } else { own.end().next_multiple_of(Layout::UNIT_BLOCKS_MAX) }
    }

    /// How its devwrites are made.
    pub fn mode(&self) -> WriteMode {
        WriteMode::of(self.ordering, self.atomicity)
    }

    /// The device at a position of the ring; behind those, of the ring to which it moves.
    pub fn device_at(&self, position: usize) -> DeviceId {
        match self.devices.get(position) {
            Some(device) => *device,
            None => self.newcomers().nth(position - self.devices.len()).expect("a position is of a device"),
        }
    }

    /// Its ring with these devices of the array away. One that is lost and stale is lost.
    pub fn absence(&self, lost: &BTreeSet<DeviceId>, stale: &BTreeSet<DeviceId>) -> Absence {
        absence_of(&self.devices, lost, stale)
    }

    /// The same of all that it has to do with.
    pub fn absences(&self, lost: &BTreeSet<DeviceId>, stale: &BTreeSet<DeviceId>) -> Absences {
        let target = self.moving.as_deref().map(|target| absence_of(&target.devices, lost, stale));
        Absences { own: self.absence(lost, stale), target: target.unwrap_or_default() }
    }

    /// Its usable size in blocks.
    pub fn blocks(&self) -> u64 {
        self.bytes / BLOCK_BYTES as u64
    }

    /// How many stripes it has.
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

/// Why a volume can't be as described.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VolumeError {
    /// The size.
    #[error("a volume can't have {bytes} bytes: choose a multiple of 4096, not zero")]
    Size {
        /// What was asked for.
        bytes: u64,
    },
    /// The list of devices and the layout differ.
    #[error("the volume lists {listed} devices, but its layout is for a ring of {ring}: the description is damaged")]
    Ring {
        /// Devices listed.
        listed: usize,
        /// Devices of the layout.
        ring: usize,
    },
    /// Where it lies and where it moves to are not apart, or begin in the middle of something.
    #[error("the volume's components don't lie where they can: the description is damaged")]
    Overlap,
    /// It can't move so.
    #[error("the volume can't move so while it is used: the description is damaged")]
    Move,
    /// A device stands on the ring twice.
    #[error("the volume lists device {device} twice: each device may hold one component only")]
    Twice {
        /// Which.
        device: DeviceId,
    },
}

/// Orders devices, each with its failure domain, into a ring on which any `width` neighbours are of different domains:
/// so no two units of a stripe share one. Devices of different domains keep their order.
pub fn ring_of<D: Ord + Clone + fmt::Display>(
    devices: &[(DeviceId, D)],
    width: usize,
) -> Result<Vec<DeviceId>, RingError> {
    // Of each domain: how many devices, and where its first one is listed.
    let mut domains: BTreeMap<&D, (usize, usize)> = BTreeMap::new();
    for (index, (_, domain)) in devices.iter().enumerate() {
        domains.entry(domain).or_insert((0, index)).0 += 1;
    }
    let Some((domain, (rounds, _))) = domains.iter().max_by_key(|(_, (count, _))| *count) else {
        return Err(RingError::NoDevices);
    };
    let rounds = *rounds;
    // A domain's devices must stand at least `width` apart all round the ring: no other condition is needed.
    if rounds * width > devices.len() {
        return Err(RingError::Crowded {
            domain: domain.to_string(),
            count: rounds,
            devices: devices.len(),
            width,
            most: devices.len() / width,
        });
    }
    // The largest domain, of `rounds` devices, cuts the ring into as many arcs, each at least `width` long. Domain after
    // domain, largest first, takes the first places of all arcs, then the second, and so on. A domain that fills a
    // place in every arc has its devices an arc apart. One that is smaller than `rounds` and goes on from the last
    // arcs' i-th places to the first arcs' next ones leaves out at least one arc in between.
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
    /// There are none.
    #[error("there are no devices to lay a volume on: add some")]
    NoDevices,
    /// One domain has too many of them.
    #[error(
        "{count} of {devices} devices share the failure domain {domain}, and no two of a stripe's {width} units may: with \
         so many devices, at most {most} can be in one domain; add devices elsewhere or choose a narrower layout"
    )]
    Crowded {
        /// The largest domain.
        domain: String,
        /// Its devices.
        count: usize,
        /// All devices.
        devices: usize,
        /// Units of a stripe.
        width: usize,
        /// The most devices of one domain among so many.
        most: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scheme;
    use proptest::prelude::*;

    fn volume() -> VolumeDescription {
        VolumeDescription {
            id: VolumeId(1),
            bytes: 1 << 20,
            layout: Layout::new(Scheme::Raid5 { data: 2 }, 3, 16).unwrap(),
            devices: (0..3).map(DeviceId).collect(),
            ordering: Ordering::Timestamp,
            atomicity: Atomicity::Implied,
            moving: None,
        }
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
    fn devices_away_are_told_by_position() {
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
        fn neighbours_on_a_ring_are_of_different_domains(
            width in 1usize..6,
            domains in prop::collection::vec(0u8..9, 1..30),
        ) {
            let devices = devices(&domains);
            let largest = (0..9).map(|domain| domains.iter().filter(|d| **d == domain).count()).max().unwrap();
            let Ok(ring) = ring_of(&devices, width) else {
                // By the pigeonhole principle, only what is impossible is refused.
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
