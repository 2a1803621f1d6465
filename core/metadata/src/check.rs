//! The check of a whole file system, by a process that owns the file system and does not serve it: so the map does not change meanwhile.
//! The store reads *pages* of the map: some keys in a row. The check continues until it needs a key that is on no page at hand.

use crate::operation::{as_answer, content};
use braid_namespace::check::{Check, Finding, Windows};
use braid_objects::key::KEY_BYTES;
use braid_objects::map_access::Known;
use braid_objects::{Evaluation, Key, NotHere, Obstacle, Procedure, View};
use braid_wire::ObjectAnswer;
use bytes::{Buf, BufMut, Bytes};
use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;

/// The most keys of a page.
const PAGE_KEYS: usize = 256;
/// A page with so many bytes gets no further keys.
const PAGE_BYTES: usize = 64 << 10;
/// The most pages at hand.
const PAGES_MAX: usize = 64;
/// The keys that a check reads before its state is looked at again.
const KEYS_AT_ONCE: usize = 1024;

/// A check, and the pages that it reads.
#[derive(Debug)]
pub(crate) struct CheckRun {
    check: Check,
    pages: Pages,
    is_asked: bool,
    is_complete: bool,
}

/// The part of the map that is at hand.
#[derive(Debug, Default)]
struct Pages {
    /// The oldest first.
    pages: VecDeque<Page>,
    /// The key that was missing last.
    wanted: Option<Key>,
}

/// Keys in a row, all of one kind.
#[derive(Debug)]
struct Page {
    from: Key,
    values: BTreeMap<Key, Bytes>,
    end: PageEnd,
}

/// Where a page ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageEnd {
    /// There is no further key of this kind.
    Kind,
    /// There may be further keys from this one on.
    Next(Key),
    /// Keys from this one on are damaged, up to the next readable key of this kind, if there is one.
    Damage { at: Key, then: Option<Key> },
}

/// Reads a page, as a procedure of the store.
#[derive(Debug)]
struct ReadPage {
    from: Key,
}

impl CheckRun {
    pub fn new() -> CheckRun {
        let check = Check::new(Windows::default());
        CheckRun { check, pages: Pages::default(), is_asked: false, is_complete: false }
    }

    /// Continues the check. Returns what the store must read for it; `None` if that is under way, or the check is complete.
    pub fn advance(&mut self) -> Option<Box<dyn Procedure>> {
        if self.is_asked || self.is_complete {
            return None;
        }
        loop {
            match self.check.step(&mut self.pages, KEYS_AT_ONCE) {
                Ok(true) => {
                    self.is_complete = true;
                    return None;
                }
                Ok(false) => {}
                Err(NotHere) => {
                    self.is_asked = true;
                    let from = self.pages.wanted.expect("a key was missing");
                    return Some(Box::new(ReadPage { from }));
                }
            }
        }
    }

    /// The store has read a page. False if it had no room for that.
    pub fn on_page(&mut self, answer: &ObjectAnswer) -> bool {
        self.is_asked = false;
        let Some(from) = self.pages.wanted.take() else { return false };
        match content(answer) {
            Some(bytes) => self.pages.add(Page::decode(from, bytes)),
            None => self.pages.wanted = Some(from),
        }
        self.pages.wanted.is_none()
    }

    /// True if the store has to be asked again.
    pub fn awaits_turn(&self) -> bool {
        !self.is_asked && !self.is_complete
    }

    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// What was found, and how much more was found than is listed.
    pub fn findings(&self) -> (Vec<Finding>, u64) {
        let (findings, omitted) = self.check.findings();
        (findings.to_vec(), omitted)
    }
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

    fn encode(values: &[(Key, Bytes)], end: PageEnd) -> Bytes {
        let mut to = Vec::new();
        let (tag, keys) = match end {
            PageEnd::Kind => (0, [None, None]),
            PageEnd::Next(next) => (1, [Some(next), None]),
            PageEnd::Damage { at, then: None } => (2, [Some(at), None]),
            PageEnd::Damage { at, then: Some(then) } => (3, [Some(at), Some(then)]),
        };
        to.put_u8(tag);
        keys.into_iter().flatten().for_each(|key| to.put_slice(&key.encode()));
        for (key, value) in values {
            to.put_slice(&key.encode());
            to.put_u32(value.len() as u32);
            to.put_slice(value);
        }
        to.into()
    }

    /// Decodes what [`Page::encode`] has made in this process.
    fn decode(from: Key, mut bytes: Bytes) -> Page {
        let key = |bytes: &mut Bytes| {
            let mut key = [0; KEY_BYTES];
            bytes.copy_to_slice(&mut key);
            Key::decode(&key).expect("it was encoded here")
        };
        let end = match bytes.get_u8() {
            0 => PageEnd::Kind,
            1 => PageEnd::Next(key(&mut bytes)),
            2 => PageEnd::Damage { at: key(&mut bytes), then: None },
            _ => PageEnd::Damage { at: key(&mut bytes), then: Some(key(&mut bytes)) },
        };
        let mut values = BTreeMap::new();
        while bytes.has_remaining() {
            let key = key(&mut bytes);
            let length = bytes.get_u32() as usize;
            values.insert(key, bytes.split_to(length));
        }
        Page { from, values, end }
    }
}

impl Procedure for ReadPage {
    fn evaluate(&self, map: &mut dyn View) -> Result<Evaluation, NotHere> {
        let last = Key { of: u64::MAX, index: u64::MAX, ..self.from };
        let (mut values, mut bytes, mut next) = (Vec::new(), 0, Some(self.from));
        let end = loop {
            let Some(from) = next else { break PageEnd::Kind };
            if values.len() == PAGE_KEYS || bytes >= PAGE_BYTES {
                break PageEnd::Next(from);
            }
            match map.first(from..=last) {
                Ok(Some((key, value))) => {
                    bytes += value.len();
                    next = key.after();
                    values.push((key, value));
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
        Ok(Evaluation { answer: as_answer(Page::encode(&values, end)), changes: Vec::new(), only_asks: true })
    }

    fn memory_bytes(&self) -> usize {
        size_of::<ReadPage>()
    }
}
