//! The two clocks that the system has for a machine.

use braid_base::{Clock, Now, Time};
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::time::{SystemTime, UNIX_EPOCH};

/// Reads both clocks. The one for timers and leases runs while the computer sleeps.
pub fn now() -> Now {
    // By way of the C library, so that tests can give a process another wall clock. One before 1970 reads as 1970: the protocols
    // take it for a clock that lags.
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
