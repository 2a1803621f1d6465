//! Finding out how a dead host's transaction ended, and making it known (atomicity `implied`).
//!
//! Devices name such transactions in their heartbeat answers. Any host may take one up, several may at once, and early
//! is safe: the participants' answers decide, not the asker.
//!
//! ```text
//!   Asking ── all prepared, or one committed ──► Telling (commit) ─┐
//!      └───── one that never prepared ─────────► Telling (abort) ──┴─► Forgetting ─► gone
//! ```

use crate::host::{Host, Timer};
use braid_base::{DeviceId, Now, Stamp, TransactionId};
use braid_machine::{Effects, Ignored};
use braid_wire::{Command, Orphan, Outcome, Vote};
use std::collections::BTreeSet;
use std::time::Duration;

/// The most that one host resolves at once.
const RESOLUTIONS_MAX: usize = 256;

/// The resolution of one transaction.
#[derive(Clone, Debug)]
pub(crate) struct Resolution {
    stamp: Stamp,
    participants: BTreeSet<DeviceId>,
    resend_after: Duration,
    phase: Phase,
}

#[derive(Clone, Debug)]
enum Phase {
    /// Participants that have not said what they know.
    Asking { silent: BTreeSet<DeviceId> },
    /// Participants that have not made the outcome durable.
    Telling { outcome: Outcome, silent: BTreeSet<DeviceId> },
    /// Participants that may still remember it.
    Forgetting { silent: BTreeSet<DeviceId> },
}

impl Host {
    /// A device names transactions that nobody looks after.
    pub(crate) fn on_orphans(&mut self, now: Now, orphans: Vec<Orphan>, out: &mut Effects) {
        for Orphan { transaction, stamp, participants } in orphans {
            let own = transaction.host == self.config.generation;
            let under_way = own && self.transactions.contains_key(&transaction.sequence);
            let known = participants.iter().all(|device| self.links.contains_key(device));
            let taken = self.resolutions.contains_key(&transaction) || !self.has_room_to_resolve();
            if under_way || taken || !known || participants.is_empty() {
                continue;
            }
            let participants: BTreeSet<_> = participants.into_iter().collect();
            let phase = Phase::Asking { silent: participants.clone() };
            let resolution = Resolution { stamp, participants, resend_after: Duration::ZERO, phase };
            self.resolutions.insert(transaction, resolution);
            self.ask_silent(now, transaction, out);
        }
    }

    /// True if one more can be taken up. One that has been without an answer for long, since a device is away, makes room.
    fn has_room_to_resolve(&mut self) -> bool {
        if self.resolutions.len() < RESOLUTIONS_MAX {
            return true;
        }
        let stuck = |(_, resolution): &(_, &Resolution)| resolution.resend_after >= self.config.settings.resend_max;
        let Some(id) = self.resolutions.iter().find(stuck).map(|(id, _)| *id) else { return false };
        self.end_resolution(id);
        true
    }

    pub(crate) fn on_vote(&mut self, now: Now, device: DeviceId, id: TransactionId, vote: Vote, out: &mut Effects) {
        let Some(resolution) = self.resolutions.get_mut(&id) else { return out.ignore(Ignored::NotAwaited) };
        let Phase::Asking { silent } = &mut resolution.phase else { return out.ignore(Ignored::NotAwaited) };
        if !silent.remove(&device) {
            return out.ignore(Ignored::NotAwaited);
        }
        let outcome = match vote {
            // One that committed knows that all were prepared.
            Vote::Committed => Outcome::Commit,
            // One that promised never to prepare makes it impossible that all ever are.
            Vote::NeverPrepared => Outcome::Abort,
            Vote::Prepared if silent.is_empty() => Outcome::Commit,
            Vote::Prepared => return,
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
            return self.on_abort_confirmed(now, device, id, out);
        };
        let Phase::Telling { outcome, silent } = &mut resolution.phase else {
            return out.ignore(Ignored::NotAwaited);
        };
        if decided != *outcome {
            // A device that forgot an outcome says "never prepared", and we took that for an abort: but one that knows of a
            // commit is right. The other way round, our telling was late, and whoever told it first will finish.
            if decided == Outcome::Abort {
                return self.end_resolution(id);
            }
            let silent = resolution.participants.clone();
            return self.enter(now, id, Phase::Telling { outcome: Outcome::Commit, silent }, out);
        }
        silent.remove(&device);
        if silent.is_empty() {
            let silent = resolution.participants.clone();
            self.enter(now, id, Phase::Forgetting { silent }, out);
        }
    }

    pub(crate) fn on_forgotten(&mut self, device: DeviceId, id: TransactionId) {
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
            Phase::Asking { silent } => (silent, Command::Resolve { transaction: id, stamp }),
            Phase::Telling { outcome, silent } => {
                (silent, Command::Decide { transaction: id, stamp, outcome: *outcome })
            }
            Phase::Forgetting { silent } => (silent, Command::Forget { transaction: id }),
        };
        for device in silent.clone() {
            self.send(now, device, command.clone(), out);
        }
    }

    fn end_resolution(&mut self, id: TransactionId) {
        self.resolutions.remove(&id);
        self.timers.cancel(Timer::Resolve(id));
    }
}
