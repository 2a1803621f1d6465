//! A monitor that leads for a term (`docs/leadership.md`). Monitors of several machines are candidates, and a registry decides which of them
//! leads. A monitor knows of that only what is here: what it is begun with, and what it is told before each step.
//!
//! | a monitor with a term | because |
//! | --- | --- |
//! | says nothing while its leader is in doubt | another one may lead. Afterwards it waits for messages, as after a pause |
//! | takes each device for leased for the wait of its term | a former leader may have granted that |
//! | grants before it has heard all devices, if its process follows | it has seen the history up to its win |
//! | answers questions on ownership when it is known to lead still | such an answer claims to be current |

use crate::ownership_requests::OwnershipAnswer;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// What a monitor is begun with that leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Term {
    /// Each device may have a lease of a former leader for so long, from the monitor's start.
    pub wait: Duration,
    /// Its process has seen the history up to its start.
    pub follows: bool,
}

/// Names an answer that waits until the monitor is known to lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CurrentId(pub u64);

/// What a monitor with a term has been told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leadership {
    /// The leader may grant leases now.
    pub may_grant: bool,
    last: u64,
    /// The answers that wait.
    answers: BTreeMap<CurrentId, OwnershipAnswer>,
    /// Those of them that the leader has not been asked about.
    new: Vec<CurrentId>,
}

impl Leadership {
    /// Keeps an answer until the monitor is known to lead at a time after this.
    pub fn defer(&mut self, answer: OwnershipAnswer) {
        self.last += 1;
        let id = CurrentId(self.last);
        self.answers.insert(id, answer);
        self.new.push(id);
    }

    /// The answers that the leader is to be asked about.
    pub fn take_new(&mut self) -> Vec<CurrentId> {
        std::mem::take(&mut self.new)
    }

    /// The answer waits no more.
    pub fn take(&mut self, id: CurrentId) -> Option<OwnershipAnswer> {
        self.answers.remove(&id)
    }

    /// Asserts that each of the new ones waits.
    pub fn invariants(&self) {
        assert!(self.new.iter().all(|id| self.answers.contains_key(id)));
    }
}
