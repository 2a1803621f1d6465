//! Fail-over without split brain (device-atomics paper, section 7.2). The leader shows its progress on the device that has its data. Backups
//! judge by this progress whether the leader is alive, and not by whether machines can reach each other.
//!
//! ```text
//!   three attributes of one number, on three pages that follow each other:
//!     word    term; the leader's name, nonce, progress (heartbeat) and lease
//!     fence   the term, while there is a leader
//!     trace   the nonce of the last leader that resigned together with other commands
//!
//!   leader     progress  CAS word: mine → mine, heartbeat + 1     every third of a lease; other word ──▶ deposed
//!              work      CAS fence: term → term, strictly; and the request
//!              resign    CAS word: mine → none;  fence := ∅
//!
//!   backup     look at word ─┬ no leader ────────────────────────┐
//!      ▲                     └ same heartbeat for a whole lease ─┴▶ CAS word: → term + 1, me;  fence := term + 1 ──▶ leads
//!      └── await another word, a lease at most ◀── else, or another was faster
//! ```
//!
//! A backup measures the lease by its own clock, from when it first saw a heartbeat: clocks of different machines are never compared
//! ([`crate::lease`]).
//!
//! What it guarantees, and what not, is in `docs/recipes/fail-over.md`.

use crate::cas_loop::{Patience, Swap, cas_loop};
use crate::fencing_token::{Fence, Unguardable, if_swapped};
use crate::hold_word::{Gone, HoldWord, Holding, Word};
use crate::lease::{Entry, Name, Watch};
use crate::procedure::{Operation, RequestFailure};
use braid_base::{Backoff, ObjectId, Time};
use braid_wire::{AttributeName, CommandResult, ObjectRequest};
use std::time::Duration;

/// The address of a service's leader record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailOver {
    place: HoldWord,
}

/// Options of a machine that takes part. All backups should use the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailOverOptions {
    /// A leader that makes no progress for this long has failed. It should make progress about three times as often.
    pub lease: Duration,
    /// When the device cannot wait for the word, or another backup was faster, the first pause is random, up to this; the limit doubles up
    /// to `longest_pause`.
    pub first_pause: Duration,
    /// The limit of pauses.
    pub longest_pause: Duration,
    /// How long a backup waits to become leader, and retries failed requests. It does not limit leadership, which ends with the lease.
    pub patience: Duration,
}

impl Default for FailOverOptions {
    /// A backup waits forever.
    fn default() -> FailOverOptions {
        FailOverOptions {
            lease: Duration::from_secs(10),
            first_pause: Duration::from_millis(1),
            longest_pause: Duration::from_secs(1),
            patience: Duration::MAX,
        }
    }
}

impl FailOver {
    /// The leader record in this attribute, and in those of the same number on the next two pages.
    pub fn new(object: ObjectId, attribute: AttributeName, options: FailOverOptions) -> FailOver {
        assert!(attribute.page < AttributeName::RESERVED_PAGES - 2, "its pages must not be reserved ones");
        let FailOverOptions { lease, first_pause, longest_pause, patience } = options;
        let page = |page| AttributeName::new(attribute.page + page, attribute.number);
        let backoff = Backoff::new(first_pause, longest_pause);
        let (word, fence, trace) = (attribute, page(1), page(2));
        FailOver { place: HoldWord { object, word, fence, trace, lease, backoff, patience } }
    }

    /// Waits until there is no leader, or the leader has failed, and becomes leader.
    pub fn campaign(&self, name: impl Into<Name>) -> Operation<Result<Leadership, FailOverError>> {
        let (place, name) = (self.place.clone(), name.into());
        cas_loop(self.place.target(Patience::For(self.place.patience)), |mut cas| async move {
            let (mut watch, mut sent) = (Watch::default(), Time::default());
            // The entry that it writes to the word.
            let mut own: Option<Entry> = None;
            let mut seen = cas.see().await?;
            loop {
                let word = Word::decode(&seen.word).ok_or(FailOverError::NoLeader)?;
                let term = word.number.checked_add(1).ok_or(FailOverError::NoLeader)?;
                if let Some(leader) = &word.holder {
                    if own.as_ref().is_some_and(|own| own.nonce == leader.nonce) {
                        return Ok(Leadership(Holding { place, number: word.number, entry: leader.clone(), sent }));
                    }
                    watch.see(cas.now(), [leader].into_iter());
                    if !watch.lost(cas.now(), leader) {
                        if cas.left().is_zero() {
                            return Err(FailOverError::TimedOut { leader: Some(leader.name.clone()) });
                        }
                        let same_for = watch.same_for(cas.now(), (leader.nonce, leader.heartbeat));
                        let patience = leader.lease.saturating_sub(same_for).min(cas.left());
                        cas.wait(place.word, seen.word, patience).await;
                        seen = cas.see().await?;
                        continue;
                    }
                }
                let entry = match &own {
                    None => cas.draw(|rng| Entry::new(name.clone(), place.lease, rng)),
                    Some(own) => own.next_heartbeat(),
                };
                own = Some(entry.clone());
                sent = cas.now();
                let swap = Word { number: term, holder: Some(entry.clone()) }.encode();
                let swap = Swap { compare: seen.word, swap, sets: vec![place.fence(Some(term))], rest: Vec::new() };
                match cas.swap_or_see(swap).await? {
                    None => return Ok(Leadership(Holding { place, number: term, entry, sent })),
                    Some(other) => seen = other,
                }
            }
        })
    }

