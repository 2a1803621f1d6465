//! The clock of leases.

use braid_host_leases::LeaseTime;
use rustix::time::{ClockId, clock_gettime};
use std::ops::Deref;
use std::sync::LazyLock;
use std::time::Duration;

/// The boot, which no process outlives. If its name can't be read, it is empty: every lease of an earlier boot would look foreign, and none
/// live.
static BOOT: LazyLock<String> =
    LazyLock::new(|| std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_string());

/// A reading of this machine's clock that also advances while the machine sleeps, with the boot that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment(LeaseTime);

impl Moment {
    /// The current time.
    pub fn now() -> Moment {
        let reading = clock_gettime(ClockId::Boottime);
        let elapsed = Duration::new(reading.tv_sec as u64, reading.tv_nsec as u32);
        Moment(LeaseTime { boot: BOOT.clone(), elapsed })
    }
}

impl Deref for Moment {
    type Target = LeaseTime;

    fn deref(&self) -> &LeaseTime {
        &self.0
    }
}

impl From<LeaseTime> for Moment {
    fn from(time: LeaseTime) -> Moment {
        Moment(time)
    }
}

impl From<Moment> for LeaseTime {
    fn from(Moment(time): Moment) -> LeaseTime {
        time
    }
}
