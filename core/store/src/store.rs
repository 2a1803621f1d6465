//! The implementation of [`Storage`] on a disk.

use crate::block::CHUNK_BLOCKS;
use crate::crash_recovery::{Progress, Recovery};
use crate::ctx::Ctx;
use crate::free_slots::failing_from;
use crate::serving::{Queues, Serving};
use crate::state::State;
use crate::storage::Storage;
use crate::superblock::{Geometry, PAGE, Superblock};
use crate::{Intent, Logged, Medium, OnBehalf, StoreConfig, StoreError, StoreEvent};
use braid_base::limits::Settings;
use braid_base::{
    AlignedBuffer, BlockRange, DeviceId, DiskId, Generation, Level, Membership, Now, ObjectId, Time, TransactionId,
};
use braid_blocks::{Piece, Want};
use braid_journal::{Known, SECTOR, first_batch};
use braid_machine::{DiskResult, DiskTag, Effects};
use braid_objects::Procedure;
use braid_wire::{ObjectAnswer, ObjectDescription, ObjectFailure, ObjectRefusal, ObjectRequest, decode_answer};
use bytes::Bytes;
use std::collections::VecDeque;

/// Bytes that one write of a format zeroes.
const WIPE_BYTES: usize = 1 << 20;

/// A device's store. Requests are answered by events ([`Store::pop_event`]); until [`StoreEvent::Ready`], and after
/// [`StoreEvent::Unusable`], they are ignored.
#[derive(Clone, Debug)]
pub struct Store {
    config: StoreConfig,
    object_memory: u64,
    requests_apart: bool,
    medium: Medium,
    phase: Phase,
    /// Events of phases that have no outbox of their own.
    events: VecDeque<StoreEvent>,
}

#[derive(Clone, Debug)]
enum Phase {
    New,
    Recovering(Box<Recovery>),
    Serving(Box<Serving>),
    Unusable,
}

impl Store {
    /// The writes that make the device an empty store: in any order, followed by a sync. The journal's length follows from the size.
    /// `disk` and `nonce` are drawn at random by the caller. The nonce must stay unknown to everything that writes blocks: see
    /// [`Superblock::nonce`].
    pub fn format(config: &StoreConfig, disk: DiskId, nonce: u64) -> Result<Vec<(u64, Bytes)>, StoreError> {
        Store::format_with(config, disk, nonce, None)
    }

    /// Like [`Store::format`], with a journal of `journal` bytes.
    pub fn format_with(
        config: &StoreConfig,
        disk: DiskId,
        nonce: u64,
        journal: Option<u64>,
    ) -> Result<Vec<(u64, Bytes)>, StoreError> {
        let geometry = Geometry::new(config.size, journal)?;
        let superblock = Superblock {
            array: config.array,
            device: config.device,
            geometry,
            checkpoint: 1,
            tail_offset: 0,
            tail_sequence: 1,
            nonce,
            disk,
            level: Level::FIRST,
        };
        // The map need not be wiped: an object's pages are written before they are read. The journal must be, because batches of an
        // earlier store could be taken for valid ones.
        let first = first_batch(superblock.seal());
        let zeros = AlignedBuffer::zeroed(WIPE_BYTES).freeze();
        let length = geometry.journal_length as usize;
        let mut writes: Vec<(u64, Bytes)> = (0..length)
            .step_by(WIPE_BYTES)
            .map(|at| (geometry.journal_offset + at as u64, zeros.slice(..WIPE_BYTES.min(length - at))))
            .collect();
        let mut start = AlignedBuffer::zeroed(writes[0].1.len());
        start[..first.len()].copy_from_slice(&first);
        writes[0].1 = start.freeze();
        let copy = superblock.encode();
        writes.push((0, copy.clone()));
        writes.push((PAGE as u64, copy));
        Ok(writes)
    }

    /// A store that has not been started.
    pub fn new(config: StoreConfig) -> Store {
        let object_memory = Settings::default().object_memory;
        let (medium, phase) = (Medium::default(), Phase::New);
        Store { config, object_memory, requests_apart: false, medium, phase, events: VecDeque::new() }
    }

