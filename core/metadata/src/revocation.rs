//! A revocation: hosts are called on to give back the blocks of their allotments that they do not use, because others need some.
//!
//! ```text
//!   Revoke (of the lock of the allotment) ─► hosts ─► GiveBack (unused runs, or none) ─► evaluated
//!                                                      ├─► something was given: it is over
//!                                                      ├─► all hosts have given nothing: it is over
//!                                                      └─► the time is up: those that were silent are not waited for until they are heard
//! ```
//!
//! A host that does not answer keeps its blocks: it may have used them. The lock stays, too.

use braid_base::{Generation, Time, TransactionId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How often hosts are called on within the time that they have.
const CALLS: u32 = 4;

/// The revocations of a metadata server, one at a time.
#[derive(Clone, Debug)]
pub(crate) struct Revocation {
    within: Duration,
    under_way: Option<UnderWay>,
    /// Hosts that have not answered the last time.
    silent: BTreeSet<Generation>,
}

#[derive(Clone, Debug)]
struct UnderWay {
    /// Hosts that have not answered; none: they are not known yet.
    left: Option<BTreeSet<Generation>>,
    /// Answers that are being evaluated, and whether they give nothing.
    answers: BTreeMap<TransactionId, bool>,
    again: Time,
    until: Time,
}

impl Revocation {
    pub fn new(within: Duration) -> Revocation {
        Revocation { within, under_way: None, silent: BTreeSet::new() }
    }

    pub fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    pub fn deadline(&self) -> Option<Time> {
        self.under_way.as_ref().map(|it| it.again.min(it.until))
    }

    /// Begins, unless one is under way. Then the hosts are to be called on.
    pub fn begin(&mut self, now: Time) -> bool {
        if self.is_under_way() {
            return false;
        }
        let (again, until) = (now.after(self.within / CALLS), now.after(self.within));
        self.under_way = Some(UnderWay { left: None, answers: BTreeMap::new(), again, until });
        true
    }

    /// True if hosts are to be called on once more.
    pub fn is_to_repeat(&self, now: Time) -> bool {
        self.under_way.as_ref().is_some_and(|it| it.again <= now)
    }

    /// True if the time is up. Those that have not answered are silent.
    pub fn is_over(&mut self, now: Time) -> bool {
        let Some(it) = self.under_way.as_mut().filter(|it| it.until <= now) else { return false };
        let Some(left) = &it.left else {
            // Hosts are not known before they have reported their locks, or are fenced.
            it.until = now.after(self.within);
            return false;
        };
        self.silent.extend(left);
        true
    }

    /// These hosts are called on, which have allotments; none: they are not known yet. True if none is left.
    pub fn on_called(&mut self, now: Time, hosts: Option<Vec<Generation>>) -> bool {
        let Some(it) = &mut self.under_way else { return false };
        it.again = now.after(self.within / CALLS);
        let Some(hosts) = hosts else { return false };
        self.silent.retain(|host| hosts.contains(host));
        let is_awaited = |host: &Generation| match &it.left {
            Some(left) => left.contains(host),
            None => !self.silent.contains(host),
        };
        let left: BTreeSet<Generation> = hosts.into_iter().filter(is_awaited).collect();
        let is_empty = left.is_empty();
        it.left = Some(left);
        is_empty
    }

    /// A host has answered. What it gives is evaluated.
    pub fn on_answer(&mut self, name: TransactionId, is_empty: bool) {
        self.silent.remove(&name.host);
        if let Some(it) = &mut self.under_way {
            // A host has one answer under way.
            it.answers.retain(|other, _| other.host != name.host);
            it.answers.insert(name, is_empty);
        }
    }

    /// An answer was evaluated. If the revocation is over by that, whether something was given.
    pub fn on_evaluated(&mut self, name: TransactionId, is_done: bool) -> Option<bool> {
        let it = self.under_way.as_mut()?;
        let is_empty = it.answers.remove(&name)?;
        if is_done && !is_empty {
            return Some(true);
        }
        let left = it.left.as_mut()?;
        left.remove(&name.host);
        left.is_empty().then_some(false)
    }

    pub fn end(&mut self) {
        self.under_way = None;
    }
}
