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

use crate::cas_loop::{CasLoop, Patience, Swap, cas_loop, number_bytes};
use crate::fencing_token::{Fence, Unguardable, if_swapped};
use crate::hold_word::{Gone, HoldWord, Holding, Word};
use crate::lease::{Entry, Name, Watch};
use crate::procedure::{Operation, RequestFailure};
use crate::request_builder::{RequestBuilder, set};
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
        let (counter, name) = (self.clone(), name.into());
        cas_loop(self.place.target(Patience::For(self.place.patience)), |cas| counter.entered(cas, name))
    }

    async fn entered(self, mut cas: CasLoop, name: Name) -> Result<Turn, CounterError> {
        let place = &self.place;
        let builder = || RequestBuilder::of(place.object);
        // A ticket may have been drawn without an answer. If so, no client knows it, and it will be skipped.
        let results = cas.ask(builder().then_add(self.tickets, 1).with_gets(vec![place.word])).await?;
        let mut word = results.values(0, 1)?[0].clone();
        let drawn = results.added(0)?.ok_or(RequestFailure::Unknown)?;
        let ticket = u64::try_from(drawn).or(Err(CounterError::NoCounter))?;
        let entry = cas.draw(|rng| Entry::new(name, place.lease, rng));
        // The value of the ticket's slot, if the slot is its own.
        let mut slot = None;
        if Word::decode(&word).is_some_and(|word| word.number < ticket) {
            let mine = waits(ticket, &entry);
            let places = builder().swap(self.slot(ticket), &Bytes::new(), &mine).with_gets(vec![place.word]);
            let results = cas.ask(places).await?;
            word = results.values(0, 1)?[0].clone();
            let (swapped, original) = results.compared(0)?.ok_or(RequestFailure::Unknown)?;
            // Not swapped: the ticket is called already; or an earlier attempt succeeded, and its answer was lost; or another ticket has
            // the slot.
            slot = (swapped || original == mine).then_some(mine);
        }
        let (mut watch, mut sent) = (Watch::default(), Time::default());
        loop {
            let Word { number: turn, holder } = Word::decode(&word).ok_or(CounterError::NoCounter)?;
            if turn > ticket {
                return Err(CounterError::Skipped { turn });
            }
            // A lost client whose turn it was.
            let mut skipped = None;
            if turn == ticket {
                match holder {
                    None => {}
                    Some(holder) if holder.nonce == entry.nonce => return Ok(self.served(ticket, entry, sent)),
                    Some(_) => return Err(CounterError::NoCounter),
                }
            } else {
                // A called client that has not come has no heartbeat yet: the turn is watched instead.
                let heartbeat = holder.as_ref().map_or((turn, u64::MAX), |entry| (entry.nonce, entry.heartbeat));
                let lease = holder.map_or(place.lease, |entry| entry.lease);
                watch.see_heartbeats(cas.now(), [heartbeat].into_iter());
                if watch.same_for(cas.now(), heartbeat) >= lease.max(Duration::from_nanos(1)) {
                    if turn + 1 < ticket {
                        let sets = vec![place.fence(None), self.ends(turn), self.calls(turn + 1)];
                        let swap = Word { number: turn + 1, holder: None }.encode();
                        word = match cas.swap_or_see(Swap { compare: word, swap, sets, rest: Vec::new() }).await? {
                            Some(seen) => seen.word,
                            None => cas.see().await?.word,
                        };
                        continue;
                    }
                    skipped = Some(turn);
                } else {
                    if cas.left().is_zero() {
                        return Err(CounterError::TimedOut { ticket, turn });
                    }
                    let patience = self.poll.saturating_mul((ticket - turn).min(FAR) as u32).min(cas.left());
                    let value = match &slot {
                        Some(seen) => cas.wait(self.slot(ticket), seen.clone(), patience).await,
                        None => {
                            cas.sleep(patience).await;
                            None
                        }
                    };
                    if value != Some(called(ticket)) {
                        if value.is_some() && value != slot {
                            // The ticket SLOTS before this one has ended, and cleared the slot.
                            slot = None;
                        }
                        word = cas.see().await?.word;
                        continue;
                    }
                    word = Word { number: ticket, holder: None }.encode();
                }
            }
            // Enters the word: it is its turn, or the swap makes it so.
            sent = cas.now();
            let mut sets = vec![place.fence(Some(ticket))];
            sets.extend(skipped.map(|skipped| self.ends(skipped)));
            let swap = Word { number: ticket, holder: Some(entry.clone()) }.encode();
            match cas.swap_or_see(Swap { compare: word, swap, sets, rest: Vec::new() }).await? {
                None => return Ok(self.served(ticket, entry, sent)),
                Some(seen) => word = seen.word,
            }
        }
    }

    fn served(&self, ticket: u64, entry: Entry, sent: Time) -> Turn {
        Turn { counter: self.clone(), holding: Holding { place: self.place.clone(), number: ticket, entry, sent } }
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
        self.holding.clone().renew(move |holding| Turn { counter, holding })
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
        self.holding.give(Word { number: ticket + 1, holder: None }, sets, request)
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
