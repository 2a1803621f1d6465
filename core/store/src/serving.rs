//! A store in service: it passes each call of the device and each completion of the disk to its queue, and informs the other queues of the
//! consequences.
//!
//! ```text
//!             ┌─ write queue ──┐
//!   device ───┼─ request queue ┼──► journal ──► batch durable: answers, released slots, snapshot, roots
//!             └─ read queue    │       ▲
//!                compaction ───┘       └── snapshot, roots
//!                     all of them ──► disk queue ──► disk
//! ```

use crate::block::places_of;
use crate::checkpoint::Compaction;
use crate::ctx::{Ctx, Due, Journal, Outbox, Shared};
use crate::disk_queue::{DiskQueue, Io, slots_of};
use crate::free_slots::Slots;
use crate::journal_format::Record;
use crate::read_queue::ReadQueue;
use crate::request_queue::RequestQueue;
use crate::state::State;
use crate::superblock::Superblock;
use crate::write_queue::{WriteQueue, on_intent_durable};
use braid_base::{BlockRange, DeviceId, Generation, Level, Membership, Now, ObjectId, Time, TransactionId};
use braid_journal::Flight;
use braid_machine::{DiskError, DiskResult, DiskTag, Effects};
use bytes::Bytes;

#[derive(Clone, Debug)]
pub(crate) struct Serving {
    pub shared: Shared,
    pub queues: Queues,
}

/// The queues. A queue is lent what all of them share, and sees nothing of the others.
#[derive(Clone, Debug)]
pub(crate) struct Queues {
    pub reads: ReadQueue,
    pub writes: WriteQueue,
    pub requests: RequestQueue,
    compaction: Compaction,
}

impl Serving {
    /// Takes over from recovery. `resumes`: recovery found a checkpoint that did not end.
    pub fn new(
        superblock: Superblock,
        mut state: State,
        slots: Slots,
        journal: Journal,
        next_tag: u64,
        resumes: bool,
    ) -> Serving {
        let mut compaction = Compaction::new(superblock);
        if resumes {
            compaction.resume(&mut state);
        }
        let disk = DiskQueue::new(superblock.geometry, next_tag);
        let shared = Shared { state, slots, journal, disk, outbox: Outbox::default(), now: Time::default() };
        let (reads, writes, requests) = (ReadQueue::default(), WriteQueue::default(), RequestQueue::default());
        Serving { shared, queues: Queues { reads, writes, requests, compaction } }
    }

    /// Sets the current time.
    pub fn observe(&mut self, now: Now) {
        self.shared.now = now.time;
    }

    /// Lets a queue act.
    pub fn with<R>(&mut self, out: &mut Effects, act: impl FnOnce(&mut Queues, &mut Ctx) -> R) -> R {
        act(&mut self.queues, &mut self.shared.ctx(out))
    }

    /// Lets a queue act; then all queues do whatever can be done.
    pub fn with_all<R>(&mut self, out: &mut Effects, act: impl FnOnce(&mut Queues, &mut Ctx) -> R) -> R {
        let mut ctx = self.shared.ctx(out);
        let result = act(&mut self.queues, &mut ctx);
        self.queues.advance(false, &mut ctx);
        result
    }

    /// A deadline has passed: all queues do whatever can be done.
    pub fn wake(&mut self, now: Now, out: &mut Effects) {
        self.observe(now);
        self.queues.advance(true, &mut self.shared.ctx(out));
    }

    /// When the store must be woken if nothing else happens.
    pub fn deadline(&self) -> Option<Time> {
        let Shared { journal, outbox, now, .. } = &self.shared;
        let Queues { writes, requests, compaction, .. } = &self.queues;
        if outbox.is_broken {
            return None;
        }
        if compaction.goes_on() {
            // At once, so that other inputs come in between.
            return Some(*now);
        }
        if journal.flight().is_some() {
            return None;
        }
        let deadlines = [journal.deadline(), writes.patience_ends(), requests.deadline(*now)];
        deadlines.into_iter().flatten().min()
    }

    /// See [`Storage::durable_level`](crate::Storage::durable_level).
    pub fn durable_level(&self) -> Level {
        self.queues.compaction.durable_level()
    }

    /// See [`Storage::forget`](crate::Storage::forget).
    pub fn forget(&mut self, transaction: TransactionId) {
        self.queues.requests.forget(transaction, &mut self.shared.state, &mut self.shared.journal);
    }

    /// See [`Storage::nobody_misses`](crate::Storage::nobody_misses).
    pub fn nobody_misses(&mut self, transaction: TransactionId) {
        if let Some(decision) = self.shared.state.nobody_misses(transaction) {
            self.shared.journal.hint(&Record::Decided(decision.clone()));
        }
    }

    /// See [`Storage::settle`](crate::Storage::settle).
    pub fn settle(&mut self, host: Generation, sequence: u64) {
        self.queues.requests.settle(host, sequence, &mut self.shared.state, &mut self.shared.journal);
    }

