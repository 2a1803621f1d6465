//! Running a command while something is held: a lock, a turn, the lead. Renewed in time; if it is lost all the same, the command is ended.

use super::trouble;
use crate::failure::Failure;
use braid_base::Time;
use braid_client::Space;
use braid_client::recipes::counter::{CounterError, Turn};
use braid_client::recipes::failover::{FailOverError, Leadership};
use braid_client::recipes::lock::{Grant, LockError};
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;
use tokio::process::{Child, Command};

/// What is held.
pub enum Tenure {
    /// A lock.
    Lock(Grant),
    /// The turn of a ticket.
    Turn(Turn),
    /// The lead.
    Lead(Leadership),
}

/// How long a command may take to end when it is asked to, before it is made to.
const END_WAIT: Duration = Duration::from_secs(5);

impl Tenure {
    /// Runs a command as long as this is held, then gives it back. The command finds the fencing token in `BRAID_TOKEN`.
    pub async fn run(mut self, space: &Space, words: &[OsString]) -> Result<ExitCode, Failure> {
        let (program, arguments) = words.split_first().expect("the command line asks for a command");
        let mut command = Command::new(program);
        command.args(arguments).env("BRAID_TOKEN", self.token().to_string()).kill_on_drop(true);
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                self.give_back(space).await?;
                return Err(Failure::from(error).of(program.to_string_lossy()));
            }
        };
        let status = loop {
            let left = self.renew_at().since(now());
            tokio::select! {
                status = child.wait() => break status?,
                () = tokio::time::sleep(left) => match self.renew(space).await {
                    Ok(renewed) => self = renewed,
                    Err(failure) => {
                        end(&mut child).await;
                        return Err(failure);
                    }
                },
            }
        };
        self.give_back(space).await?;
        // A command that a signal ended has no status of its own.
        Ok(status.code().map_or(ExitCode::FAILURE, |code| ExitCode::from(code as u8)))
    }

    fn token(&self) -> u64 {
        match self {
            Tenure::Lock(grant) => grant.token(),
            Tenure::Turn(turn) => turn.ticket(),
            Tenure::Lead(leadership) => leadership.term(),
        }
    }

    fn renew_at(&self) -> Time {
        match self {
            Tenure::Lock(grant) => grant.renew_at(),
            Tenure::Turn(turn) => turn.renew_at(),
            Tenure::Lead(leadership) => leadership.progress_at(),
        }
    }

    async fn renew(&self, space: &Space) -> Result<Tenure, Failure> {
        match self {
            Tenure::Lock(grant) => space.run(grant.renew()).await?.map(Tenure::Lock).map_err(of_lock),
            Tenure::Turn(turn) => space.run(turn.renew()).await?.map(Tenure::Turn).map_err(of_counter),
            Tenure::Lead(leadership) => space.run(leadership.progress()).await?.map(Tenure::Lead).map_err(of_lead),
        }
    }

    async fn give_back(self, space: &Space) -> Result<(), Failure> {
        match self {
            Tenure::Lock(grant) => space.run(grant.release()).await?.map_err(of_lock),
            Tenure::Turn(turn) => space.run(turn.leave()).await?.map(|_| ()).map_err(of_counter),
            Tenure::Lead(leadership) => space.run(leadership.resign()).await?.map(|_| ()).map_err(of_lead),
        }
    }
}

/// What a lock's error is to whoever typed the command.
pub fn of_lock(error: LockError) -> Failure {
    match error {
        LockError::Trouble(inner) => trouble(inner),
        LockError::TimedOut { .. } => Failure::failed("not-in-time", error.to_string()),
        LockError::Lost => Failure::failed("lost", error.to_string()),
        LockError::NoLock => Failure::usage("other-use", error.to_string()),
    }
}

/// The same of a counter.
pub fn of_counter(error: CounterError) -> Failure {
    match error {
        CounterError::Trouble(inner) => trouble(inner),
        CounterError::TimedOut { .. } => Failure::failed("not-in-time", error.to_string()),
        CounterError::Skipped { .. } => Failure::failed("lost", error.to_string()),
        CounterError::NoCounter => Failure::usage("other-use", error.to_string()),
    }
}

/// The same of the lead.
pub fn of_lead(error: FailOverError) -> Failure {
    match error {
        FailOverError::Trouble(inner) => trouble(inner),
        FailOverError::TimedOut { .. } => Failure::failed("not-in-time", error.to_string()),
        FailOverError::Deposed { .. } => Failure::failed("lost", error.to_string()),
        FailOverError::NoLeader => Failure::usage("other-use", error.to_string()),
    }
}

/// Asks a command to end, and makes it.
async fn end(child: &mut Child) {
    if let Some(pid) = child.id().and_then(|id| rustix::process::Pid::from_raw(id as i32)) {
        // It is ours until it is waited for.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
    if tokio::time::timeout(END_WAIT, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}

fn now() -> Time {
    braid_shell::now().time
}
