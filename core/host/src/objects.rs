//! Requests for objects that hold bytes and attributes: sent to their device until it answers, or their time is up.
//!
//! A request has a sequence, as a transaction has, by which the device does it once however often it is sent. It is *over* when it is
//! answered, or given up: then the mark that rides on later requests passes it, and the device need not keep the answer. What was given up
//! is named by all that is begun later ([`request_window`](crate::request_window)), until something of that is answered: by then it has happened, or never will.

use crate::ctx::Timer;
use crate::host::Host;
use braid_base::{DeviceId, Now, ObjectId, Time, limits};
use braid_machine::{Effects, HostError, HostOutcome, HostSuccess, OpId};
use braid_wire::{AttributeName, Command, ObjectAnswer, ObjectFailure, ObjectRefusal, ObjectRequest};
use bytes::Bytes;
use std::time::Duration;

/// How long a device that was not heard while somebody waited for a change may take to say how things are, before the wait is
/// [`HostError::TimedOut`].
const CHANGE_GRACE: Duration = Duration::from_secs(1);

/// A request that a device has not answered.
#[derive(Clone, Debug)]
pub(crate) struct PendingRequest {
    op: OpId,
    device: DeviceId,
    pub(crate) asks: Asks,
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

impl PendingRequest {
    /// Which device is asked.
    pub fn device(&self) -> DeviceId {
        self.device
    }
}

impl Host {
    pub(crate) fn start_object_request(
        &mut self,
        now: Now,
        op: OpId,
        device: DeviceId,
        asks: Asks,
        patience: Duration,
        out: &mut Effects,
    ) {
        if self.fenced {
            return out.reply(op, Err(HostError::Fenced));
        }
        // What no device takes may not even fit into a frame.
        if let Err(refusal) = asks.check() {
            return out.reply(op, Err(HostError::Objects(refusal)));
        }
        if self.object_requests.len() >= limits::OPERATIONS_MAX {
            return out.reply(op, Err(HostError::Busy));
        }
        let sequence = self.links.next_sequence();
        let Some(link) = self.links.get_mut(device) else {
            return out.reply(op, Err(HostError::NoSuchDevice { device }));
        };
        if let Asks::Commands(_) = asks {
            if !link.window.may_begin() {
                return out.reply(op, Err(HostError::Busy));
            }
            link.window.begin(sequence);
        }
        self.links.take_sequence();
        // Whoever waits for a change is answered when that time is up, unless the device is silent.
        let until = match asks {
            Asks::Commands(_) => now.time.after(patience.min(self.config.settings.request_timeout)),
            Asks::Change { .. } => now.time.after(patience),
        };
        let resend_after = self.config.settings.resend_min;
        let pending = PendingRequest { op, device, asks, since: now.time, until, resend_after };
        self.object_requests.insert(sequence, pending);
        self.send_object_request(now, sequence, out);
    }

    pub(crate) fn on_objects(
        &mut self,
        now: Now,
        device: DeviceId,
        sequence: u64,
        answer: ObjectAnswer,
        out: &mut Effects,
    ) {
        let Some(pending) = self.object_requests.get(&sequence).filter(|pending| pending.device == device) else {
            return;
        };
        // This copy did nothing, and nothing is kept: the same later will do. Whether another copy does something, nobody knows yet.
        let busy = matches!(answer, Err(ObjectRefusal { failure: ObjectFailure::Busy, .. }));
        if !busy && let Some(link) = self.links.get_mut(device) {
            link.window.acknowledge(sequence);
        }
        if busy && now.time >= pending.until {
            return self.resend_object_request(now, sequence, out);
        }
        if busy {
            let most = self.config.settings.backoff_max.as_nanos() as u64;
            let wait = Duration::from_nanos(self.rng.between(most / 2, most));
            return self.timers.set(Timer::ObjectRequest(sequence), now.time.after(wait).min(pending.until));
        }
        self.end_object_request(sequence, answer.map(HostSuccess::Objects).map_err(HostError::Objects), out);
    }

