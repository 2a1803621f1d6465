//! The fencer of silent hosts. In rounds, it ends the leases of hosts that are silent for too long, has the monitor fence them, and forgets
//! their leases. If it dies or is suspended in between, or an answer is missing, the next round finds the same leases, whoever performs it.
//!
//! A host that disconnects gracefully leaves no state behind, unless a device did not hear it. The membership lists each host that a lock
//! server had fenced. Therefore all generations that have ended are fenced together from time to time. Each fence makes a new epoch, so
//! this is done rarely ([`SweepLimits`]).

use crate::{Expired, Fence, LeaseJudge, LeaseTime};
use braid_base::{FenceTable, Generation};
use std::time::Duration;

/// A fencer of silent hosts. A round begins with [`Fencer::begin`]; each answer leads to the next question, until the round is over.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fencer {
    /// The host that it belongs to, which counts as live.
    own: Generation,
    /// How long a host may be silent.
    allowed: Duration,
    judge: LeaseJudge,
    limits: SweepLimits,
    /// When it last had hosts fenced; none before its first round.
    fenced: Option<LeaseTime>,
    step: Step,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Step {
    /// Between two rounds.
    Waiting,
    Ending,
    /// The generations whose leases are over.
    Fencing(Vec<Generation>),
    Forgetting,
}

/// Something that a fencer wants done. It asks one question at a time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Question {
    /// End the leases of silent hosts ([`LeaseTable::expire`](crate::LeaseTable::expire)).
    Expire { by: Generation, now: LeaseTime, allowed: Duration },
    /// Have devices refuse these generations. Answered when no device serves them any more.
    Fence(Fence),
    /// Forget these leases.
    Forget(Vec<Generation>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To [`Question::Expire`], with the fence of the membership, as far as it is known.
    Expired(Expired, Option<FenceTable>),
    Done,
    /// No answer: the question may have had its effect, may have it later, or never.
    Unknown,
}

/// When generations that have ended are fenced, though none was silent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SweepLimits {
    /// This many generations that have ended are fenced together,
    pub ended: usize,
    /// or fewer after this time.
    pub wait: Duration,
    /// This many individually fenced hosts are replaced by one bound.
    pub listed: usize,
}

impl Default for SweepLimits {
    fn default() -> SweepLimits {
        SweepLimits { ended: 1024, wait: Duration::from_secs(600), listed: 64 }
    }
}

impl Fencer {
    /// A fencer that belongs to the host `own`, and begins a round once per heartbeat. Hosts may be silent for `allowed`.
    pub fn new(own: Generation, allowed: Duration, heartbeat: Duration, limits: SweepLimits) -> Fencer {
        Fencer { own, allowed, judge: LeaseJudge::new(heartbeat), limits, fenced: None, step: Step::Waiting }
    }

    /// It watches from now on, and begins its first round later.
    pub fn start(&mut self, now: &LeaseTime) {
        self.judge.start(now);
    }

    /// Begins a round. The time is read before the decision: if the fencer is suspended in between, hosts are judged by the state at this time.
    pub fn begin(&mut self, now: LeaseTime) -> Question {
        assert_eq!(self.step, Step::Waiting, "a round begins when the one before is over");
        if self.fenced.is_none() {
            self.fenced = Some(now.clone());
        }
        let allowed = self.judge.allowed(&now, self.allowed);
        self.step = Step::Ending;
        Question::Expire { by: self.own, now, allowed }
    }

