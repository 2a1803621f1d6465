//! Keeping a lock for another lease, and giving it back.

use super::word::Word;
use super::{Grant, LockError, Mode};
use crate::asking::{Asking, Results, set};
use crate::edit::{At, Editing, Editor, Move, Seen, Swap, number, number_bytes};
use crate::holding::{patience_to_give_back, patience_to_renew, was_too_slow};
use crate::lease::Entry;
use crate::procedure::{Answer, Next, Procedure, Trouble};
use braid_base::{Rng, Time};
use braid_wire::{CommandResult, ObjectCommand};
use bytes::Bytes;

/// Keeps a lock for another lease.
pub struct Renew(Editing<Keep>);

impl Renew {
    pub(super) fn new(grant: Grant) -> Renew {
        let entry = grant.entry.beaten();
        let desk = grant.lock.desk(patience_to_renew(grant.sure_until(), entry.lease));
        Renew(Editing::new(desk, Keep { grant, entry, sent: Time::default(), word: Bytes::new() }))
    }
}

impl Procedure for Renew {
    type Output = Result<Grant, LockError>;

    fn resume(&mut self, now: Time, dice: &mut Rng, answer: Answer) -> Next<Self::Output> {
        self.0.resume(now, dice, answer)
    }
}

struct Keep {
    grant: Grant,
    /// As it is to be.
    entry: Entry,
    sent: Time,
    word: Bytes,
}

impl Keep {
    fn swap(&mut self, at: &At<'_>, compare: Bytes) -> Move<Result<Grant, LockError>> {
        let Some(mut word) = Word::decode(&compare) else { return Move::Done(Err(LockError::NoLock)) };
        let Some(mine) = word.holders.iter_mut().find(|entry| entry.nonce == self.entry.nonce) else {
            return Move::Done(Err(LockError::Lost));
        };
        *mine = self.entry.clone();
        self.sent = at.now;
        self.word = word.encode();
        Move::Swap(Swap { compare, swap: self.word.clone(), sets: Vec::new(), rest: Vec::new() })
    }

    fn kept(&self, word: Bytes) -> Move<Result<Grant, LockError>> {
        Move::Done(Ok(Grant { entry: self.entry.clone(), word, sent: self.sent, ..self.grant.clone() }))
    }
}

impl Editor for Keep {
    type Output = Result<Grant, LockError>;

    fn begin(&mut self, at: &mut At<'_>) -> Move<Self::Output> {
        self.swap(at, self.grant.word.clone())
    }

    fn look(&mut self, at: &mut At<'_>, seen: Seen) -> Move<Self::Output> {
        let there = Word::decode(&seen.word).and_then(|word| word.holder(self.entry.nonce).cloned());
        match there {
            Some(entry) if seen.doubt && entry == self.entry => return self.kept(seen.word),
            // Renewed by way of another copy of this grant: when, is not known here.
            Some(entry) if entry.beat >= self.entry.beat => self.entry = entry.beaten(),
            _ => {}
        }
        self.swap(at, seen.word)
    }

    fn made(&mut self, _at: &mut At<'_>, _results: Results) -> Move<Self::Output> {
        self.kept(self.word.clone())
    }

    fn fails(&mut self, trouble: Trouble) -> Self::Output {
        Err(if was_too_slow(trouble) { LockError::Uncertain } else { LockError::Trouble(trouble) })
    }
}

/// Gives a lock back.
pub struct Release(Editing<Give>);

impl Release {
    pub(super) fn new(grant: Grant) -> Release {
        Release(Give::new(grant, None))
    }
}

impl Procedure for Release {
    /// [`LockError::Lost`]: it was broken before.
    type Output = Result<(), LockError>;

    fn resume(&mut self, now: Time, dice: &mut Rng, answer: Answer) -> Next<Self::Output> {
        self.0.resume(now, dice, answer).map(|given| given.map(|_| ()))
    }
}

/// Has a last request done and gives a lock back, all at once.
pub struct ReleaseWith(Editing<Give>);

impl ReleaseWith {
    pub(super) fn new(grant: Grant, request: Vec<ObjectCommand>) -> ReleaseWith {
        ReleaseWith(Give::new(grant, Some(request)))
    }
}

impl Procedure for ReleaseWith {
    /// The request's results; none if it is known to have happened, but its answer was lost.
    type Output = Result<Option<Vec<CommandResult>>, LockError>;

    fn resume(&mut self, now: Time, dice: &mut Rng, answer: Answer) -> Next<Self::Output> {
        self.0.resume(now, dice, answer)
    }
}

type Given = Result<Option<Vec<CommandResult>>, LockError>;

struct Give {
    grant: Grant,
    request: Option<Vec<ObjectCommand>>,
    /// How many commands before the request are the lock's.
    own: usize,
    /// Some swap may have happened.
    doubted: bool,
}

impl Give {
    fn new(grant: Grant, request: Option<Vec<ObjectCommand>>) -> Editing<Give> {
        let desk = grant.lock.desk(patience_to_give_back(grant.entry.lease, request.is_some()));
        Editing::new(desk, Give { grant, request, own: 0, doubted: false })
    }

    fn swap(&mut self, compare: Bytes, mut word: Word) -> Move<Given> {
        word.holders.retain(|entry| entry.nonce != self.grant.entry.nonce);
        let lock = &self.grant.lock;
        let (mut sets, mut rest) = (Vec::new(), Asking::of(lock.object));
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

    /// It is not in the word any more.
    fn gone(&self, token: u64, trace: &Bytes) -> Given {
        let traced = number(trace) == Some(self.grant.entry.nonce);
        match (&self.request, self.doubted) {
            (_, false) => Err(LockError::Lost),
            (None, true) => Ok(None),
            (Some(_), true) if traced => Ok(None),
            (Some(_), true) if self.grant.lock.options.receipt.is_some() => Err(LockError::Lost),
            // The tenure ended once since: had that been this request, it would have left its trace, which only a later end takes away.
            (Some(_), true) if self.grant.mode == Mode::Exclusive && token == self.grant.token + 1 => {
                Err(LockError::Lost)
            }
            (Some(_), true) => Err(LockError::Trouble(Trouble::Unknown)),
        }
    }
}

impl Editor for Give {
    type Output = Given;

    fn begin(&mut self, _at: &mut At<'_>) -> Move<Given> {
        let compare = self.grant.word.clone();
        let word = Word::decode(&compare).expect("it was granted with this word");
        self.swap(compare, word)
    }

    fn look(&mut self, _at: &mut At<'_>, seen: Seen) -> Move<Given> {
        self.doubted |= seen.doubt;
        let (Some(word), Some(token)) = (Word::decode(&seen.word), number(&seen.extras[0])) else {
            return Move::Done(Err(LockError::NoLock));
        };
        if word.holder(self.grant.entry.nonce).is_none() {
            return Move::Done(self.gone(token, &seen.extras[1]));
        }
        self.swap(seen.word, word)
    }

    fn made(&mut self, _at: &mut At<'_>, results: Results) -> Move<Given> {
        Move::Done(Ok(Some(results.from(self.own))))
    }

    fn fails(&mut self, trouble: Trouble) -> Given {
        Err(LockError::Trouble(trouble))
    }
}
