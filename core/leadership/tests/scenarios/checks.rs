//! What must hold in every run, judged by what really happened: true time, and the order in which calls took effect.

use braid_base::Time;
use braid_leadership::times::{READS_APART, SILENCE};
use braid_leadership::{CandidateId, Effect, Head, Mark, Nonce, QuestionId, WriteId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// By how much a clock runs fast or slow at most, in millionths.
pub const RATE_MAX: i64 = 45_000;

/// The true history.
#[derive(Default)]
pub struct Checks {
    /// In the order in which they began.
    terms: Vec<Term>,
    written: BTreeSet<WriteId>,
    refused: BTreeSet<WriteId>,
    /// When each question arrived.
    pub asked: BTreeMap<QuestionId, Time>,
    /// Until when each candidate is bound by its promises.
    bound: BTreeMap<CandidateId, Time>,
    pub has_gone_back: bool,
    /// How often something happened that runs are to reach.
    pub counts: BTreeMap<&'static str, u64>,
}

/// What is known of a term.
struct Term {
    nonce: Nonce,
    number: u64,
    /// When it ended, at the registry: by an end in order, or by another term.
    ended: Option<(Time, bool)>,
    /// When its leader learned that it leads.
    won: Option<Time>,
    /// The registry has gone back behind it.
    is_forgotten: bool,
}

impl Checks {
    pub fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn term(&mut self, nonce: Nonce) -> (usize, &mut Term) {
        let position =
            self.terms.iter().position(|term| term.nonce == nonce).expect("a term is at the registry before it is led");
        (position, &mut self.terms[position])
    }

    /// A swap has taken effect.
    pub fn swapped(&mut self, now: Time, expected: &Head, head: &Head, write: Option<WriteId>) {
        if let Some(write) = write {
            assert!(!self.refused.contains(&write), "a write that was refused is made: {write:?}");
            assert!(self.written.insert(write) || self.has_gone_back, "a write is made twice: {write:?}");
        }
        if head.leader.is_none() {
            self.term(head.nonce).1.ended = Some((now, true));
        }
        if head.nonce == expected.nonce {
            return;
        }
        if let Some(last) = self.terms.last_mut() {
            last.ended = last.ended.or(Some((now, false)));
        }
        if let Some(again) = self.terms.iter_mut().find(|term| term.nonce == head.nonce) {
            assert!(again.is_forgotten, "a nonce recurs");
            return (again.ended, again.is_forgotten) = (None, false);
        }
        let is_new = self.has_gone_back || self.terms.iter().all(|term| term.number < head.term);
        assert!(is_new, "a term recurs: {head:?}");
        self.terms.push(Term { nonce: head.nonce, number: head.term, ended: None, won: None, is_forgotten: false });
    }

    /// A candidate sends a swap that takes over. It may have had this silence, by its own reads.
    pub fn takes_over(&mut self, now: Time, by: CandidateId, expected: &Head, silence: Duration) {
        let bound = self.bound.get(&by).copied().unwrap_or_default();
        assert!(now >= bound, "{by:?} makes a swap that it has promised not to make");
        let is_silent = expected.leader.is_none() || silence >= SILENCE;
        assert!(is_silent, "{by:?} takes over after a silence of {silence:?}, as far as it has read");
    }

    pub fn won(&mut self, now: Time, head: &Head, follows: bool, followed: Duration) {
        assert!(!follows || followed >= Duration::from_secs(2), "it has read for {followed:?} only");
        self.count(if follows { "won after following" } else { "won after a start" });
        self.term(head.nonce).1.won = Some(now);
    }

    /// A candidate leads no more.
    pub fn ends(&mut self, effect: &Effect) {
        let what = match effect {
            Effect::Ended => "orderly ends",
            Effect::Lost { .. } => "losses",
            _ => "stops",
        };
        assert!(what != "stops" || self.has_gone_back, "it stops, though the registry has not gone back");
        self.count(what);
    }

    pub fn promised(&mut self, by: CandidateId, until: Time) {
        self.count("promises");
        let bound = self.bound.entry(by).or_default();
        *bound = until.max(*bound);
    }

    /// The leader of a term grants a lease. `proof`: when the latest call was sent by which it knew that it leads.
    pub fn grants(&mut self, now: Time, head: &Head, doubt: Duration, proof: Time) {
        // By a clock that is slow.
        let doubt = doubt.mul_f64(1_000_000.0 / (1_000_000 - RATE_MAX) as f64);
        let (position, term) = self.term(head.nonce);
        assert!(!matches!(term.ended, Some((_, true))), "a leader grants after its end in order");
        let later: Vec<Time> =
            self.terms[position + 1..].iter().filter(|term| !term.is_forgotten).filter_map(|term| term.won).collect();
        assert!(
            later.iter().all(|won| now <= won.after(doubt)),
            "a lease is granted {later:?} too long after another one has won, at {now:?}"
        );
        if now > proof.after(doubt) {
            let is_bound = |other: &CandidateId| self.bound.get(other).is_some_and(|bound| now <= *bound);
            let mut others = head.candidates.iter().filter(|other| Some(**other) != head.leader);
            let unbound = others.find(|other| !is_bound(other));
            assert_eq!(unbound, None, "a lease is granted without a proof, and without a promise");
            self.count("grants under a pact");
        }
    }

    /// A write is told to be made, or never to be.
    pub fn told(&mut self, write: WriteId, is_written: bool) {
        assert_eq!(self.written.contains(&write), is_written, "what is told of {write:?} is not so");
        if is_written {
            self.count("writes");
        } else {
            self.refused.insert(write);
        }
    }

    /// An answer leaves that claims to be current.
    pub fn current(&mut self, question: QuestionId, nonce: Nonce) {
        let asked = self.asked[&question];
        let ended = self.term(nonce).1.ended;
        assert!(ended.is_none_or(|(ended, _)| ended >= asked), "an answer was old when its question arrived");
        self.count("current answers");
    }

    /// The registry has gone back to this.
    pub fn gone_back(&mut self, now: Time, head: &Head) {
        self.has_gone_back = true;
        let kept = self.terms.iter().position(|term| term.nonce == head.nonce);
        for (position, term) in self.terms.iter_mut().enumerate() {
            term.is_forgotten |= kept.is_none_or(|kept| position > kept);
            term.ended = if kept == Some(position) { None } else { term.ended.or(Some((now, false))) };
        }
    }
}

/// What a candidate has read since its start.
#[derive(Default)]
pub struct Reads(Vec<(Time, Mark)>);

impl Reads {
    pub fn add(&mut self, now: Time, found: &Head) {
        self.0.push((now, found.mark()));
    }

    /// For how long it can have seen this head, or any one, without gaps between two reads.
    pub fn seen(&self, head: Option<&Head>) -> Duration {
        let mark = head.map(Head::mark);
        let times: Vec<Time> =
            self.0.iter().filter(|(_, seen)| mark.is_none_or(|mark| mark == *seen)).map(|(time, _)| *time).collect();
        let gaps = times.windows(2).map(|pair| pair[1].since(pair[0]));
        gaps.filter(|gap| *gap <= READS_APART).sum()
    }
}
