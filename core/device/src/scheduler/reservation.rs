//! How high stamps may be that are accepted: durably reserved, and not far ahead of the clock. So this is where requests are let in.

use super::ctx::Ctx;
use super::decision::Decision;
use super::ledger::Ledger;
use braid_base::limits::{self, Settings};
use braid_base::{Clock, Generation, Now, Stamp, Time};
use braid_machine::Ignored;
use braid_ordering::{Admission, Ordering, UnannouncedWrite};
use braid_wire::{Command, Content, Failure, Refusal, Reply, Step, Vote};

/// A reading of a clock beyond this, in the year 2200, is a fault: it lets no stamp through.
const CLOCK_MAX: Clock = Clock(7_258_118_400_000_000_000);
/// The most requests that wait for a reservation.
const DEFERRED_MAX: usize = 1024;

/// Whether a command may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// It may.
    Open,
    /// It is answered, or ignored.
    Shut,
    /// Once more stamps are reserved.
    NotYet,
}

/// Clock readings up to which stamps may be accepted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reservation {
    /// Durably reserved.
    durable: Clock,
    /// The highest stamp clock that is known to be reserved, here or on another device, and since when: see [`Reservation::limit`].
    known: Clock,
    known_since: Time,
    /// On its way to the disk.
    asked: Option<Clock>,
    /// Requests whose stamps need more than is durable.
    deferred: Vec<(Generation, Command)>,
}

impl Reservation {
    /// What was reserved before a restart.
    pub fn recover(&mut self, now: Time, durable: Clock) {
        self.durable = durable;
        self.know(now, durable);
    }

    /// True if a stamp of that clock may be accepted at once.
    pub fn covers(&self, clock: Clock) -> bool {
        clock <= self.durable
    }

    /// True if no stamp was ever accepted.
    pub fn is_new(&self) -> bool {
        self.durable == Clock(0)
    }

    /// The highest stamp clock that is known to be reserved, here or on another device.
    pub fn known(&self) -> Clock {
        self.known
    }

    /// Lets a command pass if it belongs to a transaction that is not over, its stamp is near the clock, and it is durable
    /// that stamps as high as this one may have been accepted. What is under way already passes at once, if it is the same.
    pub fn admit(&mut self, cx: &mut Ctx, ledger: &Ledger, host: Generation, command: &Command) -> Gate {
        let (transaction, stamp, assumed) = match command {
            Command::Read { transaction, stamp, object, ordering, .. }
            | Command::Prewrite { transaction, stamp, object, ordering, .. }
            | Command::Write { transaction, stamp, object, ordering, .. } => {
                if transaction.host != host || cx.hosts.is_settled(host, transaction.sequence) {
                    cx.ignore(Ignored::Settled);
                    return Gate::Shut;
                }
                (*transaction, *stamp, Some((*object, *ordering)))
            }
            Command::Resolve { transaction, stamp } => (*transaction, *stamp, None),
            _ => return Gate::Open,
        };
        if stamp.host != transaction.host {
            cx.ignore(Ignored::NotForUs);
            return Gate::Shut;
        }
        if let Some(known) = ledger.get(transaction) {
            // A tombstone of an abort that came first has the stamp of the abort, which is the transaction's.
            // One that writes under a lock server's locks, and was refused elsewhere, has gone on with a higher stamp.
            if known.stamp == stamp || cx.is_unannounced(known.object) {
                return Gate::Open;
            }
            cx.ignore(Ignored::NotForUs);
            return Gate::Shut;
        }
        let object = assumed.and_then(|(object, _)| cx.object(object));
        if let (Some(object), Some((_, assumed))) = (object, assumed)
            && object.ordering != assumed
        {
            cx.fail(transaction, step_of(command), Failure::WrongOrdering);
            return Gate::Shut;
        }
        let compares_none = object.is_some_and(|object| object.ordering.policy().admission == Admission::OnArrival);
        let promises = matches!(command, Command::Write { .. } | Command::Resolve { .. });
        if compares_none || (promises && self.covers(stamp.clock)) {
            return Gate::Open;
        }
        if stamp.clock > self.limit(cx.now, cx.settings) {
            let refusal = Refusal::TooFarAhead { clock: cx.now.clock };
            match command {
                // To refuse these means a promise, which would have to be reserved: not for such a stamp.
                Command::Resolve { .. } => {
                    let vote = Vote::TooFarAhead { clock: cx.now.clock };
                    cx.answer(host, Reply::Vote { transaction, vote });
                }
                Command::Write { ordering, .. } if !admits_unannounced(*ordering) => cx.ignore(Ignored::NotForUs),
                _ => cx.refuse(transaction, step_of(command), refusal),
            }
            return Gate::Shut;
        }
        if let Some(until) = self.reserve_ahead(cx.now, cx.settings, stamp) {
            cx.decide(Decision::Reserve { until });
        }
        if self.covers(stamp.clock) { Gate::Open } else { Gate::NotYet }
    }

