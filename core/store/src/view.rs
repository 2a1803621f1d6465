//! What the queues of a store share, lent to the one at work: they know each other only by this.

use crate::disk_queue::DiskQueue;
use crate::record::Queued;
use crate::slots::Slots;
use crate::state::State;
use crate::{StoreError, StoreEvent};
use braid_base::Time;
use braid_machine::{DiskError, Effects};
use std::collections::VecDeque;

/// The journal of a store.
pub(crate) type Journal = braid_journal::Journal<Queued, Due>;

/// What follows when a batch is durable.
#[derive(Debug, Default)]
pub(crate) struct Due {
    /// What may be said.
    pub events: Vec<StoreEvent>,
    /// Slots that are free.
    pub released: Vec<u32>,
    /// New roots of the object index are in it.
    pub has_roots: bool,
    /// Changes of objects are in it: until then, answers that may show them wait.
    pub has_changes: bool,
}

/// What the store has to say.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pub events: VecDeque<StoreEvent>,
    /// The store can't go on.
    pub is_broken: bool,
}

impl Outbox {
    /// Without its journal or its map a store is none.
    pub fn give_up(&mut self, error: DiskError) {
        self.is_broken = true;
        self.events.push_back(StoreEvent::Unusable(StoreError::Disk(error)));
    }
}

/// What the queues share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub state: State,
    pub slots: Slots,
    pub journal: Journal,
    pub disk: DiskQueue,
    pub outbox: Outbox,
    pub now: Time,
}

/// The same, as long as a queue is at work.
pub(crate) struct View<'a> {
    pub now: Time,
    pub state: &'a mut State,
    pub slots: &'a mut Slots,
    pub journal: &'a mut Journal,
    pub disk: &'a mut DiskQueue,
    pub outbox: &'a mut Outbox,
    pub out: &'a mut Effects,
    /// Somebody waits for room in another queue: known to whoever may be told to [linger](View::linger).
    pub others_wait: bool,
}

impl Shared {
    pub fn view<'a>(&'a mut self, out: &'a mut Effects) -> View<'a> {
        let Shared { state, slots, journal, disk, outbox, now } = self;
        View { now: *now, state, slots, journal, disk, outbox, out, others_wait: false }
    }
}

impl View<'_> {
    /// Says something at once.
    pub fn tell(&mut self, event: StoreEvent) {
        self.outbox.events.push_back(event);
    }

    /// Says something when all that has happened is durable.
    pub fn tell_when_durable(&mut self, event: StoreEvent) {
        self.journal.then.events.push(event);
        self.journal.hurry();
    }

    /// What was noted is in no hurry; unless somebody waits, as slots and room come back with decisions.
    pub fn linger(&mut self, somebody_waits: bool) {
        self.journal.linger(self.now);
        if somebody_waits || self.others_wait {
            self.journal.hurry();
        }
    }

    /// Whatever is decided gives room when it is durable: somebody waits for that.
    pub fn hurry_decisions(&mut self) {
        if !self.journal.then.events.is_empty() {
            self.journal.hurry();
        }
    }
}
