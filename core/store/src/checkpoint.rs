//! Checkpoints make room in the journal.
//!
//! ```text
//!   snapshot     what must outlive the journal's old part is written to its head: objects, membership, undecided intents,
//!                decisions not yet to be forgotten, what others missed. Who comes then is after the snapshot.
//!   homing       blocks committed before it are written to their slots, then a sync
//!   merging      what objects were given before it goes into their catalogue: see `merging`
//!   pages        map pages changed before it: one copy, a sync, the other copy, a sync
//!   superblock   now says that recovery begins with the snapshot: one copy, then the other
//! ```
//!
//! Everything written home was decided before the snapshot, and the snapshot is durable before anything goes home: so
//! no content reaches its place before its decision is beyond doubt. Blocks overwritten since go home nevertheless, as
//! what overwrites them may not be durable yet.

use crate::block::{CHUNK_BLOCKS, STRIDE, places_of, seal};
use crate::journal::Carried;
use crate::record::Record;
use crate::serving::{Io, Serving};
use crate::state::Resident;
use crate::superblock::{PAGE, Superblock};
use braid_base::{AlignedBuffer, BLOCK_BYTES, BlockRange, ObjectId};
use braid_machine::{DiskCommand, Effects};
use std::collections::{BTreeMap, VecDeque};

/// The most commands of a checkpoint in flight. More follow when half of them have ended, so that they go together.
const IN_FLIGHT_MAX: usize = 16;
/// The most blocks and pages in one command.
const RUN_BLOCKS_MAX: usize = 64;
const RUN_PAGES_MAX: u32 = 64;
/// Small records, and what was answered, are carried on in parts of about this size.
const CARRIED_BYTES: usize = 16 << 10;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Idle,
    Snapshot,
    Homing,
    SyncingHome,
    Merging,
    Pages(u32),
    SyncingPages(u32),
    Superblock(u32),
}

/// A block on its way home.
#[derive(Debug)]
struct HomeBlock {
    object: ObjectId,
    block: u64,
    resident: Resident,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Checkpoint {
    /// Somebody waits for room.
    pub wanted: bool,
    /// Somebody waits for what merging shows: how few slots it takes.
    pub merging_wanted: bool,
    phase: Phase,
    /// Yet to be written, by place.
    home: BTreeMap<u64, HomeBlock>,
    /// Being written, by first place.
    homing: BTreeMap<u64, Vec<HomeBlock>>,
    in_flight: usize,
    next_page: u32,
}

impl Checkpoint {
    /// A slot is nobody's any more: nothing need go there.
    pub fn drop_slot(&mut self, slot: u32) {
        let places = places_of(slot);
        while let Some((place, _)) = self.home.range(places.blocks()).next() {
            let place = *place;
            self.home.remove(&place);
        }
    }
}

impl Serving {
    /// Begins a checkpoint at a moment when no batch is in flight, so that what is known here is what the journal says.
    pub fn begin_checkpoint_if_due(&mut self) {
        let wanted = self.checkpoint.wanted && self.journal.has_grown();
        let merging_wanted = self.checkpoint.merging_wanted && self.state.catalogue.pending() > 0;
        let due = self.journal.is_half_full() || wanted || merging_wanted;
        if !due || self.checkpoint.phase != Phase::Idle || self.journal.flight.is_some() {
            return;
        }
        self.checkpoint.wanted = false;
        self.checkpoint.merging_wanted = false;
        self.checkpoint.phase = Phase::Snapshot;
        self.checkpoint.home = self.homeless();
        self.state.map.freeze();
        self.state.catalogue.freeze();
        let snapshot = self.snapshot();
        self.journal.begin_snapshot(snapshot);
        self.unsaid.clear();
    }

    /// Goes on with a checkpoint whose snapshot recovery found: all that was decided since is durable too.
    pub fn resume_checkpoint(&mut self) {
        self.checkpoint.phase = Phase::Homing;
        self.checkpoint.home = self.homeless();
        self.state.map.freeze();
        self.state.catalogue.freeze();
    }

