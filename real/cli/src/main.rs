//! The command `braid`: creates arrays, runs their devices and front ends, and administers them.
//!
//! | module | what |
//! | --- | --- |
//! | `commands` | one file for each command: its arguments, its help, its output |
//! | `metrics` | text about the cost of one operation |
//! | `report` | output of failures, and announcements of servers |
//! | `values` | syntax of objects, attributes and values on the command line |
//!
//! The operations are in `braid-admin`, the daemons in `braid-daemons`, and `braid bench` in `braid-bench`. `braid sim` starts another
//! program.

mod commands;
mod metrics;
mod report;
mod values;

use std::process::ExitCode;

/// Large requests are allocated and freed at a high rate: this allocator keeps their memory, where the system's allocator requests fresh
/// pages each time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The allocator's option `purge_delay`: after how many milliseconds it returns memory to the system; never if negative.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

fn main() -> ExitCode {
    keep_memory();
    braid_terminal::log_to_stderr();
    commands::run(std::env::args_os())
}

/// Memory that was freed stays with the process. A daemon reuses the memory of its blocks at once; returning pages in between costs a page
/// fault for each block.
fn keep_memory() {
    // SAFETY: the call only stores a number in the allocator.
    #[allow(unsafe_code)]
    unsafe {
        libmimalloc_sys::mi_option_set(PURGE_DELAY, -1);
    }
}