    /// Sets the properties of the disk.
    pub fn on(self, medium: Medium) -> Store {
        let bytes = medium.physical_sector as usize;
        assert!(bytes.is_power_of_two() && (SECTOR..=PAGE).contains(&bytes), "{medium:?}");
        Store { medium, ..self }
    }

    /// Sets the most bytes of the object index to cache in memory.
    pub fn with_object_memory(self, object_memory: u64) -> Store {
        Store { object_memory, ..self }
    }

    /// The same store, which logs each request in a batch of its own.
    pub fn with_requests_apart(self) -> Store {
        Store { requests_apart: true, ..self }
    }

    /// Like [`Storage::execute`], with the effect that a procedure computes.
    pub fn run(
        &mut self,
        now: Now,
        name: TransactionId,
        settled: u64,
        procedure: Box<dyn Procedure>,
        out: &mut Effects,
    ) -> bool {
        self.act(Some(now), out, |queues, ctx| queues.requests.execute(name, settled, Vec::new(), procedure, ctx))
    }

    /// The hosts that have not acknowledged all answers.
    pub fn hosts_with_answers(&self) -> impl Iterator<Item = Generation> + '_ {
        self.state().into_iter().flat_map(|state| state.answers.hosts_with_answers())
    }

    /// True if [`Storage::forget`] of an answer to this host ends only that request.
    pub fn forgets_apart(&self, host: Generation) -> bool {
        self.state().is_some_and(|state| state.answers.can_end_apart(host))
    }

    /// Like [`Storage::read_objects`], with a procedure that changes nothing.
    pub fn read_durable(&mut self, now: Now, ticket: u64, procedure: Box<dyn Procedure>, out: &mut Effects) {
        self.act(Some(now), out, |queues, ctx| queues.requests.read_durable(ticket, procedure, ctx));
    }

    /// Like [`Store::read_durable`], but the answer may come before what it shows is durable. Nobody outside must see it.
    pub fn read_uncommitted(&mut self, now: Now, ticket: u64, procedure: Box<dyn Procedure>, out: &mut Effects) {
        self.act(Some(now), out, |queues, ctx| queues.requests.read_uncommitted(ticket, procedure, ctx));
    }

    /// Like [`Store::run`], for a procedure of the owner of the store that must take effect in its turn: it is not refused for lack of
    /// room or time, and waits instead; so does everything behind it. `own` is the owner's name for it, which the event has. If it changes
    /// anything, the answers `on_behalf` are kept with its changes, all or none: but for hosts that are fenced, or do not wait for them any
    /// more. False if the owner is fenced.
    pub fn run_mandatory(
        &mut self,
        now: Now,
        own: TransactionId,
        on_behalf: Vec<OnBehalf>,
        procedure: Box<dyn Procedure>,
        out: &mut Effects,
    ) -> bool {
        self.act(Some(now), out, |queues, ctx| queues.requests.run_mandatory(own, on_behalf, procedure, ctx))
    }

    /// True if the request waits to be executed, was executed, or is over.
    pub fn knows(&self, name: TransactionId) -> bool {
        let waits = |serving: &Serving| serving.queues.requests.waits(name);
        self.serving().is_some_and(waits) || self.state().is_some_and(|state| state.answers.get(name) != Known::No)
    }

    /// Blocks that more objects may have.
    pub fn free_blocks(&self) -> u64 {
        self.serving().map_or(0, |serving| serving.shared.state.free_blocks())
    }

    /// Blocks into which the index of objects may grow when all changes so far are merged, estimated by the bytes of the changes.
    /// `free_blocks` reckons with the worst case, which is far less while there are many changes.
    pub fn free_index_blocks(&self) -> u64 {
        self.serving().map_or(0, |serving| serving.shared.state.free_index_blocks())
    }

    /// Blocks that all objects, and the index of objects, may have together.
    pub fn blocks(&self) -> u64 {
        self.serving().map_or(0, |serving| u64::from(serving.shared.slots.total()) * CHUNK_BLOCKS)
    }

    /// Asserts that every slot has exactly one owner. Takes time in proportion to the size of the device.
    pub fn audit(&self) {
        if let Some(serving) = self.serving() {
            serving.audit();
        }
    }

    fn serving(&self) -> Option<&Serving> {
        match &self.phase {
            Phase::Serving(serving) => Some(serving),
            _ => None,
        }
    }

    fn state(&self) -> Option<&State> {
        self.serving().map(|serving| &serving.shared.state)
    }

    fn with(&mut self, act: impl FnOnce(&mut Serving)) {
        if let Phase::Serving(serving) = &mut self.phase {
            act(serving);
        }
    }

    /// Lets a queue act; then all queues do whatever can be done.
    fn act<R: Default>(
        &mut self,
        now: Option<Now>,
        out: &mut Effects,
        act: impl FnOnce(&mut Queues, &mut Ctx) -> R,
    ) -> R {
        let Phase::Serving(serving) = &mut self.phase else { return R::default() };
        if let Some(now) = now {
            serving.observe(now);
        }
        serving.with_all(out, act)
    }

    fn note(&mut self, now: Option<Now>, out: &mut Effects, act: impl FnOnce(&mut Ctx)) {
        self.act(now, out, |queues, ctx| queues.note(ctx, act));
    }
}

