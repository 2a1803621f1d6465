//! Running a command while something is held, which is renewed in time. The command is ended when that can't be, before anybody else can have it; and
//! when this program is asked to end, before it is given back.

use super::failure;
use super::running::{Running, status_of, status_of_signal};
use braid_admin::failure::{Exit, Failure};
use braid_base::Time;
use braid_client::Space;
use braid_client::recipes::counter::{CounterError, Turn};
use braid_client::recipes::failover::{FailOverError, Leadership};
use braid_client::recipes::lock::{Grant, LockError};
use braid_client::recipes::queue::{Claimed, Queue, Renewed};
use braid_terminal::Signals;
use rustix::process::Signal;
use std::ffi::OsString;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

/// What is held.
pub enum ActiveHold {
    /// A lock.
    Lock(Grant),
    /// The turn of a ticket.
    Turn(Turn),
    /// The lead.
    Lead(Leadership),
    /// An item of a queue.
    Item(Item),
}

/// An item of a queue, claimed.
pub struct Item {
    /// Which queue. Its lease is that of the claim.
    pub queue: Queue,
    /// The claim.
    pub claimed: Claimed,
    /// When it was asked for.
    pub sent: Time,
}

/// How a command came to its end.
pub enum Ended {
    /// By itself.
    Itself(ExitStatus),
    /// This program was asked to end by this signal, and has ended it.
    AskedToEnd(Signal),
    /// What was held could not be renewed; it was ended.
    Lost(Failure),
}

/// How long a command may take to end when it is asked to, before it is made to.
const END_WAIT: Duration = Duration::from_secs(5);
/// How long to wait before a renewal that had no answer, or found no room, is tried again.
const RENEW_PAUSE: Duration = Duration::from_millis(50);

impl ActiveHold {
    /// Runs a command as long as this is held, then gives it back. The command finds the fencing token in `BRAID_TOKEN`.
    pub async fn run(mut self, space: &Space, words: &[OsString]) -> Result<ExitCode, Failure> {
        let mut signals = Signals::catch()?;
        let mut running = match Running::start(words, &[("BRAID_TOKEN", self.token().to_string())], false) {
            Ok(running) => running,
            Err(failure) => {
                self.give_back(space, &mut signals).await?;
                return Err(failure);
            }
        };
        let status = match self.supervise(space, &mut running, &mut signals).await? {
            Ended::Itself(status) => status_of(status),
            Ended::AskedToEnd(signal) => status_of_signal(signal),
            Ended::Lost(failure) => return Err(failure),
        };
        self.give_back(space, &mut signals).await?;
        Ok(status)
    }

    /// Keeps it until the command has ended, by itself or because it had to.
    pub async fn supervise(
        &mut self,
        space: &Space,
        running: &mut Running,
        signals: &mut Signals,
    ) -> Result<Ended, Failure> {
        loop {
            let renewed = tokio::select! {
                status = running.wait() => return Ok(Ended::Itself(status?)),
                signal = signals.which() => {
                    running.end(self.end_wait()).await?;
                    return Ok(Ended::AskedToEnd(signal));
                }
                renewed = self.renew_in_time(space) => renewed,
            };
            match renewed {
                Ok(renewed) => *self = renewed,
                Err(failure) => {
                    running.end(self.end_wait()).await?;
                    return Ok(Ended::Lost(failure));
                }
            }
        }
    }

    /// How long the command may take to end. It is to be killed, and what was held given back, before that is others'.
    fn end_wait(&self) -> Duration {
        END_WAIT.min(self.sure_for() * 9 / 10)
    }

    /// Gives it back, if the device answers before it is others' anyhow.
    pub async fn give_back(self, space: &Space, signals: &mut Signals) -> Result<(), Failure> {
        let most = self.sure_for();
        let outcome = tokio::select! {
            outcome = tokio::time::timeout(most, self.given_back(space)) => outcome.unwrap_or_else(|_| Err(silent())),
            _ = signals.which() => Err(silent()),
        };
        match outcome {
            // The command has ended as it has, whoever hears of that.
            Err(failure) if failure.exit == Exit::Unreachable => {
                tracing::warn!("it could not be given back, and is free after its lease: {failure}");
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
            // Clocks may run that much faster than this one.
            ActiveHold::Item(item) => item.sent.after(item.queue.lease - item.queue.lease / 16),
        }
    }

    fn sure_for(&self) -> Duration {
        self.sure_until().since(now())
    }

    /// Until when it must be renewed, so that there is time to end the command before anybody else can have it.
    fn renew_by(&self) -> Time {
        let (from, until) = (self.renew_at(), self.sure_until());
        let to_end = END_WAIT.min(until.since(from) / 3);
        from.after(until.since(from).saturating_sub(to_end))
    }

    /// Renews it when it is time.
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
            let message = "it could not be renewed in time, and others can have it soon: the command was ended";
            Err(lost(message).hint("`braid status` shows which devices serve; a longer --lease has more patience"))
        })
    }

    /// Keeps it for another lease.
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

/// What a lock's error is to whoever typed the command.
pub fn of_lock(error: LockError) -> Failure {
    match error {
        LockError::RequestFailure(inner) => failure(inner),
        LockError::TimedOut { .. } => not_in_time(error.to_string()),
        LockError::Lost | LockError::Uncertain => lost(error.to_string()),
        LockError::NoLock => other_use(error.to_string()),
    }
}

/// The same of a counter.
pub fn of_counter(error: CounterError) -> Failure {
    match error {
        CounterError::RequestFailure(inner) => failure(inner),
        CounterError::TimedOut { .. } => not_in_time(error.to_string()),
        CounterError::Skipped { .. } | CounterError::Uncertain => lost(error.to_string()),
        CounterError::NoCounter => other_use(error.to_string()),
    }
}

/// The same of the lead.
pub fn of_lead(error: FailOverError) -> Failure {
    match error {
        FailOverError::RequestFailure(inner) => failure(inner),
        FailOverError::TimedOut { .. } => not_in_time(error.to_string()),
        FailOverError::Deposed { .. } | FailOverError::Uncertain => lost(error.to_string()),
        FailOverError::NoLeader => other_use(error.to_string()),
    }
}

fn not_in_time(message: impl Into<String>) -> Failure {
    Failure { exit: Exit::NotInTime, ..Failure::failed("not-in-time", message) }
}

fn lost(message: impl Into<String>) -> Failure {
    Failure { exit: Exit::LostMeanwhile, ..Failure::failed("lost", message) }
}

fn other_use(message: String) -> Failure {
    Failure::usage("other-use", message)
        .hint("give each structure an object of its own; docs/recipes/README.md says which pages each uses")
}

fn silent() -> Failure {
    Failure::unreachable("timed-out", "the device has not answered yet")
}

/// This moment, by the clock of leases.
pub fn now() -> Time {
    braid_shell::now().time
}
