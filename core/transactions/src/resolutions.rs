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

use crate::ctx::Ctx;
use crate::operations::LEASES_ASKED;
use crate::transaction::{self, Transaction};
use braid_base::{DeviceId, Stamp, Time, Timers, TransactionId};
use braid_machine::Ignored;
use braid_wire::{Command, Outcome, Vote};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The most that are resolved at once.
const RESOLUTIONS_MAX: usize = 256;
/// The most that one look at the invariants checks.
const CHECKED_MAX: usize = 16;

/// All resolutions under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resolutions {
    under_way: BTreeMap<TransactionId, Resolution>,
    timers: Timers<TransactionId>,
}

/// The resolution of one transaction.
#[derive(Clone, Debug)]
struct Resolution {
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

/// What follows for the transaction, if it is one of this host.
pub(crate) enum Resolved {
    /// Nothing yet.
    NotYet,
    /// All know the outcome, which is durable wherever it counts.
    Known(Outcome),
    /// Somebody else has made another outcome known, and is to be asked what.
    Otherwise,
}

impl Resolution {
    fn silent(&self) -> &BTreeSet<DeviceId> {
        match &self.phase {
            Phase::Asking { silent, .. } | Phase::Telling { silent, .. } | Phase::Forgetting { silent } => silent,
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

    /// The devices that they have to do with.
    pub fn devices(&self) -> impl Iterator<Item = DeviceId> + '_ {
        self.under_way.values().flat_map(|resolution| resolution.participants.iter().copied())
    }

    /// The devices that have not said what they know of an own transaction, or have not taken note of its end.
    pub fn undecided_by(&self, id: TransactionId, transaction: &Transaction) -> Vec<DeviceId> {
        let silent = match &transaction.phase {
            transaction::Phase::Aborting { unconfirmed, .. } => Some(unconfirmed),
            _ => self.under_way.get(&id).map(Resolution::silent),
        };
        silent.into_iter().flatten().copied().collect()
    }

    /// What is to be asked again next, and when.
    pub fn next_timer(&self) -> Option<(Time, TransactionId)> {
        self.timers.next()
    }

    /// Those that are under way are asked again now.
    pub fn hurry(&mut self, now: Time) {
        for id in self.under_way.keys() {
            self.timers.set(*id, now);
        }
    }

    /// Finds out how a transaction ended.
    pub fn start(&mut self, ctx: &mut Ctx, id: TransactionId, stamp: Stamp, participants: BTreeSet<DeviceId>) {
        let phase = Phase::Asking { silent: participants.clone(), too_far_ahead: BTreeSet::new() };
        let (since, resend_after) = (ctx.now.time, Duration::ZERO);
        self.under_way.insert(id, Resolution { stamp, participants, since, resend_after, phase });
        self.ask_silent(ctx, id);
    }

    /// Another epoch has begun: other participants may count now.
    pub fn drop_others(&mut self, ctx: &Ctx) {
        let others: Vec<_> = self.under_way.keys().copied().filter(|id| id.host != ctx.host).collect();
        others.into_iter().for_each(|id| self.end(id));
    }

    /// True if one more can be taken up. One that has been without an answer for long, since a device is unavailable, makes room.
    pub fn has_room(&mut self, ctx: &Ctx) -> bool {
        if self.under_way.len() < RESOLUTIONS_MAX {
            return true;
        }
        let stuck = |(id, resolution): &(&TransactionId, &Resolution)| {
            id.host != ctx.host && resolution.resend_after >= ctx.settings.resend_max
        };
        let Some(id) = self.under_way.iter().find(stuck).map(|(id, _)| *id) else { return false };
        self.end(id);
        true
    }

    /// A participant says what it knows.
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
            // All of them, for long: it is the stamp that is wrong, not a device's clock, and no copy that is still on its way will find
            // the clocks of all changed. Otherwise they are asked again.
            let for_long = ctx.now.time.since(resolution.since) >= settings.device_lease * LEASES_ASKED;
            if for_long && *too_far_ahead == resolution.participants {
                let silent = resolution.participants.clone();
                self.enter(ctx, id, Phase::Telling { outcome: Outcome::Abort, silent });
            }
            return;
        }
        if !silent.remove(&device) {
            return ctx.out.ignore(Ignored::NotAwaited);
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
        self.enter(ctx, id, Phase::Telling { outcome, silent });
    }

    /// A participant has an outcome durably.
    pub fn on_decided(&mut self, ctx: &mut Ctx, device: DeviceId, id: TransactionId, decided: Outcome) -> Resolved {
        let resolution = self.under_way.get_mut(&id).expect("it is under way");
        let Phase::Telling { outcome, silent } = &mut resolution.phase else {
            ctx.out.ignore(Ignored::NotAwaited);
            return Resolved::NotYet;
        };
        if decided != *outcome {
            // A device that forgot an outcome says "never prepared", and we took that for an abort: but one that knows of a
            // commit is right. The other way round, our telling was late, and whoever told it first will finish.
            if decided == Outcome::Abort {
                self.end(id);
                return Resolved::Otherwise;
            }
            let silent = resolution.participants.clone();
            self.enter(ctx, id, Phase::Telling { outcome: Outcome::Commit, silent });
            return Resolved::NotYet;
        }
        silent.remove(&device);
        if silent.is_empty() { Resolved::Known(*outcome) } else { Resolved::NotYet }
    }

    /// The outcome of another host's transaction is durable wherever it counts: its participants need not remember it.
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
        resolution.resend_after = Duration::ZERO;
        self.ask_silent(ctx, id);
    }

    /// Asks those of the participants that have not answered.
    pub fn ask_silent(&mut self, ctx: &mut Ctx, id: TransactionId) {
        let settings = ctx.settings;
        let resolution = self.under_way.get_mut(&id).expect("it is under way");
        resolution.resend_after = (resolution.resend_after * 2).clamp(settings.resend_min, settings.resend_max);
        self.timers.set(id, ctx.now.time.after(resolution.resend_after));
        let stamp = resolution.stamp;
        let (silent, command) = match &resolution.phase {
            Phase::Asking { silent, .. } => (silent, Command::Resolve { transaction: id, stamp }),
            Phase::Telling { outcome, silent } => {
                (silent, Command::Decide { transaction: id, stamp, outcome: *outcome })
            }
            Phase::Forgetting { silent } => (silent, Command::Forget { transaction: id }),
        };
        for device in silent {
            ctx.send(*device, command.clone());
        }
    }

    /// One is over.
    pub fn end(&mut self, id: TransactionId) {
        self.under_way.remove(&id);
        self.timers.cancel(id);
    }
    /// Asserts that each has a deadline, and that the last answer ends a phase.
    pub fn invariants(&self) {
        assert_eq!(self.under_way.len(), self.timers.len(), "a resolution is asked for until it ends");
        for (id, resolution) in self.under_way.iter().take(CHECKED_MAX) {
            let silent = resolution.silent();
            assert!(!silent.is_empty(), "the last answer ends a phase of a resolution: {id}");
            assert!(silent.is_subset(&resolution.participants), "participants alone are asked: {id}");
        }
    }
}
