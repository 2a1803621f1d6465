//! Truncated binary exponential back-off: each wait before a retry is twice as long as the one before, up to a limit. A
//! wait may be random, so that requests that collided do not collide again.
//!
//! The limits belong to the users: `core/base/src/limits.rs` has those of retried transactions and of requests that are sent again,
//! `core/host/src/disconnect.rs` that of a disconnect; the recipes' are in their options and in `core/recipes/src/fencing_token.rs`; those of
//! connections are in `real/shell/src/connector.rs`, of restarted processes in `real/daemons/src/supervisor/mod.rs`, and of the client's pauses
//! in `real/client/src/space.rs`.

use crate::Rng;
use std::time::Duration;

/// More doublings than this do not occur: 2^20 times the first wait is beyond any limit.
const DOUBLINGS_MAX: u32 = 20;

/// The waits of one retried request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    retries: u32,
}

impl Backoff {
    /// Waits that begin with `first` and double up to `longest`.
    pub const fn new(first: Duration, longest: Duration) -> Backoff {
        Backoff { first, longest, retries: 0 }
    }

    /// The same after this many waits.
    pub const fn after(self, retries: u32) -> Backoff {
        Backoff { retries, ..self }
    }

    pub fn next_wait(&mut self) -> Duration {
        let wait = self.limit(self.retries);
        self.retries = self.retries.saturating_add(1);
        wait
    }

    /// The next wait, drawn from `least` to what [`Backoff::next_wait`] returns.
    pub fn next_random_wait(&mut self, least: Duration, rng: &mut Rng) -> Duration {
        let nanos = |wait: Duration| u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX - 1);
        let least = nanos(least);
        Duration::from_nanos(rng.between(least, nanos(self.next_wait()).max(least)))
    }

    /// True if the last wait was as long as waits get.
    pub fn is_longest(&self) -> bool {
        self.retries > 0 && self.limit(self.retries - 1) == self.longest
    }

    /// The next wait is the first one again.
    pub fn reset(&mut self) {
        self.retries = 0;
    }

    fn limit(&self, retries: u32) -> Duration {
        self.first.saturating_mul(1 << retries.min(DOUBLINGS_MAX)).min(self.longest)
    }
}
