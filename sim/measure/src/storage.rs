//! A model of a device's storage without content, for measurements in which only times matter.
//!
//! A read takes one access of the modelled disk, and so does a devwrite; decisions cost nothing. All blocks are holes, so that
//! nothing is copied or XORed, while requests and answers are the same as for other content.

use crate::prelude::*;
use braid_base::{BlockRange, TransactionId};
use braid_blocks::{Content, Piece, Want};
use braid_machine::DiskResult;
use braid_objects::map_access::apply;
use braid_objects::{Key, evaluate};
use braid_store::{Intent, Logged, Recovered, Storage, StoreEvent};
use braid_wire::{Failure, ObjectAnswer, ObjectRequest};

/// See the module's description.
#[derive(Clone, Debug)]
pub struct ModelStorage {
    object: ObjectDescription,
    /// Objects that hold bytes and attributes. They do have content, because it determines the answers.
    object_index: BTreeMap<Key, Bytes>,
    membership: Option<Membership>,
    events: VecDeque<StoreEvent>,
    /// The accesses in progress, by tag.
    accesses: BTreeMap<DiskTag, Access>,
    next_tag: u64,
}

/// The purpose of a disk access.
#[derive(Clone, Debug)]
enum Access {
    Read { ticket: u64, pieces: Vec<Piece> },
    Prepare(TransactionId),
    Apply(TransactionId),
    Execute { name: TransactionId, answer: ObjectAnswer },
    ReadObjects { ticket: u64, answer: ObjectAnswer },
}

/// The bytes that an object request reads or writes on the disk (device-atomics paper, section 8).
const SECTOR: usize = 512;
/// The content to be "written": a slice of it has the length of the real data.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

impl ModelStorage {
    /// Creates a storage with one object.
    pub fn new(object: ObjectDescription) -> ModelStorage {
        ModelStorage {
            object,
            object_index: BTreeMap::new(),
            membership: None,
            events: VecDeque::new(),
            accesses: BTreeMap::new(),
            next_tag: 0,
        }
    }

    fn access(&mut self, access: Access, command: DiskCommand, out: &mut Effects) {
        let tag = DiskTag(self.next_tag);
        self.next_tag += 1;
        self.accesses.insert(tag, access);
        out.disk(tag, command);
    }

    fn evaluate(&mut self, request: &ObjectRequest) -> (ObjectAnswer, DiskCommand) {
        let evaluation = evaluate(request, &mut self.object_index).expect("all of the map is in memory");
        apply(&evaluation.changes, &mut self.object_index);
        let command = match evaluation.changes.is_empty() {
            true => DiskCommand::Read { offset: 0, length: SECTOR },
            false => DiskCommand::Write { offset: 0, data: vec![Bytes::from_static(&ZEROS[..SECTOR])], durable: true },
        };
        (evaluation.answer, command)
    }

    /// A devwrite takes one access, however many pieces it has.
    fn write(&mut self, intent: &Intent, access: Access, out: &mut Effects) {
        let blocks: u64 = intent.pieces.iter().map(|piece| piece.range.count).sum();
        let offset = intent.pieces.first().map_or(0, |piece| piece.range.start * BLOCK_BYTES as u64);
        let mut missing = blocks as usize * BLOCK_BYTES;
        let mut data = Vec::with_capacity(1);
        while missing > 0 {
            let part = missing.min(ZEROS.len());
            data.push(Bytes::from_static(&ZEROS[..part]));
            missing -= part;
        }
        self.access(access, DiskCommand::Write { offset, data, durable: true }, out);
    }
}

impl Storage for ModelStorage {
    fn start(&mut self, _: &mut Effects) {
        self.events.push_back(StoreEvent::Ready(Recovered::default()));
    }

    fn on_disk_done(&mut self, _: Now, tag: DiskTag, _: DiskResult, _: &mut Effects) {
        let event = match self.accesses.remove(&tag).expect("the disk completes each command once") {
            Access::Read { ticket, pieces } => StoreEvent::Read { ticket, result: Ok(pieces) },
            Access::Prepare(transaction) => StoreEvent::Prepared { transaction, result: Ok(()) },
            Access::Apply(transaction) => StoreEvent::Applied { transaction, result: Ok(()) },
            Access::Execute { name, answer } => StoreEvent::Executed { name, answer, found: None },
            Access::ReadObjects { ticket, answer } => StoreEvent::ObjectsRead { ticket, answer, found: None },
        };
        self.events.push_back(event);
    }

