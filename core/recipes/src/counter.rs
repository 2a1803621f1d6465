//! A delivery counter gives exclusive use in the order of tickets, like a ticket dispenser in a shop (device-atomics paper, section 6.3). A
//! waiting client does not poll: its predecessor calls it.
//!
//! ```text
//!   attributes of one number, on pages that follow each other:
//!     tickets   how many tickets were drawn
//!     word      the turn: the ticket that is served; once its holder has come, also its name, nonce, heartbeat and lease
//!     fence     the ticket, while its holder is served
//!     trace     the nonce of the client that last left together with other commands
//!     slot t    of ticket t (modulo 65536): its holder's name; or that it is called
//!
//!   enter   FA tickets + 1 ──▶ my ticket t, and the word
//!              ├ turn = t ─────────────────────────────────────────────────────────────┐
//!              └ turn < t: CAS slot t: ∅ → my name                                      │
//!                    └▶ await slot t, and look now and then ── called ──▶ turn = t ─────┤
//!                          └ turn < t, and the same for a lease: skip                   ▼
//!                                                         CAS word: t, none → t, me;  fence := t ──▶ served
//!   leave   CAS word: t, me → t + 1, none;  fence := ∅;  slot t := ∅;  slot t + 1 := called;  and the last request
//!   skip    CAS word: u, any holder or none → u + 1, none (or me, if u + 1 is mine);  the same sets
//! ```
//!
//! What it guarantees, and what not, is in `docs/recipes/delivery-counter.md`.

use crate::cas_loop::{CasLoop, CasPolicy, Move, MoveOf, Patience, Seen, StepContext, Swap, number_bytes};
use crate::fencing_token::{Fence, Unguardable, if_swapped};
use crate::hold_word::{Given, Gone, HoldWord, Holding, Word};
use crate::lease::{Entry, Name, Watch};
use crate::procedure::{Mapped, Operation, RequestFailure};
use crate::request_builder::{RequestBuilder, Results, set};
use braid_base::{Backoff, ObjectId, Time};
use braid_wire::{AttributeName, CommandResult, ObjectCommand, ObjectRequest, SetAttribute};
use bytes::{BufMut, Bytes, BytesMut};
use std::time::Duration;

/// The number of slots. If more tickets wait at once, some of them are not called, and find their turn by looking.
pub const SLOTS: u64 = 65_536;
/// A client that is far behind looks at most this many times less often.
const FAR: u64 = 4;

/// A delivery counter's address, and how this program uses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryCounter {
    place: HoldWord,
    tickets: AttributeName,
    poll: Duration,
}

/// Options of a delivery counter. The lease should be the same for all clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterOptions {
    /// A client that does not come for this long when called, or does not renew for this long when served, is skipped. Renew three times as
    /// often.
    pub lease: Duration,
    /// How often the next client in line checks whether it missed its call, or a lost client has to be skipped; those behind it check less
    /// often.
    pub poll: Duration,
    /// When the device is busy, or another client was faster, the first pause is random, up to this; the limit doubles up to
    /// `longest_pause`.
    pub first_pause: Duration,
    /// The limit of pauses.
    pub longest_pause: Duration,
    /// How long to wait for the turn.
    pub patience: Duration,
}

impl Default for CounterOptions {
    fn default() -> CounterOptions {
        CounterOptions {
            lease: Duration::from_secs(10),
            poll: Duration::from_secs(2),
            first_pause: Duration::from_millis(1),
            longest_pause: Duration::from_millis(500),
            patience: Duration::from_secs(60),
        }
    }
}

impl DeliveryCounter {
    /// The counter in this attribute, and in those of the same number on the next [`SLOTS`] + 3 pages.
    pub fn new(object: ObjectId, attribute: AttributeName, options: CounterOptions) -> DeliveryCounter {
        assert!(
            attribute.page < AttributeName::RESERVED_PAGES - SLOTS as u32 - 3,
            "its pages must not be reserved ones"
        );
        let CounterOptions { lease, poll, first_pause, longest_pause, patience } = options;
        let page = |page| AttributeName::new(attribute.page + page, attribute.number);
        let backoff = Backoff::new(first_pause, longest_pause);
        let place = HoldWord { object, word: page(1), fence: page(2), trace: page(3), lease, backoff, patience };
        DeliveryCounter { place, tickets: attribute, poll }
    }

