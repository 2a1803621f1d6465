//! A stamp is a clock reading and the host that took it. Stamps are the total order in which transactions take effect (shared-array
//! paper, section 4.5).

use crate::{Clock, Generation};
use std::fmt;
use std::time::Duration;

/// A clock reading, made unique by the host that took it. Stamps are compared by clock first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Stamp {
    /// Nanoseconds since 1970, by the host's clock or, if higher, by what the host learned from refusals. The two lowest bits say how far
    /// above those it may be.
    pub clock: Clock,
    /// The host that took the stamp.
    pub host: Generation,
}

impl Stamp {
    /// Lower than every stamp of a host.
    pub const ZERO: Stamp = Stamp { clock: Clock(0), host: Generation(0) };

    /// The highest stamp with this clock reading: that of no host, but a bound.
    pub fn last_of(clock: Clock) -> Stamp {
        Stamp { clock, host: Generation(u32::MAX) }
    }

    /// What the clocks surely read, by which it was taken.
    fn reading(self) -> Clock {
        match self.clock.0 % MARKS {
            EXACT => self.clock,
            NEAR => Clock(self.clock.0.saturating_sub(HEAD_START_MAX.as_nanos() as u64)),
            _ => Clock(0),
        }
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.clock.0, self.host)
    }
}

/// Generates the stamps of one host. They increase, except after a [retreat](StampSource::retreat) from a clock that had jumped ahead.
/// They stay close to the clock, and above every stamp that the host has lost to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct StampSource {
    host: Generation,
    last: Clock,
    /// The highest stamp clock that a device is known to have accepted, from this host or another.
    accepted: Clock,
    /// How far another host's clock was ahead of this one, in nanoseconds, and the local reading when that was learned.
    ahead: u64,
    learned: Clock,
}

/// A stamp that is ahead of this clock by more than this, in nanoseconds, is not taken as another clock's present reading: some clock
/// must have been wrong earlier. Later stamps only have to be above it.
const CLOCK_AHEAD_MAX: u64 = 5_000_000_000;

/// The longest head start of a stamp.
pub const HEAD_START_MAX: Duration = Duration::from_millis(100);

/// A stamp with this mark is what the clocks read, as far as its host knew;
const EXACT: u64 = 0;
/// one with this mark is above that by no more than the longest head start;
const NEAR: u64 = 1;
/// and others only had to be above an earlier stamp, or above a bound that a device had reserved.
const FAR: u64 = 2;
/// The number of values of the bits that hold the mark.
const MARKS: u64 = 4;

/// How long a host uses what it learned about other clocks, in nanoseconds of its own clock; the correction decreases linearly to zero.
/// Hosts learn from one another, so that without this bound a single jump of one clock would keep all stamps ahead permanently.
const LEARNED_FOR: u64 = 10_000_000_000;

impl StampSource {
    /// A generator for `host`. There must be only one for each generation.
    pub fn new(host: Generation) -> StampSource {
        StampSource { host, ..StampSource::default() }
    }

    /// The next stamp: the clock's reading, advanced by the lead of other clocks as learned recently, or one above the last stamp if that
    /// is higher.
    pub fn next(&mut self, clock: Clock) -> Stamp {
        self.next_with(clock, Duration::ZERO)
    }

    /// The same, with a head start before other stamps. Its mark keeps other hosts from learning the head start as a lead: hosts in
    /// contention would add their own, and drive each other beyond what devices accept.
    pub fn next_with(&mut self, clock: Clock, head_start: Duration) -> Stamp {
        let reading = clock.ahead(Duration::from_nanos(self.ahead_at(clock)));
        let lowest = reading.ahead(head_start.min(HEAD_START_MAX)).0.max(self.last.0.saturating_add(1));
        let mark = match lowest - reading.0 {
            0 => EXACT,
            above if above <= HEAD_START_MAX.as_nanos() as u64 => NEAR,
            _ => FAR,
        };
        self.last = Clock(lowest.saturating_add((MARKS + mark - lowest % MARKS) % MARKS));
        Stamp { clock: self.last, host: self.host }
    }

