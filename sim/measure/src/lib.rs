//! Measures arrays on modelled hardware. Machines and messages are those of the real array; the time that processors, disks and links
//! take is modelled. Payloads cost time but are not copied.
//!
//! | module | what |
//! | --- | --- |
//! | [`parameters`] | all numbers that determine a run of an array |
//! | [`named`] | parameters by name |
//! | [`system`] | an array and its streams of requests |
//! | [`locking`] | locks on objects, kept by devices or by a lock manager |
//! | [`commits`] | operations on several metadata servers, under the commit protocols |
//! | [`range_locks`] | locks of ranges, which nodes keep until others want them |
//! | [`engine`] | runs machines on modelled hardware |
//! | [`connections`] | messages that wait for acknowledgements |
//! | [`disk_latency`] | the latency model of disks |
//! | [`hardware`] | processors and links as queues |
//! | [`storage`] | a device's storage without content |
//! | [`workload`] | generates the requests of hosts |
//! | [`tally`] | statistics of a run |
//! | `prelude` | imports that most modules share |
//! | [`sampler`] | random times |

pub mod commits;
pub mod connections;
pub mod disk_latency;
pub mod engine;
pub mod hardware;
pub mod locking;
pub mod named;
pub mod parameters;
mod prelude;
pub mod range_locks;
pub mod sampler;
pub mod storage;
pub mod system;
pub mod tally;
pub mod workload;

pub use commits::CommitParameters;
pub use locking::LockParameters;
pub use named::{Limits, Named, ParameterError, Sections};
pub use parameters::Parameters;
pub use range_locks::RangeParameters;
pub use tally::Measured;

use braid_ordering::Ordering;

pub fn measure(parameters: &Parameters, ordering: Ordering, seed: u64) -> Measured {
    let mut system = system::System::new(parameters, ordering, seed);
    system.run();
    system.tally.measured(system.workers())
}
