//! Tests that compare an object index with a plain map. In a test, leaves are read late, rounds of merging proceed meanwhile, power fails,
//! and leaves are corrupted.

use crate::index::Position;
use crate::{Growth, ObjectIndex, Opening, ROUND_SLOTS_MIN, Root, Settings, SlotRef, Step};
use braid_base::Rng;
use braid_objects::{Change, Key, Kind, Obstacle, View};
use bytes::Bytes;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

const LIVES: u64 = 2;
const NAMES: u64 = 150;
const SLOTS: u32 = 800;

fn settings() -> Settings {
    Settings { leaf_bytes: 1024, node_leaves: 6, cache_bytes: 6 << 10, round_slots: ROUND_SLOTS_MIN }
}

fn key(of: u64, index: u64) -> Key {
    Key { kind: Kind::Attribute, of, index }
}

/// The model's knowledge of a key's value.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Held {
    Surely(Option<Bytes>),
    /// This value, unless it was lost.
    Perhaps(Option<Bytes>),
}

/// A lookup that waits for a leaf.
#[derive(Clone, Copy, Debug)]
enum Lookup {
    Get(Key),
    First(Key, Key),
}

#[derive(Clone, Debug)]
struct Run {
    rng: Rng,
    object_index: ObjectIndex,
    model: BTreeMap<Key, Held>,
    disk: BTreeMap<u32, Bytes>,
    free: BTreeSet<u32>,
    /// These become free when the roots are durable.
    released: Vec<u32>,
    roots: Vec<Root>,
    /// Changes since the journal's tail, and how many of them are frozen.
    journal: Vec<Change>,
    frozen: usize,
    reads: Vec<SlotRef>,
    merge_reads: Vec<SlotRef>,
    lookups: Vec<Lookup>,
    /// Slots in use when the merge began, and how many more it may need.
    before: (u64, u64),
    answered: u64,
    lost: u64,
    merges: u64,
    rots: bool,
    largest: u64,
}

impl Run {
    fn new(seed: u64) -> Run {
        Run {
            rng: Rng::new(seed),
            object_index: ObjectIndex::new(settings()),
            model: BTreeMap::new(),
            disk: BTreeMap::new(),
            free: (0..SLOTS).collect(),
            released: Vec::new(),
            roots: Vec::new(),
            journal: Vec::new(),
            frozen: 0,
            reads: Vec::new(),
            merge_reads: Vec::new(),
            lookups: Vec::new(),
            before: (0, 0),
            answered: 0,
            lost: 0,
            merges: 0,
            rots: true,
            largest: 300,
        }
    }

    fn some_key(&mut self) -> Key {
        key(1 + self.rng.below(LIVES), self.rng.below(NAMES))
    }

    fn step(&mut self) {
        match self.rng.below(40) {
            0..=4 => self.change(),
            5..=12 => self.ask(),
            13..=22 => self.deliver(),
            23..=36 => (0..self.rng.between(1, 20)).for_each(|_| self.merge()),
            37 if self.rots && self.rng.chance(1, 12) => self.corrupt(),
            38 if self.rng.chance(1, 12) => self.crash(),
            39 if self.rng.chance(1, 12) => self.clear(),
            _ => self.answer(),
        }
    }

    /// Removes all values.
    fn clear(&mut self) {
        for of in 1..=LIVES {
            self.make((0..NAMES).map(|index| Change { key: key(of, index), value: None }).collect());
        }
    }

    fn change(&mut self) {
        let first = self.some_key();
        // One key, or some neighbours.
        let count = if self.rng.chance(1, 4) { self.rng.between(2, 40) } else { 1 };
        let removes = self.rng.chance(1, 3);
        let mut changes = Vec::new();
        for index in first.index..(first.index + count).min(NAMES) {
            let length = self.rng.below(self.largest) as usize;
            let value: Bytes = vec![self.rng.below(256) as u8; length].into();
            changes.push(Change { key: key(first.of, index), value: (!removes).then_some(value) });
        }
        self.make(changes);
    }

