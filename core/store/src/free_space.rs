//! Free room in slots and journal. A part of it is kept back for merging, for overwrites, and for the removal of objects; no other request
//! may use that part.

use crate::block::CHUNK_BLOCKS;
use crate::ctx::Ctx;
use crate::free_slots::SPARE_MIN;
use crate::journal_format::request::roots_len;
use crate::state::State;
use braid_object_index::{Growth, Needs};
use braid_objects::{Change, Kind, Obstacle};

/// Slots for which disk space is reserved at once.
pub(crate) const RESERVE_STEP: u32 = 64;
/// Slots that are kept for the records of removed objects: removal must be possible on a full device.
const REMOVALS_KEPT: u64 = 16;
/// The journal's length divided by this is the most that the roots may take.
const ROOTS_SHARE: u64 = 64;
/// A batch is written before its notes exceed the usual limit of a batch divided by this.
const NOTES_PART: u64 = 2;

/// The reason why a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Leaves of the object index are being read.
    Leaves,
    /// There is no room in the journal, or there are too few slots.
    Room,
    /// The garbage of removed objects must be collected first.
    Sweep,
}

/// Whether the object index has slots for changes.
#[derive(Clone, Debug)]
pub(crate) enum Growable {
    /// There are enough slots. Merging will need this much.
    Enough(Needs),
    /// The object index can't grow so much.
    TooFew,
}

impl State {
    /// The needs of merging if no further changes come.
    pub fn merging_needs(&self) -> Needs {
        self.object_index.needs(0, Growth::default())
    }

    /// Slots that the object index has, or will need: they can't be promised to volumes.
    pub fn index_slots(&self) -> u64 {
        let needs = self.merging_needs();
        needs.slots + kept_for_removals(needs)
    }

    /// Blocks that more objects may have.
    pub fn free_blocks(&self) -> u64 {
        self.objects.room().saturating_sub(self.index_slots()) * CHUNK_BLOCKS
    }

    /// Blocks into which the index of objects may grow when all changes so far are merged, estimated by their bytes.
    pub fn free_index_blocks(&self) -> u64 {
        self.objects.room().saturating_sub(self.object_index.estimated_slots()) * CHUNK_BLOCKS
    }

    /// Slots that hold something, and bad slots.
    pub fn held_slots(&self) -> u64 {
        u64::from(self.map.mapped()) + self.bad.len() as u64 + self.object_index.used_slots()
    }

    /// Free slots that are kept for overwrites of whole chunks. Bad slots are taken from these, so that objects get as many slots as they
    /// were promised.
    pub fn spare_kept(&self) -> u32 {
        SPARE_MIN.saturating_sub(self.bad.len() as u32).max(SPARE_MIN / 2)
    }
}

