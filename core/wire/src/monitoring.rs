//! The messages that devices, hosts and lock servers exchange with the array's monitor, which decides the membership
//! (`docs/membership.md`).
//!
//! ```text
//!   device or host                              monitor
//!    │ Renew (its epoch, when sent)                │   every 500 ms
//!    │────────────────────────────────────────────►│
//!    │◄──────────────── Lease (when it was sent)   │   with the membership, if the sender's is older
//!    │                                             │
//!    │◄────────────────── Changed (unsolicited)    │   a new membership, at once, to all known nodes
//!    │ Renew (the new epoch)                       │   once the device has it durably
//!    │────────────────────────────────────────────►│
//! ```
//!
//! By its own clock, a device may serve for the length of the lease after it *sent* the request that was answered. The monitor counts from
//! its answer, and for a tenth longer. Therefore a device has stopped serving before it is marked out.

use crate::administration::{AdminError, Administration, JoinRefused, RecoveryThrottle};
use crate::declarations::wire;
use crate::ownership::{OwnershipRefused, OwnershipRequest};
use braid_base::{Clock, DeviceId, DiskId, Epoch, FileSystemId, Generation, Level, Membership, Ownership, Time};
use std::time::Duration;

wire! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct MonitorRequest {
        /// The sender's epoch; zero if it knows no membership. A device has stored this membership durably.
        pub epoch: Epoch,
        pub command: MonitorCommand,
    }

    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum MonitorCommand {
        /// Renews the lease of a device, host or lock server. Answered by [`MonitorReply::Lease`].
        Renew {
            /// When the request was sent, by the sender's clock. The answer repeats it.
            sent: Time,
            /// From a host: devices that do not answer it. From a device: itself, if it can't serve because it does not hear from the
            /// monitor, or can't write what it should be resynchronised with. It gets no lease then.
            silent: Vec<DeviceId>,
            /// From a device: its disk.
            disk: Option<DiskId>,
            /// From a device: how many slots of its disk can't be written.
            bad_slots: u32,
            /// From a device: there are so many bad slots that it should be taken out as soon as the others can serve without it.
            failing: bool,
            /// From a device: hosts that are fenced in its epoch, and that have undecided transactions on it in volumes with redundancy. A
            /// list of [`UNDECIDED_HOSTS_MAX`](braid_base::limits::UNDECIDED_HOSTS_MAX) hosts may be incomplete.
            undecided: Vec<Generation>,
            /// The highest stamp clock that is known to be accepted: the durable reservation of a device, or the highest that a host was
            /// told. Zero if there is none.
            stamps: Clock,
            /// The highest level that the sender's release knows.
            knows: Level,
            /// From a device of an array on several machines: which process runs it.
            holder: Option<Holder>,
        } = 1,
        /// Fences hosts. Answered by [`MonitorReply::Fenced`], once no device serves them any more and what they left undecided is decided.
        Fence {
            /// Identifies the request in its answer.
            ticket: u64,
            /// Every generation below this one is fenced…
            below: Generation,
            /// …except these, which are alive.
            except: Vec<Generation>,
            /// These are fenced, too.
            also: Vec<Generation>,
        } = 2,
        /// A returning device is resynchronised. Its recovery coordinator repeats this until the membership says so, too.
        Resynchronised {
            device: DeviceId,
            /// The epoch in which the device returned.
            since: Epoch,
        } = 3,
        /// The progress of a recovery coordinator, sent along with its renewals.
        Healing {
            /// The device that it resynchronises.
            device: DeviceId,
            progress: HealingProgress,
        } = 4,
        /// A change that an operator asks for. Answered by [`MonitorReply::Administered`].
        Administer {
            /// Identifies the request in its answer.
            ticket: u64,
            request: Administration,
        } = 5,
        /// From a host: a request about the ownership of a file system. Answered by [`MonitorReply::Ownership`].
        Ownership {
            /// Identifies the request in its answer.
            ticket: u64,
            file_system: FileSystemId,
            request: OwnershipRequest,
        } = 6,
    }

    /// Which process runs a device. The file lock on its disk keeps others away on one machine alone; another one may have a copy of the disk.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Holder {
        /// A random number of its machine's agent.
        pub number: u64,
        /// The device has a lease that runs.
        pub has_lease: bool,
    }

    /// The progress of a returning device, in blocks of its own.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct HealingProgress {
        /// Blocks that this recovery coordinator has written to it.
        pub done: u64,
        /// Blocks that are still to be written, as far as is known.
        pub left: u64,
        /// Blocks that can't be restored, because too much of their rows is lost.
        pub lost: u64,
    }

    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct MonitorAnswer {
        /// The membership; `None` if the receiver has it already.
        pub membership: Option<Membership>,
        /// Devices that are in and whose leases have expired, but that can't be taken out because too many others are out.
        pub unavailable: Vec<DeviceId>,
        pub reply: MonitorReply,
    }

    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum MonitorReply {
        /// The answer to a renewal. For a device it is a lease.
        Lease {
            /// When the request was sent, by the sender's clock.
            sent: Time,
            /// The length of the lease, counted from `sent`.
            length: Duration,
            /// How fast hosts resynchronise devices.
            throttle: RecoveryThrottle,
            /// The highest stamp clock that devices and hosts have reported to the monitor. Every device accepts stamps up to it even if
            /// its own clock is behind, because other devices have accepted such stamps.
            stamps: Clock,
            /// The level of the array.
            level: Level,
        } = 1,
        /// The hosts are fenced: no device serves them any more or ever will, and each of their hostwrites has taken effect or never will.
        Fenced { ticket: u64 } = 2,
        /// Unsolicited: the membership has changed.
        Changed = 3,
        /// The answer to a device that gets no lease, and will get none until its disk is changed.
        JoinRefused(why: JoinRefused) = 4,
        /// The answer to an operator's request: the change is durable, or refused.
        Administered {
            ticket: u64,
            /// Why it was refused.
            result: Result<(), AdminError>,
        } = 5,
        /// The answer about a file system: its ownership, after the change that was requested; or why there is no change.
        Ownership { ticket: u64, result: Result<Ownership, OwnershipRefused> } = 6,
    }
}
