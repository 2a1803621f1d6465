//! A storage transaction of this host, as a phase machine: one attempt at an operation.
//!
//! A transaction outlives its operation. The user is answered as soon as every participant has its intent. The rest,
//! confirming commits and making aborts known, is done in the background.

use crate::ctx::OperationId;
use crate::links::Links;
use crate::work::Work;
use braid_base::{Backoff, DeviceId, Epoch, MemberState, Stamp, Time, TransactionId};
use braid_blocks::{Column, Piece, Want};
use braid_layout::{Old, Share, VolumeDescription};
use braid_machine::HostSuccess;
use braid_membership::client::MembershipView;
use braid_ordering::WriteMode;
use braid_ordering::{Policy, RefusedWrite};
use braid_wire::{Command, Outcome, Step};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

/// A storage transaction of this host that is not over.
#[derive(Clone, Debug)]
pub(crate) struct Transaction {
    /// The operation whose attempt it is. `None` once that is answered.
    pub op: Option<OperationId>,
    /// Its place in the order of transactions.
    pub stamp: Stamp,
    /// How far its stamp is put ahead of the clock (see [retries](crate::retry)).
    pub head_start: Duration,
    /// The epoch in which it began. It continues in later epochs with the same devices.
    pub(crate) epoch: Epoch,
    pub(crate) volume: Rc<VolumeDescription>,
    pub(crate) work: Rc<Work>,
    /// The devices that were asked for anything.
    pub(crate) asked: BTreeSet<DeviceId>,
    /// The devices that hold a pre-write or an intent of it, and so take part in its decision.
    pub(crate) participants: BTreeSet<DeviceId>,
    /// The devices on which another request waits for its decision.
    pub(crate) wanted: BTreeSet<DeviceId>,
    /// Its writes are the first that devices hear of it: there were no pre-writes.
    pub(crate) at_once: bool,
    /// A device may have a write of it.
    pub(crate) wrote: bool,
    /// The answer to its operation once it is committed.
    pub(crate) success: HostSuccess,
    /// A restarted lock server did not grant one of its locks again: another host may hold it.
    pub(crate) lost_locks: bool,
    pub(crate) resend: Backoff,
    pub(crate) phase: Phase,
}

/// The phase of a transaction. Each phase holds only what is still missing.
#[derive(Clone, Debug)]
pub(crate) enum Phase {
    /// Waiting for locks of lock servers.
    Locking,
    /// Reads, pre-writes and read-and-pre-writes were sent.
    Reading { silent: BTreeSet<DeviceId>, old: Old },
    /// Columns were sent, which the devices execute together. `in_vain`: the devices that have answered that they still miss something, as often as they have.
    Executing { silent: BTreeSet<DeviceId>, columns: BTreeMap<DeviceId, Column>, in_vain: Vec<DeviceId> },
    /// Writes were sent.
    Writing { silent: BTreeSet<DeviceId>, pieces: BTreeMap<DeviceId, Vec<Piece>> },
    /// Decided and answered. Some devices have not confirmed.
    Committed { unconfirmed: BTreeSet<DeviceId> },
    /// Decided. Some devices have not confirmed. If writes may have been accepted, the operation is retried only when
    /// all have confirmed: as long as a device may have an intent, other hosts could find the transaction committed.
    /// `retracts`: no device has promised an abort. If one says instead that another host knows of its intent, the
    /// transaction is resolved.
    Aborting { unconfirmed: BTreeSet<DeviceId>, since: Time, retracts: bool },
    /// Another epoch has begun since its writes were sent: the participants are asked whether it is committed.
    Resolving,
}

impl Transaction {
    /// True if it waits for an answer of this device.
    pub fn awaits(&self, device: DeviceId) -> bool {
        self.silent().is_some_and(|silent| silent.contains(&device))
    }

    /// True if it can't be completed while this device is unavailable. A device that only contributes does not answer, and what one that has
    /// answered sent may be missing at another.
    pub fn needs(&self, device: DeviceId) -> bool {
        match &self.phase {
            Phase::Executing { columns, .. } => columns.contains_key(&device),
            _ => self.awaits(device),
        }
    }

    /// True if its operation can't succeed while this device is unavailable: the transaction needs it now or in a later phase. Where it is
    /// being taken back, or has no locks yet, the operation is going to ask the same devices again.
    pub fn will_need(&self, device: DeviceId) -> bool {
        match &self.phase {
            Phase::Locking | Phase::Aborting { .. } | Phase::Resolving => self.asked.contains(&device),
            Phase::Reading { .. } => self.participants.contains(&device) || self.needs(device),
            Phase::Executing { .. } | Phase::Writing { .. } | Phase::Committed { .. } => self.needs(device),
        }
    }

