//! The check of a whole file system, by a process that owns the file system and does not serve it: so the map does not change meanwhile.
//! The store reads *pages* of the map: some keys in a row. The check continues until it needs a key that is on no page at hand.
//!
//! With several shards no map can be checked by itself: a name may be in one and its inode in another. So the processes *collect* the
//! maps, and [`check_together`] checks them as one.

use crate::shard_operation::is_undecided;
use braid_namespace::check::{Check, Finding, Windows};
use braid_namespace::{keys, sum_of_counters};
use braid_objects::map_access::Known;
use braid_objects::{Evaluation, Found, Key, Kind, NotHere, Obstacle, Procedure, View};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;

const PAGE_KEYS: usize = 256;
/// A page with so many bytes gets no further keys.
const PAGE_BYTES: usize = 64 << 10;
/// The most pages at hand.
const PAGES_MAX: usize = 64;
/// The keys that a check reads before its state is looked at again.
const KEYS_AT_ONCE: usize = 1024;
/// What a key in memory costs beside its value, about.
const BYTES_OF_KEY: usize = 100;

/// What a process does that owns a file system, or a shard of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// It serves it.
    Serves,
    /// It checks it.
    Checks,
    /// It reads its map, up to so many bytes of memory.
    Collects { most: usize },
}

/// The map of a shard.
#[derive(Clone, Debug, Default)]
pub struct Collected {
    pub map: BTreeMap<Key, Bytes>,
    /// Where something is missing because it is damaged: at most one place for each page.
    pub damaged: Vec<Key>,
    /// There is more than was to be read.
    pub is_cut: bool,
}

/// The check of several maps as one can't say anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undecided {
    /// So many operations on several shards are neither done nor undone.
    pub transactions: usize,
}

/// A check, or a collection, and the pages that it reads.
#[derive(Clone, Debug)]
pub(crate) struct CheckRun {
    work: Work,
    pages: Pages,
    is_asked: bool,
    is_complete: bool,
}

#[derive(Clone, Debug)]
enum Work {
    Check(Box<Check>),
    Collect {
        collected: Arc<Collected>,
        /// The bytes of memory that it may still take.
        left: usize,
        next: Key,
    },
}

/// The part of the map that is at hand.
#[derive(Clone, Debug, Default)]
struct Pages {
    /// The oldest first.
    pages: VecDeque<Page>,
    /// The key that was missing last.
    wanted: Option<Key>,
}

/// Keys in a row, all of one kind.
#[derive(Clone, Debug)]
struct Page {
    from: Key,
    values: BTreeMap<Key, Bytes>,
    end: PageEnd,
}

/// Where a page ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageEnd {
    /// There is no further key.
    Kind,
    /// There may be further keys from this one on.
    Next(Key),
    /// Keys from this one on are damaged, up to the next readable key of this kind, if there is one.
    Damage { at: Key, then: Option<Key> },
}

/// Reads a page, as a procedure of the store.
#[derive(Clone, Debug)]
struct ReadPage {
    from: Key,
    last: Key,
}

impl CheckRun {
    /// `None` for a process that serves.
    pub fn of(purpose: Purpose) -> Option<CheckRun> {
        let work = match purpose {
            Purpose::Serves => return None,
            Purpose::Checks => Work::Check(Box::new(Check::new(Windows::default()))),
            Purpose::Collects { most } => Work::Collect { collected: Arc::default(), left: most, next: Key::FIRST },
        };
        Some(CheckRun { work, pages: Pages::default(), is_asked: false, is_complete: false })
    }

    /// Continues the check. Returns what the store must read for it; `None` if that is under way, or the check is complete.
    pub fn advance(&mut self) -> Option<Box<dyn Procedure>> {
        if self.is_asked || self.is_complete {
            return None;
        }
        let check = match &mut self.work {
            Work::Check(check) => check,
            Work::Collect { next, .. } => {
                self.is_asked = true;
                return Some(Box::new(ReadPage { from: *next, last: *keys::all(Kind::Transaction).end() }));
            }
        };
        loop {
            match check.step(&mut self.pages, KEYS_AT_ONCE) {
                Ok(true) => {
                    self.is_complete = true;
                    return None;
                }
                Ok(false) => {}
                Err(NotHere) => {
                    self.is_asked = true;
                    let from = self.pages.wanted.expect("a key was missing");
                    return Some(Box::new(ReadPage { from, last: Key { of: u64::MAX, index: u64::MAX, ..from } }));
                }
            }
        }
    }

    /// The store has read a page. False if it had no room for that.
    pub fn on_page(&mut self, found: Option<Found>) -> bool {
        self.is_asked = false;
        let Some(page) = found.map(Found::take::<Page>) else { return false };
        match &mut self.work {
            Work::Check(_) => self.pages.add(page),
            Work::Collect { .. } => self.collect(page),
        }
        true
    }

