//! Tasks for one device: objects, what others missed, counters. Sent until they are answered or their time is up.

use crate::ctx::{OperationId, Timer};
use crate::host::Host;
use braid_base::{DeviceId, Now, Time, limits};
use braid_machine::{Effects, HostError, HostSuccess};
use braid_wire::{Command, Failure, Managed, Task};
use std::time::Duration;

/// A task that a device has not answered.
#[derive(Clone, Debug)]
pub(crate) struct PendingTask {
    op: OperationId,
    device: DeviceId,
    task: Task,
    since: Time,
    resend_after: Duration,
}

impl PendingTask {
    /// Whose it is.
    pub fn device(&self) -> DeviceId {
        self.device
    }
}

impl Host {
    pub(crate) fn start_task(&mut self, now: Now, op: OperationId, device: DeviceId, task: Task, out: &mut Effects) {
        if !self.links.has(device) {
            return self.reply(op, Err(HostError::NoSuchDevice { device }), out);
        }
        if self.tasks.len() >= limits::OPERATIONS_MAX {
            return self.reply(op, Err(HostError::Busy), out);
        }
        let ticket = self.links.take_sequence();
        // Once it is over, late copies of it are dropped by the settled mark.
        self.links.of(device).begin(ticket);
        let resend_after = self.config.settings.resend_min;
        self.tasks.insert(ticket, PendingTask { op, device, task, since: now.time, resend_after });
        self.send_task(now, ticket, out);
    }

    pub(crate) fn on_managed(
        &mut self,
        device: DeviceId,
        ticket: u64,
        result: Result<Managed, Failure>,
        out: &mut Effects,
    ) {
        if self.tasks.get(&ticket).is_none_or(|task| task.device != device) {
            return;
        }
        let task = self.end_task(ticket);
        self.timers.cancel(Timer::Task(ticket));
        let outcome = result.map(HostSuccess::Managed).map_err(|failure| HostError::Device { device, failure });
        self.reply(task.op, outcome, out);
    }

    pub(crate) fn resend_task(&mut self, now: Now, ticket: u64, out: &mut Effects) {
        let task = &self.tasks[&ticket];
        let waited = now.time.since(task.since);
        if waited < self.config.settings.request_timeout {
            self.counters.resent += 1;
            return self.send_task(now, ticket, out);
        }
        let task = self.end_task(ticket);
        self.reply(task.op, Err(HostError::TimedOut { devices: vec![task.device], waited }), out);
    }

    fn end_task(&mut self, ticket: u64) -> PendingTask {
        let task = self.tasks.remove(&ticket).expect("it is pending");
        self.links.of(task.device).settle_read(ticket);
        task
    }

    fn send_task(&mut self, now: Now, ticket: u64, out: &mut Effects) {
        let most = self.config.settings.resend_max;
        let task = self.tasks.get_mut(&ticket).expect("it is pending");
        let wait = task.resend_after;
        task.resend_after = (wait * 2).min(most);
        let (device, task) = (task.device, task.task.clone());
        self.timers.set(Timer::Task(ticket), now.time.after(wait));
        self.send(now, device, Command::Manage { ticket, task }, out);
    }
}
