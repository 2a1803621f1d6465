//! The supervisor is a process between this program and a command that this program runs. It waits for the command. If it is asked to, or
//! if this program dies, it ends the command and all processes that the command has started. These include processes in the background and
//! in process groups of their own: the supervisor is a subreaper, so the system makes it the parent of orphaned processes.

use crate::report;
use braid_admin::failure::Failure;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, kill_process_group, set_child_subreaper, wait,
};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use tokio::signal::unix::{SignalKind, signal};

/// Tells the supervisor to ask the command to end. The supervisor ends when no process is left.
pub const ASK: Signal = Signal::TERM;
/// Tells the supervisor to kill the command and all its processes.
pub const END_ALL: Signal = Signal::USR1;

/// The exit status if a command can't be executed.
pub const NOT_RUN: i32 = 126;
/// The exit status if a command is not found.
pub const NOT_FOUND: i32 = 127;

/// Runs a command for the program that started this process, and ends the command with that program
#[derive(clap::Args)]
pub struct Supervise {
    /// The PID of that program
    #[arg(long)]
    parent: u32,
    /// Run the command in a process group of its own
    #[arg(long)]
    grouped: bool,
    /// The command, after `--`
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Executes a command that dies with the program that started it
#[derive(clap::Args)]
pub struct Become {
    /// The PID of that program
    #[arg(long)]
    parent: u32,
    /// The command, after `--`
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// The command line of a supervisor.
pub fn supervise(words: &[OsString], grouped: bool) -> Command {
    let mut command = ourselves("supervise");
    command.args(grouped.then_some("--grouped")).arg("--").args(words);
    command
}

/// This program as a command, opened through /proc: the file at its path may be of another release by now.
fn ourselves(what: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("braid").args(["recipe", what, "--parent", &std::process::id().to_string()]);
    command
}

impl Supervise {
    /// Runs the command, and ends with its status.
    pub async fn run(&self) -> Result<ExitCode, Failure> {
        let mut ask = signal(SignalKind::terminate())?;
        let mut end_all = signal(SignalKind::user_defined1())?;
        let mut deaths = signal(SignalKind::child())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut quit = signal(SignalKind::quit())?;
        let mut hangup = signal(SignalKind::hangup())?;
        set_child_subreaper(Some(getpid())).map_err(std::io::Error::from)?;
        report::heed_death_of(self.parent, END_ALL)?;

        let mut command = ourselves("become");
        command.arg("--").args(&self.command);
        if self.grouped {
            command.process_group(0);
        }
        let command = Pid::from_child(&command.spawn()?);
        // The writer of the command's input must notice when the command has closed it.
        rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?).map_err(std::io::Error::from)?;

        let (mut status, mut asked, mut ending) = (None, false, false);
        loop {
            let alone = loop {
                match wait(WaitOptions::NOHANG) {
                    Ok(Some((pid, ended))) if pid == command => status = Some(ended),
                    Ok(Some(_)) => {}
                    Ok(None) => break false,
                    Err(_) => break true,
                }
            };
            if let Some(status) = status.filter(|_| alone || !asked) {
                return Ok(ExitCode::from(code(status)));
            }
            if ending {
                // Orphans of these processes become children of this process.
                for child in children()? {
                    let _ = kill_process(child, Signal::KILL);
                }
            }
            tokio::select! {
                // Requests to end come first: a command that dies of the same signal has not ended by itself.
                biased;
                _ = end_all.recv() => (asked, ending) = (true, true),
                _ = ask.recv() => {
                    asked = true;
                    // A process that has ended needs no signal.
                    let _ = if self.grouped { kill_process_group(command, ASK) } else { kill_process(command, ASK) };
                }
                // The terminal sends these signals to the command as well.
                _ = interrupt.recv() => asked = true,
                _ = quit.recv() => asked = true,
                _ = hangup.recv() => asked = true,
                _ = deaths.recv() => {}
            }
        }
    }
}

impl Become {
    /// Executes the command. Returns only if that fails.
    pub fn run(&self) -> Result<ExitCode, Failure> {
        report::heed_death_of(self.parent, Signal::KILL)?;
        let (program, arguments) = self.command.split_first().expect("the command line demands a command");
        let error = Command::new(program).args(arguments).exec();
        let found = error.kind() != std::io::ErrorKind::NotFound;
        eprintln!("error: {}: {error}", program.to_string_lossy());
        Ok(ExitCode::from(if found { NOT_RUN } else { NOT_FOUND } as u8))
    }
}

/// The children of this process.
fn children() -> std::io::Result<Vec<Pid>> {
    let mut children = Vec::new();
    for task in std::fs::read_dir("/proc/self/task")? {
        let listed = std::fs::read_to_string(task?.path().join("children"))?;
        children.extend(listed.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)));
    }
    Ok(children)
}

/// The exit status for a command's status: its own, or 128 plus the signal that ended it, as in shells.
fn code(status: WaitStatus) -> u8 {
    let signal = status.terminating_signal().map(|signal| 128 + signal);
    status.exit_status().or(signal).unwrap_or(1) as u8
}