    /// See [`Storage::missed`](crate::Storage::missed).
    pub fn missed(&self, device: DeviceId, object: ObjectId, from: u64) -> (Vec<BlockRange>, Option<u64>) {
        let Shared { state, journal, .. } = &self.shared;
        let on_their_way = self.queues.writes.on_their_way().chain(journal.on_their_way().map(|queued| &queued.intent));
        state.missed_by(device, object, from, on_their_way)
    }

    pub fn on_disk_done(&mut self, now: Now, tag: DiskTag, result: DiskResult, out: &mut Effects) {
        self.observe(now);
        if self.shared.outbox.is_broken {
            return;
        }
        let Some((io, places)) = self.shared.disk.take(tag, &result) else { return };
        let (done, bytes) = match result {
            DiskResult::Done(done) => (done, None),
            DiskResult::Read(Ok(bytes)) => (Ok(()), Some(bytes)),
            DiskResult::Read(Err(error)) => (Err(error), None),
        };
        if let Err(error) = done
            && io.is_vital()
        {
            return self.shared.outbox.give_up(error);
        }
        let (queues, mut ctx) = (&mut self.queues, self.shared.ctx(out));
        queues.on_done(io, done, bytes, &mut ctx);
        if let Some(places) = places {
            queues.on_places_quiet(places, &mut ctx);
        }
        queues.advance(false, &mut ctx);
    }

    /// The store's counters with their names, in a fixed order.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let Shared { state, slots, journal, disk, .. } = &self.shared;
        let object_index = state.object_index.statistics();
        let mut counters = disk.counters.list().to_vec();
        counters.extend([
            ("bytes_accepted", self.queues.writes.counters.bytes_accepted),
            ("journal_batches", disk.counters.batches),
            ("journal_bytes", disk.counters.journal_bytes),
            ("journal_blocks", disk.counters.journal_blocks),
            ("chunks_written", self.queues.writes.counters.chunks_written),
            ("blocks_homed", self.queues.compaction.counters.blocks_homed),
            ("checkpoints", self.queues.compaction.counters.checkpoints),
            ("object_requests", self.queues.requests.done),
            ("keys_collected", self.queues.requests.object_gc.keys_collected),
            ("index_leaves", object_index.leaves),
            ("index_nodes", object_index.nodes),
            ("index_changes", object_index.pending),
            ("index_bytes_cached", object_index.bytes_cached),
            ("leaves_read", object_index.leaves_read),
            ("leaves_written", object_index.leaves_written),
            ("leaves_damaged", object_index.leaves_damaged),
            ("journal_bytes_used", journal.used()),
            ("journal_capacity", journal.capacity()),
            ("intents_undecided", state.transactions.undecided() as u64),
            ("answers_kept", state.answers.count() as u64),
            ("commits_remembered", state.transactions.remembered() as u64),
            ("extents_missed", state.missed.len() as u64),
            ("blocks_absent", state.absent.blocks()),
            ("blocks_corrupt", self.queues.reads.blocks_corrupt()),
            ("blocks_in_journal", state.dirty.len() as u64),
            ("writes_waiting", self.queues.writes.waiting() as u64),
            ("slots", u64::from(slots.total())),
            ("slots_set_aside", u64::from(slots.frontier())),
            ("slots_free", u64::from(slots.free())),
            ("slots_bad", state.bad.len() as u64),
            ("slots_mapped", u64::from(state.map.mapped())),
            ("blocks_unclaimed", state.free_blocks()),
        ]);
        counters
    }

    /// Asserts what must hold between steps.
    pub fn invariants(&self) {
        let Shared { state, slots, journal, .. } = &self.shared;
        journal.invariants();
        self.queues.requests.invariants();
        let held = state.held_slots() + u64::from(slots.free());
        assert!(held <= u64::from(slots.frontier()), "a slot is used or free, not both");
        assert!(slots.frontier() <= slots.total());
        assert!(slots.released.is_empty(), "released slots were given back");
    }

    /// Asserts that every slot has exactly one owner. Takes time in proportion to the size of the device: for tests.
    pub fn audit(&self) {
        let Shared { state, slots, journal, .. } = &self.shared;
        let mut owners = vec![0u32; slots.frontier() as usize];
        let queued = journal.on_their_way().flat_map(|queued| queued.intent.slots());
        let due = journal.flight().into_iter().flat_map(|flight| &flight.then.released).chain(&journal.then.released);
        let held = state.used_slots().chain(self.queues.writes.slots()).chain(queued).chain(due.copied());
        for slot in held.chain(slots.unused()) {
            owners[slot as usize] += 1;
        }
        for (slot, owners) in owners.iter().enumerate() {
            assert_eq!(*owners, 1, "slot {slot} has {owners} owners");
        }
    }
}