    /// Draws a ticket, and waits until it is served.
    pub fn enter(&self, name: impl Into<Name>) -> Operation<Result<Turn, CounterError>> {
        let entering = Entering {
            counter: self.clone(),
            name: name.into(),
            phase: Phase::Drawing,
            ticket: 0,
            slot: None,
            entry: None,
            watch: Watch::default(),
            sent: Time::default(),
        };
        Box::new(CasLoop::new(self.place.target(Patience::For(self.place.patience)), entering))
    }

    fn slot(&self, ticket: u64) -> AttributeName {
        let page = self.place.trace.page + 1 + (ticket % SLOTS) as u32;
        AttributeName::new(page, self.tickets.number)
    }

    /// Ends the turn of `ticket`.
    fn ends(&self, ticket: u64) -> SetAttribute {
        set(self.slot(ticket), &Bytes::new())
    }

    fn calls(&self, ticket: u64) -> SetAttribute {
        set(self.slot(ticket), &called(ticket))
    }
}

/// The value of a slot whose ticket is called.
fn called(ticket: u64) -> Bytes {
    number_bytes(ticket)
}

/// The value of a slot with the holder of its ticket. Longer than a call.
fn waits(ticket: u64, entry: &Entry) -> Bytes {
    let mut slot = BytesMut::new();
    slot.put_u64(ticket);
    entry.put(&mut slot);
    slot.freeze()
}

/// The end of a turn, with the last request's results; none if it is known to have happened, but its answer was lost.
pub type Leaving = Operation<Result<Option<Vec<CommandResult>>, CounterError>>;

/// A turn, held as far as its holder knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    counter: DeliveryCounter,
    holding: Holding,
}

impl Turn {
    /// The ticket, which is also the fencing token.
    pub fn ticket(&self) -> u64 {
        self.holding.number
    }

    /// Until then no other client can be served, by the clock by which it was entered.
    pub fn sure_until(&self) -> Time {
        self.holding.sure_until()
    }

    /// When to renew it: a third of its lease after it was granted or last renewed.
    pub fn renew_at(&self) -> Time {
        self.holding.renew_at()
    }

    /// A request on the same device that has no effect if the turn is over. Pass its results to [`unguard`](crate::fencing_token::unguard).
    pub fn guard(&self, request: ObjectRequest) -> Result<ObjectRequest, Unguardable> {
        self.holding.fence().guard(request)
    }

    /// The fence in an attribute of another object, on this device or another. Raise it before the first read or write there, and guard all
    /// requests there by it.
    pub fn fence_at(&self, object: ObjectId, name: AttributeName) -> Fence {
        Fence { object, name, token: self.ticket() }
    }

    /// Renews it for another lease. Ends at [`sure_until`](Turn::sure_until) at the latest, or, if begun later, after a third of the lease.
    pub fn renew(&self) -> Operation<Result<Turn, CounterError>> {
        let counter = self.counter.clone();
        let renewed = move |kept: Result<Holding, Gone>| Ok(Turn { counter: counter.clone(), holding: kept? });
        Box::new(Mapped(self.holding.clone().renew(), renewed))
    }

    /// Ends the turn and calls the next ticket. Tries for one lease; after that, the ticket is skipped anyway.
    pub fn leave(self) -> Leaving {
        self.give(None)
    }

    /// Executes a last request and ends the turn. If the turn is over already, the request has no effect. Tries for three leases.
    pub fn leave_with(self, request: ObjectRequest) -> Result<Leaving, Unguardable> {
        Ok(self.give(Some(if_swapped(request, 1)?)))
    }

    fn give(self, request: Option<Vec<ObjectCommand>>) -> Leaving {
        let ticket = self.ticket();
        let sets = vec![self.counter.ends(ticket), self.counter.calls(ticket + 1)];
        let give = self.holding.give(Word { number: ticket + 1, holder: None }, sets, request);
        Box::new(Mapped(give, |given: Given| Ok(given?)))
    }
}

