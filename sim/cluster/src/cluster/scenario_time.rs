//! The time of scripted scenarios: it passes until a request is answered, or for a while.

use super::{Cluster, PATIENCE};
use braid_machine::{HostOutcome, OpId};
use std::time::Duration;

impl Cluster {
    /// Runs until this request is answered.
    pub fn finish(&mut self, op: OpId) -> HostOutcome {
        let until = self.world.now().after(PATIENCE);
        while !self.answered.contains_key(&op) && self.pass(until) {}
        let answer = self.answered.remove(&op);
        answer.unwrap_or_else(|| panic!("request {} was not answered within {PATIENCE:?}", op.number))
    }

    /// True if a request was answered, and its answer was not fetched yet.
    pub fn is_answered(&self, op: OpId) -> bool {
        self.answered.contains_key(&op)
    }

    /// Runs for a while.
    pub fn run_for(&mut self, span: Duration) {
        let until = self.world.now().after(span);
        while self.pass(until) {}
    }
}
