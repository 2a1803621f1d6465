//! Determines where a disk may be damaged: only blocks that the array can reconstruct from the rest of their stripes. Also finds the
//! records on a disk.
//!
//! This code examines disks as `docs/disk-format.md` describes them, without the store's code: a block in its place is a stride of
//! 4608 bytes whose last sector names the object and the block.

use crate::cluster::Cluster;
use crate::prelude::*;
use crate::role::can_serve;
use braid_base::checksum::crc32c;
use braid_layout::UnitAddress;
use braid_world::Damageable;
use std::ops::Range;

const SECTOR: u64 = 512;
/// The first slots, in which sectors may become bad.
const SPOILT_SLOTS: u64 = 40;
/// A block and its header.
const STRIDE: u64 = BLOCK_BYTES as u64 + SECTOR;

/// Faults by which content is lost, or may be.
pub(crate) const LOSSES: [FaultKind; 5] =
    [FaultKind::Corruption, FaultKind::Unreadable, FaultKind::Replace, FaultKind::Misdirected, FaultKind::DiskError];

/// A row of a stripe: blocks that protect one another.
pub(crate) type Row = (u64, u64);

impl Cluster {
    /// Corrupts a block of the volume's component on a device, if it is in its place; otherwise returns false.
    pub fn corrupt(&mut self, device: DeviceId, block: u64) -> bool {
        let (node, object) = (NodeId::Device(device), self.volume().id.object().0);
        let homes = homes(self.world.disk(node).expect("devices have disks"), object);
        let places: Vec<_> = homes.into_iter().filter(|(held, _)| *held == block).map(|(_, bytes)| bytes).collect();
        let disk = self.world.disk_mut(node).expect("just seen");
        for bytes in &places {
            // Not in the header, some of whose bytes have no meaning.
            disk.corrupt(bytes.start..bytes.start + BLOCK_BYTES as u64);
        }
        !places.is_empty()
    }
}

/// Devices whose disks may be replaced, one at a time: all of them, while all devices are in and nothing is damaged.
pub(crate) fn devices_that_may_be_replaced(cluster: &Cluster) -> Vec<NodeId> {
    if cluster.device_notes.replacing || !is_everybody_there(cluster) {
        return Vec::new();
    }
    let object = cluster.volume().id.object().0;
    let is_any_lost = |device: &DeviceId| {
        let disk = cluster.world.disk(NodeId::Device(*device)).expect("devices have disks");
        homes(disk, object).iter().any(|(_, bytes)| is_lost(disk, bytes))
    };
    let devices = cluster.devices();
    if devices.iter().any(is_any_lost) { Vec::new() } else { devices.into_iter().map(NodeId::Device).collect() }
}

/// True if all devices are in and serve, and volumes have redundancy.
pub(crate) fn is_everybody_there(cluster: &Cluster) -> bool {
    // A device that is not in uses up the redundancy; so may a device whose state is unknown.
    let is_in =
        |membership: &Membership| membership.members.iter().all(|member| member.member_state == MemberState::In);
    let whole = cluster.membership().is_some_and(is_in)
        && cluster.devices().iter().all(|device| can_serve(&cluster.world, *device));
    cluster.volume().layout.redundancy_units() > 0 && whole
}

/// Blocks in their places, in rows without damage, while all devices are in: the other blocks of the row can replace one of them.
pub(crate) fn places_that_may_be_damaged(cluster: &Cluster) -> Vec<Damageable> {
    // A disk that is being replaced also uses up the redundancy.
    if cluster.device_notes.replacing || !is_everybody_there(cluster) {
        return Vec::new();
    }
    let mut places = places(cluster);
    let lost = lost_rows(cluster, &places);
    places.retain(|(row, _)| !lost.contains(row));
    places.into_iter().map(|(_, place)| place).collect()
}

/// The stripes of the volume that have a damaged block.
pub(crate) fn damaged_stripes(cluster: &Cluster) -> BTreeSet<u64> {
    lost_rows(cluster, &places(cluster)).into_iter().map(|(stripe, _)| stripe).collect()
}

fn lost_rows(cluster: &Cluster, places: &[(Row, Damageable)]) -> BTreeSet<Row> {
    let disk = |node| cluster.world.disk(node).expect("devices have disks");
    places.iter().filter(|(_, place)| is_lost(disk(place.node), &place.bytes)).map(|(row, _)| *row).collect()
}

/// True if a read of the block fails: it is damaged, or was written as lost because its row could not be restored.
fn is_lost(disk: &Disk, bytes: &Range<u64>) -> bool {
    let header = disk.peek(bytes.start + BLOCK_BYTES as u64, SECTOR as usize);
    // The flags.
    disk.is_hurt(bytes.clone()) || header[4..8] != [0; 4]
}

/// All blocks of the volume in their places, including old copies, and their rows.
pub(crate) fn places(cluster: &Cluster) -> Vec<(Row, Damageable)> {
    let rows = rows(cluster);
    let mut places = Vec::new();
    for (position, device) in cluster.volume().devices.iter().copied().enumerate() {
        let node = NodeId::Device(device);
        let disk = cluster.world.disk(node).expect("devices have disks");
        for (block, bytes) in homes(disk, cluster.volume().id.object().0) {
            let Some(row) = rows.get(&UnitAddress { position, block }) else { continue };
            places.push((*row, Damageable { node, bytes }));
        }
    }
    places
}