impl Queues {
    pub fn raise_level(&mut self, level: Level) {
        self.compaction.raise_level(level);
    }

    /// Lets all queues do whatever can be done. `awake`: the store was woken, so that merging may do a step.
    fn advance(&mut self, awake: bool, ctx: &mut Ctx) {
        if ctx.outbox.is_broken {
            return;
        }
        let Queues { writes, requests, compaction, .. } = self;
        requests.observe(ctx.now);
        ctx.others_wait = !requests.is_empty();
        writes.admit(ctx);
        ctx.others_wait = writes.waiting() > 0;
        requests.advance(ctx);
        if compaction.begin_if_due(ctx) {
            requests.on_snapshot();
        }
        compaction.send_home(ctx);
        if awake || compaction.wants_slots() {
            compaction.merge_on(ctx);
        }
        self.write_batch(ctx);
        ctx.extend_ahead();
    }

    /// Logs something that belongs to none of the queues.
    pub fn note(&mut self, ctx: &mut Ctx, act: impl FnOnce(&mut Ctx)) {
        ctx.others_wait = self.writes.waiting() > 0 || !self.requests.is_empty();
        act(ctx);
    }

    /// See [`Storage::adopt`](crate::Storage::adopt).
    pub fn adopt(&mut self, ticket: u64, membership: Membership, ctx: &mut Ctx) {
        if ctx.adopt(ticket, membership) {
            self.requests.drop_fenced(ctx.state);
        }
    }

    /// A disk command has ended.
    fn on_done(&mut self, io: Io, done: Result<(), DiskError>, bytes: Option<Bytes>, ctx: &mut Ctx) {
        match io {
            Io::Read { operation, part, places } => self.reads.on_read(operation, part, places, bytes, ctx),
            Io::Data { preparing, written } => {
                ctx.others_wait = !self.requests.is_empty();
                self.writes.on_data_written(preparing, written, done, ctx);
                self.release_slots(ctx);
            }
            Io::Leaf { place, again } => self.requests.on_leaf(place, again, bytes, ctx),
            Io::Reserve { frontier } => {
                ctx.slots.on_reserved(frontier, done.is_ok());
                self.writes.refusals += u32::from(done.is_err());
                self.requests.refusals += u32::from(done.is_err());
            }
            Io::Batch => self.on_batch_durable(ctx),
            io => self.compaction.on_done(io, bytes, ctx),
        }
    }

    /// A command to these places has ended; slots and dirty blocks may have waited for that.
    fn on_places_quiet(&mut self, places: BlockRange, ctx: &mut Ctx) {
        ctx.slots.free_completed(slots_of(places), |slot| ctx.disk.is_busy(places_of(slot)));
        self.compaction.send_home(ctx);
    }

    fn write_batch(&mut self, ctx: &mut Ctx) {
        let Ctx { journal, now, .. } = ctx;
        let is_quiet = journal.is_mark_due(*now) || self.requests.is_due(*now);
        if journal.flight().is_some() || !journal.is_due(*now) && !is_quiet {
            return;
        }
        if !is_quiet && journal.is_blank() && journal.then.released.is_empty() {
            // Requests that wait for what is durable already need no batch. A batch for each of them could fill the journal during a checkpoint,
            // which then could not end.
            journal.skip_batch();
            ctx.outbox.events.extend(std::mem::take(&mut journal.then).events);
            return;
        }
        if is_quiet {
            self.requests.log_what_is_over(ctx.state, journal);
        }
        // Notes are written whether or not room was reserved for them. They must not take that of the roots, without which no checkpoint ends.
        let kept = if ctx.journal.then.has_roots { 0 } else { ctx.room_for_roots(ctx.state.merging_needs()) };
        if let Some(batch) = ctx.journal.assemble(kept) {
            ctx.disk.write_batch(batch, ctx.out);
        }
    }

    fn on_batch_durable(&mut self, ctx: &mut Ctx) {
        let Flight { entries, carried, then, ends_snapshot, .. } = ctx.journal.landed(ctx.now);
        let Due { events, released, has_roots, .. } = then;
        for queued in carried {
            ctx.state.transactions.replace(queued.intent);
        }
        ctx.slots.released.extend(released);
        for queued in entries {
            let event = on_intent_durable(queued, ctx);
            ctx.tell(event);
        }
        ctx.outbox.events.extend(events);
        self.release_slots(ctx);
        if ends_snapshot {
            self.compaction.on_snapshot_durable(ctx);
        }
        if has_roots {
            self.compaction.on_roots_durable(ctx);
        }
    }

    /// Frees the released slots, each as soon as no command to it is in flight.
    fn release_slots(&mut self, ctx: &mut Ctx) {
        while let Some(slot) = ctx.slots.released.pop() {
            self.compaction.drop_slot(slot);
            ctx.slots.release(slot, ctx.disk.is_busy(places_of(slot)));
        }
    }
}
