//! Acquiring a lock, to hold it ([`Lock::acquire`]) or for one request ([`Lock::once`]).

use super::word::{READERS_MAX, Word};
use super::{Grant, LastRequest, Lock, LockError, Mode};
use crate::cas_loop::{CasLoop, Patience, Seen, Swap, Turn, cas_loop, number, number_bytes};
use crate::fencing_token::{Unguardable, if_swapped};
use crate::lease::{Entry, Name, Watch};
use crate::procedure::{Operation, RequestFailure};
use crate::request_builder::{RequestBuilder, set};
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
        let request = if_swapped(request, 2)?;
        Ok(take(self, name.into(), Mode::Exclusive, Some(request), |taken| match taken {
            Taken::Used(results) => results,
            Taken::Kept(_) => unreachable!("with a request, the lock is not kept"),
        }))
    }
}

fn acquire(lock: &Lock, name: Name, mode: Mode) -> Operation<Result<Grant, LockError>> {
    take(lock, name, mode, None, |taken| match taken {
        Taken::Kept(grant) => grant,
        Taken::Used(_) => unreachable!("without a request, the lock is kept"),
    })
}

fn take<T: 'static>(
    lock: &Lock,
    name: Name,
    mode: Mode,
    request: Option<Vec<ObjectCommand>>,
    taken: fn(Taken) -> T,
) -> Operation<Result<T, LockError>> {
    let (target, lock) = (lock.target(Patience::For(lock.options.patience)), lock.clone());
    cas_loop(target, move |cas| async move {
        let (entry, watch, trying, sent) = (None, Watch::default(), Trying::Begin, Time::default());
        let take = Take { cas, lock, mode, request, name, entry, watch, trying, sent, marked: sent, token: None };
        take.run().await.map(taken)
    })
}

enum Taken {
    Kept(Grant),
    Used(Option<Vec<CommandResult>>),
}

struct Take {
    cas: CasLoop,
    lock: Lock,
    mode: Mode,
    /// The request, if the lock is not to be kept.
    request: Option<Vec<ObjectCommand>>,
    name: Name,
    /// The entry last written to the word: with each swap its heartbeat grows.
    entry: Option<Entry>,
    watch: Watch,
    /// The purpose of the last swap, and when it was sent.
    trying: Trying,
    sent: Time,
    /// When the request that last wrote its mark was sent.
    marked: Time,
    /// The token as last seen: if it is unchanged, no hold has begun or ended since.
    token: Option<u64>,
}

/// The purpose of a swap.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Trying {
    /// To begin a hold.
    Begin,
    /// To join other readers.
    Join,
    /// To be next.
    Mark,
    /// To remove the mark: the patience has ended, and this client, if any, holds the lock.
    Unmark(Option<Name>),
}

/// The next step by a word that was seen.
enum Step {
    Swap(Trying, Bytes, Word),
    Wait,
    Done(Taken),
}

impl Take {
    async fn run(mut self) -> Result<Taken, LockError> {
        let mut seen = None;
        // The patience has ended, and one more try was made with the word seen then.
        let mut tried = false;
        loop {
            let step = match seen.take() {
                Some(seen) => self.decide(seen, &mut tried)?,
                // A request that goes with the lock is sent in vain at most once.
                None if self.entry.is_some() && (self.cas.left().is_zero() || self.request.is_some()) => {
                    seen = self.look().await?;
                    continue;
                }
                None => self.begin_hold(Bytes::new()),
            };
            match step {
                Step::Done(taken) => return Ok(taken),
                Step::Wait => self.cas.pause().await,
                Step::Swap(trying, compare, word) => {
                    (self.trying, self.sent) = (trying, self.cas.now());
                    let word = word.encode();
                    let results = match self.cas.swap(self.swap(compare, word.clone())).await? {
                        Turn::Made(results) => results,
                        Turn::Seen(other) => {
                            seen = Some(other);
                            continue;
                        }
                        Turn::Paused => continue,
                    };
                    let token = match &self.trying {
                        Trying::Begin if self.request.is_some() => return Ok(Taken::Used(Some(results.from(2)))),
                        Trying::Begin => results.added(1).ok().flatten().map(|before| before.wrapping_add(1) as u64),
                        // The extras: the token, and the trace.
                        Trying::Join => results.values(0, 2).ok().and_then(|values| number(&values[0])),
                        Trying::Mark => {
                            self.marked = self.sent;
                            self.cas.pause().await;
                            continue;
                        }
                        Trying::Unmark(holder) => return Err(LockError::TimedOut { holder: holder.clone() }),
                    };
                    match token {
                        Some(token) => return Ok(self.granted(token, word)),
                        None => seen = self.look().await?,
                    }
                }
            }
        }
    }

