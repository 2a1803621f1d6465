//! The queue of requests for objects: they are executed one after the other, logged with their answers, and answered when that is
//! durable.
//!
//! ```text
//!   execute ─► waiting ───────────────► noted, with its answer ─► in a batch ─► durable: answered
//!                 │  waits for leaves, for slots, or for room in the journal
//! ```
//!
//! Requests are served first come, first served, so that requests that a host sends one after the other are executed in that order. While
//! the first one waits for leaves of the object index, the leaves that the others will need are read as well. A request that only reads
//! is not logged, because it may be executed again. It is answered when all that it may have seen is durable.

use crate::StoreEvent;
use crate::ctx::{Ctx, Journal};
use crate::free_space::{Growable, Wait};
use crate::journal_format::Record;
use crate::journal_format::request::Executed;
use crate::leaves::Leaves;
use crate::object_gc::ObjectGc;
use crate::state::State;
use crate::waiting_requests::{Asker, OnBehalf, Requested, WaitingRequests};
use braid_base::{Generation, Time, TransactionId, limits};
use braid_journal::{AnswerRoom, Known, Unlogged, bytes_max, over_len};
use braid_object_index::SlotRef;
use braid_objects::{Change, Evaluation, Found, Kind, NotHere, Procedure};
use braid_wire::{ObjectAnswer, ObjectFailure, ObjectRefusal, decode_answer, encode_answer};
use bytes::Bytes;
use std::collections::BTreeSet;

/// How many requests are looked at while the first waits.
const AHEAD: usize = 64;

/// The queue, and what it waits for.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestQueue {
    waiting: WaitingRequests,
    leaves: Leaves,
    /// The leaves that the first request waits for, by slot.
    awaited: BTreeSet<u32>,
    pub object_gc: ObjectGc,
    /// Each request is logged in a batch of its own.
    pub apart: bool,
    unlogged: Unlogged,
    /// How often the disk refused space for the growth of the object index since a request was last executed.
    pub refusals: u32,
    /// How many requests were executed.
    pub done: u64,
}

impl RequestQueue {
    /// See [`Storage::execute`](crate::Storage::execute).
    pub fn execute(
        &mut self,
        name: TransactionId,
        settled: u64,
        abandoned: Vec<(u64, u64)>,
        request: Box<dyn Procedure>,
        ctx: &mut Ctx,
    ) -> bool {
        if ctx.state.is_fenced(name.host) {
            // Its answers are forgotten already, so the request would be executed again.
            return false;
        }
        match ctx.state.answers.get(name) {
            Known::Over => return false,
            Known::Answer(answer) => {
                // The answer may not be durable yet. What the request declares abandoned was logged before the answer.
                let answer =
                    decode_answer(&answer).expect("answers are encoded here, and those in the journal were validated");
                ctx.tell_when_durable(StoreEvent::Executed { name, answer, found: None });
            }
            Known::No => self.enqueue(Asker::Host { name, settled }, abandoned, request, ctx),
        }
        true
    }

    /// See [`Storage::read_objects`](crate::Storage::read_objects).
    pub fn read_durable(&mut self, ticket: u64, request: Box<dyn Procedure>, ctx: &mut Ctx) {
        self.enqueue(Asker::Device { ticket }, Vec::new(), request, ctx);
    }

    /// See [`Store::read_uncommitted`](crate::Store::read_uncommitted).
    pub fn read_uncommitted(&mut self, ticket: u64, request: Box<dyn Procedure>, ctx: &mut Ctx) {
        self.enqueue(Asker::Uncommitted { ticket }, Vec::new(), request, ctx);
    }

    /// See [`Store::run_mandatory`](crate::Store::run_mandatory).
    pub fn run_mandatory(
        &mut self,
        own: TransactionId,
        on_behalf: Vec<OnBehalf>,
        request: Box<dyn Procedure>,
        ctx: &mut Ctx,
    ) -> bool {
        if ctx.state.is_fenced(own.host) {
            return false;
        }
        self.waiting.push_back(Requested::of_owner(own, on_behalf, request, ctx.now));
        true
    }

