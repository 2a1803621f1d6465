//! Merging: a part of a checkpoint, in which what objects were given before it goes into their catalogue.
//!
//! ```text
//!   round ─► leaves and index nodes are written to free slots ─► sync ─► new roots into the journal ─► durable: the old slots are free
//!     ▲                                                                                                    │
//!     └────────────────────────── until all is merged; then the checkpoint goes on ◄───────────────────────┘
//! ```
//!
//! The checkpoint's snapshot, and the notes with it, are durable before a round begins: so nothing is merged that might yet not have
//! been. It ends, and the journal forgets those notes, when the last roots are durable. Merging takes its time in small steps: one
//! each time that the store is woken, and it asks to be woken at once, so that others come in between.
//!
//! Free slots and room in the journal are kept for all that is to be merged; nothing is let in that these would not do for.

use crate::block::places_of;
use crate::executing::Wait;
use crate::request_record::roots_len;
use crate::serving::{Io, Serving};
use crate::writing::RESERVE_STEP;
use braid_catalogue::{Growth, Needs, Place, ROUND_SLOTS_MIN, Step};
use braid_machine::{DiskCommand, Effects};
use braid_objects::{Change, Kind, Obstacle};
use bytes::Bytes;

/// The most leaves of a round that are read, and that are written, at once.
const IN_FLIGHT_MAX: usize = 8;
/// Slots that are kept for what goes on record when objects are removed: that must be possible on a full device.
const REMOVALS_KEPT: u64 = 16;
/// The roots may take this part of the journal.
const ROOTS_SHARE: u64 = 64;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Merging {
    /// A checkpoint waits for it.
    is_due: bool,
    reads: usize,
    writes: usize,
    /// All of a round is on its way to be durable, or its roots are.
    ending_round: bool,
    /// The next round waits for free slots.
    pub wants_slots: bool,
    /// There is more to do at once.
    pub goes_on: bool,
    /// How often the disk refused space to those who want the catalogue to grow.
    pub refusals: u32,
}

impl Serving {
    /// The checkpoint has come to it.
    pub fn begin_merging(&mut self, out: &mut Effects) {
        self.merging.is_due = true;
        self.merge_on(out);
    }

    /// Does a small step.
    pub fn merge_on(&mut self, out: &mut Effects) {
        if !self.merging.is_due || self.merging.ending_round {
            return;
        }
        (self.merging.goes_on, self.merging.wants_slots) = (false, false);
        if !self.state.catalogue.is_in_round() {
            if !self.state.catalogue.is_to_be_merged() {
                self.merging.is_due = false;
                self.state.catalogue.thaw();
                return self.on_merged(out);
            }
            if !self.begin_round(out) {
                self.merging.wants_slots = true;
                return;
            }
        }
        while self.merging.reads < IN_FLIGHT_MAX
            && let Some(place) = self.state.catalogue.next_read()
        {
            self.merging.reads += 1;
            self.read_place(Io::MergeRead { place, again: false }, place, out);
        }
        if self.merging.writes >= IN_FLIGHT_MAX {
            return;
        }
        match self.state.catalogue.step() {
            Step::Write(write) => {
                self.merging.writes += 1;
                self.merging.goes_on = true;
                let offset = self.offset_of(places_of(write.slot).start);
                let command = DiskCommand::Write { offset, data: vec![write.data], durable: false };
                self.disk(Io::MergeWrite { slot: write.slot }, command, out);
            }
            Step::Goes => self.merging.goes_on = true,
            Step::Ended if self.merging.writes == 0 => {
                self.merging.ending_round = true;
                self.disk(Io::MergeSync, DiskCommand::Sync, out);
            }
            // A leaf that comes, or the last write that ends, goes on.
            Step::Waits | Step::Ended => {}
        }
    }

    /// Takes the slots for a round; false if there are not enough. More are set aside if the disk has them; else those must come back that
    /// others have at the moment.
    fn begin_round(&mut self, out: &mut Effects) -> bool {
        let (most, free) = (self.state.catalogue.round_slots(), self.slots.free());
        if free < most {
            let left = self.slots.total() - self.slots.frontier();
            if self.reserving {
                return false;
            }
            if left > 0 && !self.refused {
                self.reserve((most - free).max(RESERVE_STEP).min(left), out);
                return false;
            }
            if free < ROUND_SLOTS_MIN {
                self.journal.urgent |= !self.journal.events.is_empty();
                return false;
            }
        }
        let slots = (0..most.min(free)).map(|_| self.slots.take()).collect();
        self.state.catalogue.begin_round(slots);
        true
    }

    /// A leaf has come. See [`Serving::on_leaf`].
    pub fn on_merge_read(&mut self, place: Place, again: bool, bytes: Option<Bytes>, out: &mut Effects) {
        let whole = bytes.is_some_and(|bytes| self.state.catalogue.on_merge_read(place.slot, Some(&bytes)));
        if !whole && !again {
            return self.read_place(Io::MergeRead { place, again: true }, place, out);
        }
        if !whole {
            self.state.catalogue.on_merge_read(place.slot, None);
        }
        self.merging.reads -= 1;
        self.merge_on(out);
    }

