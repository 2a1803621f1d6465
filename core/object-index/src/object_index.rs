//! The map: lookups and changes.

use crate::contents::Contents;
use crate::index::Index;
use crate::leaves::{Leaves, Wanted};
use crate::merge::{Installed, Round, Step};
use crate::negative_cache::NegativeCache;
use crate::table::Tables;
use crate::types::{ROUND_SLOTS_MIN, Root, Settings, SlotRef, Statistics};
use braid_objects::{Change, Key, Known, Obstacle, View};
use bytes::Bytes;
use std::ops::{Bound, RangeBounds, RangeInclusive};

/// The most leaves that a search asks for ahead.
const AHEAD: usize = 16;
/// The most leaves that a search examines for that.
const LOOKED_AT: usize = 256;
/// A walk over fewer keys without a value is not remembered.
const WALK_MIN: usize = 32;

/// An object index; see the [crate](crate).
#[derive(Clone, Debug)]
pub struct ObjectIndex {
    pub(crate) contents: Contents,
    negative_cache: NegativeCache,
    pub(crate) round: Option<Box<Round>>,
}

impl ObjectIndex {
    /// An empty object index.
    pub fn new(settings: Settings) -> ObjectIndex {
        ObjectIndex::with(settings, Index::new(Vec::new()))
    }

    pub(crate) fn with(settings: Settings, index: Index) -> ObjectIndex {
        assert!(settings.round_slots >= ROUND_SLOTS_MIN && settings.node_leaves >= 4);
        let leaves = Leaves::new(settings.cache_bytes);
        let contents = Contents { settings, tables: Tables::default(), index, leaves };
        ObjectIndex { contents, negative_cache: NegativeCache::default(), round: None }
    }

    /// Applies changes; their values are copied.
    pub fn apply(&mut self, changes: &[Change]) {
        for change in changes {
            let Some(growth) = self.contents.weigh(change) else { continue };
            let active = &mut self.contents.tables.active;
            active.growth = active.growth + growth;
            active.shrinks |= growth.is_none();
            active.put(change.key, change.value.as_ref());
            if change.value.is_some() {
                self.negative_cache.fill(change.key);
            }
        }
        self.contents.tables.tidy();
    }

    /// Freezes all changes so far, so that they can be merged.
    pub fn freeze(&mut self) {
        assert!(self.round.is_none(), "one merge at a time");
        self.contents.tables.freeze();
    }

    /// True if a round is under way.
    pub fn is_in_round(&self) -> bool {
        self.round.is_some()
    }

    /// The most slots that a round gets.
    pub fn round_slots(&self) -> u32 {
        self.contents.settings.round_slots
    }

    /// True if some frozen change is not merged yet.
    pub fn is_to_be_merged(&self) -> bool {
        self.contents.tables.is_to_be_merged()
    }

    /// All frozen changes are merged, and the journal may forget them.
    pub fn thaw(&mut self) {
        assert!(self.round.is_none(), "the round has ended");
        self.contents.tables.thaw();
    }

    /// Begins a round with these free slots: at least [`ROUND_SLOTS_MIN`], and at most as many as the settings say.
    pub fn begin_round(&mut self, slots: Vec<u32>) {
        assert!(self.round.is_none() && self.is_to_be_merged(), "there are frozen changes, and no round is under way");
        self.round = Some(Box::new(Round::new(slots, &self.contents)));
    }

    /// The next leaf to read for the round, a few ahead of its progress; none at the moment if there is none.
    pub fn next_read(&mut self) -> Option<SlotRef> {
        self.round.as_mut()?.next_read(&self.contents)
    }

    /// A slot has been read for the round; `None` if it can't be read. Returns false if the bytes are not the leaf: read it again, or
    /// give up with `None`.
    pub fn on_merge_read(&mut self, slot: u32, bytes: Option<&Bytes>) -> bool {
        let leaves = &mut self.contents.leaves;
        self.round.as_mut().is_none_or(|round| round.on_read(slot, bytes, leaves))
    }

