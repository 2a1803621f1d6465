//! What was asked for and is not answered: the time-outs and the back-off of operations, and operations whose user is gone.
//!
//! The user of an *abandoned* operation is gone: a client of a front end whose connection has ended. It will ask again on another connection, and
//! what is done for the new request must not be undone by the old one. So an abandoned operation makes no further attempt: one that has no write
//! out ends at once, and one that has ends with the attempt that is under way, committed or not.
//!
//! Until then, operations that begin later and touch the same blocks wait. Stamps and locks would keep the two in order as well; but volumes
//! without ordering have neither, and a write must not compute parity from blocks that an old write is just changing. The wait ends with the
//! old operation's time-out at the latest.

use crate::ctx::OperationId;
use crate::transaction::Transaction;
use crate::transactions::Transactions;
use crate::work::{Work, plan};
use braid_base::limits::Settings;
use braid_base::{Clock, DeviceId, Now, Rng, Stamp, Time, Timers, TransactionId};
use braid_layout::{Share, VolumeDescription};
use braid_machine::{ClockCause, HostError, HostRequest};
use braid_membership::client::MembershipView;
use braid_wire::Step;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

/// For so many leases of devices an operation, or a resolution, goes on asking devices that find its stamp too far ahead. A device that serves has
/// told the monitor what it has accepted, and has heard from it what others have, within one lease each.
pub(crate) const LEASES_ASKED: u32 = 2;

/// All operations that are not answered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Operations {
    /// Large as they are, they are kept in boxes, so that their neighbours in the table need not be moved.
    open: BTreeMap<OperationId, Box<Operation>>,
    /// Those that are abandoned, and have a write out.
    abandoned: BTreeSet<OperationId>,
    /// Those that wait for abandoned ones.
    behind: BTreeSet<OperationId>,
    timers: Timers<OperationTimer>,
}

/// A request of a front end that is not yet answered.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    /// Whom to answer.
    pub op: OperationId,
    /// On which volume.
    pub volume: Rc<VolumeDescription>,
    /// What it asks for.
    pub request: HostRequest,
    /// How to do it, with the devices that were there when that was planned.
    pub work: Rc<Work>,
    /// Of which view of the array the plan is ([`MembershipView::version`](braid_membership::client::MembershipView::version)).
    pub view: u64,
    /// Devices that have lost blocks that it asked for: it does without them.
    pub damaged: BTreeSet<DeviceId>,
    /// When it was asked.
    pub since: Time,
    /// How often in a row it was refused.
    pub refusals: u32,
    /// When a device first refused it since its stamp was too far ahead, and when one did so last.
    pub too_far_ahead: Option<(Time, Time)>,
    /// Its transaction under way, by sequence; none while it backs off.
    pub attempt: Option<u64>,
    /// Its interrupted transaction whose parity resync it waits for.
    pub awaits_resync: Option<TransactionId>,
    /// Whether somebody was in the way of any of its attempts.
    pub delayed: bool,
    /// Why it fails, if its attempt turns out to have left nothing.
    pub failure: Option<HostError>,
}

/// Why an operation wakes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum OperationTimer {
    /// Its time is up.
    Expire(OperationId),
    /// It has backed off long enough.
    Retry(OperationId),
}

impl Operations {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    pub fn get(&self, op: OperationId) -> Option<&Operation> {
        self.open.get(&op).map(|operation| &**operation)
    }

    /// One that is not answered.
    pub fn of(&self, op: OperationId) -> &Operation {
        &self.open[&op]
    }

    /// The same, to change it.
    pub fn of_mut(&mut self, op: OperationId) -> &mut Operation {
        self.open.get_mut(&op).expect("an attempt knows its operation")
    }

    pub fn iter(&self) -> impl Iterator<Item = &Operation> {
        self.open.values().map(|operation| &**operation)
    }

    /// All of them.
    pub fn all(&self) -> Vec<OperationId> {
        self.open.keys().copied().collect()
    }

    /// Those that wait to try again.
    pub fn waiting(&self) -> Vec<OperationId> {
        self.iter().filter(|operation| operation.attempt.is_none()).map(|operation| operation.op).collect()
    }

    /// True if any is of a user.
    pub fn has_users(&self) -> bool {
        self.open.keys().next().is_some_and(|op| matches!(op, OperationId::User(_)))
    }

