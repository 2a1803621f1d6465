//! Acquiring a lock, to hold it ([`Lock::acquire`]) or for one request ([`Lock::once`]).

use super::word::{READERS_MAX, Word};
use super::{Grant, LastRequest, Lock, LockError, Mode};
use crate::cas_loop::{CasLoop, CasPolicy, Move, MoveOf, Patience, Seen, StepContext, Swap, number, number_bytes};
use crate::fencing_token::{Unguardable, if_swapped};
use crate::lease::{Entry, Name, Watch};
use crate::procedure::{Mapped, Operation, RequestFailure};
use crate::request_builder::{RequestBuilder, Results, set};
use braid_base::Time;
use braid_wire::{CommandResult, ObjectCommand, ObjectRequest};
use bytes::Bytes;

impl Lock {
    /// Takes the lock for writing.
    pub fn acquire(&self, name: impl Into<Name>) -> Operation<Result<Grant, LockError>> {
        acquire(self, name.into(), Mode::Exclusive)
    }

    /// Takes the lock for reading.
    pub fn share(&self, name: impl Into<Name>) -> Operation<Result<Grant, LockError>> {
        acquire(self, name.into(), Mode::Shared)
    }

    /// Takes the lock, executes a request and releases the lock; in one round trip if the lock is free.
    pub fn once(&self, name: impl Into<Name>, request: ObjectRequest) -> Result<LastRequest, Unguardable> {
        let take = Take::new(self, name.into(), Mode::Exclusive, Some(if_swapped(request, 2)?));
        Ok(Box::new(Mapped(take, |taken: Result<Taken, LockError>| match taken? {
            Taken::Used(results) => Ok(results),
            Taken::Kept(_) => unreachable!("with a request, the lock is not kept"),
        })))
    }
}

fn acquire(lock: &Lock, name: Name, mode: Mode) -> Operation<Result<Grant, LockError>> {
    Box::new(Mapped(Take::new(lock, name, mode, None), |taken: Result<Taken, LockError>| match taken? {
        Taken::Kept(grant) => Ok(grant),
        Taken::Used(_) => unreachable!("without a request, the lock is kept"),
    }))
}

enum Taken {
    Kept(Grant),
    Used(Option<Vec<CommandResult>>),
}

struct Take {
    lock: Lock,
    mode: Mode,
    /// The request, if the lock is not to be kept.
    request: Option<Vec<ObjectCommand>>,
    name: Name,
    /// The entry last written to the word: with each swap its heartbeat grows.
    entry: Option<Entry>,
    watch: Watch,
    /// The patience has ended, and one more try was made with the word seen then.
    tried: bool,
    trying: Trying,
    sent: Time,
    /// When the request that last wrote its mark was sent.
    marked: Time,
    /// The value that the last swap writes.
    word: Bytes,
    /// The token as last seen: if it is unchanged, no hold has begun or ended since.
    token: Option<u64>,
    /// The holder that it last waited for.
    holder: Option<Name>,
}

/// The purpose of the last swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trying {
    /// To begin a hold.
    Begin,
    /// To join other readers.
    Join,
    /// To be next.
    Mark,
    /// To remove the mark: the patience has ended.
    Unmark,
}

impl Take {
    fn new(lock: &Lock, name: Name, mode: Mode, request: Option<Vec<ObjectCommand>>) -> CasLoop<Take> {
        let take = Take {
            lock: lock.clone(),
            mode,
            request,
            name,
            entry: None,
            watch: Watch::default(),
            tried: false,
            trying: Trying::Begin,
            sent: Time::default(),
            marked: Time::default(),
            word: Bytes::new(),
            token: None,
            holder: None,
        };
        CasLoop::new(lock.target(Patience::For(lock.options.patience)), take)
    }

    /// The entry for the next swap.
    fn next_entry(&mut self, ctx: &mut StepContext<'_>) -> Entry {
        let entry = match &self.entry {
            None => Entry::new(self.name.clone(), self.lock.options.lease, ctx.rng),
            Some(entry) => entry.next_heartbeat(),
        };
        self.entry.insert(entry).clone()
    }

    fn nonce(&self) -> Option<u64> {
        self.entry.as_ref().map(|entry| entry.nonce)
    }

    fn swap(&mut self, ctx: &StepContext<'_>, trying: Trying, compare: Bytes, word: &Word) -> MoveOf<Self> {
        self.trying = trying;
        self.sent = ctx.now;
        self.word = word.encode();
        let (mut sets, mut rest) = (Vec::new(), RequestBuilder::of(self.lock.object));
        if trying == Trying::Begin {
            // Without keeping the lock, a hold begins and ends.
            let counts = if self.request.is_some() { 2 } else { 1 };
            rest = rest.then_add(self.lock.token(), counts);
            if let (Some(request), Some(entry)) = (&self.request, &self.entry) {
                sets.push(set(self.lock.trace(), &number_bytes(entry.nonce)));
                rest = rest.then(request.iter().cloned());
            }
        }
        Move::Swap(Swap { compare, swap: self.word.clone(), sets, rest: rest.request().commands })
    }

    /// Begins a hold in place of the holders in the word.
    fn begin_hold(&mut self, ctx: &mut StepContext<'_>, compare: Bytes, mark: Option<Entry>) -> MoveOf<Self> {
        let entry = self.next_entry(ctx);
        let holders = if self.request.is_some() { Vec::new() } else { vec![entry] };
        let word = Word { mode: self.mode, holders, mark };
        self.swap(ctx, Trying::Begin, compare, &word)
    }

