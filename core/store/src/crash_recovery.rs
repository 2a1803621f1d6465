//! Recovery: the steps from an opened disk to a store in service. The superblock says where the journal's tail is. The journal names the
//! objects; the pages of the chunk map that describe them are read, and the index nodes of the object index. Then the journal is replayed
//! over both.
//!
//! Before the store serves, damaged copies of the superblock and of map pages are repaired from the other copy, because the next checkpoint
//! may tear the other copy. And an empty batch records which batches counted, so that remains of a torn batch can never count later.

use crate::block::SLOT_BYTES;
use crate::ctx::Journal;
use crate::free_slots::Slots;
use crate::journal_format::{IntentRecord, MapExtent, Record};
use crate::map::{ENTRIES_PER_PAGE, Page};
use crate::reader::{READ_MAX, Reader, Span};
use crate::serving::Serving;
use crate::state::{State, index_settings};
use crate::superblock::{PAGE, Superblock};
use crate::{Medium, StoreConfig, StoreError};
use braid_base::{DiskId, Time};
use braid_journal::SECTOR;
use braid_machine::{DiskCommand, DiskError, DiskResult, DiskTag, Effects};
use braid_object_index::{Damaged, Opening};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

#[derive(Clone, Debug)]
enum Stage {
    Superblock,
    Reserving,
    Journal(Vec<u8>),
    Map,
    /// The index nodes of the object index, and the node at each offset that is being read.
    Index(Box<Opening>, BTreeMap<u64, usize>),
    Repairing,
    Marking(Box<Journal>, Box<Slots>),
}

/// A recovery under way.
#[derive(Clone, Debug)]
pub(crate) struct Recovery {
    config: StoreConfig,
    object_memory: u64,
    medium: Medium,
    stage: Stage,
    reader: Reader,
    superblock: Option<Superblock>,
    state: Option<State>,
    records: Vec<Record>,
    journal: Option<Journal>,
    /// The journal holds the snapshot of a checkpoint that did not end.
    resumes: bool,
    /// Runs of map pages of which only one copy has been read.
    half: BTreeMap<u32, Bytes>,
    repairs: VecDeque<(u64, Bytes)>,
}

/// The state of a recovery after a step.
#[derive(Clone, Debug)]
pub(crate) enum Progress {
    Goes,
    Ready(Box<Serving>, DiskId),
    Failed(StoreError),
}

impl Recovery {
    /// Begins with reading the superblock.
    pub fn start(config: StoreConfig, object_memory: u64, medium: Medium, out: &mut Effects) -> Recovery {
        let mut recovery = Recovery {
            config,
            object_memory,
            medium,
            stage: Stage::Superblock,
            reader: Reader::default(),
            superblock: None,
            state: None,
            records: Vec::new(),
            journal: None,
            resumes: false,
            half: BTreeMap::new(),
            repairs: VecDeque::new(),
        };
        recovery.reader.read([Span { offset: 0, length: 2 * PAGE }], out);
        recovery
    }

    pub fn on_disk_done(&mut self, tag: DiskTag, result: DiskResult, out: &mut Effects) -> Progress {
        match self.take(tag, result, out) {
            Ok(progress) => progress,
            Err(error) => Progress::Failed(error),
        }
    }

    fn take(&mut self, tag: DiskTag, result: DiskResult, out: &mut Effects) -> Result<Progress, StoreError> {
        let read = match result {
            DiskResult::Done(done) => {
                done?;
                None
            }
            DiskResult::Read(bytes) => match self.reader.take(tag, bytes, out)? {
                None => return Ok(Progress::Goes),
                read => read,
            },
        };
        match &mut self.stage {
            Stage::Superblock => {
                let (_, bytes) = read.ok_or(DiskError::Failed)?;
                self.on_superblock(&bytes, out)?;
            }
            Stage::Reserving => self.read_journal(out),
            Stage::Journal(journal) => {
                let (span, bytes) = read.ok_or(DiskError::Failed)?;
                let geometry = self.superblock.as_ref().expect("the superblock is read first").geometry;
                let at = (span.offset - geometry.journal_offset) as usize;
                journal[at..at + span.length].copy_from_slice(&bytes);
                if self.reader.is_idle() {
                    self.on_journal(out)?;
                }
            }
            Stage::Map => {
                let (span, bytes) = read.ok_or(DiskError::Failed)?;
                self.on_pages(span, bytes)?;
                if self.reader.is_idle() {
                    self.read_index(out)?;
                }
            }
            Stage::Index(opening, nodes) => {
                let (span, bytes) = read.ok_or(DiskError::Failed)?;
                let which = nodes.remove(&span.offset).expect("each node is requested once: roots in different slots");
                opening.take(which, &bytes).map_err(|_| index_damaged(span.offset))?;
                if self.reader.is_idle() {
                    self.open_object_index()?;
                    self.replay(out)?;
                }
            }
            Stage::Repairing => self.repair(out)?,
            Stage::Marking(..) => return Ok(self.finish()),
        }
        Ok(Progress::Goes)
    }

