//! The command `braid`: creates arrays, runs their devices and front ends, and administers them.
//!
//! | module | what |
//! | --- | --- |
//! | `commands` | the arguments, the help and the output of each command |
//! | `memory` | the memory of a device's process |
//! | `metrics` | text about the cost of one operation |
//! | `report` | output of failures, and announcements of servers |
//! | `values` | syntax of objects, attributes and values on the command line |
//!
//! The operations are in `braid-admin`, the daemons in `braid-daemons`, and `braid bench` in `braid-bench`. `braid sim` starts another
//! program.

mod commands;
mod memory;
mod metrics;
mod report;
mod values;

use std::process::ExitCode;

/// Large requests are allocated and freed at a high rate: this allocator keeps their memory, where the system's allocator requests fresh
/// pages each time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs the command that the arguments of this process name, and returns the exit status.
pub fn run() -> ExitCode {
    // A daemon that was started through /proc would have the name of the link there.
    let _ = rustix::thread::set_name(c"braid");
    braid_terminal::log_to_stderr();
    braid_terminal::output::finish(commands::run(std::env::args_os()))
}
