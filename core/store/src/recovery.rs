//! Starting: the superblock says where the journal's tail is; the journal names the objects; their pages of the chunk
//! map are read; the journal is replayed over them.
//!
//! Before the store serves, damaged copies (of the superblock, of map pages) are made good from the other copy, since
//! the next checkpoint may tear that one; and an empty batch puts on record which batches counted, so that what a torn
//! one left behind can never count later.

use crate::batch::{follow, seal_of};
use crate::journal::Journal;
use crate::map::{ENTRIES_PER_PAGE, Page};
use crate::record::{IntentRecord, MapExtent, Record};
use crate::serving::Serving;
use crate::state::State;
use crate::superblock::{PAGE, Superblock};
use crate::{StoreConfig, StoreError};
use braid_machine::{DiskCommand, DiskError, DiskResult, DiskTag, Effects};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Bytes that one command reads, and commands in flight.
const READ_MAX: usize = 1 << 20;
const IN_FLIGHT_MAX: usize = 8;

/// A part to be read: where on the device, how long, and what to call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Span {
    offset: u64,
    length: usize,
}

#[derive(Debug)]
enum Stage {
    Superblock,
    Reserving,
    Journal(Vec<u8>),
    Map,
    Repairing,
    Marking(Box<Journal>),
}

/// A start on its way.
#[derive(Debug)]
pub(crate) struct Recovery {
    config: StoreConfig,
    stage: Stage,
    next_tag: u64,
    reading: BTreeMap<DiskTag, Span>,
    to_read: VecDeque<Span>,
    superblock: Option<Superblock>,
    state: Option<State>,
    records: Vec<Record>,
    journal: Option<Journal>,
    /// A checkpoint's snapshot is there already.
    resumes: bool,
    /// Runs of map pages whose first copy has come and whose second has not, or the other way round.
    half: BTreeMap<u32, (u32, Option<Bytes>)>,
    repairs: VecDeque<(u64, Bytes)>,
}

/// How far a start has come.
pub(crate) enum Progress {
    Goes,
    Ready(Box<Serving>),
    Failed(StoreError),
}

impl Recovery {
    /// Reads the superblock.
    pub fn start(config: StoreConfig, out: &mut Effects) -> Recovery {
        let mut recovery = Recovery {
            config,
            stage: Stage::Superblock,
            next_tag: 1,
            reading: BTreeMap::new(),
            to_read: [Span { offset: 0, length: 2 * PAGE }].into(),
            superblock: None,
            state: None,
            records: Vec::new(),
            journal: None,
            resumes: false,
            half: BTreeMap::new(),
            repairs: VecDeque::new(),
        };
        recovery.read_on(out);
        recovery
    }

    fn tag(&mut self) -> DiskTag {
        self.next_tag += 1;
        DiskTag(self.next_tag)
    }

    fn read_on(&mut self, out: &mut Effects) {
        while self.reading.len() < IN_FLIGHT_MAX
            && let Some(span) = self.to_read.pop_front()
        {
            let tag = self.tag();
            self.reading.insert(tag, span);
            out.disk(tag, DiskCommand::Read { offset: span.offset, length: span.length });
        }
    }

    pub fn on_disk_done(&mut self, tag: DiskTag, result: DiskResult, out: &mut Effects) -> Progress {
        match self.take(tag, result, out) {
            Ok(progress) => progress,
            Err(error) => Progress::Failed(error),
        }
    }

