//! The coordinator takes operations and returns their outcomes. Answers of devices, and its own timers, drive it.

use crate::contention::Contention;
use crate::counters::HostCounters;
use crate::ctx::{Ctx, Event, OperationId};
use crate::cuts::Cuts;
use crate::operations::{Operation, OperationTimer, Operations};
use crate::resolutions::Resolutions;
use crate::transactions::Transactions;
use crate::work::{plan, plan_whole};
use braid_base::limits::Settings;
use braid_base::{Clock, DeviceId, Generation, Now, StampSource, Time, TransactionId, VolumeId, limits};
use braid_layout::{Old, VolumeDescription};
use braid_machine::{HostError, HostOutcome, HostRequest, ObjectsRequest, OpId, Patience};
use braid_membership::client::MembershipView;
use braid_wire::Reply;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

/// The coordinator of a host's storage transactions; see the crate.
#[derive(Clone, Debug, Default)]
pub struct Coordinator {
    pub(crate) stamps: StampSource,
    pub(crate) operations: Operations,
    pub(crate) transactions: Transactions,
    pub(crate) resolutions: Resolutions,
    pub(crate) contention: Contention,
    pub(crate) cuts: Cuts,
    pub(crate) events: VecDeque<Event>,
    pub(crate) counters: HostCounters,
    /// How many operations failed for want of space, by volume.
    refused_for_space: BTreeMap<VolumeId, u64>,
    /// The array refuses this host for good.
    fenced: bool,
}

/// How many operations failed for want of space, by volume.
pub fn refused_for_space(coordinator: &Coordinator) -> impl Iterator<Item = (VolumeId, u64)> + '_ {
    coordinator.refused_for_space.iter().map(|(volume, count)| (*volume, *count))
}

/// So many volumes are counted for which there was no space.
const SHORT_VOLUMES_MAX: usize = 256;

