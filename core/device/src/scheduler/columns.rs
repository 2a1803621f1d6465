//! Columns, which devices execute together (`docs/parallel-raid.md`; the parallel-RAID paper, sections 3.2 to 3.5). A column
//! is a read, a pre-write and a write in one request:
//!
//! | of the column | is treated like | so it |
//! | --- | --- | --- |
//! | blocks whose old content is needed | a read | is refused if `s <= wts`; waits for undecided transactions below `s`; raises `rts` before it reads |
//! | blocks that are written | an unannounced write | is refused if `s <= rts` or `s <= wts`; claims the blocks at once; before it becomes an intent it waits for undecided transactions below `s`, and raises `wts` |
//!
//! What a transaction's column does on a device, by the state of the transaction there:
//!
//! | state | the column | a partial for it |
//! | --- | --- | --- |
//! | unknown | is checked and executed | is kept for a second |
//! | pre-written: it waits, reads or gathers | is answered with its progress; what it has sent is sent again | is added, once for each sender |
//! | intent being written, or durable | what it has sent is sent again; answered once both are done | is ignored |
//! | committed | is answered | is ignored |
//! | aborted | is refused | is ignored |
//!
//! What is sent again is made from the committed content and the repeated column. It equals what was sent first: no transaction below `s`
//! changes the content after `rts` was raised to `s`, or after a restart has made `s` part of the floor; and the transaction itself is
//! undecided.

mod check;
mod early_partials;
mod execution;

use super::ctx::Ctx;
use super::decision::Decision;
use super::order::Order;
use super::stamp_table::Access;
use super::transactions::{State, Transaction};
use super::waiting::{ReadRequest, Waiting, WaitingRequest};
use braid_base::{DeviceId, Epoch, Generation, Time, TransactionId, limits};
use braid_blocks::{Column, Piece, Want};
use braid_machine::Ignored;
use braid_ordering::WriteMode;
use braid_store::Intent;
use braid_wire::{Failure, Partial, Progress, Refusal, Reply, Step};
use check::check;
use early_partials::EarlyPartials;
use execution::Execution;
use std::collections::{BTreeMap, BTreeSet};

/// The columns that a device is executing, and early partials.
#[derive(Clone, Debug, Default)]
pub(super) struct Columns {
    executions: BTreeMap<TransactionId, Execution>,
    /// What the executions take in memory.
    bytes: usize,
    early: EarlyPartials,
}

impl Columns {
    /// A host asks to execute a column. `intent`: what it writes, without the parity.
    pub fn on_execute(&mut self, cx: &mut Ctx, order: &mut Order, intent: Intent, column: Column) {
        let id = intent.transaction;
        if self.under_way(order, id).is_some() {
            return self.execute_again(cx, order, id);
        }
        match order.ledger.get(id).map(|transaction| transaction.state) {
            None => self.execute(cx, order, intent, column),
            Some(State::Preparing { .. } | State::Prepared) => self.send_again(cx, order, intent, column),
            Some(State::Committing | State::Committed) => answer(cx, order, id),
            Some(State::Aborting | State::Aborted) => cx.refuse(id, Step::Execute, Refusal::NoPrewrite),
            Some(State::Prewritten | State::Applying | State::Applied | State::Suspect { .. }) => {
                cx.ignore(Ignored::NotForUs);
            }
        }
    }

    fn execute(&mut self, cx: &mut Ctx, order: &mut Order, intent: Intent, column: Column) {
        let (id, object, stamp) = (intent.transaction, intent.object, intent.stamp);
        let (writes, reads) = (column.writes(), column.reads());
        let policy = match check(cx, &intent, &column, &writes, &reads) {
            Ok(policy) => policy,
            Err(failure) => return cx.fail(id, Step::Execute, failure),
        };
        let seen = order.stamps.seen(object, &writes, &reads);
        if stamp <= seen {
            return cx.refuse(id, Step::Execute, Refusal::TooLate { seen });
        }
        let execution = Execution::new(intent, policy, column, reads);
        if order.ledger.table().is_full_for(id.host) || !self.insert(id, execution) {
            return cx.refuse(id, Step::Execute, Refusal::Busy);
        }
        if !writes.is_empty() {
            order.counters.prewrites += 1;
            order.ledger.insert(id, Transaction::new(stamp, object, Some(policy), writes, State::Prewritten));
        }
        let execution = self.executions.get_mut(&id).expect("just inserted");
        for (from, partial) in self.early.take(id, cx.devices_since()) {
            execution.add(from, &partial.pieces);
        }
        self.read_old(cx, order, id);
    }

    /// No transaction below may change the old content any more that a column needs.
    pub fn resume(&mut self, cx: &mut Ctx, order: &mut Order, id: TransactionId) {
        let Some(execution) = self.under_way(order, id) else { return };
        // Blocks that it only reads were not claimed meanwhile.
        let seen = order.stamps.seen_by_read(execution.object, &execution.reads);
        if execution.stamp <= seen {
            self.end(cx, order, id);
            return cx.refuse(id, Step::Execute, Refusal::TooLate { seen });
        }
        self.read_old(cx, order, id);
    }

