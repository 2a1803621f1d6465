//! How transactions end: commit, abort, resolve, forget (atomicity `implied`).
//!
//! When every participant has a durable intent, the transaction *is* committed; its host tells the devices later. Any
//! host may find out the outcome at any time: it asks all participants, and a participant without an intent promises
//! never to make one (an abort promise). So the answers of the participants decide, not the host that asks:
//!
//! | on this device | vote to a resolver | effect of an abort | effect of a commit |
//! | --- | --- | --- | --- |
//! | unknown, or only pre-written | never prepared (an abort promise) | abort promise | nothing: it was confirmed and forgotten |
//! | intent being written | sent once it is durable or undone | undone once it is durable | (can't happen) |
//! | intent durable | prepared | undone | takes effect |
//! | committed | committed | nothing | nothing |

use super::Scheduler;
use super::ctx::Ctx;
use super::decision::Decision;
use super::transactions::{Awaited, State, Transaction};
use braid_base::{Generation, ObjectId, Stamp, TransactionId};
use braid_machine::Ignored;
use braid_wire::{Failure, Outcome, Refusal, Reply, Step, Vote};

impl Scheduler {
    /// Handles a commit that rode on a request of the transaction's own host. Its confirmation rides on an answer.
    pub fn on_commit_ride(&mut self, cx: &mut Ctx, id: TransactionId) {
        let held = self.order.ledger.get(id);
        match held.map(|transaction| transaction.state) {
            Some(State::Prepared) => self.commit(cx, id),
            Some(State::Prewritten) if held.is_some_and(Transaction::only_locks) => {
                // The transaction is remembered until its host settles it: a late copy of its read must not lock again.
                self.order.ledger.advance(cx, id, State::Aborted);
                cx.decide(Decision::Confirm(id));
            }
            // The unlock of a transaction that holds nothing here any more: only the confirmation was lost.
            Some(State::Aborted) if held.is_some_and(Transaction::only_locks) => cx.decide(Decision::Confirm(id)),
            // The commit is durable, or was forgotten long ago: only the confirmation was lost.
            Some(State::Committed) | None => cx.decide(Decision::Confirm(id)),
            Some(_) => cx.ignore(Ignored::InProgress),
        }
    }

    pub(super) fn on_decide(
        &mut self,
        cx: &mut Ctx,
        host: Generation,
        id: TransactionId,
        stamp: Stamp,
        outcome: Outcome,
    ) {
        let state = self.order.ledger.get(id).map(|transaction| transaction.state);
        match (outcome, state) {
            (Outcome::Commit, Some(State::Prepared)) => {
                self.order.ledger.ask(id, host, Awaited::Decision);
                self.commit(cx, id);
            }
            (Outcome::Commit, Some(State::Committing)) | (Outcome::Abort, Some(State::Aborting | State::Applying)) => {
                self.order.ledger.ask(id, host, Awaited::Decision);
            }
            (Outcome::Commit, None) | (_, Some(State::Committed)) => {
                cx.answer(host, Reply::Decided { transaction: id, outcome: Outcome::Commit });
            }
            (Outcome::Abort, Some(State::Prewritten)) => {
                self.order.promise_abort(cx, id);
                cx.answer(host, Reply::Decided { transaction: id, outcome: Outcome::Abort });
            }
            (Outcome::Abort, Some(State::Preparing { .. })) => {
                self.order.ledger.ask(id, host, Awaited::Decision);
                self.order.ledger.begin(id, State::Preparing { abort: true });
            }
            // The transaction's own host says that it wrote nothing.
            (Outcome::Abort, Some(State::Suspect { written: false })) if host == id.host => {
                self.order.ledger.forget(cx, id);
                cx.answer(host, Reply::Decided { transaction: id, outcome: Outcome::Abort });
            }
            (Outcome::Interrupted, Some(State::Prewritten)) => {
                self.cut_short(cx, id);
                cx.answer(host, Reply::Decided { transaction: id, outcome: Outcome::Abort });
            }
            (Outcome::Interrupted, Some(State::Applied)) => {
                if self.order.ledger.get(id).is_some_and(|applied| cx.can_be_suspect(applied.object)) {
                    self.order.ledger.suspect(cx, id);
                }
                cx.answer(host, Reply::Decided { transaction: id, outcome: Outcome::Abort });
            }
            (Outcome::Abort, Some(State::Prepared)) => {
                self.order.ledger.ask(id, host, Awaited::Decision);
                self.abort(cx, id);
            }
            (Outcome::Commit, Some(State::Aborted)) => {
                cx.answer(host, Reply::Decided { transaction: id, outcome: Outcome::Abort });
            }
            // What took effect on arrival can't be undone. The answer is that the outcome on this device is known.
            (
                Outcome::Abort | Outcome::Interrupted,
                Some(State::Aborted | State::Applied | State::Suspect { .. }) | None,
            ) => {
                self.order.waiting.take(id);
                self.columns.remove(id);
                if state.is_none() && host == id.host && self.order.ledger.can_remember(cx, id) {
                    // Its pre-write may still be on its way: the device remembers that it comes too late.
                    self.order
                        .ledger
                        .insert(id, Transaction::new(stamp, ObjectId(0), None, Vec::new(), State::Aborted));
                    self.order.ledger.keep_or_forget(cx, id);
                }
                cx.answer(host, Reply::Decided { transaction: id, outcome: Outcome::Abort });
            }
            // An abort that comes after the commit is answered once the commit is durable. No host that keeps to the
            // protocol commits what was never prepared.
            _ => cx.ignore(Ignored::InProgress),
        }
    }

