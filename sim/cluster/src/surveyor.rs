//! A surveyor reads every block of a volume's components from the devices. It behaves like a host that knows nothing of stripes, so
//! that redundancy is checked without the planning code under test.

use crate::prelude::*;
use braid_base::limits::EXTENTS_MAX;
use braid_base::{StampSource, TransactionId};
use braid_blocks::{Content, Piece, Want};
use braid_machine::{Effects, Input, Machine, Never, OneDisk};
use braid_wire::{Answer, Command, Message, Refusal, Rejection, Reply, Request};

/// The time after which it repeats its requests.
const PATIENCE: Duration = Duration::from_millis(50);

/// The machine: it reads the same blocks from each of some devices.
pub struct Surveyor {
    generation: Generation,
    epoch: Epoch,
    object: ObjectId,
    ordering: Ordering,
    blocks: BlockRange,
    stamps: StampSource,
    sequence: u64,
    missing: BTreeMap<DeviceId, Option<TransactionId>>,
    found: BTreeMap<(DeviceId, u64), Vec<u8>>,
    ask_again: Option<Time>,
}

impl Surveyor {
    /// Creates a surveyor that reads these blocks of `object`, which has this ordering, from each device.
    pub fn new(
        generation: Generation,
        epoch: Epoch,
        (object, ordering): (ObjectId, Ordering),
        blocks: BlockRange,
        devices: &[DeviceId],
    ) -> Surveyor {
        assert!(blocks.count <= EXTENTS_MAX as u64, "surveyed volumes are small");
        Surveyor {
            generation,
            epoch,
            object,
            ordering,
            blocks,
            stamps: StampSource::new(generation),
            sequence: 0,
            missing: devices.iter().map(|device| (*device, None)).collect(),
            found: BTreeMap::new(),
            ask_again: None,
        }
    }

    /// All blocks, once all devices have answered.
    pub fn blocks(&self) -> Option<&BTreeMap<(DeviceId, u64), Vec<u8>>> {
        self.missing.is_empty().then_some(&self.found)
    }

    fn ask(&mut self, now: Now, out: &mut Effects) {
        for (device, asked) in &mut self.missing {
            self.sequence += 1;
            let transaction = TransactionId { host: self.generation, sequence: self.sequence };
            *asked = Some(transaction);
            let extents = vec![self.blocks];
            let stamp = self.stamps.next(now.clock);
            let (object, ordering) = (self.object, self.ordering);
            let command = Command::Read { transaction, stamp, object, ordering, extents, want: Want::Data };
            // The surveyor's earlier transactions at this device are over.
            let request = request(self.generation, self.epoch, self.sequence, command);
            out.send(NodeId::Device(*device), Message::Request(request));
        }
        self.ask_again = (!self.missing.is_empty()).then(|| now.time.after(PATIENCE));
    }

    fn on_answer(&mut self, now: Now, device: DeviceId, reply: Reply, out: &mut Effects) {
        match reply {
            Reply::Data { transaction, pieces, .. } if self.missing.get(&device) == Some(&Some(transaction)) => {
                self.missing.remove(&device);
                pieces.iter().for_each(|piece| self.keep(device, piece));
                let count = self.found.range((device, 0)..=(device, u64::MAX)).count() as u64;
                assert_eq!(count, self.blocks.count, "{device} returns every block of the request");
                // The device then keeps no state for the surveyor, and can soon forget it.
                let request = request(self.generation, self.epoch, transaction.sequence + 1, Command::Heartbeat);
                out.send(NodeId::Device(device), Message::Request(request));
            }
            Reply::Rejected { rejection: Rejection::WrongEpoch { current } } => self.epoch = self.epoch.max(current),
            Reply::Refused { refusal: Refusal::TooLate { seen }, .. } => self.stamps.learn(now.clock, seen),
            _ => {}
        }
        if self.missing.is_empty() {
            self.ask_again = None;
        }
    }

    fn keep(&mut self, device: DeviceId, piece: &Piece) {
        for (index, block) in piece.range.blocks().enumerate() {
            let bytes = match &piece.content {
                Content::Data(bytes) => bytes[index * BLOCK_BYTES..][..BLOCK_BYTES].to_vec(),
                Content::Hole => vec![0; BLOCK_BYTES],
                Content::Present | Content::Header { .. } | Content::Lost => {
                    panic!("{device} answers a read with data")
                }
            };
            self.found.insert((device, block), bytes);
        }
    }
}

fn request(host: Generation, epoch: Epoch, settled: u64, command: Command) -> Request {
    Request { host, epoch, settled, over: Vec::new(), commits: Vec::new(), command }
}

impl Machine for Surveyor {
    type Request = Never;
    type Outcome = Never;
    type Disk = OneDisk;

    fn step(&mut self, now: Now, input: Input, out: &mut Effects) {
        match input {
            Input::Start | Input::Wake => self.ask(now, out),
            Input::Message { from: NodeId::Device(device), message: Message::Answer(Answer { reply, .. }), .. } => {
                self.on_answer(now, device, reply, out);
            }
            _ => {}
        }
    }

    fn deadline(&self) -> Option<Time> {
        self.ask_again
    }
}
