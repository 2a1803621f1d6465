//! Merging is the part of a checkpoint that merges changes to objects into their object index.
//!
//! ```text
//!   round ─► leaves and index nodes are written to free slots ─► sync ─► new roots into the journal ─► durable: the old slots are free
//!     ▲                                                                                                    │
//!     └────────────────────────── until all is merged; then the checkpoint goes on ◄───────────────────────┘
//! ```
//!
//! The checkpoint's snapshot, and the notes before it, are durable before a round begins: so nothing is merged that might yet be lost.
//! The phase ends, and the journal may forget those notes, when the last roots are durable. Merging proceeds in small steps: one each
//! time that the store is woken. It asks to be woken at once, so that other work comes in between.
//!
//! Free slots and room in the journal are reserved for all that is to be merged: see `free_space`.

use crate::block::places_of;
use crate::ctx::Ctx;
use crate::disk_queue::Io;
use crate::free_space::RESERVE_STEP;
use crate::journal_format::Record;
use braid_machine::DiskCommand;
use braid_object_index::{ROUND_SLOTS_MIN, SlotRef, Step};
use bytes::Bytes;

/// The most leaves of a round that are read at once, and the most that are written at once.
const IN_FLIGHT_MAX: usize = 8;

#[derive(Clone, Debug, Default)]
pub(crate) struct Merging {
    /// A checkpoint waits for merging.
    is_due: bool,
    reads: usize,
    writes: usize,
    /// The last sync of a round is in flight, or its roots are not durable yet.
    ending_round: bool,
    /// The next round waits for free slots.
    pub wants_slots: bool,
    /// There is more to do at once.
    pub goes_on: bool,
}

impl Merging {
    /// The checkpoint has reached this phase.
    pub fn begin(&mut self) {
        self.is_due = true;
    }

    /// Does a small step. Returns true if that was the last one: everything is merged.
    pub fn advance(&mut self, ctx: &mut Ctx) -> bool {
        if !self.is_due || self.ending_round {
            return false;
        }
        (self.goes_on, self.wants_slots) = (false, false);
        if !ctx.state.object_index.is_in_round() {
            if !ctx.state.object_index.is_to_be_merged() {
                self.is_due = false;
                ctx.state.object_index.thaw();
                return true;
            }
            if !begin_round(ctx) {
                self.wants_slots = true;
                return false;
            }
        }
        while self.reads < IN_FLIGHT_MAX
            && let Some(place) = ctx.state.object_index.next_read()
        {
            self.reads += 1;
            ctx.disk.read_leaf(Io::MergeRead { place, again: false }, place, ctx.out);
        }
        if self.writes >= IN_FLIGHT_MAX {
            return false;
        }
        match ctx.state.object_index.step() {
            Step::Write(write) => {
                self.writes += 1;
                self.goes_on = true;
                let first = places_of(write.slot).start;
                ctx.disk.write_places(Io::MergeWrite { slot: write.slot }, first, write.data, false, ctx.out);
            }
            Step::Goes => self.goes_on = true,
            Step::Ended if self.writes == 0 => {
                self.ending_round = true;
                ctx.disk.submit(Io::MergeSync, DiskCommand::Sync, ctx.out);
            }
            // Continues when a leaf arrives, or when the last write ends.
            Step::Waits | Step::Ended => {}
        }
        false
    }

    /// A leaf has arrived, or can't be read. It is read once more before it counts as damaged; returns false if it is.
    pub fn on_read(&mut self, place: SlotRef, again: bool, bytes: Option<Bytes>, ctx: &mut Ctx) -> bool {
        let whole = bytes.is_some_and(|bytes| ctx.state.object_index.on_merge_read(place.slot, Some(&bytes)));
        if !whole && !again {
            ctx.disk.read_leaf(Io::MergeRead { place, again: true }, place, ctx.out);
            return false;
        }
        if !whole {
            ctx.state.object_index.on_merge_read(place.slot, None);
        }
        self.reads -= 1;
        true
    }

    /// A leaf or index node is written.
    pub fn on_written(&mut self) {
        self.writes -= 1;
    }

    pub fn on_roots_durable(&mut self) {
        self.ending_round = false;
    }
}

/// All leaves of a round are durable. Lookups use them from now on, and recovery does once the next batch is durable. Slots that the
/// roots no longer name become free then.
pub(crate) fn on_round_durable(ctx: &mut Ctx) {
    let installed = ctx.state.object_index.install();
    installed.unused.into_iter().for_each(|slot| ctx.slots.give_back(slot));
    ctx.journal.note(&Record::Rooted(ctx.state.object_index.roots()));
    ctx.journal.then.released.extend(installed.released);
    ctx.journal.then.has_roots = true;
    ctx.journal.hurry();
}

/// Takes the slots for a round. Returns false if there are not enough. More disk space is reserved if the disk has it; otherwise slots
/// must first come back from undecided writes.
fn begin_round(ctx: &mut Ctx) -> bool {
    let (most, free) = (ctx.state.object_index.round_slots(), ctx.slots.free());
    if free < most {
        let left = ctx.slots.left();
        if ctx.slots.is_reserving {
            return false;
        }
        if left > 0 && !ctx.slots.is_refused {
            ctx.reserve((most - free).max(RESERVE_STEP).min(left));
            return false;
        }
        if free < ROUND_SLOTS_MIN {
            ctx.hurry_decisions();
            return false;
        }
    }
    let slots = (0..most.min(free)).map(|_| ctx.slots.take()).collect();
    ctx.state.object_index.begin_round(slots);
    true
}
