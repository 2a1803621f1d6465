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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerProcess {
    step: Step,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
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
pub enum ProcessInput {
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
pub enum ProcessStep {
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

impl Default for ServerProcess {
    fn default() -> ServerProcess {
        ServerProcess { step: Step::Waits }
    }
}

impl ServerProcess {
    /// Takes one input. `owns_since` says since when the process owns the file system, if it does.
    pub fn step(&mut self, now: Time, owns_since: Option<Epoch>, input: ProcessInput) -> ProcessStep {
        match (self.step, input) {
            (Step::Waits, ProcessInput::Observed(seen)) if !seen.is_checked => {
                self.step = Step::Serves;
                ProcessStep::Begin
            }
            (Step::Waits, ProcessInput::Stop) => self.end(Pause::Stop),
            (Step::Serves, ProcessInput::Observed(seen)) => {
                seen.pause().map_or(ProcessStep::Nothing, |pause| self.give_up(now, owns_since, pause))
            }
            (Step::Serves, ProcessInput::Stop) => self.give_up(now, owns_since, Pause::Stop),
            (Step::Releases { pause, .. }, ProcessInput::Released) => self.end(pause),
            (Step::Releases { pause, until }, ProcessInput::Wake) if until <= now => self.end(pause),
            _ => ProcessStep::Nothing,
        }
    }

    /// The time of the next [`ProcessInput::Wake`].
    pub fn deadline(&self) -> Option<Time> {
        match self.step {
            Step::Releases { until, .. } => Some(until),
            Step::Waits | Step::Serves | Step::Ended => None,
        }
    }

    fn give_up(&mut self, now: Time, owns_since: Option<Epoch>, pause: Pause) -> ProcessStep {
        match owns_since {
            Some(since) => {
                self.step = Step::Releases { pause, until: now.after(RELEASE_WAIT) };
                ProcessStep::Release { since }
            }
            None => self.end(pause),
        }
    }

    fn end(&mut self, pause: Pause) -> ProcessStep {
        self.step = match pause {
            Pause::Check | Pause::Settings => Step::Waits,
            Pause::Stop | Pause::Deleted => Step::Ended,
        };
        ProcessStep::End(pause)
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

    fn seen(entry: EntryState, is_checked: bool) -> ProcessInput {
        ProcessInput::Observed(Observation { entry, is_checked })
    }

    fn serving() -> ServerProcess {
        let mut process = ServerProcess::default();
        assert_eq!(process.step(Time(0), None, seen(EntryState::Ready, false)), ProcessStep::Begin);
        process
    }

    #[test]
    fn a_process_does_not_take_over_while_the_file_system_is_checked() {
        let mut process = ServerProcess::default();
        assert_eq!(process.step(Time(0), None, seen(EntryState::Ready, true)), ProcessStep::Nothing);
        assert_eq!(process.step(Time(0), None, seen(EntryState::Ready, false)), ProcessStep::Begin);
        assert_eq!(process.step(Time(0), OWNS, seen(EntryState::Ready, false)), ProcessStep::Nothing);
    }

    #[test]
    fn a_process_releases_for_a_check_and_begins_anew_after_it() {
        let mut process = serving();
        let release = ProcessStep::Release { since: Epoch(7) };
        assert_eq!(process.step(Time(0), OWNS, seen(EntryState::Ready, true)), release);
        assert_eq!(process.step(Time(0), OWNS, seen(EntryState::Ready, false)), ProcessStep::Nothing);
        assert_eq!(process.step(Time(0), OWNS, ProcessInput::Released), ProcessStep::End(Pause::Check));
        assert_eq!(process.step(Time(0), None, seen(EntryState::Ready, true)), ProcessStep::Nothing);
        assert_eq!(process.step(Time(0), None, seen(EntryState::Ready, false)), ProcessStep::Begin);
    }

    #[test]
    fn a_process_that_can_not_release_in_time_ends_all_the_same() {
        let mut process = serving();
        process.step(Time(0), OWNS, ProcessInput::Stop);
        let until = process.deadline().unwrap();
        assert_eq!(until, Time(0).after(RELEASE_WAIT));
        assert_eq!(process.step(Time(until.0 - 1), OWNS, ProcessInput::Wake), ProcessStep::Nothing);
        assert_eq!(process.step(until, OWNS, ProcessInput::Wake), ProcessStep::End(Pause::Stop));
        assert_eq!(process.step(until, None, seen(EntryState::Ready, false)), ProcessStep::Nothing);
    }

    #[test]
    fn a_process_that_owns_nothing_ends_at_once() {
        let changes = [(EntryState::Gone, Pause::Deleted), (EntryState::Changed, Pause::Settings)];
        for (entry, pause) in changes {
            assert_eq!(serving().step(Time(0), None, seen(entry, true)), ProcessStep::End(pause));
        }
        assert_eq!(serving().step(Time(0), None, ProcessInput::Stop), ProcessStep::End(Pause::Stop));
    }
}
