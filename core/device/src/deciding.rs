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

use crate::device::Device;
use crate::transactions::{Asked, State, Transaction, Transactions};
use braid_base::{Generation, Now, ObjectId, Stamp, TransactionId};
use braid_machine::{Effects, Ignored};
use braid_wire::{Failure, Ordering, Outcome, Refusal, Reply, Step, Vote};

impl Device {
    /// A commit that rode on a request of the transaction's own host: confirmed by riding on an answer.
    pub(crate) fn on_commit_ride(&mut self, now: Now, id: TransactionId, out: &mut Effects) {
        match self.transactions.get(id).map(|transaction| transaction.state) {
            Some(State::Prepared) => self.commit(now, id, out),
            Some(State::Prewritten) if self.only_holds_locks(id) => {
                // Remembered until its host settles it: a late copy of its read must not lock again.
                self.advance(now, id, State::Aborted, out);
                self.confirm(id);
            }
            Some(State::Aborted) => self.confirm_unlock(id, out),
            // Durable before, or so long ago that it was forgotten: only the confirmation was lost.
            Some(State::Committed) | None => self.confirm(id),
            Some(_) => self.ignore(Ignored::InProgress, out),
        }
    }

    /// The unlock of a transaction that holds nothing here, or nothing any more: only the confirmation was lost.
    fn confirm_unlock(&mut self, id: TransactionId, out: &mut Effects) {
        let held = self.transactions.get(id).expect("it is known");
        if held.ordering == Ordering::DeviceLock && held.ranges.is_empty() {
            self.confirm(id);
        } else {
            self.ignore(Ignored::InProgress, out);
        }
    }

    pub(crate) fn on_decide(
        &mut self,
        now: Now,
        host: Generation,
        id: TransactionId,
        stamp: Stamp,
        outcome: Outcome,
        out: &mut Effects,
    ) {
        let state = self.transactions.get(id).map(|transaction| transaction.state);
        match (outcome, state) {
            (Outcome::Commit, Some(State::Prepared)) => {
                self.ask(id, host, Asked::Decision);
                self.commit(now, id, out);
            }
            (Outcome::Commit, Some(State::Committing)) | (Outcome::Abort, Some(State::Aborting | State::Applying)) => {
                self.ask(id, host, Asked::Decision);
            }
            (Outcome::Commit, None) | (_, Some(State::Committed)) => {
                self.answer(host, Reply::Decided { transaction: id, outcome: Outcome::Commit }, out);
            }
            (Outcome::Abort, Some(State::Prewritten)) => {
                self.refuse_for_ever(now, id, out);
                self.answer(host, Reply::Decided { transaction: id, outcome: Outcome::Abort }, out);
            }
            (Outcome::Abort, Some(State::Preparing { .. })) => {
                self.ask(id, host, Asked::Decision);
                self.transactions.advance(id, State::Preparing { abort: true });
            }
            // Its host wrote nothing, or so it says who knows.
            (Outcome::Abort, Some(State::Suspect { written: false })) if host == id.host => {
                self.drop_suspect(id);
                self.answer(host, Reply::Decided { transaction: id, outcome: Outcome::Abort }, out);
            }
            (Outcome::Torn, Some(State::Prewritten)) => {
                self.cut_short(now, id, out);
                self.answer(host, Reply::Decided { transaction: id, outcome: Outcome::Abort }, out);
            }
            (Outcome::Torn, Some(State::Applied)) => {
                if self.can_be_suspect(object_of(&self.transactions, id)) {
                    self.suspect(now, id, out);
                }
                self.answer(host, Reply::Decided { transaction: id, outcome: Outcome::Abort }, out);
            }
            (Outcome::Abort, Some(State::Prepared)) => {
                self.ask(id, host, Asked::Decision);
                self.abort(now, id, out);
            }
            (Outcome::Commit, Some(State::Aborted)) => {
                self.answer(host, Reply::Decided { transaction: id, outcome: Outcome::Abort }, out);
            }
            // What took effect on arrival can't be undone: that it stands here is known from now on.
            (Outcome::Abort | Outcome::Torn, Some(State::Aborted | State::Applied | State::Suspect { .. }) | None) => {
                self.waiting.take(id);
                if state.is_none() && host == id.host && !self.transactions.is_full() {
                    // Its pre-write may still be on its way: remember that it comes too late.
                    self.transactions.insert(
                        id,
                        Transaction::new(stamp, ObjectId(0), Ordering::Timestamp, Vec::new(), State::Aborted),
                    );
                    self.keep_or_forget(now, id, out);
                }
                self.answer(host, Reply::Decided { transaction: id, outcome: Outcome::Abort }, out);
            }
            // An abort that comes after the commit will be answered once that is durable; a commit of what was never
            // prepared comes from no host that keeps to the protocol.
            _ => self.ignore(Ignored::InProgress, out),
        }
    }