    fn on_superblock(&mut self, start: &[u8], out: &mut Effects) -> Result<(), StoreError> {
        let superblock = match Superblock::read(start) {
            // An unreadable superblock may well be one of Braid.
            Err(StoreError::NotBraid) if self.reader.has_unreadable() => return Err(DiskError::Failed.into()),
            read => read?,
        };
        superblock.belongs_to(&self.config)?;
        for offset in [0, PAGE] {
            // A copy in an older format is rewritten as well: a release that only knows that format must not read what is written from
            // now on.
            let copy = superblock.encode();
            if start.get(offset..offset + SECTOR) != Some(&copy[..SECTOR]) || self.medium.cached {
                self.repairs.push_back((offset as u64, copy));
            }
        }
        self.superblock = Some(superblock);
        self.stage = Stage::Reserving;
        let tag = self.reader.tag();
        out.disk(tag, DiskCommand::Reserve { offset: 0, length: superblock.geometry.data_offset });
        Ok(())
    }

    fn read_journal(&mut self, out: &mut Effects) {
        let geometry = self.superblock.as_ref().expect("the superblock is read first").geometry;
        let length = geometry.journal_length as usize;
        self.stage = Stage::Journal(vec![0; length]);
        self.reader.read(Span::cut(geometry.journal_offset, length), out);
    }

    /// Data that was read through a cache may not be on the disk: it may come from a write that failed. Such a write was never answered,
    /// so it may take effect or not; but nothing may follow from it before it is durable. It is therefore written again, durably, before
    /// the store is ready.
    fn secure(&mut self, offset: u64, bytes: &Bytes) {
        if self.medium.cached {
            self.repairs.push_back((offset, bytes.clone()));
        }
    }

    /// The journal has been read: decodes it, and finds the pages of the map that are needed.
    fn on_journal(&mut self, out: &mut Effects) -> Result<(), StoreError> {
        let Stage::Journal(buffer) = std::mem::replace(&mut self.stage, Stage::Map) else {
            panic!("the journal was being read");
        };
        let superblock = self.superblock.expect("the superblock is read first");
        let geometry = superblock.geometry;
        let damaged = StoreError::Damaged { part: "journal", offset: geometry.journal_offset };
        let buffer = Bytes::from(buffer);
        let found = superblock.read_journal(&buffer)?;
        for at in (0..buffer.len()).step_by(READ_MAX) {
            let bytes = buffer.slice(at..buffer.len().min(at + READ_MAX));
            self.secure(geometry.journal_offset + at as u64, &bytes);
        }
        let next = found.highest.saturating_add(2);
        let align = u64::from(self.medium.physical_sector);
        let (ends, sequences) = ((superblock.tail_offset, found.head), (found.last, next));
        let mut journal = Journal::new(geometry.journal_length, align, superblock.seal(), ends, sequences);
        self.resumes = found.snapshot.is_some();
        if let Some((offset, sequence)) = found.snapshot {
            journal.adopt_snapshot(superblock.tail_offset, offset, sequence);
        }
        self.journal = Some(journal);
        self.records = found.records;

        let mut state = State::new(&geometry, superblock.device, self.object_memory);
        let mut pages = BTreeSet::new();
        // The snapshot that the journal begins with names the objects whose pages are on the disk. A later snapshot, of a checkpoint that
        // did not end, says nothing new.
        let mut in_snapshot = true;
        for (index, record) in self.records.iter().enumerate() {
            in_snapshot &= record.may_be_carried();
            let known = match record {
                Record::Object(object) if in_snapshot => {
                    let fits = state.objects.insert(object.clone());
                    pages.extend(object.extents.iter().filter(|_| fits).flat_map(pages_of));
                    fits || state.objects.get(object.description.object) == Some(object)
                }
                Record::Membership { membership, returned } if index < found.snapshot_records => {
                    state.carry_on(membership.clone(), *returned);
                    true
                }
                Record::Retired(slots) => slots.iter().all(|slot| *slot < geometry.slots),
                Record::Intent(intent) | Record::Applied(intent) => names_slots_below(intent, geometry.slots),
                _ => true,
            };
            if !known {
                return Err(damaged);
            }
        }
        self.state = Some(state);
        let runs = runs(&pages);
        let copies = |(first, count): &(u32, u32)| {
            let length = *count as usize * PAGE;
            [0, 1].map(|copy| Span { offset: geometry.page_offset(copy, *first), length })
        };
        if runs.is_empty() {
            return self.read_index(out);
        }
        self.reader.read(runs.iter().flat_map(copies), out);
        Ok(())
    }