    /// The policy of its volume's ordering.
    pub(crate) fn policy(&self) -> &'static Policy {
        self.volume.ordering.policy()
    }

    /// True if its writes are announced by pre-writes, and its reads say what they are for.
    pub(crate) fn announces(&self) -> bool {
        self.policy().announces
    }

    /// True if it is a write that devices accept without a pre-write.
    pub(crate) fn can_write_at_once(&self) -> bool {
        self.policy().writes_at_once(self.mode()) && matches!(*self.work, Work::Write(..))
    }

    /// True if it has to read nothing before it writes.
    pub(crate) fn reads_nothing(&self) -> bool {
        self.work.shares().iter().all(|share| share.reads.is_empty())
    }

    /// Whether its writes wait for a decision.
    pub(crate) fn mode(&self) -> WriteMode {
        self.volume.mode()
    }

    /// True if some of its writes may have taken effect, and nothing undoes them. If it is not completed, its stripes are
    /// suspect.
    pub(crate) fn may_be_interrupted(&self) -> bool {
        self.may_stay_in_part() && self.policy().leaves_suspects
    }

    /// True if it waits for devices, and can begin anew without them. The end of others is up to lock servers, is being
    /// decided, or has begun with writes that took effect on arrival.
    pub(crate) fn waits_for_devices(&self) -> bool {
        match self.phase {
            Phase::Reading { .. } | Phase::Executing { .. } => true,
            Phase::Writing { .. } => self.mode() == WriteMode::Intent,
            Phase::Locking | Phase::Committed { .. } | Phase::Aborting { .. } | Phase::Resolving => false,
        }
    }

    /// True if some of its writes may have taken effect, and nothing undoes them.
    pub(crate) fn may_stay_in_part(&self) -> bool {
        self.wrote && self.mode() == WriteMode::Immediate
    }

    /// True if it may have had an effect that must not happen twice.
    pub(crate) fn may_have_happened(&self) -> bool {
        self.wrote && matches!(*self.work, Work::AttributeVolume(_))
    }

    /// True if its writes are sent until they are accepted, even if a device refuses one. Locks of a lock server
    /// exclude all other hosts, and some of its writes may have taken effect.
    pub(crate) fn holds_on(&self) -> bool {
        self.may_be_interrupted() && self.policy().refused_write == RefusedWrite::HoldOn && !self.lost_locks
    }

    /// The devices that hold only locks for it, until they hear that it is over.
    pub(crate) fn lock_only(&self) -> BTreeSet<DeviceId> {
        if self.locks_what_it_reads() { &self.asked - &self.participants } else { BTreeSet::new() }
    }

    /// True if devices lock for it the blocks that it only reads.
    pub(crate) fn locks_what_it_reads(&self) -> bool {
        self.policy().locks_what_it_reads() && self.work.want() != Want::Allocation
    }

    /// Takes the answer to its operation, now that it is committed.
    pub(crate) fn take_success(&mut self) -> HostSuccess {
        std::mem::replace(&mut self.success, HostSuccess::Done)
    }

    /// The devices that it reads from.
    pub(crate) fn readers(&self) -> BTreeSet<DeviceId> {
        let reads = |share: &&Share| !share.reads.is_empty();
        self.work.shares().iter().filter(reads).map(|share| self.volume.device_at(share.position)).collect()
    }

    /// The stripes that it writes.
    pub(crate) fn stripes(&self) -> Range<u64> {
        let (linkage, per_stripe) = (self.work.linkage(), self.volume.layout.stripe_blocks());
        linkage.first / per_stripe..linkage.last / per_stripe + 1
    }

    /// The devices that have not answered.
    pub(crate) fn silent(&self) -> Option<&BTreeSet<DeviceId>> {
        match &self.phase {
            Phase::Reading { silent, .. } | Phase::Executing { silent, .. } | Phase::Writing { silent, .. } => {
                Some(silent)
            }
            Phase::Locking | Phase::Committed { .. } | Phase::Aborting { .. } | Phase::Resolving => None,
        }
    }

    /// The request of the present phase to one device.
    pub(crate) fn command(&self, transaction: TransactionId, device: DeviceId) -> Command {
        let (volume, stamp) = (&self.volume, self.stamp);
        let (object, ordering) = (volume.id.object(), volume.ordering);
        let participants = || self.participants.iter().copied().collect();
        match &self.phase {
            Phase::Reading { .. } if self.participants.contains(&device) && self.announces() => {
                let share = share_of(&self.work, volume, device);
                let insists = !self.work.writes();
                let prewrites = if insists { share.reads.clone() } else { share.prewrites.clone() };
                Command::Prewrite { transaction, stamp, object, ordering, prewrites, reads: share.reads.clone() }
            }
            Phase::Reading { .. } => {
                let (extents, want) = (share_of(&self.work, volume, device).reads.clone(), self.work.want());
                Command::Read { transaction, stamp, object, ordering, extents, want }
            }
            Phase::Executing { columns, .. } => {
                let (participants, linkage) = (participants(), self.work.linkage());
                let column = Box::new(columns[&device].clone());
                Command::Execute { transaction, stamp, object, ordering, participants, linkage, column }
            }
            Phase::Writing { pieces, .. } => {
                let (participants, linkage) = (participants(), self.work.linkage());
                let (mode, pieces) = (self.mode(), pieces[&device].clone());
                Command::Write { transaction, stamp, object, ordering, participants, linkage, mode, pieces }
            }
            Phase::Aborting { retracts: true, .. } => Command::Retract { transaction, stamp },
            Phase::Aborting { .. } => {
                let outcome = if self.may_be_interrupted() { Outcome::Interrupted } else { Outcome::Abort };
                Command::Decide { transaction, stamp, outcome }
            }
            Phase::Committed { .. } | Phase::Locking | Phase::Resolving => {
                unreachable!("no phase with requests of its own")
            }
        }
    }

    /// True if its phase waits for this answer.
    pub(crate) fn awaits_answer(&self, device: DeviceId, step: Step) -> bool {
        match &self.phase {
            Phase::Reading { silent, .. } => step != Step::Write && silent.contains(&device),
            Phase::Writing { silent, .. } => step == Step::Write && silent.contains(&device),
            // A device that only contributes answers only if it can't.
            Phase::Executing { silent, columns, .. } => {
                let contributes = columns.contains_key(&device) && !self.participants.contains(&device);
                matches!(step, Step::Write | Step::Execute) && (silent.contains(&device) || contributes)
            }
            Phase::Locking | Phase::Committed { .. } | Phase::Aborting { .. } | Phase::Resolving => false,
        }
    }

    /// The participants that have a vote: they have been in since it wrote.
    pub(crate) fn voters(&self, view: &MembershipView) -> BTreeSet<DeviceId> {
        self.participants.iter().copied().filter(|device| self.counts(view, *device)).collect()
    }

    /// True if the device has been in since the transaction began, or if the transaction can't do without it, for lack
    /// of redundancy.
    pub(crate) fn is_still_there(&self, view: &MembershipView, device: DeviceId) -> bool {
        view.is_still_there(device, self.epoch, self.is_redundant())
    }

    /// True if the device has a vote on the transaction.
    pub(crate) fn counts(&self, view: &MembershipView, device: DeviceId) -> bool {
        view.has_a_say(device, &self.participants, self.epoch, self.is_redundant())
    }

    fn is_redundant(&self) -> bool {
        self.volume.layout.redundancy_units() > 0
    }

    /// The devices of its volume that take part in writes, and were out at some time since it was planned.
    pub(crate) fn come_back_since(&self, view: &MembershipView) -> BTreeSet<DeviceId> {
        let takes_part = |device: &DeviceId| view.state(*device).is_some_and(|held| held != MemberState::Out);
        let devices = self.volume.holders().into_iter().filter(takes_part);
        devices.filter(|device| !self.is_still_there(view, *device)).collect()
    }

    /// Declares it over on these devices. Those that were only read from, without a lock, hold nothing of it.
    pub(crate) fn settle<'a>(&self, sequence: u64, devices: impl Iterator<Item = &'a DeviceId>, links: &mut Links) {
        let locks = self.locks_what_it_reads();
        for device in devices {
            if locks || self.participants.contains(device) {
                links.of(*device).settle(sequence);
            } else {
                links.of(*device).settle_read(sequence);
            }
        }
    }

    /// Asserts that each phase still waits for something.
    pub fn invariants(&self, sequence: u64) {
        let missing = match &self.phase {
            Phase::Locking | Phase::Resolving => return,
            Phase::Reading { silent, .. } | Phase::Executing { silent, .. } | Phase::Writing { silent, .. } => silent,
            Phase::Committed { unconfirmed } | Phase::Aborting { unconfirmed, .. } => unconfirmed,
        };
        assert!(!missing.is_empty(), "the last answer ends a phase: {sequence} in {:?}", self.phase);
        assert!(missing.is_subset(&self.asked), "only devices that were asked are waited for: {sequence}");
        if self.op.is_some() {
            let undecided = self.silent().is_some() || (self.wrote && matches!(self.phase, Phase::Aborting { .. }));
            assert!(undecided, "an operation is answered when its transaction is decided: {sequence}");
        }
    }
}

pub(crate) fn share_of<'a>(work: &'a Work, volume: &VolumeDescription, device: DeviceId) -> &'a Share {
    let own = |share: &&Share| volume.device_at(share.position) == device;
    work.shares().iter().find(own).expect("only devices with a share are asked")
}