    fn make(&mut self, changes: Vec<Change>) {
        self.object_index.apply(&changes);
        self.note(&changes);
        self.journal.extend(changes);
    }

    fn note(&mut self, changes: &[Change]) {
        for Change { key, value } in changes {
            // A removal of a key that has no value changes nothing.
            if value.is_some() || self.held(*key) != Held::Perhaps(None) {
                self.model.insert(*key, Held::Surely(value.clone()));
            }
        }
    }

    fn ask(&mut self) {
        let from = self.some_key();
        let last = key(from.of, self.rng.between(from.index, NAMES - 1));
        let lookup = if self.rng.chance(1, 2) { Lookup::Get(from) } else { Lookup::First(from, last) };
        self.lookups.push(lookup);
        self.answer();
    }

    /// Tries all waiting lookups.
    fn answer(&mut self) {
        for lookup in std::mem::take(&mut self.lookups) {
            let answered = match lookup {
                Lookup::Get(key) => self.object_index.get(key).map(|value| self.check_get(key, value)),
                Lookup::First(from, last) => {
                    self.object_index.first(from..=last).map(|found| self.check_first(from, last, found))
                }
            };
            match answered {
                Ok(()) => self.answered += 1,
                Err(Obstacle::Lost) => self.check_lost(lookup),
                Err(Obstacle::NotHere) => {
                    for wanted in self.object_index.take_wanted() {
                        if self.object_index.begin_read(wanted) {
                            self.reads.push(wanted.place);
                        }
                    }
                    self.lookups.push(lookup);
                }
            }
        }
    }

    fn held(&self, key: Key) -> Held {
        self.model.get(&key).cloned().unwrap_or(Held::Surely(None))
    }

    fn check_get(&self, key: Key, value: Option<Bytes>) {
        let (Held::Surely(held) | Held::Perhaps(held)) = self.held(key);
        assert_eq!(value, held, "{key:?}");
    }

    fn check_first(&self, from: Key, last: Key, found: Option<(Key, Bytes)>) {
        let there = |index: u64| {
            let (Held::Surely(held) | Held::Perhaps(held)) = self.held(key(from.of, index));
            held.map(|value| (key(from.of, index), value))
        };
        assert_eq!(found, (from.index..=last.index).find_map(there), "{from:?} to {last:?}");
    }

    fn check_lost(&mut self, lookup: Lookup) {
        self.lost += 1;
        let (from, last) = match lookup {
            Lookup::Get(key) => (key, key),
            Lookup::First(from, last) => (from, last),
        };
        for index in from.index..=last.index {
            match self.held(key(from.of, index)) {
                Held::Perhaps(_) => return,
                Held::Surely(Some(_)) => panic!("{lookup:?} is lost, but {index} is known"),
                Held::Surely(None) => {}
            }
        }
        panic!("{lookup:?} is lost, but all of it is known");
    }

    /// A leaf arrives.
    fn deliver(&mut self) {
        if !self.reads.is_empty() {
            let place = self.reads.swap_remove(self.rng.below(self.reads.len() as u64) as usize);
            let bytes = self.disk.get(&place.slot).cloned();
            if !self.object_index.on_read(place.slot, bytes.as_ref()) {
                assert!(self.object_index.on_read(place.slot, None));
            }
        }
        if !self.merge_reads.is_empty() {
            let place = self.merge_reads.swap_remove(self.rng.below(self.merge_reads.len() as u64) as usize);
            let bytes = self.disk.get(&place.slot).cloned();
            if !self.object_index.on_merge_read(place.slot, bytes.as_ref()) {
                assert!(self.object_index.on_merge_read(place.slot, None));
            }
        }
    }

