//! What the host lends to its parts while they work, and why it wakes.

use crate::counters::HostCounters;
use braid_base::limits::Settings;
use braid_base::{DeviceId, Epoch, Generation, Now, Rng, Timers, TransactionId};
use braid_healing::StepId;
use braid_machine::{Effects, HostOutcome, OpId};

/// What a part needs of its host, and no more.
pub(crate) struct Ctx<'a> {
    pub now: Now,
    /// This host.
    pub host: Generation,
    /// The epoch that it lives by.
    pub epoch: Epoch,
    pub settings: &'a Settings,
    pub timers: &'a mut Timers<Timer>,
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
            OperationId::Job(step) => self.steps_done.push((step, outcome)),
        }
    }
}

/// Names an operation: what it belongs to, and which it is there. Those of users come first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum OperationId {
    /// A request of a front end.
    User(OpId),
    /// A step of a background job of this host.
    Job(StepId),
}

/// Why the host wakes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Timer {
    /// An operation's time is up.
    Expire(OperationId),
    /// An operation has backed off long enough.
    Retry(OperationId),
    /// Devices have not answered a transaction.
    Resend(u64),
    /// Commits have waited long enough for a request to ride on.
    Linger(DeviceId),
    /// It is time to be heard again.
    Heartbeat(DeviceId),
    /// Devices have not answered a resolution.
    Resolve(TransactionId),
    /// A device has not answered a task.
    Task(u64),
    /// A device has not answered a request for objects.
    ObjectRequest(u64),
    /// Devices or lock servers have not confirmed that it leaves.
    Leave,
    /// The client of the lock servers has something to do.
    Locks,
    /// The monitor's client has something to do.
    Monitor,
}
