//! The response time of a device or disk: how long one waits for its next answer, as a mean over time.
//!
//! A wait begins with the first request after an answer, and ends with the next answer, whichever request it is for. Each wait counts by its
//! length: so a device that answers a thousand requests and often pauses for a quarter of a second is as slow as its pauses, which is what
//! users notice. A single pause is no slowness, but the start of the device, for example: the longest wait does not count. What is idle has
//! no waits. The mean is over the last ten to twenty seconds in which there were any.

use crate::Time;
use std::time::Duration;

/// How long waits are collected before an older collection is dropped.
const WINDOW: Duration = Duration::from_secs(10);
/// A longer wait is a failure, which others report.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// The waits for one device or disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResponseTime {
    waits_since: Option<Time>,
    begun: Option<Time>,
    now: Waits,
    before: Waits,
}

/// The sum of waits, the sum of their squares, and the longest, in microseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Waits {
    sum: u64,
    squares: u64,
    longest: u64,
}

impl ResponseTime {
    /// A request is sent.
    pub fn asked(&mut self, now: Time) {
        self.waits_since.get_or_insert(now);
    }

    /// An answer has come.
    pub fn answered(&mut self, now: Time) {
        let Some(since) = self.waits_since.take() else { return };
        let wait = now.since(since);
        if wait > WAIT_MAX {
            return;
        }
        if now.since(*self.begun.get_or_insert(now)) >= WINDOW {
            (self.begun, self.before, self.now) = (Some(now), self.now, Waits::default());
        }
        let micros = wait.as_micros() as u64;
        self.now.sum += micros;
        self.now.squares += micros * micros;
        self.now.longest = self.now.longest.max(micros);
    }

    /// Forgets everything if there were no waits for long. True if it does.
    pub fn forget_old(&mut self, now: Time) -> bool {
        let is_old = self.begun.is_some_and(|begun| now.since(begun) >= WINDOW * 2);
        if is_old {
            *self = ResponseTime { waits_since: self.waits_since, ..ResponseTime::default() };
        }
        is_old
    }

    /// The mean wait; none if there were not even two.
    pub fn mean(&self) -> Option<Duration> {
        let longest = self.now.longest.max(self.before.longest);
        let sum = self.now.sum + self.before.sum - longest;
        let squares = self.now.squares + self.before.squares - longest * longest;
        squares.checked_div(sum).map(Duration::from_micros)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: u64 = 1_000_000;

    fn ask(times: &mut ResponseTime, at: u64, wait: u64) {
        times.asked(Time(at));
        times.asked(Time(at + wait / 2));
        times.answered(Time(at + wait));
    }

    #[test]
    fn a_device_is_as_slow_as_its_pauses_however_many_answers_are_quick() {
        let mut times = ResponseTime::default();
        assert_eq!(times.mean(), None);
        (0..1000).for_each(|number| ask(&mut times, number * MILLISECOND, MILLISECOND / 5));
        ask(&mut times, 2000 * MILLISECOND, 500 * MILLISECOND);
        assert_eq!(times.mean(), Some(Duration::from_micros(200)), "one pause is no slowness");
        ask(&mut times, 3000 * MILLISECOND, 250 * MILLISECOND);
        assert!(times.mean().unwrap() > Duration::from_millis(100), "{times:?}");
    }

    #[test]
    fn old_waits_and_failures_do_not_count() {
        let mut times = ResponseTime::default();
        ask(&mut times, 0, 250 * MILLISECOND);
        ask(&mut times, 1000 * MILLISECOND, 6000 * MILLISECOND);
        for second in 8..40 {
            ask(&mut times, second * 1000 * MILLISECOND, MILLISECOND);
        }
        assert_eq!(times.mean(), Some(Duration::from_millis(1)));
        assert!(!times.forget_old(Time(45_000 * MILLISECOND)));
        assert!(times.forget_old(Time(60_000 * MILLISECOND)));
        assert_eq!(times.mean(), None, "it was idle");
    }
}