    fn take(&mut self, tag: DiskTag, result: DiskResult, out: &mut Effects) -> Result<Progress, StoreError> {
        let span = self.reading.remove(&tag);
        let bytes = match (result, span) {
            (DiskResult::Done(done), _) => {
                done?;
                None
            }
            (DiskResult::Read(Ok(bytes)), Some(span)) if bytes.len() == span.length => Some(bytes),
            // A copy of the map that can't be read is as good as a damaged one.
            (DiskResult::Read(_), Some(_)) if matches!(self.stage, Stage::Map) => None,
            (DiskResult::Read(Err(error)), _) => return Err(error.into()),
            (DiskResult::Read(Ok(_)), _) => return Err(DiskError::Failed.into()),
        };
        match &mut self.stage {
            Stage::Superblock => self.on_superblock(&bytes.unwrap_or_default(), out)?,
            Stage::Reserving => self.read_journal(out),
            Stage::Journal(journal) => {
                let (bytes, span) = bytes.zip(span).ok_or(DiskError::Failed)?;
                let geometry = self.superblock.as_ref().expect("it was read first").geometry;
                let at = (span.offset - geometry.journal_offset) as usize;
                journal[at..at + span.length].copy_from_slice(&bytes);
                self.read_on(out);
                if self.reading.is_empty() {
                    self.on_journal(out)?;
                }
            }
            Stage::Map => {
                self.on_pages(span.ok_or(DiskError::Failed)?, bytes)?;
                self.read_on(out);
                if self.reading.is_empty() {
                    self.replay(out)?;
                }
            }
            Stage::Repairing => self.repair(out),
            Stage::Marking(_) => return Ok(Progress::Ready(self.finish())),
        }
        Ok(Progress::Goes)
    }

    fn on_superblock(&mut self, start: &[u8], out: &mut Effects) -> Result<(), StoreError> {
        let superblock = Superblock::read(start)?;
        superblock.belongs_to(&self.config)?;
        for offset in [0, PAGE] {
            if Superblock::decode(start, offset) != Ok(superblock) {
                self.repairs.push_back((offset as u64, superblock.encode()));
            }
        }
        self.superblock = Some(superblock);
        self.stage = Stage::Reserving;
        let tag = self.tag();
        out.disk(tag, DiskCommand::Reserve { offset: 0, length: superblock.geometry.data_offset });
        Ok(())
    }

    fn read_journal(&mut self, out: &mut Effects) {
        let geometry = self.superblock.as_ref().expect("it was read first").geometry;
        let length = geometry.journal_length as usize;
        self.stage = Stage::Journal(vec![0; length]);
        self.to_read = spans(geometry.journal_offset, length).collect();
        self.read_on(out);
    }

    /// The journal is here: what it says, and which pages of the map are needed.
    fn on_journal(&mut self, out: &mut Effects) -> Result<(), StoreError> {
        let Stage::Journal(buffer) = std::mem::replace(&mut self.stage, Stage::Map) else {
            panic!("the journal was being read");
        };
        let superblock = self.superblock.expect("it was read first");
        let geometry = superblock.geometry;
        let damaged = StoreError::Damaged { part: "journal", offset: geometry.journal_offset };
        let seal = seal_of(&superblock);
        let (tail, sequence) = (superblock.tail_offset, superblock.tail_sequence);
        let found = follow(&buffer.into(), seal, tail, sequence, geometry.journal_offset)?;
        let next = found.highest.saturating_add(2);
        let mut journal = Journal::new(geometry.journal_length, seal, tail, found.head, found.last, next);
        self.resumes = found.snapshot.is_some();
        if let Some((offset, sequence)) = found.snapshot {
            journal.adopt_snapshot(tail, offset, sequence);
        }
        self.journal = Some(journal);
        self.records = found.records;

        let mut state = State::new(&geometry, superblock.device);
        let mut pages = BTreeSet::new();
        // The snapshot that the journal begins with names the objects whose pages are on the disk. Another snapshot may
        // follow, of a checkpoint that did not end: it says nothing new.
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
        self.to_read = runs.iter().flat_map(copies).collect();
        self.half = runs.into_iter().map(|(first, _)| (first, (0, None))).collect();
        if self.to_read.is_empty() {
            return self.replay(out);
        }
        self.read_on(out);
        Ok(())
    }

