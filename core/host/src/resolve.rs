//! Finding out how a transaction ended, and making it known (atomicity `implied`): a dead host's, or an own one that was under way
//! when another epoch began.
//!
//! Devices name those of dead hosts in their heartbeat answers. Any host may take one up, several may at once, and early
//! is safe: the participants' answers decide, not the asker. After a change of epoch the participants are those that have been in
//! since the transaction wrote.
//!
//! ```text
//!   Asking ── all prepared, or one committed ──► Telling (commit) ─┐
//!      └───── one that never prepared ─────────► Telling (abort) ──┴─► Forgetting ─► gone
//! ```
//!
//! A stamp of a clock that was hours ahead of all others is beyond promises, and none is needed: where all participants say so, none
//! has accepted it. They are asked for two leases of devices before that counts: by then each that serves has heard from the monitor what
//! stamps others have accepted, and promises for these.
//!
//! Of an own one nobody need be asked to forget: its host says what is over. Its user is answered only now, when the outcome is
//! durable wherever it counts.

use crate::ctx::Timer;
use crate::host::Host;
use crate::transaction;
use braid_base::{DeviceId, Now, Stamp, Time, TransactionId};
use braid_machine::{Effects, Ignored};
use braid_wire::{Command, Orphan, Outcome, Vote};
use std::collections::BTreeSet;
use std::time::Duration;

/// The most that one host resolves at once.
const RESOLUTIONS_MAX: usize = 256;

/// For so many leases of devices it asks those that can't promise for a stamp. A device that serves has told the monitor what it has accepted,
/// and has heard from it what others have, within one lease each.
pub(crate) const LEASES_ASKED: u32 = 2;

/// The resolution of one transaction.
#[derive(Clone, Debug)]
pub(crate) struct Resolution {
    stamp: Stamp,
    participants: BTreeSet<DeviceId>,
    since: Time,
    resend_after: Duration,
    phase: Phase,
}

#[derive(Clone, Debug)]
enum Phase {
    /// Participants that have not said what they know; and those among them that have nothing, but can't promise for such a stamp.
    Asking { silent: BTreeSet<DeviceId>, too_far_ahead: BTreeSet<DeviceId> },
    /// Participants that have not made the outcome durable.
    Telling { outcome: Outcome, silent: BTreeSet<DeviceId> },
    /// Participants that may still remember it.
    Forgetting { silent: BTreeSet<DeviceId> },
}

impl Resolution {
    /// The devices that it has to do with.
    pub fn participants(&self) -> &BTreeSet<DeviceId> {
        &self.participants
    }

    fn silent(&self) -> &BTreeSet<DeviceId> {
        match &self.phase {
            Phase::Asking { silent, .. } | Phase::Telling { silent, .. } | Phase::Forgetting { silent } => silent,
        }
    }
}

impl Host {
    /// A device names transactions that nobody looks after.
    pub(crate) fn on_orphans(&mut self, now: Now, orphans: Vec<Orphan>, out: &mut Effects) {
        for Orphan { transaction, stamp, participants } in orphans {
            let own = transaction.host == self.config.generation;
            let under_way = own && self.transactions.contains_key(&transaction.sequence);
            let known = participants.iter().all(|device| self.links.has(*device));
            let taken = self.resolutions.contains_key(&transaction) || !self.has_room_to_resolve();
            if under_way || taken || !known || participants.is_empty() || self.requests.is_disconnecting() {
                continue;
            }
            self.resolve(now, transaction, stamp, participants.into_iter().collect(), out);
        }
    }

    fn resolve(
        &mut self,
        now: Now,
        id: TransactionId,
        stamp: Stamp,
        participants: BTreeSet<DeviceId>,
        out: &mut Effects,
    ) {
        let phase = Phase::Asking { silent: participants.clone(), too_far_ahead: BTreeSet::new() };
        self.resolutions
            .insert(id, Resolution { stamp, participants, since: now.time, resend_after: Duration::ZERO, phase });
        self.ask_silent(now, id, out);
    }

