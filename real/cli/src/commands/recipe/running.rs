//! A command that runs for as long as something is held. Neither it nor what it starts outlives this program, however that ends: where this program is
//! asked to end, it ends the command first; where it is killed, the command's attendant (`attendant`) ends all.
//!
//! ```text
//!   braid recipe … run ─┬─▶ attendant ─┬─▶ command ─▶ what it starts, and leaves behind
//!         killed: ······└···▶ ends all ┘      ▲
//!                             killed: ········┘ killed by the system
//! ```

use super::attendant;
use crate::failure::Failure;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::Duration;
use tokio::process::{Child, ChildStdin, Command};

/// A command under way, with its attendant.
pub struct Running {
    attendant: Child,
}

/// How long the attendant may take to end all, before it is killed itself.
const ENDING_WAIT: Duration = Duration::from_secs(1);

impl Running {
    /// Starts it, with these variables in its environment. Where its input is `given`, [`Running::input`] takes it.
    pub fn start(words: &[OsString], variables: &[(&str, String)], given: bool) -> Result<Running, Failure> {
        // Who reads from a terminal must be in the group that the terminal belongs to.
        let grouped = given || !std::io::stdin().is_terminal();
        let mut command = Command::from(attendant::attend(words, grouped));
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        if grouped {
            command.process_group(0);
        }
        if given {
            command.stdin(Stdio::piped());
        }
        Ok(Running { attendant: command.spawn()? })
    }

    /// Where its standard input is written, once.
    pub fn input(&mut self) -> Option<ChildStdin> {
        self.attendant.stdin.take()
    }

    /// Waits until it has ended by itself.
    pub async fn wait(&mut self) -> Result<ExitStatus, Failure> {
        Ok(self.attendant.wait().await?)
    }

    /// Asks it to end, with what it has started, and after so long makes it.
    pub async fn end(&mut self, wait: Duration) {
        self.signal(attendant::ASK);
        if tokio::time::timeout(wait, self.attendant.wait()).await.is_ok() {
            return;
        }
        self.end_all();
        if tokio::time::timeout(ENDING_WAIT, self.attendant.wait()).await.is_err() {
            self.signal(Signal::KILL);
            let _ = self.attendant.wait().await;
        }
    }

    fn end_all(&self) {
        self.signal(attendant::END_ALL);
        // It may have been made to stand still.
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        // It is ours until it is waited for; one that is gone already needs no signal.
        if let Some(pid) = self.attendant.id().and_then(|pid| Pid::from_raw(pid as i32)) {
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end_all();
    }
}

/// The status that says how a command has ended: its own, or, as shells have it, 128 and the signal that ended it.
pub fn status_of(status: ExitStatus) -> ExitCode {
    ExitCode::from(status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1) as u8)
}

/// The status of a program that ends because it was asked to by this signal.
pub fn status_of_signal(signal: Signal) -> ExitCode {
    ExitCode::from(128 + signal.as_raw() as u8)
}
