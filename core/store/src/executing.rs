//! Requests for objects: evaluated one after the other, put on record with their answers, and answered when that is durable.
//!
//! ```text
//!   execute ─► waiting ───────────────► noted, with its answer ─► in a batch ─► durable: answered
//!                 │  leaves that it looks at, slots, room in the journal
//! ```
//!
//! First come, first served, so that what a host sends one after the other is done in that order. While the first waits for leaves of the
//! catalogue, those that the others will need are read as well. A request that only asks is
//! not put on record: it may be done again. It is answered when all that it may have seen is durable.

use crate::StoreEvent;
use crate::answers::{Known, Room, bytes_max};
use crate::merging::Slots;
use crate::record::Record;
use crate::request_record::{Executed, changes_len};
use crate::serving::Serving;
use braid_base::{Generation, Time, TransactionId, limits};
use braid_catalogue::Growth;
use braid_machine::Effects;
use braid_objects::{Change, Evaluation, Kind, NotHere, Swept, evaluate, sweep};
use braid_wire::{ObjectAnswer, ObjectFailure, ObjectRefusal, ObjectRequest, decode_answer, encode_answer};
use bytes::Bytes;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// The most requests that wait for room.
const WAITING_MAX: usize = 8192;
/// How long one may wait for room before it is refused.
const PATIENCE: Duration = Duration::from_secs(1);
/// The most bytes of notes before a batch goes, as a part of the most that a batch should have.
const NOTES_PART: u64 = 2;
/// Requests that are looked at while the first waits.
const AHEAD: usize = 64;
/// The most keys that go at once of what removed objects left.
const SWEPT_AT_ONCE: usize = 256;
/// For that, this part of the journal must be free besides.
const SWEEPING_LEAVES: u64 = 8;
/// Where there is always something else to do, some go with every so many batches.
const BATCHES_PER_SWEEP: u64 = 8;

/// Who asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    /// A host, and its mark when it asked.
    Host { name: TransactionId, settled: u64 },
    /// The device itself, which only asks.
    Device { ticket: u64 },
}

/// Requests that wait for room, first come, first served.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    queue: VecDeque<Requested>,
    /// Those of hosts among them that are to be done. The others are over, and leave when it is their turn.
    wanted: BTreeSet<TransactionId>,
    /// What they hold.
    bytes: usize,
}

impl Requests {
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    fn has_room(&self, requested: &Requested) -> bool {
        self.queue.len() < WAITING_MAX && self.bytes + requested.bytes <= limits::WAITING_BYTES_MAX
    }

    fn push_back(&mut self, requested: Requested) {
        if let Asker::Host { name, .. } = requested.asker {
            self.wanted.insert(name);
        }
        self.bytes += requested.bytes;
        self.queue.push_back(requested);
    }

    fn push_front(&mut self, requested: Requested) {
        self.bytes += requested.bytes;
        self.queue.push_front(requested);
    }

    fn pop_front(&mut self) -> Option<Requested> {
        let requested = self.queue.pop_front()?;
        self.bytes -= requested.bytes;
        Some(requested)
    }

    /// One that was taken out will not be put back.
    fn end(&mut self, requested: &Requested) {
        if let Asker::Host { name, .. } = requested.asker {
            self.wanted.remove(&name);
        }
    }

    /// What its host says is over is not done any more.
    pub fn drop_one(&mut self, name: TransactionId) {
        self.wanted.remove(&name);
    }

    /// The same of all of a host below its mark.
    pub fn drop_below(&mut self, host: Generation, sequence: u64) {
        let (from, below) = (TransactionId { host, sequence: 0 }, TransactionId { host, sequence });
        while let Some(name) = self.wanted.range(from..below).next().copied() {
            self.wanted.remove(&name);
        }
    }

    fn is_over(&self, requested: &Requested) -> bool {
        matches!(requested.asker, Asker::Host { name, .. } if !self.wanted.contains(&name))
    }

    /// Asserts what must hold between steps.
    pub fn invariants(&self) {
        assert!(self.wanted.len() <= self.queue.len(), "what is wanted waits");
    }

    fn drop_fenced(&mut self, is_fenced: impl Fn(TransactionId) -> bool) {
        self.wanted.retain(|name| !is_fenced(*name));
        self.queue.retain(|requested| {
            let stays = !matches!(requested.asker, Asker::Host { name, .. } if is_fenced(name));
            self.bytes -= if stays { 0 } else { requested.bytes };
            stays
        });
    }
}

/// A request that waits for room.
#[derive(Debug)]
pub(crate) struct Requested {
    asker: Asker,
    /// What its host had given up when it began it.
    given_up: Vec<(u64, u64)>,
    request: ObjectRequest,
    /// What it holds.
    bytes: usize,
    since: Time,
    /// The leaves that it needs are being read, or were.
    looked: bool,
}

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Of the catalogue.
    Leaves,
    /// In the journal, or slots.
    Room,
}

