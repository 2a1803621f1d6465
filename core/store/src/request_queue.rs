//! Requests for objects: evaluated one after the other, put on record with their answers, and answered when that is durable.
//!
//! ```text
//!   execute ─► waiting ───────────────► noted, with its answer ─► in a batch ─► durable: answered
//!                 │  leaves that it looks at, slots, room in the journal
//! ```
//!
//! First come, first served, so that what a host sends one after the other is done in that order. While the first waits for leaves of the
//! object index, those that the others will need are read as well. A request that only asks is
//! not put on record: it may be done again. It is answered when all that it may have seen is durable.

use crate::StoreEvent;
use crate::leaves::Leaves;
use crate::object_gc::ObjectGc;
use crate::record::Record;
use crate::request_record::Executed;
use crate::room::{Growable, Wait};
use crate::state::State;
use crate::view::{Journal, View};
use crate::waiting_requests::{Asker, Requested, WaitingRequests};
use braid_base::{Generation, Time, TransactionId, limits};
use braid_journal::{AnswerRoom, Known, Unlogged, bytes_max, over_len};
use braid_object_index::SlotRef;
use braid_objects::{Change, Evaluation, Kind, NotHere, evaluate};
use braid_wire::{ObjectAnswer, ObjectFailure, ObjectRefusal, ObjectRequest, decode_answer, encode_answer};
use bytes::Bytes;
use std::collections::BTreeSet;

/// Requests that are looked at while the first waits.
const AHEAD: usize = 64;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct RequestQueue {
    waiting: WaitingRequests,
    leaves: Leaves,
    /// Leaves that the first waits for, by slot.
    awaited: BTreeSet<u32>,
    pub object_gc: ObjectGc,
    unlogged: Unlogged,
    /// How often the disk refused space to those who want the object index to grow.
    pub refusals: u32,
    /// How many were done.
    pub done: u64,
}

impl RequestQueue {
    /// See [`Storage::execute`](crate::Storage::execute).
    pub fn execute(
        &mut self,
        name: TransactionId,
        settled: u64,
        abandoned: Vec<(u64, u64)>,
        request: ObjectRequest,
        view: &mut View,
    ) -> bool {
        if view.state.is_fenced(name.host) {
            // Its answers are gone already: it would be done again.
            return false;
        }
        match view.state.answers.get(name) {
            Known::Over => return false,
            Known::Answer(answer) => {
                // It may not be durable yet. What it says was given up was put on record before it.
                let answer = decode_answer(&answer).expect("it was encoded here, and what the journal says is checked");
                view.tell_when_durable(StoreEvent::Executed { name, answer });
            }
            Known::No => self.enqueue(Asker::Host { name, settled }, abandoned, request, view),
        }
        true
    }

    /// See [`Storage::look`](crate::Storage::look).
    pub fn look(&mut self, ticket: u64, request: ObjectRequest, view: &mut View) {
        self.enqueue(Asker::Device { ticket }, Vec::new(), request, view);
    }

    fn enqueue(&mut self, asker: Asker, abandoned: Vec<(u64, u64)>, request: ObjectRequest, view: &mut View) {
        let requested = Requested::new(asker, abandoned, request, view.now);
        if !self.waiting.has_room(&requested) {
            return view.tell(refusal(asker, ObjectFailure::Busy));
        }
        self.waiting.push_back(requested);
    }

    /// Does what can be done: requests, and the garbage collection, before the requests, who may leave no room, and after, when they have left nothing
    /// else to do.
    pub fn advance(&mut self, view: &mut View) {
        self.collect(view);
        self.execute_waiting(view);
        self.collect(view);
    }

    fn collect(&mut self, view: &mut View) {
        self.object_gc.collect(self.waiting.is_empty(), &mut self.leaves, view);
    }