    /// Reads the old content that the column needs, unless a transaction below may change it.
    fn read_old(&mut self, cx: &mut Ctx, order: &mut Order, id: TransactionId) {
        let execution = self.executions.get(&id).expect("its column is being executed");
        let Execution { stamp, object, policy, .. } = *execution;
        let blocks = execution.reads.clone();
        let blockers: BTreeSet<_> = order.ledger.table().blockers(id, stamp, policy, object, &blocks).collect();
        if !blockers.is_empty() || order.reading.len() >= limits::WAITING_MAX {
            if let Some(transaction) = order.ledger.get_mut(id) {
                transaction.waited = true;
            }
            let waiting = Waiting { stamp, policy, object, blocks, request: WaitingRequest::Execute };
            if blockers.is_empty() || !order.wait(cx, id, waiting, blockers) {
                self.end(cx, order, id);
                cx.refuse(id, Step::Execute, Refusal::Busy);
            }
            return;
        }
        if blocks.is_empty() {
            self.on_old(cx, order, id, Ok(Vec::new()));
        } else {
            order.stamps.raise(cx.now.time, object, &blocks, Access::Read, stamp);
            let read = ReadRequest { object, extents: blocks, want: Want::Data, waited: false };
            order.serve(cx, id, Step::Execute, read);
        }
        // A device without parity need not wait for what it reads: the commit needs what the read brings, so until then the old content is
        // the committed one.
        if let Some(execution) = self.executions.get_mut(&id)
            && !execution.gathers()
            && execution.intent.is_some()
        {
            let intent = execution.finish();
            order.write_in_order(cx, intent, WriteMode::Intent);
        }
    }

    /// The old content is here: the device sends what it owes.
    pub fn on_old(&mut self, cx: &mut Ctx, order: &mut Order, id: TransactionId, old: Result<Vec<Piece>, Failure>) {
        let Some(execution) = self.under_way(order, id) else { return };
        let old = match old {
            Ok(old) => old,
            Err(failure) => {
                execution.has_failed = true;
                if execution.intent.is_some() || order.ledger.get(id).is_none() {
                    self.end(cx, order, id);
                }
                return cx.fail(id, Step::Execute, failure);
            }
        };
        let (epoch, object) = (execution.epoch, execution.object);
        for (to, pieces) in execution.partials(&old) {
            cx.decide(Decision::Send { to, partial: Partial { epoch, transaction: id, object, pieces } });
        }
        if !execution.has_sent {
            execution.add_base(&old);
            execution.has_sent = true;
        }
        self.proceed(cx, order, id);
    }

    /// Another device has sent its part.
    pub fn on_partial(&mut self, cx: &mut Ctx, order: &mut Order, from: DeviceId, partial: Partial) {
        let id = partial.transaction;
        let is_over = cx.view.refuses(id.host) || cx.hosts.is_settled(id.host, id.sequence);
        if is_over || !cx.is_member(from) || partial.epoch < cx.devices_since() {
            return cx.ignore(Ignored::NotAwaited);
        }
        match self.under_way(order, id) {
            Some(execution) if partial.epoch <= cx.view.epoch() => {
                if !execution.add(from, &partial.pieces) {
                    return cx.ignore(Ignored::NotAwaited);
                }
                self.proceed(cx, order, id);
            }
            None if order.ledger.get(id).is_none() => self.early.keep(cx.now.time, from, partial),
            _ => cx.ignore(Ignored::NotAwaited),
        }
    }

    /// Makes the intent once everything is gathered; ends the execution once everything is done.
    fn proceed(&mut self, cx: &mut Ctx, order: &mut Order, id: TransactionId) {
        let Some(execution) = self.executions.get_mut(&id) else { return };
        if execution.gathers() {
            if execution.is_gathered() {
                // Requests with lower stamps may have claimed these blocks meanwhile: they come first.
                let intent = execution.finish();
                order.write_in_order(cx, intent, WriteMode::Intent);
            }
            return;
        }
        match order.ledger.get(id).map(|transaction| transaction.state) {
            // It only reads.
            None => self.remove(id),
            Some(State::Prepared) => self.on_prepared(cx, order, id),
            Some(_) => {}
        }
    }

    /// An intent is durable: answers for its column once that has sent what it owes, or for the write.
    pub fn on_prepared(&mut self, cx: &mut Ctx, order: &Order, id: TransactionId) {
        if self.executions.get(&id).is_some_and(|execution| !execution.has_sent) {
            return;
        }
        self.remove(id);
        answer(cx, order, id);
    }

    /// The host repeats the request for a column that is being executed.
    fn execute_again(&mut self, cx: &mut Ctx, order: &mut Order, id: TransactionId) {
        let execution = &self.executions[&id];
        let progress = match execution.missing() {
            missing if execution.has_sent && !missing.is_empty() => Progress::Gathering { missing: missing.to_vec() },
            _ => Progress::Waiting,
        };
        cx.answer(id.host, Reply::Executing { transaction: id, progress });
        if execution.has_failed || (execution.has_sent && !execution.column.sends.is_empty()) {
            self.read_again(cx, order, id);
        }
    }

