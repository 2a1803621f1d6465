//! An active hold: runs a command while something is held, and renews the hold in time. If it can't be renewed, the command is ended before
//! another process can take over; if this program is asked to end, the command is ended before the hold is released.

use super::running::{HeldCommand, Running};
use super::{HeldOutcome, failure, lost, not_in_time};
use crate::failure::{Exit, Failure};
use braid_base::Time;
use braid_client::Space;
use braid_client::recipes::counter::{CounterError, Turn};
use braid_client::recipes::failover::{FailOverError, Leadership};
use braid_client::recipes::lock::{Grant, LockError};
use braid_client::recipes::queue::{Claimed, Queue, Renewed};
use rustix::process::Signal;
use std::time::Duration;

pub enum ActiveHold {
    Lock(Grant),
    /// The turn of a ticket.
    Turn(Turn),
    Lead(Leadership),
    Item(Item),
}

pub struct Item {
    /// The queue, whose lease is that of the claim.
    pub queue: Queue,
    pub claimed: Claimed,
    /// When the claim was requested.
    pub sent: Time,
}

/// How long a command may take to end after it was asked to, before it is killed.
const END_WAIT: Duration = Duration::from_secs(5);
/// The wait before a renewal without an answer is retried.
const RENEW_PAUSE: Duration = Duration::from_millis(50);

impl ActiveHold {
    /// Runs a command while this is held, then releases it. The command finds the fencing token in `BRAID_TOKEN`. `stop` waits for a signal
    /// that asks this program to end. If the hold could not be renewed, the error is `lost`, and the command was ended.
    pub async fn run(
        mut self,
        space: &Space,
        command: &HeldCommand<'_>,
        stop: &mut impl AsyncFnMut() -> Signal,
    ) -> Result<HeldOutcome, Failure> {
        let outcome = match Running::start(command, &[("BRAID_TOKEN", self.token().to_string())], false) {
            Ok(mut running) => self.supervise(space, &mut running, stop).await??,
            Err(failure) => return self.give_back(space, stop).await.and(Err(failure)),
        };
        self.give_back(space, stop).await?;
        Ok(outcome)
    }

    /// Renews the hold until the command has ended. The inner failure: the hold could not be renewed, and the command was ended.
    pub(super) async fn supervise(
        &mut self,
        space: &Space,
        running: &mut Running,
        stop: &mut impl AsyncFnMut() -> Signal,
    ) -> Result<Result<HeldOutcome, Failure>, Failure> {
        loop {
            let renewed = tokio::select! {
                status = running.wait() => return Ok(Ok(HeldOutcome::Ended(status?))),
                signal = stop() => {
                    running.end(self.end_wait()).await?;
                    return Ok(Ok(HeldOutcome::AskedToEnd(signal)));
                }
                renewed = self.renew_in_time(space) => renewed,
            };
            match renewed {
                Ok(renewed) => *self = renewed,
                Err(failure) => {
                    running.end(self.end_wait()).await?;
                    return Ok(Err(failure));
                }
            }
        }
    }

    /// How long the command may take to end: it must be killed, and the hold released, before the lease expires.
    fn end_wait(&self) -> Duration {
        END_WAIT.min(self.sure_for() * 9 / 10)
    }

    /// Releases the hold, if the device answers before the lease expires anyhow.
    pub async fn give_back(self, space: &Space, stop: &mut impl AsyncFnMut() -> Signal) -> Result<(), Failure> {
        let most = self.sure_for();
        let outcome = tokio::select! {
            outcome = tokio::time::timeout(most, self.given_back(space)) => outcome.unwrap_or_else(|_| Err(silent())),
            _ = stop() => Err(silent()),
        };
        match outcome {
            // The command's status is reported, whether or not the release succeeded.
            Err(failure) if failure.exit == Exit::Unreachable => {
                tracing::warn!("it could not be released, and is free when its lease expires: {failure}");
                Ok(())
            }
            outcome => outcome,
        }
    }

    fn token(&self) -> u64 {
        match self {
            ActiveHold::Lock(grant) => grant.token(),
            ActiveHold::Turn(turn) => turn.ticket(),
            ActiveHold::Lead(leadership) => leadership.term(),
            ActiveHold::Item(item) => item.claimed.token,
        }
    }

    fn renew_at(&self) -> Time {
        match self {
            ActiveHold::Lock(grant) => grant.renew_at(),
            ActiveHold::Turn(turn) => turn.renew_at(),
            ActiveHold::Lead(leadership) => leadership.progress_at(),
            ActiveHold::Item(item) => item.sent.after(item.queue.lease / 3),
        }
    }

