//! The time of leases: comparable between the processes of one machine, across sleep, but not across boots.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A reading of a clock that also advances while the machine sleeps, with the boot that it belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LeaseTime {
    pub boot: String,
    /// The time since that boot.
    pub elapsed: Duration,
}

impl LeaseTime {
    /// The time from `earlier` to this moment; none if `earlier` is of another boot. Zero if `earlier` is in the future.
    pub fn since(&self, earlier: &LeaseTime) -> Option<Duration> {
        (self.boot == earlier.boot).then(|| self.elapsed.saturating_sub(earlier.elapsed))
    }
}