    /// The host repeats the request for a column whose intent is there: a device may lack what this one has sent.
    fn send_again(&mut self, cx: &mut Ctx, order: &mut Order, intent: Intent, column: Column) {
        let id = intent.transaction;
        let transaction = order.ledger.get(id).expect("its intent is here");
        let Some(policy) = transaction.policy else { return cx.ignore(Ignored::InProgress) };
        if transaction.stamp != intent.stamp || transaction.object != intent.object {
            return cx.ignore(Ignored::NotForUs);
        }
        let reads = column.reads();
        if check(cx, &intent, &column, &column.writes(), &reads).is_err() {
            return cx.fail(id, Step::Execute, Failure::Malformed);
        }
        let intent = Intent { epoch: transaction.epoch, ..intent };
        let mut execution = Execution::again(&intent, policy, column, reads);
        execution.has_sent = execution.column.sends.is_empty();
        if self.insert(id, execution) {
            self.read_again(cx, order, id);
        }
    }

    fn read_again(&mut self, cx: &mut Ctx, order: &mut Order, id: TransactionId) {
        if order.reading.contains(&id) {
            return;
        }
        let execution = &self.executions[&id];
        let (object, extents) = (execution.object, execution.reads.clone());
        if extents.is_empty() {
            self.on_old(cx, order, id, Ok(Vec::new()));
        } else {
            order.serve(cx, id, Step::Execute, ReadRequest { object, extents, want: Want::Data, waited: false });
        }
    }

    /// The execution of a transaction's column. None if the transaction was decided in this step, or decided and forgotten: then the
    /// execution ends with the step. Only a column that reads goes on without a transaction.
    fn under_way(&mut self, order: &Order, id: TransactionId) -> Option<&mut Execution> {
        let execution = self.executions.get_mut(&id)?;
        let is_undecided = match order.ledger.get(id) {
            Some(held) => held.state.undecided(),
            None => execution.only_reads(),
        };
        is_undecided.then_some(execution)
    }

    /// Ends the execution of a column without an intent, and promises an abort if none is being made.
    fn end(&mut self, cx: &mut Ctx, order: &mut Order, id: TransactionId) {
        self.remove(id);
        if order.ledger.get(id).is_some_and(|transaction| transaction.state == State::Prewritten) {
            order.promise_abort(cx, id);
        }
    }

    /// Drops the columns of transactions that are unknown here: of such a transaction the device only reads.
    pub fn drop_readers(&mut self, order: &mut Order, is_over: impl Fn(TransactionId) -> bool) {
        let is_undecided = |id| order.ledger.get(id).is_some_and(|held| held.state.undecided());
        let is_reader = |id: &TransactionId| is_over(*id) && !is_undecided(*id);
        for id in self.executions.keys().copied().filter(is_reader).collect::<Vec<_>>() {
            self.remove(id);
            order.waiting.take(id);
        }
    }

    /// Drops early partials of a host, or of all hosts before an epoch.
    pub fn drop_early(&mut self, is_over: impl Fn(Generation, Epoch) -> bool) {
        self.early.drop_if(is_over);
    }

    /// Drops partials whose columns have not come in time.
    pub fn drop_old(&mut self, now: Time) {
        self.early.drop_old(now);
    }

    /// When partials are to be dropped.
    pub fn deadline(&self) -> Option<Time> {
        self.early.deadline()
    }

    pub fn has(&self, id: TransactionId) -> bool {
        self.executions.contains_key(&id)
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.executions.len()
    }

    /// Adds a column. False if there is no room for what it will need.
    fn insert(&mut self, id: TransactionId, execution: Execution) -> bool {
        let bytes = execution.bytes();
        if self.bytes + bytes > limits::EXECUTION_BYTES_MAX || self.executions.len() >= limits::WAITING_MAX {
            return false;
        }
        self.bytes += bytes;
        let before = self.executions.insert(id, execution);
        assert!(before.is_none(), "a column is executed once at a time: {id}");
        true
    }

    /// The transaction is decided, or its column is done.
    pub fn remove(&mut self, id: TransactionId) {
        if let Some(execution) = self.executions.remove(&id) {
            self.bytes -= execution.bytes();
        }
    }

    /// Asserts the bounds; that a column that gathers claims its blocks; and that a column that has gathered all has gone on.
    pub fn invariants(&self, order: &Order) {
        assert!(self.bytes <= limits::EXECUTION_BYTES_MAX);
        self.early.invariants();
        for (id, execution) in &self.executions {
            let state = order.ledger.get(*id).map(|held| held.state);
            let is_under_way = state.map_or(execution.only_reads(), State::undecided);
            assert!(is_under_way, "a column is executed until the decision: {id} is {state:?}");
            if execution.gathers() {
                assert_eq!(state, Some(State::Prewritten), "a device gathers before it has an intent: {id}");
                assert!(!execution.is_gathered(), "the last partial ends the gathering: {id}");
            }
        }
    }
}

fn answer(cx: &mut Ctx, order: &Order, id: TransactionId) {
    let waited = order.ledger.get(id).is_some_and(|transaction| transaction.waited);
    cx.answer(id.host, Reply::Written { transaction: id, waited });
}