/// The row of each block of each component.
pub(crate) fn rows(cluster: &Cluster) -> BTreeMap<UnitAddress, Row> {
    let layout = &cluster.volume().layout;
    let mut rows = BTreeMap::new();
    for stripe in 0..cluster.volume().stripes() {
        let data = (0..layout.data_units()).map(|unit| layout.data_unit(stripe, unit));
        let redundancy = (0..layout.redundancy_units()).map(|unit| layout.redundancy_unit(stripe, unit));
        for unit in data.chain(redundancy) {
            let blocks =
                (0..layout.unit_blocks()).map(|row| (UnitAddress { block: unit.block + row, ..unit }, (stripe, row)));
            rows.extend(blocks);
        }
    }
    rows
}

/// The blocks of `object` that a disk has in their places, including old copies, with their byte ranges.
fn homes(disk: &Disk, object: u64) -> Vec<(u64, Range<u64>)> {
    let superblock = disk.peek(0, SECTOR as usize);
    let data = number(&superblock, 64);
    let slots = u64::from(u32::from_le_bytes(superblock[76..80].try_into().expect("four bytes")));
    let is_header = |at: &u64| (at - data) % STRIDE == BLOCK_BYTES as u64;
    let mut found = Vec::new();
    for at in disk.written(data..data + slots * 16 * STRIDE).filter(is_header) {
        let header = disk.peek(at, SECTOR as usize);
        if header.starts_with(b"BrBl") && number(&header, 8) == object {
            let start = at - BLOCK_BYTES as u64;
            found.push((number(&header, 16), start..start + STRIDE));
        }
    }
    found
}

/// The byte ranges of all copies of a record.
pub(crate) type Record = Vec<Range<u64>>;

pub(crate) fn superblocks(_: &Disk) -> Vec<Record> {
    vec![[0, 4096].map(|copy| copy..copy + SECTOR).into()]
}

/// The pages of the chunk map that have been written.
pub(crate) fn map_pages(disk: &Disk) -> Vec<Record> {
    let superblock = newest_superblock(disk);
    let pages = u64::from(u32::from_le_bytes(superblock[72..76].try_into().expect("four bytes")));
    let copies = |page: u64| [page, pages + page].map(|page| map_offset(&superblock) + page * 4096);
    let records = (0..pages)
        .map(copies)
        .filter(|copies| copies.iter().all(|copy| disk.peek(*copy, SECTOR as usize).starts_with(b"BrMp")));
    records.map(|copies| copies.map(|copy| copy..copy + 4096).into()).collect()
}

/// The headers and records of the journal's batches from which recovery begins, except the last batch: damage to that one looks like
/// a write that a loss of power tore and that was never acknowledged. The payload is excluded, too: if it is damaged, a block is
/// lost.
pub(crate) fn batches(disk: &Disk) -> Record {
    let superblock = newest_superblock(disk);
    let (journal, tail) = (number(&superblock, 40), number(&superblock, 96));
    let mut batches = BTreeMap::new();
    for at in disk.written(journal..map_offset(&superblock)) {
        let header = disk.peek(at, SECTOR as usize);
        if header.starts_with(b"BraidJnl") && number(&header, 8) >= tail && number(&header, 24) == at - journal {
            let records = u64::from(u32::from_le_bytes(header[32..36].try_into().expect("four bytes")));
            batches.insert(number(&header, 8), at..at + (64 + records).next_multiple_of(SECTOR));
        }
    }
    batches.pop_last();
    batches.into_values().collect()
}

/// Both copies of a small record, if they are undamaged and equal except for their sequence numbers.
pub(crate) fn twice_recorded(disk: &Disk, bytes: u64) -> Option<[Range<u64>; 2]> {
    let half = bytes / 2;
    let copies = [0, half].map(|copy| disk.peek(copy, half as usize));
    let is_whole = |copy: &Vec<u8>| {
        let (rest, checksum) = copy.split_at(copy.len() - 4);
        rest.starts_with(b"Braid") && crc32c(rest).to_le_bytes() == checksum
    };
    let said = |copy: &[u8]| copy[24..half as usize - 4].to_vec();
    let alike = copies.iter().all(is_whole) && said(&copies[0]) == said(&copies[1]);
    (alike && !disk.is_any_hurt()).then_some([0..half, half..bytes])
}

fn newest_superblock(disk: &Disk) -> Vec<u8> {
    let copies = [0, 4096].map(|copy| disk.peek(copy, SECTOR as usize));
    let [first, second] = copies;
    if number(&second, 80) > number(&first, 80) { second } else { first }
}

/// The end of the journal, where the chunk map begins.
pub(crate) fn map_offset(superblock: &[u8]) -> u64 {
    number(superblock, 56)
}

pub(crate) fn data_sector(superblock: &[u8], number_of: u64) -> Range<u64> {
    let slots = u64::from(u32::from_le_bytes(superblock[76..80].try_into().expect("four bytes")));
    // Only slots that are used in a small array.
    let sectors = slots.min(SPOILT_SLOTS) * 16 * STRIDE / SECTOR;
    let start = number(superblock, 64) + number_of % sectors * SECTOR;
    start..start + SECTOR
}

/// The bytes that a disk needs for `chunks` chunks of data and all metadata.
pub(crate) fn space_for(superblock: &[u8], chunks: u64) -> u64 {
    (number(superblock, 64) + chunks * 16 * STRIDE).next_multiple_of(4096)
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
