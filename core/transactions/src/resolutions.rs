//! A resolution finds out how a transaction ended, and makes that known (atomicity `implied`). The transaction is a
//! dead host's, or one of this host that was under way when another epoch began.
//!
//! Devices name transactions of dead hosts in their heartbeat answers. Any host may resolve them, several hosts may do
//! so at once, and it is safe to begin early: the answers of the participants decide, not the host that asks. After a
//! change of epoch, the participants are those that have been in since the transaction wrote.
//!
//! ```text
//!   Asking ── all prepared, or one committed ──► Notifying (commit) ─┐
//!      └───── one that never prepared ─────────► Notifying (abort) ──┴─► Forgetting ─► gone
//! ```
//!
//! If a clock was hours ahead of all others, devices make no abort promise for its stamps. If all participants say so, no
//! promise is needed, because no device has accepted such a stamp. This counts only when they have said so for two leases
//! of devices. By then each serving device has heard from the monitor which stamps others have accepted, and makes
//! promises for these.
//!
//! For a transaction of this host, the participants need not be asked to forget: the host itself declares it over. Its
//! user is answered only when the outcome is durable on all devices with a vote.

use crate::ctx::Ctx;
use crate::operations::LEASES_ASKED;
use crate::transaction::{self, Transaction};
use braid_base::{Backoff, DeviceId, Stamp, Time, Timers, TransactionId};
use braid_machine::Ignored;
use braid_wire::{Command, Outcome, Vote};
use std::collections::{BTreeMap, BTreeSet};

/// The most transactions that are resolved at once.
const RESOLUTIONS_MAX: usize = 256;
/// The most that one check of the invariants looks at.
const CHECKED_MAX: usize = 16;

/// The resolutions under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resolutions {
    under_way: BTreeMap<TransactionId, Resolution>,
    timers: Timers<TransactionId>,
}

#[derive(Clone, Debug)]
struct Resolution {
    stamp: Stamp,
    participants: BTreeSet<DeviceId>,
    since: Time,
    resend: Backoff,
    phase: Phase,
}

#[derive(Clone, Debug)]
enum Phase {
    /// Participants that have not voted; and those among them that have nothing, but can't make an abort promise for
    /// such a stamp.
    Asking { silent: BTreeSet<DeviceId>, too_far_ahead: BTreeSet<DeviceId> },
    /// Participants that have not made the outcome durable.
    Notifying { outcome: Outcome, silent: BTreeSet<DeviceId> },
    /// Participants that may still remember it.
    Forgetting { silent: BTreeSet<DeviceId> },
}

/// The consequence for the transaction, if it is one of this host.
#[derive(Clone, Debug)]
pub(crate) enum Resolved {
    /// Nothing yet.
    NotYet,
    /// All participants know the outcome, durably.
    Known(Outcome),
    /// Another host has made another outcome known; the participants are to be asked again.
    Otherwise,
}

impl Resolution {
    fn silent(&self) -> &BTreeSet<DeviceId> {
        match &self.phase {
            Phase::Asking { silent, .. } | Phase::Notifying { silent, .. } | Phase::Forgetting { silent } => silent,
        }
    }
}

impl Resolutions {
    pub fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    pub fn has(&self, id: TransactionId) -> bool {
        self.under_way.contains_key(&id)
    }

