//! Requests for objects that hold bytes and attributes: sent to their device until it answers, or their time is up.
//!
//! A request has a sequence, as a transaction has, by which the device does it once however often it is sent. It is *over* when it is
//! answered, or given up: then the mark that rides on later requests passes it, and the device need not keep the answer. What was given up
//! is named by all that is begun later ([`Links::abandoned_before`]), until something of that is answered: by then it has happened, or never will.

use crate::ctx::Ctx;
use braid_base::{DeviceId, Now, ObjectId, Time, Timers, limits};
use braid_machine::{HostError, HostOutcome, HostSuccess, OpId};
use braid_transactions::{Links, RequestEnd};
use braid_wire::{AttributeName, Command, ObjectAnswer, ObjectFailure, ObjectRefusal, ObjectRequest};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a device that was not heard while somebody waited for a change may take to say how things are, before the wait is
/// [`HostError::TimedOut`].
const CHANGE_GRACE: Duration = Duration::from_secs(1);

/// The requests that devices have not answered, by their sequences.
#[derive(Debug, Default)]
pub(crate) struct ObjectRequests {
    pending: BTreeMap<u64, PendingRequest>,
    /// When each is sent again, or its time is up.
    timers: Timers<u64>,
}

#[derive(Debug)]
struct PendingRequest {
    op: OpId,
    device: DeviceId,
    asks: Asks,
    since: Time,
    until: Time,
    resend_after: Duration,
}

/// What it asks for.
#[derive(Clone, Debug)]
pub(crate) enum Asks {
    /// Commands to be done.
    Commands(ObjectRequest),
    /// That an attribute changes.
    Change {
        /// Of which object.
        object: ObjectId,
        /// Which.
        name: AttributeName,
        /// The value that is known.
        seen: Bytes,
    },
}

impl Asks {
    fn check(&self) -> Result<(), ObjectRefusal> {
        match self {
            Asks::Commands(request) => request.check(),
            Asks::Change { seen, .. } if seen.len() > limits::ATTRIBUTE_BYTES_MAX => {
                let failure = ObjectFailure::ValueTooLong { length: seen.len() as u32 };
                Err(ObjectRefusal { command: 0, failure })
            }
            Asks::Change { .. } => Ok(()),
        }
    }
}

impl ObjectRequests {
    pub fn start(
        &mut self,
        ctx: &mut Ctx,
        links: &mut Links,
        op: OpId,
        device: DeviceId,
        asks: Asks,
        patience: Duration,
    ) -> Result<(), HostError> {
        // What no device takes may not even fit into a frame.
        asks.check().map_err(HostError::Objects)?;
        if self.pending.len() >= limits::OPERATIONS_MAX {
            return Err(HostError::Busy);
        }
        if !links.has(device) {
            return Err(HostError::NoSuchDevice { device });
        }
        let is_change = matches!(asks, Asks::Change { .. });
        if !is_change && !links.may_begin_request(device) {
            return Err(HostError::Busy);
        }
        let sequence = links.take_sequence();
        // A wait for a change is answered when that time is up, unless the device is silent.
        let mut until = ctx.now.time.after(patience);
        if !is_change {
            links.begin_request(device, sequence);
            until = ctx.now.time.after(patience.min(ctx.settings.request_timeout));
        }
        let (since, resend_after) = (ctx.now.time, ctx.settings.resend_min);
        self.pending.insert(sequence, PendingRequest { op, device, asks, since, until, resend_after });
        self.send(ctx, links, sequence);
        Ok(())
    }

    /// A device has answered commands.
    pub fn on_answer(
        &mut self,
        ctx: &mut Ctx,
        links: &mut Links,
        device: DeviceId,
        sequence: u64,
        answer: ObjectAnswer,
    ) {
        let Some(pending) = self.pending.get(&sequence).filter(|pending| pending.device == device) else {
            return;
        };
        // This copy did nothing, and nothing is kept: the same later will do. Whether another copy does something is not known yet.
        let busy = matches!(answer, Err(ObjectRefusal { failure: ObjectFailure::Busy, .. }));
        if !busy {
            links.acknowledge_request(device, sequence);
        }
        if busy && ctx.now.time >= pending.until {
            return self.resend(ctx, links, sequence);
        }
        if busy {
            let most = ctx.settings.backoff_max.as_nanos() as u64;
            let wait = Duration::from_nanos(ctx.rng.between(most / 2, most));
            return self.timers.set(sequence, ctx.now.time.after(wait).min(pending.until));
        }
        self.end(ctx, links, sequence, answer.map(HostSuccess::Objects).map_err(HostError::Objects));
    }