    fn wake(&mut self, _: Now, _: &mut Effects) {}

    fn deadline(&self) -> Option<Time> {
        None
    }

    fn pop_event(&mut self) -> Option<StoreEvent> {
        self.events.pop_front()
    }

    fn object(&self, object: ObjectId) -> Option<&ObjectDescription> {
        (object == self.object.object).then_some(&self.object)
    }

    fn objects(&self) -> Vec<ObjectDescription> {
        vec![self.object]
    }

    /// No devwrite is interrupted in this model.
    fn read_as(&mut self, want: Want, ticket: u64, _: ObjectId, extents: &[BlockRange], out: &mut Effects) {
        if want == Want::Linkage {
            return self.events.push_back(StoreEvent::Read { ticket, result: Err(Failure::Malformed) });
        }
        let blocks: u64 = extents.iter().map(|extent| extent.count).sum();
        let offset = extents.first().map_or(0, |extent| extent.start * BLOCK_BYTES as u64);
        let pieces = extents.iter().map(|range| Piece { range: *range, content: Content::Hole }).collect();
        let command = DiskCommand::Read { offset, length: blocks as usize * BLOCK_BYTES };
        self.access(Access::Read { ticket, pieces }, command, out);
    }

    fn allocation(&self, _: ObjectId, extents: &[BlockRange]) -> Vec<Piece> {
        extents.iter().map(|range| Piece { range: *range, content: Content::Hole }).collect()
    }

    fn prepare(&mut self, _: Now, intent: Intent, out: &mut Effects) {
        self.write(&intent, Access::Prepare(intent.transaction), out);
    }

    fn apply(&mut self, _: Now, intent: Intent, out: &mut Effects) {
        self.write(&intent, Access::Apply(intent.transaction), out);
    }

    fn commit(&mut self, _: Now, transaction: TransactionId, _: &mut Effects) {
        self.events.push_back(StoreEvent::Committed { transaction });
    }

    fn abort(&mut self, _: Now, transaction: TransactionId, _: &mut Effects) {
        self.events.push_back(StoreEvent::Aborted { transaction });
    }

    fn forget(&mut self, _: TransactionId) {}

    fn nobody_misses(&mut self, _: TransactionId) {}

    fn settle(&mut self, _: Generation, _: u64) {}

    /// One access of a sector, which commits the changes or reads the data. No message is lost in this model, so that no idempotency
    /// records are needed.
    fn execute(
        &mut self,
        _: Now,
        name: TransactionId,
        _: u64,
        _: Vec<(u64, u64)>,
        request: ObjectRequest,
        out: &mut Effects,
    ) -> bool {
        let (answer, command) = self.evaluate(&request);
        self.access(Access::Execute { name, answer }, command, out);
        true
    }

    fn read_objects(&mut self, _: Now, ticket: u64, request: ObjectRequest, out: &mut Effects) {
        let (answer, command) = self.evaluate(&request);
        self.access(Access::ReadObjects { ticket, answer }, command, out);
    }

    fn log(&mut self, ticket: u64, change: Logged, _: &mut Effects) {
        if let Logged::Reordered { ordering, .. } = change {
            self.object.ordering = ordering;
        }
        self.events.push_back(StoreEvent::Done { ticket, result: Ok(()) });
    }

    fn adopt(&mut self, ticket: u64, membership: Membership, _: &mut Effects) {
        if self.membership.as_ref().is_none_or(|before| before.epoch < membership.epoch) {
            self.membership = Some(membership);
        }
        self.events.push_back(StoreEvent::Adopted { ticket, dropped: Vec::new() });
    }

    fn membership(&self) -> Option<&Membership> {
        self.membership.as_ref()
    }

    /// No device of this model is ever out.
    fn missed(&self, _: DeviceId, _: ObjectId, _: u64) -> (Vec<BlockRange>, Option<u64>) {
        (Vec::new(), None)
    }

    /// No disk of this model is ever replaced.
    fn absent(&self, _: ObjectId, _: u64) -> (Vec<BlockRange>, Option<u64>) {
        (Vec::new(), None)
    }

    fn allocated(&self, _: ObjectId, range: BlockRange) -> (Vec<BlockRange>, Option<u64>) {
        (vec![range], None)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    fn invariants(&self) {}
}
