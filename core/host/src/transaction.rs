//! One attempt at an operation: a storage transaction, as an explicit phase machine.
//!
//! A transaction outlives its operation: the user is answered as soon as every participant has its intent, and what
//! remains (commits to confirm, aborts to make known) is finished behind his back.

use crate::ctx::{OperationId, Timer};
use crate::host::Host;
use crate::operation::{Conclusion, Work};
use braid_base::limits;
use braid_base::{BlockRange, DeviceId, Epoch, Now, Stamp, Time, TransactionId, VolumeId};
use braid_layout::{Old, Share, VolumeDescription};
use braid_machine::{Effects, HostError, HostRequest, HostSuccess, Ignored};
use braid_ordering::{Policy, RefusedWrite};
use braid_wire::{Command, Failure, Outcome, Piece, Step, Want, WriteMode};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

/// A storage transaction of this host that is not over.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// Whose attempt it is; none once that was answered.
    pub op: Option<OperationId>,
    /// Where it stands in the order.
    pub stamp: Stamp,
    /// The epoch in which it began. It may see others, as long as the same devices are in.
    pub(crate) epoch: Epoch,
    pub(crate) volume: Rc<VolumeDescription>,
    pub(crate) work: Rc<Work>,
    /// The devices that were asked anything.
    pub(crate) asked: BTreeSet<DeviceId>,
    /// The devices that hold a pre-write or an intent of it: those that take part in its decision.
    pub(crate) participants: BTreeSet<DeviceId>,
    /// Somebody waits for its decision.
    pub(crate) wanted: bool,
    /// Some device may have a write of it.
    pub(crate) wrote: bool,
    /// What its operation is answered once it is committed.
    pub(crate) success: HostSuccess,
    /// A restarted lock server did not grant one of them again: others may be there.
    pub(crate) lost_locks: bool,
    pub(crate) resend_after: Duration,
    pub(crate) phase: Phase,
}

/// How far a transaction is. Each phase holds only what is still missing.
#[derive(Clone, Debug)]
pub(crate) enum Phase {
    /// Locks of lock servers are awaited.
    Locking,
    /// Reads, pre-writes and read-and-pre-writes are out.
    Reading { silent: BTreeSet<DeviceId>, old: Old },
    /// Writes are out.
    Writing { silent: BTreeSet<DeviceId>, pieces: BTreeMap<DeviceId, Vec<Piece>> },
    /// Decided, answered; some devices have not confirmed.
    Committed { unconfirmed: BTreeSet<DeviceId> },
    /// Decided; some devices have not confirmed. If writes of it may have been taken, its operation tries again only when all have:
    /// as long as one may have an intent, others could find it committed.
    Aborting { unconfirmed: BTreeSet<DeviceId>, since: Time },
    /// Another epoch has begun since its writes went out: whether it is committed is being found out.
    Resolving,
}

impl Transaction {
    /// Of which volume.
    pub fn volume(&self) -> VolumeId {
        self.volume.id
    }

    /// True if it can't go on without this device.
    pub fn awaits(&self, device: DeviceId) -> bool {
        self.silent().is_some_and(|silent| silent.contains(&device))
    }

