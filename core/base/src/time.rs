//! Time as the protocols see it: two readings that the world hands in with every input.

use std::time::Duration;

/// Nanoseconds on a clock that never steps back and runs while the machine sleeps. Timers and leases look
/// at this one only; readings of different nodes can't be compared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(pub u64);

impl Time {
    /// This time and `span` more.
    pub fn after(self, span: Duration) -> Time {
        Time(self.0.saturating_add(nanos(span)))
    }

    /// How long ago `earlier` was; zero if it is still to come.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Nanoseconds of wall time since 1970, from a clock that may be skewed, drift, jump and step back.
/// Only stamps are made of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Clock(pub u64);

impl Clock {
    /// This reading and `span` more.
    pub fn ahead(self, span: Duration) -> Clock {
        Clock(self.0.saturating_add(nanos(span)))
    }

    /// By how much this reading is ahead of `earlier`; zero if it is behind.
    pub fn since(self, earlier: Clock) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Both readings at the moment of an input.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Now {
    /// For timers and leases.
    pub time: Time,
    /// For stamps.
    pub clock: Clock,
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