    pub(super) fn on_resolve(&mut self, cx: &mut Ctx, host: Generation, id: TransactionId, stamp: Stamp) {
        self.order.counters.resolves += 1;
        let vote = match self.order.ledger.get(id).map(|transaction| transaction.state) {
            None => {
                // The abort promise: nothing at or below the stamp is accepted any more. The reservation of stamps has
                // made sure that this outlives a restart.
                self.order.stamps.raise_floor(stamp);
                Vote::NeverPrepared
            }
            Some(State::Prewritten) => {
                self.order.stamps.raise_floor(stamp);
                self.order.promise_abort(cx, id);
                Vote::NeverPrepared
            }
            Some(State::Aborted) => Vote::NeverPrepared,
            Some(State::Prepared) => {
                self.order.ledger.note_vote(id);
                Vote::Prepared
            }
            Some(State::Committing | State::Committed) => Vote::Committed,
            Some(State::Preparing { .. } | State::Aborting) => return self.order.ledger.ask(id, host, Awaited::Vote),
            Some(State::Applying | State::Applied | State::Suspect { .. }) => {
                return cx.ignore(Ignored::NotForUs);
            }
        };
        cx.answer(host, Reply::Vote { transaction: id, vote });
    }

    pub(super) fn on_forget(&mut self, cx: &mut Ctx, host: Generation, id: TransactionId) {
        match self.order.ledger.get(id).map(|transaction| transaction.state) {
            // The transaction's own host may only have been silent. If it sends its write again, it must hear that the
            // write committed, or it would write a second time. So the transaction is not an orphan any more, but is
            // forgotten only when its host says so, as it may have before, or is fenced. Until then no device misses it that
            // goes out: all have confirmed it.
            Some(State::Committed) if !cx.view.refuses(id.host) && !cx.hosts.is_over(id.host, id.sequence) => {
                self.order.ledger.orphans.remove(id);
                cx.decide(Decision::KeepForHost(id));
            }
            Some(State::Committed) => self.order.ledger.forget(cx, id),
            Some(State::Aborted) => self.order.ledger.drop_decided(id),
            // A host has verified its stripes or repaired them.
            Some(State::Suspect { .. }) => self.order.ledger.forget(cx, id),
            None => {}
            Some(_) => return cx.ignore(Ignored::InProgress),
        }
        cx.answer(host, Reply::Forgotten { transaction: id });
    }

    /// The host has declared its transactions below `sequence` over: nothing of them is needed any more.
    pub fn on_settled(&mut self, cx: &mut Ctx, host: Generation, sequence: u64) {
        self.columns.drop_readers(&mut self.order, |id| id.host == host && id.sequence < sequence);
        for id in self.order.waiting.of_host_below(host, sequence) {
            if self.order.ledger.get(id).is_none() {
                self.order.waiting.take(id);
            }
        }
        for id in self.order.ledger.table().of_host_below(host, sequence) {
            match self.order.ledger.get(id).map(|transaction| transaction.state) {
                Some(State::Prewritten) => self.order.promise_abort(cx, id),
                Some(State::Committed) => self.order.ledger.drop_decided(id),
                // An intent here is a late copy of a write that its host abandoned long ago. It becomes an orphan.
                Some(_) => self.order.ledger.keep_or_forget(cx, id),
                None => {}
            }
        }
    }