    /// What its ordering decides.
    pub(crate) fn policy(&self) -> &'static Policy {
        self.volume.ordering.policy()
    }

    /// True if devices hear of its writes before they come, and of its reads what they are for.
    fn announces(&self) -> bool {
        self.policy().announces
    }

    /// Whether its writes wait for a decision.
    pub(crate) fn mode(&self) -> WriteMode {
        self.volume.mode()
    }

    /// True if some of its writes may have taken effect, and nothing undoes them: given up, it leaves its stripes suspect.
    pub(crate) fn may_be_torn(&self) -> bool {
        self.wrote && self.mode() == WriteMode::Immediate && self.policy().isolates()
    }

    /// True if it may have done something that must not be done twice.
    pub(crate) fn may_have_happened(&self) -> bool {
        self.wrote && matches!(*self.work, Work::Mirror(_))
    }

    /// True if its writes are sent until they are taken, though a device refuses one: locks of a lock server keep everybody else
    /// away, and some may have taken effect.
    pub(crate) fn holds_on(&self) -> bool {
        self.may_be_torn() && self.policy().refused_write == RefusedWrite::HoldOn && !self.lost_locks
    }

    /// The devices that keep something of it until they hear that it is over, though they wrote nothing.
    pub(crate) fn lock_only(&self) -> BTreeSet<DeviceId> {
        if self.locks_what_it_reads() { &self.asked - &self.participants } else { BTreeSet::new() }
    }

    /// True if devices lock for it what they are only asked to read.
    pub(crate) fn locks_what_it_reads(&self) -> bool {
        self.policy().locks_what_it_reads() && self.work.want() != Want::Allocation
    }

    /// What its operation is answered, now that it is committed.
    pub(crate) fn take_success(&mut self) -> HostSuccess {
        std::mem::replace(&mut self.success, HostSuccess::Done)
    }

    /// The devices that it reads from.
    fn readers(&self) -> BTreeSet<DeviceId> {
        let reads = |share: &&Share| !share.reads.is_empty();
        self.work.shares().iter().filter(reads).map(|share| self.volume.device_at(share.position)).collect()
    }

    /// The devices that have not answered.
    pub(crate) fn silent(&self) -> Option<&BTreeSet<DeviceId>> {
        match &self.phase {
            Phase::Reading { silent, .. } | Phase::Writing { silent, .. } => Some(silent),
            Phase::Locking | Phase::Committed { .. } | Phase::Aborting { .. } | Phase::Resolving => None,
        }
    }

    /// Asserts that no phase has outlived what it waits for.
    pub fn invariants(&self, sequence: u64) {
        let missing = match &self.phase {
            Phase::Locking | Phase::Resolving => return,
            Phase::Reading { silent, .. } | Phase::Writing { silent, .. } => silent,
            Phase::Committed { unconfirmed } | Phase::Aborting { unconfirmed, .. } => unconfirmed,
        };
        assert!(!missing.is_empty(), "the last answer ends a phase: {sequence} in {:?}", self.phase);
        assert!(missing.is_subset(&self.asked), "only those who were asked are waited for: {sequence}");
        if self.op.is_some() {
            let undecided = self.silent().is_some() || (self.wrote && matches!(self.phase, Phase::Aborting { .. }));
            assert!(undecided, "an operation is answered when its transaction is decided: {sequence}");
        }
    }
}

