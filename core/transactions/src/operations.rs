//! Operations that are not answered: their time-outs, and operations that were abandoned. Their back-off is in [`crate::retry`].
//!
//! The user of an *abandoned* operation is gone: for instance, the connection of a front end's client has ended. The
//! client will ask again on another connection, and the old request must not undo the effect of the new one. So an
//! abandoned operation makes no further attempt. It ends at once if it has sent no write; otherwise it ends with the
//! attempt that is under way, committed or not.
//!
//! Until then, later operations on the same blocks wait. Stamps and locks would also keep the two in order, but volumes
//! without ordering have neither, and a write must not compute parity from blocks that an older write is just changing.
//! The wait ends at the latest with the old operation's time-out.
//!
//! A write that has *failed* with an unknown outcome keeps what protects it until it is decided: its locks, and the order
//! of stamps at the devices. Without ordering there is neither, and its writes are sent again until they are accepted. So
//! later writes to its blocks wait for it.
//!
//! A *patient* operation ([`braid_machine::Patience`]) waits for devices, lock servers and the membership that it needs,
//! and goes on when they are back: without end, or for some time, after which it is like any other. While it waits it
//! has no transaction, so it holds back nobody. Each of its attempts has the host's time-out: its intents would hold back
//! other hosts for as long as one device does not answer this host. The number of patient operations is bounded, so that
//! the background jobs that bring devices back always have room.

use crate::ctx::OperationId;
use crate::retry::Refusals;
use crate::transaction::Transaction;
use crate::transactions::Transactions;
use crate::work::{Work, plan};
use braid_base::limits::Settings;
use braid_base::{Clock, DeviceId, Now, Stamp, Time, Timers, TransactionId};
use braid_layout::{Share, VolumeDescription};
use braid_machine::{ClockCause, HostError, HostRequest, JobRequest, Patience};
use braid_membership::client::MembershipView;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

/// The number of device leases for which an operation, or a resolution, keeps asking devices that find its stamp too
/// far ahead. Within one lease each, a serving device has told the monitor which stamps it has accepted, and has heard
/// from it which stamps others have.
pub(crate) const LEASES_ASKED: u32 = 2;

/// The operations that are not answered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Operations {
    /// Boxed because operations are large: the map need not move them.
    open: BTreeMap<OperationId, Box<Operation>>,
    /// Operations that are abandoned and have sent a write.
    abandoned: BTreeSet<OperationId>,
    /// Operations that wait for abandoned ones.
    behind: BTreeSet<OperationId>,
    /// Patient operations, and until when they are.
    patient: BTreeMap<OperationId, Until>,
    /// Those that wait until they can be planned, and the devices that they lack.
    lacking: BTreeMap<OperationId, Vec<DeviceId>>,
    timers: Timers<OperationTimer>,
}

/// A request of a front end that is not yet answered.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub op: OperationId,
    pub volume: Rc<VolumeDescription>,
    pub request: HostRequest,
    /// The plan, for the devices that were there when it was made.
    pub work: Rc<Work>,
    /// The version of the membership view that the plan is for
    /// ([`MembershipView::version`](braid_membership::client::MembershipView::version)).
    pub view: u64,
    /// Devices that have lost blocks that it asked for: it continues without them.
    pub damaged: BTreeSet<DeviceId>,
    /// When it was started.
    pub since: Time,
    pub refusals: Refusals,
    /// The sequence of its transaction under way. `None` while it backs off.
    pub attempt: Option<u64>,
    /// Its interrupted transaction whose parity resync it waits for.
    pub awaits_resync: Option<TransactionId>,
    /// Whether any of its attempts had to wait or was refused.
    pub delayed: bool,
    /// The error to report, if its attempt turns out to have left nothing.
    pub failure: Option<HostError>,
}

/// Until when an operation is patient.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Until {
    Endless,
    At(Time),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum OperationTimer {
    /// Its time is up, or that of its attempt, or its patience.
    Expire(OperationId),
    /// Its back-off is over.
    Retry(OperationId),
}

impl Operations {
    pub fn len(&self) -> usize {
        self.open.len()
    }

    pub fn get(&self, op: OperationId) -> Option<&Operation> {
        self.open.get(&op).map(|operation| &**operation)
    }

    /// An operation that is not answered.
    pub fn of(&self, op: OperationId) -> &Operation {
        &self.open[&op]
    }

    pub fn of_mut(&mut self, op: OperationId) -> &mut Operation {
        self.open.get_mut(&op).expect("an attempt knows its operation")
    }

    pub fn iter(&self) -> impl Iterator<Item = &Operation> {
        self.open.values().map(|operation| &**operation)
    }

    pub fn all(&self) -> Vec<OperationId> {
        self.open.keys().copied().collect()
    }

    /// The operations that wait to be retried.
    pub fn waiting(&self) -> Vec<OperationId> {
        self.iter().filter(|operation| operation.attempt.is_none()).map(|operation| operation.op).collect()
    }

