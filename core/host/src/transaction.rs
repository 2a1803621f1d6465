//! One attempt at an operation: a storage transaction, as an explicit phase machine.
//!
//! A transaction outlives its operation: the user is answered as soon as every participant has its intent, and what
//! remains (commits to confirm, aborts to make known) is finished behind his back.

use crate::host::{Host, Timer};
use crate::operation::{Work, devices_of};
use braid_base::limits;
use braid_base::{BlockRange, DeviceId, Now, Stamp, Time, TransactionId, VolumeId};
use braid_layout::{Old, Share, VolumeDescription};
use braid_machine::{Effects, HostError, HostSuccess, Ignored, OpId};
use braid_wire::{Command, Failure, Ordering, Outcome, Piece, Refusal, Step, Want, WriteMode};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

/// A storage transaction of this host that is not over.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// Whose attempt it is; none once that was answered.
    pub op: Option<OpId>,
    /// Where it stands in the order.
    pub stamp: Stamp,
    volume: Rc<VolumeDescription>,
    work: Rc<Work>,
    /// The devices that were asked anything.
    asked: BTreeSet<DeviceId>,
    /// The devices that hold a pre-write or an intent of it: those that take part in its decision.
    participants: BTreeSet<DeviceId>,
    /// Somebody waits for its decision.
    wanted: bool,
    /// Some device may have an intent of it.
    wrote: bool,
    resend_after: Duration,
    phase: Phase,
}

/// How far a transaction is. Each phase holds only what is still missing.
#[derive(Clone, Debug)]
enum Phase {
    /// Reads, pre-writes and read-and-pre-writes are out.
    Reading { silent: BTreeSet<DeviceId>, old: Old },
    /// Writes are out.
    Writing { silent: BTreeSet<DeviceId>, pieces: BTreeMap<DeviceId, Vec<Piece>> },
    /// Decided, answered; some devices have not confirmed.
    Committed { unconfirmed: BTreeSet<DeviceId> },
    /// Decided; some devices have not confirmed.
    Aborting { unconfirmed: BTreeSet<DeviceId>, since: Time },
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

    fn is_ordered(&self) -> bool {
        self.volume.ordering == Ordering::Timestamp
    }

    fn silent(&self) -> Option<&BTreeSet<DeviceId>> {
        match &self.phase {
            Phase::Reading { silent, .. } | Phase::Writing { silent, .. } => Some(silent),
            Phase::Committed { .. } | Phase::Aborting { .. } => None,
        }
    }

    /// Asserts that no phase has outlived what it waits for.
    pub fn invariants(&self, sequence: u64) {
        let missing = match &self.phase {
            Phase::Reading { silent, .. } | Phase::Writing { silent, .. } => silent,
            Phase::Committed { unconfirmed } | Phase::Aborting { unconfirmed, .. } => unconfirmed,
        };
        assert!(!missing.is_empty(), "the last answer ends a phase: {sequence} in {:?}", self.phase);
        assert!(missing.is_subset(&self.asked), "only those who were asked are waited for: {sequence}");
        if self.op.is_some() {
            assert!(self.silent().is_some(), "an operation is answered when its transaction is decided: {sequence}");
        }
    }
}

impl Host {
    /// Begins a new transaction for an operation.
    pub(crate) fn attempt(&mut self, now: Now, op: OpId, out: &mut Effects) {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        let patience = self.config.settings.reader_patience;
        let operation = self.operations.get_mut(&op).expect("only an open operation is attempted");
        operation.attempt = Some(sequence);
        let (volume, work) = (operation.volume.clone(), operation.work.clone());
        let ordered = volume.ordering == Ordering::Timestamp;
        // A reader that lost again and again reads with pre-writes, which hold off the writers above it.
        let insists = ordered && work.want() == Want::Data && !work.writes() && operation.refusals >= patience;
        let asked: BTreeSet<_> = devices_of(&volume, work.shares()).into_iter().collect();
        let writes = |share: &&Share| !share.prewrites.is_empty();
        let participants = if insists {
            asked.clone()
        } else {
            work.shares().iter().filter(writes).map(|share| volume.device_at(share.position)).collect()
        };
        for device in &asked {
            self.links.get_mut(device).expect("volumes lie on known devices").begin(sequence);
        }
        let stamp = self.stamps.next(now.clock);
        let transaction = Transaction {
            op: Some(op),
            stamp,
            volume,
            work: work.clone(),
            asked: asked.clone(),
            participants,
            wanted: false,
            wrote: false,
            resend_after: self.config.settings.resend_min,
            phase: Phase::Reading { silent: asked, old: Old::new() },
        };
        self.transactions.insert(sequence, transaction);
        if ordered {
            self.send_phase(now, sequence, out);
        } else {
            self.read_unordered(now, sequence, out);
        }
        self.arm_resend(now, sequence);
    }

