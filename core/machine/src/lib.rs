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
//! | `request` | requests of front ends to a host, in families, and to a monitor |
//! | `outcome` | the outcomes of requests to a host |
//! | `host_error` | why a request to a host failed |
//! | `files` | requests to the client of a file system and to its metadata servers, and their outcomes |
//! | `one_type` | machines of several types as one type, for worlds |
//! | `on_volume` | a combinator that runs machines on windows of volumes |

mod disk;
mod effects;
mod files;
mod host_error;
pub mod on_volume;
pub mod one_type;
mod outcome;
mod request;

pub use disk::{Disk, DiskCommand, DiskError, DiskResult, DiskTag, NoDisk, OneDisk};
pub use effects::{Effect, Effects, Ignored, Note};
pub use files::{AdvisoryOwner, FileHandle, FilesError, FilesRequest, FilesSuccess, MountRequest, ServerRequest};
pub use host_error::{ClockCause, HostError, rough};
pub use outcome::{Finding, Found, HostOutcome, HostSuccess, MigrationReport, ScrubReport};
pub use request::{
    Abandon, ArrayRequest, ControlOutcome, ControlRequest, HostRequest, JobRequest, ObjectsRequest, OpId, Part,
    Patience, RangesRequest, VolumeRequest,
};

use braid_base::{Level, NodeId, Now, Time, VolumeId};
use braid_wire::Message;
use serde::{Deserialize, Serialize};

/// A protocol role as a state machine. It has no state outside itself.
///
/// The types say what a machine can be handed and what it can do: one that takes no requests has [`Never`] for them, and one without a
/// disk has [`NoDisk`]. The machines of the protocols are `Clone` and `Debug`; machines around them, which share them with a view, are not.
pub trait Machine {
    /// What front ends and workloads ask of it.
    type Request;
    /// The answer to a request.
    type Outcome;
    /// [`OneDisk`] or [`NoDisk`].
    type Disk: Disk;

    /// Processes one input, and adds to `out` what the environment must do.
    fn step(&mut self, now: Now, input: InputOf<Self>, out: &mut EffectsOf<Self>);

    /// When to call `step` with [`Input::Wake`] if there is no input before.
    fn deadline(&self) -> Option<Time>;

    /// The level of the array, as far as the machine knows. Peers whose release does not know it are refused.
    fn level(&self) -> Level {
        Level::FIRST
    }

    /// Asserts what must hold between steps. The simulator calls it after every step, real processes now and then.
    fn invariants(&self) {}
}

/// A host, or a machine around one that takes the same requests.
pub trait HostMachine: Machine<Request = HostRequest, Outcome = HostOutcome, Disk = NoDisk> {
    /// True if it may use this volume now.
    fn knows(&self, volume: VolumeId) -> bool;
}

pub type InputOf<M> = Input<<M as Machine>::Request, <M as Machine>::Disk>;
pub type EffectsOf<M> = Effects<<M as Machine>::Outcome, <M as Machine>::Disk>;

/// What a machine never gets and never gives, such as requests of front ends to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Never {}

/// An input of a machine that takes requests `R`. A machine of which nothing else is said has a disk, and takes none.
#[derive(Clone, Debug)]
pub enum Input<R = Never, D: Disk = OneDisk> {
    /// The machine starts. Its memory is empty; its disk is as the last crash left it.
    Start,
    Message {
        /// The node that it is addressed to. A process may be two nodes, such as a host and a metadata server.
        to: NodeId,
        from: NodeId,
        message: Message,
    },
    /// A disk command completed.
    DiskDone { tag: DiskTag, result: D::Result },
    /// A front end or workload makes a request.
    Request {
        /// Identifies the request in its reply.
        op: OpId,
        request: R,
    },
    /// The deadline has passed.
    Wake,
}

pub type HostInput = Input<HostRequest, NoDisk>;
/// The effects of a monitor's step.
pub type MonitorEffects = Effects<ControlOutcome>;
/// The effects of a host's step.
pub type HostEffects = Effects<HostOutcome, NoDisk>;

impl<R, D: Disk> Input<R, D> {
    /// The same input for a machine of other types.
    pub fn convert<S, E: Disk>(
        self,
        request: impl FnOnce(R) -> S,
        result: impl FnOnce(D::Result) -> E::Result,
    ) -> Input<S, E> {
        match self {
            Input::Start => Input::Start,
            Input::Message { to, from, message } => Input::Message { to, from, message },
            Input::DiskDone { tag, result: done } => Input::DiskDone { tag, result: result(done) },
            Input::Request { op, request: asked } => Input::Request { op, request: request(asked) },
            Input::Wake => Input::Wake,
        }
    }
}