    /// The blocks to go home, by place.
    fn homeless(&self) -> BTreeMap<u64, HomeBlock> {
        let home = |((object, block), resident): (&(ObjectId, u64), &Resident)| {
            let slot = self.state.chunk(*object, (block / CHUNK_BLOCKS) as u32).slot;
            let slot = slot.expect("recovery and commits see to it that what holds anything has a slot");
            let home = HomeBlock { object: *object, block: *block, resident: resident.clone() };
            (u64::from(slot) * CHUNK_BLOCKS + block % CHUNK_BLOCKS, home)
        };
        self.state.resident.iter().map(home).collect()
    }

    fn snapshot(&self) -> VecDeque<Carried> {
        let state = &self.state;
        let objects = state.objects.iter().map(|object| Record::Object(object.clone()));
        let decided = state.decisions.values().map(|decision| Record::Decided(decision.clone()));
        let bad = (!state.bad.is_empty()).then(|| Record::Retired(state.bad.iter().copied().collect()));
        let single = [Some(Record::Stamps(state.stamps_reserved)), state.membership_record(), bad];
        let extents = state.missed.records().chain(state.absent.records());
        let mut carried = VecDeque::new();
        let mut notes = Vec::new();
        let roots = state.catalogue.roots();
        let answers = state.answers.records(CARRIED_BYTES).chain((!roots.is_empty()).then_some(Record::Rooted(roots)));
        for record in single.into_iter().flatten().chain(objects).chain(decided).chain(extents).chain(answers) {
            record.encode(&mut notes);
            if notes.len() >= CARRIED_BYTES {
                carried.push_back(Carried::Notes(std::mem::take(&mut notes)));
            }
        }
        carried.push_back(Carried::Notes(notes));
        carried.extend(state.intents.values().cloned().map(Carried::Intent));
        carried
    }

    /// The snapshot is durable: blocks may go home.
    pub fn on_snapshot_durable(&mut self, out: &mut Effects) {
        assert_eq!(self.checkpoint.phase, Phase::Snapshot);
        self.checkpoint.phase = Phase::Homing;
        self.send_home(out);
    }

    /// Writes blocks home that nobody is reading at their old content.
    pub fn send_home(&mut self, out: &mut Effects) {
        if self.checkpoint.phase != Phase::Homing || self.checkpoint.in_flight > IN_FLIGHT_MAX / 2 {
            return;
        }
        let mut from = 0;
        while self.checkpoint.in_flight < IN_FLIGHT_MAX
            && let Some(places) = self.next_run(from)
        {
            from = places.end();
            if self.places.overlapping(places).next().is_none() {
                self.send_run_home(places, out);
            }
        }
        if self.checkpoint.home.is_empty() && self.checkpoint.in_flight == 0 {
            self.checkpoint.phase = Phase::SyncingHome;
            self.disk(Io::CheckpointStep, DiskCommand::Sync, out);
        }
    }

    fn next_run(&self, from: u64) -> Option<BlockRange> {
        let mut places = self.checkpoint.home.range(from..).map(|(place, _)| *place);
        let first = places.next()?;
        let more = places.zip(first + 1..).take(RUN_BLOCKS_MAX - 1).take_while(|(place, next)| place == next).count();
        Some(BlockRange::new(first, 1 + more as u64))
    }

    fn send_run_home(&mut self, places: BlockRange, out: &mut Effects) {
        let mut buffer = AlignedBuffer::recycled(places.count as usize * STRIDE);
        let mut blocks = Vec::with_capacity(places.count as usize);
        for (place, stride) in places.blocks().zip(buffer.chunks_exact_mut(STRIDE)) {
            let home = self.checkpoint.home.remove(&place).expect("it is in the run");
            match &home.resident.data {
                Some(data) => stride[..BLOCK_BYTES].copy_from_slice(data),
                None => stride[..BLOCK_BYTES].fill(0),
            }
            seal(stride, home.object, home.block, &home.resident.by, home.resident.data.is_none());
            blocks.push(home);
        }
        self.checkpoint.homing.insert(places.start, blocks);
        self.checkpoint.in_flight += 1;
        self.counters.blocks_homed += places.count;
        let offset = self.offset_of(places.start);
        let command = DiskCommand::Write { offset, data: vec![buffer.freeze()], durable: false };
        self.disk(Io::Home { places }, command, out);
    }

