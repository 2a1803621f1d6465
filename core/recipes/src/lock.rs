//! A lock in an attribute, for one writer or many readers (device atomics, section 8; the one-trip unlock is its closing remark). No lock manager:
//! who wants the lock swaps it in, and who holds it may die.
//!
//! ```text
//!   three attributes of one number, on three pages that follow each other:
//!     word    free: undefined; else one writer or up to 64 readers (name, nonce, beat, lease), and the mark of a writer that waits
//!     token   counts the holds' beginnings and ends; all guards compare it
//!     trace   the nonce of who last ended its hold together with other commands
//!
//!   acquire   CAS  word: undefined → mine;  FA token + 1 ─────────────────── swapped ──▶ granted, with that token
//!                └─ other word ─┬ all holders lost: CAS word → mine; FA + 1 ─ swapped ─▶ granted (the lock is broken)
//!                               ├ readers, and I read, and no mark: CAS word → with me ▶ granted, with the readers' token
//!                               ├ readers, and I write: CAS word → with my mark; wait
//!                               └ else wait: a random span up to first_pause · 2ⁿ, at most longest_pause
//!   renew     CAS  word: → the same, with my beat + 1
//!   release   CAS  word: → without me; FA token + 1 if nobody is left;  and, in the same request, what is to be done last
//!   once      CAS  word: undefined → undefined;  FA token + 2;  and what is to be done
//!   guarded   CAS  token: mine → mine, strictly;  and what is to be done
//! ```
//!
//! A *hold* is the time of one writer, or the time from the first reader to the last. When a holder is lost, see [`crate::lease`].
//!
//! Guarantees:
//!
//! - **One hold at a time**: of guarded requests (and of what goes with [`Grant::release_with`] and [`Lock::once`]), those of two
//!   holds never mix; those of a writer are nobody else's at the same time.
//! - **Tokens grow**: each hold's is higher than those before, and guards nothing before the hold or after it.
//! - **No lock is lost for ever**: a holder that is silent for its lease is broken by the next who comes.
//! - **A waiting writer is next**: once its mark is there no reader comes in, and no other writer, while the mark is renewed.
//! - **A lost answer is found out**: who acquires, renews or releases knows in the end whether it has, by its nonce. Of commands that
//!   went with it, it knows if it has a [idempotency record](crate::idempotency record); else by the trace, unless that is another's by now, or (of the first request of
//!   [`Lock::once`], which knows nothing of the lock) was another's before. Then it says that it does not know ([`RequestFailure::Unknown`]).
//!
//! Not guaranteed: order among writers that meet only writers (that is [`counter`](crate::counter)'s), and turns for readers while writers come without end.
//! Exclusion for requests without a guard: between renewals a holder is sure of itself until [`Grant::sure_until`], if no clock runs
//! more than 1/16 fast. And the three attributes must not be removed or set otherwise: then tokens begin anew.

mod keep;
mod take;
mod word;

pub use keep::{Release, ReleaseWith, Renew};
pub use take::{Acquire, Once};

use crate::asking::Results;
use crate::edit::{At, Backoff, CasLoop, CasPolicy, CasTarget, Move, Patience, Seen, number};
use crate::fence::{Fence, Unguardable, if_swapped};
use crate::idempotency_record::IdempotencyRecord;
use crate::lease::{Entry, Name, sure_until};
use crate::procedure::{Answer, Next, Procedure, RequestFailure};
use braid_base::{ObjectId, Rng, Time};
use braid_wire::{AttributeName, ObjectRequest};
use bytes::Bytes;
use std::time::Duration;
use word::Word;

pub use word::READERS_MAX;

/// Where a lock is, and how this program uses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    object: ObjectId,
    word: AttributeName,
    options: LockOptions,
}

/// How a lock is used. Programs with different options can share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockOptions {
    /// A holder that has not renewed for so long is taken for dead. Renew three times as often.
    pub lease: Duration,
    /// The first pause before trying again is up to this; the limit doubles up to `longest_pause`.
    pub first_pause: Duration,
    /// See `first_pause`. A quarter of the lease counts if that is shorter: else a waiting writer's mark would be taken for a dead one's.
    pub longest_pause: Duration,
    /// How long to try to take it. If it is not longer than others' leases, nobody who was lost is noticed.
    pub patience: Duration,
    /// Where this program's last requests leave word that they have happened ([`Grant::release_with`], [`Lock::once`]), instead of the trace: then no one
    /// else's takes that away. Not for objects that attribute volumes spread; and who drops an operation before it has ended takes another idempotency record, for that one may
    /// be done yet.
    pub idempotency_record: Option<IdempotencyRecord>,
}

impl Default for LockOptions {
    fn default() -> LockOptions {
        LockOptions {
            lease: Duration::from_secs(10),
            first_pause: Duration::from_millis(1),
            longest_pause: Duration::from_millis(500),
            patience: Duration::from_secs(30),
            idempotency_record: None,
        }
    }
}

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// By one.
    Exclusive,
    /// By readers.
    Shared,
}

impl Lock {
    /// The lock in this attribute, and in those of the same number on the next two pages.
    pub fn new(object: ObjectId, attribute: AttributeName, options: LockOptions) -> Lock {
        assert!(attribute.page < AttributeName::RESERVED_PAGES - 2, "the lock's pages are no device's");
        Lock { object, word: attribute, options }
    }

    /// Takes the lock for one that writes.
    pub fn acquire(&self, name: impl Into<Name>) -> Acquire {
        Acquire::new(self, name.into(), Mode::Exclusive)
    }