    /// A device has said that an attribute has changed.
    pub fn on_changed(
        &mut self,
        ctx: &mut Ctx,
        links: &mut Links,
        device: DeviceId,
        sequence: u64,
        value: Result<Bytes, ObjectFailure>,
    ) {
        if self.pending.get(&sequence).is_none_or(|pending| pending.device != device) {
            return;
        }
        let refused = |failure| HostError::Objects(ObjectRefusal { command: 0, failure });
        self.end(ctx, links, sequence, value.map(HostSuccess::Value).map_err(refused));
    }

    /// What is looked at next, and when.
    pub fn next_timer(&self) -> Option<(Time, u64)> {
        self.timers.next()
    }

    /// Asserts that each has a deadline.
    pub fn invariants(&self) {
        assert_eq!(self.pending.len(), self.timers.len(), "a request that is not answered has a deadline");
    }

    /// The device has not answered for a while, or there was no room: it is asked again, or the request is abandoned.
    pub fn resend(&mut self, ctx: &mut Ctx, links: &mut Links, sequence: u64) {
        let (now, pending) = (ctx.now.time, &self.pending[&sequence]);
        if now < pending.until {
            ctx.counters.resent += 1;
            return self.send(ctx, links, sequence);
        }
        let heard = links.last_heard(pending.device);
        let silent = HostError::TimedOut { devices: vec![pending.device], waited: now.since(pending.since) };
        let outcome = match &pending.asks {
            Asks::Commands(_) => Err(silent),
            // It lives, and has not said that something has changed.
            Asks::Change { seen, .. } if heard.is_some_and(|heard| heard >= pending.since) => {
                Ok(HostSuccess::Value(seen.clone()))
            }
            // It is asked how things are: there is no time left to wait.
            Asks::Change { .. } if now < pending.until.after(CHANGE_GRACE) => {
                ctx.counters.resent += 1;
                return self.send(ctx, links, sequence);
            }
            Asks::Change { .. } => Err(silent),
        };
        self.end(ctx, links, sequence, outcome);
    }

    /// Ends all that is under way.
    pub fn end_all(&mut self, ctx: &mut Ctx, links: &mut Links, error: &HostError) {
        while let Some((sequence, _)) = self.pending.first_key_value() {
            self.end(ctx, links, *sequence, Err(error.clone()));
        }
    }

    /// Has requests sent again at once that these devices have not answered.
    pub fn hurry(&mut self, now: Now, of: impl Fn(DeviceId) -> bool) {
        for (sequence, _) in self.pending.iter().filter(|(_, pending)| of(pending.device)) {
            self.timers.set(*sequence, now.time);
        }
    }

    /// The devices that have something to answer.
    pub fn devices(&self) -> impl Iterator<Item = DeviceId> + '_ {
        self.pending.values().map(|pending| pending.device)
    }

    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// True if commands are under way.
    pub fn has_commands(&self) -> bool {
        self.pending.values().any(|pending| matches!(pending.asks, Asks::Commands(_)))
    }

    fn end(&mut self, ctx: &mut Ctx, links: &mut Links, sequence: u64, outcome: HostOutcome) {
        let pending = self.pending.remove(&sequence).expect("it is pending");
        self.timers.cancel(sequence);
        if let Asks::Commands(request) = &pending.asks {
            let end = match &outcome {
                _ if request.only_asks() => RequestEnd::NothingKept,
                Err(HostError::TimedOut { .. }) => RequestEnd::Abandoned,
                _ => RequestEnd::Answered,
            };
            links.end_request(pending.device, sequence, end);
        }
        ctx.out.reply(pending.op, outcome);
    }

    fn send(&mut self, ctx: &mut Ctx, links: &mut Links, sequence: u64) {
        let now = ctx.now.time;
        let pending = self.pending.get_mut(&sequence).expect("it is pending");
        let wait = pending.resend_after;
        pending.resend_after = (wait * 2).min(ctx.settings.resend_max);
        let (device, until) = (pending.device, pending.until);
        let command = match pending.asks.clone() {
            Asks::Commands(request) => {
                let abandoned = links.abandoned_before(device, sequence);
                Command::Objects { sequence, abandoned, request }
            }
            Asks::Change { object, name, seen } => {
                let patience = until.since(now).as_millis().min(u128::from(u32::MAX)) as u32;
                Command::Await { ticket: sequence, object, name, seen, patience }
            }
        };
        // It is answered only when something happens, but the device may have lost it: it is told again now and then.
        let most = if now < until { until } else { until.after(CHANGE_GRACE) };
        self.timers.set(sequence, now.after(wait).min(most));
        links.send(&mut ctx.outbound(), device, command);
    }
}
