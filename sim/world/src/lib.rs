//! The simulated world: event queue, network, disks, clocks, faults. It runs any [`Machine`](braid_machine::Machine) and knows no
//! protocol; one seed determines a run completely.
//!
//! ```text
//!   World::next ── pops the earliest event ──► (now, input) ──► Machine::step ──► effects ──► new events
//!                                                                     │
//!                                     Disk (sectors that a crash may lose), Network (random source), LocalClock (skew)
//! ```
//!
//! The loop in [`event_loop`] has the shape of the real loop in the shell; the measuring engine (`sim/measure`) uses it, too. Costs and
//! latencies belong to this crate and never to a core crate. Here they are plain ranges ([`NetworkOptions`], [`DiskOptions`]); models
//! of hardware (seeks, bandwidth, processors) are in `sim/measure`.

pub mod clock;
pub mod disk;
pub mod event_loop;
pub mod fault_schedule;
pub mod faults;
pub mod memory_disk;
pub mod network;
pub mod places;
pub mod queue;
pub mod registry;
pub mod trace;
pub mod world;

pub use clock::LocalClock;
pub use disk::{CrashPoint, Disk, DiskCounts, DiskOptions, Keeps};
pub use event_loop::{Due, EventLoop, NodeIndex};
pub use fault_schedule::{Swarm, Topology};
pub use faults::{Budget, CutShape, Damageable, Fault, FaultKind, FaultOptions};
pub use memory_disk::MemoryDisk;
pub use network::{Network, NetworkCounts, NetworkOptions, Verdict};
pub use queue::EventQueue;
pub use registry::{Arrived, LATEST, Operation, Registry, RegistryAnswer, RegistryCall, RegistryPath};
pub use trace::Trace;
pub use world::{Bound, Suspension, World, WorldEvent};
