//! What devices, hosts and lock servers say to the array's monitor, which decides who is in (`docs/membership.md`).
//!
//! ```text
//!   device or host                              monitor
//!    │ Renew (epoch it lives by, when sent)        │   every 500 ms
//!    │────────────────────────────────────────────►│
//!    │◄──────────────── Lease (when it was sent)   │   and the membership, where the asker has an older one
//!    │                                             │
//!    │◄──────────────────────── Changed (unasked)  │   a new membership, at once, to all it knows
//!    │ Renew (the new epoch)                       │   once the device has it durably
//!    │────────────────────────────────────────────►│
//! ```
//!
//! A device serves until a lease's length after it *sent* what was answered, by its own clock. The monitor counts from when it
//! answered, and longer; so a device that is taken out serves no more.

use crate::administration::{AdminError, Administration, JoinRefused, RecoveryThrottle};
use braid_base::{Clock, DeviceId, DiskId, Epoch, Generation, Membership, Time};
use std::time::Duration;

/// To the monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonitorRequest {
    /// The epoch that the sender lives by; zero if it knows none. A device has it durably.
    pub epoch: Epoch,
    /// What it wants.
    pub command: MonitorCommand,
}

/// What somebody wants of the monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MonitorCommand {
    /// A device, host or lock server is there. Answered by [`MonitorReply::Lease`].
    Renew {
        /// When it sent this, by its own clock: the answer says it again.
        sent: Time,
        /// Of a host: devices that do not answer it. Of a device: itself, if it is of no use, since it hears nothing of the monitor, or can't
        /// write what it is to be brought. It gets no lease then.
        silent: Vec<DeviceId>,
        /// Of a device: the disk that it has.
        disk: Option<DiskId>,
        /// Of a device: the slots of its disk that can't be written.
        bad_slots: u32,
        /// Of a device: these are so many that it is to be done without, as soon as it can be.
        failing: bool,
        /// Of a device: hosts that are kept out of the epoch it lives by, and of which it still has something undecided in volumes with
        /// redundancy. If these are [`UNDECIDED_HOSTS_MAX`](braid_base::limits::UNDECIDED_HOSTS_MAX), there may be more.
        undecided: Vec<Generation>,
        /// The highest stamp clock that is known to be accepted: a device's durable reservation, or what a host was answered. Zero if none is.
        stamps: Clock,
    },
    /// Hosts are to be kept out: answered by [`MonitorReply::Fenced`], once no device serves them any more, and what they left undecided
    /// is decided.
    Fence {
        /// Names the request; the answer carries it.
        ticket: u64,
        /// Every generation below this one…
        below: Generation,
        /// …except these, which still live…
        except: Vec<Generation>,
        /// …and these besides.
        also: Vec<Generation>,
    },
    /// A returning device has all that it missed: its recovery coordinator says so, again until the membership does, too.
    CaughtUp {
        /// Which device.
        device: DeviceId,
        /// The epoch in which it came back.
        since: Epoch,
    },
    /// How far a recovery coordinator is: said with its renewals.
    Healing {
        /// Which device it helps.
        device: DeviceId,
        /// How far that is.
        progress: HealingProgress,
    },
    /// An operator wants something changed: answered by [`MonitorReply::Administered`].
    Administer {
        /// Names the request; the answer carries it.
        ticket: u64,
        /// What.
        request: Administration,
    },
}

/// How far a returning device is, in blocks of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HealingProgress {
    /// Blocks that this recovery coordinator has brought it.
    pub done: u64,
    /// Blocks that it still lacks, as far as that is known.
    pub left: u64,
    /// Blocks that can't be restored: too much of their rows is lost.
    pub lost: u64,
}

/// From the monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonitorAnswer {
    /// Who is in; none if the asker has that already.
    pub membership: Option<Membership>,
    /// Devices that are in and whose leases have run out, but that can't be taken out, since too many are.
    pub unavailable: Vec<DeviceId>,
    /// The reply.
    pub reply: MonitorReply,
}

/// What the monitor says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MonitorReply {
    /// To a renewal: to a device, a lease.
    Lease {
        /// When the asker sent its request, by its own clock.
        sent: Time,
        /// How long the lease is, counted from `sent`.
        length: Duration,
        /// How fast hosts are to bring devices what these lack.
        throttle: RecoveryThrottle,
        /// The highest stamp clock that devices and hosts have named to the monitor. Each device accepts stamps up to it, though its own clock
        /// may be behind: others have accepted such stamps.
        stamps: Clock,
    },
    /// Hosts are kept out: no device serves them any more, and none ever will; each of their hostwrites has taken effect, or never will.
    Fenced {
        /// Which request.
        ticket: u64,
    },
    /// Unasked: something has changed.
    Changed,
    /// To a device: it gets no lease, and never will as it is.
    JoinRefused(JoinRefused),
    /// To an operator's request: it is durable, or refused.
    Administered {
        /// Which request.
        ticket: u64,
        /// Why not.
        result: Result<(), AdminError>,
    },
}
