//! Tasks: requests to one device about its objects, about missed writes, and for counters. Each is sent until it is
//! answered or its time is up.

use crate::ctx::Ctx;
use braid_base::{Backoff, DeviceId, Time, Timers, limits};
use braid_healing::StepId;
use braid_machine::{HostError, HostSuccess};
use braid_transactions::{Links, OperationId};
use braid_wire::{Command, Failure, Managed, Task};
use std::collections::BTreeMap;

/// The tasks that devices have not answered, by ticket.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tasks {
    pending: BTreeMap<u64, PendingTask>,
    /// When each is sent again or its time is up.
    timers: Timers<u64>,
}

#[derive(Clone, Debug)]
struct PendingTask {
    op: OperationId,
    device: DeviceId,
    task: Task,
    since: Time,
    resend: Backoff,
}

impl Tasks {
    pub fn start(&mut self, ctx: &mut Ctx, op: OperationId, device: DeviceId, task: Task) {
        if !ctx.links.has(device) {
            return ctx.reply(op, Err(HostError::NoSuchDevice { device }));
        }
        if self.pending.len() >= limits::OPERATIONS_MAX {
            return ctx.reply(op, Err(HostError::Busy));
        }
        let ticket = ctx.links.take_sequence();
        // Once the task is over, the settled mark makes the device drop late copies of it.
        ctx.links.of(device).begin(ticket);
        let (since, resend) = (ctx.now.time, ctx.settings.resend());
        self.pending.insert(ticket, PendingTask { op, device, task, since, resend });
        self.send(ctx, ticket);
    }

    pub fn on_answer(&mut self, ctx: &mut Ctx, device: DeviceId, ticket: u64, result: Result<Managed, Failure>) {
        if self.pending.get(&ticket).is_none_or(|task| task.device != device) {
            return;
        }
        let task = self.end(ctx.links, ticket);
        let outcome = result.map(HostSuccess::Managed).map_err(|failure| HostError::Device { device, failure });
        ctx.reply(task.op, outcome);
    }

    pub fn next_timer(&self) -> Option<(Time, u64)> {
        self.timers.next()
    }

    /// Asserts that each task has a deadline.
    pub fn invariants(&self) {
        assert_eq!(self.pending.len(), self.timers.len(), "a task that is not answered has a deadline");
    }

    /// Sends a task again that the device has not answered for a while. When its time is up, the task fails.
    pub fn resend(&mut self, ctx: &mut Ctx, ticket: u64) {
        let waited = ctx.now.time.since(self.pending[&ticket].since);
        if waited < ctx.settings.request_timeout {
            ctx.counters.resent += 1;
            return self.send(ctx, ticket);
        }
        let task = self.end(ctx.links, ticket);
        ctx.reply(task.op, Err(HostError::TimedOut { devices: vec![task.device], waited }));
    }

    /// True if a front end waits for an answer.
    pub fn has_users(&self) -> bool {
        self.pending.values().any(|task| matches!(task.op, OperationId::User(_)))
    }

    /// Drops the tasks of jobs that have ended: a recovery that is over describes volumes as they were then.
    pub fn drop_unawaited(&mut self, links: &mut Links, is_awaited: impl Fn(StepId) -> bool) {
        let is_left = |task: &PendingTask| matches!(task.op, OperationId::Job(step) if !is_awaited(StepId(step)));
        let left = self.pending.iter().filter(|(_, task)| is_left(task)).map(|(ticket, _)| *ticket);
        for ticket in left.collect::<Vec<_>>() {
            self.end(links, ticket);
        }
    }

    /// The host is about to end: the tasks of its background jobs end unanswered.
    pub fn drop_all(&mut self, links: &mut Links) {
        while let Some((ticket, _)) = self.pending.first_key_value() {
            self.end(links, *ticket);
        }
    }

    /// The devices with unanswered tasks.
    pub fn devices(&self) -> impl Iterator<Item = DeviceId> + '_ {
        self.pending.values().map(|task| task.device)
    }

    fn end(&mut self, links: &mut Links, ticket: u64) -> PendingTask {
        let task = self.pending.remove(&ticket).expect("it is pending");
        self.timers.cancel(ticket);
        links.of(task.device).settle_read(ticket);
        task
    }

    fn send(&mut self, ctx: &mut Ctx, ticket: u64) {
        let task = self.pending.get_mut(&ticket).expect("it is pending");
        let wait = task.resend.next_wait();
        self.timers.set(ticket, ctx.now.time.after(wait));
        ctx.send(task.device, Command::Manage { ticket, task: task.task.clone() });
    }
}