    /// One copy of a run of pages has been read. When both copies are there, the better copy of each page is taken.
    fn on_pages(&mut self, span: Span, bytes: Bytes) -> Result<(), StoreError> {
        let geometry = self.superblock.as_ref().expect("the superblock is read first").geometry;
        let copy_length = geometry.page_offset(1, 0) - geometry.page_offset(0, 0);
        let at = span.offset - geometry.map_offset;
        let first = (at % copy_length / PAGE as u64) as u32;
        let is_second = at >= copy_length;
        let Some(other) = self.half.remove(&first) else {
            self.half.insert(first, bytes);
            return Ok(());
        };
        let copies = if is_second { [other, bytes] } else { [bytes, other] };
        for (copy, bytes) in (0..).zip(&copies) {
            self.secure(geometry.page_offset(copy, first), bytes);
        }
        let state = self.state.as_mut().expect("the state is made from the journal");
        for (page, at) in (first..).zip((0..span.length).step_by(PAGE)) {
            let raw = copies.each_ref().map(|copy| copy.slice(at..at + PAGE));
            let decode = |raw: &Bytes| Page::decode(raw, page, geometry.slots);
            let chosen = match raw.each_ref().map(decode) {
                [Some(first), Some(second)] if second.checkpoint > first.checkpoint => second,
                [Some(first), Some(_)] => first,
                [Some(good), None] => {
                    self.repairs.push_back((geometry.page_offset(1, page), raw[0].clone()));
                    good
                }
                [None, Some(good)] => {
                    self.repairs.push_back((geometry.page_offset(0, page), raw[1].clone()));
                    good
                }
                [None, None] => {
                    return Err(StoreError::Damaged { part: "chunk map", offset: geometry.page_offset(0, page) });
                }
            };
            state.map.load(&chosen);
            if raw[0] != raw[1] {
                // A checkpoint did not end. The next one must write both copies of this page.
                state.map.touch(page);
            }
        }
        Ok(())
    }

    /// Reads the index nodes of the object index, from the last roots in the journal.
    fn read_index(&mut self, out: &mut Effects) -> Result<(), StoreError> {
        let geometry = self.superblock.as_ref().expect("the superblock is read first").geometry;
        let roots = |record: &Record| if let Record::Rooted(roots) = record { Some(roots.clone()) } else { None };
        let roots = self.records.iter().rev().find_map(roots).unwrap_or_default();
        let offset = |slot: u32| geometry.data_offset + u64::from(slot) * SLOT_BYTES;
        if let Some(root) = roots.iter().find(|root| root.place.slot >= geometry.slots) {
            return Err(index_damaged(offset(root.place.slot)));
        }
        if roots.is_empty() {
            return self.replay(out);
        }
        let opening = Opening::new(index_settings(&geometry, self.object_memory), roots);
        let spans: Vec<Span> =
            opening.places().map(|place| Span { offset: offset(place.slot), length: place.read_len() }).collect();
        let nodes = spans.iter().enumerate().map(|(which, span)| (span.offset, which)).collect();
        self.stage = Stage::Index(Box::new(opening), nodes);
        self.reader.read(spans, out);
        Ok(())
    }

