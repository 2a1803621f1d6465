//! A word that contains a number and at most one holder: a delivery counter's turn and its holder, or a term and its leader. The module
//! renews the hold and gives it back.
//!
//! ```text
//!   1  version, 1       8  the number       0 or 1, and the holder's entry            undefined: 0, and no holder
//! ```

use crate::cas_loop::{CasLoop, CasTarget, Patience, Swap, Turn, cas_loop, number, number_bytes};
use crate::fencing_token::Fence;
use crate::lease::{Entry, Name, sure_until};
use crate::procedure::{Operation, RequestFailure};
use crate::request_builder::set;
use braid_base::{Backoff, ObjectId, Time};
use braid_wire::{AttributeName, CommandResult, ObjectCommand, ObjectFailure, SetAttribute};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::time::Duration;

const VERSION: u8 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    pub number: u64,
    pub holder: Option<Entry>,
}

impl Word {
    pub fn encode(&self) -> Bytes {
        let mut word = BytesMut::new();
        word.put_u8(VERSION);
        word.put_u64(self.number);
        word.put_u8(u8::from(self.holder.is_some()));
        self.holder.iter().for_each(|entry| entry.put(&mut word));
        word.freeze()
    }

    pub fn decode(word: &Bytes) -> Option<Word> {
        if word.is_empty() {
            return Some(Word { number: 0, holder: None });
        }
        let mut word = word.clone();
        let version = word.try_get_u8().ok()?;
        let number = word.try_get_u64().ok()?;
        let holder = match word.try_get_u8().ok()? {
            0 => None,
            1 => Some(Entry::take(&mut word)?),
            _ => return None,
        };
        (version == VERSION && word.is_empty()).then_some(Word { number, holder })
    }

    /// Another client is the holder, or none.
    fn lost(self) -> Gone {
        Gone::Lost { number: self.number, by: self.holder.map(|entry| entry.name) }
    }

    fn held_by(&self, nonce: u64) -> Option<&Entry> {
        self.holder.as_ref().filter(|entry| entry.nonce == nonce)
    }
}

/// The attributes of such a word: the word itself; a fence, which contains the number while there is a holder; and a trace of the last
/// holder that gave it back together with other commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HoldWord {
    pub object: ObjectId,
    pub word: AttributeName,
    pub fence: AttributeName,
    pub trace: AttributeName,
    pub lease: Duration,
    pub backoff: Backoff,
    /// How long the requester tries.
    pub patience: Duration,
}

impl HoldWord {
    pub fn target(&self, patience: Patience) -> CasTarget {
        let (object, word, extras) = (self.object, self.word, vec![self.trace]);
        CasTarget { object, word, extras, backoff: self.backoff, patience }
    }

    /// Sets the fence to this number; none: clears it.
    pub fn fence(&self, number: Option<u64>) -> SetAttribute {
        set(self.fence, &number.map_or(Bytes::new(), number_bytes))
    }
}

/// A word that is held, as far as its holder knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holding {
    pub place: HoldWord,
    pub number: u64,
    pub entry: Entry,
    /// When the request that granted or renewed it was sent.
    pub sent: Time,
}

impl Holding {
    pub fn sure_until(&self) -> Time {
        sure_until(self.sent, self.entry.lease)
    }

    pub fn renew_at(&self) -> Time {
        self.sent.after(self.entry.lease / 3)
    }

    /// The fence beside the word.
    pub fn fence(&self) -> Fence {
        Fence { object: self.place.object, name: self.place.fence, token: self.number }
    }

    fn word(&self) -> Bytes {
        Word { number: self.number, holder: Some(self.entry.clone()) }.encode()
    }

    /// Renews it for another lease.
    pub fn renew<T, E: From<Gone>>(
        self,
        renewed: impl FnOnce(Holding) -> T + Send + 'static,
    ) -> Operation<Result<T, E>> {
        let target = self.place.target(patience_to_renew(self.sure_until(), self.entry.lease));
        cas_loop(target, |mut cas| async move { Ok(renewed(self.keep(&mut cas).await?)) })
    }

