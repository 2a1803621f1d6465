//! The clocks of a node, as functions of true time.
//!
//! Each node has two clocks. The timers' clock never steps back, but runs a little fast or slow and starts at any value. The wall
//! clock, used for stamps, may also be skewed and stepped.

use braid_base::{Clock, Now, Time};

/// The wall clock at true time zero: a day in 2023, in nanoseconds.
const EPOCH: u64 = 1_700_000_000_000_000_000;

/// The two clocks of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalClock {
    /// The reading of the timers' clock at true time `since`.
    reading: u64,
    since: Time,
    /// Millionths by which both clocks run fast.
    drift_ppm: i64,
    /// Wall clock minus true time, without the drift.
    skew: i64,
}

impl LocalClock {
    /// A clock that agrees with true time and whose timers' clock starts at `boot`.
    pub fn exact(boot: Time) -> LocalClock {
        LocalClock { reading: boot.0, since: Time(0), drift_ppm: 0, skew: 0 }
    }

    /// The same clock, running fast by `ppm` millionths (slow, if negative).
    pub fn drifting(self, ppm: i64) -> LocalClock {
        assert!(ppm.abs() < 100_000, "a clock that far off is broken, not drifting");
        LocalClock { drift_ppm: ppm, ..self }
    }

    /// Moves the wall clock by this many nanoseconds. Timers are not affected.
    pub fn step(&mut self, nanoseconds: i64) {
        self.skew = self.skew.saturating_add(nanoseconds);
    }

    /// Makes both clocks run fast by `ppm` millionths from now on (slow, if negative).
    pub fn set_rate(&mut self, now: Time, ppm: i64) {
        self.rebase(now, self.reading + self.elapsed(now));
        *self = self.clone().drifting(ppm);
    }

    /// How fast both clocks run, in millionths.
    pub fn rate_ppm(&self) -> i64 {
        self.drift_ppm
    }

    /// How far the wall clock is ahead of true time, in nanoseconds.
    pub fn ahead(&self, now: Time) -> i64 {
        self.skew.saturating_add(self.elapsed(now) as i64 - now.since(self.since).as_nanos() as i64)
    }

    /// Restarts the timers' clock at `reading`, as a computer that boots does.
    pub fn reboot(&mut self, now: Time, reading: Time) {
        self.rebase(now, reading.0);
    }

    /// Counts from `now` on. The wall clock continues as it was: the deviation gathered by drift stays.
    fn rebase(&mut self, now: Time, reading: u64) {
        self.skew = self.ahead(now);
        self.reading = reading;
        self.since = now;
    }

    /// Both readings at true time `now`.
    pub fn now(&self, now: Time) -> Now {
        let elapsed = self.elapsed(now);
        let wall = (EPOCH + self.since.0 + elapsed).saturating_add_signed(self.skew);
        Now { time: Time(self.reading + elapsed), clock: Clock(wall) }
    }

    /// The first point of true time at which the timers' clock reads at least `local`.
    pub fn when(&self, local: Time) -> Time {
        let ahead = u128::from(local.0.saturating_sub(self.reading)) * 1_000_000;
        let rate = (1_000_000 + self.drift_ppm) as u128;
        Time(self.since.0.saturating_add(u64::try_from(ahead.div_ceil(rate)).unwrap_or(u64::MAX)))
    }

    fn elapsed(&self, now: Time) -> u64 {
        let elapsed = u128::from(now.0 - self.since.0);
        (elapsed * (1_000_000 + self.drift_ppm) as u128 / 1_000_000) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_node_is_woken_no_earlier_than_it_asked_and_at_once_then(
            ppm in -500i64..500, boot in 0u64..1_000_000_000_000, wait in 1u64..100_000_000_000, at in 0u64..100_000_000_000,
        ) {
            let clock = LocalClock::exact(Time(boot)).drifting(ppm);
            let asked = Time(clock.now(Time(at)).time.0 + wait);
            let woken = clock.when(asked);
            prop_assert!(clock.now(woken).time >= asked);
            prop_assert!(clock.now(Time(woken.0 - 1)).time < asked);
        }
    }

    #[test]
    fn steps_and_reboots_move_one_clock_each() {
        let mut clock = LocalClock::exact(Time(500)).drifting(100);
        let before = clock.now(Time(1_000_000_000));
        clock.step(-3_000);
        let stepped = clock.now(Time(1_000_000_000));
        assert_eq!((stepped.time, stepped.clock.0), (before.time, before.clock.0 - 3_000));
        clock.reboot(Time(1_000_000_000), Time(7));
        let booted = clock.now(Time(1_000_000_000));
        assert_eq!((booted.time, booted.clock), (Time(7), stepped.clock));
    }

    #[test]
    fn a_clock_whose_rate_changes_goes_on_from_where_it_is() {
        let second = 1_000_000_000;
        let mut clock = LocalClock::exact(Time(500)).drifting(100);
        clock.set_rate(Time(second), 50_000);
        assert_eq!(clock.now(Time(second)).time, Time(500 + second + 100_000));
        assert_eq!(clock.ahead(Time(second)), 100_000);
        assert_eq!(clock.ahead(Time(2 * second)), 100_000 + 50_000_000);
        clock.set_rate(Time(2 * second), 0);
        assert_eq!(clock.now(Time(9 * second)).time.0 - clock.now(Time(2 * second)).time.0, 7 * second);
        assert_eq!(clock.ahead(Time(9 * second)), 50_100_000);
    }

    #[test]
    fn a_wall_clock_may_be_a_year_off_and_come_back() {
        let year = 365 * 86_400 * 1_000_000_000;
        let mut clock = LocalClock::exact(Time(0));
        for by in [year, -year, -year, year] {
            clock.step(by);
        }
        assert_eq!(clock, LocalClock::exact(Time(0)));
    }
}
