//! The map as its user sees it: what it says of keys, and changes to it.

use crate::cache::Cache;
use crate::index::{Index, LeafEntry};
use crate::leaf::Leaf;
use crate::merge::Round;
use crate::node::{Place, Root, leaves_in};
use crate::room::ROUND_SLOTS_MIN;
use crate::table::Table;
use crate::voids::Voids;
use braid_objects::{Change, Key, Kind, Known, Obstacle, View};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, RangeBounds, RangeInclusive};

/// How large things are. All but the last two must stay as they are for as long as there is anything on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The most bytes of a leaf: a slot's.
    pub leaf_bytes: usize,
    /// The most leaves that an index node names.
    pub node_leaves: usize,
    /// The most bytes of leaves in memory.
    pub cache_bytes: usize,
    /// Slots that a round of merging gets; at least [`ROUND_SLOTS_MIN`].
    pub round_slots: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { leaf_bytes: 73_728, node_leaves: 2048, cache_bytes: 64 << 20, round_slots: ROUND_SLOTS_MIN }
    }
}

const _: () = assert!(leaves_in(73_728) >= 2048);

/// Changes that were merged are forgotten so many at a time.
const FORGOTTEN_AT_ONCE: usize = 64;
/// The most leaves that are wanted ahead of a search.
const AHEAD: usize = 16;
/// The most leaves that are looked at for that.
const LOOKED_AT: usize = 256;
/// Shorter walks over keys without a value are not worth a note.
const WALK_MIN: usize = 32;

/// What a catalogue counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Leaves on the disk.
    pub leaves: u64,
    /// Index nodes on the disk.
    pub nodes: u64,
    /// Changes in memory that are not merged yet.
    pub pending: u64,
    /// Leaves in memory.
    pub leaves_cached: u64,
    /// Their bytes.
    pub bytes_cached: u64,
    /// Leaves that were read for lookups.
    pub leaves_read: u64,
    /// Leaves that were written.
    pub leaves_written: u64,
    /// Leaves that were found damaged.
    pub leaves_damaged: u64,
}

/// A leaf that a lookup needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    first: Key,
    /// Where it is.
    pub place: Place,
}

/// See the [crate](crate).
#[derive(Debug)]
pub struct Catalogue {
    pub(crate) settings: Settings,
    pub(crate) active: Table,
    pub(crate) frozen: Table,
    /// Frozen changes up to here are merged.
    pub(crate) merged: Bound<Key>,
    /// Were merged, and wait to be forgotten.
    spent: Table,
    voids: Voids,
    pub(crate) index: Index,
    pub(crate) cache: Cache,
    /// Slots whose leaf can't be read.
    pub(crate) damaged: BTreeSet<u32>,
    /// Leaves that are being read, by slot.
    reading: BTreeMap<u32, Wanted>,
    wanted: Vec<Wanted>,
    pub(crate) round: Option<Box<Round>>,
    pub(crate) counted: Statistics,
}

impl Catalogue {
    /// An empty one.
    pub fn new(settings: Settings) -> Catalogue {
        Catalogue::with(settings, Index::new(Vec::new()))
    }

    pub(crate) fn with(settings: Settings, index: Index) -> Catalogue {
        assert!(settings.round_slots >= ROUND_SLOTS_MIN && settings.node_leaves >= 4);
        Catalogue {
            active: Table::default(),
            frozen: Table::default(),
            merged: Bound::Unbounded,
            spent: Table::default(),
            voids: Voids::default(),
            index,
            cache: Cache::new(settings.cache_bytes),
            damaged: BTreeSet::new(),
            reading: BTreeMap::new(),
            wanted: Vec::new(),
            round: None,
            counted: Statistics::default(),
            settings,
        }
    }

    /// Makes changes; their values are copied.
    pub fn apply(&mut self, changes: &[Change]) {
        for change in changes {
            let Some(growth) = self.weigh(change) else { continue };
            self.active.growth = self.active.growth + growth;
            self.active.shrinks |= growth.is_none();
            self.active.put(change.key, change.value.as_ref());
            if change.value.is_some() {
                self.voids.fill(change.key);
            }
        }
        self.tidy();
    }

    /// Sets all changes so far aside: they are to be merged.
    pub fn freeze(&mut self) {
        assert!(self.round.is_none() && self.frozen.len() == 0, "one merge at a time");
        self.frozen = std::mem::take(&mut self.active);
        self.merged = Bound::Unbounded;
    }