    /// Reads who leads.
    pub fn leader(&self) -> Operation<Result<LeaderStatus, FailOverError>> {
        let status = |Word { number, holder }| LeaderStatus {
            term: number,
            leader: holder.map(|entry: Entry| (entry.name, entry.heartbeat)),
        };
        cas_loop(self.place.target(Patience::For(Duration::ZERO)), move |mut cas| async move {
            Word::decode(&cas.see().await?.word).map(status).ok_or(FailOverError::NoLeader)
        })
    }
}

/// The end of a leadership, with the last request's results; none if it is known to have happened, but its answer was lost.
pub type Resignation = Operation<Result<Option<Vec<CommandResult>>, FailOverError>>;

/// A leadership, held as far as the leader knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leadership(Holding);

impl Leadership {
    /// The term: higher than that of every leader before; a fencing token.
    pub fn term(&self) -> u64 {
        self.0.number
    }

    /// Until then no other machine can lead, by the clock by which it was won.
    pub fn sure_until(&self) -> Time {
        self.0.sure_until()
    }

    /// When to show progress: a third of the lease after it was last shown.
    pub fn progress_at(&self) -> Time {
        self.0.renew_at()
    }

    /// A request on the same device that has no effect if another machine leads. Pass its results to [`unguard`](crate::fencing_token::unguard).
    pub fn guard(&self, request: ObjectRequest) -> Result<ObjectRequest, Unguardable> {
        self.0.fence().guard(request)
    }

    /// The fence in an attribute of another object, on this device or another. A new leader raises it before its first read or write there,
    /// and guards all requests there by it.
    pub fn fence_at(&self, object: ObjectId, name: AttributeName) -> Fence {
        Fence { object, name, token: self.term() }
    }

    /// Shows progress, and leads for another lease. Ends at [`sure_until`](Leadership::sure_until) at the latest, or, if begun later, after
    /// a third of the lease.
    pub fn progress(&self) -> Operation<Result<Leadership, FailOverError>> {
        self.0.clone().renew(Leadership)
    }

    /// Gives up the leadership, so that backups need not wait. Tries for one lease; after that, others may take over anyway.
    pub fn resign(self) -> Resignation {
        self.give(None)
    }

    /// Executes a last request and gives up the leadership. If another machine leads, the request has no effect. Tries for three leases.
    pub fn resign_with(self, request: ObjectRequest) -> Result<Resignation, Unguardable> {
        Ok(self.give(Some(if_swapped(request, 1)?)))
    }

    fn give(self, request: Option<Vec<braid_wire::ObjectCommand>>) -> Resignation {
        let next = Word { number: self.term(), holder: None };
        self.0.give(next, Vec::new(), request)
    }
}

/// Why a machine does not lead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FailOverError {
    #[error("another machine leads: {}", .leader.as_ref().map_or("unknown".into(), |name| name.to_string()))]
    TimedOut {
        /// The leader, if known.
        leader: Option<Name>,
    },
    /// Another machine has taken over. A last request has had no effect.
    #[error("another machine has taken over, in term {term}")]
    Deposed {
        /// The present term.
        term: u64,
        /// Its leader; none if it has resigned.
        by: Option<Name>,
    },
    /// The outcome of showing progress was not known in time: another machine may have taken over. Showing progress again finds out.
    #[error("showing progress was not answered in time: another machine may have taken over")]
    Uncertain,
    #[error("the attribute does not contain a leader record")]
    NoLeader,
    /// The device cannot execute the request. After [`RequestFailure::Unknown`], it may have happened.
    #[error(transparent)]
    RequestFailure(#[from] RequestFailure),
}

impl From<Gone> for FailOverError {
    fn from(gone: Gone) -> FailOverError {
        match gone {
            Gone::Lost { number, by } => FailOverError::Deposed { term: number, by },
            Gone::Uncertain => FailOverError::Uncertain,
            Gone::Alien => FailOverError::NoLeader,
            Gone::RequestFailure(failure) => FailOverError::RequestFailure(failure),
        }
    }
}

/// The leader, as the word names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderStatus {
    /// The last term; 0 if there was none.
    pub term: u64,
    /// Its leader, and how often it has shown progress. It may have failed since.
    pub leader: Option<(Name, u64)>,
}
