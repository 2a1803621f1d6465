//! The reservation bounds the stamps that may be accepted: they must be durably reserved, and not be far ahead of the
//! clock. This module also admits requests, since admission depends on their stamps.

use super::ctx::Ctx;
use super::decision::Decision;
use super::ledger::Ledger;
use braid_base::limits::{self, Settings};
use braid_base::{Clock, Generation, Now, Stamp, Time};
use braid_blocks::{Content, Piece};
use braid_machine::Ignored;
use braid_ordering::Admission;
use braid_wire::{Command, Failure, Refusal, Reply, Step, Vote};

/// A clock reading beyond this, in the year 2200, is a fault: no stamp is accepted for it.
const CLOCK_MAX: Clock = Clock(7_258_118_400_000_000_000);
/// The most requests that wait for a reservation.
const DEFERRED_MAX: usize = 1024;

/// The result of the admission of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// The command may proceed.
    Open,
    /// The command was answered or ignored.
    Shut,
    /// The command may proceed once more stamps are reserved.
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
    /// The reservation that is being written to disk.
    asked: Option<Clock>,
    /// Requests whose stamps are above what is durably reserved.
    deferred: Vec<(Generation, Command)>,
}

impl Reservation {
    /// Takes in the reservation from before a restart.
    pub fn recover(&mut self, now: Time, durable: Clock) {
        self.durable = durable;
        self.know(now, durable);
    }

    /// True if a stamp of this clock may be accepted at once.
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