    /// True if a round is at work.
    pub fn is_in_round(&self) -> bool {
        self.round.is_some()
    }

    /// Slots that a round gets at most.
    pub fn round_slots(&self) -> u32 {
        self.settings.round_slots
    }

    /// True if there is something frozen that is not merged yet.
    pub fn is_to_be_merged(&self) -> bool {
        !self.frozen.is_empty_from(self.merged)
    }

    /// All that was frozen is merged, and the journal need not know it any more.
    pub fn thaw(&mut self) {
        assert!(self.round.is_none() && !self.is_to_be_merged(), "all is merged first");
        self.spent = std::mem::take(&mut self.frozen);
    }

    /// A little at a time: to forget them all at once takes too long.
    pub(crate) fn tidy(&mut self) {
        self.spent.forget(FORGOTTEN_AT_ONCE);
    }

    /// The leaves that were not here since this was asked last. Who reads one [begins to](Catalogue::begin_read), and says what came of it
    /// with [`Catalogue::on_read`]; then is the time to ask again.
    pub fn take_wanted(&mut self) -> Vec<Wanted> {
        std::mem::take(&mut self.wanted)
    }

    /// False if the leaf is being read already, or is none any more.
    pub fn begin_read(&mut self, wanted: Wanted) -> bool {
        if self.index.at(self.index.find(wanted.first)).place != Some(wanted.place) {
            return false;
        }
        let begins = self.reading.insert(wanted.place.slot, wanted).is_none();
        self.counted.leaves_read += u64::from(begins);
        begins
    }

    /// True if the leaf is on its way.
    pub fn is_being_read(&self, wanted: Wanted) -> bool {
        self.reading.get(&wanted.place.slot) == Some(&wanted)
    }

    /// The leaf in a slot has been read; none: it can't be. False if that is not the leaf: it may be read again, or be given up with none.
    pub fn on_read(&mut self, slot: u32, bytes: Option<&Bytes>) -> bool {
        let Some(Wanted { first, place }) = self.reading.get(&slot).copied() else { return true };
        let leaf = bytes.and_then(|bytes| Leaf::decode(bytes, place));
        if leaf.is_none() && bytes.is_some() {
            return false;
        }
        self.reading.remove(&slot);
        // Another one may have come in its place.
        if self.index.at(self.index.find(first)).place == Some(place) {
            match leaf {
                Some(leaf) => self.cache.insert(slot, leaf),
                None => self.mark_damaged(slot),
            }
        }
        true
    }

    pub(crate) fn mark_damaged(&mut self, slot: u32) {
        if self.damaged.insert(slot) {
            self.counted.leaves_damaged += 1;
        }
    }

    /// Where the index nodes are, all that were installed included.
    pub fn roots(&self) -> Vec<Root> {
        self.index.roots()
    }

    /// Changes that are not merged yet.
    pub fn pending(&self) -> usize {
        self.active.len() + self.frozen.len()
    }

    /// Slots that it has on the disk.
    pub fn used_slots(&self) -> u64 {
        (self.index.leaves() + self.index.nodes_on_disk()) as u64
    }

    /// Which slots it has, those of the round at work included. For starting, and tests.
    pub fn slots(&self) -> impl Iterator<Item = u32> {
        self.index.slots().chain(self.round.iter().flat_map(|round| round.slots()))
    }

    /// What it counts.
    pub fn statistics(&self) -> Statistics {
        Statistics {
            leaves: self.index.leaves() as u64,
            nodes: self.index.nodes_on_disk() as u64,
            pending: self.pending() as u64,
            leaves_cached: self.cache.len() as u64,
            bytes_cached: self.cache.bytes() as u64,
            ..self.counted
        }
    }