    /// Takes the answer to its question. Returns the next one, or none if the round is over.
    pub fn on_answer(&mut self, now: &LeaseTime, answer: Answer) -> Option<Question> {
        match (std::mem::replace(&mut self.step, Step::Waiting), answer) {
            (Step::Ending, Answer::Expired(Expired { gone, fence, silent }, known)) => {
                self.judge.discount(silent);
                let is_due = known.is_some_and(|known| self.is_due(&known, now, &fence));
                // Each fence makes a new epoch, so none is made without need.
                if gone.is_empty() && !is_due {
                    return None;
                }
                assert!(gone.iter().all(|host| fence.refuses(*host)), "the fence refuses what is over");
                assert!(!fence.refuses(self.own), "a fencer does not fence its own host");
                self.step = Step::Fencing(gone);
                Some(Question::Fence(fence))
            }
            // No device serves them any more.
            (Step::Fencing(gone), Answer::Done) => {
                self.fenced = Some(now.clone());
                self.step = Step::Forgetting;
                Some(Question::Forget(gone))
            }
            // The leases may be in a state in which nobody can renew them.
            (Step::Ending, Answer::Unknown) => {
                self.judge.discount(None);
                None
            }
            // What is left is found again by the next round.
            (Step::Fencing(_) | Step::Forgetting, Answer::Unknown) | (Step::Forgetting, Answer::Done) => None,
            (step, answer) => panic!("{answer:?} is no answer for a fencer that is {step:?}"),
        }
    }