    /// Takes the lock for one of many that read.
    pub fn share(&self, name: impl Into<Name>) -> Acquire {
        Acquire::new(self, name.into(), Mode::Shared)
    }

    /// Takes the lock, has a request done, and releases the lock, in one round trip if it is free.
    pub fn once(&self, name: impl Into<Name>, request: ObjectRequest) -> Result<Once, Unguardable> {
        Ok(Once::new(self, name.into(), if_swapped(request, 2)?))
    }

    /// Looks who holds it.
    pub fn status(&self) -> Status {
        Status(CasLoop::new(self.target(Patience::For(Duration::ZERO)), Looking))
    }

    fn token(&self) -> AttributeName {
        AttributeName::new(self.word.page + 1, self.word.number)
    }

    fn trace(&self) -> AttributeName {
        let trace = AttributeName::new(self.word.page + 2, self.word.number);
        self.options.idempotency_record.map_or(trace, IdempotencyRecord::attribute)
    }

    fn target(&self, patience: Patience) -> CasTarget {
        CasTarget {
            object: self.object,
            word: self.word,
            extras: vec![self.token(), self.trace()],
            backoff: self.backoff(),
            patience,
        }
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(self.options.first_pause, self.options.longest_pause.min(self.options.lease / 4))
    }
}

/// A lock that is held, as far as its holder knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    lock: Lock,
    mode: Mode,
    entry: Entry,
    token: u64,
    /// The word as it was last seen.
    word: Bytes,
    /// When the request was sent that granted or renewed it.
    sent: Time,
}

impl Grant {
    /// The fencing token: higher than that of every hold before.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// How it is held.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Until when nobody else can have broken it, by the clock by which it was acquired.
    pub fn sure_until(&self) -> Time {
        sure_until(self.sent, self.entry.lease)
    }

    /// When to renew it: a third of its lease after it was granted or renewed.
    pub fn renew_at(&self) -> Time {
        self.sent.after(self.entry.lease / 3)
    }

    /// A request on the same device, of which nothing happens if the lock is no longer held. [`unguard`](crate::fence::unguard) its results.
    pub fn guard(&self, request: ObjectRequest) -> Result<ObjectRequest, Unguardable> {
        self.fence_at(self.lock.object, self.lock.token()).guard(request)
    }

    /// The fence in some other object's attribute, on this device or another: raise it before anything there is read or written, and
    /// guard by it what is.
    pub fn fence_at(&self, object: ObjectId, name: AttributeName) -> Fence {
        Fence { object, name, token: self.token }
    }

    /// Keeps it for another lease. It ends at [`sure_until`](Grant::sure_until) at the latest, or, begun later, after a third of the lease.
    pub fn renew(&self) -> Renew {
        Renew::new(self.clone())
    }

    /// Gives it back. Tries for a lease; then it is others' anyhow.
    pub fn release(self) -> Release {
        Release::new(self)
    }

    /// Has a last request done and gives it back, in one round trip. If it is no longer held, nothing of the request happens. Tries for three
    /// leases, to know what came of it.
    pub fn release_with(self, request: ObjectRequest) -> Result<ReleaseWith, Unguardable> {
        Ok(ReleaseWith::new(self, if_swapped(request, 2)?))
    }
}

/// Why a lock is not had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// Others had it all the time.
    #[error("the lock was not to be had in time: {} has it", .holder.as_ref().map_or("somebody".into(), |name| name.to_string()))]
    TimedOut {
        /// One of those that have it.
        holder: Option<Name>,
    },
    /// The lease has run out, and others have broken the lock. Nothing of a last request has happened.
    #[error("the lock was lost: its lease ran out, and another one came")]
    Lost,
    /// It was not heard in time whether the lock was renewed: others may have broken it by now. Renewing it again finds out.
    #[error("it was not heard in time whether the lock was kept: others may have broken it by now")]
    Uncertain,
    /// The attribute is used for something else.
    #[error("what is there is no lock")]
    NoLock,
    /// The device can't. If it is [`RequestFailure::Unknown`], a lock that may have been taken is free again after its lease.
    #[error("{0}")]
    RequestFailure(RequestFailure),
}

/// Who holds a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockStatus {
    /// How it is held; none: it is free.
    pub mode: Option<Mode>,
    /// The holders, some of which may be dead.
    pub holders: Vec<Name>,
    /// The writer that is next.
    pub waiting: Option<Name>,
    /// The last token.
    pub token: u64,
}

/// Looks who holds a lock.
pub struct Status(CasLoop<Looking>);

impl Procedure for Status {
    type Output = Result<LockStatus, LockError>;

    fn resume(&mut self, now: Time, rng: &mut Rng, answer: Answer) -> Next<Self::Output> {
        self.0.resume(now, rng, answer)
    }
}

struct Looking;

impl CasPolicy for Looking {
    type Output = Result<LockStatus, LockError>;

    fn look(&mut self, _at: &mut At<'_>, seen: Seen) -> Move<Self::Output> {
        let (Some(Word { mode, holders, mark }), Some(token)) = (Word::decode(&seen.word), number(&seen.extras[0]))
        else {
            return Move::Done(Err(LockError::NoLock));
        };
        Move::Done(Ok(LockStatus {
            mode: (!holders.is_empty()).then_some(mode),
            holders: holders.into_iter().map(|entry| entry.name).collect(),
            waiting: mark.map(|entry| entry.name),
            token,
        }))
    }

    fn made(&mut self, _at: &mut At<'_>, _results: Results) -> Move<Self::Output> {
        unreachable!("who looks swaps nothing")
    }

    fn fails(&mut self, failure: RequestFailure) -> Self::Output {
        Err(LockError::RequestFailure(failure))
    }
}
