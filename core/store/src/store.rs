//! The store as its device sees it.

use crate::batch::{BatchHeader, seal_of};
use crate::block::SECTOR;
use crate::reading::Of;
use crate::recovery::{Progress, Recovery};
use crate::serving::Serving;
use crate::state::failing_from;
use crate::storage::Storage;
use crate::superblock::{Geometry, PAGE, Superblock};
use crate::{Intent, Medium, StoreConfig, StoreError, StoreEvent};
use braid_base::limits::Settings;
use braid_base::{
    AlignedBuffer, BlockRange, Clock, DeviceId, DiskId, Generation, Membership, Now, ObjectId, Time, TransactionId,
};
use braid_machine::{DiskResult, DiskTag, Effects};
use braid_wire::{ObjectDescription, ObjectRequest, Ordering, Piece};
use bytes::Bytes;
use std::collections::VecDeque;

/// Bytes that one write of a format zeroes.
const WIPE_BYTES: usize = 1 << 20;

/// A device's store. Requests are answered by events ([`Store::pop_event`]); until [`StoreEvent::Ready`], and after
/// [`StoreEvent::Unusable`], they are ignored.
#[derive(Debug)]
pub struct Store {
    config: StoreConfig,
    object_memory: u64,
    medium: Medium,
    phase: Phase,
    /// Of phases that have no queue of their own.
    events: VecDeque<StoreEvent>,
}

#[derive(Debug)]
enum Phase {
    New,
    Recovering(Box<Recovery>),
    Serving(Box<Serving>),
    Unusable,
}

impl Store {
    /// What to write, in any order, and then to sync, so that the device is an empty store. Its size decides the
    /// journal's. `disk` and `nonce` are drawn by the caller, and nobody who writes blocks may know the latter: see
    /// [`Superblock::nonce`].
    pub fn format(config: &StoreConfig, disk: DiskId, nonce: u64) -> Result<Vec<(u64, Bytes)>, StoreError> {
        Store::format_with(config, disk, nonce, None)
    }

