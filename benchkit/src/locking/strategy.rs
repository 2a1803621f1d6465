//! Strategies of waiting for a lock that is kept on a device: the eight strategies of the contention benchmark that belongs to the
//! device-atomics paper.
//!
//! The paper names only binary exponential back-off. The other strategies are those of its authors' benchmark: their names and their
//! behaviour are known from that program, and are described here in our words.
//! `R` is the round-trip time of the last request to the device. `W` is the mean duration of the work under the lock: zero without
//! work, 300 us for a sleep between 1 and 600 us, `R` for a request. `n` is the number of other waiting processes.

use braid_base::Rng;
use serde::{Deserialize, Serialize};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// Each process has an object of its own and never waits: the reference for the other strategies.
    Uncontended,
    /// A refused process retries at once.
    BusyWait,
    /// After the k-th refusal in a row, a wait of `k R / 2`.
    LinearBackOff,
    /// Each refusal adds the process to a counter of waiting processes beside the lock (by a fetch-and-add, which returns `n`). The
    /// process then waits for `(n - 1/2) R + W`, or retries at once if `n` is 0. A process that gets the lock subtracts itself once,
    /// however often it was counted. So the counter grows too large, as in the original, which calls this strategy buggy.
    SpeculativeIdle,
    /// As speculative idle, but a process that gets the lock subtracts itself as often as it was counted; and with `n` of 0 it waits
    /// `R / 2`, unless the work is a request.
    QueueBack,
    /// A process counts itself once and keeps the `n` that it found: it waits `(n - 1/2) R + W` between attempts, always the same
    /// time, and retries at once if `n` was 0.
    FixedSpin,
    /// A wait of `R + W` between attempts. The original calls this exponential, although it does not grow.
    ExponentialWait,
    /// Truncated binary exponential back-off: after the k-th refusal in a row, a random number of slots below `2^min(k, 5)`. A slot
    /// is `R / 2 + W`, or `R` if the work is a request.
    BinaryExponential,
}

// In the order of the benchmark.
braid_base::names!(Strategy {
    Uncontended => "uncontended",
    BusyWait => "busy-wait",
    LinearBackOff => "linear-back-off",
    SpeculativeIdle => "speculative-idle",
    QueueBack => "queue-back",
    FixedSpin => "fixed-spin",
    ExponentialWait => "exponential-wait",
    BinaryExponential => "binary-exponential"
});

/// The number of refusals after which waits grow no more.
const DOUBLINGS_MAX: u32 = 5;

/// The work under the lock, as far as waiting processes know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    Nothing,
    /// Work with this mean duration.
    Span(Duration),
    /// A request to a device.
    Request,
}

impl Expected {
    /// `W`; see the module.
    fn mean(self, trip: Duration) -> Duration {
        match self {
            Expected::Nothing => Duration::ZERO,
            Expected::Span(span) => span,
            Expected::Request => trip,
        }
    }
}

impl Strategy {
    pub fn counting(self) -> Counting {
        match self {
            Strategy::SpeculativeIdle | Strategy::QueueBack => Counting::EachTime,
            Strategy::FixedSpin => Counting::Once,
            _ => Counting::Never,
        }
    }

    /// How often a process that got the lock subtracts itself, if it was counted this often.
    pub fn takes_back(self, counted: u64) -> u64 {
        match self {
            Strategy::SpeculativeIdle => counted.min(1),
            _ => counted,
        }
    }

    /// How long to wait after the `refusals`-th refusal in a row; `waiting` is the number of other waiting processes, if the strategy
    /// counts them.
    pub fn wait(self, refusals: u32, waiting: u64, trip: Duration, expected: Expected, sampler: &mut Rng) -> Duration {
        let work = expected.mean(trip);
        let in_line = |waiting: u64| trip.mul_f64(waiting as f64 - 0.5) + work;
        match (self, waiting) {
            (Strategy::Uncontended | Strategy::BusyWait, _) => Duration::ZERO,
            (Strategy::LinearBackOff, _) => trip * refusals / 2,
            (Strategy::SpeculativeIdle | Strategy::FixedSpin, 0) => Duration::ZERO,
            (Strategy::QueueBack, 0) if expected == Expected::Request => Duration::ZERO,
            (Strategy::QueueBack, 0) => trip / 2,
            (Strategy::SpeculativeIdle | Strategy::QueueBack | Strategy::FixedSpin, waiting) => in_line(waiting),
            (Strategy::ExponentialWait, _) => trip + work,
            (Strategy::BinaryExponential, _) => {
                let slot = if expected == Expected::Request { trip } else { trip / 2 + work };
                slot * sampler.below(1 << refusals.min(DOUBLINGS_MAX)) as u32
            }
        }
    }
}

/// When a refused process adds itself to the counter of waiting processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    Never,
    /// At its first refusal.
    Once,
    /// At each refusal.
    EachTime,
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIP: Duration = Duration::from_micros(200);
    const SLEEP: Expected = Expected::Span(Duration::from_micros(300));

    fn wait(strategy: Strategy, refusals: u32, waiting: u64, expected: Expected) -> u128 {
        strategy.wait(refusals, waiting, TRIP, expected, &mut Rng::new(1)).as_micros()
    }

    #[test]
    fn waits_are_those_of_the_original() {
        use Strategy::*;
        for (strategy, refusals, waiting, [nothing, sleep, request]) in [
            (BusyWait, 3, 0, [0, 0, 0]),
            (LinearBackOff, 3, 0, [300, 300, 300]),
            (SpeculativeIdle, 1, 0, [0, 0, 0]),
            (SpeculativeIdle, 1, 3, [500, 800, 700]),
            (QueueBack, 1, 0, [100, 100, 0]),
            (QueueBack, 1, 3, [500, 800, 700]),
            (FixedSpin, 9, 1, [100, 400, 300]),
            (ExponentialWait, 9, 0, [200, 500, 400]),
        ] {
            let seen =
                [Expected::Nothing, SLEEP, Expected::Request].map(|work| wait(strategy, refusals, waiting, work));
            assert_eq!(seen, [nothing, sleep, request], "{strategy:?}");
        }
    }

    #[test]
    fn binary_exponential_waits_double_five_times() {
        let mut sampler = Rng::new(3);
        for (refusals, slots) in [(1, 2), (2, 4), (5, 32), (6, 32), (40, 32)] {
            for (expected, slot) in [(Expected::Nothing, 100), (SLEEP, 400), (Expected::Request, 200)] {
                let mut seen = std::collections::BTreeSet::new();
                for _ in 0..2_000 {
                    let wait = Strategy::BinaryExponential.wait(refusals, 0, TRIP, expected, &mut sampler).as_micros();
                    assert_eq!(wait % slot, 0);
                    seen.insert(wait / slot);
                }
                assert_eq!(seen, (0..slots).collect(), "{refusals} {expected:?}");
            }
        }
    }
}