    /// True if the generations that have ended should be fenced now, given the current fence and the one to be made.
    fn is_due(&self, known: &FenceTable, now: &LeaseTime, Fence { below, except }: &Fence) -> bool {
        let newer = below.0.saturating_sub(known.below.0.max(1)) as usize;
        let newer_that_live = except.iter().filter(|host| **host >= known.below).count();
        let spared = known.except.iter().filter(|host| except.binary_search(host).is_err()).count();
        let ended = newer.saturating_sub(newer_that_live) + spared;
        let waited =
            self.fenced.as_ref().and_then(|fenced| now.since(fenced)).is_none_or(|age| age >= self.limits.wait);
        ended >= self.limits.ended || known.also.len() >= self.limits.listed || (ended > 0 && waited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Heartbeat, LeaseTable, Version};

    fn hosts(hosts: &[u32]) -> Vec<Generation> {
        hosts.iter().copied().map(Generation).collect()
    }

    fn at(seconds: u64) -> LeaseTime {
        LeaseTime { boot: "this".into(), elapsed: Duration::from_secs(seconds) }
    }

    /// Two hosts that live, of which the first one has a fencer, and whether they can write their renewals, or anything else be written, at a time.
    fn fenced_in(renew: impl Fn(u64) -> bool, write: impl Fn(u64) -> bool) -> Option<u64> {
        let mut table = LeaseTable::new(Generation(0));
        let [own, other] = [0, 0].map(|_| table.take(&at(0), ()).unwrap().0);
        let (allowed, heartbeat) = (Duration::from_secs(60), Duration::from_secs(1));
        let mut fencer = Fencer::new(own, allowed, heartbeat, SweepLimits::default());
        for second in 0..900 {
            let Question::Expire { by, now, allowed } = fencer.begin(at(second)) else { panic!("a round begins so") };
            let mut next = table.clone();
            let (expired, writes) = next.expire(by, &now, allowed).unwrap();
            if !expired.gone.is_empty() && write(second) {
                return Some(second);
            }
            let answer = if writes.is_empty() { Answer::Expired(expired, None) } else { Answer::Unknown };
            assert_eq!(fencer.on_answer(&at(second), answer), None);
            // The host of the fencer renews at once when it can, the other one a heartbeat later.
            for host in [Some(own), (second > 0 && renew(second - 1)).then_some(other)].into_iter().flatten() {
                if renew(second) {
                    let heartbeat = Heartbeat { renewed: Some(at(second)), confirmed: Version(0), report: () };
                    table.renew(host, heartbeat).unwrap();
                }
            }
        }
        None
    }

    #[test]
    fn no_host_is_fenced_because_all_were_suspended_together() {
        for renews_first in [false, true] {
            let mut table = LeaseTable::new(Generation(0));
            let [own, other] = [0, 0].map(|_| table.take(&at(0), ()).unwrap().0);
            let mut fencer = Fencer::new(own, Duration::from_secs(15), Duration::from_secs(1), SweepLimits::default());
            // All are suspended from 30 s to 60 s; the other host resumes later than the fencer.
            for second in (1..30).chain(60..90) {
                let renewing: &[Generation] = if (60..68).contains(&second) { &[own] } else { &[own, other] };
                let renew = |table: &mut LeaseTable<()>| {
                    for host in renewing {
                        let heartbeat = Heartbeat { renewed: Some(at(second)), confirmed: Version(0), report: () };
                        table.renew(*host, heartbeat).unwrap();
                    }
                };
                if renews_first {
                    renew(&mut table);
                }
                let Question::Expire { by, now, allowed } = fencer.begin(at(second)) else {
                    panic!("a round begins so")
                };
                let (expired, _) = table.expire(by, &now, allowed).unwrap();
                assert_eq!(expired.gone, [], "at {second} s, {renews_first}, {allowed:?}");
                assert_eq!(fencer.on_answer(&at(second), Answer::Expired(expired, None)), None);
                if !renews_first {
                    renew(&mut table);
                }
            }
        }
    }

    #[test]
    fn no_host_is_fenced_because_nobody_could_renew() {
        let (always, outage) = (|_| true, |second| !(100..500).contains(&second));
        assert_eq!(fenced_in(always, always), None);
        assert_eq!(fenced_in(outage, outage), None);
        assert_eq!(fenced_in(outage, always), None, "a full file system takes some writes");
        let dies = |second: u64| second < 100;
        assert_eq!(fenced_in(dies, always), None, "as long as nobody renews");
    }

    #[test]
    fn a_lease_that_is_taken_while_nobody_can_renew_ends_no_other() {
        let mut table = LeaseTable::new(Generation(0));
        let [own, other] = [0, 0].map(|_| table.take(&at(0), ()).unwrap().0);
        let (allowed, heartbeat) = (Duration::from_secs(60), Duration::from_secs(1));
        let mut fencer = Fencer::new(own, allowed, heartbeat, SweepLimits::default());
        let mut gone = Vec::new();
        for second in 1..900 {
            // Nobody renews from 100 s to 600 s. Others take leases meanwhile, and give them back. The other host has died.
            if matches!(second, 300 | 420) {
                table.take(&at(second), ()).unwrap();
            }
            let is_outage = (100..600).contains(&second);
            for host in [Some(own), (second < 100).then_some(other)].into_iter().flatten().filter(|_| !is_outage) {
                let heartbeat = Heartbeat { renewed: Some(at(second)), confirmed: Version(0), report: () };
                table.renew(host, heartbeat).unwrap();
            }
            let Question::Expire { by, now, allowed } = fencer.begin(at(second)) else { panic!("a round begins so") };
            let (expired, _) = table.clone().expire(by, &now, allowed).unwrap();
            gone.extend(expired.gone.contains(&other).then_some(second));
            fencer.on_answer(&at(second), Answer::Expired(Expired { gone: Vec::new(), ..expired }, None));
        }
        let first = gone.first().expect("the host that has died is fenced when its time is over");
        assert!((655..=665).contains(first), "{first}");
    }

    #[test]
    fn generations_that_have_ended_are_fenced_when_they_are_many_or_have_waited() {
        let (allowed, heartbeat) = (Duration::from_secs(60), Duration::from_millis(500));
        let mut fencer = Fencer::new(Generation(3), allowed, heartbeat, SweepLimits::default());
        fencer.begin(at(0));
        let known = FenceTable {
            below: Generation(100),
            except: hosts(&[3, 50]).into_iter().collect(),
            ..FenceTable::default()
        };
        let due = |known: &FenceTable, below: u32, except: &[u32], waited: u64| {
            let fence = Fence { below: Generation(below), except: hosts(except) };
            fencer.is_due(known, &at(waited), &fence)
        };
        assert!(!due(&known, 102, &[3, 50, 100, 101], 10_000), "all are live");
        assert!(!due(&known, 102, &[3, 50, 100], 10), "one has ended");
        assert!(due(&known, 102, &[3, 50, 100], 600));
        assert!(due(&known, 102, &[3, 100, 101], 600), "an exempt host has ended since");
        assert!(!due(&known, 1_124, &[3, 50, 1_123], 10));
        assert!(due(&known, 1_124, &[3, 50], 10));
        let listed = FenceTable { also: (200..264).map(Generation).collect(), ..known.clone() };
        assert!(due(&listed, 102, &[3, 50, 100, 101], 10), "the list is to be shortened");
        assert!(!due(&FenceTable::default(), 2, &[1], 600), "a new array");
    }
}