    fn enqueue(&mut self, asker: Asker, abandoned: Vec<(u64, u64)>, request: Box<dyn Procedure>, ctx: &mut Ctx) {
        let requested = Requested::new(asker, abandoned, request, ctx.now);
        if !self.waiting.has_room(&requested) {
            return ctx.tell(refusal(asker, ObjectFailure::Busy));
        }
        self.waiting.push_back(requested);
    }

    /// Executes the requests that can be executed, and collects garbage: before the requests, because they may leave no room for it, and
    /// after them, because the store may be idle then.
    pub fn advance(&mut self, ctx: &mut Ctx) {
        self.collect(ctx);
        self.execute_waiting(ctx);
        self.collect(ctx);
    }

    fn collect(&mut self, ctx: &mut Ctx) {
        self.object_gc.collect(self.waiting.is_empty(), &mut self.leaves, ctx);
    }

    /// Executes as many requests as there is room for.
    fn execute_waiting(&mut self, ctx: &mut Ctx) {
        while let Some(requested) = self.waiting.pop_front() {
            let executed = match self.awaited.is_empty() {
                true => self.try_execute(&requested, ctx),
                false => Err(Wait::Leaves),
            };
            match executed {
                Ok(()) => {
                    self.waiting.end(&requested);
                    self.done += 1;
                    self.refusals = 0;
                }
                Err(_) if requested.is_too_old(ctx.now) => {
                    self.waiting.end(&requested);
                    self.awaited.clear();
                    ctx.tell(refusal(requested.asker, ObjectFailure::Busy));
                }
                Err(wait) => {
                    self.waiting.push_front(requested);
                    if wait == Wait::Leaves {
                        let awaited = self.leaves.read_wanted(ctx);
                        self.awaited.extend(awaited);
                        self.look_ahead(ctx);
                    }
                    return;
                }
            }
        }
    }

    /// Reads the leaves that waiting requests will need.
    fn look_ahead(&mut self, ctx: &mut Ctx) {
        for requested in self.waiting.first(AHEAD).filter(|requested| !requested.looked) {
            requested.looked = true;
            let _ = requested.request.evaluate(&mut ctx.state.object_index);
        }
        self.leaves.read_wanted(ctx);
    }