    /// The checkpoint continues.
    fn merge(&mut self) {
        if self.object_index.round.is_none() {
            if self.object_index.is_to_be_merged() {
                // The journal has the roots of the last round by now.
                let slots = (0..ROUND_SLOTS_MIN).map(|_| self.free.pop_first().expect("there are enough")).collect();
                self.roots = self.object_index.roots();
                self.free.extend(std::mem::take(&mut self.released));
                self.object_index.begin_round(slots);
            } else if self.frozen > 0 {
                self.roots = self.object_index.roots();
                self.free.extend(std::mem::take(&mut self.released));
                self.object_index.thaw();
                self.merges += 1;
                self.journal.drain(..self.frozen);
                self.frozen = 0;
                let (before, more) = self.before;
                assert!(
                    self.object_index.used_slots() <= before + more,
                    "{} of {before} + {more}",
                    self.object_index.used_slots()
                );
            } else if self.rng.chance(1, 3) && self.object_index.pending() > 0 {
                let more = self.object_index.needs(0, Growth::default()).free - u64::from(ROUND_SLOTS_MIN);
                self.before = (self.object_index.used_slots(), more);
                self.object_index.freeze();
                self.frozen = self.journal.len();
            }
            return;
        }
        while let Some(place) = self.object_index.next_read() {
            self.merge_reads.push(place);
        }
        match self.object_index.step() {
            Step::Write(write) => {
                assert!(!self.free.contains(&write.slot) && write.data.len() <= 1024);
                self.disk.insert(write.slot, write.data);
            }
            Step::Goes => {}
            Step::Waits => assert!(!self.merge_reads.is_empty(), "a round waits only for reads"),
            Step::Ended => {
                let installed = self.object_index.install();
                // Other data may be written there at once.
                self.scribble(&installed.unused);
                self.free.extend(installed.unused);
                self.released.extend(installed.released);
                self.audit();
                self.open();
            }
        }
    }

    fn scribble(&mut self, slots: &[u32]) {
        self.disk.extend(slots.iter().map(|slot| (*slot, Bytes::from_static(&[0x5a; 1024]))));
    }

    /// Every slot has one owner.
    fn audit(&self) {
        let mut seen = BTreeSet::new();
        let held = self.object_index.slots().chain(self.free.iter().copied()).chain(self.released.iter().copied());
        for slot in held {
            assert!(seen.insert(slot), "slot {slot} has two owners");
        }
        assert_eq!(seen.len(), SLOTS as usize, "every slot has an owner");
    }

    /// A leaf on the disk is corrupted. The values that it alone holds are lost when that is detected.
    fn corrupt(&mut self) {
        let mut leaves = Vec::new();
        let mut at = Some(Position { node: 0, leaf: 0 });
        while let Some(position) = at {
            leaves.extend(self.object_index.contents.index.at(position).place.map(|place| (position, place)));
            at = self.object_index.contents.index.next(position);
        }
        if leaves.is_empty() {
            return;
        }
        let (position, place) = leaves[self.rng.below(leaves.len() as u64) as usize];
        let mut bytes = self.disk[&place.slot].to_vec();
        let at = self.rng.below(u64::from(place.length)) as usize;
        bytes[at] ^= 1;
        self.disk.insert(place.slot, bytes.into());
        let from = self.object_index.contents.index.at(position).first;
        let behind = self.object_index.contents.index.upper(position);
        let merged = |key: Key| match self.object_index.contents.tables.merged {
            Bound::Excluded(behind) => key <= behind,
            _ => false,
        };
        for of in 1..=LIVES {
            for index in 0..NAMES {
                let key = key(of, index);
                let elsewhere = self.object_index.contents.tables.active.get(key).is_some()
                    || self.object_index.contents.tables.frozen.get(key).is_some() && !merged(key);
                if key >= from && behind.is_none_or(|behind| key < behind) && !elsewhere {
                    let (Held::Surely(held) | Held::Perhaps(held)) = self.held(key);
                    self.model.insert(key, Held::Perhaps(held));
                }
            }
        }
    }