/// What removed objects left, and how far it is gone.
#[derive(Debug)]
pub(crate) struct Sweeping {
    /// There may be something left of lives from this one on.
    pub from: Option<u64>,
    /// Somebody waits for the room.
    pub wanted: bool,
    /// Batches when some went last.
    batches: u64,
}

impl Default for Sweeping {
    fn default() -> Self {
        Sweeping { from: Some(0), wanted: false, batches: 0 }
    }
}

/// Whether answers must wait for the journal.
#[derive(Debug, Default)]
pub(crate) struct Unwritten {
    /// Changes of objects are among the notes.
    pub noted: bool,
    /// And in the batch in flight.
    pub in_flight: bool,
}

impl Serving {
    /// See [`Storage::execute`](crate::Storage::execute).
    pub fn execute(
        &mut self,
        name: TransactionId,
        settled: u64,
        given_up: Vec<(u64, u64)>,
        request: ObjectRequest,
    ) -> bool {
        if self.is_fenced(name) {
            // Its answers are gone already: it would be done again.
            return false;
        }
        match self.state.answers.get(name) {
            Known::Over => return false,
            Known::Answer(answer) => {
                // It may not be durable yet. What it says was given up was put on record before it.
                let answer = decode_answer(&answer).expect("it was encoded here, and what the journal says is checked");
                self.journal.events.push(StoreEvent::Executed { name, answer });
                self.journal.urgent = true;
            }
            Known::No => self.enqueue(Asker::Host { name, settled }, given_up, request),
        }
        true
    }

    /// See [`Storage::look`](crate::Storage::look).
    pub fn look(&mut self, ticket: u64, request: ObjectRequest) {
        self.enqueue(Asker::Device { ticket }, Vec::new(), request);
    }

    fn enqueue(&mut self, asker: Asker, given_up: Vec<(u64, u64)>, request: ObjectRequest) {
        let bytes = request.memory_bytes() + size_of_val(&given_up[..]);
        let requested = Requested { asker, given_up, request, bytes, since: self.now.time, looked: false };
        if !self.requests.has_room(&requested) {
            return self.events.push_back(refusal(asker, ObjectFailure::Busy));
        }
        self.requests.push_back(requested);
    }

    /// Does as many requests as there is room for.
    pub fn execute_waiting(&mut self, out: &mut Effects) {
        while let Some(requested) = self.requests.pop_front() {
            let executed = match self.leaves.by_request.is_empty() {
                true => self.try_execute(&requested, out),
                false => Err(Wait::Leaves),
            };
            match executed {
                Ok(()) => {
                    self.requests.end(&requested);
                    self.counters.requests += 1;
                    self.merging.refusals = 0;
                }
                Err(_) if self.now.time.since(requested.since) >= PATIENCE => {
                    self.requests.end(&requested);
                    self.leaves.by_request.clear();
                    self.events.push_back(refusal(requested.asker, ObjectFailure::Busy));
                }
                Err(wait) => {
                    self.requests.push_front(Requested { looked: true, ..requested });
                    if wait == Wait::Leaves {
                        let awaited = self.read_wanted(out);
                        self.leaves.by_request.extend(awaited);
                        self.look_ahead(out);
                    }
                    return;
                }
            }
        }
    }

    /// Has leaves read that requests will need.
    fn look_ahead(&mut self, out: &mut Effects) {
        for requested in self.requests.queue.iter_mut().take(AHEAD).filter(|requested| !requested.looked) {
            requested.looked = true;
            let _ = evaluate(&requested.request, &mut self.state.catalogue);
        }
        self.read_wanted(out);
    }

    fn try_execute(&mut self, requested: &Requested, out: &mut Effects) -> Result<(), Wait> {
        if let Asker::Host { name, settled } = requested.asker {
            if self.requests.is_over(requested) || self.state.answers.get(name) != Known::No {
                // Settled meanwhile: nobody waits for it.
                self.events.push_back(refusal(requested.asker, ObjectFailure::Busy));
                return Ok(());
            }
            // What was before it in the queue has happened. Of what comes behind it, nothing will.
            self.note_given_up(name.host, settled, &requested.given_up)?;
        }
        let Evaluation { mut answer, mut changes, only_asks } =
            evaluate(&requested.request, &mut self.state.catalogue).map_err(|NotHere| Wait::Leaves)?;
        let (name, settled) = match requested.asker {
            Asker::Host { name, settled } if !only_asks => (name, settled),
            asker => {
                self.answer(event(asker, answer));
                return Ok(());
            }
        };
        let needs = match self.find_slots(&changes, out)? {
            Slots::Enough(needs) => needs,
            Slots::TooFew => {
                changes.clear();
                answer = Err(ObjectRefusal { command: 0, failure: ObjectFailure::NoSpace });
                self.merging_needs()
            }
        };
        let encoded = Bytes::from(encode_answer(&answer));
        // What its host has said meanwhile goes on record with it.
        let settled = settled.max(self.state.answers.settled(name.host));
        let executed = Executed { name, settled, answer: encoded, changes };
        let length = executed.journal_len();
        let crowded = self.is_crowded(length);
        let most = bytes_max(self.geometry().journal_length);
        let answers = self.state.answers.room(name.host, executed.answer.len(), most);
        if answers == Room::NotForHost {
            // Others don't wait for what only this one can settle.
            self.events.push_back(refusal(requested.asker, ObjectFailure::Busy));
            return Ok(());
        }
        if crowded || answers == Room::None {
            // Batches without anything in them make no room.
            self.journal.urgent |= crowded;
            return Err(Wait::Room);
        }
        let undecided = self.state.intents.len() + self.preparing.len();
        // What is longer than batches are may waste as much at the journal's end.
        let wasted = length.saturating_sub(self.journal.batch_max());
        let kept = self.kept_room(needs) + executed.answer.len() as u64 + 64 + wasted;
        if !self.journal.has_room(length, false, undecided, kept) {
            self.checkpoint.wanted |= self.journal.has_grown();
            return Err(Wait::Room);
        }
        let ended = executed.changes.iter().filter(|change| ends_a_life(change)).map(|change| change.key.of);
        self.sweeping.from = ended.chain(self.sweeping.from).min();
        let record = Record::Objects(executed);
        self.journal.note(&record);
        let Record::Objects(executed) = record else { unreachable!("just made") };
        self.state.executed(executed);
        self.unsaid.is_said(name.host);
        self.unwritten.noted = true;
        self.journal.events.push(StoreEvent::Executed { name, answer });
        self.journal.urgent = true;
        Ok(())
    }

