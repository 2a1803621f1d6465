//! Operations whose user is gone: a client of a front end whose connection has ended.
//!
//! The user will ask again on another connection, and what is done for the new request must not be undone by the old one. So an abandoned
//! operation makes no further attempt: one that has no write out ends at once, and one that has ends with the attempt that is
//! under way, committed or not.
//!
//! Until then, operations that begin later and touch the same blocks wait. Stamps and locks would keep the two in order as well; but volumes
//! without ordering have neither, and a write must not compute parity from blocks that an old write is just changing. The wait ends with the
//! old operation's time-out at the latest.

use crate::ctx::{OperationId, Timer};
use crate::host::Host;
use braid_base::{Now, Time};
use braid_layout::Share;
use braid_machine::{Effects, HostError, OpId};
use std::collections::BTreeSet;

/// Abandoned operations that have a write out, and who waits for them.
#[derive(Debug, Default)]
pub(crate) struct Abandoned {
    operations: BTreeSet<OperationId>,
    behind: BTreeSet<OperationId>,
}

impl Host {
    /// The user of these operations is gone. What is answered already, or is no storage transaction, goes on as it is.
    pub(crate) fn abandon(&mut self, now: Now, ops: &[OpId], out: &mut Effects) {
        for op in ops.iter().map(|op| OperationId::User(*op)) {
            let Some(operation) = self.operations.get(&op) else { continue };
            if operation.attempt.is_some_and(|sequence| self.transactions[&sequence].wrote) {
                self.abandoned.operations.insert(op);
            } else {
                self.give_up(now, op, HostError::Abandoned, out);
            }
        }
    }

    /// True if this operation is not to be tried again.
    pub(crate) fn is_abandoned(&self, op: OperationId) -> bool {
        self.abandoned.operations.contains(&op)
    }

    /// True if an operation of a user has to wait for an abandoned one: it is woken when that has ended.
    pub(crate) fn awaits_abandoned(&mut self, op: OperationId) -> bool {
        if self.abandoned.operations.is_empty() || matches!(op, OperationId::Job(_)) {
            return false;
        }
        let waits = self.abandoned.operations.iter().any(|abandoned| self.touches(op, *abandoned));
        if waits {
            self.abandoned.behind.insert(op);
        }
        waits
    }

    /// True if an operation reads or writes, on any device, what the attempt of an abandoned one writes.
    fn touches(&self, op: OperationId, abandoned: OperationId) -> bool {
        let one = &self.operations[&op];
        // One whose attempt is over makes no other.
        let Some(attempt) = self.operations[&abandoned].attempt else { return false };
        let other = &self.transactions[&attempt];
        let meet = |mine: &Share, theirs: &Share| {
            let mut ranges = mine.prewrites.iter().chain(&mine.reads);
            one.volume.device_at(mine.position) == other.volume.device_at(theirs.position)
                && ranges.any(|range| theirs.prewrites.iter().any(|written| written.overlaps(*range)))
        };
        one.volume.id == other.volume.id
            && one.work.shares().iter().any(|mine| other.work.shares().iter().any(|theirs| meet(mine, theirs)))
    }

    /// An operation has ended: who has waited for it tries again.
    pub(crate) fn end_abandoned(&mut self, op: OperationId) {
        self.abandoned.behind.remove(&op);
        if !self.abandoned.operations.remove(&op) {
            return;
        }
        for waiting in std::mem::take(&mut self.abandoned.behind) {
            if self.operations.get(&waiting).is_some_and(|operation| operation.attempt.is_none()) {
                self.timers.set(Timer::Retry(waiting), Time(0));
            }
        }
    }

    /// Asserts that what is abandoned is still under way.
    pub(crate) fn abandoned_invariants(&self) {
        for op in &self.abandoned.operations {
            assert!(self.operations.contains_key(op), "an abandoned operation is forgotten when it ends: {op:?}");
        }
        for op in &self.abandoned.behind {
            assert!(self.operations.contains_key(op), "and so is one that waits for it: {op:?}");
        }
    }
}