    pub(crate) fn on_changed(
        &mut self,
        device: DeviceId,
        sequence: u64,
        value: Result<Bytes, ObjectFailure>,
        out: &mut Effects,
    ) {
        if self.object_requests.get(&sequence).is_none_or(|pending| pending.device != device) {
            return;
        }
        let refused = |failure| HostError::Objects(ObjectRefusal { command: 0, failure });
        self.end_object_request(sequence, value.map(HostSuccess::Value).map_err(refused), out);
    }

    /// The device has not answered for a while, or there was no room: it is asked again, or given up.
    pub(crate) fn resend_object_request(&mut self, now: Now, sequence: u64, out: &mut Effects) {
        let pending = &self.object_requests[&sequence];
        if now.time < pending.until {
            self.counters.resent += 1;
            return self.send_object_request(now, sequence, out);
        }
        let heard = self.links.last_heard(pending.device);
        let silent = HostError::TimedOut { devices: vec![pending.device], waited: now.time.since(pending.since) };
        let outcome = match &pending.asks {
            Asks::Commands(_) => Err(silent),
            // It lives, and has not said that something has changed.
            Asks::Change { seen, .. } if heard.is_some_and(|heard| heard >= pending.since) => {
                Ok(HostSuccess::Value(seen.clone()))
            }
            // It is asked how things are: there is no time left to wait.
            Asks::Change { .. } if now.time < pending.until.after(CHANGE_GRACE) => {
                self.counters.resent += 1;
                return self.send_object_request(now, sequence, out);
            }
            Asks::Change { .. } => Err(silent),
        };
        self.end_object_request(sequence, outcome, out);
    }

    /// The array serves this host no more.
    pub(crate) fn give_up_object_requests(&mut self, out: &mut Effects) {
        while let Some((sequence, _)) = self.object_requests.first_key_value() {
            self.end_object_request(*sequence, Err(HostError::Fenced), out);
        }
    }

    fn end_object_request(&mut self, sequence: u64, outcome: HostOutcome, out: &mut Effects) {
        let pending = self.object_requests.remove(&sequence).expect("it is pending");
        self.timers.cancel(Timer::ObjectRequest(sequence));
        let next = self.links.next_sequence();
        if let Some(link) = self.links.get_mut(pending.device) {
            match &pending.asks {
                Asks::Change { .. } => {}
                // Nothing is kept of it, and done late it does no harm.
                Asks::Commands(request) if request.only_asks() => link.settle_read(sequence),
                Asks::Commands(_) => {
                    link.keeps = true;
                    match outcome {
                        Err(HostError::TimedOut { .. }) => link.window.abandon(sequence, next),
                        _ => link.settle(sequence),
                    }
                }
            }
        }
        out.reply(pending.op, outcome);
    }

    fn send_object_request(&mut self, now: Now, sequence: u64, out: &mut Effects) {
        let most = self.config.settings.resend_max;
        let pending = self.object_requests.get_mut(&sequence).expect("it is pending");
        let wait = pending.resend_after;
        pending.resend_after = (wait * 2).min(most);
        let (device, until) = (pending.device, pending.until);
        let command = match pending.asks.clone() {
            Asks::Commands(request) => {
                let given_up = self.links.get(device).map_or_else(Vec::new, |link| link.window.named_by(sequence));
                Command::Objects { sequence, given_up, request }
            }
            Asks::Change { object, name, seen } => {
                let patience = until.since(now.time).as_millis().min(u128::from(u32::MAX)) as u32;
                Command::Await { ticket: sequence, object, name, seen, patience }
            }
        };
        // It is answered only when something happens, but the device may have lost it: it is told again now and then.
        let most = if now.time < until { until } else { until.after(CHANGE_GRACE) };
        self.timers.set(Timer::ObjectRequest(sequence), now.time.after(wait).min(most));
        self.send(now, device, command, out);
    }
}