    /// Takes one up, which expires in so long.
    pub fn open(&mut self, now: Time, operation: Operation, patience: Duration) {
        let op = operation.op;
        let before = self.open.insert(op, Box::new(operation));
        assert!(before.is_none(), "a front end numbers its requests");
        self.timers.set(OperationTimer::Expire(op), now.after(patience));
    }

    /// One is about to be answered. What waits for it, since it is abandoned, tries again.
    pub fn close(&mut self, op: OperationId) -> Operation {
        let operation = self.open.remove(&op).expect("an operation is answered once");
        self.timers.cancel(OperationTimer::Expire(op));
        if operation.attempt.is_none() {
            self.timers.cancel(OperationTimer::Retry(op));
        }
        self.behind.remove(&op);
        if self.abandoned.remove(&op) {
            for waiting in std::mem::take(&mut self.behind) {
                if self.get(waiting).is_some_and(|operation| operation.attempt.is_none()) {
                    self.retry_at(waiting, Time(0));
                }
            }
        }
        *operation
    }

    /// One tries again at this time.
    pub fn retry_at(&mut self, op: OperationId, time: Time) {
        self.timers.set(OperationTimer::Retry(op), time);
    }

    /// The attempt of one is over, and it tries again when it has backed off.
    pub fn try_again(&mut self, now: Now, settings: &Settings, rng: &mut Rng, op: OperationId) {
        let is_abandoned = self.is_abandoned(op);
        let operation = self.of_mut(op);
        operation.attempt = None;
        operation.refusals += 1;
        operation.delayed = true;
        // The first retry knows the stamp to beat, so it need not wait; those that lose again get out of each other's way.
        let wait = match operation.refusals {
            _ if is_abandoned => Duration::ZERO,
            1 => Duration::ZERO,
            more => {
                let most = (settings.backoff_min * 2u32.saturating_pow(more.min(16))).min(settings.backoff_max);
                Duration::from_nanos(rng.between(settings.backoff_min.as_nanos() as u64, most.as_nanos() as u64))
            }
        };
        self.retry_at(op, now.time.after(wait));
    }

    /// The attempt of one is over through no fault of its own: it tries again at once.
    pub fn begin_anew(&mut self, now: Now, op: OperationId) {
        let operation = self.of_mut(op);
        operation.attempt = None;
        operation.delayed = true;
        self.retry_at(op, now.time);
    }

    /// What is to be done next, and when.
    pub fn next_timer(&self) -> Option<(Time, OperationTimer)> {
        self.timers.next()
    }

    /// That is being done.
    pub fn take_timer(&mut self, timer: OperationTimer) {
        self.timers.cancel(timer);
    }

    /// A parity resync is over: what has waited for it tries again.
    pub fn on_resynced(&mut self, now: Now, transaction: TransactionId) {
        let waits = |operation: &&mut Box<Operation>| operation.awaits_resync == Some(transaction);
        for operation in self.open.values_mut().filter(waits) {
            operation.awaits_resync = None;
            if operation.attempt.is_none() {
                self.timers.set(OperationTimer::Retry(operation.op), now.time);
            }
        }
    }

    /// The user of one that has a write out is gone.
    pub fn abandon(&mut self, op: OperationId) {
        self.abandoned.insert(op);
    }

    /// True if it is not to be tried again.
    pub fn is_abandoned(&self, op: OperationId) -> bool {
        self.abandoned.contains(&op)
    }

    /// True if an operation of a user has to wait for an abandoned one: it is woken when that has ended.
    pub fn awaits_abandoned(&mut self, op: OperationId, transactions: &Transactions) -> bool {
        if self.abandoned.is_empty() || matches!(op, OperationId::Job(_)) {
            return false;
        }
        // One whose attempt is over makes no other.
        let mut attempts = self.abandoned.iter().filter_map(|abandoned| self.open[abandoned].attempt);
        let waits = attempts.any(|attempt| self.open[&op].touches(transactions.of(attempt)));
        if waits {
            self.behind.insert(op);
        }
        waits
    }

