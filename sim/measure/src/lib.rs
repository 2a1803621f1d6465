//! Measures arrays on modelled hardware: the machines are those of the real array, their messages too; what is modelled is where
//! time goes. Payloads are charged and not moved.
//!
//! | module | what |
//! | --- | --- |
//! | [`parameters`] | every number that a run depends on |
//! | [`system`] | an array, and the loop that runs it |
//! | [`models`] | processors, disks and links: queues |
//! | [`storage`] | a device's storage without content |
//! | [`workload`] | what hosts are asked |
//! | [`tally`] | what is seen of a run |
//! | [`queue`], [`dice`] | what is going to happen; random times |

pub mod dice;
pub mod models;
pub mod parameters;
pub mod queue;
pub mod storage;
pub mod system;
pub mod tally;
pub mod workload;

pub use parameters::{ParameterError, Parameters};
pub use tally::Measured;

use braid_wire::Ordering;

/// Runs an array once.
pub fn measure(parameters: &Parameters, ordering: Ordering, seed: u64) -> Measured {
    let mut system = system::System::new(parameters, ordering, seed);
    system.run();
    system.tally.measured(system.workers())
}