    async fn look(&mut self) -> Result<Option<Seen>, LockError> {
        Ok(if let Turn::Seen(seen) = self.cas.look().await? { Some(seen) } else { None })
    }

    fn decide(&mut self, seen: Seen, tried: &mut bool) -> Result<Step, LockError> {
        let (Some(word), Some(token)) = (Word::decode(&seen.word), number(&seen.extras[0])) else {
            return Err(LockError::NoLock);
        };
        if let Some(entry) = self.nonce().and_then(|nonce| word.holder(nonce)) {
            self.entry = Some(entry.clone());
            return Ok(Step::Done(self.granted(token, seen.word)));
        }
        if seen.outcome_unknown && self.request.is_some() && self.trying == Trying::Begin {
            match self.resolve(token, &seen.extras[1]) {
                Some(true) => return Ok(Step::Done(Taken::Used(None))),
                Some(false) => {}
                None => return Err(LockError::RequestFailure(RequestFailure::Unknown)),
            }
        }
        self.token = Some(token);
        let (now, own) = (self.cas.now(), self.nonce());
        self.watch.see(now, word.entries());
        let mine = |entry: &Entry| Some(entry.nonce) == own;
        let marked = word.mark.as_ref().is_some_and(mine);
        // Even without patience, one try is made.
        if self.cas.left().is_zero() && (*tried || !self.may_begin(&word)) {
            let holder = word.entries().find(|entry| !mine(entry)).map(|entry| entry.name.clone());
            if marked {
                return Ok(Step::Swap(Trying::Unmark(holder), seen.word, Word { mark: None, ..word }));
            }
            return Err(LockError::TimedOut { holder });
        }
        *tried = self.cas.left().is_zero();
        let lost = |entry: &Entry| self.watch.lost(now, entry);
        let live: Vec<Entry> = word.holders.iter().filter(|entry| !lost(entry)).cloned().collect();
        // Another writer's mark; a lost one does not count.
        if word.mark.as_ref().is_some_and(|entry| !mine(entry) && !lost(entry)) {
            return Ok(Step::Wait);
        }
        if live.is_empty() {
            return Ok(self.begin_hold(seen.word));
        }
        Ok(match (word.mode, self.mode) {
            (Mode::Shared, Mode::Shared) if live.len() < READERS_MAX => {
                let mut holders = live;
                holders.push(self.next_entry());
                Step::Swap(Trying::Join, seen.word, Word { mode: Mode::Shared, holders, mark: None })
            }
            (Mode::Shared, Mode::Exclusive) if !marked || now.since(self.marked) >= self.lock.options.lease / 4 => {
                let mark = Some(self.next_entry());
                Step::Swap(Trying::Mark, seen.word, Word { mode: Mode::Shared, holders: live, mark })
            }
            _ => Step::Wait,
        })
    }

    /// Begins a hold in place of the holders in the word.
    fn begin_hold(&mut self, compare: Bytes) -> Step {
        let entry = self.next_entry();
        let holders = if self.request.is_some() { Vec::new() } else { vec![entry] };
        Step::Swap(Trying::Begin, compare, Word { mode: self.mode, holders, mark: None })
    }

    /// The swap for what it is trying.
    fn swap(&self, compare: Bytes, swap: Bytes) -> Swap {
        let (mut sets, mut rest) = (Vec::new(), RequestBuilder::of(self.lock.object));
        if self.trying == Trying::Begin {
            // Without keeping the lock, a hold begins and ends.
            let counts = if self.request.is_some() { 2 } else { 1 };
            rest = rest.then_add(self.lock.token(), counts);
            if let (Some(request), Some(entry)) = (&self.request, &self.entry) {
                sets.push(set(self.lock.trace(), &number_bytes(entry.nonce)));
                rest = rest.then(request.iter().cloned());
            }
        }
        Swap { compare, swap, sets, rest: rest.request().commands }
    }

    /// The entry for the next swap.
    fn next_entry(&mut self) -> Entry {
        let entry = match &self.entry {
            None => self.cas.draw(|rng| Entry::new(self.name.clone(), self.lock.options.lease, rng)),
            Some(entry) => entry.next_heartbeat(),
        };
        self.entry.insert(entry).clone()
    }

    fn nonce(&self) -> Option<u64> {
        self.entry.as_ref().map(|entry| entry.nonce)
    }

    fn granted(&self, token: u64, word: Bytes) -> Taken {
        let entry = self.entry.clone().expect("the swap wrote it");
        Taken::Kept(Grant { lock: self.lock.clone(), mode: self.mode, entry, token, word, sent: self.sent })
    }

    /// True if, by the word, there is no holder or writer to wait for.
    fn may_begin(&self, word: &Word) -> bool {
        let lives = |entry: &&Entry| !self.watch.lost(self.cas.now(), entry);
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
