//! Leases of an array: how long its nodes may be silent until the others go on without them.

use braid_base::limits::{HEARTBEATS_PER_LEASE, Settings};
use std::time::Duration;

/// The lease of an array, and the spans that follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leases {
    lease: Duration,
}

/// Leases of an array that was created without a word about them, in milliseconds.
pub const LEASE_MILLIS_DEFAULT: u64 = 4_000;
/// The shortest leases, in milliseconds: a node that is busy, or swaps, must not be taken for gone.
pub const LEASE_MILLIS_MIN: u64 = 1_000;
/// The longest leases, in milliseconds: users wait for so long when a device has failed.
pub const LEASE_MILLIS_MAX: u64 = 60_000;
/// Leases for which a host may be silent until it is fenced. That costs its users their connections, and nobody waits for it: devices
/// resolve its writes after one lease, and lock servers have it fenced when it holds what somebody wants.
const LEASES_OF_A_HOST: u32 = 15;

impl Leases {
    /// Leases of so many milliseconds.
    pub fn of_millis(millis: u64) -> Leases {
        Leases { lease: Duration::from_millis(millis.clamp(LEASE_MILLIS_MIN, LEASE_MILLIS_MAX)) }
    }

    /// A node that has been silent for longer is taken for gone.
    pub fn lease(self) -> Duration {
        self.lease
    }

    /// How often leases are renewed.
    pub fn heartbeat(self) -> Duration {
        self.lease / HEARTBEATS_PER_LEASE
    }

    /// A host that has been silent for longer is fenced for good.
    pub fn host(self) -> Duration {
        self.lease * LEASES_OF_A_HOST
    }

    /// The settings of a node of such an array.
    pub fn settings(self) -> Settings {
        Settings {
            host_lease: self.lease,
            device_lease: self.lease,
            heartbeat: self.heartbeat(),
            ..Settings::default()
        }
    }
}