    /// Does a small step of the round.
    pub fn step(&mut self) -> Step {
        self.contents.tables.tidy();
        self.round.as_mut().expect("a round was begun").step(&mut self.contents)
    }

    /// Everything that the round wrote is durable: installs it. The caller must note the new [roots](ObjectIndex::roots).
    pub fn install(&mut self) -> Installed {
        self.round.take().expect("a round was begun").install(&mut self.contents)
    }

    /// The leaves that lookups lacked since the last call. For each, the caller [begins a read](ObjectIndex::begin_read) and reports the
    /// result to [`ObjectIndex::on_read`]. Then the lookup can be repeated.
    pub fn take_wanted(&mut self) -> Vec<Wanted> {
        std::mem::take(&mut self.contents.leaves.wanted)
    }

    /// Notes that the caller reads a leaf. Returns false if it is being read already, or was replaced.
    pub fn begin_read(&mut self, wanted: Wanted) -> bool {
        self.contents.leaves.begin_read(wanted, &self.contents.index)
    }

    /// True if the leaf is being read.
    pub fn is_being_read(&self, wanted: Wanted) -> bool {
        self.contents.leaves.reading.get(&wanted.place.slot) == Some(&wanted)
    }

    /// A slot has been read for lookups; `None` if it can't be read. Returns false if the bytes are not the leaf: read it again, or give
    /// up with `None`.
    pub fn on_read(&mut self, slot: u32, bytes: Option<&Bytes>) -> bool {
        self.contents.leaves.on_read(slot, bytes, &self.contents.index)
    }

    /// The index nodes of all installed rounds.
    pub fn roots(&self) -> Vec<Root> {
        self.contents.index.roots()
    }

    /// The number of changes that are not merged yet.
    pub fn pending(&self) -> usize {
        self.contents.tables.pending()
    }

    /// The number of slots in use on the disk.
    pub fn used_slots(&self) -> u64 {
        (self.contents.index.leaves() + self.contents.index.nodes_on_disk()) as u64
    }

    /// All slots in use, those of a round under way included. For opening, and for tests.
    pub fn slots(&self) -> impl Iterator<Item = u32> {
        self.contents.index.slots().chain(self.round.iter().flat_map(|round| round.slots()))
    }

    pub fn statistics(&self) -> Statistics {
        let Contents { index, leaves, tables, .. } = &self.contents;
        Statistics {
            leaves: index.leaves() as u64,
            nodes: index.nodes_on_disk() as u64,
            pending: tables.pending() as u64,
            leaves_cached: leaves.cache.len() as u64,
            bytes_cached: leaves.cache.bytes() as u64,
            leaves_read: leaves.read,
            leaves_written: leaves.written,
            leaves_damaged: leaves.found_damaged,
        }
    }

    /// The first key at or behind `at` that a leaf records, with its value or that it has none. The keys before it are known to have no
    /// value. On an obstacle, `at` is the first key whose value is not known.
    fn first_on_disk(
        &mut self,
        at: &mut Key,
        until: Bound<Key>,
        damage: &mut Damage,
    ) -> Result<Option<(Key, Option<Bytes>)>, Obstacle> {
        let is_asked = |key: &Key| (Bound::Unbounded, until).contains(key);
        loop {
            let position = self.contents.index.find(*at);
            let entry = self.contents.index.at(position);
            match self.contents.leaves.get(entry) {
                Err(Obstacle::NotHere) => return Err(Obstacle::NotHere),
                Err(Obstacle::Lost) => damage.meet()?,
                Ok(None) if entry.lost => damage.meet()?,
                Ok(None) => {}
                Ok(Some(leaf)) => {
                    let which = leaf.from(*at);
                    let found = (which < leaf.len()).then(|| leaf.key(which)).filter(is_asked);
                    if leaf.is_lost() && found != Some(*at) {
                        damage.meet()?;
                    }
                    if let Some(key) = found {
                        return Ok(Some((key, leaf.value(which))));
                    }
                }
            }
            match self.contents.index.upper(position).filter(is_asked) {
                Some(next) => *at = next,
                None => return Ok(None),
            }
        }
    }