    /// The same, with a journal of `journal` bytes.
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
        };
        // The map needs no wiping: an object's pages are written before they are read. What an earlier store left in the
        // journal could be taken for ours.
        let first = BatchHeader {
            sequence: 1,
            previous: 0,
            offset: 0,
            records: 0,
            payload: 0,
            begins_snapshot: true,
            ends_snapshot: true,
        };
        let first = first.encode(seal_of(&superblock), &[]);
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
        Store { config, object_memory, medium: Medium::default(), phase: Phase::New, events: VecDeque::new() }
    }

    /// The same, on such a disk.
    pub fn on(self, medium: Medium) -> Store {
        let bytes = medium.physical_sector as usize;
        assert!(bytes.is_power_of_two() && (SECTOR..=PAGE).contains(&bytes), "{medium:?}");
        Store { medium, ..self }
    }

    /// The same, which keeps at most so many bytes of what its objects hold in memory.
    pub fn with_object_memory(self, object_memory: u64) -> Store {
        Store { object_memory, ..self }
    }

    /// Blocks that more objects may have.
    pub fn free_blocks(&self) -> u64 {
        let room = |serving: &Serving| serving.state.objects.room().saturating_sub(serving.claimed_slots());
        self.serving().map_or(0, |serving| room(serving) * crate::block::CHUNK_BLOCKS)
    }

    /// Asserts that every slot has exactly one owner. Takes as long as the device is large.
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

    fn with(&mut self, act: impl FnOnce(&mut Serving)) {
        if let Phase::Serving(serving) = &mut self.phase {
            act(serving);
        }
    }

    fn then_advance(&mut self, now: Now, out: &mut Effects, act: impl FnOnce(&mut Serving)) {
        self.with(|serving| {
            serving.observe(now);
            act(serving);
            serving.advance(None, out);
        });
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
                Progress::Ready(mut serving) => {
                    let recovered = serving.state.recovered(serving.superblock.disk);
                    self.events.push_back(StoreEvent::Ready(recovered));
                    serving.advance(Some(now), out);
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
        self.with(|serving| serving.advance(Some(now), out));
    }

    fn deadline(&self) -> Option<Time> {
        self.serving().and_then(Serving::deadline)
    }

    fn pop_event(&mut self) -> Option<StoreEvent> {
        self.events.pop_front().or_else(|| match &mut self.phase {
            Phase::Serving(serving) => serving.events.pop_front(),
            _ => None,
        })
    }

    fn object(&self, object: ObjectId) -> Option<&ObjectDescription> {
        self.serving()?.state.objects.get(object).map(|record| &record.description)
    }

    fn objects(&self) -> Vec<ObjectDescription> {
        let objects = self.serving().into_iter().flat_map(|serving| serving.state.objects.iter());
        objects.map(|record| record.description).collect()
    }

    fn read(&mut self, ticket: u64, object: ObjectId, extents: &[BlockRange], out: &mut Effects) {
        self.with(|serving| serving.read(ticket, object, extents, Of::Data, out));
    }

    fn salvage(&mut self, ticket: u64, object: ObjectId, extents: &[BlockRange], out: &mut Effects) {
        self.with(|serving| serving.read(ticket, object, extents, Of::Salvage, out));
    }

    fn linkage(&mut self, ticket: u64, object: ObjectId, extents: &[BlockRange], out: &mut Effects) {
        self.with(|serving| serving.read(ticket, object, extents, Of::Header, out));
    }

    fn allocation(&self, object: ObjectId, extents: &[BlockRange]) -> Vec<Piece> {
        self.serving().map_or(Vec::new(), |serving| serving.allocation(object, extents))
    }

    fn prepare(&mut self, now: Now, intent: Intent, out: &mut Effects) {
        self.then_advance(now, out, |serving| serving.write(intent, false));
    }

    fn apply(&mut self, now: Now, intent: Intent, out: &mut Effects) {
        self.then_advance(now, out, |serving| serving.write(intent, true));
    }

    fn commit(&mut self, now: Now, transaction: TransactionId, out: &mut Effects) {
        self.then_advance(now, out, |serving| serving.commit(transaction));
    }

    fn abort(&mut self, now: Now, transaction: TransactionId, out: &mut Effects) {
        self.then_advance(now, out, |serving| serving.abort(transaction));
    }

    fn forget(&mut self, transaction: TransactionId) {
        self.with(|serving| serving.forget(transaction));
    }

    fn settle(&mut self, host: Generation, sequence: u64) {
        self.with(|serving| serving.settle(host, sequence));
    }

    fn create_object(&mut self, ticket: u64, description: ObjectDescription, absent: u64, out: &mut Effects) {
        self.with(|serving| {
            serving.create_object(ticket, description, absent);
            serving.advance(None, out);
        });
    }

    fn set_ordering(&mut self, ticket: u64, object: ObjectId, ordering: Ordering, out: &mut Effects) {
        self.with(|serving| {
            serving.set_ordering(ticket, object, ordering);
            serving.advance(None, out);
        });
    }

    fn resize_object(
        &mut self,
        ticket: u64,
        object: ObjectId,
        range: BlockRange,
        absent: BlockRange,
        out: &mut Effects,
    ) {
        self.with(|serving| {
            serving.resize_object(ticket, object, range, absent);
            serving.advance(None, out);
        });
    }

    fn remove_object(&mut self, ticket: u64, object: ObjectId, out: &mut Effects) {
        self.with(|serving| {
            serving.remove_object(ticket, object);
            serving.advance(None, out);
        });
    }

    fn reserve_stamps(&mut self, ticket: u64, until: Clock, out: &mut Effects) {
        self.with(|serving| {
            serving.reserve_stamps(ticket, until);
            serving.advance(None, out);
        });
    }

    fn execute(
        &mut self,
        now: Now,
        name: TransactionId,
        settled: u64,
        given_up: Vec<(u64, u64)>,
        request: ObjectRequest,
        out: &mut Effects,
    ) -> bool {
        let mut awaited = false;
        self.then_advance(now, out, |serving| awaited = serving.execute(name, settled, given_up, request));
        awaited
    }

    fn look(&mut self, now: Now, ticket: u64, request: ObjectRequest, out: &mut Effects) {
        self.then_advance(now, out, |serving| serving.look(ticket, request));
    }

    fn adopt(&mut self, ticket: u64, membership: Membership, out: &mut Effects) {
        self.with(|serving| {
            serving.adopt(ticket, membership);
            serving.advance(None, out);
        });
    }

    fn membership(&self) -> Option<&Membership> {
        self.serving()?.state.membership.as_ref()
    }

    fn missed(&self, device: DeviceId, object: ObjectId, from: u64) -> (Vec<BlockRange>, Option<u64>) {
        self.serving().map_or((Vec::new(), None), |serving| serving.missed(device, object, from))
    }

    fn absent(&self, object: ObjectId, from: u64) -> (Vec<BlockRange>, Option<u64>) {
        self.serving().map_or((Vec::new(), None), |serving| serving.absent(object, from))
    }

    fn allocated(&self, object: ObjectId, range: BlockRange) -> (Vec<BlockRange>, Option<u64>) {
        self.serving().map_or((Vec::new(), None), |serving| serving.allocated(object, range))
    }

    fn flush(&mut self, ticket: u64, out: &mut Effects) {
        self.with(|serving| {
            serving.flush(ticket);
            serving.advance(None, out);
        });
    }

    fn bad_slots(&self) -> (u32, bool) {
        self.serving().map_or((0, false), |serving| {
            let bad = serving.state.bad.len() as u32;
            (bad, bad >= failing_from(serving.slots.total()))
        })
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.serving().map_or(Vec::new(), |serving| {
            let mut counters = serving.counters.list();
            let slots = &serving.slots;
            let catalogue = serving.state.catalogue.statistics();
            counters.extend([
                ("catalogue_leaves", catalogue.leaves),
                ("catalogue_nodes", catalogue.nodes),
                ("catalogue_changes", catalogue.pending),
                ("catalogue_bytes_cached", catalogue.bytes_cached),
                ("leaves_read", catalogue.leaves_read),
                ("leaves_written", catalogue.leaves_written),
                ("leaves_damaged", catalogue.leaves_damaged),
                ("journal_bytes_used", serving.journal.used()),
                ("intents_undecided", serving.state.intents.len() as u64),
                ("answers_kept", serving.state.answers.len() as u64),
                ("commits_remembered", serving.state.decisions.len() as u64),
                ("extents_missed", serving.state.missed.len() as u64),
                ("blocks_absent", serving.state.absent.blocks()),
                ("blocks_in_journal", serving.state.resident.len() as u64),
                ("writes_waiting", serving.queue.len() as u64),
                ("slots", u64::from(slots.total())),
                ("slots_set_aside", u64::from(slots.frontier())),
                ("slots_free", u64::from(slots.free())),
                ("slots_bad", serving.state.bad.len() as u64),
                ("slots_mapped", u64::from(serving.state.map.mapped())),
                ("blocks_unclaimed", self.free_blocks()),
            ]);
            counters
        })
    }

    fn invariants(&self) {
        if let Some(serving) = self.serving() {
            serving.invariants();
        }
    }
}
