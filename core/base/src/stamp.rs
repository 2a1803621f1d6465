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

/// Takes stamps for one host: rising, but for a [retreat](StampSource::retreat)
/// from a clock that had jumped; near the clock, above whatever the host has lost to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StampSource {
    host: Generation,
    last: Clock,
    /// The highest that a device is known to have accepted, of this host or of another.
    accepted: Clock,
    /// How far other clocks were seen to be ahead of this one, and when.
    ahead: u64,
    learned: Clock,
}

/// A stamp that is further ahead of this clock, in nanoseconds, is not another clock's present reading: somebody's clock was ahead once.
/// Later stamps need only be above it.
const CLOCK_AHEAD_MAX: u64 = 5_000_000_000;

/// How long a host trusts what it has learned of other clocks, less and less, in nanoseconds of its own. Hosts learn from one
/// another, so that without this what one restart put ahead would stay ahead for ever.
const LEARNED_FOR: u64 = 10_000_000_000;

impl StampSource {
    /// A source for `host`, which must be used by nobody else.
    pub fn new(host: Generation) -> StampSource {
        StampSource { host, last: Clock(0), accepted: Clock(0), ahead: 0, learned: Clock(0) }
    }

    /// The next stamp: the clock's reading, put forward by as much as others were lately seen to be ahead, or just above the
    /// last one where the clock lags.
    pub fn next(&mut self, clock: Clock) -> Stamp {
        let reading = clock.0.saturating_add(self.ahead_at(clock));
        self.last = Clock(reading.max(self.last.0.saturating_add(1)));
        Stamp { clock: self.last, host: self.host }
    }

    /// Lets every later stamp be above `seen`, to which one was lost. A host whose clock lags would lose to the same neighbour
    /// again, so it remembers by how much.
    pub fn learn(&mut self, clock: Clock, seen: Stamp) {
        self.last = self.last.max(seen.clock);
        self.accepted(seen);
        let ahead = seen.clock.0.saturating_sub(clock.0);
        if ahead > self.ahead_at(clock) && ahead <= CLOCK_AHEAD_MAX {
            (self.ahead, self.learned) = (ahead, clock);
        }
    }

    fn ahead_at(&self, clock: Clock) -> u64 {
        let left = LEARNED_FOR.saturating_sub(clock.0.saturating_sub(self.learned.0));
        (u128::from(self.ahead) * u128::from(left) / u128::from(LEARNED_FOR)) as u64
    }

    /// A device accepted this stamp.
    pub fn accepted(&mut self, stamp: Stamp) {
        self.accepted = self.accepted.max(stamp.clock);
    }

    /// The highest stamp clock that a device is known to have accepted: no stamp of this host is below it.
    pub fn highest_accepted(&self) -> Clock {
        self.accepted
    }

    /// Comes back to the clock after it had jumped ahead, but not below what a device accepted. True if stamps are lower now.
    pub fn retreat(&mut self, clock: Clock) -> bool {
        let before = (self.last, self.ahead);
        self.last = self.last.min(clock.max(self.accepted));
        self.ahead = 0;
        before != (self.last, self.ahead)
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
        source.learn(Clock(41), Stamp { clock: Clock(500), host: Generation(9) });
        assert!(source.next(Clock(41)) > Stamp { clock: Clock(500), host: Generation(9) });
    }

    #[test]
    fn a_lagging_clock_is_put_forward_for_a_while() {
        let mut source = StampSource::new(Generation(3));
        source.learn(Clock(1_000), Stamp { clock: Clock(51_000), host: Generation(9) });
        let soon = source.next(Clock(2_000)).clock;
        assert!(soon > Clock(51_900), "level with the neighbour, not just above what it lost to: {soon:?}");
        let later = Clock(2_000 + LEARNED_FOR);
        assert_eq!(source.next(later).clock, later);
    }

    #[test]
    fn a_jump_ahead_is_taken_back_but_not_what_was_accepted() {
        let mut source = StampSource::new(Generation(3));
        let taken = source.next(Clock(1_000));
        source.accepted(taken);
        source.next(Clock(9_000_000));
        assert!(source.retreat(Clock(900)));
        assert!(source.next(Clock(900)) > taken);
        assert!(!source.retreat(Clock(2_000)));
    }

    #[test]
    fn what_a_device_holds_against_a_stamp_is_never_gone_below() {
        let hour = Clock(3_600_000_000_000);
        let mut source = StampSource::new(Generation(3));
        source.learn(Clock(1_000), Stamp { clock: hour, host: Generation(9) });
        assert!(!source.retreat(Clock(2_000)), "nothing to take back");
        let next = source.next(Clock(3_000)).clock;
        assert_eq!(next, Clock(hour.0 + 1), "just above it: the clock is no hour behind those of its neighbours");
        assert_eq!(source.highest_accepted(), hour);
    }
}