    /// Says what was asked, when all that may have been seen is durable.
    fn answer(&mut self, event: StoreEvent) {
        if self.unwritten.noted || self.unwritten.in_flight {
            self.journal.events.push(event);
            self.journal.urgent = true;
        } else {
            self.events.push_back(event);
        }
    }

    /// Who is fenced does nothing any more, not even what waits here already.
    pub fn drop_fenced_requests(&mut self) {
        let mut requests = std::mem::take(&mut self.requests);
        requests.drop_fenced(|name| self.is_fenced(name));
        self.requests = requests;
    }

    fn is_fenced(&self, name: TransactionId) -> bool {
        self.state.membership.as_ref().is_some_and(|membership| membership.fence.refuses(name.host))
    }

    /// Has some of what removed objects left go: when nothing else is to be done, when somebody waits for the room, and now and then.
    pub fn sweep(&mut self, out: &mut Effects) {
        let is_idle = self.requests.is_empty() && self.journal.noted() == 0;
        let is_due =
            is_idle || self.sweeping.wanted || self.counters.batches - self.sweeping.batches >= BATCHES_PER_SWEEP;
        let Some(from) = self.sweeping.from.filter(|_| is_due && self.leaves.by_sweep.is_empty()) else { return };
        let undecided = self.state.intents.len() + self.preparing.len();
        let length = (SWEPT_AT_ONCE * 32) as u64;
        if self.is_crowded(length) {
            self.journal.urgent = true;
            return;
        }
        let kept = self.kept_room(self.state.catalogue.needs(SWEPT_AT_ONCE, Growth::default()))
            + self.geometry().journal_length / SWEEPING_LEAVES;
        if !self.journal.has_room(length, false, undecided, kept) {
            self.checkpoint.wanted |= self.sweeping.wanted && self.journal.has_grown();
            return;
        }
        let Ok(Swept { changes, next }) = sweep(&mut self.state.catalogue, from, SWEPT_AT_ONCE) else {
            self.leaves.by_sweep = self.read_wanted(out);
            return;
        };
        self.sweeping = Sweeping { from: next, wanted: false, batches: self.counters.batches };
        if !changes.is_empty() {
            assert!(changes_len(&changes) <= length, "as much as there is room for");
            self.state.catalogue.apply(&changes);
            self.counters.keys_swept += changes.len() as u64;
            self.journal.note(&Record::Swept(changes));
            self.journal.urgent = true;
        }
    }

    /// True if a note of this length is to wait until those that are there have gone.
    pub fn is_crowded(&self, length: u64) -> bool {
        self.journal.noted() > 0 && self.journal.noted() + length > self.journal.batch_max() / NOTES_PART
    }

    /// When the first request has waited long enough.
    pub fn requests_patience_ends(&self) -> Option<Time> {
        self.requests.queue.front().map(|requested| requested.since.after(PATIENCE))
    }
}

/// True if there is something to be swept from now on.
fn ends_a_life(change: &Change) -> bool {
    change.key.kind == Kind::Ended && change.value.is_some()
}

fn event(asker: Asker, answer: ObjectAnswer) -> StoreEvent {
    match asker {
        Asker::Host { name, .. } => StoreEvent::Executed { name, answer },
        Asker::Device { ticket } => StoreEvent::Looked { ticket, answer },
    }
}

fn refusal(asker: Asker, failure: ObjectFailure) -> StoreEvent {
    event(asker, Err(ObjectRefusal { command: 0, failure }))
}

const _: () = assert!(limits::OBJECT_REQUEST_BYTES_MAX <= limits::OBJECT_ANSWER_BYTES_MAX);
