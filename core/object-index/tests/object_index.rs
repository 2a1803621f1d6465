//! Tests of the object index from outside: how much it reads, how full its leaves are, how many slots it takes.

use braid_base::Rng;
use braid_object_index::{Growth, ObjectIndex, Opening, ROUND_SLOTS_MIN, Settings, Step};
use braid_objects::{Change, Key, Kind, Obstacle, View};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

fn key(index: u64) -> Key {
    Key { kind: Kind::Attribute, of: 9, index }
}

fn change(index: u64, length: usize) -> Change {
    Change { key: key(index), value: Some(vec![index as u8; length].into()) }
}

/// An object index with enough slots.
struct Bench {
    settings: Settings,
    object_index: ObjectIndex,
    slots: BTreeMap<u32, Bytes>,
    free: BTreeSet<u32>,
    rounds: u64,
    reads: u64,
}

impl Bench {
    fn new(settings: Settings, slots: u32) -> Bench {
        let object_index = ObjectIndex::new(settings);
        Bench { settings, object_index, slots: BTreeMap::new(), free: (0..slots).collect(), rounds: 0, reads: 0 }
    }

    /// Merges all changes.
    fn checkpoint(&mut self) {
        self.object_index.freeze();
        while self.object_index.is_to_be_merged() {
            self.rounds += 1;
            let slots = (0..self.settings.round_slots).map(|_| self.free.pop_first().expect("a slot is free"));
            self.object_index.begin_round(slots.collect());
            loop {
                while let Some(place) = self.object_index.next_read() {
                    self.reads += 1;
                    assert!(self.object_index.on_merge_read(place.slot, self.slots.get(&place.slot)));
                }
                match self.object_index.step() {
                    Step::Write(write) => drop(self.slots.insert(write.slot, write.data)),
                    Step::Goes => {}
                    Step::Waits => panic!("all requested leaves were read"),
                    Step::Ended => break,
                }
            }
            let installed = self.object_index.install();
            self.free.extend(installed.unused.into_iter().chain(installed.released));
        }
        self.object_index.thaw();
    }

    fn reopen(&mut self) {
        let mut opening = Opening::new(self.settings, self.object_index.roots());
        let places: Vec<_> = opening.places().collect();
        self.reads = places.len() as u64;
        for (which, place) in places.iter().enumerate() {
            opening.take(which, &self.slots[&place.slot]).expect("it is whole");
        }
        self.object_index = opening.finish(u32::MAX).expect("it is whole");
    }

    fn read_wanted(&mut self) {
        let wanted = self.object_index.take_wanted();
        assert!(!wanted.is_empty(), "the missing leaves are reported");
        for wanted in wanted {
            self.reads += 1;
            assert!(self.object_index.begin_read(wanted));
            assert!(self.object_index.on_read(wanted.place.slot, self.slots.get(&wanted.place.slot)));
        }
    }

    fn get(&mut self, key: Key) -> Option<Bytes> {
        loop {
            match self.object_index.get(key) {
                Ok(value) => return value,
                Err(Obstacle::Lost) => panic!("nothing is lost"),
                Err(Obstacle::NotHere) => self.read_wanted(),
            }
        }
    }
}

const SMALL: Settings = Settings { leaf_bytes: 2048, node_leaves: 64, cache_bytes: 1 << 20, round_slots: 32 };

#[test]
fn a_million_entries_are_opened_by_reading_their_index_alone() {
    let settings = Settings { cache_bytes: 2 << 20, round_slots: 256, ..Settings::default() };
    let mut bench = Bench::new(settings, 4000);
    const ENTRIES: u64 = 1_000_000;
    for part in 0..10 {
        let changes: Vec<Change> = (part..ENTRIES).step_by(10).map(|index| change(index * 7, 16)).collect();
        bench.object_index.apply(&changes);
        bench.checkpoint();
    }
    let leaves = bench.object_index.statistics().leaves;
    assert!((500..750).contains(&leaves), "{leaves} leaves for 37 MB");
    bench.reopen();
    assert!(bench.reads <= 2, "{} reads to open it", bench.reads);
    bench.reads = 0;
    for index in 0..300 {
        assert_eq!(bench.get(key(index * 7 * 3331)), Some(vec![(index * 7 * 3331) as u8; 16].into()));
        assert_eq!(bench.get(key(index * 7 * 3331 + 1)), None);
    }
    assert!(bench.reads <= 300, "one read for each leaf, {} in all", bench.reads);
    assert!(bench.object_index.statistics().bytes_cached <= 2 << 20);
}

#[test]
fn names_that_are_counted_up_fill_their_leaves() {
    let mut bench = Bench::new(SMALL, 2000);
    for part in 0..50u64 {
        bench.object_index.apply(&(0..97).map(|index| change(part * 97 + index, 29)).collect::<Vec<_>>());
        bench.checkpoint();
    }
    // Forty entries of fifty bytes fit into a leaf.
    let leaves = bench.object_index.statistics().leaves;
    assert!(leaves <= 50 * 97 / 40 + 3, "{leaves}");
    // With keys in random order, leaves are more than half full.
    let mut rng = Rng::new(3);
    let mut bench = Bench::new(SMALL, 2000);
    for _ in 0..50 {
        bench.object_index.apply(&(0..97).map(|_| change(rng.next_u64(), 29)).collect::<Vec<_>>());
        bench.checkpoint();
    }
    let leaves = bench.object_index.statistics().leaves;
    assert!(leaves < 50 * 97 / 22, "{leaves}");
}

