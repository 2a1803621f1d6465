//! A revocation: hosts are called on to give back the blocks of their allotments that they do not use, because others need some.
//!
//! ```text
//!   Revoke (of the lock of the allotment) ─► hosts ─► GiveBack (unused runs, or none) ─► evaluated
//!                                                      ├─► something was given: it is over
//!                                                      ├─► all hosts have given nothing, or are gone: it is over
//!                                                      ├─► a host is heard, and does not answer: it is passed by, until it answers
//!                                                      └─► a host is silent: it answers later, or is fenced, and its blocks come back
//! ```
//!
//! A host that does not answer keeps its blocks: it may have used them. The lock stays, too. A silent host is waited for longer than it takes
//! to have it fenced: what it has reserved is not used, so the file system is not full.

use braid_base::limits::Settings;
use braid_base::{Generation, Time, TransactionId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How often hosts are called on within the time that those have that are heard.
const CALLS: u32 = 4;
/// For how many leases silent hosts are waited for. They are fenced after ten.
const LEASES: u32 = 15;

/// The revocations of a metadata server, one at a time.
#[derive(Clone, Debug)]
pub(crate) struct Revocation {
    /// How long hosts are waited for that are heard, and those that are silent.
    within: Duration,
    most: Duration,
    under_way: Option<UnderWay>,
    /// Hosts that have not answered the last time.
    passed_by: BTreeSet<Generation>,
}

#[derive(Clone, Debug)]
struct UnderWay {
    /// Hosts that have not answered; none: they are not known yet.
    left: Option<BTreeSet<Generation>>,
    /// Answers that are being evaluated, and whether they give nothing.
    answers: BTreeMap<TransactionId, bool>,
    /// When the hosts became known.
    begun: Time,
    /// When they were called on last.
    called: Time,
}

impl Revocation {
    pub fn new(settings: &Settings) -> Revocation {
        let within = settings.resend_max * 2;
        let most = within + settings.host_lease * LEASES;
        Revocation { within, most, under_way: None, passed_by: BTreeSet::new() }
    }

    pub fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// When hosts are to be called on once more.
    pub fn deadline(&self) -> Option<Time> {
        self.under_way.as_ref().map(|it| it.called.after(self.within / CALLS))
    }

    /// Begins, unless one is under way. Then the hosts are to be called on.
    pub fn begin(&mut self, now: Time) -> bool {
        if self.is_under_way() {
            return false;
        }
        self.under_way = Some(UnderWay { left: None, answers: BTreeMap::new(), begun: now, called: now });
        true
    }

    /// These hosts are called on, which have allotments or had them when they were fenced, and were heard last at this time; none: they are
    /// not known yet, because some have not reported their locks, or are being fenced. True if none is left.
    pub fn on_called(&mut self, now: Time, hosts: Option<BTreeMap<Generation, Time>>) -> bool {
        let Some(it) = &mut self.under_way else { return false };
        let last = std::mem::replace(&mut it.called, now);
        let Some(hosts) = hosts else { return false };
        self.passed_by.retain(|host| hosts.contains_key(host));
        if it.left.is_none() {
            it.begun = now;
        }
        let left = it
            .left
            .get_or_insert_with(|| hosts.keys().copied().filter(|host| !self.passed_by.contains(host)).collect());
        left.retain(|host| hosts.contains_key(host));
        let waited = now.since(it.begun);
        // After a pause of its own the server has not yet read what hosts sent meanwhile.
        let judges = waited >= self.within && now.since(last) < self.within;
        let is_passed_by = |host: &Generation| waited >= self.most || (judges && hosts[host] > last);
        self.passed_by.extend(left.extract_if(.., is_passed_by));
        left.is_empty()
    }

    /// A host has answered. What it gives is evaluated.
    pub fn on_answer(&mut self, name: TransactionId, is_empty: bool) {
        self.passed_by.remove(&name.host);
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