    /// The highest stamp clock that is accepted now: `stamp_ahead_max` ahead of this device's clock; or, where stamps have been accepted
    /// that are further ahead of it, here or on another device, as much as is reserved for these, and half the time since then.
    ///
    /// So a host can always go above any stamp that was accepted, though all clocks have stepped back since. Accepted stamps do not move the
    /// limit: what is reserved is never above it. Hence nobody whose clock is wrong can carry it ahead; it moves at half the
    /// pace of a right clock, which therefore catches up with it.
    pub fn limit(&self, now: Now, settings: &Settings) -> Clock {
        let by_clock = now.clock.min(CLOCK_MAX).ahead(settings.stamp_ahead_max);
        by_clock.max(self.known.ahead(now.time.since(self.known_since) / 2))
    }

    /// Stamps up to here may be accepted already, on this device or on another.
    pub fn know(&mut self, now: Time, until: Clock) {
        if until > self.known {
            (self.known, self.known_since) = (until, now);
        }
    }

    /// Up to where more stamps are to be reserved, in time, so that requests seldom wait for that; none if enough are, or that is under
    /// way.
    pub fn reserve_ahead(&mut self, now: Now, settings: &Settings, stamp: Stamp) -> Option<Clock> {
        let most = settings.stamp_reservation;
        // Near the clock, so that restarts in a row don't carry the floor far ahead of it; and near the stamp, so that
        // a device's clock that is wrong once does not. Never above the limit, so that no restart raises that.
        let ahead = now.clock.ahead(most).since(stamp.clock).clamp(most / 10, most);
        let until = stamp.clock.ahead(ahead).min(self.limit(now, settings));
        let running_low = !self.covers(stamp.clock.ahead(ahead / 2));
        if !running_low || self.covers(until) || self.asked.is_some() {
            return None;
        }
        self.asked = Some(until);
        self.asked
    }

    /// More stamps are reserved: tells up to where.
    pub fn reserved(&mut self, now: Time) -> Clock {
        let until = self.asked.take().expect("one reservation at a time");
        self.durable = self.durable.max(until);
        self.know(now, until);
        until
    }

    /// Puts a command aside until higher stamps are reserved. One that finds no room is dropped, and will be sent again; so is
    /// a write whose pre-write should be here, and is not. False if it is dropped.
    pub fn defer(&mut self, host: Generation, command: Command) -> bool {
        let again = (host, command);
        let stray = matches!(&again.1, Command::Write { ordering, .. } if !admits_unannounced(*ordering));
        let bytes: usize = self.deferred.iter().map(|(_, command)| bytes_of(command)).sum();
        let full = self.deferred.len() >= DEFERRED_MAX || bytes + bytes_of(&again.1) > limits::WAITING_BYTES_MAX;
        let is_kept = !stray && !full && !self.deferred.contains(&again);
        if is_kept {
            self.deferred.push(again);
        }
        is_kept
    }

    /// Takes out what was put aside.
    pub fn take_deferred(&mut self) -> Vec<(Generation, Command)> {
        std::mem::take(&mut self.deferred)
    }

    /// Drops what was put aside for a host.
    pub fn drop_deferred_of(&mut self, host: Generation) {
        self.deferred.retain(|(who, _)| *who != host);
    }

    /// Asserts that no accepted stamp is above what is reserved, nor that above the limit of stamps.
    pub fn invariants(&self, highest_accepted: Stamp) {
        assert!(highest_accepted <= Stamp::last_of(self.durable), "an accepted stamp is durably reserved");
        assert!(self.durable <= self.known, "what is reserved is below the limit of stamps");
    }
}

/// The bytes that a command brings.
fn bytes_of(command: &Command) -> usize {
    let data = |content: &Content| if let Content::Data(bytes) = content { bytes.len() } else { 0 };
    match command {
        Command::Write { pieces, .. } => pieces.iter().map(|piece| data(&piece.content)).sum(),
        _ => 0,
    }
}

/// True if a write may be the first thing that the device hears of a transaction.
fn admits_unannounced(ordering: Ordering) -> bool {
    ordering.policy().unannounced_write == UnannouncedWrite::Admit
}

/// What a refusal of the command is called.
fn step_of(command: &Command) -> Step {
    match command {
        Command::Prewrite { .. } => Step::Prewrite,
        Command::Write { .. } => Step::Write,
        _ => Step::Read,
    }
}