impl Storage for Store {
    fn start(&mut self, out: &mut Effects) {
        assert!(matches!(self.phase, Phase::New), "a store starts once");
        self.phase = Phase::Recovering(Box::new(Recovery::start(self.config, self.object_memory, self.medium, out)));
    }

    fn on_disk_done(&mut self, now: Now, tag: DiskTag, result: DiskResult, out: &mut Effects) {
        match &mut self.phase {
            Phase::Serving(serving) => serving.on_disk_done(now, tag, result, out),
            Phase::Recovering(recovery) => match recovery.on_disk_done(tag, result, out) {
                Progress::Goes => {}
                Progress::Ready(mut serving, disk) => {
                    self.events.push_back(StoreEvent::Ready(serving.shared.state.recovered(disk)));
                    serving.queues.requests.apart = self.requests_apart;
                    serving.wake(now, out);
                    self.phase = Phase::Serving(serving);
                }
                Progress::Failed(error) => {
                    self.events.push_back(StoreEvent::Unusable(error));
                    self.phase = Phase::Unusable;
                }
            },
            Phase::New | Phase::Unusable => {}
        }
    }

    fn wake(&mut self, now: Now, out: &mut Effects) {
        self.with(|serving| serving.wake(now, out));
    }

    fn deadline(&self) -> Option<Time> {
        self.serving().and_then(Serving::deadline)
    }

    fn pop_event(&mut self) -> Option<StoreEvent> {
        self.events.pop_front().or_else(|| match &mut self.phase {
            Phase::Serving(serving) => serving.shared.outbox.events.pop_front(),
            _ => None,
        })
    }

    fn object(&self, object: ObjectId) -> Option<&ObjectDescription> {
        self.state()?.objects.get(object).map(|record| &record.description)
    }

    fn objects(&self) -> Vec<ObjectDescription> {
        let objects = self.state().into_iter().flat_map(|state| state.objects.iter());
        objects.map(|record| record.description).collect()
    }

    fn read_as(&mut self, want: Want, ticket: u64, object: ObjectId, extents: &[BlockRange], out: &mut Effects) {
        self.with(|serving| serving.with(out, |queues, ctx| queues.reads.read(ticket, object, extents, want, ctx)));
    }

    fn allocation(&self, object: ObjectId, extents: &[BlockRange]) -> Vec<Piece> {
        self.state().map_or(Vec::new(), |state| state.allocation(object, extents))
    }

