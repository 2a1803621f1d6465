//! Stamps: the total order in which transactions take effect (shared array, section 4.5).

use crate::{Clock, Generation};
use std::fmt;

/// A clock reading made unique by the host that took it. Compared by clock first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Stamp {
    /// Nanoseconds since 1970, as the host's clock (or what it learned from refusals) had it.
    pub clock: Clock,
    /// Who took it.
    pub host: Generation,
}

impl Stamp {
    /// Below every stamp that a host takes.
    pub const ZERO: Stamp = Stamp { clock: Clock(0), host: Generation(0) };

    /// The highest stamp with this clock reading.
    pub fn last_of(clock: Clock) -> Stamp {
        Stamp { clock, host: Generation(u32::MAX) }
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.clock.0, self.host)
    }
}

/// Takes stamps for one host: strictly rising, near the clock, above whatever the host has lost to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StampSource {
    host: Generation,
    last: Clock,
}

impl StampSource {
    /// A source for `host`, which must be used by nobody else.
    pub fn new(host: Generation) -> StampSource {
        StampSource { host, last: Clock(0) }
    }

    /// The next stamp: the clock's reading, or just above the last one where the clock lags.
    pub fn next(&mut self, clock: Clock) -> Stamp {
        self.last = Clock(clock.0.max(self.last.0.saturating_add(1)));
        Stamp { clock: self.last, host: self.host }
    }

    /// Lets every later stamp be above `seen`. What is learned from a refusal can be no further ahead than
    /// what the device itself had accepted; a device that makes one up gets the host refused by all others, see
    /// [`StampSource::retreat`].
    pub fn learn(&mut self, seen: Stamp) {
        self.last = self.last.max(seen.clock);
    }

    /// Comes back to the clock after it had jumped ahead: for stamps that no device accepted, so that none need be above them.
    pub fn retreat(&mut self, clock: Clock) {
        self.last = self.last.min(clock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_rise_though_the_clock_steps_back() {
        let mut source = StampSource::new(Generation(3));
        let first = source.next(Clock(100));
        let second = source.next(Clock(40));
        assert!(second > first);
        source.learn(Stamp { clock: Clock(500), host: Generation(9) });
        assert!(source.next(Clock(41)) > Stamp { clock: Clock(500), host: Generation(9) });
    }
}