    /// Does as many requests as there is room for.
    fn execute_waiting(&mut self, view: &mut View) {
        while let Some(requested) = self.waiting.pop_front() {
            let executed = match self.awaited.is_empty() {
                true => self.try_execute(&requested, view),
                false => Err(Wait::Leaves),
            };
            match executed {
                Ok(()) => {
                    self.waiting.end(&requested);
                    self.done += 1;
                    self.refusals = 0;
                }
                Err(_) if requested.is_too_old(view.now) => {
                    self.waiting.end(&requested);
                    self.awaited.clear();
                    view.tell(refusal(requested.asker, ObjectFailure::Busy));
                }
                Err(wait) => {
                    self.waiting.push_front(requested);
                    if wait == Wait::Leaves {
                        let awaited = self.leaves.read_wanted(view);
                        self.awaited.extend(awaited);
                        self.look_ahead(view);
                    }
                    return;
                }
            }
        }
    }

    /// Has leaves read that requests will need.
    fn look_ahead(&mut self, view: &mut View) {
        for requested in self.waiting.first(AHEAD).filter(|requested| !requested.looked) {
            requested.looked = true;
            let _ = evaluate(&requested.request, &mut view.state.object_index);
        }
        self.leaves.read_wanted(view);
    }

    fn try_execute(&mut self, requested: &Requested, view: &mut View) -> Result<(), Wait> {
        if let Asker::Host { name, settled } = requested.asker {
            if self.waiting.is_over(requested) || view.state.answers.get(name) != Known::No {
                // Settled meanwhile: nobody waits for it.
                view.tell(refusal(requested.asker, ObjectFailure::Busy));
                return Ok(());
            }
            // What was before it in the queue has happened. Of what comes behind it, nothing will.
            self.note_abandoned(name.host, settled, &requested.abandoned, view)?;
        }
        let Evaluation { mut answer, mut changes, only_asks } =
            evaluate(&requested.request, &mut view.state.object_index).map_err(|NotHere| Wait::Leaves)?;
        let (name, settled) = match requested.asker {
            Asker::Host { name, settled } if !only_asks => (name, settled),
            asker => {
                tell_what_is_durable(event(asker, answer), view);
                return Ok(());
            }
        };
        let found = view.find_slots(&changes, self.object_gc.from.is_some(), self.refusals);
        self.object_gc.wanted |= matches!(found, Err(Wait::Sweep));
        let needs = match found? {
            Growable::Enough(needs) => needs,
            Growable::TooFew => {
                changes.clear();
                answer = Err(ObjectRefusal { command: 0, failure: ObjectFailure::NoSpace });
                view.state.merging_needs()
            }
        };
        let encoded = Bytes::from(encode_answer(&answer));
        // What its host has said meanwhile goes on record with it.
        let settled = settled.max(view.state.answers.settled(name.host));
        let executed = Executed { name, settled, answer: encoded, changes };
        let length = executed.journal_len();
        let is_crowded = view.is_crowded(length);
        let most = bytes_max(view.journal.capacity());
        let answers = view.state.answers.room(name.host, executed.answer.len(), most);
        if answers == AnswerRoom::NotForHost {
            // Others don't wait for what only this one can settle.
            view.tell(refusal(requested.asker, ObjectFailure::Busy));
            return Ok(());
        }
        if is_crowded || answers == AnswerRoom::None {
            // Batches without anything in them make no room.
            if is_crowded {
                view.journal.hurry();
            }
            return Err(Wait::Room);
        }
        // What is longer than batches are may waste as much at the journal's end.
        let wasted = length.saturating_sub(view.journal.batch_max());
        let kept = view.kept_room(needs) + executed.answer.len() as u64 + 64 + wasted;
        if !view.has_room(length, false, kept) {
            return Err(Wait::Room);
        }
        let ended = executed.changes.iter().filter(|change| ends_a_life(change)).map(|change| change.key.of);
        self.object_gc.from = ended.chain(self.object_gc.from).min();
        let record = Record::Objects(executed);
        view.journal.note(&record);
        let Record::Objects(executed) = record else { unreachable!("just made") };
        view.state.executed(executed);
        self.unlogged.mark_is_logged(name.host);
        view.journal.then.has_changes = true;
        view.tell_when_durable(StoreEvent::Executed { name, answer });
        Ok(())
    }

