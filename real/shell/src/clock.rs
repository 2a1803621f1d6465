//! The two clocks that the system has for a machine.

use braid_base::{Clock, Now, Time};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Reads both clocks. The one for timers and leases runs while the computer sleeps.
pub fn now() -> Now {
    Now {
        time: Time(nanoseconds(clock_gettime(ClockId::Boottime))),
        clock: Clock(nanoseconds(clock_gettime(ClockId::Realtime))),
    }
}

fn nanoseconds(reading: Timespec) -> u64 {
    // A wall clock before 1970 reads as 1970: the protocols take it for a clock that lags.
    let seconds = u64::try_from(reading.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + reading.tv_nsec as u64
}