impl Ctx<'_> {
    /// Free slots that are not kept for merging.
    pub fn free_slots(&self) -> u32 {
        let needs = self.state.merging_needs();
        u64::from(self.slots.free()).saturating_sub(needs.free + kept_for_removals(needs)) as u32
    }

    /// Slots that are neither free nor held: they are freed when a decision or a batch is durable.
    pub fn slots_on_their_way(&self) -> u64 {
        u64::from(self.slots.frontier() - self.slots.free()) - self.state.held_slots()
    }

    /// Bytes in the journal that must be kept for the next snapshot, and for the roots that merging notes.
    pub fn kept_room(&self, needs: Needs) -> u64 {
        self.state.snapshot_len() + self.room_for_roots(needs)
    }

    /// Bytes that the roots of all rounds of merging take in the journal.
    pub fn room_for_roots(&self, needs: Needs) -> u64 {
        needs.rounds * self.journal.padded(roots_len(needs.nodes))
    }

    /// True if the journal has room for a record of `length` bytes beside the `kept` bytes. If it has not, a checkpoint is requested.
    pub fn has_room(&mut self, length: u64, is_carried: bool, kept: u64) -> bool {
        let has_room = self.journal.has_room(length, is_carried, self.state.transactions.undecided(), kept);
        if !has_room {
            self.journal.want_room();
        }
        has_room
    }

    /// True if a note of this length must wait until the notes before it are written.
    pub fn is_crowded(&self, length: u64) -> bool {
        self.journal.noted() > 0 && self.journal.noted() + length > self.journal.batch_max() / NOTES_PART
    }

    /// Reserves disk space for `slots` more slots.
    pub fn reserve(&mut self, slots: u32) {
        self.disk.reserve(self.slots.frontier(), slots, self.out);
        self.slots.is_reserving = true;
    }

    /// Reserves disk space for the slots that are missing, after so many refusals. The first request is for a generous step; if the disk
    /// refuses that, the next one is for the bare need.
    pub fn reserve_missing(&mut self, missing: u32, refusals: u32) {
        let step = if refusals == 0 { missing.max(RESERVE_STEP) } else { missing };
        self.reserve(step.min(self.slots.left()));
    }

    /// Reserves disk space ahead of need.
    pub fn extend_ahead(&mut self) {
        let is_short = self.free_slots() < self.state.spare_kept() + RESERVE_STEP && self.slots.left() > 0;
        if is_short && !self.slots.is_reserving && !self.slots.is_refused {
            self.reserve(RESERVE_STEP.min(self.slots.left()));
        }
    }

    /// Finds out whether there are slots for changes to the object index. Changes that do not make it grow need none. `refusals`: how
    /// often the disk has refused space for that growth. `may_collect`: removed objects may have left garbage.
    pub fn find_slots(&mut self, changes: &[Change], may_collect: bool, refusals: u32) -> Result<Growable, Wait> {
        let growth = self.state.object_index.growth_of(changes);
        let needs = self.state.object_index.needs(changes.len(), growth);
        if growth.is_none() || self.has_slots(needs, REMOVALS_KEPT) {
            return Ok(Growable::Enough(needs));
        }
        let growth = match self.state.object_index.exact_growth_of(changes) {
            Ok(growth) => growth,
            Err(Obstacle::NotHere | Obstacle::Lost) => return Err(Wait::Leaves),
        };
        // A record that ends an incarnation takes a little room, and will free more.
        let others = changes.iter().filter(|change| change.key.kind != Kind::Ended);
        let kept = if self.state.object_index.growth_of(others).is_none() { 0 } else { REMOVALS_KEPT };
        let needs = self.state.object_index.needs(changes.len(), growth);
        if growth.is_none() || self.has_slots(needs, kept) {
            return Ok(Growable::Enough(needs));
        }
        if may_collect {
            return Err(Wait::Sweep);
        }
        if self.state.object_index.may_need_less() {
            // Merging shows how few slots the object index takes.
            self.slots.is_merging_wanted = true;
            return Err(Wait::Room);
        }
        if !self.has_slots_for(needs, kept) {
            return Ok(Growable::TooFew);
        }
        if self.slots.is_reserving {
            return Err(Wait::Room);
        }
        let (left, free) = (self.slots.left(), self.slots.free());
        if left > 0 && refusals < 2 {
            let missing = (self.free_slots_for(needs, kept).saturating_sub(u64::from(free)) as u32).min(left);
            self.reserve_missing(missing, refusals);
            return Err(Wait::Room);
        }
        // Overwrites free as many slots as they hold: enough for a removal.
        let may_come = self.slots_on_their_way() > 0 && (left == 0 || kept == 0);
        if may_come { Err(Wait::Room) } else { Ok(Growable::TooFew) }
    }

    fn has_slots(&self, needs: Needs, kept: u64) -> bool {
        self.has_slots_for(needs, kept) && u64::from(self.slots.free()) >= self.free_slots_for(needs, kept)
    }

    fn has_slots_for(&self, needs: Needs, kept: u64) -> bool {
        let roots_max = self.journal.capacity() / ROOTS_SHARE;
        needs.slots + kept <= self.state.objects.room() && roots_len(needs.nodes) <= roots_max
    }

    /// Free slots that these needs require, beside those kept for overwrites of whole chunks.
    fn free_slots_for(&self, needs: Needs, kept: u64) -> u64 {
        needs.free + kept + u64::from(self.state.spare_kept())
    }
}

fn kept_for_removals(needs: Needs) -> u64 {
    if needs.slots > 0 { REMOVALS_KEPT } else { 0 }
}
