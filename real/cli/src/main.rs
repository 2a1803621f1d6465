//! The command `braid`: makes arrays, runs their devices and front ends, and looks at them.
//!
//! | module | what |
//! | --- | --- |
//! | `commands` | one file for each command: its arguments, its help, what it does |
//! | `supervisor` | keeps the monitor, devices and lock servers running for `braid up`, each in a process or a task |
//! | `device` | one device: making, opening and serving it |
//! | `lockd` | one lock server: its state, its lease, serving it |
//! | `monitord` | the monitor: its state, the volumes that it must know, serving it |
//! | `daemon` | what devices, lock servers and the monitor have in common |
//! | `look`, `condition` | one look at an array; how each device is |
//! | `chronicle` | what the monitor's reports tell one after the other: events, rates, since when |
//! | `health` | how devices and volumes are, from what the monitor says and who answers |
//! | `front` | an NBD server and its host |
//! | `observed` | devices and servers that can be looked at while they run |
//! | `slots` | devices and spares that come, go, and get other disks |
//! | `volumes` | volumes made and deleted with their components, and their exports |
//! | `ordering` | changing a volume's ordering while hosts use it |
//! | `creation` | what an array is created with, and how that may differ from what is asked for later |
//! | `counts` | what counters say of one operation |
//! | `failure` | errors as people and programs see them |
//! | `values` | objects, attributes and values as they are written on the command line |
//! | `output` | what commands print |

mod chronicle;
mod commands;
mod condition;
mod copies;
mod counts;
mod creation;
mod daemon;
mod device;
mod failure;
mod front;
mod health;
mod lockd;
mod look;
mod migration;
mod monitord;
mod observed;
mod ordering;
mod output;
mod recovery;
mod signals;
mod slots;
mod supervisor;
mod values;
mod volumes;

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