/// The operations that are abandoned.
#[derive(Clone, Copy, Debug)]
pub enum Abandoned<'a> {
    /// Their users are gone.
    Users(&'a [OpId]),
    /// All that are patient: the host is disconnecting.
    Patient,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Timer {
    /// An operation's time is up, or it is to be retried.
    Operation(OperationTimer),
    /// Devices have not answered a transaction.
    Resend(u64),
    /// Devices have not answered a resolution.
    Resolve(TransactionId),
}

impl Coordinator {
    /// A coordinator without operations.
    pub fn new(host: Generation) -> Coordinator {
        Coordinator { stamps: StampSource::new(host), ..Coordinator::default() }
    }

    /// Takes out the next event for the owner.
    pub fn pop_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Starts an operation. [`Event::Ended`] reports its outcome.
    pub fn start(&mut self, ctx: &mut Ctx, op: OperationId, volume: Rc<VolumeDescription>, request: HostRequest) {
        let is_patient = request.patience() != Patience::Host;
        let full = self.operations.len() >= limits::OPERATIONS_MAX
            || self.transactions.len() >= limits::HOST_TRANSACTIONS_MAX
            || (is_patient && self.operations.patient().len() >= limits::PATIENT_OPERATIONS_MAX);
        let mut view = ctx.view.version().unwrap_or(0);
        let mut planned = if self.fenced {
            Err(HostError::Fenced)
        } else if volume.ordering.needs_lock_server() && !ctx.locks.has_servers() {
            Err(HostError::NoLockServer)
        } else if full {
            Err(HostError::Busy)
        } else {
            plan(ctx.view, &volume, &request, &BTreeSet::new())
        };
        if is_patient && matches!(planned, Err(HostError::Unavailable { .. })) {
            // To find out whether the request is valid. It is planned again before its first attempt.
            (planned, view) = (plan_whole(&volume, &request), 0);
        }
        let work = match planned {
            Ok(work) if !work.shares().is_empty() => Rc::new(work),
            at_once => {
                let outcome = at_once.map(|work| work.result(&Old::new()));
                return self.events.push_back(Event::Ended { op, outcome });
            }
        };
        let patience = match &request {
            HostRequest::Objects(ObjectsRequest::ExecuteOnVolume { patience, .. }) => {
                ctx.settings.request_timeout.min(*patience)
            }
            _ => ctx.settings.request_timeout,
        };
        self.counters.operations += 1;
        self.operations.open(ctx.now.time, Operation::new(ctx.now, op, volume, request, (work, view)), patience);
        self.attempt(ctx, op);
    }

    /// The users of operations are gone, or the host is disconnecting: those that have sent no write end, the others make
    /// no further attempt. Operations that are answered already, and requests that are not storage transactions, are not
    /// affected.
    pub fn abandon(&mut self, ctx: &mut Ctx, which: Abandoned) {
        let (ops, error): (Vec<_>, _) = match which {
            Abandoned::Users(ops) => (ops.iter().map(|op| OperationId::User(*op)).collect(), HostError::Abandoned),
            Abandoned::Patient => (self.operations.patient().collect(), HostError::Disconnecting),
        };
        for op in ops {
            let Some(operation) = self.operations.get(op) else { continue };
            if operation.attempt.is_some_and(|sequence| self.transactions.of(sequence).wrote) {
                self.operations.abandon(ctx.now.time, op, ctx.settings.request_timeout);
                self.operations.of_mut(op).failure.get_or_insert_with(|| error.clone());
            } else {
                self.give_up(ctx, op, error.clone());
            }
        }
    }

    /// This host is fenced: all operations fail.
    pub fn on_fenced(&mut self, ctx: &mut Ctx) {
        self.fenced = true;
        for op in self.operations.all() {
            self.give_up(ctx, op, HostError::Fenced);
        }
    }

    /// A device has answered about a transaction.
    pub fn on_reply(&mut self, ctx: &mut Ctx, device: DeviceId, reply: Reply) {
        if let Reply::Data { transaction, waited: true, .. }
        | Reply::Accepted { transaction, waited: true }
        | Reply::Written { transaction, waited: true } = &reply
            && let Some(op) = self.transactions.own(ctx, *transaction).and_then(|transaction| transaction.op)
        {
            self.operations.of_mut(op).delayed = true;
        }
        match reply {
            Reply::Data { transaction, pieces, .. } => self.on_data(ctx, device, transaction, pieces),
            Reply::Accepted { transaction, .. } => self.on_data(ctx, device, transaction, Vec::new()),
            Reply::Written { transaction, .. } => self.on_written(ctx, device, transaction),
            Reply::Executing { transaction, progress } => {
                if let Some(in_vain) = self.transactions.on_executing(ctx, device, transaction, progress) {
                    self.cuts.add(ctx.now.time, device, &in_vain);
                    self.lose(ctx, transaction.sequence, None);
                }
            }
            Reply::Refused { transaction, step, refusal } => self.on_refused(ctx, device, transaction, step, refusal),
            Reply::Failed { transaction, step, failure } => self.on_failed(ctx, device, transaction, step, failure),
            Reply::Blocked { transaction } => self.transactions.on_blocked(ctx, device, transaction),
            Reply::Decided { transaction, outcome } => self.on_decided(ctx, device, transaction, outcome),
            Reply::Vote { transaction, vote } => self.on_vote(ctx, device, transaction, vote),
            Reply::Forgotten { transaction } => {
                self.counters.resolved += u64::from(self.resolutions.on_forgotten(device, transaction));
            }
            Reply::Heartbeat { .. }
            | Reply::Managed { .. }
            | Reply::Rejected { .. }
            | Reply::Objects { .. }
            | Reply::Changed { .. } => unreachable!("these replies belong to no transaction"),
        }
    }

    /// A commit is durable on this device.
    pub fn on_confirmed(&mut self, ctx: &mut Ctx, device: DeviceId, sequence: u64) {
        self.transactions.on_confirmed(ctx, device, sequence);
    }

    /// A parity resync is over: the operations that waited for it are retried.
    pub fn on_resynced(&mut self, now: Now, transaction: TransactionId) {
        self.operations.on_resynced(now, transaction);
    }

    pub fn next_timer(&self) -> Option<(Time, Timer)> {
        let operation = self.operations.next_timer().map(|(time, timer)| (time, Timer::Operation(timer)));
        let resend = self.transactions.next_timer().map(|(time, sequence)| (time, Timer::Resend(sequence)));
        let resolve = self.resolutions.next_timer().map(|(time, id)| (time, Timer::Resolve(id)));
        operation.into_iter().chain(resend).chain(resolve).min()
    }

    pub fn wake(&mut self, ctx: &mut Ctx, timer: Timer) {
        match timer {
            Timer::Operation(timer) => {
                self.operations.take_timer(timer);
                match timer {
                    OperationTimer::Expire(op) => self.on_expired(ctx, op),
                    OperationTimer::Retry(op) => self.attempt(ctx, op),
                }
            }
            Timer::Resend(sequence) => self.counters.resent += u64::from(self.transactions.resend(ctx, sequence)),
            Timer::Resolve(id) => {
                self.counters.resent += 1;
                self.resolutions.ask_silent(ctx, id);
            }
        }
    }

    /// Answers an operation. Its transaction, if one is under way, continues without it.
    pub(crate) fn finish(&mut self, op: OperationId, outcome: HostOutcome) {
        let operation = self.operations.close(op);
        if let Some(transaction) = operation.attempt.and_then(|sequence| self.transactions.get_mut(sequence)) {
            transaction.op = None;
        }
        self.counters.delayed += u64::from(operation.delayed);
        let (volume, short) = (operation.volume.id, &mut self.refused_for_space);
        if outcome.as_ref().is_err_and(HostError::is_want_of_space)
            && (short.len() < SHORT_VOLUMES_MAX || short.contains_key(&volume))
        {
            *short.entry(volume).or_default() += 1;
        }
        self.events.push_back(Event::Ended { op, outcome });
    }
}

/// Inspection of the coordinator's state.
impl Coordinator {
    pub fn counters(&self) -> &HostCounters {
        &self.counters
    }

    /// True if the array refuses this host for good.
    pub fn is_fenced(&self) -> bool {
        self.fenced
    }

    /// True if an operation of a user is under way.
    pub fn has_users(&self) -> bool {
        self.operations.has_users()
    }

    /// True if any operation is under way.
    pub fn has_operations(&self) -> bool {
        self.operations.len() > 0
    }

    /// True if any transaction is not over.
    pub fn has_transactions(&self) -> bool {
        !self.transactions.is_empty()
    }

    /// True if the transaction of this host with this sequence is not over.
    pub fn has(&self, sequence: u64) -> bool {
        self.transactions.has(sequence)
    }

    /// True if nothing is under way: no operation, no transaction that is not over, no resolution.
    pub fn is_idle(&self) -> bool {
        !self.has_operations() && !self.has_transactions() && self.resolutions.is_empty()
    }

    /// True if neither an operation nor a transaction of a volume is under way.
    pub fn is_idle_for(&self, volume: VolumeId) -> bool {
        self.operations.iter().all(|operation| operation.volume.id != volume)
            && self.transactions.iter().all(|(_, transaction)| transaction.volume.id != volume)
    }

    /// The highest stamp clock that a device has accepted.
    pub fn highest_accepted(&self) -> Clock {
        self.stamps.highest_accepted()
    }

    /// The devices that are needed for anything under way.
    pub fn devices(&self) -> impl Iterator<Item = DeviceId> + '_ {
        let volumes = self.operations.iter().map(|operation| &operation.volume);
        let volumes = volumes.chain(self.transactions.iter().map(|(_, transaction)| &transaction.volume));
        volumes.flat_map(|volume| volume.holders()).chain(self.resolutions.devices())
    }

    /// Asserts that operations, transactions and lock holders know each other, and that every wait has a deadline.
    /// `holders`: the transactions that have requested locks, and whether all that they need are granted.
    pub fn invariants(&self, holders: impl Iterator<Item = (u64, bool)>) {
        assert!(self.events.is_empty(), "the owner has taken out all events");
        self.operations.invariants(&self.transactions);
        self.transactions.invariants(holders);
        self.resolutions.invariants();
    }
}

/// The patient operations that wait for something that is missing: how many they are, how long the oldest has waited, and
/// the devices that they lack, to be planned or to end what they have begun. Those that have waited for longer than the host's time-out
/// count, whatever they wait for.
pub fn waiting(
    coordinator: &Coordinator,
    view: &MembershipView,
    now: Time,
    settings: &Settings,
) -> (usize, Duration, BTreeSet<DeviceId>) {
    let operations = &coordinator.operations;
    let (mut count, mut longest, mut lacking) = (0, Duration::ZERO, BTreeSet::new());
    for op in operations.patient() {
        let operation = operations.of(op);
        let waited = now.since(operation.since);
        let attempt = operation.attempt.map(|sequence| coordinator.transactions.of(sequence));
        let stops = |device: &DeviceId| attempt.is_some_and(|attempt| attempt.will_need(*device));
        let lacks = operations.lacking().get(&op).into_iter().flatten().copied();
        let lacks: Vec<_> = lacks.chain(view.unavailable().iter().copied().filter(stops)).collect();
        if !lacks.is_empty() || waited > settings.request_timeout {
            (count, longest) = (count + 1, longest.max(waited));
            lacking.extend(lacks);
        }
    }
    (count, longest, lacking)
}