    /// Adds a page to what is collected.
    fn collect(&mut self, page: Page) {
        let Work::Collect { collected, left, next } = &mut self.work else { unreachable!("a map is collected") };
        let collected = Arc::make_mut(collected);
        let bytes: usize = page.values.values().map(|value| BYTES_OF_KEY + value.len()).sum();
        if bytes > *left {
            collected.is_cut = true;
        }
        *left = left.saturating_sub(bytes);
        // Pages share the buffers of reads, which must not be kept for the sake of some values.
        collected.map.extend(page.values.iter().map(|(key, value)| (*key, Bytes::copy_from_slice(value))));
        let then = match page.end {
            PageEnd::Kind => None,
            PageEnd::Next(then) => Some(then),
            PageEnd::Damage { at, then } => {
                collected.damaged.push(at);
                then
            }
        };
        match then.filter(|_| !collected.is_cut) {
            Some(then) => *next = then,
            None => self.is_complete = true,
        }
    }

    /// True if the store has to be asked again.
    pub fn awaits_turn(&self) -> bool {
        !self.is_asked && !self.is_complete
    }

    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// What was found, and how much more was found than is listed.
    pub fn findings(&self) -> Option<(Vec<Finding>, u64)> {
        let Work::Check(check) = &self.work else { return None };
        let (findings, omitted) = check.findings();
        Some((findings.to_vec(), omitted))
    }

    /// What was collected.
    pub fn collected(&self) -> Option<Arc<Collected>> {
        let Work::Collect { collected, .. } = &self.work else { return None };
        Some(collected.clone())
    }
}

/// The maps of all shards as one, as if the file system had one.
pub fn united(maps: Vec<BTreeMap<Key, Bytes>>) -> BTreeMap<Key, Bytes> {
    let (mut united, mut counters) = (BTreeMap::new(), Vec::new());
    for (key, value) in maps.into_iter().flatten() {
        match key {
            keys::COUNTERS => counters.push(value),
            // Each shard has records of its own; those of the first one count.
            key if key.kind == Kind::FileSystem => drop(united.entry(key).or_insert(value)),
            key => drop(united.insert(key, value)),
        }
    }
    united.extend(sum_of_counters(&counters).map(|sum| (keys::COUNTERS, sum)));
    united
}

/// Checks the maps of all shards of a file system as one: what is found, and how much more is found than is listed.
pub fn check_together(shards: Vec<Collected>) -> Result<(Vec<Finding>, u64), Undecided> {
    let (mut maps, mut found) = (Vec::new(), Vec::new());
    for Collected { map, damaged, .. } in shards {
        found.extend(damaged.into_iter().map(|key| Finding::Damaged { key }));
        maps.push(map);
    }
    let mut united = united(maps);
    let transactions = united.iter().filter(|(key, value)| is_undecided(**key, value)).count();
    if transactions > 0 {
        return Err(Undecided { transactions });
    }
    let mut check = Check::new(Windows::default());
    check.step(&mut united, usize::MAX).expect("the whole map is in memory");
    let (findings, omitted) = check.findings();
    found.extend(findings.iter().cloned());
    Ok((found, omitted))
}

impl Pages {
    fn add(&mut self, page: Page) {
        if self.pages.len() == PAGES_MAX {
            self.pages.pop_front();
        }
        self.pages.push_back(page);
    }

    fn page_of(&mut self, key: Key) -> Result<&Page, Obstacle> {
        match self.pages.iter().position(|page| page.covers(key)) {
            Some(index) => Ok(&self.pages[index]),
            None => {
                self.wanted = Some(key);
                Err(Obstacle::NotHere)
            }
        }
    }
}

impl View for Pages {
    fn get(&mut self, key: Key) -> Result<Option<Bytes>, Obstacle> {
        let page = self.page_of(key)?;
        match (page.values.get(&key), page.end) {
            (Some(value), _) => Ok(Some(value.clone())),
            (None, PageEnd::Damage { at, .. }) if key >= at => Err(Obstacle::Lost),
            (None, _) => Ok(None),
        }
    }

    fn first(&mut self, keys: RangeInclusive<Key>) -> Result<Option<(Key, Bytes)>, Obstacle> {
        let (mut from, last) = keys.into_inner();
        loop {
            let page = self.page_of(from)?;
            if let Some((key, value)) = page.values.range(from..).next() {
                return Ok((*key <= last).then(|| (*key, value.clone())));
            }
            match page.end {
                PageEnd::Next(next) if next <= last => from = next,
                PageEnd::Damage { at, .. } if at <= last => return Err(Obstacle::Lost),
                PageEnd::Kind | PageEnd::Next(_) | PageEnd::Damage { .. } => return Ok(None),
            }
        }
    }