/// Why a client is not served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CounterError {
    /// It was not its turn in time. The ticket is lost.
    #[error("it was not the turn of ticket {ticket} in time: {turn} is served")]
    TimedOut {
        ticket: u64,
        /// The ticket whose turn it is.
        turn: u64,
    },
    /// It did not come, or did not renew, when it was its turn, and was skipped. A last request has had no effect.
    #[error("the turn is over: it was skipped, and ticket {turn} is served")]
    Skipped {
        /// The ticket whose turn it is.
        turn: u64,
    },
    /// The outcome of a renewal was not known in time: the ticket may have been skipped. Renewing it again finds out.
    #[error("the renewal of the turn was not answered in time: the ticket may have been skipped")]
    Uncertain,
    #[error("the attributes are not a delivery counter")]
    NoCounter,
    /// The device cannot execute the request. After [`RequestFailure::Unknown`], a ticket that was drawn will be skipped.
    #[error(transparent)]
    RequestFailure(#[from] RequestFailure),
}

impl From<Gone> for CounterError {
    fn from(gone: Gone) -> CounterError {
        match gone {
            Gone::Lost { number, .. } => CounterError::Skipped { turn: number },
            Gone::Uncertain => CounterError::Uncertain,
            Gone::Alien => CounterError::NoCounter,
            Gone::RequestFailure(failure) => CounterError::RequestFailure(failure),
        }
    }
}

struct Entering {
    counter: DeliveryCounter,
    name: Name,
    phase: Phase,
    ticket: u64,
    /// The value of the ticket's slot, if the slot is its own.
    slot: Option<Bytes>,
    entry: Option<Entry>,
    watch: Watch,
    /// When the last swap was sent.
    sent: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Drawing,
    /// Writing its name to its slot.
    Placing,
    Waiting,
    /// Entering the word.
    Coming,
    /// Advancing the turn past a lost client.
    Skipping,
}

type Moved = MoveOf<Entering>;

impl Entering {
    fn draw(&mut self) -> Moved {
        let builder = RequestBuilder::of(self.counter.place.object).then_add(self.counter.tickets, 1);
        Move::Ask(builder.with_gets(vec![self.counter.place.word]))
    }

    fn place(&mut self) -> Moved {
        self.phase = Phase::Placing;
        let builder = RequestBuilder::of(self.counter.place.object);
        let builder = builder.swap(self.counter.slot(self.ticket), &Bytes::new(), &self.waits());
        Move::Ask(builder.with_gets(vec![self.counter.place.word]))
    }

    /// The value that it writes to its slot.
    fn waits(&self) -> Bytes {
        waits(self.ticket, self.entry.as_ref().expect("made when the ticket is drawn"))
    }

    /// Enters the word: it is its turn, or the swap makes it so.
    fn come(&mut self, ctx: &StepContext<'_>, compare: Bytes, skips: Option<u64>) -> Moved {
        (self.phase, self.sent) = (Phase::Coming, ctx.now);
        let mut sets = vec![self.counter.place.fence(Some(self.ticket))];
        sets.extend(skips.map(|skipped| self.counter.ends(skipped)));
        let swap = Word { number: self.ticket, holder: self.entry.clone() }.encode();
        Move::Swap(Swap { compare, swap, sets, rest: Vec::new() })
    }

    fn skip(&mut self, ctx: &StepContext<'_>, compare: Bytes, turn: u64) -> Moved {
        if turn + 1 == self.ticket {
            return self.come(ctx, compare, Some(turn));
        }
        self.phase = Phase::Skipping;
        let sets = vec![self.counter.place.fence(None), self.counter.ends(turn), self.counter.calls(turn + 1)];
        Move::Swap(Swap { compare, swap: Word { number: turn + 1, holder: None }.encode(), sets, rest: Vec::new() })
    }

    fn served(&self) -> Moved {
        let entry = self.entry.clone().expect("the swap wrote it");
        let holding = Holding { place: self.counter.place.clone(), number: self.ticket, entry, sent: self.sent };
        Move::Done(Ok(Turn { counter: self.counter.clone(), holding }))
    }

