//! The contract between a protocol role (a device, a host) and the world that runs it, simulated or real.
//!
//! ```text
//!     world ── Input ──► Machine::step ── Effects ──► world
//! ```
//!
//! * A step runs to its end: it waits for nothing, touches no clock, socket, file or thread.
//! * The effects of one step are unordered and may happen at once. If B must follow A, the step that hears of A's
//!   completion emits B; so what must be durable before an answer can be read in the protocol's code.
//! * A `Sync` covers exactly the writes whose completion the machine had already heard of. Two overlapping disk
//!   commands in flight, one of them a write, are a bug of the machine; the simulated disk asserts that there are
//!   none.
//! * Messages are datagrams. Connections are the shell's business; silence is found by waking.
//!
//! | module | what |
//! | --- | --- |
//! | `disk` | commands to the one disk that a machine may have |
//! | `effects` | what a step wants done |
//! | `request` | what front ends ask of a host, and how it ends |

mod disk;
mod effects;
mod request;

pub use disk::{DiskCommand, DiskError, DiskResult, DiskTag};
pub use effects::{Effect, Effects, Ignored};
pub use request::{
    ClockCause, Finding, Found, HostError, HostOutcome, HostRequest, HostSuccess, MigrationReport, OpId, ScrubReport,
    rough,
};

use braid_base::{NodeId, Now, Time};
use braid_wire::Message;

/// One protocol role. It owns its state and touches nothing else.
pub trait Machine {
    /// Takes one input to its end; says what the world must now do.
    fn step(&mut self, now: Now, input: Input, out: &mut Effects);

    /// When to be woken if nothing else happens before.
    fn deadline(&self) -> Option<Time>;

    /// Asserts what must hold between steps. Worlds call it after steps; the simulated one after each.
    fn invariants(&self);
}

/// What happens to a machine.
#[derive(Clone, Debug)]
pub enum Input {
    /// Power on. Memory is empty; the disk is as the last crash left it.
    Start,
    /// A message came.
    Message {
        /// From whom.
        from: NodeId,
        /// What it says.
        message: Message,
    },
    /// A disk command ended.
    DiskDone {
        /// Which.
        tag: DiskTag,
        /// How.
        result: DiskResult,
    },
    /// A front end or workload asks a host for something.
    Request {
        /// Names the request; the reply carries it.
        op: OpId,
        /// What it asks.
        request: HostRequest,
    },
    /// The deadline has come.
    Wake,
}
