//! The simulated world: event queue, network, disks, clocks, faults. It runs any [`Machine`](braid_machine::Machine) and knows
//! no protocol; one seed decides a run completely.
//!
//! ```text
//!   World::next ── pops the earliest event ──► (now, input) ──► Machine::step ──► effects ──► new events
//!                                                                     │
//!                                     Disk (sectors that a crash may lose), Network (random source), LocalClock (skew)
//! ```
//!
//! The loop in [`event_loop`] reads like the real one in the shell; the measuring engine (`sim/measure`) runs in it, too. Costs and latencies live here and never in a core. At present
//! they are plain ranges ([`NetworkOptions`], [`DiskOptions`]); models of measured hardware (seeks, bandwidth, processors)
//! will take their places behind `Network::send` and `Disk::issue`, which alone say how long something takes.

pub mod clock;
pub mod disk;
pub mod event_loop;
pub mod faults;
pub mod network;
pub mod queue;
pub mod swarm;
pub mod trace;
pub mod world;

pub use clock::LocalClock;
pub use disk::{CrashPoint, Disk, DiskCounts, DiskOptions, Keeps};
pub use event_loop::{Due, EventLoop, NodeIndex};
pub use faults::{Budget, CutShape, Damageable, Fault, FaultKind, FaultOptions, NoSuchFault};
pub use network::{Network, NetworkCounts, NetworkOptions, Verdict};
pub use queue::EventQueue;
pub use swarm::{Swarm, Topology};
pub use trace::Trace;
pub use world::{Bound, World, WorldEvent};
