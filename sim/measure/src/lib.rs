//! Measures arrays on modelled hardware: the machines are those of the real array, their messages too; what is modelled is where
//! time goes. Payloads are charged and not moved.
//!
//! | module | what |
//! | --- | --- |
//! | [`parameters`] | every number that a run of an array depends on |
//! | [`named`] | parameters by name |
//! | [`system`] | an array, and the streams of requests that it serves |
//! | [`locking`] | locks on objects, kept by devices or by a lock manager |
//! | [`engine`] | the loop that runs machines |
//! | [`models`] | processors, disks and links: queues |
//! | [`storage`] | a device's storage without content |
//! | [`workload`] | what hosts are asked |
//! | [`tally`] | what is seen of a run |
//! | [`sampler`] | random times |

pub mod engine;
pub mod locking;
pub mod models;
pub mod named;
pub mod parameters;
pub mod sampler;
pub mod storage;
pub mod system;
pub mod tally;
pub mod workload;

pub use locking::LockParameters;
pub use named::{Named, ParameterError};
pub use parameters::Parameters;
pub use tally::Measured;

use braid_wire::Ordering;

/// Runs an array once.
pub fn measure(parameters: &Parameters, ordering: Ordering, seed: u64) -> Measured {
    let mut system = system::System::new(parameters, ordering, seed);
    system.run();
    system.tally.measured(system.workers())
}