    /// Without ordering there are no pre-writes: devices that are only written to have nothing to say yet.
    fn read_unordered(&mut self, now: Now, sequence: u64, out: &mut Effects) {
        let transaction = self.transactions.get_mut(&sequence).expect("just begun");
        let reads = |share: &&Share| !share.reads.is_empty();
        let readers: BTreeSet<_> = transaction
            .work
            .shares()
            .iter()
            .filter(reads)
            .map(|share| transaction.volume.device_at(share.position))
            .collect();
        let Phase::Reading { silent, .. } = &mut transaction.phase else { unreachable!("just begun") };
        *silent = readers;
        if silent.is_empty() {
            self.on_all_read(now, sequence, out);
        } else {
            self.send_phase(now, sequence, out);
        }
    }

    /// Sends, to every device that has not answered, what this phase asks of it.
    fn send_phase(&mut self, now: Now, sequence: u64, out: &mut Effects) {
        let transaction = &self.transactions[&sequence];
        let missing = match &transaction.phase {
            Phase::Reading { silent, .. } | Phase::Writing { silent, .. } => silent,
            Phase::Aborting { unconfirmed, .. } => unconfirmed,
            // Commits ride on other requests, and are told again by the link.
            Phase::Committed { .. } => return,
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
            Phase::Reading { .. } if transaction.participants.contains(&device) && transaction.is_ordered() => {
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
                mode: if transaction.is_ordered() { WriteMode::Intent } else { WriteMode::Immediate },
                pieces: pieces[&device].clone(),
            },
            Phase::Aborting { .. } => Command::Decide { transaction: id, stamp, outcome: Outcome::Abort },
            Phase::Committed { .. } => unreachable!("commits ride"),
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
            && let Work::Allocation(range, _) = &*operation.work
            && range.count > limits::EXTENTS_MAX as u64
        {
            let shorter = BlockRange::new(range.start, limits::EXTENTS_MAX as u64);
            operation.work = Rc::new(Work::allocation(&operation.volume, shorter));
            return self.lose(now, sequence, None, out);
        }
        self.abort(now, sequence, None, out);
        if let Some(op) = op {
            self.finish(op, Err(HostError::Device { device, failure: Failure::Malformed }), out);
        }
    }

    /// Everything that had to be read is here: a read is over, a write goes out.
    fn on_all_read(&mut self, now: Now, sequence: u64, out: &mut Effects) {
        let transaction = self.transactions.get_mut(&sequence).expect("it was just answered");
        let Phase::Reading { old, .. } = &transaction.phase else { unreachable!("only reading ends so") };
        match &*transaction.work {
            Work::Write(plan, new) => {
                let methods = plan.methods();
                self.counters.full_bands += methods.full;
                self.counters.large_bands += methods.large;
                self.counters.small_bands += methods.small;
                let volume = transaction.volume.clone();
                let pieces: BTreeMap<_, _> = plan
                    .compute(new, old)
                    .into_iter()
                    .map(|(position, pieces)| (volume.device_at(position), pieces))
                    .collect();
                let silent = transaction.participants.clone();
                transaction.phase = Phase::Writing { silent, pieces };
                transaction.wrote = true;
                transaction.resend_after = self.config.settings.resend_min;
                self.send_phase(now, sequence, out);
                self.arm_resend(now, sequence);
            }
            reading => {
                let result = reading.result(old);
                let op = transaction.op;
                // A reader that insisted has pre-writes to give back.
                self.abort(now, sequence, None, out);
                if let Some(op) = op {
                    self.finish(op, Ok(result), out);
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
        if !silent.is_empty() {
            return;
        }
        // All prepared: it is committed, whatever happens now.
        let op = transaction.op.take();
        let ordered = transaction.is_ordered();
        self.counters.committed += 1;
        self.timers.cancel(Timer::Resend(id.sequence));
        if ordered {
            self.decide_commit(now, id.sequence, out);
        } else {
            self.end(id.sequence);
        }
        if let Some(op) = op {
            self.finish(op, Ok(HostSuccess::Done), out);
        }
    }

    fn decide_commit(&mut self, now: Now, sequence: u64, out: &mut Effects) {
        let transaction = self.transactions.get_mut(&sequence).expect("it is being decided");
        let (participants, wanted) = (transaction.participants.clone(), transaction.wanted);
        transaction.phase = Phase::Committed { unconfirmed: participants.clone() };
        // Devices that were only read from have nothing to confirm.
        for device in transaction.asked.difference(&participants) {
            self.links.get_mut(device).expect("links stay").settle_read(sequence);
        }
        let linger = now.time.after(self.config.settings.commit_linger);
        for device in &participants {
            self.links.get_mut(device).expect("links stay").queue_commit(sequence);
            if self.timers.deadline_of(Timer::Linger(*device)).is_none() {
                self.timers.set(Timer::Linger(*device), linger);
            }
        }
        if wanted {
            self.hurry(now, sequence, &participants, out);
        }
    }

    /// Somebody waits for this decision: it is told at once, not when a request happens to go that way.
    pub(crate) fn on_blocked(&mut self, now: Now, device: DeviceId, id: TransactionId, out: &mut Effects) {
        let Some(transaction) = self.own(id) else { return out.ignore(Ignored::NotAwaited) };
        transaction.wanted = true;
        if let Phase::Committed { unconfirmed } = &transaction.phase {
            let unconfirmed = unconfirmed.clone();
            if unconfirmed.contains(&device) {
                // It may have been told before, and have lost that in a restart.
                self.links.get_mut(&device).expect("it just spoke").queue_commit(id.sequence);
            }
            self.hurry(now, id.sequence, &unconfirmed, out);
        }
    }

    fn hurry(&mut self, now: Now, sequence: u64, devices: &BTreeSet<DeviceId>, out: &mut Effects) {
        for device in devices {
            if self.links[device].has_queued(sequence) {
                self.counters.commit_carriers += 1;
                self.send(now, *device, Command::Heartbeat, out);
            }
        }
    }

    /// A commit of ours is durable on this device.
    pub(crate) fn on_confirmed(&mut self, device: DeviceId, sequence: u64) {
        self.links.get_mut(&device).expect("it just spoke").confirmed(sequence);
        let Some(transaction) = self.transactions.get_mut(&sequence) else { return };
        if let Phase::Committed { unconfirmed } = &mut transaction.phase {
            unconfirmed.remove(&device);
            if unconfirmed.is_empty() {
                self.end(sequence);
            }
        }
    }

    /// A device made an abort of ours durable.
    pub(crate) fn on_abort_confirmed(&mut self, device: DeviceId, id: TransactionId, out: &mut Effects) {
        let Some(transaction) = self.own(id) else { return out.ignore(Ignored::NotAwaited) };
        let Phase::Aborting { unconfirmed, .. } = &mut transaction.phase else {
            return out.ignore(Ignored::NotAwaited);
        };
        if !unconfirmed.remove(&device) {
            return out.ignore(Ignored::NotAwaited);
        }
        let all_know = unconfirmed.is_empty();
        // Of an abort each device can forget by itself; of a commit only when all have it.
        self.links.get_mut(&device).expect("it just spoke").settle(id.sequence);
        if all_know {
            self.end(id.sequence);
        }
    }

    /// A device was visited by another transaction first, or can't take this one now.
    pub(crate) fn on_refused(
        &mut self,
        now: Now,
        device: DeviceId,
        id: TransactionId,
        step: Step,
        refusal: Refusal,
        out: &mut Effects,
    ) {
        if !self.is_awaited(device, id, step) {
            return out.ignore(Ignored::NotAwaited);
        }
        if let Refusal::TooLate { seen } = refusal {
            self.stamps.learn(now.clock, seen);
        }
        let unordered = self.own(id).is_some_and(|transaction| !transaction.is_ordered());
        if unordered && step == Step::Write {
            // Others may have written already, and nothing undoes that: the same write is sent again, in its time. To begin anew
            // would take the new data for the old.
            return out.ignore(Ignored::InProgress);
        }
        if let Refusal::TooFarAhead { .. } = refusal {
            // Our clock may have jumped ahead and back: stamps need not stay ahead with what was never accepted.
            if self.stamps.retreat(now.clock) {
                return self.lose(now, id.sequence, Some(device), out);
            }
            let limit = self.config.settings.stamp_ahead_max;
            let op = self.transactions[&id.sequence].op;
            self.abort(now, id.sequence, Some(device), out);
            if let Some(op) = op {
                self.finish(op, Err(HostError::ClockApart { device, limit }), out);
            }
            return;
        }
        self.lose(now, id.sequence, Some(device), out);
    }

    /// A device can't do what was asked.
    pub(crate) fn on_failed(
        &mut self,
        now: Now,
        device: DeviceId,
        id: TransactionId,
        step: Step,
        failure: Failure,
        out: &mut Effects,
    ) {
        if !self.is_awaited(device, id, step) {
            return out.ignore(Ignored::NotAwaited);
        }
        let op = self.transactions[&id.sequence].op;
        self.abort(now, id.sequence, None, out);
        if let Some(op) = op {
            self.finish(op, Err(HostError::Device { device, failure }), out);
        }
    }

    /// This attempt is lost; the operation tries again as a new transaction.
    fn lose(&mut self, now: Now, sequence: u64, refused_by: Option<DeviceId>, out: &mut Effects) {
        let op = self.transactions[&sequence].op;
        self.abort(now, sequence, refused_by, out);
        let Some(op) = op else { return };
        self.counters.retries += 1;
        let operation = self.operations.get_mut(&op).expect("an attempt knows its operation");
        operation.attempt = None;
        operation.refusals += 1;
        // The first retry knows the stamp to beat, so it need not wait; those that lose again get out of each other's way.
        let wait = match operation.refusals {
            1 => Duration::ZERO,
            more => {
                let settings = &self.config.settings;
                let most = (settings.backoff_min * 2u32.saturating_pow(more.min(16))).min(settings.backoff_max);
                Duration::from_nanos(self.rng.between(settings.backoff_min.as_nanos() as u64, most.as_nanos() as u64))
            }
        };
        self.timers.set(Timer::Retry(op), now.time.after(wait));
    }

    /// Ends an attempt that will not commit: nobody has all intents, and whoever refused its write has promised never to
    /// have one. Participants are told until all know; the one that refused knows.
    fn abort(&mut self, now: Now, sequence: u64, knows: Option<DeviceId>, out: &mut Effects) {
        let transaction = self.transactions.get_mut(&sequence).expect("only what is under way is aborted");
        transaction.op = None;
        let unordered = transaction.volume.ordering == Ordering::None;
        let mut unconfirmed = transaction.participants.clone();
        if let Some(device) = knows {
            unconfirmed.remove(&device);
        }
        if unordered || unconfirmed.is_empty() {
            return self.end(sequence);
        }
        for device in transaction.asked.difference(&unconfirmed) {
            self.links.get_mut(device).expect("links stay").settle(sequence);
        }
        self.counters.aborted += 1;
        transaction.phase = Phase::Aborting { unconfirmed, since: now.time };
        transaction.resend_after = self.config.settings.resend_min;
        self.send_phase(now, sequence, out);
        self.arm_resend(now, sequence);
    }

    /// The transaction is over, everywhere.
    fn end(&mut self, sequence: u64) {
        let transaction = self.transactions.remove(&sequence).expect("a transaction ends once");
        self.timers.cancel(Timer::Resend(sequence));
        for device in &transaction.asked {
            let link = self.links.get_mut(device).expect("links stay");
            if transaction.participants.contains(device) {
                link.settle(sequence);
            } else {
                link.settle_read(sequence);
            }
        }
    }

    /// An operation's time is up. What it began is undone if it can be; a write that was sent may or may not take effect.
    pub(crate) fn on_expired(&mut self, now: Now, op: OpId, out: &mut Effects) {
        let operation = &self.operations[&op];
        let waited = now.time.since(operation.since);
        let Some(sequence) = operation.attempt else {
            return self.finish(op, Err(HostError::Contended { waited }), out);
        };
        let silent = self.transactions[&sequence].silent().expect("an undecided transaction waits");
        let devices = silent.iter().copied().collect();
        self.give_up(now, op, HostError::TimedOut { devices, waited }, out);
    }

    /// Answers an operation with an error, and undoes what it began unless its writes are out.
    pub(crate) fn give_up(&mut self, now: Now, op: OpId, error: HostError, out: &mut Effects) {
        let attempt = self.operations[&op].attempt;
        self.finish(op, Err(error), out);
        if let Some(sequence) = attempt
            && matches!(self.transactions[&sequence].phase, Phase::Reading { .. })
        {
            self.abort(now, sequence, None, out);
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
            return self.end(sequence);
        }
        self.counters.resent += 1;
        self.send_phase(now, sequence, out);
        self.arm_resend(now, sequence);
    }

    fn arm_resend(&mut self, now: Now, sequence: u64) {
        // Without ordering, a transaction may have ended within its first step.
        let Some(transaction) = self.transactions.get_mut(&sequence) else { return };
        self.timers.set(Timer::Resend(sequence), now.time.after(transaction.resend_after));
        transaction.resend_after = (transaction.resend_after * 2).min(self.config.settings.resend_max);
    }

    /// True if this answer is one that the transaction's phase waits for.
    fn is_awaited(&mut self, device: DeviceId, id: TransactionId, step: Step) -> bool {
        let Some(transaction) = self.own(id) else { return false };
        match &transaction.phase {
            Phase::Reading { silent, .. } => step != Step::Write && silent.contains(&device),
            Phase::Writing { silent, .. } => step == Step::Write && silent.contains(&device),
            Phase::Committed { .. } | Phase::Aborting { .. } => false,
        }
    }

    fn own(&mut self, id: TransactionId) -> Option<&mut Transaction> {
        if id.host != self.config.generation {
            return None;
        }
        self.transactions.get_mut(&id.sequence)
    }

    fn id(&self, sequence: u64) -> TransactionId {
        TransactionId { host: self.config.generation, sequence }
    }
}