    /// A device has lost blocks that an operation asked for: true if it can be planned so that they are worked out from the rest of their
    /// stripes, as it then is. It writes there as always, which makes parity consistent again.
    pub fn can_do_without(&mut self, view: &MembershipView, op: OperationId, device: DeviceId) -> bool {
        let operation = self.of_mut(op);
        let replaces = match operation.request {
            HostRequest::Check { .. }
            | HostRequest::CheckRows { .. }
            | HostRequest::CrossCheck { .. }
            | HostRequest::Recompute { .. }
            | HostRequest::Reconstruct { .. } => false,
            _ => operation.volume.layout.redundancy_units() > 0 && !operation.damaged.contains(&device),
        };
        let mut damaged = operation.damaged.clone();
        damaged.insert(device);
        if !replaces || plan(view, &operation.volume, &operation.request, &damaged).is_err() {
            return false;
        }
        // To be planned anew.
        (operation.damaged, operation.view) = (damaged, 0);
        true
    }

    /// Asserts that each has a deadline, and an attempt or a time to try again.
    pub fn invariants(&self, transactions: &Transactions) {
        for (op, operation) in &self.open {
            let retries = self.timers.deadline_of(OperationTimer::Retry(*op)).is_some();
            match operation.attempt {
                Some(sequence) => {
                    let transaction = transactions.get(sequence).expect("an attempt is a transaction");
                    assert_eq!(transaction.op, Some(*op), "an operation and its attempt know each other");
                    assert!(!retries, "an operation tries again when its attempt is over");
                }
                None => assert!(retries, "an operation without an attempt is going to try again"),
            }
            let expires = self.timers.deadline_of(OperationTimer::Expire(*op)).is_some();
            assert!(expires, "every wait has a deadline");
        }
        for op in &self.abandoned {
            assert!(self.open.contains_key(op), "an abandoned operation is forgotten when it ends: {op:?}");
        }
        for op in &self.behind {
            assert!(self.open.contains_key(op), "and so is one that waits for it: {op:?}");
        }
    }
}

impl Operation {
    /// One that was just asked for, with its first plan.
    pub fn new(
        now: Now,
        op: OperationId,
        volume: Rc<VolumeDescription>,
        request: HostRequest,
        (work, view): (Rc<Work>, u64),
    ) -> Operation {
        Operation {
            op,
            volume,
            request,
            work,
            view,
            since: now.time,
            damaged: BTreeSet::new(),
            refusals: 0,
            too_far_ahead: None,
            attempt: None,
            awaits_resync: None,
            delayed: false,
            failure: None,
        }
    }

    /// True if it reads or writes, on any device, what a transaction writes.
    fn touches(&self, other: &Transaction) -> bool {
        let meet = |mine: &Share, theirs: &Share| {
            let mut ranges = mine.prewrites.iter().chain(&mine.reads);
            self.volume.device_at(mine.position) == other.volume.device_at(theirs.position)
                && ranges.any(|range| theirs.prewrites.iter().any(|written| written.overlaps(*range)))
        };
        self.volume.id == other.volume.id
            && self.work.shares().iter().any(|mine| other.work.shares().iter().any(|theirs| meet(mine, theirs)))
    }

    /// Why it fails since a device, whose clock is `theirs`, finds its stamp too far ahead; none if it is to be tried again. If this host's clock
    /// is ahead of the device's, and was when the operation was tried before, then one of the two is wrong. Otherwise the stamp is ahead
    /// since another device has accepted such stamps, and the monitor tells that to this one with its next lease.
    pub fn on_too_far_ahead(
        &mut self,
        now: Now,
        settings: &Settings,
        stamp: Stamp,
        step: Step,
        (device, theirs): (DeviceId, Clock),
    ) -> Option<HostError> {
        let limit = settings.stamp_ahead_max;
        let patience = settings.device_lease * LEASES_ASKED;
        // If it has not been refused so for a lease, then it has waited for something else since.
        let before = self.too_far_ahead.filter(|(_, last)| now.time.since(*last) <= settings.device_lease);
        let first = before.map_or(now.time, |(first, _)| first);
        self.too_far_ahead = Some((first, now.time));
        let (cause, ours, fails) = if now.clock > theirs.ahead(limit) {
            (ClockCause::Host, now.clock, before.is_some() || step == Step::Write)
        } else {
            (ClockCause::Stamps, stamp.clock, now.time.since(first) >= patience)
        };
        fails.then_some(HostError::ClockApart { device, ahead: ours.since(theirs), limit, cause })
    }
}
