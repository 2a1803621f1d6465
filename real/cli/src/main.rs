//! The command `braid`: makes arrays, runs their devices and front ends, and looks at them.
//!
//! | module | what |
//! | --- | --- |
//! | `commands` | one file for each command: its arguments, its help, what it prints |
//! | `metrics` | what counters say of one operation |
//! | `report` | what is said of failures, and of servers that this program runs |
//! | `values` | objects, attributes and values as they are written on the command line |
//!
//! What commands do is in `braid-admin`, what daemons run in `braid-daemons`, `braid bench` in `braid-bench`. `braid sim` starts another program.

mod commands;
mod metrics;
mod report;
mod values;

use std::io::IsTerminal;
use std::process::ExitCode;

/// Large requests come and go by the thousand: it keeps their memory at hand where the system's allocator asks for fresh
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
