//! A command that runs while a range is locked. The host of this process keeps the lock alive.

use super::running::{HeldCommand, Running, UNATTENDED};
use super::{HeldOutcome, lost, not_in_time};
use crate::failure::Failure;
use braid_client::{Error as ClientError, RangeLock};
use rustix::process::Signal;
use std::time::Duration;

/// How long a command may take to end if this program is asked to end.
const ASKED_WAIT: Duration = Duration::from_secs(5);

/// Runs a command while the range is locked. The command finds a fencing token in `BRAID_TOKEN`. `stop` waits for a signal that asks this program to
/// end. If the lock was lost, the error is `lost`, and the command was killed: another program may have the range soon. If processes of the
/// command may still run, the error is `unattended`, and the range is not given back.
pub async fn run(
    lock: RangeLock,
    command: &HeldCommand<'_>,
    stop: &mut impl AsyncFnMut() -> Signal,
) -> Result<HeldOutcome, Failure> {
    let token = lock.token().await.map_err(of_range)?;
    let mut running = Running::start(command, &[("BRAID_TOKEN", token.to_string())], false)?;
    let outcome = run_under(&lock, &mut running, stop).await;
    if outcome.as_ref().is_err_and(|failure| failure.code == UNATTENDED) {
        // With it, its host stays connected until this process ends. Then the range is free when a lease has passed.
        std::mem::forget(lock);
    }
    outcome
}

async fn run_under(
    lock: &RangeLock,
    running: &mut Running,
    stop: &mut impl AsyncFnMut() -> Signal,
) -> Result<HeldOutcome, Failure> {
    let gone = async {
        loop {
            if let Err(error) = lock.recalled().await {
                break error;
            }
        }
    };
    let asked = async {
        tokio::select! {
            status = running.wait() => status.map(HeldOutcome::Ended),
            signal = stop() => running.end(ASKED_WAIT).await.map(|()| HeldOutcome::AskedToEnd(signal)),
        }
    };
    let error = tokio::select! {
        biased;
        error = gone => error,
        outcome = asked => return outcome,
    };
    running.end(Duration::ZERO).await?;
    Err(lost(format!("{error}; the command was killed")))
}

pub fn of_range(error: ClientError) -> Failure {
    match error {
        ClientError::RangeTaken { .. } => {
            not_in_time(error.to_string()).hint("`braid locks --waiting` shows who waits, and for whom")
        }
        ClientError::OutOfRange => Failure::usage("bad-range", "the range is empty, or does not end below 2^52"),
        ClientError::LockLost => lost(error.to_string()),
        ClientError::TimedOut { .. } => Failure::from(error).hint("`braid status` shows what of the array serves"),
        error => error.into(),
    }
}