#[test]
fn an_index_that_does_not_grow_takes_no_slots_and_removed_names_give_them_back() {
    let mut bench = Bench::new(SMALL, 3000);
    let mut rng = Rng::new(5);
    bench.object_index.apply(&(0..5000).map(|index| change(index, rng.below(400) as usize)).collect::<Vec<_>>());
    bench.checkpoint();
    let full = bench.object_index.used_slots();
    // From now on only as many slots are free as a round needs.
    bench.free = bench.free.iter().copied().take(SMALL.round_slots as usize).collect();
    for _ in 0..30 {
        let mut changes = Vec::new();
        for _ in 0..rng.between(1, 600) {
            let index = rng.below(5000);
            let old = bench.get(key(index)).map_or(0, |value| value.len() as u64);
            let new = change(index, rng.below(old + 1) as usize);
            let removed = Change { value: None, ..new.clone() };
            let overwritten = if old > 0 && rng.chance(9, 10) { new } else { removed };
            assert_eq!(bench.object_index.exact_growth_of([&overwritten]), Ok(Growth::default()));
            bench.object_index.apply(std::slice::from_ref(&overwritten));
            changes.push(overwritten);
        }
        assert_eq!(bench.object_index.needs(0, Growth::default()).free, u64::from(SMALL.round_slots));
        bench.checkpoint();
        assert!(bench.object_index.used_slots() <= full);
    }
    let removed: Vec<Change> = (0..5000).map(|index| Change { value: None, ..change(index, 0) }).collect();
    bench.object_index.apply(&removed);
    bench.checkpoint();
    assert_eq!((bench.object_index.used_slots(), bench.object_index.needs(0, Growth::default()).free), (0, 0));
    assert!(bench.object_index.roots().is_empty());
    assert_eq!(bench.get(key(17)), None);
}

#[test]
fn growing_takes_no_more_than_was_said() {
    let mut rng = Rng::new(8);
    for largest in [30, 400, 1900] {
        let settings = Settings { round_slots: ROUND_SLOTS_MIN, node_leaves: 8, ..SMALL };
        let mut bench = Bench::new(settings, 200_000);
        for _ in 0..40 {
            let changes: Vec<Change> = match rng.below(3) {
                0 => (0..rng.below(40)).map(|_| change(rng.below(3000), rng.below(largest) as usize)).collect(),
                1 => (0..rng.below(900)).map(|_| change(rng.below(3000), rng.below(30) as usize)).collect(),
                _ => {
                    let from = rng.below(3000);
                    (from..from + rng.below(900)).map(|index| change(index, rng.below(largest) as usize)).collect()
                }
            };
            bench.object_index.apply(&changes);
            let before = bench.object_index.used_slots();
            let room = bench.object_index.needs(0, Growth::default()).free.saturating_sub(u64::from(ROUND_SLOTS_MIN));
            let rounds = bench.object_index.needs(0, Growth::default()).rounds;
            bench.rounds = 0;
            bench.checkpoint();
            let after = bench.object_index.used_slots();
            assert!(after <= before + room, "{before} slots grew to {after}, not by {room}");
            assert!(bench.rounds <= rounds, "{} rounds of {rounds}", bench.rounds);
        }
    }
}

#[test]
fn the_first_behind_many_that_are_gone_is_found_fast() {
    let mut bench = Bench::new(Settings::default(), 4000);
    const ENTRIES: u64 = 200_000;
    bench.object_index.apply(&(0..ENTRIES).map(|index| change(index, 8)).collect::<Vec<_>>());
    bench.checkpoint();
    // As from a queue. Without the negative cache, this would walk over ten billion entries.
    for index in 0..ENTRIES {
        let first = loop {
            match bench.object_index.first(key(0)..=key(u64::MAX)) {
                Ok(first) => break first.expect("there are more"),
                Err(Obstacle::Lost) => panic!("nothing is lost"),
                Err(Obstacle::NotHere) => bench.read_wanted(),
            }
        };
        assert_eq!(first.0, key(index));
        bench.object_index.apply(&[Change { key: first.0, value: None }]);
    }
    assert_eq!(bench.object_index.first(key(0)..=key(u64::MAX)), Ok(None));
}

#[test]
fn a_value_does_not_hold_on_to_what_it_came_in() {
    let mut object_index = ObjectIndex::new(Settings::default());
    let frame = Bytes::from(vec![7; 1 << 20]);
    object_index.apply(&[Change { key: key(1), value: Some(frame.slice(100..108)) }]);
    assert!(frame.is_unique(), "a small value keeps a large frame in memory");
}