    fn sure_until(&self) -> Time {
        match self {
            ActiveHold::Lock(grant) => grant.sure_until(),
            ActiveHold::Turn(turn) => turn.sure_until(),
            ActiveHold::Lead(leadership) => leadership.sure_until(),
            // Other processes' clocks may run faster by this much.
            ActiveHold::Item(item) => item.sent.after(item.queue.lease - item.queue.lease / 16),
        }
    }

    fn sure_for(&self) -> Duration {
        self.sure_until().since(now())
    }

    /// The deadline of the renewal, which leaves time to end the command before another process can take over.
    fn renew_by(&self) -> Time {
        let (from, until) = (self.renew_at(), self.sure_until());
        let to_end = END_WAIT.min(until.since(from) / 3);
        from.after(until.since(from).saturating_sub(to_end))
    }

    /// Renews the hold when it is due.
    async fn renew_in_time(&self, space: &Space) -> Result<ActiveHold, Failure> {
        tokio::time::sleep(self.renew_at().since(now())).await;
        let renewed = async {
            loop {
                match self.renew(space).await {
                    Err(failure) if failure.exit == Exit::Unreachable || failure.code == "busy" => {
                        tokio::time::sleep(RENEW_PAUSE).await;
                    }
                    outcome => return outcome,
                }
            }
        };
        let outcome = tokio::time::timeout(self.renew_by().since(now()), renewed).await;
        outcome.unwrap_or_else(|_| {
            let message = "it could not be renewed in time, and others may soon acquire it: the command was ended";
            Err(lost(message)
                .hint("`braid status` shows which devices serve; a longer --lease tolerates longer interruptions"))
        })
    }

    pub async fn renew(&self, space: &Space) -> Result<ActiveHold, Failure> {
        match self {
            ActiveHold::Lock(grant) => space.run(grant.renew()).await?.map(ActiveHold::Lock).map_err(of_lock),
            ActiveHold::Turn(turn) => space.run(turn.renew()).await?.map(ActiveHold::Turn).map_err(of_counter),
            ActiveHold::Lead(leadership) => {
                space.run(leadership.progress()).await?.map(ActiveHold::Lead).map_err(of_lead)
            }
            ActiveHold::Item(Item { queue, claimed, .. }) => {
                let sent = now();
                match space.run(queue.renew(claimed.clone())).await?.map_err(failure)? {
                    Renewed::Kept(claimed) => Ok(ActiveHold::Item(Item { queue: *queue, claimed, sent })),
                    Renewed::Lost => Err(lost("another consumer has taken the item over")),
                }
            }
        }
    }

    async fn given_back(self, space: &Space) -> Result<(), Failure> {
        match self {
            ActiveHold::Lock(grant) => space.run(grant.release()).await?.map_err(of_lock),
            ActiveHold::Turn(turn) => space.run(turn.leave()).await?.map(|_| ()).map_err(of_counter),
            ActiveHold::Lead(leadership) => space.run(leadership.resign()).await?.map(|_| ()).map_err(of_lead),
            ActiveHold::Item(Item { queue, claimed, .. }) => {
                space.run(queue.give_back(claimed)).await?.map(|_| ()).map_err(failure)
            }
        }
    }
}

macro_rules! failures_of_procedures {
    ($($of:ident: $error:ident, lost by $($lost:ident)|+, absent by $absent:ident;)*) => {$(
        pub fn $of(error: $error) -> Failure {
            match error {
                $error::RequestFailure(inner) => failure(inner),
                $error::TimedOut { .. } => not_in_time(error.to_string()),
                $($error::$lost { .. })|+ => lost(error.to_string()),
                $error::$absent => other_structure(error.to_string()),
            }
        }
    )*};
}
failures_of_procedures! {
    of_lock: LockError, lost by Lost | Uncertain, absent by NoLock;
    of_counter: CounterError, lost by Skipped | Uncertain, absent by NoCounter;
    of_lead: FailOverError, lost by Deposed | Uncertain, absent by NoLeader;
}

fn other_structure(message: String) -> Failure {
    Failure::usage("other-structure", message)
        .hint("give each structure an object of its own; docs/recipes/README.md lists the pages that each uses")
}

fn silent() -> Failure {
    Failure::unreachable("timed-out", "the device has not answered in time")
}

/// The current time, by the clock of leases.
pub fn now() -> Time {
    braid_shell::now().time
}
