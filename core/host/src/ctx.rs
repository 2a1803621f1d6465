//! What the host lends to its requests to devices, and why it wakes.

use crate::counters::HostCounters;
use braid_base::limits::Settings;
use braid_base::{Epoch, Generation, Now, Rng};
use braid_healing::StepId;
use braid_machine::{Effects, HostOutcome};
use braid_transactions::{LinkTimer, OperationId, Outbound, Timer as TransactionTimer};

/// What a part needs of its host, and no more.
pub(crate) struct Ctx<'a> {
    pub now: Now,
    /// This host.
    pub host: Generation,
    /// The epoch that it lives by.
    pub epoch: Epoch,
    pub settings: &'a Settings,
    pub rng: &'a mut Rng,
    pub counters: &'a mut HostCounters,
    /// Steps of background jobs that have ended.
    pub steps_done: &'a mut Vec<(StepId, HostOutcome)>,
    pub out: &'a mut Effects,
}

impl Ctx<'_> {
    /// Answers whoever asked: a front end, or a background job.
    pub fn reply(&mut self, op: OperationId, outcome: HostOutcome) {
        match op {
            OperationId::User(op) => self.out.reply(op, outcome),
            OperationId::Job(step) => self.steps_done.push((StepId(step), outcome)),
        }
    }

    /// What the links need.
    pub fn outbound(&mut self) -> Outbound<'_> {
        Outbound { now: self.now, host: self.host, epoch: self.epoch, settings: self.settings, out: self.out }
    }
}

/// Why the host wakes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Timer {
    /// The coordinator has something to do.
    Transactions(TransactionTimer),
    /// A link has something to do.
    Link(LinkTimer),
    /// The coordinator asks again how a transaction ended: after what links do at the same time.
    Resolution(TransactionTimer),
    /// A device or lock server has not answered.
    Request(RequestTimer),
    /// The client of the lock servers has something to do.
    Locks,
    /// The monitor's client has something to do.
    Monitor,
}

/// Which request to a device, that is no storage transaction, is looked at.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum RequestTimer {
    /// A device has not answered a task.
    Task(u64),
    /// A device has not answered a request for objects.
    ObjectRequest(u64),
    /// Devices or lock servers have not confirmed that it leaves.
    Leave,
}