    /// True if there is an operation of a user.
    pub fn has_users(&self) -> bool {
        self.open.keys().next().is_some_and(|op| matches!(op, OperationId::User(_)))
    }

    /// Adds an operation, with the time until it expires.
    pub fn open(&mut self, now: Time, operation: Operation, patience: Duration) {
        let op = operation.op;
        let until = match operation.request.patience() {
            Patience::Host => None,
            Patience::For(span) => Some(Until::At(now.after(span))),
            Patience::Endless => Some(Until::Endless),
        };
        self.patient.extend(until.map(|until| (op, until)));
        let before = self.open.insert(op, Box::new(operation));
        assert!(before.is_none(), "operations have different names");
        self.expire_after(now, op, patience);
    }

    /// Sets the time-out of an operation, or of its attempt. The end of its patience comes first.
    fn expire_after(&mut self, now: Time, op: OperationId, timeout: Duration) {
        let end = match self.patient.get(&op) {
            Some(Until::At(until)) => now.after(timeout).min(*until),
            Some(Until::Endless) | None => now.after(timeout),
        };
        self.timers.set(OperationTimer::Expire(op), end);
    }

    /// Removes an operation that is about to be answered. If it was abandoned, the operations that wait for it are
    /// retried.
    pub fn close(&mut self, op: OperationId) -> Operation {
        let operation = self.open.remove(&op).expect("an operation is answered once");
        self.timers.cancel(OperationTimer::Expire(op));
        if operation.attempt.is_none() {
            self.timers.cancel(OperationTimer::Retry(op));
        }
        self.behind.remove(&op);
        self.patient.remove(&op);
        self.lacking.remove(&op);
        if self.abandoned.remove(&op) {
            for waiting in std::mem::take(&mut self.behind) {
                if self.get(waiting).is_some_and(|operation| operation.attempt.is_none()) {
                    self.retry_at(waiting, Time(0));
                }
            }
        }
        *operation
    }

    pub fn retry_at(&mut self, op: OperationId, time: Time) {
        self.timers.set(OperationTimer::Retry(op), time);
    }

    pub fn next_timer(&self) -> Option<(Time, OperationTimer)> {
        self.timers.next()
    }

    pub fn take_timer(&mut self, timer: OperationTimer) {
        self.timers.cancel(timer);
    }

    /// A parity resync is over: the operations that waited for it are retried.
    pub fn on_resynced(&mut self, now: Now, transaction: TransactionId) {
        let waits = |operation: &&mut Box<Operation>| operation.awaits_resync == Some(transaction);
        for operation in self.open.values_mut().filter(waits) {
            operation.awaits_resync = None;
            if operation.attempt.is_none() {
                self.timers.set(OperationTimer::Retry(operation.op), now.time);
            }
        }
    }

    /// The user of an operation that has sent a write is gone. `timeout`: from now on, if it was patient.
    pub fn abandon(&mut self, now: Time, op: OperationId, timeout: Duration) {
        self.abandoned.insert(op);
        self.end_patience(now, op, timeout);
    }

    /// From now on the operation is like any other, with this time-out. False if it was so already.
    pub fn end_patience(&mut self, now: Time, op: OperationId, timeout: Duration) -> bool {
        let was_patient = self.patient.remove(&op).is_some();
        if was_patient {
            self.expire_after(now, op, timeout);
        }
        was_patient
    }

    /// True if the operation does not fail now because something is missing.
    pub fn is_patient(&self, op: OperationId) -> bool {
        self.patient.contains_key(&op)
    }

    /// True if the operation never fails because something is missing.
    pub fn is_endless(&self, op: OperationId) -> bool {
        self.patient.get(&op) == Some(&Until::Endless)
    }

    /// True if the patience of an operation is over.
    pub fn has_waited_enough(&self, now: Time, op: OperationId) -> bool {
        matches!(self.patient.get(&op), Some(Until::At(until)) if *until <= now)
    }