    /// Admits a command if its transaction is not over, its stamp is near the clock, and the reservation of stamps up
    /// to it is durable. A command of a known transaction is admitted at once, if it has the same stamp.
    pub fn admit(&mut self, cx: &mut Ctx, ledger: &Ledger, host: Generation, command: &Command) -> Gate {
        let (transaction, stamp, assumed) = match command {
            Command::Read { transaction, stamp, object, ordering, .. }
            | Command::Prewrite { transaction, stamp, object, ordering, .. }
            | Command::Write { transaction, stamp, object, ordering, .. }
            | Command::Execute { transaction, stamp, object, ordering, .. } => {
                if transaction.host != host || cx.hosts.is_settled(host, transaction.sequence) {
                    cx.ignore(Ignored::Settled);
                    return Gate::Shut;
                }
                (*transaction, *stamp, Some((*object, *ordering)))
            }
            Command::Resolve { transaction, stamp } | Command::Retract { transaction, stamp } => {
                (*transaction, *stamp, None)
            }
            _ => return Gate::Open,
        };
        if stamp.host != transaction.host {
            cx.ignore(Ignored::NotForUs);
            return Gate::Shut;
        }
        if let Some(known) = ledger.get(transaction) {
            // A transaction that is known only by an early abort has the stamp of the abort, which is the transaction's
            // own. A transaction that writes under a lock server's locks, and was refused elsewhere, may have continued
            // with a higher stamp.
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
        if compares_none {
            return Gate::Open;
        }
        if stamp.clock > self.limit(cx.now, cx.settings) {
            let refusal = Refusal::TooFarAhead { clock: cx.now.clock };
            match command {
                // Refusing these commands means an abort promise, whose stamp would have to be reserved; a stamp this
                // far ahead is not reserved.
                Command::Resolve { .. } => {
                    let vote = Vote::TooFarAhead { clock: cx.now.clock };
                    cx.answer(host, Reply::Vote { transaction, vote });
                }
                // Such a stamp is never accepted, so the device need not remember beyond a restart that it is not.
                Command::Retract { .. } => return Gate::Open,
                command if is_stray(command) => cx.ignore(Ignored::NotForUs),
                _ => cx.refuse(transaction, step_of(command), refusal),
            }
            return Gate::Shut;
        }
        if let Some(until) = self.reserve_ahead(cx.now, cx.settings, stamp) {
            cx.decide(Decision::Reserve { until });
        }
        if self.covers(stamp.clock) { Gate::Open } else { Gate::NotYet }
    }

    /// The highest stamp clock that is accepted now. It is the larger of two bounds: this device's clock plus
    /// `stamp_ahead_max`; and the highest clock that is known to be reserved, here or on another device, plus half the
    /// time since that became known.
    ///
    /// So a host can always take a stamp above all accepted ones, even if all clocks have stepped back since. Accepted
    /// stamps do not move the limit, because the reservation is never above it. Hence no host with a wrong clock can
    /// carry it ahead. The limit advances at half the speed of a right clock, which therefore catches up with it.
    pub fn limit(&self, now: Now, settings: &Settings) -> Clock {
        let by_clock = now.clock.min(CLOCK_MAX).ahead(settings.stamp_ahead_max);
        by_clock.max(self.known.ahead(now.time.since(self.known_since) / 2))
    }

    /// Stamps up to this clock may already be accepted, on this device or on another.
    pub fn know(&mut self, now: Time, until: Clock) {
        if until > self.known {
            (self.known, self.known_since) = (until, now);
        }
    }

    /// The clock up to which more stamps are to be reserved. It is asked early, so that requests seldom wait for a
    /// reservation. `None` if enough are reserved, or a reservation is under way.
    pub fn reserve_ahead(&mut self, now: Now, settings: &Settings, stamp: Stamp) -> Option<Clock> {
        let most = settings.stamp_reservation;
        // Near the clock, so that repeated restarts don't carry the floor far ahead of it. Near the stamp, so that a
        // device's clock that is wrong once does not either. Never above the limit, so that no restart raises the
        // limit.
        let ahead = now.clock.ahead(most).since(stamp.clock).clamp(most / 10, most);
        let until = stamp.clock.ahead(ahead).min(self.limit(now, settings));
        let running_low = !self.covers(stamp.clock.ahead(ahead / 2));
        if !running_low || self.covers(until) || self.asked.is_some() {
            return None;
        }
        self.asked = Some(until);
        self.asked
    }

    /// The reservation is durable. Returns its new bound.
    pub fn reserved(&mut self, now: Time) -> Clock {
        let until = self.asked.take().expect("one reservation at a time");
        self.durable = self.durable.max(until);
        self.know(now, until);
        until
    }

    /// Puts a command aside until higher stamps are reserved. False if the command is dropped instead: if there is no
    /// room (its host sends it again), or if it is a write whose pre-write should be here and is not.
    pub fn defer(&mut self, host: Generation, command: Command) -> bool {
        let again = (host, command);
        let bytes: usize = self.deferred.iter().map(|(_, command)| bytes_of(command)).sum();
        let full = self.deferred.len() >= DEFERRED_MAX || bytes + bytes_of(&again.1) > limits::WAITING_BYTES_MAX;
        let is_kept = !is_stray(&again.1) && !full && !self.deferred.contains(&again);
        if is_kept {
            self.deferred.push(again);
        }
        is_kept
    }

    /// Takes out the commands that were put aside.
    pub fn take_deferred(&mut self) -> Vec<(Generation, Command)> {
        std::mem::take(&mut self.deferred)
    }

    /// Drops the commands of a host that were put aside.
    pub fn drop_deferred_of(&mut self, host: Generation) {
        self.deferred.retain(|(who, _)| *who != host);
    }

    /// Asserts that accepted stamps are reserved, and that the reservation is below the limit.
    pub fn invariants(&self, highest_accepted: Stamp) {
        assert!(highest_accepted <= Stamp::last_of(self.durable), "an accepted stamp is durably reserved");
        assert!(self.durable <= self.known, "the reservation is below the limit of stamps");
    }
}

/// The memory that a command takes: its data and its longest lists.
fn bytes_of(command: &Command) -> usize {
    let piece =
        |piece: &Piece| size_of_val(piece) + if let Content::Data(bytes) = &piece.content { bytes.len() } else { 0 };
    match command {
        Command::Write { pieces, .. } => pieces.iter().map(piece).sum(),
        Command::Execute { column, .. } => {
            let own = column.parity.iter().flat_map(|rows| &rows.own);
            let sources: usize = column.parity.iter().map(|rows| size_of_val(&rows.from[..])).sum();
            column.pieces.iter().chain(own).map(piece).sum::<usize>() + size_of_val(&column.sends[..]) + sources
        }
        Command::Read { extents, .. } => size_of_val(&extents[..]),
        Command::Prewrite { prewrites, reads, .. } => size_of_val(&prewrites[..]) + size_of_val(&reads[..]),
        _ => 0,
    }
}

/// True for a write of an unknown transaction that should have been announced.
fn is_stray(command: &Command) -> bool {
    matches!(command, Command::Write { ordering, mode, .. } if !ordering.policy().admits_unannounced(*mode))
}

/// The step that a refusal of the command names.
fn step_of(command: &Command) -> Step {
    match command {
        Command::Prewrite { .. } => Step::Prewrite,
        Command::Write { .. } => Step::Write,
        Command::Execute { .. } => Step::Execute,
        _ => Step::Read,
    }
}