    /// Blocks are at home: those not overwritten since are read from there from now on.
    pub fn on_home_written(&mut self, places: BlockRange) {
        self.checkpoint.in_flight -= 1;
        let written = self.checkpoint.homing.remove(&places.start).expect("it was sent");
        for HomeBlock { object, block, resident } in written {
            let key = (object, block);
            if self.state.resident.get(&key).is_some_and(|held| held.by.transaction == resident.by.transaction) {
                self.state.resident.remove(&key);
            }
        }
    }

    /// A sync or a superblock is written: the next phase.
    pub fn on_checkpoint_step(&mut self, out: &mut Effects) {
        match self.checkpoint.phase {
            Phase::SyncingHome => {
                self.checkpoint.phase = Phase::Merging;
                self.begin_merging(out);
            }
            Phase::SyncingPages(0) => self.begin_pages(1, out),
            Phase::SyncingPages(_) => self.write_superblock(0, out),
            Phase::Superblock(0) => self.write_superblock(1, out),
            Phase::Superblock(_) => self.end_checkpoint(),
            phase => panic!("nothing was to be done in {phase:?}"),
        }
    }

    /// All that was frozen is merged.
    pub fn on_merged(&mut self, out: &mut Effects) {
        assert_eq!(self.checkpoint.phase, Phase::Merging);
        if self.state.map.frozen_run(0, 1).is_some() {
            self.begin_pages(0, out);
        } else {
            self.write_superblock(0, out);
        }
    }

    fn begin_pages(&mut self, copy: u32, out: &mut Effects) {
        self.checkpoint.phase = Phase::Pages(copy);
        self.checkpoint.next_page = 0;
        self.send_pages(out);
    }

    fn send_pages(&mut self, out: &mut Effects) {
        let Phase::Pages(copy) = self.checkpoint.phase else { panic!("pages are written in their phase") };
        while self.checkpoint.in_flight < IN_FLIGHT_MAX
            && let Some((first, count)) = self.state.map.frozen_run(self.checkpoint.next_page, RUN_PAGES_MAX)
        {
            self.checkpoint.next_page = first + count;
            self.checkpoint.in_flight += 1;
            let buffer = self.state.map.encode(first, count, self.superblock.checkpoint + 1).freeze();
            let offset = self.geometry().page_offset(copy, first);
            self.disk(Io::CheckpointPages, DiskCommand::Write { offset, data: vec![buffer], durable: false }, out);
        }
        if self.checkpoint.in_flight == 0 {
            self.checkpoint.phase = Phase::SyncingPages(copy);
            self.disk(Io::CheckpointStep, DiskCommand::Sync, out);
        }
    }

    /// Some pages are written.
    pub fn on_checkpoint_pages(&mut self, out: &mut Effects) {
        self.checkpoint.in_flight -= 1;
        self.send_pages(out);
    }

    fn write_superblock(&mut self, copy: u32, out: &mut Effects) {
        self.checkpoint.phase = Phase::Superblock(copy);
        let data = vec![self.next_superblock().encode()];
        let offset = u64::from(copy) * PAGE as u64;
        self.disk(Io::CheckpointStep, DiskCommand::Write { offset, data, durable: true }, out);
    }

    fn next_superblock(&self) -> Superblock {
        let start = self.journal.snapshot_start();
        Superblock {
            checkpoint: self.superblock.checkpoint + 1,
            tail_offset: start.offset,
            tail_sequence: start.sequence,
            ..self.superblock
        }
    }

    fn end_checkpoint(&mut self) {
        self.superblock = self.next_superblock();
        self.journal.advance_tail();
        self.state.map.thaw();
        self.checkpoint.phase = Phase::Idle;
        self.counters.checkpoints += 1;
    }
}