impl Host {
    /// Begins a new transaction for an operation.
    pub(crate) fn attempt(&mut self, now: Now, op: OperationId, out: &mut Effects) {
        if self.is_abandoned(op) {
            return self.finish(op, Err(HostError::Abandoned), out);
        }
        let Some(view) = self.view().version() else {
            // Nobody has told yet who is in.
            return self.timers.set(Timer::Retry(op), now.time.after(self.config.settings.heartbeat));
        };
        if self.operations[&op].awaits_resync.is_some() {
            return self.timers.set(Timer::Retry(op), now.time.after(self.config.settings.heartbeat));
        }
        let operation = &self.operations[&op];
        if operation.view != view {
            match self.plan(&operation.volume, &operation.request, &operation.damaged) {
                Err(error) => return self.finish(op, Err(error), out),
                Ok(work) if work.shares().is_empty() => {
                    return self.finish(op, Ok(work.result(&Old::new())), out);
                }
                Ok(work) => {
                    let operation = self.operations.get_mut(&op).expect("just seen");
                    (operation.work, operation.view) = (Rc::new(work), view);
                }
            }
        }
        if self.awaits_abandoned(op) {
            return self.timers.set(Timer::Retry(op), now.time.after(self.config.settings.heartbeat));
        }
        let sequence = self.links.take_sequence();
        let patience = self.config.settings.reader_patience;
        let operation = self.operations.get_mut(&op).expect("only an open operation is attempted");
        operation.attempt = Some(sequence);
        let (volume, work) = (operation.volume.clone(), operation.work.clone());
        // A reader that lost again and again reads with pre-writes, which hold off the writers above it.
        let insists = volume.ordering.policy().reads_insist
            && work.want() == Want::Data
            && !work.writes()
            && operation.refusals >= patience;
        let (mut asked, mut participants) = (BTreeSet::new(), BTreeSet::new());
        for share in work.shares() {
            let device = volume.device_at(share.position);
            asked.insert(device);
            if insists || !share.prewrites.is_empty() {
                participants.insert(device);
            }
            self.links.of(device).begin(sequence);
        }
        // Where there is data may be told without a lock: each answer is of one device, and true when it is given.
        let locks = volume.ordering.needs_lock_server() && work.want() != Want::Allocation;
        let transaction = Transaction {
            op: Some(op),
            stamp: Stamp::ZERO,
            epoch: self.monitor.epoch(),
            volume,
            work,
            asked,
            participants,
            wanted: false,
            wrote: false,
            success: HostSuccess::Done,
            lost_locks: false,
            resend_after: self.config.settings.resend_min,
            phase: Phase::Locking,
        };
        self.transactions.insert(sequence, Box::new(transaction));
        if locks { self.acquire(now, sequence, out) } else { self.begin(now, sequence, out) }
    }

    /// Goes to the devices, with all locks of lock servers that it needs.
    pub(crate) fn begin(&mut self, now: Now, sequence: u64, out: &mut Effects) {
        let stamp = self.stamps.next(now.clock);
        let transaction = self.transactions.get_mut(&sequence).expect("it is being begun");
        transaction.stamp = stamp;
        let silent = if transaction.announces() { transaction.asked.clone() } else { transaction.readers() };
        let reads = !silent.is_empty();
        transaction.resend_after = self.config.settings.resend_min;
        transaction.phase = Phase::Reading { silent, old: Old::new() };
        if reads {
            self.send_phase(now, sequence, out);
            self.arm_resend(now, sequence);
        } else {
            self.on_all_read(now, sequence, out);
        }
    }

    /// Sends, to every device that has not answered, what this phase asks of it.
    pub(crate) fn send_phase(&mut self, now: Now, sequence: u64, out: &mut Effects) {
        let transaction = &self.transactions[&sequence];
        let missing = match &transaction.phase {
            Phase::Reading { silent, .. } | Phase::Writing { silent, .. } => silent,
            Phase::Aborting { unconfirmed, .. } => unconfirmed,
            // Commits ride on other requests, and are told again by the link. Lock requests are sent again one by one, and so are
            // votes.
            Phase::Committed { .. } | Phase::Locking | Phase::Resolving => return,
        };
        let commands: Vec<_> =
            missing.iter().map(|device| (*device, self.command(sequence, transaction, *device))).collect();
        for (device, command) in commands {
            self.send(now, device, command, out);
        }
    }