    pub(crate) fn on_resolve(
        &mut self,
        now: Now,
        host: Generation,
        id: TransactionId,
        stamp: Stamp,
        out: &mut Effects,
    ) {
        self.counters.resolves += 1;
        let vote = match self.transactions.get(id).map(|transaction| transaction.state) {
            None => {
                // The promise: nothing at or below its stamp is taken any more, and the gate has made sure that this
                // outlives a restart.
                self.stamps.raise_floor(stamp);
                Vote::NeverPrepared
            }
            Some(State::Prewritten) => {
                self.stamps.raise_floor(stamp);
                self.refuse_for_ever(now, id, out);
                Vote::NeverPrepared
            }
            Some(State::Aborted) => Vote::NeverPrepared,
            Some(State::Prepared) => Vote::Prepared,
            Some(State::Committing | State::Committed) => Vote::Committed,
            Some(State::Preparing { .. } | State::Aborting) => return self.ask(id, host, Asked::Vote),
            Some(State::Applying | State::Applied | State::Suspect { .. }) => {
                return self.ignore(Ignored::NotForUs, out);
            }
        };
        self.answer(host, Reply::Vote { transaction: id, vote }, out);
    }

    pub(crate) fn on_forget(&mut self, host: Generation, id: TransactionId, out: &mut Effects) {
        match self.transactions.get(id).map(|transaction| transaction.state) {
            // Its own host may only have been silent: sending its write again, it must hear that this committed, or it would
            // write a second time. So it is no orphan any more, but forgotten only by its host's word or when that is fenced.
            Some(State::Committed) if !self.view().refuses(id.host) => {
                self.orphans.remove(id);
            }
            Some(State::Committed) => {
                self.store.forget(id);
                self.drop_decided(id);
            }
            Some(State::Aborted) => self.drop_decided(id),
            // Its stripes are known to be right again.
            Some(State::Suspect { .. }) => self.drop_suspect(id),
            None => {}
            Some(_) => return self.ignore(Ignored::InProgress, out),
        }
        self.answer(host, Reply::Forgotten { transaction: id }, out);
    }

    /// The host has declared its transactions below `sequence` over: nothing of them is needed any more.
    pub(crate) fn on_settled(&mut self, now: Now, host: Generation, sequence: u64, out: &mut Effects) {
        if !self.sessions.settle(host, sequence) {
            return;
        }
        self.store.settle(host, sequence);
        for id in self.waiting.of_host_below(host, sequence) {
            if self.transactions.get(id).is_none() {
                self.waiting.take(id);
            }
        }
        for id in self.transactions.of_host_below(host, sequence) {
            match self.transactions.get(id).map(|transaction| transaction.state) {
                Some(State::Prewritten) => self.refuse_for_ever(now, id, out),
                Some(State::Committed) => self.drop_decided(id),
                // An intent here is a late copy of a write that its host gave up long ago: an orphan now.
                Some(_) => self.keep_or_forget(now, id, out),
                None => {}
            }
        }
    }

    /// The host has declared one transaction or request over, above its mark.
    pub(crate) fn on_over(&mut self, now: Now, id: TransactionId, out: &mut Effects) {
        let Some(transaction) = self.transactions.get(id) else {
            // A request for objects, or long forgotten.
            return self.store.forget(id);
        };
        let by_locks = transaction.ordering == Ordering::DeviceLock;
        match transaction.state {
            State::Prewritten => {
                self.refuse_for_ever(now, id, out);
                if by_locks {
                    self.on_lock_over(id);
                }
            }
            State::Committed => {
                self.store.forget(id);
                self.drop_decided(id);
            }
            State::Applied => {
                self.store.forget(id);
                self.drop_decided(id);
            }
            State::Aborted if by_locks => self.on_lock_over(id),
            // Its stamp stays on its blocks, so a late copy of its pre-write is refused; one without blocks is all that is
            // left to refuse it by.
            State::Aborted if !transaction.ranges.is_empty() => self.drop_decided(id),
            _ => {}
        }
    }

