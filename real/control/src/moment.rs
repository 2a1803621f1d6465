//! When, for leases: comparable between the processes of one machine, across sleep, and never across a boot.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// A reading of the clock that runs while the machine sleeps, and the boot that it counts from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Names the boot.
    pub boot: String,
    /// Since then.
    pub elapsed: Duration,
}

impl Moment {
    /// This moment.
    pub fn now() -> Moment {
        let reading = clock_gettime(ClockId::Boottime);
        let elapsed = Duration::new(reading.tv_sec as u64, reading.tv_nsec as u32);
        // Without the name of the boot every lease of an earlier boot would look strange, none would look live.
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Moment { boot: boot.trim().to_string(), elapsed }
    }

    /// How long ago `earlier` was; none if that was in another boot. A moment still to come counts as now.
    pub fn since(&self, earlier: &Moment) -> Option<Duration> {
        (self.boot == earlier.boot).then(|| self.elapsed.saturating_sub(earlier.elapsed))
    }
}
