//! Missed writes: the hostwrites that took effect here while another device was out, by device and object, in blocks of the volume. A
//! returning device is resynchronised from them: `docs/membership.md`.
//!
//! The set follows from the journal's records alone, live and in replay, and has records of its own only in a snapshot. Its room there is
//! bounded: when there are too many extents, close neighbours are joined. So a resync may write more than a device missed, but never
//! less.

use crate::journal_format::{MISSED_PER_RECORD, Record, missed_len};
use braid_base::{BlockRange, DeviceId, Epoch, Extents, Member, MemberState, Membership, ObjectId};
use braid_blocks::Linkage;
use std::collections::BTreeMap;

/// The most extents for one device and object.
const EXTENTS_MAX: usize = 16_384;

/// What each device has missed of each object.
#[derive(Clone, Debug)]
pub(crate) struct Missed {
    /// All members other than this device that are out or returning. As a rule there are none, and then a commit costs nothing here.
    absent: Vec<Member>,
    extents: BTreeMap<(DeviceId, ObjectId), Extents>,
    /// Bytes that the extents take in a snapshot. `budget` is about the most that they may take.
    bytes: u64,
    budget: u64,
}

/// The blocks of a hostwrite.
pub(crate) fn extent_of(linkage: Linkage) -> BlockRange {
    BlockRange::between(linkage.first, linkage.last.saturating_add(1))
}

/// True if what was written in `epoch` did not reach `member`.
fn misses(member: &Member, epoch: Epoch) -> bool {
    match member.member_state {
        MemberState::In => false,
        MemberState::Returning { .. } => member.since > epoch,
        MemberState::Out => true,
    }
}

impl Missed {
    /// No device is out. Extents may take about `budget` bytes of a snapshot.
    pub fn new(budget: u64) -> Missed {
        Missed { absent: Vec::new(), extents: BTreeMap::new(), bytes: 0, budget }
    }

    /// Takes over the members of another membership. The device itself is `own`.
    pub fn go_by(&mut self, membership: &Membership, own: DeviceId) {
        let is_absent = |member: &&Member| member.member_state != MemberState::In && member.device != own;
        self.absent = membership.members.iter().filter(is_absent).copied().collect();
    }

    /// Drops the extents of devices that are in again, or that are no members any more.
    pub fn drop_of_present(&mut self) {
        let absent = &self.absent;
        self.extents.retain(|(device, _), _| absent.iter().any(|member| member.device == *device));
        self.count();
    }

    /// Drops the extents of a removed object.
    pub fn drop_of_object(&mut self, object: ObjectId) {
        self.extents.retain(|(_, of), _| *of != object);
        self.count();
    }

    fn count(&mut self) {
        self.bytes = self.extents.values().map(|extents| missed_len(extents.len())).sum();
    }

    /// True if all other devices are in, so that none misses anything.
    pub fn is_nobody_absent(&self) -> bool {
        self.absent.is_empty()
    }

    /// A hostwrite of `epoch` has taken effect: every absent device misses it. A device that has been returning since before that epoch
    /// does not miss it, unless this device was `alone` in the hostwrite.
    pub fn add(&mut self, object: ObjectId, linkage: Linkage, epoch: Epoch, alone: bool) {
        self.add_where(object, linkage, |member| alone || misses(member, epoch));
    }

    /// A hostwrite of `epoch` may yet take effect: the absent devices among its participants miss it.
    pub fn add_of(&mut self, object: ObjectId, linkage: Linkage, epoch: Epoch, participants: &[DeviceId]) {
        self.add_where(object, linkage, |member| misses(member, epoch) && participants.contains(&member.device));
    }

    fn add_where(&mut self, object: ObjectId, linkage: Linkage, concerns: impl Fn(&Member) -> bool) {
        for index in 0..self.absent.len() {
            let member = self.absent[index];
            if concerns(&member) {
                self.insert(member.device, object, extent_of(linkage));
            }
        }
    }

    /// Adds blocks that a device missed.
    pub fn insert(&mut self, device: DeviceId, object: ObjectId, blocks: BlockRange) {
        if blocks.is_empty() {
            return;
        }
        let extents = self.extents.entry((device, object)).or_default();
        // A new entry counts nothing yet: `missed_len` of no extents is zero.
        let before = missed_len(extents.len());
        extents.insert(blocks);
        if extents.len() > EXTENTS_MAX {
            extents.coarsen(EXTENTS_MAX / 4 * 3);
        }
        self.bytes = self.bytes - before + missed_len(extents.len());
        while self.bytes > self.budget {
            let largest = self.extents.values_mut().max_by_key(|extents| extents.len());
            let Some(largest) = largest.filter(|extents| extents.len() > 1) else { return };
            let before = missed_len(largest.len());
            largest.coarsen(largest.len() / 2);
            self.bytes = self.bytes - before + missed_len(largest.len());
        }
    }

    /// The extents of an object that a device has missed, from block `from` on, in ascending order; no two touch.
    pub fn of(&self, device: DeviceId, object: ObjectId, from: u64) -> impl Iterator<Item = BlockRange> {
        self.extents.get(&(device, object)).into_iter().flat_map(move |extents| extents.from(from))
    }

    pub fn len(&self) -> usize {
        self.extents.values().map(Extents::len).sum()
    }

    /// The room to reserve for the extents in a snapshot. It does not depend on which devices are out: when a device fails, the journal
    /// may be as full as it ever gets.
    pub fn journal_room(&self) -> u64 {
        self.bytes.max(self.budget)
    }

