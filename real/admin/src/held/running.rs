//! A command that runs while something is held. Neither the command nor the processes that it starts outlive this program, however it
//! ends: if this program is asked to end, it ends the command first; if it is killed, the command's supervisor (`supervisor`) ends all of
//! them. Only background processes left by a command that ended by itself continue.
//!
//! ```text
//!   braid recipe … run ─┬─▶ supervisor ─┬─▶ command ─▶ its processes, also in the background
//!         killed: ······└···▶ ends all ┘      ▲
//!                             killed: ········┘ killed by the system
//! ```

use super::supervisor::{self, Itself};
use crate::failure::Failure;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::process::{Child, ChildStdin, Command};

/// A command to run while something is held.
#[derive(Clone, Copy, Debug)]
pub struct HeldCommand<'a> {
    /// The program and its arguments.
    pub words: &'a [OsString],
    /// How this program starts itself as the command's supervisor.
    pub itself: Itself,
}

pub struct Running {
    supervisor: Child,
}

/// The code if the supervisor of a command was killed.
pub const UNATTENDED: &str = "unattended";
/// How long the supervisor may take to end all processes, before it is killed itself.
const ENDING_WAIT: Duration = Duration::from_secs(1);

impl Running {
    /// Starts the command with these environment variables. If `given`, its input is written through [`Running::input`].
    pub fn start(command: &HeldCommand, variables: &[(&str, String)], given: bool) -> Result<Running, Failure> {
        // A command that reads from the terminal must be in the terminal's foreground process group.
        let grouped = given || !std::io::stdin().is_terminal();
        let mut command = Command::from(supervisor::command(command, grouped));
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        if grouped {
            command.process_group(0);
        }
        if given {
            command.stdin(Stdio::piped());
        }
        Ok(Running { supervisor: command.spawn()? })
    }

    /// Its standard input; can be taken once.
    pub fn input(&mut self) -> Option<ChildStdin> {
        self.supervisor.stdin.take()
    }

    /// Waits until it has ended by itself. If its supervisor was killed, it is unknown which of its processes are left.
    pub async fn wait(&mut self) -> Result<ExitStatus, Failure> {
        let status = self.supervisor.wait().await?;
        if status.code().is_some() { Ok(status) } else { Err(unattended()) }
    }

    /// Asks the command and its processes to end, and kills them after `wait`.
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
        // It may be suspended.
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        // The PID is not reused until it is waited for; a process that has ended needs no signal.
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
    let message =
        "the command's supervisor was killed, and processes of the command may still run: the hold was not released";
    Failure::failed(UNATTENDED, message).hint("others can acquire it when its lease expires")
}