    fn wait(&mut self, word: &Word) -> MoveOf<Self> {
        self.holder = word.entries().find(|entry| Some(entry.nonce) != self.nonce()).map(|entry| entry.name.clone());
        Move::Pause
    }

    fn granted(&self, token: u64, word: Bytes) -> MoveOf<Self> {
        Move::Done(Ok(Taken::Kept(Grant {
            lock: self.lock.clone(),
            mode: self.mode,
            entry: self.entry.clone().expect("the swap wrote it"),
            token,
            word,
            sent: self.sent,
        })))
    }

    /// True if, by the word, there is no holder or writer to wait for.
    fn may_begin(&self, ctx: &StepContext<'_>, word: &Word) -> bool {
        let lives = |entry: &&Entry| !self.watch.lost(ctx.now, entry);
        let others_wait = word.mark.iter().filter(lives).any(|entry| Some(entry.nonce) != self.nonce());
        let live = word.holders.iter().filter(lives).count();
        let may_join = (word.mode, self.mode) == (Mode::Shared, Mode::Shared) && live < READERS_MAX;
        !others_wait && (live == 0 || may_join)
    }

    /// Whether a request whose answer was lost has happened; none if that cannot be determined any more.
    fn resolve(&self, token: u64, trace: &Bytes) -> Option<bool> {
        if self.nonce().is_some_and(|nonce| number(trace) == Some(nonce)) {
            return Some(true);
        }
        // It would have changed the token and left a trace, which only another client's request overwrites; an idempotency record is never
        // overwritten.
        let not_happened =
            self.token == Some(token) || trace.is_empty() || self.lock.options.idempotency_record.is_some();
        not_happened.then_some(false)
    }
}

impl CasPolicy for Take {
    type Value = Taken;
    type Error = LockError;

    fn begin(&mut self, ctx: &mut StepContext<'_>) -> MoveOf<Self> {
        // A request that goes with the lock is sent in vain at most once.
        if self.entry.is_some() && (ctx.left.is_zero() || self.request.is_some()) {
            return Move::Look;
        }
        self.begin_hold(ctx, Bytes::new(), None)
    }

    fn look(&mut self, ctx: &mut StepContext<'_>, seen: Seen) -> MoveOf<Self> {
        let (Some(word), Some(token)) = (Word::decode(&seen.word), number(&seen.extras[0])) else {
            return Move::Done(Err(LockError::NoLock));
        };
        if let Some(entry) = self.nonce().and_then(|nonce| word.holder(nonce)) {
            self.entry = Some(entry.clone());
            return self.granted(token, seen.word);
        }
        if seen.outcome_unknown && self.request.is_some() && self.trying == Trying::Begin {
            match self.resolve(token, &seen.extras[1]) {
                Some(true) => return Move::Done(Ok(Taken::Used(None))),
                Some(false) => {}
                None => return Move::Done(Err(LockError::RequestFailure(RequestFailure::Unknown))),
            }
        }
        self.token = Some(token);
        self.watch.see(ctx.now, word.entries());
        let own = self.nonce();
        let mine = |entry: &Entry| Some(entry.nonce) == own;
        let marked = word.mark.as_ref().is_some_and(mine);
        // Even without patience, one try is made.
        if ctx.left.is_zero() && (self.tried || !self.may_begin(ctx, &word)) {
            if marked {
                return self.swap(ctx, Trying::Unmark, seen.word, &Word { mark: None, ..word });
            }
            self.wait(&word);
            return Move::Done(Err(LockError::TimedOut { holder: self.holder.take() }));
        }
        self.tried = ctx.left.is_zero();
        let lost = |entry: &Entry| self.watch.lost(ctx.now, entry);
        let live: Vec<Entry> = word.holders.iter().filter(|entry| !lost(entry)).cloned().collect();
        // Another writer's mark; a lost one does not count.
        let mark = word.mark.clone().filter(|entry| !mine(entry) && !lost(entry));
        if mark.is_some() {
            return self.wait(&word);
        }
        if live.is_empty() {
            return self.begin_hold(ctx, seen.word, None);
        }
        match (word.mode, self.mode) {
            (Mode::Shared, Mode::Shared) if live.len() < READERS_MAX => {
                let mut holders = live;
                holders.push(self.next_entry(ctx));
                self.swap(ctx, Trying::Join, seen.word, &Word { mode: Mode::Shared, holders, mark: None })
            }
            (Mode::Shared, Mode::Exclusive) if !marked || ctx.now.since(self.marked) >= self.lock.options.lease / 4 => {
                let mark = Some(self.next_entry(ctx));
                self.swap(ctx, Trying::Mark, seen.word, &Word { mode: Mode::Shared, holders: live, mark })
            }
            _ => self.wait(&word),
        }
    }

    fn made(&mut self, _ctx: &mut StepContext<'_>, results: Results) -> MoveOf<Self> {
        match self.trying {
            Trying::Begin if self.request.is_some() => Move::Done(Ok(Taken::Used(Some(results.from(2))))),
            Trying::Begin => match results.added(1) {
                Ok(Some(before)) => self.granted(before.wrapping_add(1) as u64, self.word.clone()),
                _ => Move::Look,
            },
            // The extras: the token, and the trace.
            Trying::Join => match results.values(0, 2).ok().and_then(|values| number(&values[0])) {
                Some(token) => self.granted(token, self.word.clone()),
                None => Move::Look,
            },
            Trying::Mark => {
                self.marked = self.sent;
                Move::Pause
            }
            Trying::Unmark => Move::Done(Err(LockError::TimedOut { holder: self.holder.take() })),
        }
    }
}