    /// All index nodes have been read.
    fn open_object_index(&mut self) -> Result<(), StoreError> {
        let geometry = self.superblock.as_ref().expect("the superblock is read first").geometry;
        let Stage::Index(opening, _) = std::mem::replace(&mut self.stage, Stage::Map) else {
            panic!("the index was being read");
        };
        let damaged = |Damaged { slot }| index_damaged(geometry.data_offset + u64::from(slot) * SLOT_BYTES);
        let state = self.state.as_mut().expect("the state is made from the journal");
        state.object_index = opening.finish(geometry.slots).map_err(damaged)?;
        Ok(())
    }

    fn replay(&mut self, out: &mut Effects) -> Result<(), StoreError> {
        let geometry = self.superblock.as_ref().expect("the superblock is read first").geometry;
        let state = self.state.as_mut().expect("the state is made from the journal");
        for record in std::mem::take(&mut self.records) {
            state.replay(record);
        }
        state.answers.end_replay();
        if !state.is_sound() {
            return Err(StoreError::Damaged { part: "chunk map", offset: geometry.map_offset });
        }
        self.stage = Stage::Repairing;
        // What was read may be only in the disk's cache, from a write that was never answered.
        let tag = self.reader.tag();
        out.disk(tag, DiskCommand::Sync);
        Ok(())
    }

    /// Writes the next copy that needs a repair; after the last one, the mark.
    fn repair(&mut self, out: &mut Effects) -> Result<(), StoreError> {
        let tag = self.reader.tag();
        if let Some((offset, bytes)) = self.repairs.pop_front() {
            out.disk(tag, DiskCommand::Write { offset, data: vec![bytes], durable: true });
            return Ok(());
        }
        let geometry = self.superblock.as_ref().expect("the superblock is read first").geometry;
        let mut journal = self.journal.take().expect("the journal has been read");
        // Batches with records leave this room; those of earlier releases did not.
        let mark =
            journal.assemble(0).ok_or(StoreError::Damaged { part: "journal", offset: geometry.journal_offset })?;
        let state = self.state.as_ref().expect("the state is made from the journal");
        let slots = Slots::new(geometry.slots, state.used_slots());
        let slots = slots.ok_or(StoreError::Damaged { part: "chunk map", offset: geometry.map_offset })?;
        let offset = geometry.journal_offset + mark.offset;
        out.disk(tag, DiskCommand::Write { offset, data: vec![mark.buffer], durable: true });
        self.stage = Stage::Marking(Box::new(journal), Box::new(slots));
        Ok(())
    }

    fn finish(&mut self) -> Progress {
        let Stage::Marking(journal, slots) = std::mem::replace(&mut self.stage, Stage::Superblock) else {
            panic!("recovery ends with its mark");
        };
        let mut journal = *journal;
        journal.landed(Time::default());
        let state = self.state.take().expect("the state is made from the journal");
        let superblock = self.superblock.expect("the superblock is read first");
        let serving = Serving::new(superblock, state, *slots, journal, self.reader.next_tag(), self.resumes);
        Progress::Ready(Box::new(serving), superblock.disk)
    }
}

fn index_damaged(offset: u64) -> StoreError {
    StoreError::Damaged { part: "index of the object index", offset }
}

fn names_slots_below(intent: &IntentRecord, slots: u32) -> bool {
    intent.slots().chain(intent.homes.iter().map(|home| home.slot)).all(|slot| slot < slots)
}

fn pages_of(extent: &MapExtent) -> std::ops::Range<u32> {
    let entries = ENTRIES_PER_PAGE as u32;
    extent.start / entries..extent.start.saturating_add(extent.count).div_ceil(entries)
}

/// Runs of neighbouring pages, each as long as one command reads at most.
fn runs(pages: &BTreeSet<u32>) -> Vec<(u32, u32)> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for page in pages {
        match runs.last_mut() {
            Some((first, count)) if *first + *count == *page && (*count as usize) < READ_MAX / PAGE => *count += 1,
            _ => runs.push((*page, 1)),
        }
    }
    runs
}
