//! Renewing and releasing a lock.

use super::word::Word;
use super::{Grant, LastRequest, LockError, Mode};
use crate::cas_loop::{CasLoop, CasPolicy, Move, MoveOf, OutputOf, Seen, StepContext, Swap, number, number_bytes};
use crate::fencing_token::{Unguardable, if_swapped};
use crate::hold_word::{patience_to_give_back, patience_to_renew, was_too_slow};
use crate::lease::Entry;
use crate::procedure::{Mapped, Operation, RequestFailure};
use crate::request_builder::{RequestBuilder, Results, set};
use braid_base::Time;
use braid_wire::{CommandResult, ObjectCommand, ObjectRequest};
use bytes::Bytes;

impl Grant {
    /// Renews it for another lease. Ends at [`sure_until`](Grant::sure_until) at the latest, or, if begun later, after a third of the
    /// lease.
    pub fn renew(&self) -> Operation<Result<Grant, LockError>> {
        let grant = self.clone();
        let entry = grant.entry.next_heartbeat();
        let target = grant.lock.target(patience_to_renew(grant.sure_until(), entry.lease));
        Box::new(CasLoop::new(target, Keep { grant, entry, sent: Time::default(), word: Bytes::new() }))
    }

    /// Releases it, or fails with [`LockError::Lost`] if it was broken before. Tries for one lease; after that, others may break the lock
    /// anyway.
    pub fn release(self) -> Operation<Result<(), LockError>> {
        Box::new(Mapped(Give::new(self, None), |given: OutputOf<Give>| given.map(|_| ())))
    }

    /// Executes a last request and releases the lock in one round trip. If the lock is no longer held, the request has no effect. Tries for
    /// three leases, to learn the outcome.
    pub fn release_with(self, request: ObjectRequest) -> Result<LastRequest, Unguardable> {
        Ok(Box::new(Give::new(self, Some(if_swapped(request, 2)?))))
    }
}

struct Keep {
    grant: Grant,
    /// The entry with the next heartbeat.
    entry: Entry,
    sent: Time,
    word: Bytes,
}

impl Keep {
    fn swap(&mut self, ctx: &StepContext<'_>, compare: Bytes) -> MoveOf<Self> {
        let Some(mut word) = Word::decode(&compare) else { return Move::Done(Err(LockError::NoLock)) };
        let Some(mine) = word.holders.iter_mut().find(|entry| entry.nonce == self.entry.nonce) else {
            return Move::Done(Err(LockError::Lost));
        };
        *mine = self.entry.clone();
        self.sent = ctx.now;
        self.word = word.encode();
        Move::Swap(Swap { compare, swap: self.word.clone(), sets: Vec::new(), rest: Vec::new() })
    }

    fn kept(&self, word: Bytes) -> MoveOf<Self> {
        Move::Done(Ok(Grant { entry: self.entry.clone(), word, sent: self.sent, ..self.grant.clone() }))
    }
}

impl CasPolicy for Keep {
    type Value = Grant;
    type Error = LockError;

    fn begin(&mut self, ctx: &mut StepContext<'_>) -> MoveOf<Self> {
        self.swap(ctx, self.grant.word.clone())
    }

    fn look(&mut self, ctx: &mut StepContext<'_>, seen: Seen) -> MoveOf<Self> {
        let there = Word::decode(&seen.word).and_then(|word| word.holder(self.entry.nonce).cloned());
        match there {
            Some(entry) if seen.outcome_unknown && entry == self.entry => return self.kept(seen.word),
            // Renewed through another copy of this grant, at an unknown time.
            Some(entry) if entry.heartbeat >= self.entry.heartbeat => self.entry = entry.next_heartbeat(),
            _ => {}
        }
        self.swap(ctx, seen.word)
    }

    fn made(&mut self, _ctx: &mut StepContext<'_>, _results: Results) -> MoveOf<Self> {
        self.kept(self.word.clone())
    }

    fn fails(&mut self, failure: RequestFailure) -> LockError {
        if was_too_slow(failure) { LockError::Uncertain } else { failure.into() }
    }
}

struct Give {
    grant: Grant,
    request: Option<Vec<ObjectCommand>>,
    /// How many commands of the lock precede the request.
    own: usize,
    /// An earlier swap may have happened.
    was_unknown: bool,
}

impl Give {
    fn new(grant: Grant, request: Option<Vec<ObjectCommand>>) -> CasLoop<Give> {
        let target = grant.lock.target(patience_to_give_back(grant.entry.lease, request.is_some()));
        CasLoop::new(target, Give { grant, request, own: 0, was_unknown: false })
    }

    fn swap(&mut self, compare: Bytes, mut word: Word) -> MoveOf<Self> {
        word.holders.retain(|entry| entry.nonce != self.grant.entry.nonce);
        let lock = &self.grant.lock;
        let (mut sets, mut rest) = (Vec::new(), RequestBuilder::of(lock.object));
        let ends = word.holders.is_empty();
        if ends {
            rest = rest.then_add(lock.token(), 1);
        }
        self.own = 1 + usize::from(ends);
        if let Some(request) = &self.request {
            sets.push(set(lock.trace(), &number_bytes(self.grant.entry.nonce)));
            rest = rest.then(request.iter().cloned());
        }
        Move::Swap(Swap { compare, swap: word.encode(), sets, rest: rest.request().commands })
    }

    /// The entry is not in the word any more.
    fn gone(&self, token: u64, trace: &Bytes) -> OutputOf<Give> {
        let traced = number(trace) == Some(self.grant.entry.nonce);
        match (&self.request, self.was_unknown) {
            (_, false) => Err(LockError::Lost),
            (None, true) => Ok(None),
            (Some(_), true) if traced => Ok(None),
            (Some(_), true) if self.grant.lock.options.idempotency_record.is_some() => Err(LockError::Lost),
            // Exactly one hold has ended since: if that was done by this request, its trace would be there, which only a later release
            // overwrites.
            (Some(_), true) if self.grant.mode == Mode::Exclusive && token == self.grant.token.wrapping_add(1) => {
                Err(LockError::Lost)
            }
            (Some(_), true) => Err(LockError::RequestFailure(RequestFailure::Unknown)),
        }
    }
}

impl CasPolicy for Give {
    type Value = Option<Vec<CommandResult>>;
    type Error = LockError;

    fn begin(&mut self, _ctx: &mut StepContext<'_>) -> MoveOf<Self> {
        let compare = self.grant.word.clone();
        let word = Word::decode(&compare).expect("it was granted with this word");
        self.swap(compare, word)
    }

    fn look(&mut self, _ctx: &mut StepContext<'_>, seen: Seen) -> MoveOf<Self> {
        self.was_unknown |= seen.outcome_unknown;
        let (Some(word), Some(token)) = (Word::decode(&seen.word), number(&seen.extras[0])) else {
            return Move::Done(Err(LockError::NoLock));
        };
        if word.holder(self.grant.entry.nonce).is_none() {
            return Move::Done(self.gone(token, &seen.extras[1]));
        }
        self.swap(seen.word, word)
    }

    fn made(&mut self, _ctx: &mut StepContext<'_>, results: Results) -> MoveOf<Self> {
        Move::Done(Ok(Some(results.from(self.own))))
    }
}