    /// The first key at or behind `at` of which a leaf says anything, and what. What lies between is known to have no value; where it
    /// ends with an obstacle, `at` is the first key of which that is not known.
    fn first_on_disk(
        &mut self,
        at: &mut Key,
        until: Bound<Key>,
        damage: &mut Damage,
    ) -> Result<Option<(Key, Option<Bytes>)>, Obstacle> {
        let is_asked = |key: &Key| (Bound::Unbounded, until).contains(key);
        loop {
            let position = self.index.find(*at);
            let entry = self.index.at(position);
            match self.leaf(entry) {
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
            match self.index.upper(position).filter(is_asked) {
                Some(next) => *at = next,
                None => return Ok(None),
            }
        }
    }

    /// The first key of a range that has a value, and that value.
    fn find_first(&mut self, keys: RangeInclusive<Key>, damage: &mut Damage) -> Result<Option<(Key, Bytes)>, Obstacle> {
        let (from, last) = keys.into_inner();
        let mut at = self.voids.skip(from);
        let mut walked = 0;
        let found = loop {
            if at > last {
                break None;
            }
            // The newest that says anything of a key counts.
            let mut newest = None;
            for table in [&self.active, &self.frozen] {
                if let Some((key, value)) = table.first(at..=last)
                    && newest.as_ref().is_none_or(|(first, _)| key < *first)
                {
                    newest = Some((key, value.clone()));
                }
            }
            let until = newest.as_ref().map_or(Bound::Included(last), |(first, _)| Bound::Excluded(*first));
            if newest.as_ref().is_none_or(|(first, _)| *first != at) {
                match self.first_on_disk(&mut at, until, damage) {
                    Ok(Some(found)) => newest = Some(found),
                    Ok(None) => {}
                    Err(obstacle) => {
                        // The next attempt begins here: all leaves on the way need not be in memory at once.
                        if *damage != (Damage::IsPassed { any: true }) {
                            self.voids.learn(from, at);
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
                        Some(next) => at = self.voids.skip(next),
                        None => break None,
                    }
                }
            }
        };
        if *damage == (Damage::IsPassed { any: true }) {
            // What was passed may hold something.
            return Ok(found);
        }
        let behind = found.as_ref().map(|(key, _)| *key).or_else(|| after(last));
        if let Some(behind) = behind.filter(|_| walked >= WALK_MIN) {
            self.voids.learn(from, behind);
        }
        Ok(found)
    }

    /// A leaf, from memory; none if nothing is on the disk of it.
    fn leaf(&mut self, entry: LeafEntry) -> Result<Option<&Leaf>, Obstacle> {
        let Some(place) = entry.place else { return Ok(None) };
        if self.damaged.contains(&place.slot) {
            return Err(Obstacle::Lost);
        }
        match self.cache.get(place.slot) {
            Some(leaf) => Ok(Some(leaf)),
            None => {
                let wanted = Wanted { first: entry.first, place };
                if self.wanted.last() != Some(&wanted) {
                    self.wanted.push(wanted);
                }
                Err(Obstacle::NotHere)
            }
        }
    }
}

impl View for Catalogue {
    fn get(&mut self, key: Key) -> Result<Option<Bytes>, Obstacle> {
        if let Some(value) = self.active.get(key).or_else(|| self.frozen.get(key)) {
            return Ok(value.clone());
        }
        let entry = self.index.at(self.index.find(key));
        let found = self.leaf(entry)?.and_then(|leaf| leaf.get(key));
        match found {
            Some(value) => Ok(value),
            None if entry.lost => Err(Obstacle::Lost),
            None => Ok(None),
        }
    }

    fn first(&mut self, keys: RangeInclusive<Key>) -> Result<Option<(Key, Bytes)>, Obstacle> {
        self.find_first(keys, &mut Damage::Ends)
    }

    fn will_need(&mut self, keys: RangeInclusive<Key>, most: usize) {
        let (from, last) = keys.into_inner();
        let mut position = Some(self.index.find(from));
        let (mut looked, mut missing) = (0, 0);
        // A leaf that is here may hold as many as are asked for, one that is not is taken to hold one.
        while let Some(at) = position
            && self.index.at(at).first <= last
            && looked < LOOKED_AT
            && missing < AHEAD.min(most)
        {
            missing += usize::from(matches!(self.leaf(self.index.at(at)), Err(Obstacle::NotHere)));
            looked += 1;
            position = self.index.next(at);
        }
    }

    fn first_known(&mut self, keys: RangeInclusive<Key>) -> Result<Known, Obstacle> {
        let mut damage = Damage::IsPassed { any: false };
        let key = self.find_first(keys, &mut damage)?.map(|(key, _)| key);
        Ok(Known { key, passed_damage: damage == Damage::IsPassed { any: true } })
    }
}

/// What damage is to a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    /// Its end.
    Ends,
    /// None of its business, but it notes whether there was any.
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

/// The next key that there could be, of whatever kind.
fn after(key: Key) -> Option<Key> {
    let next = |kind| Some(Key { kind, of: 0, index: 0 });
    key.after().or_else(|| match key.kind {
        Kind::Last => next(Kind::Header),
        Kind::Header => next(Kind::Ended),
        Kind::Ended => next(Kind::Piece),
        Kind::Piece => next(Kind::Attribute),
        Kind::Attribute => None,
    })
}
