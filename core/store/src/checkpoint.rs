//! A checkpoint makes room in the journal. It writes the content of the journal's old part to its places, and then moves the journal's
//! tail.
//!
//! ```text
//!   snapshot     what must outlive the journal's old part is written to its head: objects, membership, undecided intents,
//!                decisions that must be remembered, what other devices missed. Later records come after the snapshot.
//!   homing       blocks committed before the snapshot are written to their slots, then a sync
//!   merging      changes to objects from before the snapshot are merged into their object index: see `index_merge`
//!   pages        map pages changed before the snapshot: one copy, a sync, the other copy, a sync
//!   superblock   recovery begins with the snapshot from now on: one copy is written, then the other
//! ```
//!
//! Every block that is written to its slot was decided before the snapshot, and the snapshot is durable before any of them is written. So
//! no content reaches its slot before its decision is durable. Blocks that have been overwritten since are written to their slots as
//! well, because the later writes may not be durable yet.

use crate::block::{CHUNK_BLOCKS, STRIDE, places_of, seal};
use crate::ctx::{Ctx, Journal};
use crate::disk_queue::Io;
use crate::index_merge::{Merging, on_round_durable};
use crate::journal_format::{IntentRecord, Queued, Record};
use crate::state::{DirtyBlock, State};
use crate::superblock::{PAGE, Superblock};
use braid_base::{AlignedBuffer, BLOCK_BYTES, BlockRange, Level, ObjectId};
use braid_journal::{Carried, Record as _};
use braid_machine::DiskCommand;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};

/// The most commands of a checkpoint in flight. When half of them have ended, more follow, so that they are sent together.
const IN_FLIGHT_MAX: usize = 16;
/// The most blocks, and the most pages, in one command.
const RUN_BLOCKS_MAX: usize = 64;
const RUN_PAGES_MAX: u32 = 64;
/// A snapshot carries small records and answers in parts of about this size, in bytes.
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

/// A block to be written to its slot.
#[derive(Clone, Debug)]
struct HomeBlock {
    object: ObjectId,
    block: u64,
    dirty: DirtyBlock,
}

/// A checkpoint and its phase.
#[derive(Clone, Debug)]
pub(crate) struct Compaction {
    superblock: Superblock,
    /// The level that the superblock is to have.
    wanted_level: Level,
    /// The level of the superblock that this checkpoint writes: of both copies.
    written_level: Level,
    phase: Phase,
    /// Blocks yet to be written, by place.
    home: BTreeMap<u64, HomeBlock>,
    /// Blocks being written, by first place.
    homing: BTreeMap<u64, Vec<HomeBlock>>,
    in_flight: usize,
    next_page: u32,
    merging: Merging,
    pub counters: CompactionCounters,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct CompactionCounters {
    pub checkpoints: u64,
    pub blocks_homed: u64,
}

impl Compaction {
    pub fn new(superblock: Superblock) -> Compaction {
        Compaction {
            superblock,
            wanted_level: superblock.level,
            written_level: superblock.level,
            phase: Phase::Idle,
            home: BTreeMap::new(),
            homing: BTreeMap::new(),
            in_flight: 0,
            next_page: 0,
            merging: Merging::default(),
            counters: CompactionCounters::default(),
        }
    }

    /// The superblock is to have at least this level: the next checkpoint writes it, and begins soon.
    pub fn raise_level(&mut self, level: Level) {
        self.wanted_level = self.wanted_level.max(level);
    }

    /// The level of the durable superblock.
    pub fn durable_level(&self) -> Level {
        self.superblock.level
    }

    /// Drops the blocks that were to be written to a slot which is not used any more.
    pub fn drop_slot(&mut self, slot: u32) {
        let places = places_of(slot);
        while let Some((place, _)) = self.home.range(places.blocks()).next() {
            let place = *place;
            self.home.remove(&place);
        }
    }

    /// Begins a checkpoint if one is due. It begins only while no batch is in flight, so that the state in memory is what the journal
    /// says. Returns true if it begins.
    pub fn begin_if_due(&mut self, ctx: &mut Ctx) -> bool {
        let merging_wanted = ctx.slots.is_merging_wanted && ctx.state.object_index.pending() > 0;
        let due = ctx.journal.wants_checkpoint() || merging_wanted || self.wanted_level > self.superblock.level;
        if !due || self.phase != Phase::Idle || ctx.journal.flight().is_some() {
            return false;
        }
        ctx.slots.is_merging_wanted = false;
        self.freeze(Phase::Snapshot, ctx.state);
        ctx.journal.begin_snapshot(snapshot(ctx.state));
        true
    }

    /// Continues a checkpoint whose snapshot recovery found. Everything that was decided since is durable, too.
    pub fn resume(&mut self, state: &mut State) {
        self.freeze(Phase::Homing, state);
    }