    fn prepare(&mut self, now: Now, intent: Intent, out: &mut Effects) {
        self.act(Some(now), out, |queues, ctx| queues.writes.write(intent, false, ctx));
    }

    fn apply(&mut self, now: Now, intent: Intent, out: &mut Effects) {
        self.act(Some(now), out, |queues, ctx| queues.writes.write(intent, true, ctx));
    }

    fn commit(&mut self, now: Now, transaction: TransactionId, out: &mut Effects) {
        self.note(Some(now), out, |ctx| ctx.commit(transaction));
    }

    fn abort(&mut self, now: Now, transaction: TransactionId, out: &mut Effects) {
        self.note(Some(now), out, |ctx| ctx.abort(transaction));
    }

    fn forget(&mut self, transaction: TransactionId) {
        self.with(|serving| serving.forget(transaction));
    }

    fn nobody_misses(&mut self, transaction: TransactionId) {
        self.with(|serving| serving.nobody_misses(transaction));
    }

    fn settle(&mut self, host: Generation, sequence: u64) {
        self.with(|serving| serving.settle(host, sequence));
    }

    fn ended(&self, name: TransactionId) -> Option<ObjectAnswer> {
        match self.state()?.answers.get(name) {
            Known::No => None,
            Known::Answer(answer) => decode_answer(&answer).ok(),
            // Its host does not wait for it.
            Known::Over => Some(Err(ObjectRefusal { command: 0, failure: ObjectFailure::Busy })),
        }
    }

    fn log(&mut self, ticket: u64, change: Logged, out: &mut Effects) {
        self.note(None, out, |ctx| ctx.log(ticket, change));
    }

    fn execute(
        &mut self,
        now: Now,
        name: TransactionId,
        settled: u64,
        abandoned: Vec<(u64, u64)>,
        request: ObjectRequest,
        out: &mut Effects,
    ) -> bool {
        self.act(Some(now), out, |queues, ctx| {
            queues.requests.execute(name, settled, abandoned, Box::new(request), ctx)
        })
    }

    fn read_objects(&mut self, now: Now, ticket: u64, request: ObjectRequest, out: &mut Effects) {
        self.act(Some(now), out, |queues, ctx| queues.requests.read_durable(ticket, Box::new(request), ctx));
    }

    fn adopt(&mut self, ticket: u64, membership: Membership, out: &mut Effects) {
        self.act(None, out, |queues, ctx| queues.adopt(ticket, membership, ctx));
    }

    fn membership(&self) -> Option<&Membership> {
        self.state()?.presence.membership.as_ref()
    }

    fn missed(&self, device: DeviceId, object: ObjectId, from: u64) -> (Vec<BlockRange>, Option<u64>) {
        self.serving().map_or((Vec::new(), None), |serving| serving.missed(device, object, from))
    }

    fn absent_blocks(&self) -> u64 {
        self.state().map_or(0, |state| state.absent.blocks())
    }

    fn absent(&self, object: ObjectId, from: u64) -> (Vec<BlockRange>, Option<u64>) {
        self.state().map_or((Vec::new(), None), |state| state.absent_of(object, from))
    }

    fn allocated(&self, object: ObjectId, range: BlockRange) -> (Vec<BlockRange>, Option<u64>) {
        self.state().map_or((Vec::new(), None), |state| state.allocated(object, range))
    }

    fn raise_level(&mut self, level: Level, out: &mut Effects) {
        if level > self.durable_level() {
            self.act(None, out, |queues, _| queues.raise_level(level));
        }
    }

    fn durable_level(&self) -> Level {
        self.serving().map_or(Level::FIRST, Serving::durable_level)
    }

    fn bad_slots(&self) -> (u32, bool) {
        self.serving().map_or((0, false), |serving| {
            let bad = serving.shared.state.bad.len() as u32;
            (bad, bad >= failing_from(serving.shared.slots.total()))
        })
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.serving().map_or(Vec::new(), Serving::counters)
    }

    fn invariants(&self) {
        if let Some(serving) = self.serving() {
            serving.invariants();
        }
    }
}
