//! Requests for objects that hold bytes and attributes. Each is sent to its device until the device answers or the
//! request's time is up.
//!
//! A request has a sequence, like a transaction. The device uses it to execute the request once, however often it is
//! sent. A request is *over* when it is answered or abandoned. Then the settled mark on later requests can move beyond
//! it, and the device need not keep the answer. Every later request names the abandoned requests
//! (`request_window` in `braid_transactions`), until one of these later requests is answered. By then each abandoned request has been
//! executed, or never will be.

use crate::ctx::Ctx;
use braid_base::{Backoff, DeviceId, Now, ObjectId, Time, Timers, limits};
use braid_machine::{HostError, HostOutcome, HostSuccess, OpId};
use braid_transactions::RequestEnd;
use braid_wire::{AttributeName, Command, ObjectAnswer, ObjectFailure, ObjectRefusal, ObjectRequest};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a device that was silent during a wait for a change may take to answer with the present value, before the
/// wait ends with [`HostError::TimedOut`].
const CHANGE_GRACE: Duration = Duration::from_secs(1);

/// The requests that devices have not answered, by sequence.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObjectRequests {
    pending: BTreeMap<u64, PendingRequest>,
    /// When each is sent again or its time is up.
    timers: Timers<u64>,
    /// How many each device refused for want of space.
    refused_for_space: BTreeMap<DeviceId, u64>,
}

#[derive(Clone, Debug)]
struct PendingRequest {
    op: OpId,
    device: DeviceId,
    content: RequestContent,
    since: Time,
    until: Time,
    resend: Backoff,
}

#[derive(Clone, Debug)]
pub(crate) enum RequestContent {
    /// Commands to execute.
    Commands(ObjectRequest),
    /// A wait for an attribute to change.
    Change {
        object: ObjectId,
        name: AttributeName,
        /// The value that the host knows.
        seen: Bytes,
    },
}

impl RequestContent {
    fn check(&self) -> Result<(), ObjectRefusal> {
        match self {
            RequestContent::Commands(request) => request.check(),
            RequestContent::Change { seen, .. } if seen.len() > limits::ATTRIBUTE_BYTES_MAX => {
                let failure = ObjectFailure::ValueTooLong { length: seen.len() as u32 };
                Err(ObjectRefusal { command: 0, failure })
            }
            RequestContent::Change { .. } => Ok(()),
        }
    }
}

impl ObjectRequests {
    pub fn start(
        &mut self,
        ctx: &mut Ctx,
        op: OpId,
        device: DeviceId,
        content: RequestContent,
        patience: Duration,
    ) -> Result<(), HostError> {
        // A request that no device accepts may not even fit into a frame.
        content.check().map_err(HostError::Objects)?;
        if self.pending.len() >= limits::OPERATIONS_MAX {
            return Err(HostError::Busy);
        }
        if !ctx.links.has(device) {
            return Err(HostError::NoSuchDevice { device });
        }
        let is_change = matches!(content, RequestContent::Change { .. });
        if !is_change && !ctx.links.may_begin_request(device) {
            return Err(HostError::Busy);
        }
        let sequence = ctx.links.take_sequence();
        // A device answers a wait for a change when that time is up, unless the device is silent.
        let mut until = ctx.now.time.after(patience);
        if !is_change {
            ctx.links.of(device).window.begin(sequence);
            until = ctx.now.time.after(patience.min(ctx.settings.request_timeout));
        }
        let (since, resend) = (ctx.now.time, ctx.settings.resend());
        self.pending.insert(sequence, PendingRequest { op, device, content, since, until, resend });
        self.send(ctx, sequence);
        Ok(())
    }

    /// A device has answered commands.
    pub fn on_answer(&mut self, ctx: &mut Ctx, device: DeviceId, sequence: u64, answer: ObjectAnswer) {
        let Some(pending) = self.pending.get(&sequence).filter(|pending| pending.device == device) else {
            return;
        };
        // The device executed nothing of this copy and keeps nothing, so the same request may be sent later. It is not
        // known yet whether another copy is executed.
        let busy = matches!(answer, Err(ObjectRefusal { failure: ObjectFailure::Busy, .. }));
        if !busy {
            ctx.links.of(device).window.acknowledge(sequence);
        }
        if busy && ctx.now.time >= pending.until {
            return self.resend(ctx, sequence);
        }
        if busy {
            let most = ctx.settings.backoff_max.as_nanos() as u64;
            let wait = Duration::from_nanos(ctx.rng.between(most / 2, most));
            return self.timers.set(sequence, ctx.now.time.after(wait).min(pending.until));
        }
        self.end(ctx, sequence, answer.map(HostSuccess::Objects).map_err(HostError::Objects));
    }

