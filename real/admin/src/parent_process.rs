//! Ending with the process that started this one.

use crate::failure::Failure;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

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