    fn try_execute(&mut self, requested: &Requested, ctx: &mut Ctx) -> Result<(), Wait> {
        if let Asker::Host { name, settled } = requested.asker {
            if self.waiting.is_over(requested) || ctx.state.answers.get(name) != Known::No {
                // The host has settled the request meanwhile, and does not wait for it.
                ctx.tell(refusal(requested.asker, ObjectFailure::Busy));
                return Ok(());
            }
            // Requests before it in the queue were executed. Abandoned requests that come after it will not be.
            self.note_abandoned(name.host, settled, &requested.abandoned, ctx)?;
        }
        let Evaluation { mut answer, mut changes, only_asks, mut found } =
            requested.request.evaluate(&mut ctx.state.object_index).map_err(|NotHere| Wait::Leaves)?;
        let (name, settled) = match requested.asker {
            Asker::Host { name, settled } if !only_asks => (name, settled),
            Asker::Owner { own } if !only_asks => (own, own.sequence),
            Asker::Uncommitted { .. } => {
                ctx.tell(event(requested.asker, answer, found));
                return Ok(());
            }
            asker => {
                tell_what_is_durable(event(asker, answer, found), ctx);
                return Ok(());
            }
        };
        if self.apart && ctx.journal.then.has_changes {
            // What is noted is written without this one.
            ctx.journal.hurry();
            return Err(Wait::Room);
        }
        let is_sure = matches!(requested.asker, Asker::Owner { .. });
        let slots = ctx.find_slots(&changes, self.object_gc.from.is_some(), self.refusals);
        self.object_gc.wanted |= matches!(slots, Err(Wait::Sweep));
        let needs = match slots? {
            Growable::Enough(needs) => needs,
            // The owner keeps room for these.
            Growable::TooFew if is_sure => return Err(Wait::Room),
            Growable::TooFew => {
                changes.clear();
                answer = Err(ObjectRefusal { command: 0, failure: ObjectFailure::NoSpace });
                found = None;
                ctx.state.merging_needs()
            }
        };
        let logged = logged(requested, Executed { name, settled, answer: encoded(&answer), changes }, ctx.state);
        let length = logged.iter().map(Executed::journal_len).sum();
        let answer_bytes: usize = logged.iter().map(|executed| executed.answer.len()).sum();
        let is_crowded = ctx.is_crowded(length);
        let most = bytes_max(ctx.journal.capacity());
        let answers = ctx.state.answers.room(logged[0].name.host, (logged.len(), answer_bytes), most);
        if answers == AnswerRoom::NotForHost && !is_sure {
            // Other hosts do not wait for room that only this host can free, by settling its requests.
            ctx.tell(refusal(requested.asker, ObjectFailure::Busy));
            return Ok(());
        }
        if is_crowded || answers == AnswerRoom::None {
            // An empty batch makes no room.
            if is_crowded {
                ctx.journal.hurry();
            }
            return Err(Wait::Room);
        }
        // A record longer than a batch may waste as much at the journal's end.
        let wasted = length.saturating_sub(ctx.journal.batch_max());
        let kept = ctx.kept_room(needs) + answer_bytes as u64 + 64 * logged.len() as u64 + wasted;
        if !ctx.has_room(length, false, kept) {
            return Err(Wait::Room);
        }
        let changes = logged.iter().flat_map(|executed| &executed.changes);
        let ended = changes.filter(|change| ends_a_life(change)).map(|change| change.key.of);
        self.object_gc.from = ended.chain(self.object_gc.from).min();
        // All notes that wait are in the next batch, so these are durable together.
        for executed in logged {
            self.unlogged.mark_is_logged(executed.name.host);
            let record = Record::Objects(executed);
            ctx.journal.note(&record);
            let Record::Objects(executed) = record else { unreachable!("just made") };
            ctx.state.executed(executed);
        }
        ctx.journal.then.has_changes = true;
        ctx.tell_when_durable(event(requested.asker, answer, found));
        Ok(())
    }