    /// The first key of a range that has a value, and the value.
    fn find_first(&mut self, keys: RangeInclusive<Key>, damage: &mut Damage) -> Result<Option<(Key, Bytes)>, Obstacle> {
        let (from, last) = keys.into_inner();
        let mut at = self.negative_cache.skip(from);
        let mut walked = 0;
        let found = loop {
            if at > last {
                break None;
            }
            let mut newest = self.contents.tables.first(at..=last);
            let until = newest.as_ref().map_or(Bound::Included(last), |(first, _)| Bound::Excluded(*first));
            if newest.as_ref().is_none_or(|(first, _)| *first != at) {
                match self.first_on_disk(&mut at, until, damage) {
                    Ok(Some(found)) => newest = Some(found),
                    Ok(None) => {}
                    Err(obstacle) => {
                        // The next attempt continues here, so that the leaves on the way need not all be in memory at once.
                        if *damage != (Damage::IsPassed { any: true }) {
                            self.negative_cache.learn(from, at);
                        }
                        return Err(obstacle);
                    }
                }
            }
            match newest {
                None => break None,
                Some((key, Some(value))) => break Some((key, value)),
                Some((key, None)) => {
                    walked += 1;
                    match after(key) {
                        Some(next) => at = self.negative_cache.skip(next),
                        None => break None,
                    }
                }
            }
        };
        if *damage == (Damage::IsPassed { any: true }) {
            // The damaged leaves that were passed may have held values.
            return Ok(found);
        }
        let behind = found.as_ref().map(|(key, _)| *key).or_else(|| after(last));
        if let Some(behind) = behind.filter(|_| walked >= WALK_MIN) {
            self.negative_cache.learn(from, behind);
        }
        Ok(found)
    }
}

impl View for ObjectIndex {
    fn get(&mut self, key: Key) -> Result<Option<Bytes>, Obstacle> {
        self.contents.get(key)
    }

    fn first(&mut self, keys: RangeInclusive<Key>) -> Result<Option<(Key, Bytes)>, Obstacle> {
        self.find_first(keys, &mut Damage::Ends)
    }

    fn will_need(&mut self, keys: RangeInclusive<Key>, most: usize) {
        let (from, last) = keys.into_inner();
        let mut position = Some(self.contents.index.find(from));
        let (mut looked, mut missing) = (0, 0);
        // A leaf in memory may hold as many keys as are asked for; a leaf that is not is assumed to hold one.
        while let Some(at) = position
            && self.contents.index.at(at).first <= last
            && looked < LOOKED_AT
            && missing < AHEAD.min(most)
        {
            missing +=
                usize::from(matches!(self.contents.leaves.get(self.contents.index.at(at)), Err(Obstacle::NotHere)));
            looked += 1;
            position = self.contents.index.next(at);
        }
    }

    fn first_known(&mut self, keys: RangeInclusive<Key>) -> Result<Known, Obstacle> {
        let mut damage = Damage::IsPassed { any: false };
        let key = self.find_first(keys, &mut damage)?.map(|(key, _)| key);
        Ok(Known { key, passed_damage: damage == Damage::IsPassed { any: true } })
    }
}

/// How a search treats damaged leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    /// It ends there with [`Obstacle::Lost`].
    Ends,
    /// It passes them, and notes that there were any.
    IsPassed { any: bool },
}

impl Damage {
    fn meet(&mut self) -> Result<(), Obstacle> {
        match self {
            Damage::Ends => Err(Obstacle::Lost),
            Damage::IsPassed { any } => {
                *any = true;
                Ok(())
            }
        }
    }
}

/// The next possible key, of whatever kind.
fn after(key: Key) -> Option<Key> {
    key.after().or_else(|| key.kind.next().map(|kind| Key { kind, of: 0, index: 0 }))
}
