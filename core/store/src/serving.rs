//! A store in service: routes what comes from the device and from the disk to the queue that it is for, and tells the others what follows.
//!
//! ```text
//!             ┌─ write queue ──┐
//!   device ───┼─ request queue ┼──► journal ──► batch durable: answers, released slots, snapshot, roots
//!             └─ read queue    │       ▲
//!                compaction ───┘       └── snapshot, roots
//!                     all of them ──► disk queue ──► disk
//! ```

use crate::block::places_of;
use crate::compaction::Compaction;
use crate::disk_queue::{DiskQueue, Io, slots_of};
use crate::read_queue::ReadQueue;
use crate::record::IntentRecord;
use crate::request_queue::RequestQueue;
use crate::slots::Slots;
use crate::state::State;
use crate::superblock::Superblock;
use crate::view::{Due, Journal, Outbox, Shared, View};
use crate::write_queue::{WriteQueue, on_intent_durable};
use braid_base::{BlockRange, DeviceId, Generation, Membership, Now, ObjectId, Time, TransactionId};
use braid_journal::Flight;
use braid_machine::{DiskResult, DiskTag, Effects};

/// See the module.
#[derive(Debug)]
pub(crate) struct Serving {
    pub shared: Shared,
    reads: ReadQueue,
    writes: WriteQueue,
    requests: RequestQueue,
    compaction: Compaction,
}

impl Serving {
    /// Takes over from recovery, which may have found a checkpoint to be ended.
    pub fn new(superblock: Superblock, mut state: State, journal: Journal, next_tag: u64, resumes: bool) -> Serving {
        let slots = Slots::new(superblock.geometry.slots, state.used_slots());
        let mut compaction = Compaction::new(superblock);
        if resumes {
            compaction.resume(&mut state);
        }
        let disk = DiskQueue::new(superblock.geometry, next_tag);
        let shared = Shared { state, slots, journal, disk, outbox: Outbox::default(), now: Time::default() };
        let (reads, writes, requests) = (ReadQueue::default(), WriteQueue::default(), RequestQueue::default());
        Serving { shared, reads, writes, requests, compaction }
    }

    /// Lets the clock run.
    pub fn observe(&mut self, now: Now) {
        self.shared.now = now.time;
    }

    /// What all queues share, to somebody who is none of them.
    pub fn view<'a>(&'a mut self, out: &'a mut Effects) -> View<'a> {
        let somebody_waits = self.writes.waiting() > 0 || !self.requests.is_empty();
        self.shared.view(out, somebody_waits)
    }

