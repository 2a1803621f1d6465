//! A checker for locks of ranges: no two programs had conflicting locks at once, and none waited for too long. It reads what programs wrote
//! down, such as those of the example `lock_ranges`, also if they were killed.
//!
//! A program has a lock at least from when it noted that it has it until it noted that it leaves it. If the notes end before, it had the lock
//! until it was killed.

use braid_base::{BlockRange, Time};
use braid_wire::{LockExtent, LockMode};
use std::time::Duration;

/// The locks of one program, in the order in which it asked for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeHistory {
    locks: Vec<LockTimes>,
}

/// When a program asked for a lock, had it, and left it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockTimes {
    pub extent: LockExtent,
    pub asked: Time,
    pub had: Option<Time>,
    pub left: Option<Time>,
}

/// What is wrong with histories.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeFault {
    #[error("line {line} is not expected: {text}")]
    Unreadable { line: usize, text: String },
    #[error("programs {programs:?} had conflicting locks at once:\n  {one:?}\n  {other:?}")]
    Together { programs: (usize, usize), one: LockTimes, other: LockTimes },
    #[error("program {program} waited for {waited:?}: {lock:?}")]
    Late { program: usize, waited: Duration, lock: LockTimes },
}

impl RangeHistory {
    /// Reads notes, a line each: `ask TIME START END shared|exclusive`, `have TIME`, `leave TIME`. A last line without an end does not count.
    pub fn parse(notes: &str) -> Result<RangeHistory, Box<RangeFault>> {
        let mut locks: Vec<LockTimes> = Vec::new();
        for (line, text) in notes.split_inclusive('\n').enumerate().filter(|(_, text)| text.ends_with('\n')) {
            let words: Vec<_> = text.split_whitespace().collect();
            let number = |word: &str| word.parse().ok();
            let noted = match (&words[..], locks.last_mut()) {
                (["ask", asked, start, end, mode @ ("shared" | "exclusive")], _) => {
                    let mode = if *mode == "shared" { LockMode::Shared } else { LockMode::Exclusive };
                    number(asked).zip(number(start).zip(number(end))).map(|(asked, (start, end))| {
                        let extent = LockExtent { position: 0, range: BlockRange::between(start, end), mode };
                        locks.push(LockTimes { extent, asked: Time(asked), had: None, left: None });
                    })
                }
                (["have", time], Some(lock)) if lock.had.is_none() => {
                    number(time).map(|time| lock.had = Some(Time(time)))
                }
                (["leave", time], Some(lock)) if lock.had.is_some() && lock.left.is_none() => {
                    number(time).map(|time| lock.left = Some(Time(time)))
                }
                _ => None,
            };
            noted.ok_or_else(|| Box::new(RangeFault::Unreadable { line: line + 1, text: text.to_string() }))?;
        }
        Ok(RangeHistory { locks })
    }

    /// The program was killed: it was alive at this time.
    pub fn killed_after(&mut self, time: Time) {
        if let Some(last) = self.locks.last_mut().filter(|last| last.left.is_none()) {
            last.left = last.had.map(|had| had.max(time));
        }
    }

    /// The number of locks that the program had.
    pub fn len(&self) -> usize {
        self.locks.iter().filter(|lock| lock.had.is_some()).count()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Judges the histories of programs that contended. No wait may be longer than `patience`. Returns the longest.
pub fn check_ranges(programs: &[RangeHistory], patience: Duration) -> Result<Duration, Box<RangeFault>> {
    let mut longest = Duration::ZERO;
    let mut all = Vec::new();
    for (program, history) in programs.iter().enumerate() {
        for lock in &history.locks {
            let Some(had) = lock.had else { continue };
            let waited = had.since(lock.asked);
            if waited > patience {
                return Err(Box::new(RangeFault::Late { program, waited, lock: lock.clone() }));
            }
            longest = longest.max(waited);
            all.push((had, program, lock));
        }
    }
    all.sort_by_key(|(had, program, _)| (*had, *program));
    let mut open: Vec<(usize, &LockTimes)> = Vec::new();
    for (had, program, lock) in all {
        open.retain(|(_, other)| other.left.is_none_or(|left| left > had));
        if let Some((holder, other)) = open.iter().find(|(_, other)| other.extent.conflicts(&lock.extent)) {
            let programs = (*holder, program);
            return Err(Box::new(RangeFault::Together { programs, one: (*other).clone(), other: lock.clone() }));
        }
        open.push((program, lock));
    }
    Ok(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(notes: &str) -> RangeHistory {
        RangeHistory::parse(&notes.replace(", ", "\n")).expect("it can be read")
    }

    fn judge(notes: [&str; 2]) -> Result<Duration, Box<RangeFault>> {
        check_ranges(&notes.map(read), Duration::from_nanos(50))
    }

    #[test]
    fn conflicting_locks_that_overlap_in_time_are_found() {
        let writer = "ask 0 0 4 exclusive, have 10, leave 20\n";
        for (other, fits) in [
            ("ask 5 3 5 shared, have 15, leave 30\n", false),
            ("ask 5 3 5 shared, have 15\n", false),
            ("ask 0 3 5 shared, have 1\n", false),
            ("ask 5 3 5 shared, have 20, leave 30\n", true),
            ("ask 5 4 5 exclusive, have 15, leave 30\n", true),
            ("ask 5 3 5 shared, ha", true),
        ] {
            assert_eq!(judge([writer, other]).is_ok(), fits, "{other}");
        }
        let readers = ["ask 0 0 4 shared, have 10, leave 20\n", "ask 0 0 4 shared, have 10, leave 40\n"];
        assert_eq!(judge(readers), Ok(Duration::from_nanos(10)));
        assert!(judge([writer, "ask 0 8 9 shared, have 51\n"]).is_err(), "it waited for too long");
    }

    #[test]
    fn a_killed_program_had_its_lock_until_then() {
        let mut killed = read("ask 0 0 4 exclusive, have 10\n");
        let next = read("ask 0 0 4 exclusive, have 40\n");
        let judge = |killed: &RangeHistory| check_ranges(&[killed.clone(), next.clone()], Duration::from_secs(1));
        assert!(judge(&killed).is_err());
        killed.killed_after(Time(41));
        assert!(judge(&killed).is_err());
        let mut killed = read("ask 0 0 4 exclusive, have 10\n");
        killed.killed_after(Time(39));
        assert!(judge(&killed).is_ok());
    }

    #[test]
    fn notes_that_make_no_sense_are_refused() {
        for notes in ["have 1\n", "ask 1 2 3\n", "ask 1 2 3 shared, leave 4\n", "ask 1 2 x shared\n", "say 1\n"] {
            let refused = RangeHistory::parse(&notes.replace(", ", "\n"));
            assert!(refused.is_err_and(|fault| matches!(*fault, RangeFault::Unreadable { .. })), "{notes}");
        }
    }
}
