//! A command that runs for as long as something is held. Neither it nor what it starts outlives this program, however that ends: where this program is
//! asked to end, it ends the command first; where it is killed, the command's supervisor (`supervisor`) ends all. Only what a command leaves in
//! the background when it ends by itself goes on.
//!
//! ```text
//!   braid recipe … run ─┬─▶ supervisor ─┬─▶ command ─▶ what it starts, and leaves behind
//!         killed: ······└···▶ ends all ┘      ▲
//!                             killed: ········┘ killed by the system
//! ```

use super::supervisor;
use braid_admin::failure::Failure;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::Duration;
use tokio::process::{Child, ChildStdin, Command};

/// A command under way, with its supervisor.
pub struct Running {
    supervisor: Child,
}

/// How long the supervisor may take to end all, before it is killed itself.
const ENDING_WAIT: Duration = Duration::from_secs(1);

impl Running {
    /// Starts it, with these variables in its environment. Where its input is `given`, [`Running::input`] takes it.
    pub fn start(words: &[OsString], variables: &[(&str, String)], given: bool) -> Result<Running, Failure> {
        // Who reads from a terminal must be in the group that the terminal belongs to.
        let grouped = given || !std::io::stdin().is_terminal();
        let mut command = Command::from(supervisor::supervise(words, grouped));
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        if grouped {
            command.process_group(0);
        }
        if given {
            command.stdin(Stdio::piped());
        }
        Ok(Running { supervisor: command.spawn()? })
    }

    /// Where its standard input is written, once.
    pub fn input(&mut self) -> Option<ChildStdin> {
        self.supervisor.stdin.take()
    }

    /// Waits until it has ended by itself. If its supervisor was killed, nobody knows what is left of what the command had started.
    pub async fn wait(&mut self) -> Result<ExitStatus, Failure> {
        let status = self.supervisor.wait().await?;
        if status.code().is_some() { Ok(status) } else { Err(unattended()) }
    }

    /// Asks it to end, with what it has started, and after so long makes it.
    pub async fn end(&mut self, wait: Duration) -> Result<(), Failure> {
        self.signal(supervisor::ASK);
        if let Ok(ended) = tokio::time::timeout(wait, self.wait()).await {
            return ended.map(|_| ());
        }
        self.end_all();
        if let Ok(ended) = tokio::time::timeout(ENDING_WAIT, self.wait()).await {
            return ended.map(|_| ());
        }
        self.signal(Signal::KILL);
        self.wait().await.map(|_| ())
    }

    fn end_all(&self) {
        self.signal(supervisor::END_ALL);
        // It may have been made to stand still.
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        // It is ours until it is waited for; one that is gone already needs no signal.
        if let Some(pid) = self.supervisor.id().and_then(|pid| Pid::from_raw(pid as i32)) {
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end_all();
    }
}

fn unattended() -> Failure {
    let message = "the command's supervisor was killed, and what the command had started may go on: what is held is not given back";
    Failure::failed("unattended", message).hint("others can have it after its lease")
}

/// The status that says how a command has ended: as its supervisor has it.
pub fn status_of(status: ExitStatus) -> ExitCode {
    ExitCode::from(status.code().unwrap_or(1) as u8)
}

/// The status of a program that ends because it was asked to by this signal.
pub fn status_of_signal(signal: Signal) -> ExitCode {
    ExitCode::from(128 + signal.as_raw() as u8)
}
