//! How transactions end: commit, abort, resolve, forget (atomicity `implied`).
//!
//! When every participant has a durable intent, the transaction *is* committed; its host says so lazily. Any host may
//! find out at any time: it asks all participants, and one that has no intent promises never to make one. So the
//! answers decide, not the asker:
//!
//! | on this device | a resolver hears | an abort does | a commit does |
//! | --- | --- | --- | --- |
//! | unknown, or only pre-written | never prepared (a promise) | refuse it for ever | nothing: it was confirmed and forgotten |
//! | intent on its way | the answer waits until it is durable | undo it once it is there | (can't be) |
//! | intent durable | prepared | undo it | make it so |
//! | committed | committed | nothing | nothing |

use super::Scheduler;
use super::ctx::Ctx;
use super::decision::Decision;
use super::transactions::{Awaited, State, Transaction};
use braid_base::{Generation, ObjectId, Stamp, TransactionId};
use braid_machine::Ignored;
use braid_wire::{Failure, Outcome, Refusal, Reply, Step, Vote};

impl Scheduler {
    /// A commit that rode on a request of the transaction's own host: confirmed by riding on an answer.
    pub fn on_commit_ride(&mut self, cx: &mut Ctx, id: TransactionId) {
        let held = self.ledger.get(id);
        match held.map(|transaction| transaction.state) {
            Some(State::Prepared) => self.commit(cx, id),
            Some(State::Prewritten) if held.is_some_and(Transaction::only_locks) => {
                // Remembered until its host settles it: a late copy of its read must not lock again.
                self.ledger.advance(cx, id, State::Aborted);
                cx.decide(Decision::Confirm(id));
            }
            // The unlock of a transaction that holds nothing here, or nothing any more: only the confirmation was lost.
            Some(State::Aborted) if held.is_some_and(Transaction::only_locks) => cx.decide(Decision::Confirm(id)),
            // Durable before, or so long ago that it was forgotten: only the confirmation was lost.
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
        let state = self.ledger.get(id).map(|transaction| transaction.state);
        match (outcome, state) {
            (Outcome::Commit, Some(State::Prepared)) => {
                self.ledger.ask(id, host, Awaited::Decision);
                self.commit(cx, id);
            }
            (Outcome::Commit, Some(State::Committing)) | (Outcome::Abort, Some(State::Aborting | State::Applying)) => {
                self.ledger.ask(id, host, Awaited::Decision);
            }
            (Outcome::Commit, None) | (_, Some(State::Committed)) => {
                cx.answer(host, Reply::Decided { transaction: id, outcome: Outcome::Commit });
            }
            (Outcome::Abort, Some(State::Prewritten)) => {
                self.promise_abort(cx, id);
                cx.answer(host, Reply::Decided { transaction: id, outcome: Outcome::Abort });
            }
            (Outcome::Abort, Some(State::Preparing { .. })) => {
                self.ledger.ask(id, host, Awaited::Decision);
                self.ledger.begin(id, State::Preparing { abort: true });
            }
            // Its host says so itself, and nothing was written.
            (Outcome::Abort, Some(State::Suspect { written: false })) if host == id.host => {
                self.ledger.forget(cx, id);
                cx.answer(host, Reply::Decided { transaction: id, outcome: Outcome::Abort });
            }
            (Outcome::Interrupted, Some(State::Prewritten)) => {
                self.cut_short(cx, id);
                cx.answer(host, Reply::Decided { transaction: id, outcome: Outcome::Abort });
            }
            (Outcome::Interrupted, Some(State::Applied)) => {
                if self.ledger.get(id).is_some_and(|applied| cx.can_be_suspect(applied.object)) {
                    self.ledger.suspect(cx, id);
                }
                cx.answer(host, Reply::Decided { transaction: id, outcome: Outcome::Abort });
            }
            (Outcome::Abort, Some(State::Prepared)) => {
                self.ledger.ask(id, host, Awaited::Decision);
                self.abort(cx, id);
            }
            (Outcome::Commit, Some(State::Aborted)) => {
                cx.answer(host, Reply::Decided { transaction: id, outcome: Outcome::Abort });
            }
            // What took effect on arrival can't be undone: that it stands here is known from now on.
            (
                Outcome::Abort | Outcome::Interrupted,
                Some(State::Aborted | State::Applied | State::Suspect { .. }) | None,
            ) => {
                self.waiting.take(id);
                if state.is_none() && host == id.host && !self.ledger.table().is_full() {
                    // Its pre-write may still be on its way: remember that it comes too late.
                    self.ledger.insert(id, Transaction::new(stamp, ObjectId(0), None, Vec::new(), State::Aborted));
                    self.ledger.keep_or_forget(cx, id);
                }
                cx.answer(host, Reply::Decided { transaction: id, outcome: Outcome::Abort });
            }
            // An abort that comes after the commit will be answered once that is durable; a commit of what was never
            // prepared comes from no host that keeps to the protocol.
            _ => cx.ignore(Ignored::InProgress),
        }
    }

    pub(super) fn on_resolve(&mut self, cx: &mut Ctx, host: Generation, id: TransactionId, stamp: Stamp) {
        self.counters.resolves += 1;
        let vote = match self.ledger.get(id).map(|transaction| transaction.state) {
            None => {
                // The promise: nothing at or below its stamp is taken any more, and the gate has made sure that this
                // outlives a restart.
                self.stamps.raise_floor(stamp);
                Vote::NeverPrepared
            }
            Some(State::Prewritten) => {
                self.stamps.raise_floor(stamp);
                self.promise_abort(cx, id);
                Vote::NeverPrepared
            }
            Some(State::Aborted) => Vote::NeverPrepared,
            Some(State::Prepared) => Vote::Prepared,
            Some(State::Committing | State::Committed) => Vote::Committed,
            Some(State::Preparing { .. } | State::Aborting) => return self.ledger.ask(id, host, Awaited::Vote),
            Some(State::Applying | State::Applied | State::Suspect { .. }) => {
                return cx.ignore(Ignored::NotForUs);
            }
        };
        cx.answer(host, Reply::Vote { transaction: id, vote });
    }

    pub(super) fn on_forget(&mut self, cx: &mut Ctx, host: Generation, id: TransactionId) {
        match self.ledger.get(id).map(|transaction| transaction.state) {
            // Its own host may only have been silent: sending its write again, it must hear that this committed, or it would
            // write a second time. So it is no orphan any more, but forgotten only by its host's word or when that is fenced.
            Some(State::Committed) if !cx.view.refuses(id.host) => {
                self.ledger.remove_orphan(id);
            }
            Some(State::Committed) => self.ledger.forget(cx, id),
            Some(State::Aborted) => self.ledger.drop_decided(id),
            // Its stripes are known to be right again.
            Some(State::Suspect { .. }) => self.ledger.forget(cx, id),
            None => {}
            Some(_) => return cx.ignore(Ignored::InProgress),
        }
        cx.answer(host, Reply::Forgotten { transaction: id });
    }

    /// The host has declared its transactions below `sequence` over: nothing of them is needed any more.
    pub fn on_settled(&mut self, cx: &mut Ctx, host: Generation, sequence: u64) {
        for id in self.waiting.of_host_below(host, sequence) {
            if self.ledger.get(id).is_none() {
                self.waiting.take(id);
            }
        }
        for id in self.ledger.table().of_host_below(host, sequence) {
            match self.ledger.get(id).map(|transaction| transaction.state) {
                Some(State::Prewritten) => self.promise_abort(cx, id),
                Some(State::Committed) => self.ledger.drop_decided(id),
                // An intent here is a late copy of a write that its host gave up long ago: an orphan now.
                Some(_) => self.ledger.keep_or_forget(cx, id),
                None => {}
            }
        }
    }

    /// The host has declared one transaction or request over, above its mark.
    pub fn on_over(&mut self, cx: &mut Ctx, id: TransactionId) {
        let Some(transaction) = self.ledger.get(id) else {
            // A request for objects, or long forgotten.
            return cx.decide(Decision::Forget(id));
        };
        let by_locks = transaction.takes_locks();
        match transaction.state {
            State::Prewritten => {
                self.promise_abort(cx, id);
                if by_locks {
                    self.on_lock_over(id);
                }
            }
            State::Committed | State::Applied => self.ledger.forget(cx, id),
            State::Aborted if by_locks => self.on_lock_over(id),
            // Its stamp stays on its blocks, so a late copy of its pre-write is refused; one without blocks is all that is
            // left to refuse it by.
            State::Aborted if !transaction.ranges.is_empty() => self.ledger.drop_decided(id),
            _ => {}
        }
    }

    /// The store has the intent, or could not take it.
    pub fn on_prepared(&mut self, cx: &mut Ctx, id: TransactionId, result: Result<(), Failure>) {
        let transaction = self.ledger.get(id).expect("what is being prepared is kept");
        let State::Preparing { abort } = transaction.state else {
            panic!("the store prepared what was not asked: {id} is {:?}", transaction.state);
        };
        let (wanted, waited) = (transaction.wanted, transaction.waited);
        match result {
            Err(failure) => {
                // Its write stamp stays, so no copy of the pre-write is taken: the failure is final.
                self.ledger.advance(cx, id, State::Aborted);
                match failure {
                    Failure::Busy => cx.refuse(id, Step::Write, Refusal::Busy),
                    failure => cx.fail(id, Step::Write, failure),
                }
            }
            Ok(()) => {
                self.ledger.advance(cx, id, State::Prepared);
                if abort {
                    return self.abort(cx, id);
                }
                cx.answer(id.host, Reply::Written { transaction: id, waited });
                if wanted {
                    cx.answer(id.host, Reply::Blocked { transaction: id });
                }
            }
        }
    }

    pub fn on_applied(&mut self, cx: &mut Ctx, id: TransactionId, result: Result<(), Failure>) {
        let transaction = self.ledger.get(id).expect("what is being applied is kept");
        let announced = transaction.policy.is_some_and(|policy| policy.announces);
        let waited = transaction.waited;
        match result {
            Ok(()) => {
                cx.answer(id.host, Reply::Written { transaction: id, waited });
                return self.ledger.advance(cx, id, State::Applied);
            }
            Err(Failure::Busy) => cx.refuse(id, Step::Write, Refusal::Busy),
            Err(failure) => cx.fail(id, Step::Write, failure),
        }
        self.ledger.advance(cx, id, State::Aborted);
        // What was not announced is tried again when it is sent again.
        if !announced && self.ledger.get(id).is_some() {
            self.ledger.drop_decided(id);
        }
    }

    /// A commit is durable.
    pub fn on_committed(&mut self, cx: &mut Ctx, id: TransactionId) {
        cx.decide(Decision::Confirm(id));
        self.ledger.advance(cx, id, State::Committed);
        if self.ledger.is_before_return(cx, id) {
            self.ledger.drop_decided(id);
        }
    }

    /// An abort is durable.
    pub fn on_aborted(&mut self, cx: &mut Ctx, id: TransactionId) {
        self.ledger.advance(cx, id, State::Aborted);
    }

    fn commit(&mut self, cx: &mut Ctx, id: TransactionId) {
        self.counters.commits += 1;
        self.ledger.remove_orphan(id);
        cx.decide(Decision::Commit(id));
        self.ledger.advance(cx, id, State::Committing);
    }

    fn abort(&mut self, cx: &mut Ctx, id: TransactionId) {
        self.counters.aborts += 1;
        self.ledger.remove_orphan(id);
        cx.decide(Decision::Abort(id));
        self.ledger.advance(cx, id, State::Aborting);
    }
}