    /// Handles the answer to drawing the ticket, or to writing the slot.
    fn on_results(&mut self, ctx: &mut StepContext<'_>, results: &Results) -> Result<Moved, RequestFailure> {
        let word = results.values(0, 1)?[0].clone();
        match self.phase {
            Phase::Drawing => {
                let drawn = results.added(0)?.ok_or(RequestFailure::Unknown)?;
                let Ok(ticket) = u64::try_from(drawn) else { return Ok(Move::Done(Err(CounterError::NoCounter))) };
                self.ticket = ticket;
                self.entry = Some(Entry::new(self.name.clone(), self.counter.place.lease, ctx.rng));
                Ok(match Word::decode(&word) {
                    Some(Word { number: turn, .. }) if turn < ticket => self.place(),
                    _ => self.decide(ctx, word),
                })
            }
            Phase::Placing => {
                let (swapped, original) = results.compared(0)?.ok_or(RequestFailure::Unknown)?;
                let mine = self.waits();
                // Not swapped: the ticket is called already; or an earlier attempt succeeded, and its answer was lost; or another ticket
                // has the slot.
                self.slot = (swapped || original == mine).then_some(mine);
                Ok(self.decide(ctx, word))
            }
            phase => unreachable!("no request is made while {phase:?}"),
        }
    }

    /// Decides the next step of a client that has a ticket and sees the word.
    fn decide(&mut self, ctx: &mut StepContext<'_>, seen: Bytes) -> Moved {
        let ticket = self.ticket;
        let Some(Word { number: turn, holder }) = Word::decode(&seen) else {
            return Move::Done(Err(CounterError::NoCounter));
        };
        if turn > ticket {
            return Move::Done(Err(CounterError::Skipped { turn }));
        }
        if turn == ticket {
            return match (holder, &self.entry) {
                (None, _) => self.come(ctx, seen, None),
                (Some(holder), Some(entry)) if holder.nonce == entry.nonce => self.served(),
                (Some(_), _) => Move::Done(Err(CounterError::NoCounter)),
            };
        }
        // A called client that has not come has no heartbeat yet: the turn is watched instead.
        let heartbeat = holder.as_ref().map_or((turn, u64::MAX), |entry| (entry.nonce, entry.heartbeat));
        let lease = holder.map_or(self.counter.place.lease, |entry| entry.lease);
        self.watch.see_heartbeats(ctx.now, [heartbeat].into_iter());
        if self.watch.same_for(ctx.now, heartbeat) >= lease.max(Duration::from_nanos(1)) {
            return self.skip(ctx, seen, turn);
        }
        if ctx.left.is_zero() {
            return Move::Done(Err(CounterError::TimedOut { ticket, turn }));
        }
        let patience = self.counter.poll.saturating_mul((ticket - turn).min(FAR) as u32).min(ctx.left);
        self.phase = Phase::Waiting;
        match self.slot.clone() {
            Some(seen) => Move::Await { name: self.counter.slot(ticket), seen, patience },
            None => Move::Sleep(patience),
        }
    }
}

impl CasPolicy for Entering {
    type Value = Turn;
    type Error = CounterError;

    fn begin(&mut self, ctx: &mut StepContext<'_>) -> Moved {
        match self.phase {
            Phase::Drawing => self.draw(),
            Phase::Placing => self.place(),
            Phase::Waiting if ctx.value == Some(called(self.ticket)) => {
                self.come(ctx, Word { number: self.ticket, holder: None }.encode(), None)
            }
            Phase::Waiting if ctx.value.is_some() && ctx.value != self.slot => {
                // The ticket SLOTS before this one has ended, and cleared the slot.
                self.slot = None;
                Move::Look
            }
            _ => Move::Look,
        }
    }

    fn told(&mut self, ctx: &mut StepContext<'_>, results: Results) -> Moved {
        self.on_results(ctx, &results).unwrap_or_else(|failure| Move::Done(Err(CounterError::RequestFailure(failure))))
    }

    fn look(&mut self, ctx: &mut StepContext<'_>, seen: Seen) -> Moved {
        match self.phase {
            // A ticket may have been drawn. If so, no client knows it, and it will be skipped.
            Phase::Drawing => self.draw(),
            Phase::Placing => self.place(),
            Phase::Waiting | Phase::Coming | Phase::Skipping => self.decide(ctx, seen.word),
        }
    }

    fn made(&mut self, _ctx: &mut StepContext<'_>, _results: Results) -> Moved {
        match self.phase {
            Phase::Coming => self.served(),
            Phase::Skipping => {
                self.phase = Phase::Waiting;
                Move::Look
            }
            phase => unreachable!("no swap is made while {phase:?}"),
        }
    }
}