    /// Logs which requests for objects a host has abandoned, unless that is logged already. None of these is executed any more; nor after
    /// a crash, if any later answer has survived it.
    fn note_abandoned(
        &mut self,
        host: Generation,
        settled: u64,
        abandoned: &[(u64, u64)],
        ctx: &mut Ctx,
    ) -> Result<(), Wait> {
        let Some(intervals) = ctx.state.answers.not_on_record(host, settled, abandoned) else { return Ok(()) };
        let length = over_len(intervals.len());
        if ctx.is_crowded(length) {
            ctx.journal.hurry();
            return Err(Wait::Room);
        }
        // The record may be the first of its host.
        let kept = ctx.kept_room(ctx.state.merging_needs()) + 2 * length;
        if !ctx.has_room(length, false, kept) {
            return Err(Wait::Room);
        }
        ctx.state.answers.abandon(host, settled, &intervals);
        ctx.journal.note(&Record::Over { host, settled, intervals });
        ctx.journal.then.has_changes = true;
        ctx.linger(!self.waiting.is_empty());
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

    /// A membership was adopted: drops the requests of fenced hosts.
    pub fn drop_fenced(&mut self, state: &State) {
        self.waiting.drop_fenced(|name| state.is_fenced(name.host));
    }

    /// Tells the current time.
    pub fn observe(&mut self, now: Time) {
        self.unlogged.observe(now);
    }

    /// True if a batch is due for answers whose end is not logged yet.
    pub fn is_due(&self, now: Time) -> bool {
        self.unlogged.is_due(now)
    }

    /// Adds unlogged acknowledgements of answers to the next batch.
    pub fn log_what_is_over(&mut self, state: &State, journal: &mut Journal) {
        self.unlogged.take(&state.answers).for_each(|record| journal.hint(&Record::from(record)));
    }

    /// A snapshot begins, and carries everything that was not logged.
    pub fn on_snapshot(&mut self) {
        self.unlogged.clear();
    }

    /// When the queue must be woken if nothing else happens.
    pub fn deadline(&self, now: Time) -> Option<Time> {
        [self.unlogged.deadline(now), self.waiting.patience_ends()].into_iter().flatten().min()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// True if a request of a host waits to be executed, or its answer to be kept.
    pub fn waits(&self, name: TransactionId) -> bool {
        self.waiting.knows(name)
    }

    /// See [`Leaves::on_leaf`].
    pub fn on_leaf(&mut self, place: SlotRef, again: bool, bytes: Option<Bytes>, ctx: &mut Ctx) {
        if self.leaves.on_leaf(place, again, bytes, ctx) {
            self.awaited.remove(&place.slot);
            self.object_gc.awaited.remove(&place.slot);
        }
    }

    /// Asserts what must hold between steps.
    pub fn invariants(&self) {
        self.waiting.invariants();
    }
}

/// What is logged of a request that was executed: with the answers of hosts that its owner wants kept, as one record each. The first one
/// has the changes. A host that is fenced, or does not wait for the answer any more, asks no more.
fn logged(requested: &Requested, executed: Executed, state: &State) -> Vec<Executed> {
    let waits = |kept: &&OnBehalf| !state.is_fenced(kept.name.host) && state.answers.get(kept.name) == Known::No;
    let kept = requested.on_behalf.iter().filter(waits).map(|kept| Executed {
        name: kept.name,
        settled: kept.settled,
        answer: encoded(&kept.answer),
        changes: Vec::new(),
    });
    let mut logged: Vec<Executed> = kept.collect();
    match logged.first_mut() {
        Some(first) => first.changes = executed.changes,
        None => logged.push(executed),
    }
    for executed in &mut logged {
        // The host's latest mark is logged with the answer.
        executed.settled = executed.settled.max(state.answers.settled(executed.name.host));
    }
    logged
}

fn encoded(answer: &ObjectAnswer) -> Bytes {
    Bytes::from(encode_answer(answer))
}

/// Sends the answer of a read-only request when everything that it may have seen is durable.
fn tell_what_is_durable(event: StoreEvent, ctx: &mut Ctx) {
    let in_flight = ctx.journal.flight().is_some_and(|flight| flight.then.has_changes);
    if in_flight || ctx.journal.then.has_changes {
        ctx.tell_when_durable(event);
    } else {
        ctx.tell(event);
    }
}

/// True if the change leaves something to be garbage-collected.
fn ends_a_life(change: &Change) -> bool {
    change.key.kind == Kind::Ended && change.value.is_some()
}

fn event(asker: Asker, answer: ObjectAnswer, found: Option<Found>) -> StoreEvent {
    match asker {
        Asker::Host { name, .. } => StoreEvent::Executed { name, answer, found },
        Asker::Device { ticket } | Asker::Uncommitted { ticket } => StoreEvent::ObjectsRead { ticket, answer, found },
        Asker::Owner { own, .. } => StoreEvent::Executed { name: own, answer, found },
    }
}

fn refusal(asker: Asker, failure: ObjectFailure) -> StoreEvent {
    event(asker, Err(ObjectRefusal { command: 0, failure }), None)
}

const _: () = assert!(limits::OBJECT_REQUEST_BYTES_MAX <= limits::OBJECT_ANSWER_BYTES_MAX);