    pub fn patient(&self) -> impl ExactSizeIterator<Item = OperationId> + '_ {
        self.patient.keys().copied()
    }

    /// Those that wait until they can be planned, and the devices that they lack.
    pub fn lacking(&self) -> &BTreeMap<OperationId, Vec<DeviceId>> {
        &self.lacking
    }

    /// Lets a patient operation wait for the host's time-out once more.
    pub fn prolong(&mut self, now: Time, settings: &Settings, op: OperationId) {
        self.expire_after(now, op, settings.request_timeout);
    }

    /// A patient operation can't be planned without devices that are not there. It is retried when the membership or the
    /// set of unavailable devices changes, and now and then.
    pub fn wait_for_devices(&mut self, now: Time, settings: &Settings, op: OperationId, devices: Vec<DeviceId>) {
        self.of_mut(op).delayed = true;
        self.lacking.insert(op, devices);
        self.retry_at(op, now.after(settings.resend_max));
    }

    /// The operation can be planned.
    pub fn lacks_nothing(&mut self, op: OperationId) {
        self.lacking.remove(&op);
    }

    /// True if the operation is not to be retried.
    pub fn is_abandoned(&self, op: OperationId) -> bool {
        self.abandoned.contains(&op)
    }

    /// True if an operation of a user has to wait for an abandoned one, which is retried when that one has ended; or if
    /// it writes, and has to wait for the writes of one that has failed.
    pub fn awaits_others(&mut self, op: OperationId, transactions: &Transactions) -> bool {
        let insistent = transactions.insistent();
        if (self.abandoned.is_empty() && insistent.is_empty()) || matches!(op, OperationId::Job(_)) {
            return false;
        }
        // An abandoned operation whose attempt is over makes no other.
        let mut attempts = self.abandoned.iter().filter_map(|abandoned| self.open[abandoned].attempt);
        let operation = &self.open[&op];
        if attempts.any(|attempt| operation.touches(transactions.of(attempt))) {
            self.behind.insert(op);
            return true;
        }
        operation.work.writes() && insistent.iter().any(|sequence| operation.touches(transactions.of(*sequence)))
    }

    /// A device has lost blocks that an operation asked for. True if the operation can be planned so that they are
    /// reconstructed from the rest of their stripes; it is then planned so. It writes to the device as always, which
    /// makes parity consistent again.
    pub fn can_do_without(&mut self, view: &MembershipView, op: OperationId, device: DeviceId) -> bool {
        let operation = self.of_mut(op);
        let replaces = match operation.request {
            HostRequest::Job(JobRequest::Check { .. })
            | HostRequest::Job(JobRequest::CheckRows { .. })
            | HostRequest::Job(JobRequest::CrossCheck { .. })
            | HostRequest::Job(JobRequest::Recompute { .. })
            | HostRequest::Job(JobRequest::Reconstruct { .. }) => false,
            _ => operation.volume.layout.redundancy_units() > 0 && !operation.damaged.contains(&device),
        };
        let mut damaged = operation.damaged.clone();
        damaged.insert(device);
        if !replaces || plan(view, &operation.volume, &operation.request, &damaged).is_err() {
            return false;
        }
        // Forces a new plan.
        (operation.damaged, operation.view) = (damaged, 0);
        true
    }

    /// Asserts that each operation has a deadline, and an attempt or a scheduled retry.
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
        for op in self.patient.keys() {
            assert!(self.open.contains_key(op), "a patient operation is forgotten when it ends: {op:?}");
        }
        for op in self.lacking.keys() {
            assert!(self.open[op].attempt.is_none(), "an operation that lacks devices has no attempt: {op:?}");
        }
        for op in &self.behind {
            assert!(self.open.contains_key(op), "a waiting operation is forgotten when it ends: {op:?}");
        }
    }
}

impl Operation {
    /// A new operation, with its first plan.
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
            refusals: Refusals::default(),
            attempt: None,
            awaits_resync: None,
            delayed: false,
            failure: None,
        }
    }

    /// True if it reads or writes, on any device, blocks that the transaction writes.
    fn touches(&self, other: &Transaction) -> bool {
        let meet = |mine: &Share, theirs: &Share| {
            let mut ranges = mine.prewrites.iter().chain(&mine.reads);
            self.volume.device_at(mine.position) == other.volume.device_at(theirs.position)
                && ranges.any(|range| theirs.prewrites.iter().any(|written| written.overlaps(*range)))
        };
        self.volume.id == other.volume.id
            && self.work.shares().iter().any(|mine| other.work.shares().iter().any(|theirs| meet(mine, theirs)))
    }

    /// A device whose clock is `theirs` has refused the operation's stamp as too far ahead. Returns the error if the
    /// operation fails; `None` if it is to be retried. If this host's clock is ahead of the device's, and was so at the
    /// attempt before or when the write was announced (`announced`), then one of the two is wrong. Otherwise the stamp is ahead because another device has accepted
    /// such stamps, and the monitor tells the refusing device with its next lease.
    pub fn on_too_far_ahead(
        &mut self,
        now: Now,
        settings: &Settings,
        stamp: Stamp,
        announced: bool,
        (device, theirs): (DeviceId, Clock),
    ) -> Option<HostError> {
        let limit = settings.stamp_ahead_max;
        let patience = settings.device_lease * LEASES_ASKED;
        // After a lease without such a refusal, the operation has waited for something else since.
        let before = self.refusals.too_far_ahead.filter(|(_, last)| now.time.since(*last) <= settings.device_lease);
        let first = before.map_or(now.time, |(first, _)| first);
        (self.refusals.too_far_ahead, self.refusals.head_start) = (Some((first, now.time)), Duration::ZERO);
        let (cause, ours, fails) = if now.clock > theirs.ahead(limit) {
            (ClockCause::Host, now.clock, before.is_some() || announced)
        } else {
            (ClockCause::Stamps, stamp.clock, now.time.since(first) >= patience)
        };
        fails.then_some(HostError::ClockApart { device, ahead: ours.since(theirs), limit, cause })
    }
}
