//! What a device needs of whatever keeps its blocks. [`Store`](crate::Store) is the one that real disks have; the simulator also
//! measures protocols over a model of the disks of another time, which keeps nothing.

use crate::{Intent, StoreEvent};
use braid_base::{BlockRange, Clock, DeviceId, Generation, Membership, Now, ObjectId, Time, TransactionId};
use braid_machine::{DiskResult, DiskTag, Effects};
use braid_wire::{ObjectDescription, ObjectRequest, Ordering, Piece};

/// Blocks by object, durable, with intents. Requests are answered by events ([`Storage::pop_event`]); until
/// [`StoreEvent::Ready`], and after [`StoreEvent::Unusable`], they are ignored. See [`Store`](crate::Store), whose methods
/// these are.
pub trait Storage {
    /// Reads what is on the disk; ends with [`StoreEvent::Ready`] or [`StoreEvent::Unusable`].
    fn start(&mut self, out: &mut Effects);
    /// A disk command has ended.
    fn on_disk_done(&mut self, now: Now, tag: DiskTag, result: DiskResult, out: &mut Effects);
    /// The time of [`Storage::deadline`] has come.
    fn wake(&mut self, now: Now, out: &mut Effects);
    /// When to wake the store, if nothing else happens.
    fn deadline(&self) -> Option<Time>;
    /// What the store has to say.
    fn pop_event(&mut self) -> Option<StoreEvent>;
    /// An object, if there is one of that name.
    fn object(&self, object: ObjectId) -> Option<&ObjectDescription>;
    /// All objects, by name.
    fn objects(&self) -> Vec<ObjectDescription>;
    /// Reads the committed content of the blocks of `extents`. Event: `Read`.
    fn read(&mut self, ticket: u64, object: ObjectId, extents: &[BlockRange], out: &mut Effects);
    /// Reads what is left of the content: of blocks that are damaged, that they are. Event: `Read`.
    fn salvage(&mut self, ticket: u64, object: ObjectId, extents: &[BlockRange], out: &mut Effects);
    /// Reads who wrote the blocks last, and as part of what. Event: `Read`, with headers and holes.
    fn linkage(&mut self, ticket: u64, object: ObjectId, extents: &[BlockRange], out: &mut Effects);
    /// Which blocks hold anything.
    fn allocation(&self, object: ObjectId, extents: &[BlockRange]) -> Vec<Piece>;
    /// Makes an intent durable; the old content stays until it is decided. Event: `Prepared`.
    fn prepare(&mut self, now: Now, intent: Intent, out: &mut Effects);
    /// Writes at once, without a decision: atomic on this device. Event: `Applied`. Where what is cut short leaves stripes suspect, it
    /// is remembered like a commit.
    fn apply(&mut self, now: Now, intent: Intent, out: &mut Effects);
    /// Decides a prepared intent: its content is there for reads from now on. Event, not at once: `Committed`.
    fn commit(&mut self, now: Now, transaction: TransactionId, out: &mut Effects);
    /// Decides a prepared intent: it never was. Event: `Aborted`.
    fn abort(&mut self, now: Now, transaction: TransactionId, out: &mut Effects);
    /// A durable commit need not be remembered any longer, nor an answer.
    fn forget(&mut self, transaction: TransactionId);
    /// No commit or answer of `host` below `sequence` need be remembered any longer.
    fn settle(&mut self, host: Generation, sequence: u64);
    /// Has commands done on the objects that hold bytes and attributes, once for each name, and after all that came before. `settled` is the
    /// mark below which the host knows all answers; `abandoned` are stretches of its requests of which nothing comes any more, if they have
    /// not happened by then, which is as durable as the answer. False if the host does not wait for this any more, and nothing will come of
    /// it. Event: `Executed`.
    fn execute(
        &mut self,
        now: Now,
        name: TransactionId,
        settled: u64,
        abandoned: Vec<(u64, u64)>,
        request: ObjectRequest,
        out: &mut Effects,
    ) -> bool;
    /// Has commands done that only ask. Event: `Looked`.
    fn look(&mut self, now: Now, ticket: u64, request: ObjectRequest, out: &mut Effects);
    /// Makes an object: so many blocks absent until they are written, as others hold what belongs there; then holes. Event: `Done`.
    fn create_object(&mut self, ticket: u64, description: ObjectDescription, absent: u64, out: &mut Effects);
    /// Records another ordering for an object that exists. Event: `Done`.
    fn set_ordering(&mut self, ticket: u64, object: ObjectId, ordering: Ordering, out: &mut Effects);
    /// Has an object consist of other blocks, while nothing is under way about it: what it had not is holes, or absent; what it loses is
    /// given back. Event: `Done`.
    fn resize_object(
        &mut self,
        ticket: u64,
        object: ObjectId,
        range: BlockRange,
        absent: BlockRange,
        out: &mut Effects,
    );
    /// Removes an object and what is undecided about it. Event: `Done`.
    fn remove_object(&mut self, ticket: u64, object: ObjectId, out: &mut Effects);
    /// Puts on record that stamps up to `until` may have been accepted. Event: `Done`.
    fn reserve_stamps(&mut self, ticket: u64, until: Clock, out: &mut Effects);
    /// Lives by a membership from now on, with what follows from it for what is undecided and for what others miss. One that is no
    /// later than the last changes nothing. Event: `Adopted`.
    fn adopt(&mut self, ticket: u64, membership: Membership, out: &mut Effects);
    /// The last one adopted.
    fn membership(&self) -> Option<&Membership>;
    /// Which blocks of the object's volume were written while `device` was out, or may be yet by what is undecided here: from block
    /// `from` on, ascending and apart, at most [`limits::EXTENTS_MAX`](braid_base::limits::EXTENTS_MAX) extents; and where to ask on
    /// if these were not all. It may be more than was written, never less.
    fn missed(&self, device: DeviceId, object: ObjectId, from: u64) -> (Vec<BlockRange>, Option<u64>);
    /// Which blocks of an object are absent: from block `from` on, ascending and apart, at most
    /// [`limits::EXTENTS_MAX`](braid_base::limits::EXTENTS_MAX) extents; and where to ask on if these were not all.
    fn absent(&self, object: ObjectId, from: u64) -> (Vec<BlockRange>, Option<u64>);
    /// Which of these blocks of an object may hold something, in whole chunks; told like what is absent.
    fn allocated(&self, object: ObjectId, range: BlockRange) -> (Vec<BlockRange>, Option<u64>);
    /// Everything asked before is durable. Event: `Done`.
    fn flush(&mut self, ticket: u64, out: &mut Effects);
    /// How many slots of the disk can't be written, and whether that is so many that the disk is about to fail.
    fn bad_slots(&self) -> (u32, bool) {
        (0, false)
    }
    /// Names and values of what it counted.
    fn counters(&self) -> Vec<(&'static str, u64)>;
    /// Asserts what must hold between steps.
    fn invariants(&self);
}