    fn freeze(&mut self, phase: Phase, state: &mut State) {
        self.phase = phase;
        self.written_level = self.wanted_level;
        self.home = homeless(state);
        state.map.freeze();
        state.object_index.freeze();
    }

    /// The snapshot is durable: blocks may be written to their slots.
    pub fn on_snapshot_durable(&mut self, ctx: &mut Ctx) {
        assert_eq!(self.phase, Phase::Snapshot);
        self.phase = Phase::Homing;
        self.send_home(ctx);
    }

    /// Writes blocks to their slots, except where a read of the old content is in flight.
    pub fn send_home(&mut self, ctx: &mut Ctx) {
        if self.phase != Phase::Homing || self.in_flight > IN_FLIGHT_MAX / 2 {
            return;
        }
        let mut from = 0;
        while self.in_flight < IN_FLIGHT_MAX
            && let Some(places) = self.next_run(from)
        {
            from = places.end();
            if !ctx.disk.is_busy(places) {
                self.send_run_home(places, ctx);
            }
        }
        if self.home.is_empty() && self.in_flight == 0 {
            self.phase = Phase::SyncingHome;
            ctx.disk.submit(Io::CheckpointStep, DiskCommand::Sync, ctx.out);
        }
    }

    fn next_run(&self, from: u64) -> Option<BlockRange> {
        let mut places = self.home.range(from..).map(|(place, _)| *place);
        let first = places.next()?;
        let more = places.zip(first + 1..).take(RUN_BLOCKS_MAX - 1).take_while(|(place, next)| place == next).count();
        Some(BlockRange::new(first, 1 + more as u64))
    }

    fn send_run_home(&mut self, places: BlockRange, ctx: &mut Ctx) {
        let mut buffer = AlignedBuffer::with_capacity(places.count as usize * STRIDE);
        let mut blocks = Vec::with_capacity(places.count as usize);
        for place in places.blocks() {
            let home = self.home.remove(&place).expect("it is in the run");
            let begins = buffer.len();
            match &home.dirty.data {
                Some(data) => buffer.append(data),
                None => _ = buffer.append_zeros(BLOCK_BYTES),
            }
            buffer.append_zeros(STRIDE - BLOCK_BYTES);
            seal(&mut buffer[begins..], home.object, home.block, &home.dirty.by, home.dirty.data.is_none());
            blocks.push(home);
        }
        self.homing.insert(places.start, blocks);
        self.in_flight += 1;
        self.counters.blocks_homed += places.count;
        ctx.disk.write_places(Io::Home { places }, places.start, buffer.freeze(), false, ctx.out);
    }

    /// A command of a checkpoint has ended.
    pub fn on_done(&mut self, io: Io, bytes: Option<Bytes>, ctx: &mut Ctx) {
        match io {
            Io::Home { places } => self.on_home_written(places, ctx),
            Io::CheckpointStep => self.on_step(ctx),
            Io::CheckpointPages => self.on_pages(ctx),
            Io::MergeRead { place, again } => {
                if self.merging.on_read(place, again, bytes, ctx) {
                    self.merge_on(ctx);
                }
            }
            Io::MergeWrite { .. } => {
                self.merging.on_written();
                self.merge_on(ctx);
            }
            Io::MergeSync => on_round_durable(ctx),
            io => panic!("{io:?} is not a command of a checkpoint"),
        }
    }

    /// Blocks are written to their slots. Those that were not overwritten since are read from there from now on.
    fn on_home_written(&mut self, places: BlockRange, ctx: &mut Ctx) {
        self.in_flight -= 1;
        let written = self.homing.remove(&places.start).expect("it was sent");
        for HomeBlock { object, block, dirty } in written {
            let key = (object, block);
            if ctx.state.dirty.get(&key).is_some_and(|held| held.by.transaction == dirty.by.transaction) {
                ctx.state.dirty.remove(&key);
            }
        }
    }

    /// A sync or a copy of the superblock is written: the next phase begins.
    fn on_step(&mut self, ctx: &mut Ctx) {
        match self.phase {
            Phase::SyncingHome => {
                self.phase = Phase::Merging;
                self.merging.begin();
                self.merge_on(ctx);
            }
            Phase::SyncingPages(0) => self.begin_pages(1, ctx),
            Phase::SyncingPages(_) => self.write_superblock(0, ctx),
            Phase::Superblock(0) => self.write_superblock(1, ctx),
            Phase::Superblock(_) => self.end(ctx.state, ctx.journal),
            phase => panic!("no command ends in {phase:?}"),
        }
    }

    /// Continues merging by one small step. When all frozen changes are merged, the next phase begins.
    pub fn merge_on(&mut self, ctx: &mut Ctx) {
        if !self.merging.advance(ctx) {
            return;
        }
        assert_eq!(self.phase, Phase::Merging);
        if ctx.state.map.frozen_run(0, 1).is_some() {
            self.begin_pages(0, ctx);
        } else {
            self.write_superblock(0, ctx);
        }
    }