    /// A copy of a run of pages is here, or can't be read. When the other one is too, the better of each is taken.
    fn on_pages(&mut self, span: Span, bytes: Option<Bytes>) -> Result<(), StoreError> {
        let geometry = self.superblock.as_ref().expect("it was read first").geometry;
        let copy_length = geometry.page_offset(1, 0) - geometry.page_offset(0, 0);
        let at = span.offset - geometry.map_offset;
        let first = (at % copy_length / PAGE as u64) as u32;
        let is_second = at >= copy_length;
        let (arrived, other) = self.half.get_mut(&first).expect("the run was asked for");
        *arrived += 1;
        if *arrived == 1 {
            *other = bytes;
            return Ok(());
        }
        let other = self.half.remove(&first).and_then(|(_, other)| other);
        let copies = if is_second { [other, bytes] } else { [bytes, other] };
        let state = self.state.as_mut().expect("it was made with the journal");
        for (page, at) in (first..).zip((0..span.length).step_by(PAGE)) {
            let slice = |copy: &Option<Bytes>| copy.as_ref().map(|bytes| bytes.slice(at..at + PAGE));
            let raw = copies.each_ref().map(slice);
            let decode = |raw: &Option<Bytes>| raw.as_ref().and_then(|raw| Page::decode(raw, page, geometry.slots));
            let chosen = match raw.each_ref().map(decode) {
                [Some(first), Some(second)] if second.checkpoint > first.checkpoint => second,
                [Some(first), Some(_)] => first,
                [Some(good), None] => {
                    self.repairs.extend(raw[0].clone().map(|raw| (geometry.page_offset(1, page), raw)));
                    good
                }
                [None, Some(good)] => {
                    self.repairs.extend(raw[1].clone().map(|raw| (geometry.page_offset(0, page), raw)));
                    good
                }
                [None, None] => {
                    return Err(StoreError::Damaged { part: "chunk map", offset: geometry.page_offset(0, page) });
                }
            };
            state.map.load(&chosen);
            if raw[0] != raw[1] {
                // A checkpoint did not end: the next one must not leave an old copy behind.
                state.map.touch(page);
            }
        }
        Ok(())
    }

    fn replay(&mut self, out: &mut Effects) -> Result<(), StoreError> {
        let geometry = self.superblock.as_ref().expect("it was read first").geometry;
        let state = self.state.as_mut().expect("it was made with the journal");
        for record in std::mem::take(&mut self.records) {
            state.replay(record);
        }
        if !state.is_sound() {
            return Err(StoreError::Damaged { part: "chunk map", offset: geometry.map_offset });
        }
        self.stage = Stage::Repairing;
        self.repair(out);
        Ok(())
    }

    /// Writes the next copy that is to be made good; after the last, the mark.
    fn repair(&mut self, out: &mut Effects) {
        let tag = self.tag();
        if let Some((offset, bytes)) = self.repairs.pop_front() {
            out.disk(tag, DiskCommand::Write { offset, data: vec![bytes], durable: true });
            return;
        }
        let geometry = self.superblock.as_ref().expect("it was read first").geometry;
        let mut journal = self.journal.take().expect("it was made with the journal");
        let mark = journal.assemble().expect("there is always room for a mark");
        let offset = geometry.journal_offset + mark.offset;
        out.disk(tag, DiskCommand::Write { offset, data: vec![mark.buffer], durable: true });
        self.stage = Stage::Marking(Box::new(journal));
    }

    fn finish(&mut self) -> Box<Serving> {
        let Stage::Marking(journal) = std::mem::replace(&mut self.stage, Stage::Superblock) else {
            panic!("a start ends with its mark");
        };
        let mut journal = *journal;
        journal.landed();
        let state = self.state.take().expect("it was made with the journal");
        let superblock = self.superblock.expect("it was read first");
        let mut serving = Box::new(Serving::new(superblock, state, journal, self.next_tag + 1));
        if self.resumes {
            serving.resume_checkpoint();
        }
        serving
    }
}

fn names_slots_below(intent: &IntentRecord, slots: u32) -> bool {
    intent.slots().chain(intent.homes.iter().map(|home| home.slot)).all(|slot| slot < slots)
}

fn pages_of(extent: &MapExtent) -> std::ops::Range<u32> {
    let entries = ENTRIES_PER_PAGE as u32;
    extent.start / entries..extent.start.saturating_add(extent.count).div_ceil(entries)
}

fn spans(offset: u64, length: usize) -> impl Iterator<Item = Span> {
    (0..length).step_by(READ_MAX).map(move |at| Span { offset: offset + at as u64, length: READ_MAX.min(length - at) })
}

/// Neighbouring pages together, as many as one command reads.
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
