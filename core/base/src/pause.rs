//! The pause of a machine itself, for machines that decide by the silence of others.
//!
//! A process that was suspended, or had no processor, finds messages of the whole pause in its queue, and its clock far ahead. Before it has
//! read them, every other node looks silent. So a machine looks for its own pause at the beginning of each step, before it handles anything:
//! the silence of others then counts from now.

use crate::Time;
use std::time::Duration;

/// True if a machine that had to be woken at `planned` takes its next step only now, later by more than `tolerance`: it was paused.
pub fn was_paused(planned: Option<Time>, now: Time, tolerance: Duration) -> bool {
    planned.is_some_and(|planned| now.since(planned) > tolerance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_step_that_comes_later_than_tolerated_ends_a_pause() {
        let tolerance = Duration::from_nanos(5);
        for (planned, now, expected) in
            [(None, 99, false), (Some(10), 9, false), (Some(10), 15, false), (Some(10), 16, true)]
        {
            assert_eq!(was_paused(planned.map(Time), Time(now), tolerance), expected, "{planned:?}, {now}");
        }
    }
}
