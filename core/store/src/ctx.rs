//! The state that a store's queues share. It is lent to one queue at a time; the queues have no other access to each other.

use crate::disk_queue::DiskQueue;
use crate::free_slots::Slots;
use crate::journal_format::Queued;
use crate::state::State;
use crate::{StoreError, StoreEvent};
use braid_base::Time;
use braid_machine::{DiskError, Effects};
use std::collections::VecDeque;

/// The journal of a store.
pub(crate) type Journal = braid_journal::Journal<Queued, Due>;

/// What to do when a batch is durable.
#[derive(Clone, Debug, Default)]
pub(crate) struct Due {
    /// Events to be sent.
    pub events: Vec<StoreEvent>,
    /// Slots to be freed.
    pub released: Vec<u32>,
    /// The batch holds new roots of the object index.
    pub has_roots: bool,
    /// The batch holds changes of objects: answers that may show them wait for it.
    pub has_changes: bool,
}

/// Events for the device.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outbox {
    pub events: VecDeque<StoreEvent>,
    /// The store has failed.
    pub is_broken: bool,
}

impl Outbox {
    /// Ends the store: it can't continue without its journal or its map.
    pub fn give_up(&mut self, error: DiskError) {
        self.is_broken = true;
        self.events.push_back(StoreEvent::Unusable(StoreError::Disk(error)));
    }
}

/// The shared state.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub state: State,
    pub slots: Slots,
    pub journal: Journal,
    pub disk: DiskQueue,
    pub outbox: Outbox,
    pub now: Time,
}

/// The shared state, while it is lent to a queue.
pub(crate) struct Ctx<'a> {
    pub now: Time,
    pub state: &'a mut State,
    pub slots: &'a mut Slots,
    pub journal: &'a mut Journal,
    pub disk: &'a mut DiskQueue,
    pub outbox: &'a mut Outbox,
    pub out: &'a mut Effects,
    /// Requests in another queue wait for room: see [`Ctx::linger`].
    pub others_wait: bool,
}

impl Shared {
    pub fn ctx<'a>(&'a mut self, out: &'a mut Effects) -> Ctx<'a> {
        let Shared { state, slots, journal, disk, outbox, now } = self;
        Ctx { now: *now, state, slots, journal, disk, outbox, out, others_wait: false }
    }
}

impl Ctx<'_> {
    /// Sends an event at once.
    pub fn tell(&mut self, event: StoreEvent) {
        self.outbox.events.push_back(event);
    }

    /// Sends an event when everything noted before is durable.
    pub fn tell_when_durable(&mut self, event: StoreEvent) {
        self.journal.then.events.push(event);
        self.journal.hurry();
    }

    /// The last notes need not be written at once, unless requests wait: decisions free slots and room.
    pub fn linger(&mut self, somebody_waits: bool) {
        self.journal.linger(self.now);
        if somebody_waits || self.others_wait {
            self.journal.hurry();
        }
    }

    /// Decisions free slots and room when they are durable: has them written at once, because a request waits for that.
    pub fn hurry_decisions(&mut self) {
        if !self.journal.then.events.is_empty() {
            self.journal.hurry();
        }
    }
}
