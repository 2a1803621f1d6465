//! What a leader knows beyond the chain: which writes and questions wait, and how long it may grant leases.
//!
//! It grants while its last proof was *sent* less than the doubt ago, or under a pact. A proof is a call that showed `head` with its own
//! nonce: a write, or a read, which is sent for questions, and if writes fail (for example because the registry is full).

use crate::chain::Swap;
use crate::pact::Pact;
use crate::times::{BEAT, PATIENCE, Times};
use crate::{CandidateId, Effect, Head, QuestionId, WriteId};
use braid_base::Time;
use std::collections::{BTreeSet, VecDeque};

/// So many writes and so many questions wait at most.
const WAITING_MAX: usize = 1_024;

#[derive(Clone, Debug)]
pub(crate) struct Leading {
    /// The newest own head that is durable.
    pub head: Head,
    pub pact: Pact,
    /// When the latest call was sent that has shown its own head.
    proof: Time,
    /// When it last began a write.
    begun: Time,
    /// From then on no former leader grants any more. It does not end in order before: its heir would not wait for that leader's doubt.
    settled: Time,
    writes: VecDeque<(WriteId, Option<BTreeSet<CandidateId>>)>,
    questions: Vec<QuestionId>,
    /// The questions that wait for a read, and when it was first sent.
    read: (Time, Vec<QuestionId>),
    /// It is to end in order.
    pub resigns: bool,
}

impl Leading {
    /// It has won with a swap that was sent at `proof`.
    pub fn new(now: Time, head: Head, proof: Time, times: Times, after_orderly_end: bool) -> Leading {
        let settled = now.after(times.settled(after_orderly_end));
        let (writes, questions, read) = (VecDeque::new(), Vec::new(), (now, Vec::new()));
        Leading { head, pact: Pact::default(), proof, begun: now, settled, writes, questions, read, resigns: false }
    }

    /// A call that was sent then has shown its own head. Returns the questions that this answers.
    pub fn prove(&mut self, sent: Time) -> Vec<QuestionId> {
        self.proof = self.proof.max(sent);
        if self.read.0 <= sent { std::mem::take(&mut self.read.1) } else { Vec::new() }
    }

    /// True if a read is to be sent now for the questions that wait.
    pub fn begins_read(&mut self, now: Time) -> bool {
        let begins = !self.is_reading() && !self.questions.is_empty();
        if begins {
            self.read = (now, std::mem::take(&mut self.questions));
        }
        begins
    }

    /// Questions wait for the read under way.
    pub fn is_reading(&self) -> bool {
        !self.read.1.is_empty()
    }

    /// The read under way is not awaited: its questions wait for the next one.
    pub fn read_again(&mut self) {
        self.questions.append(&mut self.read.1);
    }

    /// True if it grants leases to devices now. `swap` is the one under way.
    pub fn may_grant(&self, now: Time, times: Times, swap: Option<&Swap>) -> bool {
        let ends = swap.is_some_and(|swap| swap.head.leader.is_none());
        let relies = || self.pact.until(&self.others(swap)).is_some_and(|until| now <= until);
        !ends && (now <= self.proof.after(times.doubt) || relies())
    }

    /// All other candidates that may take over, also if the write that makes or ends that is under way.
    pub fn others(&self, swap: Option<&Swap>) -> BTreeSet<CandidateId> {
        let under_way = swap.into_iter().flat_map(|swap| &swap.head.candidates);
        let mut others: BTreeSet<_> = self.head.candidates.iter().chain(under_way).copied().collect();
        others.retain(|other| Some(*other) != self.head.leader);
        others
    }

    pub fn write(&mut self, write: WriteId, candidates: Option<BTreeSet<CandidateId>>) -> Option<Effect> {
        if self.resigns || self.writes.len() >= WAITING_MAX {
            return Some(Effect::RefusedWrite(write));
        }
        self.writes.push_back((write, candidates));
        None
    }

    pub fn question(&mut self, question: QuestionId) -> Option<Effect> {
        if self.questions.len() + self.read.1.len() >= WAITING_MAX {
            return Some(Effect::RefusedQuestion(question));
        }
        self.questions.push(question);
        None
    }

    /// When the next write begins if none is under way.
    pub fn deadline(&self) -> Time {
        match (self.writes.is_empty(), self.resigns) {
            (false, _) => self.begun,
            (true, false) => self.begun.after(BEAT),
            (true, true) => self.settled.min(self.begun.after(BEAT)),
        }
    }

    /// The next write.
    pub fn next_write(&mut self, now: Time) -> (Head, Option<WriteId>) {
        self.begun = now;
        let mut head = self.head.next();
        let write = self.writes.pop_front();
        if let Some(candidates) = write.as_ref().and_then(|(_, candidates)| candidates.clone()) {
            assert!(self.head.leader.is_some_and(|leader| candidates.contains(&leader)), "a leader stays a candidate");
            head.candidates = candidates;
        }
        if write.is_none() && self.resigns && now >= self.settled {
            head.leader = None;
        }
        (head, write.map(|(write, _)| write))
    }

    /// Since when it would be without the registry, if nothing proves the contrary by then.
    pub fn unproven(&self) -> Time {
        self.proof.after(PATIENCE)
    }

    /// What waits is not written and not answered here.
    pub fn refuse_all(self) -> impl Iterator<Item = Effect> {
        let writes = self.writes.into_iter().map(|(write, _)| Effect::RefusedWrite(write));
        writes.chain(self.questions.into_iter().chain(self.read.1).map(Effect::RefusedQuestion))
    }
}
