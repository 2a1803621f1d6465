//! Surveys: which hosts hold what, and which wait for it.

use super::LockEngine;
use crate::table::LockState;
use braid_base::{ObjectId, Time};
use braid_wire::{LOCK_PART_EXTENTS_MAX, LOCK_PARTS_MAX, LOCKS_SURVEYED_MAX, LockName, SurveyedLock};

/// The most locks that one survey looks at.
const LOOKED_AT_MAX: usize = 4096;

impl LockEngine {
    /// Locks in the order of their names, from this name on, on one object or all, those that wait or all. And the name of the first one that
    /// was not looked at: one survey takes a bounded time.
    pub fn survey(
        &self,
        now: Time,
        from: LockName,
        object: Option<ObjectId>,
        waiting: bool,
    ) -> (Vec<SurveyedLock>, Option<LockName>) {
        let mut locks = Vec::new();
        for (looked_at, (name, state)) in self.table.states_from(from).enumerate() {
            if looked_at == LOOKED_AT_MAX || locks.len() == LOCKS_SURVEYED_MAX {
                return (locks, Some(name));
            }
            let (of, extents) = self.table.extents(name).expect("it is in the table");
            if object.is_some_and(|object| object != of) || (waiting && state == LockState::Held) {
                continue;
            }
            let mut behind: Vec<_> =
                self.table.ahead(name, LOCK_PARTS_MAX).into_iter().map(|ahead| ahead.host).collect();
            behind.dedup();
            locks.push(SurveyedLock {
                name,
                object: of,
                extents: extents.iter().take(LOCK_PART_EXTENTS_MAX).copied().collect(),
                all_extents: extents.len() as u32,
                millis: self.held(name).map_or(0, |held| now.since(held.since).as_millis() as u64),
                behind,
            });
        }
        (locks, None)
    }
}
