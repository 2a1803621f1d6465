//! The map as its user sees it: what it says of keys, and changes to it.

use crate::contents::Contents;
use crate::index::Index;
use crate::leaves::{Leaves, Wanted};
use crate::merge::{Installed, Round, Step};
use crate::negative_cache::NegativeCache;
use crate::room::Needs;
use crate::table::Tables;
use crate::types::{Growth, ROUND_SLOTS_MIN, Root, Settings, SlotRef, Statistics};
use braid_objects::{Change, Key, Kind, Known, Obstacle, View};
use bytes::Bytes;
use std::ops::{Bound, RangeBounds, RangeInclusive};

/// The most leaves that are wanted ahead of a search.
const AHEAD: usize = 16;
/// The most leaves that are looked at for that.
const LOOKED_AT: usize = 256;
/// Shorter walks over keys without a value are not worth a note.
const WALK_MIN: usize = 32;

/// See the [crate](crate).
#[derive(Debug)]
pub struct ObjectIndex {
    pub(crate) contents: Contents,
    negative_cache: NegativeCache,
    pub(crate) round: Option<Box<Round>>,
}

impl ObjectIndex {
    /// An empty one.
    pub fn new(settings: Settings) -> ObjectIndex {
        ObjectIndex::with(settings, Index::new(Vec::new()))
    }

    pub(crate) fn with(settings: Settings, index: Index) -> ObjectIndex {
        assert!(settings.round_slots >= ROUND_SLOTS_MIN && settings.node_leaves >= 4);
        let leaves = Leaves::new(settings.cache_bytes);
        let contents = Contents { settings, tables: Tables::default(), index, leaves };
        ObjectIndex { contents, negative_cache: NegativeCache::default(), round: None }
    }

    /// Makes changes; their values are copied.
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

    /// Sets all changes so far aside: they are to be merged.
    pub fn freeze(&mut self) {
        assert!(self.round.is_none(), "one merge at a time");
        self.contents.tables.freeze();
    }

    /// True if a round is at work.
    pub fn is_in_round(&self) -> bool {
        self.round.is_some()
    }

    /// Slots that a round gets at most.
    pub fn round_slots(&self) -> u32 {
        self.contents.settings.round_slots
    }

    /// True if there is something frozen that is not merged yet.
    pub fn is_to_be_merged(&self) -> bool {
        self.contents.tables.is_to_be_merged()
    }

    /// All that was frozen is merged, and the journal need not know it any more.
    pub fn thaw(&mut self) {
        assert!(self.round.is_none(), "all is merged first");
        self.contents.tables.thaw();
    }

    /// Begins a round with these free slots: at least [`ROUND_SLOTS_MIN`], and no more than the settings say.
    pub fn begin_round(&mut self, slots: Vec<u32>) {
        assert!(self.round.is_none() && self.is_to_be_merged(), "there is something to do");
        self.round = Some(Box::new(Round::new(slots, &self.contents)));
    }

    /// The next leaf that the round wants read, a few ahead of what it is at. None at the moment.
    pub fn next_read(&mut self) -> Option<SlotRef> {
        self.round.as_mut()?.next_read(&self.contents)
    }

    /// What is in a slot has been read; none: it can't be. False if that is not the leaf: it may be read again, or be given up with none.
    pub fn on_merge_read(&mut self, slot: u32, bytes: Option<&Bytes>) -> bool {
        let leaves = &mut self.contents.leaves;
        self.round.as_mut().is_none_or(|round| round.on_read(slot, bytes, leaves))
    }

    /// The round goes on a little.
    pub fn step(&mut self) -> Step {
        self.contents.tables.tidy();
        self.round.as_mut().expect("a round was begun").step(&mut self.contents)
    }

    /// All that the round wrote is durable: from now on, this is what there is. Its [roots](ObjectIndex::roots) are to be noted.
    pub fn install(&mut self) -> Installed {
        self.round.take().expect("a round was begun").install(&mut self.contents)
    }

    /// The leaves that were not here since this was asked last. Who reads one [begins to](ObjectIndex::begin_read), and says what came of it
    /// with [`ObjectIndex::on_read`]; then is the time to ask again.
    pub fn take_wanted(&mut self) -> Vec<Wanted> {
        self.contents.leaves.take_wanted()
    }

    /// False if the leaf is being read already, or is none any more.
    pub fn begin_read(&mut self, wanted: Wanted) -> bool {
        self.contents.leaves.begin_read(wanted, &self.contents.index)
    }

    /// True if the leaf is on its way.
    pub fn is_being_read(&self, wanted: Wanted) -> bool {
        self.contents.leaves.is_being_read(wanted)
    }

    /// The leaf in a slot has been read; none: it can't be. False if that is not the leaf: it may be read again, or be given up with none.
    pub fn on_read(&mut self, slot: u32, bytes: Option<&Bytes>) -> bool {
        self.contents.leaves.on_read(slot, bytes, &self.contents.index)
    }

    /// By how much changes may make the leaves grow, as far as that is known without the disk; else by all that they bring.
    pub fn growth_of<'a>(&self, changes: impl IntoIterator<Item = &'a Change>) -> Growth {
        self.contents.growth_of(changes)
    }

    /// The same, to the byte: for when room is scarce.
    pub fn exact_growth_of<'a>(&mut self, changes: impl IntoIterator<Item = &'a Change>) -> Result<Growth, Obstacle> {
        self.contents.exact_growth_of(changes)
    }

    /// What merging all changes so far can come to need, and so many more that make it grow by `more`. What is frozen is merged first.
    pub fn needs(&self, changes: usize, more: Growth) -> Needs {
        self.contents.needs(changes, more, self.round.as_ref().map_or(0, |round| round.held()))
    }

    /// True if less may be needed when all changes so far are merged: what is kept for them is the worst, and some may take things away.
    pub fn may_need_less(&self) -> bool {
        self.contents.may_need_less()
    }

    /// Where the index nodes are, all that were installed included.
    pub fn roots(&self) -> Vec<Root> {
        self.contents.index.roots()
    }

    /// Changes that are not merged yet.
    pub fn pending(&self) -> usize {
        self.contents.tables.pending()
    }

    /// Slots that it has on the disk.
    pub fn used_slots(&self) -> u64 {
        self.contents.used_slots()
    }

    /// Which slots it has, those of the round at work included. For starting, and tests.
    pub fn slots(&self) -> impl Iterator<Item = u32> {
        self.contents.index.slots().chain(self.round.iter().flat_map(|round| round.slots()))
    }

    /// What it counts.
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

    /// The first key of a range that has a value, and that value.
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
                        // The next attempt begins here: all leaves on the way need not be in memory at once.
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
            // What was passed may hold something.
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
        // A leaf that is here may hold as many as are asked for, one that is not is taken to hold one.
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
