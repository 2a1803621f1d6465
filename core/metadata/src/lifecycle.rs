//! The life cycle of a metadata server: it takes ownership of the file system, loses it or gives it up, and restarts.
//!
//! ```text
//!   waits ─► takes over and serves ─► releases ─► ended: it was stopped, or the file system is deleted
//!     ▲       (MetadataNode)             │
//!     └──────────────────────────────────┘        after a check, or with other settings
//! ```
//!
//! While a file system is checked, no process takes it over, and the one that owns it releases it: then the check neither fences it nor waits
//! for its lease. A process that can't release the file system in time ends all the same, and the next owner fences it.

use braid_base::{Epoch, Time};
use std::time::Duration;

/// How long the release of a file system may take, before the process ends without it.
pub const RELEASE_WAIT: Duration = Duration::from_secs(4);

/// The process of the metadata server of one file system, or of one of its shards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetadataLifecycle {
    step: Step,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Step {
    #[default]
    Waits,
    /// It takes over, or owns the file system.
    Serves,
    Releases {
        pause: Pause,
        until: Time,
    },
    Ended,
}

/// What the control plane says of the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    pub entry: EntryState,
    /// A check is under way.
    pub is_checked: bool,
}

/// The description of the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryState {
    /// As the server knows it, or changed in a way that a running server follows.
    Ready,
    /// A running server can't follow its settings.
    Changed,
    /// It is deleted, or being deleted.
    Gone,
}

/// Why a metadata server stops without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// It is asked to end.
    Stop,
    /// The file system is to be checked.
    Check,
    /// The settings of the server have changed: it begins anew.
    Settings,
    /// The file system is deleted.
    Deleted,
}

/// Something that happens to the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifecycleInput {
    Observed(Observation),
    /// It is asked to end.
    Stop,
    /// The release was answered, or has failed.
    Released,
    /// The deadline has passed.
    Wake,
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifecycleStep {
    Nothing,
    /// Start a host, and take over.
    Begin,
    /// Release the file system that is owned since this epoch.
    Release {
        since: Epoch,
    },
    /// The host ends. After [`Pause::Check`] and [`Pause::Settings`], the process waits until it can begin anew.
    End(Pause),
}

impl MetadataLifecycle {
    /// Takes one input. `owns_since` says since when the process owns the file system, if it does.
    pub fn step(&mut self, now: Time, owns_since: Option<Epoch>, input: LifecycleInput) -> LifecycleStep {
        match (self.step, input) {
            (Step::Waits, LifecycleInput::Observed(seen)) if !seen.is_checked => {
                self.step = Step::Serves;
                LifecycleStep::Begin
            }
            (Step::Waits, LifecycleInput::Stop) => self.end(Pause::Stop),
            (Step::Serves, LifecycleInput::Observed(seen)) => {
                seen.pause().map_or(LifecycleStep::Nothing, |pause| self.give_up(now, owns_since, pause))
            }
            (Step::Serves, LifecycleInput::Stop) => self.give_up(now, owns_since, Pause::Stop),
            (Step::Releases { pause, .. }, LifecycleInput::Released) => self.end(pause),
            (Step::Releases { pause, until }, LifecycleInput::Wake) if until <= now => self.end(pause),
            _ => LifecycleStep::Nothing,
        }
    }

    /// The time of the next [`LifecycleInput::Wake`].
    pub fn deadline(&self) -> Option<Time> {
        match self.step {
            Step::Releases { until, .. } => Some(until),
            Step::Waits | Step::Serves | Step::Ended => None,
        }
    }

    fn give_up(&mut self, now: Time, owns_since: Option<Epoch>, pause: Pause) -> LifecycleStep {
        match owns_since {
            Some(since) => {
                self.step = Step::Releases { pause, until: now.after(RELEASE_WAIT) };
                LifecycleStep::Release { since }
            }
            None => self.end(pause),
        }
    }

    fn end(&mut self, pause: Pause) -> LifecycleStep {
        self.step = match pause {
            Pause::Check | Pause::Settings => Step::Waits,
            Pause::Stop | Pause::Deleted => Step::Ended,
        };
        LifecycleStep::End(pause)
    }
}

impl Observation {
    /// Why a process that serves has to stop, if it has to.
    fn pause(self) -> Option<Pause> {
        match self.entry {
            EntryState::Gone => Some(Pause::Deleted),
            EntryState::Changed => Some(Pause::Settings),
            EntryState::Ready => self.is_checked.then_some(Pause::Check),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNS: Option<Epoch> = Some(Epoch(7));

    fn seen(entry: EntryState, is_checked: bool) -> LifecycleInput {
        LifecycleInput::Observed(Observation { entry, is_checked })
    }

    fn serving() -> MetadataLifecycle {
        let mut process = MetadataLifecycle::default();
        assert_eq!(process.step(Time(0), None, seen(EntryState::Ready, false)), LifecycleStep::Begin);
        process
    }

    #[test]
    fn a_process_does_not_take_over_while_the_file_system_is_checked() {
        let mut process = MetadataLifecycle::default();
        assert_eq!(process.step(Time(0), None, seen(EntryState::Ready, true)), LifecycleStep::Nothing);
        assert_eq!(process.step(Time(0), None, seen(EntryState::Ready, false)), LifecycleStep::Begin);
        assert_eq!(process.step(Time(0), OWNS, seen(EntryState::Ready, false)), LifecycleStep::Nothing);
    }

    #[test]
    fn a_process_releases_for_a_check_and_begins_anew_after_it() {
        let mut process = serving();
        let release = LifecycleStep::Release { since: Epoch(7) };
        assert_eq!(process.step(Time(0), OWNS, seen(EntryState::Ready, true)), release);
        assert_eq!(process.step(Time(0), OWNS, seen(EntryState::Ready, false)), LifecycleStep::Nothing);
        assert_eq!(process.step(Time(0), OWNS, LifecycleInput::Released), LifecycleStep::End(Pause::Check));
        assert_eq!(process.step(Time(0), None, seen(EntryState::Ready, true)), LifecycleStep::Nothing);
        assert_eq!(process.step(Time(0), None, seen(EntryState::Ready, false)), LifecycleStep::Begin);
    }

    #[test]
    fn a_process_that_can_not_release_in_time_ends_all_the_same() {
        let mut process = serving();
        process.step(Time(0), OWNS, LifecycleInput::Stop);
        let until = process.deadline().unwrap();
        assert_eq!(until, Time(0).after(RELEASE_WAIT));
        assert_eq!(process.step(Time(until.0 - 1), OWNS, LifecycleInput::Wake), LifecycleStep::Nothing);
        assert_eq!(process.step(until, OWNS, LifecycleInput::Wake), LifecycleStep::End(Pause::Stop));
        assert_eq!(process.step(until, None, seen(EntryState::Ready, false)), LifecycleStep::Nothing);
    }

    #[test]
    fn a_process_that_owns_nothing_ends_at_once() {
        let changes = [(EntryState::Gone, Pause::Deleted), (EntryState::Changed, Pause::Settings)];
        for (entry, pause) in changes {
            assert_eq!(serving().step(Time(0), None, seen(entry, true)), LifecycleStep::End(pause));
        }
        assert_eq!(serving().step(Time(0), None, LifecycleInput::Stop), LifecycleStep::End(Pause::Stop));
    }
}