    /// What a transaction's phase asks of one device.
    fn command(&self, sequence: u64, transaction: &Transaction, device: DeviceId) -> Command {
        let id = self.id(sequence);
        let (volume, stamp) = (&transaction.volume, transaction.stamp);
        let (object, ordering) = (volume.id.object(), volume.ordering);
        let share = || {
            let own = |share: &&Share| volume.device_at(share.position) == device;
            transaction.work.shares().iter().find(own).expect("only devices with a share are asked")
        };
        match &transaction.phase {
            Phase::Reading { .. } if transaction.participants.contains(&device) && transaction.announces() => {
                let share = share();
                let insists = !transaction.work.writes();
                let prewrites = if insists { share.reads.clone() } else { share.prewrites.clone() };
                Command::Prewrite { transaction: id, stamp, object, ordering, prewrites, reads: share.reads.clone() }
            }
            Phase::Reading { .. } => {
                let (extents, want) = (share().reads.clone(), transaction.work.want());
                Command::Read { transaction: id, stamp, object, ordering, extents, want }
            }
            Phase::Writing { pieces, .. } => Command::Write {
                transaction: id,
                stamp,
                object,
                ordering,
                participants: transaction.participants.iter().copied().collect(),
                linkage: transaction.work.linkage(),
                mode: transaction.mode(),
                pieces: pieces[&device].clone(),
            },
            Phase::Aborting { .. } => {
                let outcome = if transaction.may_be_torn() { Outcome::Torn } else { Outcome::Abort };
                Command::Decide { transaction: id, stamp, outcome }
            }
            Phase::Committed { .. } | Phase::Locking | Phase::Resolving => {
                unreachable!("commits ride, devices know of no lock server, and a resolution asks by itself")
            }
        }
    }

    /// A device answered a read, a pre-write or both.
    pub(crate) fn on_data(
        &mut self,
        now: Now,
        device: DeviceId,
        id: TransactionId,
        pieces: Vec<Piece>,
        out: &mut Effects,
    ) {
        let Some(transaction) = self.own(id) else { return out.ignore(Ignored::NotAwaited) };
        let stamp = transaction.stamp;
        let Phase::Reading { silent, old } = &mut transaction.phase else { return out.ignore(Ignored::NotAwaited) };
        if !silent.remove(&device) {
            return out.ignore(Ignored::NotAwaited);
        }
        let own = |share: &&Share| transaction.volume.device_at(share.position) == device;
        let share = transaction.work.shares().iter().find(own).expect("only devices with a share are asked");
        old.insert(share.position, pieces);
        let covered = old.covers(share.position, &share.reads, transaction.work.want());
        let all_here = silent.is_empty();
        self.stamps.accepted(stamp);
        if !covered {
            return self.on_short_answer(now, device, id.sequence, out);
        }
        if all_here {
            self.on_all_read(now, id.sequence, out);
        }
    }

    /// A device left out blocks that it was asked for: in answer to where it has data, because its list grew too long for a
    /// frame; otherwise it is broken.
    fn on_short_answer(&mut self, now: Now, device: DeviceId, sequence: u64, out: &mut Effects) {
        let op = self.transactions[&sequence].op;
        let operation = op.and_then(|op| self.operations.get_mut(&op));
        if let Some(operation) = operation
            && let HostRequest::Allocation { range, .. } = &mut operation.request
            && range.count > limits::EXTENTS_MAX as u64
        {
            *range = BlockRange::new(range.start, limits::EXTENTS_MAX as u64);
            // To be planned anew.
            operation.view = 0;
            return self.lose(now, sequence, None, out);
        }
        self.abort(now, sequence, None, out);
        if let Some(op) = op {
            self.finish(op, Err(HostError::Device { device, failure: Failure::Malformed }), out);
        }
    }

    /// Everything that had to be read is here: a read is over, a write goes out if there is anything to write.
    fn on_all_read(&mut self, now: Now, sequence: u64, out: &mut Effects) {
        let transaction = self.transactions.get_mut(&sequence).expect("it was just answered");
        let Phase::Reading { old, .. } = &transaction.phase else { unreachable!("only reading ends so") };
        match transaction.work.conclude(old) {
            Conclusion::Write(pieces, success) => {
                let methods = transaction.work.methods();
                self.counters.full_bands += methods.full;
                self.counters.large_bands += methods.large;
                self.counters.small_bands += methods.small;
                let volume = &transaction.volume;
                let pieces =
                    pieces.into_iter().map(|(position, pieces)| (volume.device_at(position), pieces)).collect();
                let silent = transaction.participants.clone();
                transaction.phase = Phase::Writing { silent, pieces };
                transaction.wrote = true;
                transaction.success = success;
                transaction.resend_after = self.config.settings.resend_min;
                self.send_phase(now, sequence, out);
                self.arm_resend(now, sequence);
            }
            Conclusion::Answer(outcome) => {
                let op = transaction.op;
                self.end_reading(now, sequence, out);
                if let Some(op) = op {
                    self.finish(op, outcome, out);
                }
            }
        }
    }

