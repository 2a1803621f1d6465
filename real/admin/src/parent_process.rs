//! Processes of this program that start each other: starting the program again, and ending with the process that started this one.

use crate::failure::Failure;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The program that this process runs. The file at the program's path may be of another release by now, or be gone: packages replace
/// programs by renaming. What the system opens by this name is what this process runs, also then.
pub const THIS_PROGRAM: &str = "/proc/self/exe";

/// This program as a command.
pub fn this_program() -> Command {
    let mut command = Command::new(THIS_PROGRAM);
    command.arg0(std::env::args_os().next().unwrap_or_else(|| "braid".into()));
    command
}

/// Has the system kill this process when its parent dies.
pub fn die_with(parent: u32) -> Result<(), Failure> {
    heed_death_of(parent, Signal::KILL)
}

/// Has the system send this process a signal when its parent dies, however that happens. If the parent has died already, the error is
/// `orphaned`.
pub fn heed_death_of(parent: u32, signal: Signal) -> Result<(), Failure> {
    set_parent_process_death_signal(Some(signal)).map_err(std::io::Error::from)?;
    // It may have died before this was requested.
    match getppid().map(Pid::as_raw_pid) == Some(parent as i32) {
        true => Ok(()),
        false => Err(Failure::failed("orphaned", "the process that started this one has ended")),
    }
}