    /// The power fails: slots that are not in use hold arbitrary data.
    fn crash(&mut self) {
        if self.rng.chance(1, 2) && self.object_index.round.is_none() {
            // The last roots have just become durable.
            self.roots = self.object_index.roots();
        }
        self.object_index = self.open();
        let journal = self.journal.clone();
        self.object_index.apply(&journal);
        self.note(&journal);
        let used: BTreeSet<u32> = self.object_index.slots().collect();
        self.free = (0..SLOTS).filter(|slot| !used.contains(slot)).collect();
        self.scribble(&self.free.iter().copied().collect::<Vec<_>>());
        self.frozen = 0;
        (self.reads, self.merge_reads, self.released) = Default::default();
        self.before = (0, 0);
        self.audit();
    }

    /// Opens the object index from the durable roots.
    fn open(&self) -> ObjectIndex {
        let mut opening = Opening::new(settings(), self.roots.clone());
        let places: Vec<SlotRef> = opening.places().collect();
        for (which, place) in places.iter().enumerate() {
            opening.take(which, &self.disk[&place.slot]).expect("it is whole");
        }
        opening.finish(SLOTS).expect("the nodes fit together")
    }

    fn finish(&mut self) {
        let settled = |run: &Run| run.frozen == 0 && run.object_index.pending() == 0 && run.lookups.is_empty();
        for round in 0.. {
            assert!(round < 100_000, "it does not end");
            if settled(self) {
                break;
            }
            self.merge();
            self.deliver();
            self.answer();
        }
        for of in 1..=LIVES {
            self.lookups.extend((0..NAMES).map(|index| Lookup::Get(key(of, index))));
            self.lookups.push(Lookup::First(key(of, 0), key(of, NAMES - 1)));
        }
        self.answer_all();
    }

    fn answer_all(&mut self) {
        for round in 0.. {
            assert!(round < 100_000, "lookups without an answer: {:?}", self.lookups);
            if self.lookups.is_empty() {
                break;
            }
            self.answer();
            self.deliver();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_index_answers_as_a_map_does(seed in any::<u64>(), rots in any::<bool>(), large in any::<bool>()) {
        let mut run = Run::new(seed);
        run.rots = rots;
        run.largest = if large { 900 } else { 60 };
        for _ in 0..3000 {
            run.step();
        }
        run.finish();
        prop_assert!(run.answered > 300 && run.merges > 0, "the run answers lookups and merges");
        prop_assert!(rots || run.lost == 0);
    }
}

/// A search that started over whenever a leaf was not in memory would never have all of them at once.
#[test]
fn a_search_over_more_leaves_than_the_cache_holds_comes_to_an_end() {
    let mut run = Run::new(1);
    // With gaps between the keys, where the leaves might have entries.
    let all = |value: Option<Bytes>| {
        (0..NAMES).step_by(2).map(|index| Change { key: key(1, index), value: value.clone() }).collect()
    };
    run.make(all(Some(vec![7; 600].into())));
    run.finish();
    assert!(run.object_index.statistics().leaves > 4 * run.object_index.statistics().leaves_cached);
    run.make(all(None));
    run.lookups.push(Lookup::First(key(1, 0), key(1, NAMES - 1)));
    run.answer_all();
}

/// A node without any leaf is not joined with a neighbour that has no room for it. It is dropped when the last of the other nodes becomes
/// empty; the roots that are durable then still name it.
#[test]
fn empty_nodes_that_the_durable_roots_name_are_not_written_over_when_the_last_value_goes() {
    let mut run = Run::new(1);
    let change = |index: u64, value| Change { key: key(1, index), value };
    run.make((0..60).map(|index| change(index, Some(vec![7; 600].into()))).collect());
    run.finish();
    let nodes = run.object_index.contents.index.len();
    assert!(nodes > 2);
    let firsts: Vec<u64> = (1..nodes).map(|node| run.object_index.contents.index.node(node).first.index).collect();
    let parts = || firsts.iter().zip(firsts.iter().skip(1).chain([&60])).map(|(from, to)| *from..*to);
    // First everything outside the second node is removed, then the second node's keys.
    for part in std::iter::once(0..firsts[0]).chain(parts().skip(1)).chain(parts().take(1)) {
        run.make(part.map(|index| change(index, None)).collect());
        run.finish();
    }
    assert!(run.object_index.roots().is_empty());
}
