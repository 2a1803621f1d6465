//! All durations of leadership. Clocks of machines differ by less than a tenth: where one process waits for what another one measures, it
//! waits a tenth longer.

use std::time::Duration;

/// A leader without other writes makes one after this time: a *beat*.
pub const BEAT: Duration = Duration::from_millis(250);
/// How often a standby reads `head`.
pub const POLL: Duration = Duration::from_millis(250);
/// A call without an answer after this time has an unknown outcome.
pub const PATIENCE: Duration = Duration::from_millis(500);
/// A standby takes over if `head` was the same for so long, over its own successful reads.
pub const SILENCE: Duration = Duration::from_millis(1_500);
/// Two successful reads that are further apart show nothing of the time between them.
pub const READS_APART: Duration = Duration::from_millis(500);
/// A new leader has followed the history if it has read `head` without gaps for so long.
pub const FOLLOWED: Duration = Duration::from_secs(2);
/// A registry that goes back was unreachable for so long before. So a take-over of unknown outcome shows nothing after that time.
pub const UNREACHED: Duration = Duration::from_secs(5);
/// How often a leader that does not reach the registry asks the other candidates.
pub const ASKED: Duration = Duration::from_secs(1);
/// A candidate promises only if it has read nothing for so long.
pub const UNREADABLE: Duration = Duration::from_secs(1);
/// How long a promise holds at the candidate that gives it.
pub const PROMISE: Duration = Duration::from_secs(3);
/// How long a leader relies on it, from when it sent the question.
pub const RELIED: Duration = Duration::from_nanos(3_000_000_000 * 10 / 11);

/// The durations that differ from array to array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The lease of a device.
    pub lease: Duration,
    /// A leader grants leases for so long after it sent the last write that succeeded.
    pub doubt: Duration,
}

impl Default for Times {
    fn default() -> Times {
        Times { lease: Duration::from_secs(4), doubt: Duration::from_secs(1) }
    }
}

impl Times {
    /// How long a new leader takes every device for leased by those before it.
    pub(crate) fn wait(self, after_orderly_end: bool) -> Duration {
        longer(if after_orderly_end { self.lease } else { self.doubt + self.lease })
    }

    /// When no former leader grants any more, counted from a win.
    pub(crate) fn settled(self, after_orderly_end: bool) -> Duration {
        if after_orderly_end { Duration::ZERO } else { longer(self.doubt) }
    }
}

/// A time of another process, waited for.
pub fn longer(time: Duration) -> Duration {
    time * 11 / 10
}