    /// The participants of all resolutions.
    pub fn devices(&self) -> impl Iterator<Item = DeviceId> + '_ {
        self.under_way.values().flat_map(|resolution| resolution.participants.iter().copied())
    }

    /// The devices that have not voted on a transaction of this host, or have not confirmed its end.
    pub fn undecided_by(&self, id: TransactionId, transaction: &Transaction) -> Vec<DeviceId> {
        let silent = match &transaction.phase {
            transaction::Phase::Aborting { unconfirmed, .. } => Some(unconfirmed),
            _ => self.under_way.get(&id).map(Resolution::silent),
        };
        silent.into_iter().flatten().copied().collect()
    }

    pub fn next_timer(&self) -> Option<(Time, TransactionId)> {
        self.timers.next()
    }

    /// Asks again at once, for all resolutions.
    pub fn hurry(&mut self, now: Time) {
        for id in self.under_way.keys() {
            self.timers.set(*id, now);
        }
    }

    /// Begins to resolve a transaction.
    pub fn start(&mut self, ctx: &mut Ctx, id: TransactionId, stamp: Stamp, participants: BTreeSet<DeviceId>) {
        let phase = Phase::Asking { silent: participants.clone(), too_far_ahead: BTreeSet::new() };
        let (since, resend) = (ctx.now.time, ctx.settings.resend());
        self.under_way.insert(id, Resolution { stamp, participants, since, resend, phase });
        self.ask_silent(ctx, id);
    }

    /// Another epoch has begun: other participants may have a vote now.
    pub fn drop_others(&mut self, ctx: &Ctx) {
        let others: Vec<_> = self.under_way.keys().copied().filter(|id| id.host != ctx.host).collect();
        others.into_iter().for_each(|id| self.end(id));
    }

    /// True if one more transaction can be resolved. A resolution that has been without an answer for long, because a
    /// device is unavailable, makes room.
    pub fn has_room(&mut self, ctx: &Ctx) -> bool {
        if self.under_way.len() < RESOLUTIONS_MAX {
            return true;
        }
        let stuck =
            |(id, resolution): &(&TransactionId, &Resolution)| id.host != ctx.host && resolution.resend.is_longest();
        let Some(id) = self.under_way.iter().find(stuck).map(|(id, _)| *id) else { return false };
        self.end(id);
        true
    }

    pub fn on_vote(&mut self, ctx: &mut Ctx, device: DeviceId, id: TransactionId, vote: Vote) {
        let Some(resolution) = self.under_way.get_mut(&id) else { return ctx.out.ignore(Ignored::NotAwaited) };
        let Phase::Asking { silent, too_far_ahead } = &mut resolution.phase else {
            return ctx.out.ignore(Ignored::NotAwaited);
        };
        if let Vote::TooFarAhead { clock } = vote
            && silent.contains(&device)
        {
            let settings = ctx.settings;
            if resolution.stamp.clock > clock.ahead(settings.stamp_ahead_max + settings.request_timeout) {
                too_far_ahead.insert(device);
            }
            // All participants, for a long time: the stamp is wrong, not a device's clock, and no late copy will find
            // all their clocks changed. Otherwise they are asked again.
            let for_long = ctx.now.time.since(resolution.since) >= settings.device_lease * LEASES_ASKED;
            if for_long && *too_far_ahead == resolution.participants {
                let silent = resolution.participants.clone();
                self.enter(ctx, id, Phase::Notifying { outcome: Outcome::Abort, silent });
            }
            return;
        }
        if !silent.remove(&device) {
            return ctx.out.ignore(Ignored::NotAwaited);
        }
        too_far_ahead.remove(&device);
        let outcome = match vote {
            // A participant that committed knows that all had prepared.
            Vote::Committed => Outcome::Commit,
            // With this abort promise, it is impossible that all ever prepare.
            Vote::NeverPrepared => Outcome::Abort,
            Vote::Prepared if silent.is_empty() => Outcome::Commit,
            Vote::Prepared | Vote::TooFarAhead { .. } => return,
        };
        let silent = resolution.participants.clone();
        self.enter(ctx, id, Phase::Notifying { outcome, silent });
    }

    /// A participant has made an outcome durable.
    pub fn on_decided(&mut self, ctx: &mut Ctx, device: DeviceId, id: TransactionId, decided: Outcome) -> Resolved {
        let resolution = self.under_way.get_mut(&id).expect("it is under way");
        let Phase::Notifying { outcome, silent } = &mut resolution.phase else {
            ctx.out.ignore(Ignored::NotAwaited);
            return Resolved::NotYet;
        };
        if decided != *outcome {
            // A device that forgot a commit says "never prepared", which counted as an abort; but a device that knows
            // of a commit is right. In the opposite case this host told its outcome too late, and the host that told
            // another one first will finish.
            if decided == Outcome::Abort {
                self.end(id);
                return Resolved::Otherwise;
            }
            let silent = resolution.participants.clone();
            self.enter(ctx, id, Phase::Notifying { outcome: Outcome::Commit, silent });
            return Resolved::NotYet;
        }
        silent.remove(&device);
        if silent.is_empty() { Resolved::Known(*outcome) } else { Resolved::NotYet }
    }

    /// The outcome of another host's transaction is durable on all devices with a vote: its participants need not
    /// remember it.
    pub fn forget(&mut self, ctx: &mut Ctx, id: TransactionId) {
        let silent = self.under_way[&id].participants.clone();
        self.enter(ctx, id, Phase::Forgetting { silent });
    }

    /// A participant has forgotten the outcome. True if all have.
    pub fn on_forgotten(&mut self, device: DeviceId, id: TransactionId) -> bool {
        let Some(resolution) = self.under_way.get_mut(&id) else { return false };
        let Phase::Forgetting { silent } = &mut resolution.phase else { return false };
        silent.remove(&device);
        let all_have = silent.is_empty();
        if all_have {
            self.end(id);
        }
        all_have
    }

    fn enter(&mut self, ctx: &mut Ctx, id: TransactionId, phase: Phase) {
        let resolution = self.under_way.get_mut(&id).expect("it is under way");
        resolution.phase = phase;
        resolution.resend.reset();
        self.ask_silent(ctx, id);
    }

    /// Asks the participants that have not answered.
    pub fn ask_silent(&mut self, ctx: &mut Ctx, id: TransactionId) {
        let resolution = self.under_way.get_mut(&id).expect("it is under way");
        self.timers.set(id, ctx.now.time.after(resolution.resend.next_wait()));
        let stamp = resolution.stamp;
        let (silent, command) = match &resolution.phase {
            Phase::Asking { silent, .. } => (silent, Command::Resolve { transaction: id, stamp }),
            Phase::Notifying { outcome, silent } => {
                (silent, Command::Decide { transaction: id, stamp, outcome: *outcome })
            }
            Phase::Forgetting { silent } => (silent, Command::Forget { transaction: id }),
        };
        for device in silent {
            ctx.send(*device, command.clone());
        }
    }

    pub fn end(&mut self, id: TransactionId) {
        self.under_way.remove(&id);
        self.timers.cancel(id);
    }

    /// Asserts that each resolution has a deadline, and that a phase ends with its last answer.
    pub fn invariants(&self) {
        assert_eq!(self.under_way.len(), self.timers.len(), "a resolution is asked for until it ends");
        for (id, resolution) in self.under_way.iter().take(CHECKED_MAX) {
            let silent = resolution.silent();
            assert!(!silent.is_empty(), "the last answer ends a phase of a resolution: {id}");
            assert!(silent.is_subset(&resolution.participants), "participants alone are asked: {id}");
        }
    }
}
