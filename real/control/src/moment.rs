//! Times for leases: comparable between the processes of one machine, across sleep, but not across boots.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// A reading of the clock that also advances while the machine sleeps, with the boot that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    pub boot: String,
    /// The time since that boot.
    pub elapsed: Duration,
}

impl Moment {
    /// The current time.
    pub fn now() -> Moment {
        let reading = clock_gettime(ClockId::Boottime);
        let elapsed = Duration::new(reading.tv_sec as u64, reading.tv_nsec as u32);
        // If the boot's name can't be read, it is empty: every lease of an earlier boot would look foreign, and none live.
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Moment { boot: boot.trim().to_string(), elapsed }
    }

    /// The time from `earlier` to this moment; none if `earlier` is of another boot. Zero if `earlier` is in the future.
    pub fn since(&self, earlier: &Moment) -> Option<Duration> {
        (self.boot == earlier.boot).then(|| self.elapsed.saturating_sub(earlier.elapsed))
    }
}
