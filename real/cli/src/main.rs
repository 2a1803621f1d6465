//! The command `braid`: creates arrays, runs their devices and front ends, and administers them.
//!
//! | module | what |
//! | --- | --- |
//! | `commands` | one file for each command: its arguments, its help, what it prints |
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

use std::io::IsTerminal;
use std::process::ExitCode;

/// Large requests are allocated and freed at a high rate: this allocator keeps their memory, where the system's allocator requests fresh
/// pages each time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env()
                .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn")),
        )
        .with_target(false)
        .init();
    commands::run(std::env::args_os())
}
