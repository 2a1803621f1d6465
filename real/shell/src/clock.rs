//! The two clocks of a machine.

use braid_base::{Clock, Now, Time};
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::time::{SystemTime, UNIX_EPOCH};

/// Reads both clocks. The clock for timers and leases also advances while the computer sleeps.
pub fn now() -> Now {
    // Read through the C library, so that tests can give a process another wall clock. A time before 1970 is reported as 1970, which the
    // protocols treat like any clock that is slow.
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Now {
        time: Time(nanoseconds(clock_gettime(ClockId::Boottime))),
        clock: Clock(u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX)),
    }
}

fn nanoseconds(reading: Timespec) -> u64 {
    let seconds = u64::try_from(reading.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + reading.tv_nsec as u64
}
