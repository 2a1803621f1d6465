//! A command that runs for as long as something is held. It does not outlive this program, however that ends: where this program is asked to end, it ends
//! the command first; where it is killed, the system kills the command.

use crate::failure::Failure;
use crate::signals;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process_group};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::Duration;
use tokio::process::{Child, ChildStdin, Command};

/// A command can't be run.
pub const NOT_RUN: i32 = 126;
/// There is no such command.
pub const NOT_FOUND: i32 = 127;

/// A command under way.
pub struct Running {
    child: Child,
    pid: Pid,
    /// It is the head of a process group: what it starts is ended with it.
    group: bool,
}

/// Becomes a command that dies with the program that started it
#[derive(clap::Args)]
pub struct Attended {
    /// That program
    #[arg(long)]
    parent: u32,
    /// The command, behind `--`
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// How often it is looked whether all that a command has started is gone.
const LOOK_PAUSE: Duration = Duration::from_millis(10);

impl Running {
    /// Starts it, with these variables in its environment. Where its input is `given`, [`Running::input`] takes it.
    pub fn start(words: &[OsString], variables: &[(&str, String)], given: bool) -> Result<Running, Failure> {
        // Not by its path: that may be another release's by now.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("braid").args(["recipe", "attended", "--parent", &std::process::id().to_string(), "--"]);
        command.args(words).envs(variables.iter().map(|(name, value)| (name, value)));
        // Who reads from a terminal must be in the group that the terminal belongs to.
        let group = given || !std::io::stdin().is_terminal();
        if group {
            command.process_group(0);
        }
        if given {
            command.stdin(Stdio::piped());
        }
        let child = command.kill_on_drop(true).spawn()?;
        let pid = child.id().and_then(|pid| Pid::from_raw(pid as i32)).expect("it was not waited for yet");
        Ok(Running { child, pid, group })
    }

    /// Where its standard input is written, once.
    pub fn input(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Waits until it has ended by itself.
    pub async fn wait(&mut self) -> Result<ExitStatus, Failure> {
        Ok(self.child.wait().await?)
    }

    /// Asks it to end, with what it has started, and after so long makes it.
    pub async fn end(&mut self, wait: Duration) {
        self.signal(Signal::TERM);
        let ended = async {
            let _ = self.child.wait().await;
            while self.group && test_kill_process_group(self.pid) != Err(Errno::SRCH) {
                tokio::time::sleep(LOOK_PAUSE).await;
            }
        };
        if tokio::time::timeout(wait, ended).await.is_err() {
            self.signal(Signal::KILL);
            let _ = self.child.wait().await;
        }
    }

    fn signal(&self, signal: Signal) {
        // One that is gone already needs no signal.
        let _ = match (self.group, self.child.id()) {
            (true, _) => kill_process_group(self.pid, signal),
            // It is ours until it is waited for.
            (false, Some(_)) => kill_process(self.pid, signal),
            (false, None) => Ok(()),
        };
    }
}

impl Attended {
    /// Becomes the command. What comes back is why not.
    pub fn run(self) -> Result<ExitCode, Failure> {
        signals::die_with(self.parent)?;
        let (program, arguments) = self.command.split_first().expect("the command line asks for a command");
        let error = std::process::Command::new(program).args(arguments).exec();
        let found = error.kind() != std::io::ErrorKind::NotFound;
        eprintln!("error: {}: {error}", program.to_string_lossy());
        Ok(ExitCode::from(if found { NOT_RUN } else { NOT_FOUND } as u8))
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