    /// A leaf or an index node is written.
    pub fn on_merge_written(&mut self, out: &mut Effects) {
        self.merging.writes -= 1;
        self.merge_on(out);
    }

    /// All of a round is durable: from now on lookups go there, and with the next batch recovery does.
    pub fn on_round_durable(&mut self) {
        let installed = self.state.catalogue.install();
        installed.unused.into_iter().for_each(|slot| self.slots.give_back(slot));
        self.journal.note_roots(self.state.catalogue.roots(), installed.released);
    }

    /// The roots are durable.
    pub fn on_roots_durable(&mut self, out: &mut Effects) {
        self.merging.ending_round = false;
        self.merge_on(out);
    }

    /// Free slots that are not kept for merging.
    pub fn free_slots(&self) -> u32 {
        let needs = self.merging_needs();
        u64::from(self.slots.free()).saturating_sub(needs.free + kept_for_removals(needs)) as u32
    }

    /// Slots that the catalogue has, or is to have: volumes can't be promised these.
    pub fn claimed_slots(&self) -> u64 {
        let needs = self.merging_needs();
        needs.slots + kept_for_removals(needs)
    }

    /// What merging needs if nothing more comes.
    pub fn merging_needs(&self) -> Needs {
        self.state.catalogue.needs(0, Growth::default())
    }

    /// Room in the journal that must be kept for the next snapshot, and for the roots that merging notes.
    pub fn kept_room(&self, needs: Needs) -> u64 {
        let each = self.journal.padded(roots_len(needs.nodes));
        self.state.snapshot_len() + needs.rounds * each
    }

    /// Whether there are slots for changes to the catalogue. What does not make it grow needs none.
    pub fn find_slots(&mut self, changes: &[Change], out: &mut Effects) -> Result<Slots, Wait> {
        let growth = self.state.catalogue.growth_of(changes);
        let needs = self.state.catalogue.needs(changes.len(), growth);
        if growth.is_none() || self.has_slots(needs, REMOVALS_KEPT) {
            return Ok(Slots::Enough(needs));
        }
        let growth = match self.state.catalogue.exact_growth_of(changes) {
            Ok(growth) => growth,
            Err(Obstacle::NotHere | Obstacle::Lost) => return Err(Wait::Leaves),
        };
        // That a life is over is put on record, which takes a little room; it will give more.
        let others = changes.iter().filter(|change| change.key.kind != Kind::Ended);
        let kept = if self.state.catalogue.growth_of(others).is_none() { 0 } else { REMOVALS_KEPT };
        let needs = self.state.catalogue.needs(changes.len(), growth);
        if growth.is_none() || self.has_slots(needs, kept) {
            return Ok(Slots::Enough(needs));
        }
        if self.sweeping.from.is_some() {
            // What removed objects left goes first.
            self.sweeping.wanted = true;
            return Err(Wait::Room);
        }
        if self.state.catalogue.may_need_less() {
            // Merging shows how few slots that takes.
            self.checkpoint.merging_wanted = true;
            return Err(Wait::Room);
        }
        if !self.may_claim_slots(needs, kept) {
            return Ok(Slots::TooFew);
        }
        if self.reserving {
            return Err(Wait::Room);
        }
        let (left, free) = (self.slots.total() - self.slots.frontier(), self.slots.free());
        if left > 0 && self.merging.refusals < 2 {
            let missing = (self.free_slots_for(needs, kept).saturating_sub(u64::from(free)) as u32).min(left);
            let step = if self.merging.refusals == 0 { missing.max(RESERVE_STEP) } else { missing };
            self.reserve(step.min(left), out);
            return Err(Wait::Room);
        }
        let used = u64::from(self.state.map.mapped()) + self.state.catalogue.used_slots();
        let on_their_way = u64::from(self.slots.frontier() - free - self.state.bad.len() as u32) - used;
        // Overwrites give back as many as they hold: enough for what is removed.
        if on_their_way > 0 && (left == 0 || kept == 0) { Err(Wait::Room) } else { Ok(Slots::TooFew) }
    }

    fn has_slots(&self, needs: Needs, kept: u64) -> bool {
        self.may_claim_slots(needs, kept) && u64::from(self.slots.free()) >= self.free_slots_for(needs, kept)
    }

    fn may_claim_slots(&self, needs: Needs, kept: u64) -> bool {
        let roots_max = self.geometry().journal_length / ROOTS_SHARE;
        needs.slots + kept <= self.state.objects.room() && roots_len(needs.nodes) <= roots_max
    }

    /// What is kept for overwrites of whole chunks stays.
    fn free_slots_for(&self, needs: Needs, kept: u64) -> u64 {
        needs.free + kept + u64::from(self.spare_kept())
    }
}

fn kept_for_removals(needs: Needs) -> u64 {
    if needs.slots > 0 { REMOVALS_KEPT } else { 0 }
}

/// Whether there are slots for changes.
pub(crate) enum Slots {
    /// This is what merging needs with them, and it has it.
    Enough(Needs),
    /// It can't grow so much.
    TooFew,
}