    /// The store has the intent, or could not take it.
    pub(crate) fn on_prepared(&mut self, now: Now, id: TransactionId, result: Result<(), Failure>, out: &mut Effects) {
        let transaction = self.transactions.get(id).expect("what is being prepared is kept");
        let State::Preparing { abort } = transaction.state else {
            panic!("the store prepared what was not asked: {id} is {:?}", transaction.state);
        };
        let (wanted, waited) = (transaction.wanted, transaction.waited);
        match result {
            Err(failure) => {
                // Its write stamp stays, so no copy of the pre-write is taken: the failure is final.
                self.advance(now, id, State::Aborted, out);
                match failure {
                    Failure::Busy => self.refuse(id, Step::Write, Refusal::Busy, out),
                    failure => self.fail(id, Step::Write, failure, out),
                }
            }
            Ok(()) => {
                self.advance(now, id, State::Prepared, out);
                if abort {
                    return self.abort(now, id, out);
                }
                self.answer(id.host, Reply::Written { transaction: id, waited }, out);
                if wanted {
                    self.answer(id.host, Reply::Blocked { transaction: id }, out);
                }
            }
        }
    }

    pub(crate) fn on_applied(&mut self, now: Now, id: TransactionId, result: Result<(), Failure>, out: &mut Effects) {
        let transaction = self.transactions.get(id).expect("what is being applied is kept");
        let announced = !transaction.ordering.needs_lock_server() && transaction.ordering != Ordering::None;
        let waited = transaction.waited;
        match result {
            Ok(()) => {
                self.answer(id.host, Reply::Written { transaction: id, waited }, out);
                return self.advance(now, id, State::Applied, out);
            }
            Err(Failure::Busy) => self.refuse(id, Step::Write, Refusal::Busy, out),
            Err(failure) => self.fail(id, Step::Write, failure, out),
        }
        self.advance(now, id, State::Aborted, out);
        // What was not announced is tried again when it is sent again.
        if !announced && self.transactions.get(id).is_some() {
            self.drop_decided(id);
        }
    }

    /// A commit is durable.
    pub(crate) fn on_committed(&mut self, now: Now, id: TransactionId, out: &mut Effects) {
        self.confirm(id);
        self.advance(now, id, State::Committed, out);
        if self.is_before_return(id) {
            self.drop_decided(id);
        }
    }

    /// An abort is durable.
    pub(crate) fn on_aborted(&mut self, now: Now, id: TransactionId, out: &mut Effects) {
        self.advance(now, id, State::Aborted, out);
    }

    fn commit(&mut self, now: Now, id: TransactionId, out: &mut Effects) {
        self.counters.commits += 1;
        self.orphans.remove(id);
        self.store.commit(now, id, out);
        self.advance(now, id, State::Committing, out);
    }

    fn abort(&mut self, now: Now, id: TransactionId, out: &mut Effects) {
        self.counters.aborts += 1;
        self.orphans.remove(id);
        self.store.abort(now, id, out);
        self.advance(now, id, State::Aborting, out);
    }

    /// Lets the transaction's host know, with the next answer to it, that the commit is durable.
    fn confirm(&mut self, id: TransactionId) {
        self.sessions.confirm(id.host, id.sequence);
    }

    fn ask(&mut self, id: TransactionId, host: Generation, asked: Asked) {
        let transaction = self.transactions.get_mut(id).expect("it is known");
        if !transaction.askers.contains(&(host, asked)) {
            transaction.askers.push((host, asked));
        }
    }

    pub(crate) fn drop_decided(&mut self, id: TransactionId) {
        self.orphans.remove(id);
        if let Some(transaction) = self.transactions.get(id) {
            self.suspects.remove(id, transaction.object, &transaction.ranges);
        }
        self.transactions.remove(id);
    }

    fn drop_suspect(&mut self, id: TransactionId) {
        self.store.forget(id);
        self.drop_decided(id);
    }
}

fn object_of(transactions: &Transactions, id: TransactionId) -> ObjectId {
    transactions.get(id).expect("it is known").object
}