    /// The roots of the object index are durable.
    pub fn on_roots_durable(&mut self, ctx: &mut Ctx) {
        self.merging.on_roots_durable();
        self.merge_on(ctx);
    }

    /// True if merging waits for free slots.
    pub fn wants_slots(&self) -> bool {
        self.merging.wants_slots
    }

    /// True if merging has more to do at once.
    pub fn goes_on(&self) -> bool {
        self.merging.goes_on
    }

    fn begin_pages(&mut self, copy: u32, ctx: &mut Ctx) {
        self.phase = Phase::Pages(copy);
        self.next_page = 0;
        self.send_pages(ctx);
    }

    fn send_pages(&mut self, ctx: &mut Ctx) {
        let Phase::Pages(copy) = self.phase else { panic!("pages are written in their phase") };
        while self.in_flight < IN_FLIGHT_MAX
            && let Some((first, count)) = ctx.state.map.frozen_run(self.next_page, RUN_PAGES_MAX)
        {
            self.next_page = first + count;
            self.in_flight += 1;
            let buffer = ctx.state.map.encode(first, count, self.superblock.checkpoint + 1).freeze();
            let offset = self.superblock.geometry.page_offset(copy, first);
            let command = DiskCommand::Write { offset, data: vec![buffer], durable: false };
            ctx.disk.submit(Io::CheckpointPages, command, ctx.out);
        }
        if self.in_flight == 0 {
            self.phase = Phase::SyncingPages(copy);
            ctx.disk.submit(Io::CheckpointStep, DiskCommand::Sync, ctx.out);
        }
    }

    /// Some map pages are written.
    fn on_pages(&mut self, ctx: &mut Ctx) {
        self.in_flight -= 1;
        self.send_pages(ctx);
    }

    fn write_superblock(&mut self, copy: u32, ctx: &mut Ctx) {
        self.phase = Phase::Superblock(copy);
        let data = vec![self.next_superblock(ctx.journal).encode()];
        let offset = u64::from(copy) * PAGE as u64;
        ctx.disk.submit(Io::CheckpointStep, DiskCommand::Write { offset, data, durable: true }, ctx.out);
    }

    fn next_superblock(&self, journal: &Journal) -> Superblock {
        let (tail_offset, tail_sequence) = journal.snapshot_start();
        let (checkpoint, level) = (self.superblock.checkpoint + 1, self.written_level);
        Superblock { checkpoint, level, tail_offset, tail_sequence, ..self.superblock }
    }

    fn end(&mut self, state: &mut State, journal: &mut Journal) {
        self.superblock = self.next_superblock(journal);
        journal.advance_tail();
        state.map.thaw();
        self.phase = Phase::Idle;
        self.counters.checkpoints += 1;
    }
}

/// The dirty blocks, by the place where they belong.
fn homeless(state: &State) -> BTreeMap<u64, HomeBlock> {
    let home = |((object, block), dirty): (&(ObjectId, u64), &DirtyBlock)| {
        let slot = state.chunk(*object, (block / CHUNK_BLOCKS) as u32).slot;
        let slot = slot.expect("recovery and commits give a slot to every chunk that has content");
        let home = HomeBlock { object: *object, block: *block, dirty: dirty.clone() };
        (u64::from(slot) * CHUNK_BLOCKS + block % CHUNK_BLOCKS, home)
    };
    state.dirty.iter().map(home).collect()
}

fn snapshot(state: &State) -> VecDeque<Carried<Queued>> {
    let objects = state.objects.iter().map(|object| Record::Object(object.clone()));
    let decided = state.transactions.decisions().map(|decision| Record::Decided(decision.clone()));
    let bad = (!state.bad.is_empty()).then(|| Record::Retired(state.bad.iter().copied().collect()));
    let single = [Some(Record::Stamps(state.stamps_reserved)), state.membership_record(), bad];
    let extents = state.missed.records().chain(state.absent.records());
    let mut carried = VecDeque::new();
    let mut notes = Vec::new();
    let roots = state.object_index.roots();
    let answers = state
        .answers
        .records(CARRIED_BYTES)
        .map(Record::from)
        .chain((!roots.is_empty()).then_some(Record::Rooted(roots)));
    for record in single.into_iter().flatten().chain(objects).chain(decided).chain(extents).chain(answers) {
        record.encode(&mut notes);
        if notes.len() >= CARRIED_BYTES {
            carried.push_back(Carried::Notes(std::mem::take(&mut notes)));
        }
    }
    carried.push_back(Carried::Notes(notes));
    let queued = |intent: &IntentRecord| Carried::Entry(Queued { intent: intent.clone(), applied: false });
    carried.extend(state.transactions.intents().map(queued));
    carried
}