    /// The host has declared one transaction or request above its settled mark over.
    pub fn on_over(&mut self, cx: &mut Ctx, id: TransactionId) {
        self.columns.drop_readers(&mut self.order, |reader| reader == id);
        let Some(transaction) = self.order.ledger.get(id) else {
            // A request for objects, or a transaction that was forgotten long ago.
            return cx.decide(Decision::Forget(id));
        };
        let by_locks = transaction.takes_locks();
        match transaction.state {
            State::Prewritten => {
                self.order.promise_abort(cx, id);
                if by_locks {
                    self.on_lock_over(id);
                }
            }
            State::Committed | State::Applied => self.order.ledger.forget(cx, id),
            State::Aborted if by_locks => self.on_lock_over(id),
            // The stamp stays on the transaction's blocks, so that a late copy of its pre-write is refused. A
            // transaction without known blocks is kept: nothing else would refuse a late copy.
            State::Aborted if !transaction.ranges.is_empty() => self.order.ledger.drop_decided(id),
            _ => {}
        }
    }

    /// The store has made the intent durable, or has failed to.
    pub fn on_prepared(&mut self, cx: &mut Ctx, id: TransactionId, result: Result<(), Failure>) {
        let transaction = self.order.ledger.get(id).expect("a transaction that is being prepared is kept");
        let State::Preparing { abort } = transaction.state else {
            panic!("the store prepared an intent that it was not given: {id} is {:?}", transaction.state);
        };
        let wanted = transaction.wanted;
        match result {
            Err(failure) => {
                // The write stamp stays on the blocks, so that no copy of the pre-write is accepted: the failure is
                // final.
                self.order.ledger.advance(cx, id, State::Aborted);
                match failure {
                    Failure::Busy => cx.refuse(id, Step::Write, Refusal::Busy),
                    failure => cx.fail(id, Step::Write, failure),
                }
            }
            // No host hears that it was prepared.
            Ok(()) if abort => self.abort(cx, id),
            Ok(()) => {
                self.order.ledger.advance(cx, id, State::Prepared);
                self.columns.on_prepared(cx, &self.order, id);
                if wanted {
                    cx.answer(id.host, Reply::Blocked { transaction: id });
                }
            }
        }
    }

    pub fn on_applied(&mut self, cx: &mut Ctx, id: TransactionId, result: Result<(), Failure>) {
        let transaction = self.order.ledger.get(id).expect("a transaction that is being applied is kept");
        let announced = transaction.policy.is_some_and(|policy| policy.announces);
        let waited = transaction.waited;
        match result {
            Ok(()) => {
                cx.answer(id.host, Reply::Written { transaction: id, waited });
                return self.order.ledger.advance(cx, id, State::Applied);
            }
            Err(Failure::Busy) => cx.refuse(id, Step::Write, Refusal::Busy),
            Err(failure) => cx.fail(id, Step::Write, failure),
        }
        self.order.ledger.advance(cx, id, State::Aborted);
        // A write that was not announced is attempted again when its host sends it again.
        if !announced && self.order.ledger.get(id).is_some() {
            self.order.ledger.drop_decided(id);
        }
    }

    /// A commit is durable.
    pub fn on_committed(&mut self, cx: &mut Ctx, id: TransactionId) {
        cx.decide(Decision::Confirm(id));
        self.order.ledger.advance(cx, id, State::Committed);
        if self.order.ledger.is_before_return(cx, id) {
            self.order.ledger.forget(cx, id);
        }
    }

    pub fn on_aborted(&mut self, cx: &mut Ctx, id: TransactionId) {
        self.order.ledger.advance(cx, id, State::Aborted);
    }

    fn commit(&mut self, cx: &mut Ctx, id: TransactionId) {
        self.order.counters.commits += 1;
        self.order.ledger.orphans.remove(id);
        cx.decide(Decision::Commit(id));
        self.order.ledger.advance(cx, id, State::Committing);
    }

    fn abort(&mut self, cx: &mut Ctx, id: TransactionId) {
        self.order.counters.aborts += 1;
        self.order.ledger.orphans.remove(id);
        cx.decide(Decision::Abort(id));
        self.order.ledger.advance(cx, id, State::Aborting);
    }
}
