//! A lock for one writer or many readers, stored in attributes (device-atomics paper, section 8; the one-trip unlock is its closing remark).
//! There is no lock manager: a client takes the lock by compare-and-swap, and a holder may crash.
//!
//! ```text
//!   three attributes of one number, on three pages that follow each other:
//!     word    free: ∅ (undefined); else one writer or up to 64 readers (name, nonce, heartbeat, lease), and the mark of a waiting writer
//!     token   counts the beginnings and ends of holds; all guards compare it
//!     trace   the nonce of the client that last ended its hold together with other commands
//!
//!   acquire   CAS  word: ∅ → mine;  FA token + 1 ─────────────────────────── swapped ──▶ granted, with that token
//!                └─ other word ─┬ all holders lost: CAS word → mine; FA + 1 ─ swapped ─▶ granted (the lock is broken)
//!                               ├ readers, and I read, and no mark: CAS word → with me ▶ granted, with the readers' token
//!                               ├ readers, and I write: CAS word → with my mark; wait
//!                               └ else wait: a random time up to first_pause · 2ⁿ, at most longest_pause
//!   renew     CAS  word: → the same, with my heartbeat + 1
//!   release   CAS  word: → without me; FA token + 1 if no holder is left;  and, in the same request, the last request
//!   once      CAS  word: ∅ → ∅;  FA token + 2;  and the request
//!   guarded   CAS  token: mine → mine, strictly;  and the request
//! ```
//!
//! A *hold* is the time of one writer, or the time from the first reader to the last. [`crate::lease`] says when a holder is lost.
//!
//! What it guarantees, and what not, is in `docs/recipes/lock.md`.

mod keep;
mod take;
mod word;

use crate::cas_loop::{CasTarget, Patience, cas_loop, number};
use crate::fencing_token::{Fence, Unguardable};
use crate::idempotency_record::IdempotencyRecord;
use crate::lease::{Entry, Name, sure_until};
use crate::procedure::{Operation, RequestFailure};
use braid_base::{Backoff, ObjectId, Time};
use braid_wire::{AttributeName, CommandResult, ObjectRequest};
use bytes::Bytes;
use std::time::Duration;
use word::Word;

pub use word::READERS_MAX;

/// A lock's address, and how this program uses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    object: ObjectId,
    word: AttributeName,
    options: LockOptions,
}

/// Options of a lock. Programs with different options can share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockOptions {
    /// A holder that has not renewed for this long is considered dead. Renew three times as often.
    pub lease: Duration,
    /// The first pause before a retry is random, up to this; the limit doubles up to `longest_pause`.
    pub first_pause: Duration,
    /// The limit of pauses. A quarter of the lease applies if that is shorter: otherwise a waiting writer would be considered dead.
    pub longest_pause: Duration,
    /// How long to try to take the lock. If it is not longer than the leases of others, no lost holder is detected.
    pub patience: Duration,
    /// Where this program's last requests record that they have happened ([`Grant::release_with`], [`Lock::once`]), instead of in the
    /// trace: other clients do not overwrite it. Not for objects that attribute volumes spread. A program that drops an operation before it
    /// has ended must use another idempotency record for the next one, since the dropped operation may still be executed.
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
    /// By one writer.
    Exclusive,
    /// By any number of readers.
    Shared,
}

impl Lock {
    /// The lock in this attribute, and in the attributes of the same number on the next two pages.
    pub fn new(object: ObjectId, attribute: AttributeName, options: LockOptions) -> Lock {
        assert!(attribute.page < AttributeName::RESERVED_PAGES - 2, "the lock's pages must not be reserved ones");
        Lock { object, word: attribute, options }
    }

    /// Reads who holds the lock.
    pub fn status(&self) -> Operation<Result<LockStatus, LockError>> {
        cas_loop(self.target(Patience::For(Duration::ZERO)), |mut cas| async move {
            let seen = cas.see().await?;
            let (Some(Word { mode, holders, mark }), Some(token)) = (Word::decode(&seen.word), number(&seen.extras[0]))
            else {
                return Err(LockError::NoLock);
            };
            Ok(LockStatus {
                mode: (!holders.is_empty()).then_some(mode),
                holders: holders.into_iter().map(|entry| entry.name).collect(),
                waiting: mark.map(|entry| entry.name),
                token,
            })
        })
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
            backoff: Backoff::new(self.options.first_pause, self.options.longest_pause.min(self.options.lease / 4)),
            patience,
        }
    }
}

/// An operation with a request as its last step. The results are none if it is known to have happened, but its answer was lost.
pub type LastRequest = Operation<Result<Option<Vec<CommandResult>>, LockError>>;

/// A lock that is held, as far as its holder knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    lock: Lock,
    mode: Mode,
    entry: Entry,
    token: u64,
    /// The word as it was last seen.
    word: Bytes,
    /// When the request that granted or renewed it was sent.
    sent: Time,
}

impl Grant {
    /// The fencing token: higher than that of every hold before.
    pub fn token(&self) -> u64 {
        self.token
    }

    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Until then no other client can have broken the lock, by the clock by which it was acquired.
    pub fn sure_until(&self) -> Time {
        sure_until(self.sent, self.entry.lease)
    }

    /// When to renew it: a third of its lease after it was granted or last renewed.
    pub fn renew_at(&self) -> Time {
        self.sent.after(self.entry.lease / 3)
    }

    /// A request on the same device that has no effect if the lock is no longer held. Pass its results to
    /// [`unguard`](crate::fencing_token::unguard).
    pub fn guard(&self, request: ObjectRequest) -> Result<ObjectRequest, Unguardable> {
        self.fence_at(self.lock.object, self.lock.token()).guard(request)
    }

    /// The fence in an attribute of another object, on this device or another. Raise it before the first read or write there, and guard all
    /// requests there by it.
    pub fn fence_at(&self, object: ObjectId, name: AttributeName) -> Fence {
        Fence { object, name, token: self.token }
    }
}

/// Why a lock is not held.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// Other clients held it all the time.
    #[error("the lock was not obtained in time: {} holds it", .holder.as_ref().map_or("another client".into(), |name| name.to_string()))]
    TimedOut { holder: Option<Name> },
    /// The lease has expired, and another client has broken the lock. A last request has had no effect.
    #[error("the lock was lost: its lease expired, and another client has taken it")]
    Lost,
    /// The outcome of a renewal was not known in time: another client may have broken the lock. Renewing it again finds out.
    #[error("the renewal of the lock was not answered in time: other clients may have broken it")]
    Uncertain,
    /// The attribute is used for something else.
    #[error("the attribute is not a lock")]
    NoLock,
    /// The device cannot execute the request. After [`RequestFailure::Unknown`], a lock that may have been taken is free again after its
    /// lease.
    #[error(transparent)]
    RequestFailure(#[from] RequestFailure),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockStatus {
    /// How it is held; none if it is free.
    pub mode: Option<Mode>,
    /// The holders, some of which may be dead.
    pub holders: Vec<Name>,
    /// The waiting writer that is next.
    pub waiting: Option<Name>,
    /// The last token.
    pub token: u64,
}