    /// Finds out how a transaction of this host ended, of those participants whose word counts in this epoch.
    pub(crate) fn resolve_own(&mut self, now: Now, sequence: u64, out: &mut Effects) {
        self.timers.cancel(Timer::Resend(sequence));
        let voters = self.voters(&self.transactions[&sequence]);
        let id = self.id(sequence);
        let transaction = self.transactions.get_mut(&sequence).expect("just seen");
        transaction.phase = transaction::Phase::Resolving;
        let stamp = transaction.stamp;
        if voters.is_empty() {
            // All have been out since, one after the other, and nobody holds anything of it. Perhaps others have found it committed
            // before.
            self.give_up_what_must_not_repeat(sequence, out);
            return self.end_aborted(now, sequence, out);
        }
        self.resolve(now, id, stamp, voters, out);
    }

    /// How a transaction of this host ended is known, and durable wherever it counts.
    fn on_own_resolved(&mut self, now: Now, sequence: u64, outcome: Outcome, out: &mut Effects) {
        self.counters.resolved += 1;
        match outcome {
            Outcome::Abort | Outcome::Torn => self.end_aborted(now, sequence, out),
            Outcome::Commit => {
                self.counters.committed += 1;
                let transaction = self.transactions.get_mut(&sequence).expect("it was resolved");
                let (op, success) = (transaction.op.take(), transaction.take_success());
                self.end(now, sequence, out);
                if let Some(op) = op {
                    self.finish(op, Ok(success), out);
                }
            }
        }
    }

    /// The devices that have not said what they know of an own transaction, or have not taken note of its end.
    pub(crate) fn undecided_by(&self, sequence: u64) -> Vec<DeviceId> {
        let silent = match (&self.transactions[&sequence].phase, self.resolutions.get(&self.id(sequence))) {
            (transaction::Phase::Aborting { unconfirmed, .. }, _) => unconfirmed,
            (_, Some(resolution)) => resolution.silent(),
            (_, None) => return Vec::new(),
        };
        silent.iter().copied().collect()
    }

    /// Another epoch has begun: other participants may count now.
    pub(crate) fn drop_resolutions_of_others(&mut self) {
        let own = self.config.generation;
        let others: Vec<_> = self.resolutions.keys().copied().filter(|id| id.host != own).collect();
        for id in others {
            self.end_resolution(id);
        }
    }

    /// True if one more can be taken up. One that has been without an answer for long, since a device is away, makes room.
    fn has_room_to_resolve(&mut self) -> bool {
        if self.resolutions.len() < RESOLUTIONS_MAX {
            return true;
        }
        let own = self.config.generation;
        let stuck = |(id, resolution): &(&TransactionId, &Resolution)| {
            id.host != own && resolution.resend_after >= self.config.settings.resend_max
        };
        let Some(id) = self.resolutions.iter().find(stuck).map(|(id, _)| *id) else { return false };
        self.end_resolution(id);
        true
    }

    pub(crate) fn on_vote(&mut self, now: Now, device: DeviceId, id: TransactionId, vote: Vote, out: &mut Effects) {
        let Some(resolution) = self.resolutions.get_mut(&id) else { return out.ignore(Ignored::NotAwaited) };
        let Phase::Asking { silent, too_far_ahead } = &mut resolution.phase else {
            return out.ignore(Ignored::NotAwaited);
        };
        if let Vote::TooFarAhead { clock } = vote
            && silent.contains(&device)
        {
            let settings = &self.config.settings;
            if resolution.stamp.clock > clock.ahead(settings.stamp_ahead_max + settings.request_timeout) {
                too_far_ahead.insert(device);
            }
            // All of them, for long: it is the stamp that is wrong, not a device's clock, and no copy that is still on its way will find
            // the clocks of all changed. Otherwise they are asked again.
            let for_long = now.time.since(resolution.since) >= settings.device_lease * LEASES_ASKED;
            if for_long && *too_far_ahead == resolution.participants {
                let silent = resolution.participants.clone();
                self.enter(now, id, Phase::Telling { outcome: Outcome::Abort, silent }, out);
            }
            return;
        }
        if !silent.remove(&device) {
            return out.ignore(Ignored::NotAwaited);
        }
        too_far_ahead.remove(&device);
        let outcome = match vote {
            // One that committed knows that all were prepared.
            Vote::Committed => Outcome::Commit,
            // One that promised never to prepare makes it impossible that all ever are.
            Vote::NeverPrepared => Outcome::Abort,
            Vote::Prepared if silent.is_empty() => Outcome::Commit,
            Vote::Prepared | Vote::TooFarAhead { .. } => return,
        };
        let silent = resolution.participants.clone();
        self.enter(now, id, Phase::Telling { outcome, silent }, out);
    }

