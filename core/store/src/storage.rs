//! The interface between a device and its store. Real disks have a [`Store`](crate::Store). The simulator also measures protocols over a
//! model of old disks, which stores nothing.

use crate::{Intent, Logged, StoreEvent};
use braid_base::{BlockRange, DeviceId, Generation, Level, Membership, Now, ObjectId, Time, TransactionId};
use braid_blocks::{Piece, Want};
use braid_machine::{DiskResult, DiskTag, Effects};
use braid_wire::{ObjectAnswer, ObjectDescription, ObjectRequest};
use std::fmt::Debug;

/// Durable blocks by object, with intents. Requests are answered by events ([`Storage::pop_event`]). They are ignored before
/// [`StoreEvent::Ready`] and after [`StoreEvent::Unusable`]. [`Store`](crate::Store) is the implementation on a disk.
pub trait Storage: CloneStorage + Debug {
    /// Reads what is on the disk; ends with [`StoreEvent::Ready`] or [`StoreEvent::Unusable`].
    fn start(&mut self, out: &mut Effects);
    /// A disk command has ended.
    fn on_disk_done(&mut self, now: Now, tag: DiskTag, result: DiskResult, out: &mut Effects);
    /// The time of [`Storage::deadline`] has come.
    fn wake(&mut self, now: Now, out: &mut Effects);
    /// When to wake the store, if nothing else happens.
    fn deadline(&self) -> Option<Time>;
    /// The next event, if there is one.
    fn pop_event(&mut self) -> Option<StoreEvent>;
    /// The description of an object, if it exists.
    fn object(&self, object: ObjectId) -> Option<&ObjectDescription>;
    fn objects(&self) -> Vec<ObjectDescription>;
    /// Reads the committed content of the blocks of `extents`. Event: `Read`.
    fn read(&mut self, ticket: u64, object: ObjectId, extents: &[BlockRange], out: &mut Effects) {
        self.read_as(Want::Data, ticket, object, extents, out);
    }
    /// Reads what is wanted of the blocks: their content, if not their linkage. Event: `Read`.
    fn read_as(&mut self, want: Want, ticket: u64, object: ObjectId, extents: &[BlockRange], out: &mut Effects);
    /// Which of the blocks have content.
    fn allocation(&self, object: ObjectId, extents: &[BlockRange]) -> Vec<Piece>;
    /// Makes an intent durable. The old content stays until the intent is decided. Event: `Prepared`.
    fn prepare(&mut self, now: Now, intent: Intent, out: &mut Effects);
    /// Writes at once, without a decision. The write is atomic on this device. Event: `Applied`. If an interrupted hostwrite would leave
    /// stripes of the object suspect, the write is remembered like a commit.
    fn apply(&mut self, now: Now, intent: Intent, out: &mut Effects);
    /// Commits a prepared intent: reads return its content from now on. Event, not at once: `Committed`.
    fn commit(&mut self, now: Now, transaction: TransactionId, out: &mut Effects);
    /// Aborts a prepared intent. Event: `Aborted`.
    fn abort(&mut self, now: Now, transaction: TransactionId, out: &mut Effects);
    /// A durable commit, or an answer, need not be remembered any longer.
    fn forget(&mut self, transaction: TransactionId);
    /// A durable commit is remembered only for its host: it is durable on all participants with a vote. So none of them misses it that goes
    /// out later. If that is forgotten in a crash, the only cost is that more is restored.
    fn nobody_misses(&mut self, transaction: TransactionId);
    /// No commit or answer of `host` below `sequence` need be remembered any longer.
    fn settle(&mut self, host: Generation, sequence: u64);
    /// Executes commands on objects that hold bytes and attributes: once for each name, and after all earlier requests. `settled` is the
    /// mark below which the host knows all answers. `abandoned` are intervals of its requests: none of these is executed any more, if it
    /// has not been by then; that is as durable as the answer. Returns false if the host does not wait for this request any more; then
    /// there is no event. Event: `Executed`.
    fn execute(
        &mut self,
        now: Now,
        name: TransactionId,
        settled: u64,
        abandoned: Vec<(u64, u64)>,
        request: ObjectRequest,
        out: &mut Effects,
    ) -> bool;
    /// Executes commands that only read. Event: `ObjectsRead`.
    fn read_objects(&mut self, now: Now, ticket: u64, request: ObjectRequest, out: &mut Effects);
    /// How a request of a host has ended; none if it may still be executed.
    fn ended(&self, _name: TransactionId) -> Option<ObjectAnswer> {
        None
    }
    /// Makes a change that is logged at once. Event: `Done`.
    fn log(&mut self, ticket: u64, change: Logged, out: &mut Effects);
    /// Adopts a membership, with its consequences for undecided intents and for what other devices miss. A membership that is not later
    /// than the last one changes nothing. Event: `Adopted`.
    fn adopt(&mut self, ticket: u64, membership: Membership, out: &mut Effects);
    /// The membership that was adopted last.
    fn membership(&self) -> Option<&Membership>;
    /// The blocks of the object's volume that were written while `device` was out, or that undecided intents here may yet write. From
    /// block `from` on, in ascending order and not touching, at most [`limits::EXTENTS_MAX`](braid_base::limits::EXTENTS_MAX) extents;
    /// and the block from which to ask next, if there are more. The answer may cover more than was written, never less.
    fn missed(&self, device: DeviceId, object: ObjectId, from: u64) -> (Vec<BlockRange>, Option<u64>);
    /// The absent blocks of an object from block `from` on, in ascending order and not touching, at most
    /// [`limits::EXTENTS_MAX`](braid_base::limits::EXTENTS_MAX) extents; and the block from which to ask next, if there are more.
    fn absent(&self, object: ObjectId, from: u64) -> (Vec<BlockRange>, Option<u64>);
    /// The number of absent blocks of all objects.
    fn absent_blocks(&self) -> u64 {
        0
    }
    /// The blocks of `range` that may have content, in whole chunks. The form of the answer is that of [`Storage::absent`].
    fn allocated(&self, object: ObjectId, range: BlockRange) -> (Vec<BlockRange>, Option<u64>);
    /// The array has this level: the superblock is written in its format, and what only that format allows is written after that.
    fn raise_level(&mut self, _level: Level, _out: &mut Effects) {}
    /// The level of the superblock that is durable.
    fn durable_level(&self) -> Level {
        Level::FIRST
    }
    /// The number of slots that can't be written, and whether there are so many that the disk is about to fail.
    fn bad_slots(&self) -> (u32, bool) {
        (0, false)
    }
    /// The store's counters, with their names.
    fn counters(&self) -> Vec<(&'static str, u64)>;
    /// Asserts what must hold between steps.
    fn invariants(&self);
}

/// Clones a storage of any type: a machine that has one can be cloned.
pub trait CloneStorage {
    fn clone_boxed(&self) -> Box<dyn Storage>;
}

impl<S: Storage + Clone + 'static> CloneStorage for S {
    fn clone_boxed(&self) -> Box<dyn Storage> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn Storage> {
    fn clone(&self) -> Self {
        // Not that of the box.
        (**self).clone_boxed()
    }
}