    /// The records of the set for a snapshot.
    pub fn records(&self) -> impl Iterator<Item = Record> {
        self.extents.iter().flat_map(|((device, object), extents)| {
            let all: Vec<BlockRange> = extents.from(0).collect();
            let record =
                |part: &[BlockRange]| Record::Missed { device: *device, object: *object, extents: part.to_vec() };
            all.chunks(MISSED_PER_RECORD).map(record).collect::<Vec<_>>()
        })
    }
}

/// Sorts ranges, and joins those that touch or overlap.
pub(crate) fn merged(mut ranges: Vec<BlockRange>) -> Vec<BlockRange> {
    ranges.sort_unstable();
    let mut merged: Vec<BlockRange> = Vec::with_capacity(ranges.len());
    for range in ranges.into_iter().filter(|range| !range.is_empty()) {
        match merged.last_mut() {
            Some(last) if last.end() >= range.start => {
                *last = BlockRange::between(last.start, last.end().max(range.end()))
            }
            _ => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_journal::Record as _;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const DEVICE: DeviceId = DeviceId(4);
    const OBJECT: ObjectId = ObjectId(6);

    fn found(missed: &Missed, object: ObjectId) -> Vec<BlockRange> {
        missed.of(DEVICE, object, 0).collect()
    }

    fn starts(extents: &[BlockRange]) -> Vec<u64> {
        extents.iter().map(|extent| extent.start).collect()
    }

    proptest! {
        #[test]
        fn runs_are_the_blocks_that_were_put_in(
            ranges in prop::collection::vec((0u64..300, 0u64..12), 0..40), from in 0u64..320,
        ) {
            let (mut missed, mut naive) = (Missed::new(1 << 20), BTreeSet::new());
            for (start, count) in ranges {
                missed.insert(DEVICE, OBJECT, BlockRange::new(start, count));
                naive.extend(start..start + count);
            }
            let runs: Vec<_> = missed.of(DEVICE, OBJECT, from).collect();
            let blocks: Vec<u64> = runs.iter().flat_map(|run| run.blocks()).collect();
            prop_assert_eq!(blocks, naive.range(from..).copied().collect::<Vec<_>>());
            prop_assert!(runs.windows(2).all(|pair| pair[0].end() < pair[1].start), "{:?}", runs);
            let all = found(&missed, OBJECT);
            let single = || all.iter().rev().flat_map(|run| run.blocks()).map(|block| BlockRange::new(block, 1));
            prop_assert_eq!(merged(single().chain(single()).collect()), all);
        }
    }

    #[test]
    fn beyond_the_bound_the_closest_neighbours_are_joined() {
        let mut missed = Missed::new(1 << 20);
        // Pairs of extents that are one block apart; each pair is far from the next.
        let pairs = EXTENTS_MAX as u64 / 2;
        for pair in 0..pairs {
            missed.insert(DEVICE, OBJECT, BlockRange::new(pair * 100, 1));
            missed.insert(DEVICE, OBJECT, BlockRange::new(pair * 100 + 2, 1));
        }
        assert_eq!(found(&missed, OBJECT).len(), EXTENTS_MAX);
        missed.insert(DEVICE, OBJECT, BlockRange::new(1 << 40, 1));
        let extents = found(&missed, OBJECT);
        assert_eq!(extents.len(), EXTENTS_MAX / 4 * 3);
        let joined = extents.iter().filter(|extent| extent.count == 3).count();
        assert_eq!(joined, EXTENTS_MAX / 4 + 1);
        assert!(extents.iter().all(|extent| extent.count <= 3), "no pair is joined with another");
        assert_eq!(extents.last(), Some(&BlockRange::new(1 << 40, 1)));
    }

    #[test]
    fn beyond_the_budget_the_largest_gives_way() {
        let budget = missed_len(100) + 2 * missed_len(1);
        let mut missed = Missed::new(budget);
        for at in 0..100 {
            missed.insert(DEVICE, OBJECT, BlockRange::new(at * 10, 1));
        }
        for object in 7..9 {
            missed.insert(DEVICE, ObjectId(object), BlockRange::new(50, 1));
        }
        assert_eq!((missed.len(), missed.bytes), (102, budget));
        missed.insert(DEVICE, ObjectId(7), BlockRange::new(70, 1));
        assert_eq!(found(&missed, OBJECT).len(), 50);
        assert_eq!(starts(&found(&missed, ObjectId(7))), [50, 70]);
        assert_eq!(starts(&found(&missed, ObjectId(8))), [50]);
        assert_eq!(missed.journal_room(), budget);
    }

    #[test]
    fn where_nothing_can_be_joined_all_is_kept() {
        let mut missed = Missed::new(missed_len(1));
        for object in 1..9 {
            missed.insert(DEVICE, ObjectId(object), BlockRange::new(object, 1));
        }
        assert_eq!(missed.len(), 8);
        assert_eq!(missed.journal_room(), 8 * missed_len(1));
    }

    #[test]
    fn the_count_equals_the_size_of_the_records() {
        let mut missed = Missed::new(1 << 20);
        for at in 0..MISSED_PER_RECORD as u64 * 2 + 3 {
            missed.insert(DEVICE, OBJECT, BlockRange::new(at * 10, 1));
        }
        missed.insert(DEVICE, ObjectId(9), BlockRange::new(5, 5));
        let mut bytes = Vec::new();
        let records: Vec<_> = missed.records().collect();
        records.iter().for_each(|record| record.encode(&mut bytes));
        assert_eq!((records.len(), bytes.len() as u64), (4, missed.bytes));
        missed.drop_of_object(OBJECT);
        assert_eq!(missed.bytes, missed_len(1));
        missed.drop_of_present();
        assert_eq!((missed.len(), missed.bytes), (0, 0));
    }
}