    /// A device has its intent (or, without ordering, its write).
    pub(crate) fn on_written(&mut self, now: Now, device: DeviceId, id: TransactionId, out: &mut Effects) {
        let Some(transaction) = self.own(id) else { return out.ignore(Ignored::NotAwaited) };
        let Phase::Writing { silent, .. } = &mut transaction.phase else { return out.ignore(Ignored::NotAwaited) };
        if !silent.remove(&device) {
            return out.ignore(Ignored::NotAwaited);
        }
        if silent.is_empty() {
            self.on_all_written(now, id.sequence, out);
        }
    }

    /// All prepared, or written where that takes effect on arrival: it is committed, whatever happens now.
    pub(crate) fn on_all_written(&mut self, now: Now, sequence: u64, out: &mut Effects) {
        if self.transactions[&sequence].may_be_torn() {
            self.write_again_if_missed(now, sequence, out);
        }
        let transaction = self.transactions.get_mut(&sequence).expect("it was writing");
        let op = transaction.op.take();
        let success = transaction.take_success();
        let told = match transaction.mode() {
            WriteMode::Intent if transaction.locks_what_it_reads() => transaction.asked.clone(),
            WriteMode::Intent => transaction.participants.clone(),
            WriteMode::Immediate => {
                let transaction = &self.transactions[&sequence];
                transaction.lock_only().into_iter().filter(|device| self.counts(transaction, *device)).collect()
            }
        };
        self.counters.committed += 1;
        self.tell_end(now, sequence, told, out);
        if let Some(op) = op {
            self.finish(op, Ok(success), out);
        }
    }

    /// Asks those again who have not answered.
    pub(crate) fn resend(&mut self, now: Now, sequence: u64, out: &mut Effects) {
        let transaction = &self.transactions[&sequence];
        if let Phase::Aborting { since, .. } = transaction.phase
            && !transaction.wrote
            && now.time.since(since) > self.config.settings.host_lease
        {
            // A mere pre-write: a device that has not heard us for so long has dropped it, and one that has, drops it by the
            // settled mark.
            return self.end(now, sequence, out);
        }
        self.counters.resent += 1;
        self.send_phase(now, sequence, out);
        self.arm_resend(now, sequence);
    }

    pub(crate) fn arm_resend(&mut self, now: Now, sequence: u64) {
        let transaction = self.transactions.get_mut(&sequence).expect("it waits for answers");
        self.timers.set(Timer::Resend(sequence), now.time.after(transaction.resend_after));
        transaction.resend_after = (transaction.resend_after * 2).min(self.config.settings.resend_max);
    }

    /// True if this answer is one that the transaction's phase waits for.
    pub(crate) fn is_awaited(&mut self, device: DeviceId, id: TransactionId, step: Step) -> bool {
        let Some(transaction) = self.own(id) else { return false };
        match &transaction.phase {
            Phase::Reading { silent, .. } => step != Step::Write && silent.contains(&device),
            Phase::Writing { silent, .. } => step == Step::Write && silent.contains(&device),
            Phase::Locking | Phase::Committed { .. } | Phase::Aborting { .. } | Phase::Resolving => false,
        }
    }

    pub(crate) fn own(&mut self, id: TransactionId) -> Option<&mut Transaction> {
        if id.host != self.config.generation {
            return None;
        }
        self.transactions.get_mut(&id.sequence).map(|transaction| &mut **transaction)
    }

    pub(crate) fn id(&self, sequence: u64) -> TransactionId {
        TransactionId { host: self.config.generation, sequence }
    }
}
