//! A word that contains a number and at most one holder: a delivery counter's turn and its holder, or a term and its leader. The module
//! renews the hold and gives it back.
//!
//! ```text
//!   1  version, 1       8  the number       0 or 1, and the holder's entry            undefined: 0, and no holder
//! ```

use crate::cas_loop::{
    CasLoop, CasPolicy, CasTarget, Move, MoveOf, Patience, Seen, StepContext, Swap, number, number_bytes,
};
use crate::fencing_token::Fence;
use crate::lease::{Entry, Name, sure_until};
use crate::procedure::RequestFailure;
use crate::request_builder::{Results, set};
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
    pub fn renew(self) -> CasLoop<Keep> {
        let entry = self.entry.next_heartbeat();
        let target = self.place.target(patience_to_renew(self.sure_until(), self.entry.lease));
        CasLoop::new(target, Keep { holding: self, entry, sent: Time::default() })
    }

    /// Gives it back: the word becomes `next`, these attributes are set and the request is executed, all or nothing.
    pub fn give(self, next: Word, sets: Vec<SetAttribute>, request: Option<Vec<ObjectCommand>>) -> CasLoop<Give> {
        let target = self.place.target(patience_to_give_back(self.entry.lease, request.is_some()));
        CasLoop::new(target, Give { holding: self, next, sets, request, was_unknown: false })
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

pub(crate) struct Keep {
    holding: Holding,
    /// The entry with the next heartbeat.
    entry: Entry,
    sent: Time,
}

impl Keep {
    fn swap(&mut self, ctx: &StepContext<'_>, compare: Bytes) -> MoveOf<Self> {
        self.sent = ctx.now;
        let swap = Word { number: self.holding.number, holder: Some(self.entry.clone()) }.encode();
        Move::Swap(Swap { compare, swap, sets: Vec::new(), rest: Vec::new() })
    }

    fn kept(&self) -> MoveOf<Self> {
        Move::Done(Ok(Holding { entry: self.entry.clone(), sent: self.sent, ..self.holding.clone() }))
    }
}

impl CasPolicy for Keep {
    type Value = Holding;
    type Error = Gone;

    fn begin(&mut self, ctx: &mut StepContext<'_>) -> MoveOf<Self> {
        self.swap(ctx, self.holding.word())
    }

    fn look(&mut self, ctx: &mut StepContext<'_>, seen: Seen) -> MoveOf<Self> {
        let Some(word) = Word::decode(&seen.word) else { return Move::Done(Err(Gone::Alien)) };
        match word.held_by(self.entry.nonce) {
            Some(entry) if seen.outcome_unknown && *entry == self.entry => return self.kept(),
            // Renewed through another copy of this handle, at an unknown time.
            Some(entry) if entry.heartbeat >= self.entry.heartbeat => self.entry = entry.next_heartbeat(),
            Some(_) => {}
            None => {
                let by = word.holder.map(|entry| entry.name);
                return Move::Done(Err(Gone::Lost { number: word.number, by }));
            }
        }
        self.swap(ctx, seen.word)
    }

    fn made(&mut self, _ctx: &mut StepContext<'_>, _results: Results) -> MoveOf<Self> {
        self.kept()
    }

    fn fails(&mut self, failure: RequestFailure) -> Gone {
        if was_too_slow(failure) { Gone::Uncertain } else { failure.into() }
    }
}

/// The request's results; none if it is known to have happened, but its answer was lost.
pub(crate) type Given = Result<Option<Vec<CommandResult>>, Gone>;

pub(crate) struct Give {
    holding: Holding,
    next: Word,
    sets: Vec<SetAttribute>,
    request: Option<Vec<ObjectCommand>>,
    /// An earlier swap may have happened.
    was_unknown: bool,
}

impl Give {
    fn swap(&self, compare: Bytes) -> MoveOf<Self> {
        let mut sets = self.sets.clone();
        sets.push(self.holding.place.fence(None));
        if self.request.is_some() {
            sets.push(set(self.holding.place.trace, &number_bytes(self.holding.entry.nonce)));
        }
        let rest = self.request.clone().unwrap_or_default();
        Move::Swap(Swap { compare, swap: self.next.encode(), sets, rest })
    }

    /// Another holder is in the word, or none.
    fn gone(&self, word: Word, trace: &Bytes) -> Given {
        let traced = number(trace) == Some(self.holding.entry.nonce);
        // No later holder has given it back, which might have overwritten the trace: so without the trace, this request has not happened.
        let is_next = word.number.saturating_sub(1) <= self.holding.number;
        let trace_is_intact = is_next && (self.next.number > self.holding.number || word.holder.is_some());
        let lost = Gone::Lost { number: word.number, by: word.holder.map(|entry| entry.name) };
        match &self.request {
            _ if !self.was_unknown => Err(lost),
            None => Ok(None),
            Some(_) if traced => Ok(None),
            Some(_) if trace_is_intact => Err(lost),
            Some(_) => Err(Gone::RequestFailure(RequestFailure::Unknown)),
        }
    }
}

impl CasPolicy for Give {
    type Value = Option<Vec<CommandResult>>;
    type Error = Gone;

    fn begin(&mut self, _ctx: &mut StepContext<'_>) -> MoveOf<Self> {
        self.swap(self.holding.word())
    }

    fn look(&mut self, _ctx: &mut StepContext<'_>, seen: Seen) -> MoveOf<Self> {
        self.was_unknown |= seen.outcome_unknown;
        let Some(word) = Word::decode(&seen.word) else { return Move::Done(Err(Gone::Alien)) };
        match word.held_by(self.holding.entry.nonce) {
            Some(_) => self.swap(seen.word),
            None => Move::Done(self.gone(word, &seen.extras[0])),
        }
    }

    fn made(&mut self, _ctx: &mut StepContext<'_>, results: Results) -> MoveOf<Self> {
        Move::Done(Ok(Some(results.from(1))))
    }
}