    fn first_known(&mut self, keys: RangeInclusive<Key>) -> Result<Known, Obstacle> {
        let (mut from, last) = keys.into_inner();
        let mut passed_damage = false;
        loop {
            match self.first(from..=last) {
                Ok(found) => return Ok(Known { key: found.map(|(key, _)| key), passed_damage }),
                Err(Obstacle::NotHere) => return Err(Obstacle::NotHere),
                Err(Obstacle::Lost) => passed_damage = true,
            }
            // The damage may be on a later page.
            let mut page = self.page_of(from)?;
            while let PageEnd::Next(next) = page.end {
                page = self.page_of(next)?;
            }
            match page.end {
                PageEnd::Damage { then: Some(then), .. } if then <= last => from = then,
                _ => return Ok(Known { key: None, passed_damage }),
            }
        }
    }
}

impl Page {
    fn covers(&self, key: Key) -> bool {
        let is_before_end = match self.end {
            PageEnd::Kind | PageEnd::Damage { then: None, .. } => true,
            PageEnd::Next(next) | PageEnd::Damage { then: Some(next), .. } => key < next,
        };
        key.kind == self.from.kind && key >= self.from && is_before_end
    }
}

impl Procedure for ReadPage {
    fn evaluate(&self, map: &mut dyn View) -> Result<Evaluation, NotHere> {
        let last = self.last;
        let (mut values, mut bytes, mut next) = (BTreeMap::new(), 0, Some(self.from));
        let end = loop {
            let Some(from) = next else { break PageEnd::Kind };
            if values.len() == PAGE_KEYS || bytes >= PAGE_BYTES {
                break PageEnd::Next(from);
            }
            match map.first(from..=last) {
                Ok(Some((key, value))) => {
                    bytes += value.len();
                    next = key.after();
                    values.insert(key, value);
                }
                Ok(None) => break PageEnd::Kind,
                Err(Obstacle::NotHere) if !values.is_empty() => break PageEnd::Next(from),
                Err(Obstacle::NotHere) => {
                    map.will_need(from..=last, PAGE_KEYS);
                    return Err(NotHere);
                }
                Err(Obstacle::Lost) => match map.first_known(from..=last) {
                    Ok(known) => break PageEnd::Damage { at: from, then: known.key },
                    Err(Obstacle::NotHere) => return Err(NotHere),
                    Err(Obstacle::Lost) => break PageEnd::Damage { at: from, then: None },
                },
            }
        };
        Ok(Evaluation::that_finds(Page { from: self.from, values, end }))
    }

    fn memory_bytes(&self) -> usize {
        size_of::<ReadPage>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::{BlockRange, InodeId, ShardId};
    use braid_namespace::{Parameters, Placement, Shards, format};
    use braid_objects::map_access::apply;
    use braid_wire::{FileTime, Owner};

    /// An empty file system of two shards.
    fn shards() -> Vec<Collected> {
        let of = |own| {
            let shards = Shards { own: ShardId(own), count: 2, placement: Placement::Spread };
            let hash_bits = Parameters::HASH_BITS_MAX;
            let parameters = Parameters { blocks: 1_000, stripe_blocks: 10, hash_key: [3; 16], hash_bits, shards };
            let mut collected = Collected::default();
            apply(&format(&parameters, Owner::default(), 0o755, FileTime(0)), &mut collected.map);
            collected
        };
        vec![of(0), of(1)]
    }

    #[test]
    fn maps_of_shards_are_sound_together_and_not_one_by_one() {
        assert_eq!(check_together(shards()), Ok((Vec::new(), 0)));
        let (first, omitted) = check_together(shards()[..1].to_vec()).unwrap();
        assert_eq!((first.len(), omitted), (1, 0), "the blocks of the other shard are missing: {first:?}");
        assert!(matches!(first[0], Finding::Leaked { blocks } if blocks.end() == 1_000), "{first:?}");
    }

    #[test]
    fn a_key_that_one_of_two_shards_lacks_is_reported() {
        let mut found = shards();
        found[0].map.remove(&keys::inode(InodeId::ROOT));
        let (findings, _) = check_together(found).unwrap();
        assert!(findings.iter().any(|it| matches!(it, Finding::WrongCounter { what: "inodes", .. })), "{findings:?}");
        let mut found = shards();
        let key = *found[1].map.keys().find(|key| key.kind == Kind::FreeRun).unwrap();
        found[1].map.remove(&key);
        found[1].damaged.push(key);
        let (findings, _) = check_together(found).unwrap();
        assert!(findings.contains(&Finding::Damaged { key }));
        let is_lost =
            |finding: &Finding| matches!(finding, Finding::Leaked { blocks: BlockRange { count, .. } } if *count > 0);
        assert!(findings.iter().any(is_lost), "{findings:?}");
    }

    #[test]
    fn undecided_operations_are_not_taken_for_damage() {
        let mut found = shards();
        let key = Key { kind: Kind::Transaction, of: 1, index: 7 };
        found[0].map.insert(key, Bytes::from_static(b"a record of a later build"));
        assert_eq!(check_together(found), Err(Undecided { transactions: 1 }));
    }
}
