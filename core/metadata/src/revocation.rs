//! A revocation: hosts are called on to give back the blocks of their allotments that they do not use, because others need some.
//!
//! ```text
//!   Revoke (of the lock of the allotment) ─► hosts ─► GiveBack (unused runs, or none) ─► evaluated
//!                                                      ├─► something was given: it is over
//!                                                      ├─► all hosts have given nothing, or are gone: it is over
//!                                                      ├─► a host is heard after each call, and does not answer: it is passed by, until it answers
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
    /// Between how many calls in a row hosts were heard.
    heard: BTreeMap<Generation, u32>,
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
        let (answers, heard) = (BTreeMap::new(), BTreeMap::new());
        self.under_way = Some(UnderWay { left: None, answers, begun: now, called: now, heard });
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
        // Some messages may be late copies of what a dead host sent.
        let in_a_row = |host: &Generation| it.heard.get(host).copied().unwrap_or_default() + 1;
        it.heard = hosts.iter().filter(|(_, at)| **at > last).map(|(host, _)| (*host, in_a_row(host))).collect();
        let lives = |host: &Generation| it.heard.get(host).is_some_and(|calls| *calls >= CALLS);
        let is_passed_by = |host: &Generation| waited >= self.most || (judges && lives(host));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_passed_by_if_it_lives_and_not_for_late_copies_of_its_messages() {
        let host = Generation(5);
        for lives in [true, false] {
            let settings = Settings::default();
            let mut revocation = Revocation::new(&settings);
            assert!(revocation.begin(Time(0)));
            let step = revocation.within / CALLS;
            let mut heard = Time(0);
            let is_over = |number: &u32| {
                // Of a dead host, messages come late after three of four calls.
                if lives || !number.is_multiple_of(CALLS) {
                    heard = Time(0).after(step * *number - step / 2);
                }
                revocation.on_called(Time(0).after(step * *number), Some(BTreeMap::from([(host, heard)])))
            };
            let over = (1..1_000).find(is_over).expect("it ends");
            let most = (settings.host_lease * LEASES).as_nanos() / step.as_nanos();
            assert_eq!(over <= CALLS + 1, lives, "after {over} calls");
            assert!(lives || u128::from(over) > most, "after {over} calls of {most}");
        }
    }
}