    /// The write queue, and what it shares.
    pub fn writes<'a>(&'a mut self, out: &'a mut Effects) -> (&'a mut WriteQueue, View<'a>) {
        (&mut self.writes, self.shared.view(out, !self.requests.is_empty()))
    }

    /// The request queue, and what it shares.
    pub fn requests<'a>(&'a mut self, out: &'a mut Effects) -> (&'a mut RequestQueue, View<'a>) {
        (&mut self.requests, self.shared.view(out, self.writes.waiting() > 0))
    }

    /// The read queue, and what it shares.
    pub fn reads<'a>(&'a mut self, out: &'a mut Effects) -> (&'a mut ReadQueue, View<'a>) {
        (&mut self.reads, self.shared.view(out, false))
    }

    fn compaction<'a>(&'a mut self, out: &'a mut Effects) -> (&'a mut Compaction, View<'a>) {
        (&mut self.compaction, self.shared.view(out, false))
    }

    /// Does whatever can be done; `awake` if the clock has been looked at for that.
    pub fn advance(&mut self, awake: bool, out: &mut Effects) {
        if self.shared.outbox.is_broken {
            return;
        }
        self.requests.observe(self.shared.now);
        let (writes, mut view) = self.writes(out);
        writes.admit(&mut view);
        let (requests, mut view) = self.requests(out);
        requests.advance(&mut view);
        let (compaction, mut view) = self.compaction(out);
        if compaction.begin_if_due(&mut view) {
            self.requests.on_snapshot();
        }
        let (compaction, mut view) = self.compaction(out);
        compaction.send_home(&mut view);
        if awake || compaction.wants_slots() {
            compaction.merge_on(&mut view);
        }
        self.write_batch(out);
        self.view(out).extend_ahead();
    }

    /// When there is something to do though nothing else happens.
    pub fn deadline(&self) -> Option<Time> {
        let Shared { journal, outbox, now, .. } = &self.shared;
        if outbox.is_broken {
            return None;
        }
        if self.compaction.goes_on() {
            // At once, but others come in between.
            return Some(*now);
        }
        if journal.flight().is_some() {
            return None;
        }
        let deadlines = [journal.deadline(), self.writes.patience_ends(), self.requests.deadline(*now)];
        deadlines.into_iter().flatten().min()
    }

    /// See [`Storage::forget`](crate::Storage::forget).
    pub fn forget(&mut self, transaction: TransactionId) {
        self.requests.forget(transaction, &mut self.shared.state, &mut self.shared.journal);
    }

    /// See [`Storage::settle`](crate::Storage::settle).
    pub fn settle(&mut self, host: Generation, sequence: u64) {
        self.requests.settle(host, sequence, &mut self.shared.state, &mut self.shared.journal);
    }

    /// See [`Storage::adopt`](crate::Storage::adopt).
    pub fn adopt(&mut self, ticket: u64, membership: Membership, out: &mut Effects) {
        if self.view(out).adopt(ticket, membership) {
            self.requests.drop_fenced(&self.shared.state);
        }
    }

    /// See [`Storage::missed`](crate::Storage::missed).
    pub fn missed(&self, device: DeviceId, object: ObjectId, from: u64) -> (Vec<BlockRange>, Option<u64>) {
        self.shared.state.missed_by(device, object, from, self.on_their_way())
    }

    /// Writes that are not durable yet.
    fn on_their_way(&self) -> impl Iterator<Item = &IntentRecord> {
        self.writes.on_their_way().chain(self.shared.journal.on_their_way().map(|queued| &queued.intent))
    }

    pub fn on_disk_done(&mut self, now: Now, tag: DiskTag, result: DiskResult, out: &mut Effects) {
        self.observe(now);
        if self.shared.outbox.is_broken {
            return;
        }
        let Some(io) = self.shared.disk.take(tag, &result) else { return };
        let (done, bytes) = match result {
            DiskResult::Done(done) => (done, None),
            DiskResult::Read(Ok(bytes)) => (Ok(()), Some(bytes)),
            DiskResult::Read(Err(error)) => (Err(error), None),
        };
        if let (true, Err(error)) = (io.is_vital(), done) {
            return self.shared.outbox.give_up(error);
        }
        let places = io.places();
        match io {
            Io::Read { operation, part, places } => {
                let (reads, mut view) = self.reads(out);
                reads.on_read(operation, part, places, bytes, &mut view);
            }
            Io::Data { preparing, written } => {
                let (writes, mut view) = self.writes(out);
                writes.on_data_written(preparing, written, done, &mut view);
                self.release_slots();
            }
            Io::Leaf { place, again } => {
                let (requests, mut view) = self.requests(out);
                requests.on_leaf(place, again, bytes, &mut view);
            }
            Io::Reserve { frontier } => self.on_reserved(frontier, done.is_ok()),
            Io::Batch => self.on_batch_durable(out),
            io => {
                let (compaction, mut view) = self.compaction(out);
                compaction.on_done(io, bytes, &mut view);
            }
        }
        if let Some(places) = places {
            self.on_places_quiet(places, out);
        }
        self.advance(false, out);
    }

    fn on_reserved(&mut self, frontier: u32, is_done: bool) {
        self.shared.slots.on_reserved(frontier, is_done);
        if !is_done {
            self.writes.refusals += 1;
            self.requests.refusals += 1;
        }
    }

    fn write_batch(&mut self, out: &mut Effects) {
        let Shared { state, journal, disk, now, .. } = &mut self.shared;
        let is_quiet = journal.is_mark_due(*now) || self.requests.is_due(*now);
        if journal.flight().is_some() || !journal.is_due(*now) && !is_quiet {
            return;
        }
        if is_quiet {
            self.requests.log_what_is_over(state, journal);
        }
        if let Some(batch) = journal.assemble() {
            disk.write_batch(batch, out);
        }
    }

    fn on_batch_durable(&mut self, out: &mut Effects) {
        let Shared { state, slots, journal, now, .. } = &mut self.shared;
        let Flight { entries, carried, then, ends_snapshot, .. } = journal.landed(*now);
        let Due { events, released, has_roots, .. } = then;
        for queued in carried {
            state.transactions.replace(queued.intent);
        }
        slots.released.extend(released);
        for queued in entries {
            let event = on_intent_durable(queued, &mut self.view(out));
            self.shared.outbox.events.push_back(event);
        }
        self.shared.outbox.events.extend(events);
        self.release_slots();
        let (compaction, mut view) = self.compaction(out);
        if ends_snapshot {
            compaction.on_snapshot_durable(&mut view);
        }
        if has_roots {
            compaction.on_roots_durable(&mut view);
        }
    }

    /// Gives slots back that are nobody's any more, as soon as nothing is in flight to them.
    fn release_slots(&mut self) {
        let Shared { slots, disk, .. } = &mut self.shared;
        while let Some(slot) = slots.released.pop() {
            self.compaction.drop_slot(slot);
            slots.release(slot, disk.is_busy(places_of(slot)));
        }
    }

    /// A command to these places has ended: others may have waited for that.
    fn on_places_quiet(&mut self, places: BlockRange, out: &mut Effects) {
        let Shared { slots, disk, .. } = &mut self.shared;
        slots.settle(slots_of(places), |slot| disk.is_busy(places_of(slot)));
        let (compaction, mut view) = self.compaction(out);
        compaction.send_home(&mut view);
    }

    /// Names and values, in a fixed order.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let Shared { state, slots, journal, disk, .. } = &self.shared;
        let catalogue = state.catalogue.statistics();
        let mut counters = disk.counters.list().to_vec();
        counters.extend([
            ("bytes_accepted", self.writes.counters.bytes_accepted),
            ("journal_batches", disk.counters.batches),
            ("journal_bytes", disk.counters.journal_bytes),
            ("journal_blocks", disk.counters.journal_blocks),
            ("chunks_written", self.writes.counters.chunks_written),
            ("blocks_homed", self.compaction.counters.blocks_homed),
            ("checkpoints", self.compaction.counters.checkpoints),
            ("object_requests", self.requests.done),
            ("keys_swept", self.requests.sweeping.keys_swept),
            ("catalogue_leaves", catalogue.leaves),
            ("catalogue_nodes", catalogue.nodes),
            ("catalogue_changes", catalogue.pending),
            ("catalogue_bytes_cached", catalogue.bytes_cached),
            ("leaves_read", catalogue.leaves_read),
            ("leaves_written", catalogue.leaves_written),
            ("leaves_damaged", catalogue.leaves_damaged),
            ("journal_bytes_used", journal.used()),
            ("intents_undecided", state.transactions.undecided() as u64),
            ("answers_kept", state.answers.count() as u64),
            ("commits_remembered", state.transactions.remembered() as u64),
            ("extents_missed", state.missed.len() as u64),
            ("blocks_absent", state.absent.blocks()),
            ("blocks_in_journal", state.resident.len() as u64),
            ("writes_waiting", self.writes.waiting() as u64),
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
        self.requests.invariants();
        let held = state.held_slots() + u64::from(slots.free());
        assert!(held <= u64::from(slots.frontier()), "a slot is used or free, not both");
        assert!(slots.frontier() <= slots.total());
        assert!(slots.released.is_empty(), "what is nobody's was given back");
        assert!(state.is_whole_if_in(), "what is in has nothing absent");
    }

    /// Asserts that every slot is accounted for, once. Takes as long as the device is large: for tests.
    pub fn audit(&self) {
        let Shared { state, slots, journal, .. } = &self.shared;
        let mut owners = vec![0u32; slots.frontier() as usize];
        let queued = journal.on_their_way().flat_map(|queued| queued.intent.slots());
        let due = journal.flight().into_iter().flat_map(|flight| &flight.then.released).chain(&journal.then.released);
        let held = state.used_slots().chain(self.writes.slots()).chain(queued).chain(due.copied());
        for slot in held.chain(slots.unused()) {
            owners[slot as usize] += 1;
        }
        for (slot, owners) in owners.iter().enumerate() {
            assert_eq!(*owners, 1, "slot {slot} has {owners} owners");
        }
    }
}
