//! The context that the host passes to its requests to devices, and the host's timers.

use braid_base::limits::Settings;
use braid_base::{DeviceId, Epoch, Generation, Now, Rng};
use braid_healing::StepId;
use braid_machine::{HostEffects, HostOutcome};
use braid_transactions::{HostCounters, LinkTimer, Links, OperationId, Outbound, Timer as TransactionTimer};
use braid_wire::Command;

/// The parts of the host that a request to a device may use.
pub(crate) struct Ctx<'a> {
    pub now: Now,
    pub host: Generation,
    /// The epoch of the host's membership.
    pub epoch: Epoch,
    pub settings: &'a Settings,
    pub links: &'a mut Links,
    pub rng: &'a mut Rng,
    pub counters: &'a mut HostCounters,
    /// Steps of background jobs that have ended.
    pub steps_done: &'a mut Vec<(StepId, HostOutcome)>,
    pub out: &'a mut HostEffects,
}

impl Ctx<'_> {
    /// Answers the front end or the background job that asked.
    pub fn reply(&mut self, op: OperationId, outcome: HostOutcome) {
        match op {
            OperationId::User(op) => self.out.reply(op, outcome),
            OperationId::Job(step) => self.steps_done.push((StepId(step), outcome)),
        }
    }

    /// The links, and their context.
    pub fn outbound(&mut self) -> (&mut Links, Outbound<'_>) {
        let Ctx { now, host, epoch, settings, links, out, .. } = self;
        (links, Outbound { now: *now, host: *host, epoch: *epoch, settings, out })
    }

    pub fn send(&mut self, device: DeviceId, command: Command) {
        let (links, mut outbound) = self.outbound();
        links.send(&mut outbound, device, command);
    }
}

/// The timers of a host. Timers that are due at the same time fire in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Timer {
    /// A timer of the coordinator.
    Transactions(TransactionTimer),
    Link(LinkTimer),
    /// The coordinator asks again how a transaction ended. This comes after timers of links that are due at the same
    /// time.
    Resolution(TransactionTimer),
    /// A device or lock server has not answered.
    Request(RequestTimer),
    /// A timer of the client of the lock servers.
    Locks,
    /// A program has waited for a lock of ranges for as long as it may.
    Ranges,
    /// A timer of the monitor's client.
    Monitor,
}

/// The timers of requests to devices that are not storage transactions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum RequestTimer {
    /// A device has not answered a task.
    Task(u64),
    /// A device has not answered a request for objects.
    ObjectRequest(u64),
    /// Devices or lock servers have not confirmed the disconnect.
    Disconnect,
}
