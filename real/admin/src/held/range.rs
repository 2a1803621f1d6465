//! A command that runs while a range is locked. The host of this process keeps the lock alive.

use super::running::{HeldCommand, Running};
use super::{HeldOutcome, lost, not_in_time};
use crate::failure::Failure;
use braid_client::{Error as ClientError, RangeLock};
use rustix::process::Signal;
use std::time::Duration;

/// How long a command may take to end after its lock was lost, before it is killed.
const END_WAIT: Duration = Duration::from_millis(250);
/// The same, if this program is asked to end.
const ASKED_WAIT: Duration = Duration::from_secs(5);

/// Runs a command while the range is locked. The command finds the fencing token in `BRAID_TOKEN`. `stop` waits for a signal that asks this
/// program to end. If the lock was lost, the error is `lost`, and the command was ended.
pub async fn run(
    lock: &RangeLock,
    command: &HeldCommand<'_>,
    stop: &mut impl AsyncFnMut() -> Signal,
) -> Result<HeldOutcome, Failure> {
    let mut running = Running::start(command, &[("BRAID_TOKEN", lock.token().to_string())], false)?;
    loop {
        tokio::select! {
            status = running.wait() => return Ok(HeldOutcome::Ended(status?)),
            signal = stop() => {
                running.end(ASKED_WAIT).await?;
                return Ok(HeldOutcome::AskedToEnd(signal));
            }
            recalled = lock.recalled() => if let Err(error) = recalled {
                running.end(END_WAIT).await?;
                return Err(lost(format!("{error}; the command was ended")));
            }
        }
    }
}

/// The failure for an error of a lock of a range.
pub fn of_range(error: ClientError) -> Failure {
    match error {
        ClientError::RangeTaken { .. } => not_in_time(error.to_string()),
        ClientError::LockLost => lost(error.to_string()),
        error => error.into(),
    }
}
