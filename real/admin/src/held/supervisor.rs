//! The supervisor is a process between this program and a command that this program runs. It waits for the command. If it is asked to, or
//! if this program dies, it ends the command and all processes that the command has started. These include processes in the background and
//! in process groups of their own: the supervisor is a subreaper, so the system makes it the parent of orphaned processes.

use super::running::HeldCommand;
use crate::failure::Failure;
use crate::parent_process::{heed_death_of, this_program};
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, kill_process_group, set_child_subreaper, wait,
};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;
use tokio::signal::unix::{SignalKind, signal};

/// Tells the supervisor to ask the command to end. The supervisor ends when no process is left.
pub const ASK: Signal = Signal::TERM;
/// Tells the supervisor to kill the command and all its processes.
pub const END_ALL: Signal = Signal::USR1;

/// The exit status if a command can't be executed.
pub const NOT_RUN: i32 = 126;
/// The exit status if a command is not found.
pub const NOT_FOUND: i32 = 127;

/// How a program starts itself again, in roles that its command line must have.
#[derive(Clone, Copy, Debug)]
pub struct Itself {
    /// The arguments with which it calls [`supervise`]. `--parent PID`, perhaps `--grouped`, and the command after `--` follow them.
    pub supervise: &'static [&'static str],
    /// The arguments with which it calls [`execute`]. `--parent PID`, and the command after `--` follow them.
    pub execute: &'static [&'static str],
}

pub fn command(held: &HeldCommand, grouped: bool) -> Command {
    let mut command = ourselves(held.itself.supervise);
    command.args(grouped.then_some("--grouped")).arg("--").args(held.words);
    command
}

fn ourselves(role: &[&str]) -> Command {
    let mut command = this_program();
    command.args(role).args(["--parent", &std::process::id().to_string()]);
    command
}

/// The work of the supervisor: runs a command for the program that started this process, and ends the command with that program, whose PID
/// is `parent`. With `grouped`, the command runs in a process group of its own. Returns the exit status: that of the command, or 128 plus
/// the signal that ended it.
pub async fn supervise(parent: u32, grouped: bool, held: &HeldCommand<'_>) -> Result<u8, Failure> {
    let mut ask = signal(SignalKind::terminate())?;
    let mut end_all = signal(SignalKind::user_defined1())?;
    let mut deaths = signal(SignalKind::child())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut quit = signal(SignalKind::quit())?;
    let mut hangup = signal(SignalKind::hangup())?;
    set_child_subreaper(Some(getpid())).map_err(std::io::Error::from)?;
    heed_death_of(parent, END_ALL)?;

    let mut command = ourselves(held.itself.execute);
    command.arg("--").args(held.words);
    if grouped {
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
            return Ok(code(status));
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
                let _ = if grouped { kill_process_group(command, ASK) } else { kill_process(command, ASK) };
            }
            // The terminal sends these signals to the command as well.
            _ = interrupt.recv() => asked = true,
            _ = quit.recv() => asked = true,
            _ = hangup.recv() => asked = true,
            _ = deaths.recv() => {}
        }
    }
}

/// Executes a command in place of this program, which dies with the program that started it, whose PID is `parent`. Returns only if that
/// fails, with the error and the exit status for it.
pub fn execute(parent: u32, words: &[OsString]) -> Result<(std::io::Error, u8), Failure> {
    heed_death_of(parent, Signal::KILL)?;
    let (program, arguments) = words.split_first().ok_or_else(|| Failure::usage("usage", "there is no command"))?;
    let error = Command::new(program).args(arguments).exec();
    let found = error.kind() != std::io::ErrorKind::NotFound;
    Ok((error, if found { NOT_RUN } else { NOT_FOUND } as u8))
}

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
