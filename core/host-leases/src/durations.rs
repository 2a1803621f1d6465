//! The durations of an array's leases. A node that is silent for longer loses its lease, and the others continue without it.

use braid_base::limits::{HEARTBEATS_PER_LEASE, Settings};
use std::time::Duration;

/// The lease of an array, and the durations derived from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leases {
    lease: Duration,
}

/// The default lease, in milliseconds.
pub const LEASE_MILLIS_DEFAULT: u64 = 4_000;
/// The shortest lease, in milliseconds: a node that is busy or swapping must not be presumed dead.
pub const LEASE_MILLIS_MIN: u64 = 1_000;
/// The longest lease, in milliseconds: users wait for so long when a device fails.
pub const LEASE_MILLIS_MAX: u64 = 60_000;
/// Leases for which a host may be silent before it is fenced. Fencing costs its users their connections, and nothing waits for it: devices
/// resolve the host's writes after one lease, and lock servers have the host fenced earlier if it holds a lock that another host requests.
const LEASES_OF_A_HOST: u32 = 15;
/// The roles of lock servers begin with this. On several machines they serve for a lease after their last renewal, so the leader does not end
/// their leases sooner.
pub const LOCK_SERVER_ROLE: &str = "lock server ";

impl Leases {
    /// A lease of `millis` milliseconds, limited to the permitted range.
    pub fn of_millis(millis: u64) -> Leases {
        Leases { lease: Duration::from_millis(millis.clamp(LEASE_MILLIS_MIN, LEASE_MILLIS_MAX)) }
    }

    /// A node that is silent for longer is presumed dead.
    pub fn lease(self) -> Duration {
        self.lease
    }

    /// The interval at which leases are renewed.
    pub fn heartbeat(self) -> Duration {
        self.lease / HEARTBEATS_PER_LEASE
    }

    /// A host that is silent for longer is fenced.
    pub fn host(self) -> Duration {
        self.lease * LEASES_OF_A_HOST
    }

    /// The settings of the array's nodes.
    pub fn settings(self) -> Settings {
        Settings {
            host_lease: self.lease,
            device_lease: self.lease,
            heartbeat: self.heartbeat(),
            ..Settings::default()
        }
    }
}
