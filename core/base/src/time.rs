//! Time as the protocols see it: two clock readings that are part of every input.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Nanoseconds on a monotonic clock that also runs while the machine is suspended. Timers and leases use only this clock. Readings of
/// different nodes can't be compared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Time(pub u64);

impl Time {
    /// This time plus `span`.
    pub fn after(self, span: Duration) -> Time {
        Time(self.0.saturating_add(nanos(span)))
    }

    /// The time since `earlier`; zero if `earlier` is in the future.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Nanoseconds of wall time since 1970, from a clock that may be skewed, drift, jump and step back. Only stamps use it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Clock(pub u64);

impl Clock {
    /// This reading plus `span`.
    pub fn ahead(self, span: Duration) -> Clock {
        Clock(self.0.saturating_add(nanos(span)))
    }

    /// By how much this reading is ahead of `earlier`; zero if it is behind.
    pub fn since(self, earlier: Clock) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Both clocks at the moment of an input.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Now {
    /// For timers and leases.
    pub time: Time,
    /// For stamps.
    pub clock: Clock,
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