    /// A device has an outcome durably: of a transaction that this host resolves, or of an abort of its own.
    pub(crate) fn on_decided(
        &mut self,
        now: Now,
        device: DeviceId,
        id: TransactionId,
        decided: Outcome,
        out: &mut Effects,
    ) {
        let Some(resolution) = self.resolutions.get_mut(&id) else {
            return self.on_abort_answered(now, device, id, decided, out);
        };
        let Phase::Telling { outcome, silent } = &mut resolution.phase else {
            return out.ignore(Ignored::NotAwaited);
        };
        if decided != *outcome {
            // A device that forgot an outcome says "never prepared", and we took that for an abort: but one that knows of a
            // commit is right. The other way round, our telling was late, and whoever told it first will finish.
            if decided == Outcome::Abort {
                self.end_resolution(id);
                if self.own(id).is_some() {
                    self.resolve_own(now, id.sequence, out);
                }
                return;
            }
            let silent = resolution.participants.clone();
            return self.enter(now, id, Phase::Telling { outcome: Outcome::Commit, silent }, out);
        }
        silent.remove(&device);
        if !silent.is_empty() {
            return;
        }
        let (outcome, silent) = (*outcome, resolution.participants.clone());
        if self.own(id).is_some() {
            self.end_resolution(id);
            return self.on_own_resolved(now, id.sequence, outcome, out);
        }
        self.enter(now, id, Phase::Forgetting { silent }, out);
    }

    pub(crate) fn on_forgotten(&mut self, device: DeviceId, id: TransactionId) {
        if id.host == self.config.generation {
            self.requests.on_forgotten(&mut self.links, device, id.sequence);
        }
        let Some(resolution) = self.resolutions.get_mut(&id) else { return };
        let Phase::Forgetting { silent } = &mut resolution.phase else { return };
        silent.remove(&device);
        if silent.is_empty() {
            self.counters.resolved += 1;
            self.end_resolution(id);
        }
    }

    pub(crate) fn resend_resolution(&mut self, now: Now, id: TransactionId, out: &mut Effects) {
        self.counters.resent += 1;
        self.ask_silent(now, id, out);
    }

    fn enter(&mut self, now: Now, id: TransactionId, phase: Phase, out: &mut Effects) {
        let resolution = self.resolutions.get_mut(&id).expect("it is under way");
        resolution.phase = phase;
        resolution.resend_after = Duration::ZERO;
        self.ask_silent(now, id, out);
    }

    fn ask_silent(&mut self, now: Now, id: TransactionId, out: &mut Effects) {
        let settings = &self.config.settings;
        let resolution = self.resolutions.get_mut(&id).expect("it is under way");
        resolution.resend_after = (resolution.resend_after * 2).clamp(settings.resend_min, settings.resend_max);
        self.timers.set(Timer::Resolve(id), now.time.after(resolution.resend_after));
        let stamp = resolution.stamp;
        let (silent, command) = match &resolution.phase {
            Phase::Asking { silent, .. } => (silent, Command::Resolve { transaction: id, stamp }),
            Phase::Telling { outcome, silent } => {
                (silent, Command::Decide { transaction: id, stamp, outcome: *outcome })
            }
            Phase::Forgetting { silent } => (silent, Command::Forget { transaction: id }),
        };
        for device in silent.clone() {
            self.send(now, device, command.clone(), out);
        }
    }

    pub(crate) fn end_resolution(&mut self, id: TransactionId) {
        self.resolutions.remove(&id);
        self.timers.cancel(Timer::Resolve(id));
    }
}
