//! A machine is one protocol role, such as a device or a host, as a deterministic state machine. This crate defines the contract between
//! a machine and its environment, which is the simulator or a real process.
//!
//! ```text
//!     environment ── Input ──► Machine::step ── Effects ──► environment
//! ```
//!
//! * A step never blocks, and accesses no clock, socket, file or thread.
//! * The effects of one step are unordered and may be performed concurrently. If B must follow A, then B is an effect of the step that
//!   receives the completion of A. Therefore the code of the protocol shows what must be durable before an answer is sent.
//! * A `Sync` covers exactly the writes whose completion the machine had already received. A machine must not have two overlapping disk
//!   commands in flight if one of them is a write; the simulated disk asserts this.
//! * Messages are datagrams. Connections belong to the environment; a machine detects silence by its deadlines.
//!
//! | module | what |
//! | --- | --- |
//! | `disk` | disk commands and their results |
//! | `effects` | the effects of a step |
//! | `files` | requests to the client of a file system, and their outcomes |
//! | `on_volume` | a combinator that runs machines on windows of volumes |
//! | `request` | requests of front ends to a host, and their outcomes |

mod disk;
mod effects;
mod files;
pub mod on_volume;
mod request;

pub use disk::{DiskCommand, DiskError, DiskResult, DiskTag};
pub use effects::{Effect, Effects, Ignored};
pub use files::{AdvisoryOwner, FileHandle, FilesError, FilesRequest, FilesSuccess};
pub use request::{
    ClockCause, Finding, Found, HostError, HostOutcome, HostRequest, HostSuccess, MigrationReport, OpId, Patience,
    ScrubReport, rough,
};

use braid_base::{NodeId, Now, Time};
use braid_wire::Message;

/// A protocol role as a state machine. It has no state outside itself.
pub trait Machine {
    /// Processes one input, and adds to `out` what the environment must do.
    fn step(&mut self, now: Now, input: Input, out: &mut Effects);

    /// When to call `step` with [`Input::Wake`] if there is no input before.
    fn deadline(&self) -> Option<Time>;

    /// Asserts what must hold between steps. The simulator calls it after every step, real processes now and then.
    fn invariants(&self);
}

/// An input of a machine.
#[derive(Clone, Debug)]
pub enum Input {
    /// The machine starts. Its memory is empty; its disk is as the last crash left it.
    Start,
    /// A message arrived.
    Message {
        /// The sender.
        from: NodeId,
        message: Message,
    },
    /// A disk command completed.
    DiskDone { tag: DiskTag, result: DiskResult },
    /// A front end or workload makes a request to a host.
    Request {
        /// Identifies the request in its reply.
        op: OpId,
        request: HostRequest,
    },
    /// The deadline has passed.
    Wake,
}