    async fn keep(self, cas: &mut CasLoop) -> Result<Holding, Gone> {
        let (mut compare, mut entry) = (self.word(), self.entry.next_heartbeat());
        loop {
            let kept = Holding { entry: entry.clone(), sent: cas.now(), ..self.clone() };
            let swap = Swap { compare, swap: kept.word(), sets: Vec::new(), rest: Vec::new() };
            let turn = cas.swap(swap).await;
            compare =
                match turn.map_err(|failure| if was_too_slow(failure) { Gone::Uncertain } else { failure.into() })? {
                    Turn::Made(_) => return Ok(kept),
                    Turn::Paused => self.word(),
                    Turn::Seen(seen) => {
                        let word = Word::decode(&seen.word).ok_or(Gone::Alien)?;
                        let Some(held) = word.held_by(entry.nonce) else { return Err(word.lost()) };
                        if seen.outcome_unknown && *held == entry {
                            return Ok(kept);
                        }
                        // Renewed through another copy of this handle, at an unknown time.
                        if held.heartbeat >= entry.heartbeat {
                            entry = held.next_heartbeat();
                        }
                        seen.word
                    }
                }
        }
    }

    /// Gives it back: the word becomes `next`, these attributes are set and the request is executed, all or nothing. Returns the request's
    /// results; none if it is known to have happened, but its answer was lost.
    pub fn give<E: From<Gone>>(
        self,
        next: Word,
        mut sets: Vec<SetAttribute>,
        request: Option<Vec<ObjectCommand>>,
    ) -> Operation<Result<Option<Vec<CommandResult>>, E>> {
        let target = self.place.target(patience_to_give_back(self.entry.lease, request.is_some()));
        sets.push(self.place.fence(None));
        if request.is_some() {
            sets.push(set(self.place.trace, &number_bytes(self.entry.nonce)));
        }
        cas_loop(target, |mut cas| async move {
            let (mut compare, mut was_unknown) = (self.word(), false);
            loop {
                let rest = request.clone().unwrap_or_default();
                let swap = Swap { compare, swap: next.encode(), sets: sets.clone(), rest };
                compare = match cas.swap(swap).await.map_err(Gone::from)? {
                    Turn::Made(results) => return Ok(Some(results.from(1))),
                    Turn::Paused => self.word(),
                    Turn::Seen(seen) => {
                        was_unknown |= seen.outcome_unknown;
                        let word = Word::decode(&seen.word).ok_or(Gone::Alien)?;
                        if word.held_by(self.entry.nonce).is_none() {
                            let gone = self.gone(&next, word, &seen.extras[0], request.is_some(), was_unknown);
                            return Ok(gone.map(|()| None)?);
                        }
                        seen.word
                    }
                }
            }
        })
    }

    /// Whether it was given back, if another holder is in the word, or none.
    fn gone(&self, next: &Word, word: Word, trace: &Bytes, requests: bool, was_unknown: bool) -> Result<(), Gone> {
        let traced = number(trace) == Some(self.entry.nonce);
        // No later holder has given it back, which might have overwritten the trace: so without the trace, this request has not happened.
        let is_next = word.number.saturating_sub(1) <= self.number;
        let trace_is_intact = is_next && (next.number > self.number || word.holder.is_some());
        match requests {
            _ if !was_unknown => Err(word.lost()),
            false => Ok(()),
            true if traced => Ok(()),
            true if trace_is_intact => Err(word.lost()),
            true => Err(Gone::RequestFailure(RequestFailure::Unknown)),
        }
    }
}

/// The patience of a renewal. A renewal must be answered before the holder is unsure. If it begins later, it may still succeed, as long as
/// no other client has taken over.
pub(crate) fn patience_to_renew(sure_until: Time, lease: Duration) -> Patience {
    Patience::Until(sure_until, lease / 3)
}

/// The patience of giving back: one lease, after which others may take over anyway; three if there is a request whose outcome matters.
pub(crate) fn patience_to_give_back(lease: Duration, has_request: bool) -> Patience {
    Patience::Until(Time(0), if has_request { lease * 3 } else { lease })
}

/// True if a renewal with this failure ended because its time was up.
pub(crate) fn was_too_slow(failure: RequestFailure) -> bool {
    matches!(failure, RequestFailure::Unknown | RequestFailure::Refused(ObjectFailure::Busy))
}

/// Why it is not held any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    /// Another client has taken over: the present number, and its holder.
    Lost { number: u64, by: Option<Name> },
    /// Unknown: the lease expired before there was an answer.
    Uncertain,
    /// The attribute is used for something else.
    Alien,
    /// The device cannot execute the request.
    RequestFailure(RequestFailure),
}

impl From<RequestFailure> for Gone {
    fn from(failure: RequestFailure) -> Gone {
        Gone::RequestFailure(failure)
    }
}