    /// Puts on record which requests for objects a host has given up, unless it is there. None of these happens any more; nor, after a crash,
    /// if what is answered from now on has outlived that.
    fn note_abandoned(
        &mut self,
        host: Generation,
        settled: u64,
        abandoned: &[(u64, u64)],
        view: &mut View,
    ) -> Result<(), Wait> {
        let Some(stretches) = view.state.answers.not_on_record(host, settled, abandoned) else { return Ok(()) };
        let length = over_len(stretches.len());
        if view.is_crowded(length) {
            view.journal.hurry();
            return Err(Wait::Room);
        }
        // It may be of a host of which nothing was known.
        let kept = view.kept_room(view.state.merging_needs()) + 2 * length;
        if !view.has_room(length, false, kept) {
            return Err(Wait::Room);
        }
        view.state.answers.over(host, settled, &stretches);
        view.journal.note(&Record::Over { host, settled, stretches });
        view.journal.then.has_changes = true;
        view.linger(!self.waiting.is_empty());
        Ok(())
    }

    /// See [`Storage::forget`](crate::Storage::forget).
    pub fn forget(&mut self, transaction: TransactionId, state: &mut State, journal: &mut Journal) {
        self.waiting.drop_one(transaction);
        let forgotten = state.forget(transaction);
        if forgotten.decision {
            journal.hint(&Record::Forget(transaction));
        }
        if forgotten.answer {
            self.unlogged.add(transaction);
        }
    }

    /// See [`Storage::settle`](crate::Storage::settle).
    pub fn settle(&mut self, host: Generation, sequence: u64, state: &mut State, journal: &mut Journal) {
        self.waiting.drop_below(host, sequence);
        let forgotten = state.settle(host, sequence);
        if forgotten.decision {
            journal.hint(&Record::Settled { host, sequence });
        } else if forgotten.answer {
            self.unlogged.add_below_mark(host);
        }
    }

    /// A membership was adopted.
    pub fn drop_fenced(&mut self, state: &State) {
        self.waiting.drop_fenced(|name| state.is_fenced(name.host));
    }

    /// The clock has been looked at.
    pub fn observe(&mut self, now: Time) {
        self.unlogged.observe(now);
    }

    /// True if a batch is to be written for what is not logged yet.
    pub fn is_due(&self, now: Time) -> bool {
        self.unlogged.is_due(now)
    }

    /// Adds to the next batch what is not logged yet.
    pub fn log_what_is_over(&mut self, state: &State, journal: &mut Journal) {
        self.unlogged.take(&state.answers).for_each(|record| journal.hint(&Record::from(record)));
    }

    /// A snapshot begins, which says all.
    pub fn on_snapshot(&mut self) {
        self.unlogged.clear();
    }

    /// When something is to be done though nothing else happens.
    pub fn deadline(&self, now: Time) -> Option<Time> {
        [self.unlogged.deadline(now), self.waiting.patience_ends()].into_iter().flatten().min()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// See [`Leaves::on_leaf`].
    pub fn on_leaf(&mut self, place: SlotRef, again: bool, bytes: Option<Bytes>, view: &mut View) {
        if self.leaves.on_leaf(place, again, bytes, view) {
            self.awaited.remove(&place.slot);
            self.object_gc.awaited.remove(&place.slot);
        }
    }

    /// Asserts what must hold between steps.
    pub fn invariants(&self) {
        self.waiting.invariants();
    }
}

/// Says what was asked, when all that may have been seen is durable.
fn tell_what_is_durable(event: StoreEvent, view: &mut View) {
    let in_flight = view.journal.flight().is_some_and(|flight| flight.then.has_changes);
    if in_flight || view.journal.then.has_changes {
        view.tell_when_durable(event);
    } else {
        view.tell(event);
    }
}

/// True if there is something to be garbage-collected from now on.
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