    /// Makes all later stamps higher than `seen`, the stamp that a transaction of this host lost to. The lead of the clocks that `seen` was
    /// taken by is remembered, because a host whose clock lags would otherwise lose to the same host again. A stamp of this host, and the
    /// bound that a device has reserved, say nothing about other hosts' clocks.
    pub fn learn(&mut self, clock: Clock, seen: Stamp) {
        self.accepted(seen);
        let ahead = seen.reading().0.saturating_sub(clock.0);
        let is_of_another = seen != Stamp::last_of(seen.clock) && seen.host != self.host;
        if is_of_another && ahead > self.ahead_at(clock) && ahead <= CLOCK_AHEAD_MAX {
            (self.ahead, self.learned) = (ahead, clock);
        }
    }

    fn ahead_at(&self, clock: Clock) -> u64 {
        let left = LEARNED_FOR.saturating_sub(clock.0.saturating_sub(self.learned.0));
        (u128::from(self.ahead) * u128::from(left) / u128::from(LEARNED_FOR)) as u64
    }

    /// Notes that a device accepted this stamp, perhaps after this host had retreated below it.
    pub fn accepted(&mut self, stamp: Stamp) {
        self.accepted = self.accepted.max(stamp.clock);
        self.last = self.last.max(stamp.clock);
    }

    /// The highest stamp clock that a device is known to have accepted. No later stamp of this host is below it.
    pub fn highest_accepted(&self) -> Clock {
        self.accepted
    }

    /// Returns to the clock after it had jumped ahead, but not below what a device accepted. True if later stamps are lower than they
    /// would have been.
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
        assert!(soon > Clock(51_900), "the stamp must be level with the other host's clock: {soon:?}");
        let later = Clock(2_000 + LEARNED_FOR);
        assert_eq!(source.next(later).clock, later);
    }

    #[test]
    fn a_host_that_loses_to_its_own_stamps_or_to_bounds_does_not_move_away_from_its_clock() {
        let head_start = 1_000;
        for is_bound in [false, true] {
            let mut source = StampSource::new(Generation(3));
            for clock in (1_000..100_000).step_by(100) {
                let taken = source.next(Clock(clock + head_start));
                source.learn(Clock(clock), if is_bound { Stamp::last_of(taken.clock) } else { taken });
            }
            assert!(source.next(Clock(100_000)).clock <= Clock(100_000 + head_start), "{is_bound}");
        }
    }

    #[test]
    fn stamps_of_hosts_in_contention_stay_within_a_head_start_of_the_fastest_clock() {
        let leads = [0, 1_000_000_000, 4_000_000_000];
        for reserved in [0, 1_000_000_000] {
            let mut sources = [3, 4, 5].map(|host| StampSource::new(Generation(host)));
            let mut highest = Stamp::ZERO;
            for turn in 0..10_000_u64 {
                let (now, at) = (turn * 1_000_000, turn as usize % 3);
                let (clock, source) = (Clock(now + leads[at]), &mut sources[at]);
                source.learn(clock, highest);
                if turn == 100 {
                    source.learn(clock, Stamp::last_of(Clock(highest.clock.0 + reserved)));
                }
                highest = source.next_with(clock, HEAD_START_MAX);
                let fastest = Clock(now + leads[2]);
                let (above, below) = (highest.clock.since(fastest), fastest.since(highest.clock));
                let bound = HEAD_START_MAX + Duration::from_micros(1);
                let bound = if turn < 1_500 { bound + Duration::from_nanos(reserved) } else { bound };
                assert!(above <= bound, "{turn}: {above:?}");
                assert!(turn < 10 || below <= HEAD_START_MAX, "{turn}: a host whose clock lags must learn: {below:?}");
            }
        }
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
    fn stamps_never_go_below_a_device_s_floor() {
        let hour = Clock(3_600_000_000_000);
        let mut source = StampSource::new(Generation(3));
        source.learn(Clock(1_000), Stamp { clock: hour, host: Generation(9) });
        assert!(!source.retreat(Clock(2_000)), "nothing to take back");
        let next = source.next(Clock(3_000)).clock;
        assert_eq!(next, Clock(hour.0 + FAR), "an hour is too far ahead to be another clock's present reading");
        assert_eq!(source.highest_accepted(), hour);
    }
}