    /// A device has reported that an attribute has changed.
    pub fn on_changed(&mut self, ctx: &mut Ctx, device: DeviceId, sequence: u64, value: Result<Bytes, ObjectFailure>) {
        if self.pending.get(&sequence).is_none_or(|pending| pending.device != device) {
            return;
        }
        let refused = |failure| HostError::Objects(ObjectRefusal { command: 0, failure });
        self.end(ctx, sequence, value.map(HostSuccess::Value).map_err(refused));
    }

    pub fn next_timer(&self) -> Option<(Time, u64)> {
        self.timers.next()
    }

    /// Asserts that each request has a deadline.
    pub fn invariants(&self) {
        assert_eq!(self.pending.len(), self.timers.len(), "a request that is not answered has a deadline");
    }

    /// Sends a request again that the device has not answered for a while, or had no room for. When its time is up, the
    /// request is abandoned.
    pub fn resend(&mut self, ctx: &mut Ctx, sequence: u64) {
        let (now, pending) = (ctx.now.time, &self.pending[&sequence]);
        if now < pending.until {
            ctx.counters.resent += 1;
            return self.send(ctx, sequence);
        }
        let heard = ctx.links.last_heard(pending.device);
        let silent = HostError::TimedOut { devices: vec![pending.device], waited: now.since(pending.since) };
        let outcome = match &pending.content {
            RequestContent::Commands(_) => Err(silent),
            // The device was heard, and has not reported a change.
            RequestContent::Change { seen, .. } if heard.is_some_and(|heard| heard >= pending.since) => {
                Ok(HostSuccess::Value(seen.clone()))
            }
            // The device is asked for the present value: there is no time left to wait.
            RequestContent::Change { .. } if now < pending.until.after(CHANGE_GRACE) => {
                ctx.counters.resent += 1;
                return self.send(ctx, sequence);
            }
            RequestContent::Change { .. } => Err(silent),
        };
        self.end(ctx, sequence, outcome);
    }

    pub fn end_all(&mut self, ctx: &mut Ctx, error: &HostError) {
        while let Some((sequence, _)) = self.pending.first_key_value() {
            self.end(ctx, *sequence, Err(error.clone()));
        }
    }

    /// Sends unanswered requests to these devices again at once, which they have dropped in another epoch.
    pub fn hurry(&mut self, now: Now, of: impl Fn(DeviceId) -> bool) {
        for (sequence, _) in self.pending.iter().filter(|(_, pending)| of(pending.device)) {
            self.timers.set(*sequence, now.time);
        }
    }

    /// The devices with unanswered requests.
    pub fn devices(&self) -> impl Iterator<Item = DeviceId> + '_ {
        self.pending.values().map(|pending| pending.device)
    }

    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// True if commands are under way.
    pub fn has_commands(&self) -> bool {
        self.pending.values().any(|pending| matches!(pending.content, RequestContent::Commands(_)))
    }

    fn end(&mut self, ctx: &mut Ctx, sequence: u64, outcome: HostOutcome) {
        let pending = self.pending.remove(&sequence).expect("it is pending");
        self.timers.cancel(sequence);
        if let RequestContent::Commands(request) = &pending.content {
            let end = match &outcome {
                _ if request.only_asks() => RequestEnd::NothingKept,
                Err(HostError::TimedOut { .. }) => RequestEnd::Abandoned,
                _ => RequestEnd::Answered,
            };
            ctx.links.end_request(pending.device, sequence, end);
        }
        if outcome.as_ref().is_err_and(HostError::is_want_of_space) {
            *self.refused_for_space.entry(pending.device).or_default() += 1;
        }
        ctx.out.reply(pending.op, outcome);
    }

    /// How many requests each device refused for want of space.
    pub fn refused_for_space(&self) -> impl Iterator<Item = (DeviceId, u64)> + '_ {
        self.refused_for_space.iter().map(|(device, count)| (*device, *count))
    }

    fn send(&mut self, ctx: &mut Ctx, sequence: u64) {
        let now = ctx.now.time;
        let pending = self.pending.get_mut(&sequence).expect("it is pending");
        let wait = pending.resend.next_wait();
        let (device, until) = (pending.device, pending.until);
        let command = match pending.content.clone() {
            RequestContent::Commands(request) => {
                let abandoned = ctx.links.of(device).window.named_by(sequence);
                Command::Objects { sequence, abandoned, request }
            }
            RequestContent::Change { object, name, seen } => {
                let patience = until.since(now).as_millis().min(u128::from(u32::MAX)) as u32;
                Command::Await { ticket: sequence, object, name, seen, patience }
            }
        };
        // A device answers such a wait only when something happens. But the device may have lost it, so it is sent
        // again now and then.
        let most = if now < until { until } else { until.after(CHANGE_GRACE) };
        self.timers.set(sequence, now.after(wait).min(most));
        ctx.send(device, command);
    }
}
