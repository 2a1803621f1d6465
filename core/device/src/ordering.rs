//! Read, pre-write and write, and above all timestamp ordering (shared array, figure 4 and section 4.5.1). Device-served locks
//! are in [`crate::locking`].
//!
//! A request with stamp `s` on blocks whose stamps are `rts` and `wts`:
//!
//! | request | refused if | waits for | then |
//! | --- | --- | --- | --- |
//! | read | `s <= wts` | undecided transactions below `s` | raises `rts`; answers the content |
//! | pre-write | `s <= rts` or `s <= wts` | nothing | claims the blocks |
//! | read-and-pre-write | either | its read half: as a read | both |
//! | write | its pre-write is not live | undecided transactions below `s` | raises `wts`; becomes an intent |
//!
//! Under locks of a server nobody else is there, but for transactions that are committed and have not heard of it: reads and
//! writes wait for these. Writes carry stamps there, too, so that what a lost lock would let through is refused.
//!
//! Equal stamps are duplicates, and those that still matter are recognized by their transaction.

use crate::device::Device;
use crate::locking::LockRequest;
use crate::stamps::Access;
use crate::tickets::Ticket;
use crate::transactions::{Asked, State, Transaction};
use crate::waiting::{ReadRequest, Waiting, WaitingRequest};
use braid_base::limits;
use braid_base::{BLOCK_BYTES, BlockRange, Now, ObjectId, Stamp, TransactionId};
use braid_machine::{Effects, Ignored};
use braid_store::Intent;
use braid_wire::{Content, Failure, Ordering, Outcome, Piece, Refusal, Reply, Step, Vote, Want, WriteMode};

impl Device {
    pub(crate) fn on_read(&mut self, now: Now, id: TransactionId, stamp: Stamp, read: ReadRequest, out: &mut Effects) {
        if self.is_being_read(id) {
            return self.ignore(Ignored::InProgress, out);
        }
        match self.check_read(&read) {
            Err(failure) => self.fail(id, Step::Read, failure, out),
            // Where there is data may be told without a lock: each answer is of one device, and true when it is given.
            Ok(Ordering::DeviceLock) if read.want != Want::Allocation => {
                self.lock(now, id, LockRequest { stamp, step: Step::Read, prewrites: Vec::new(), reads: read }, out);
            }
            // A transaction reads where it does not write, or pre-writes with reads: never both on one device.
            Ok(_) if self.transactions.get(id).is_some() => self.ignore(Ignored::NotForUs, out),
            Ok(Ordering::None) => self.serve(id, Step::Read, read, out),
            Ok(_) => self.read_in_order(now, id, stamp, Step::Read, read, out),
        }
    }

    pub(crate) fn on_prewrite(
        &mut self,
        now: Now,
        id: TransactionId,
        stamp: Stamp,
        prewrites: Vec<BlockRange>,
        reads: ReadRequest,
        out: &mut Effects,
    ) {
        let object = reads.object;
        match self.check_prewrite(&prewrites, &reads) {
            Err(failure) => return self.fail(id, Step::Prewrite, failure, out),
            Ok(Ordering::Timestamp) => {}
            Ok(Ordering::DeviceLock) => {
                return self.lock(now, id, LockRequest { stamp, step: Step::Prewrite, prewrites, reads }, out);
            }
            // Locks of a server, or nothing, keep others away: there is nothing to announce.
            Ok(_) => return self.fail(id, Step::Prewrite, Failure::Malformed, out),
        }
        if let Some(transaction) = self.transactions.get(id) {
            // Sent again: answered again, unless that is under way, or the transaction has gone on since.
            return match transaction.state {
                State::Prewritten if self.is_being_read(id) => self.ignore(Ignored::InProgress, out),
                State::Prewritten if reads.extents.is_empty() => {
                    self.answer(id.host, Reply::Accepted { transaction: id, waited: false }, out);
                }
                State::Prewritten => self.read_in_order(now, id, stamp, Step::Prewrite, reads, out),
                State::Aborted | State::Suspect { .. } => self.refuse(id, Step::Prewrite, Refusal::NoPrewrite, out),
                _ => self.ignore(Ignored::InProgress, out),
            };
        }
        let seen = self.stamps.seen_by_write(object, &prewrites).max(self.stamps.seen_by_read(object, &reads.extents));
        if stamp <= seen {
            return self.refuse(id, Step::Prewrite, Refusal::TooLate { seen }, out);
        }
        if self.is_suspect(object, &reads.extents) {
            return self.refuse(id, Step::Prewrite, Refusal::Suspect, out);
        }
        if self.transactions.is_full() {
            return self.refuse(id, Step::Prewrite, Refusal::Busy, out);
        }
        self.counters.prewrites += 1;
        self.transactions.insert(id, Transaction::new(stamp, object, reads.ordering, prewrites, State::Prewritten));
        if reads.extents.is_empty() {
            self.answer(id.host, Reply::Accepted { transaction: id, waited: false }, out);
        } else {
            self.read_in_order(now, id, stamp, Step::Prewrite, reads, out);
        }
    }

    pub(crate) fn on_write(
        &mut self,
        now: Now,
        intent: Intent,
        ordering: Ordering,
        mode: WriteMode,
        out: &mut Effects,
    ) {
        let id = intent.transaction;
        if self.store.object(intent.object).is_some_and(|object| object.mode() != mode) {
            return self.fail(id, Step::Write, Failure::Malformed, out);
        }
        let Some(transaction) = self.transactions.get(id) else {
            return match ordering {
                Ordering::None => self.apply_unordered(now, intent, out),
                Ordering::Timestamp | Ordering::DeviceLock => self.refuse_stray_write(now, &intent, out),
                Ordering::ServerLock | Ordering::CallbackLock => {
                    self.write_under_lock(now, intent, ordering, mode, out);
                }
            };
        };
        match transaction.state {
            State::Prewritten if self.waiting.get(id).is_some() || self.locking.is_waiting(id) => {
                self.ignore(Ignored::InProgress, out);
            }
            State::Prewritten => {
                let ours = intent.participants.contains(&self.config.store.device);
                if !ours || !is_as_prewritten(transaction, &intent) {
                    self.refuse_for_ever(now, id, out);
                    return self.fail(id, Step::Write, Failure::Malformed, out);
                }
                self.write_in_order(now, intent, mode, out);
            }
            State::Prepared
            | State::Committing
            | State::Committed
            | State::Applied
            | State::Suspect { written: true } => {
                let waited = transaction.waited;
                self.answer(id.host, Reply::Written { transaction: id, waited }, out);
            }
            State::Aborting | State::Aborted | State::Suspect { written: false } => {
                self.refuse(id, Step::Write, Refusal::NoPrewrite, out);
            }
            State::Preparing { .. } | State::Applying => self.ignore(Ignored::InProgress, out),
        }
    }

    /// A write whose host holds a lock server's lock on its blocks. It was not announced here, so that this is where it may be
    /// too late: behind a promise never to take it, or, from a host whose lock was taken away, behind another's write.
    fn write_under_lock(&mut self, now: Now, intent: Intent, ordering: Ordering, mode: WriteMode, out: &mut Effects) {
        let (id, object, stamp) = (intent.transaction, intent.object, intent.stamp);
        let ranges: Vec<_> = intent.pieces.iter().map(|piece| piece.range).collect();
        let ours = intent.participants.contains(&self.config.store.device);
        match self.check_ranges(object, &ranges, false) {
            Err(failure) => return self.fail(id, Step::Write, failure, out),
            Ok(_) if ours && has_content(&intent.pieces) && are_disjoint(&ranges) => {}
            Ok(_) => return self.fail(id, Step::Write, Failure::Malformed, out),
        }
        let seen = self.stamps.seen_by_write(object, &ranges);
        if stamp <= seen {
            return self.refuse(id, Step::Write, Refusal::TooLate { seen }, out);
        }
        if self.transactions.is_full() {
            return self.refuse(id, Step::Write, Refusal::Busy, out);
        }
        self.transactions.insert(id, Transaction::new(stamp, object, ordering, ranges, State::Prewritten));
        self.write_in_order(now, intent, mode, out);
    }

    /// A read, or the read half of a read-and-pre-write, which has its pre-write already.
    fn read_in_order(
        &mut self,
        now: Now,
        id: TransactionId,
        stamp: Stamp,
        step: Step,
        read: ReadRequest,
        out: &mut Effects,
    ) {
        let ordering = read.ordering;
        let by_stamps = ordering == Ordering::Timestamp;
        let seen = self.stamps.seen_by_read(read.object, &read.extents);
        if by_stamps && stamp <= seen {
            return self.refuse_reading(now, id, step, Refusal::TooLate { seen }, out);
        }
        if step == Step::Prewrite && self.is_suspect(read.object, &read.extents) {
            return self.refuse_reading(now, id, step, Refusal::Suspect, out);
        }
        let blockers = self.transactions.blockers(id, stamp, ordering, read.object, &read.extents);
        if blockers.is_empty() && self.tickets.reading() < limits::WAITING_MAX {
            if by_stamps {
                self.stamps.raise(now.time, read.object, &read.extents, Access::Read, stamp);
            }
            return self.serve(id, step, read, out);
        }
        let (object, blocks) = (read.object, read.extents.clone());
        let request = WaitingRequest::Read(ReadRequest { waited: true, ..read });
        if !blockers.is_empty() && self.wait(id, Waiting { stamp, ordering, object, blocks, request }, &blockers, out) {
            return;
        }
        self.refuse_reading(now, id, step, Refusal::Busy, out);
    }

    /// Refuses a read, and drops the pre-write that came with it. If it was granted before, this may be an old copy, of which its host
    /// does not want to hear; then the pre-write stays until it is over.
    fn refuse_reading(&mut self, now: Now, id: TransactionId, step: Step, refusal: Refusal, out: &mut Effects) {
        if self.transactions.get(id).is_none_or(|transaction| !transaction.granted) {
            self.refuse_for_ever(now, id, out);
        }
        self.refuse(id, step, refusal, out);
    }

    fn write_in_order(&mut self, now: Now, intent: Intent, mode: WriteMode, out: &mut Effects) {
        let (id, stamp) = (intent.transaction, intent.stamp);
        let transaction = self.transactions.get(id).expect("it was pre-written");
        let (ordering, ranges) = (transaction.ordering, transaction.ranges.clone());
        let blockers = self.transactions.blockers(id, stamp, ordering, intent.object, &ranges);
        if !blockers.is_empty() {
            self.transactions.get_mut(id).expect("it was pre-written").waited = true;
            let request = WaitingRequest::Write(intent, mode);
            let object = self.transactions.get(id).expect("it was pre-written").object;
            if !self.wait(id, Waiting { stamp, ordering, object, blocks: ranges, request }, &blockers, out) {
                if self.is_unannounced(object) {
                    self.put_off(now, id, out);
                } else {
                    self.refuse_for_ever(now, id, out);
                }
                self.refuse(id, Step::Write, Refusal::Busy, out);
            }
            return;
        }
        self.counters.writes += 1;
        self.stamps.raise(now.time, intent.object, &ranges, Access::Write, stamp);
        match mode {
            WriteMode::Intent => {
                self.transactions.advance(id, State::Preparing { abort: false });
                let transaction = self.transactions.get_mut(id).expect("it was pre-written");
                transaction.participants.clone_from(&intent.participants);
                transaction.epoch = intent.epoch;
                self.store.prepare(now, intent, out);
            }
            WriteMode::Immediate => {
                self.transactions.advance(id, State::Applying);
                let transaction = self.transactions.get_mut(id).expect("it was pre-written");
                transaction.participants.clone_from(&intent.participants);
                (transaction.epoch, transaction.linkage) = (intent.epoch, Some(intent.linkage));
                self.store.apply(now, intent, out);
            }
        }
    }

    /// Puts a request aside until `blockers` are decided.
    fn wait(&mut self, id: TransactionId, waiting: Waiting, blockers: &[TransactionId], out: &mut Effects) -> bool {
        if !self.waiting.push(id, waiting) {
            return false;
        }
        self.counters.waits += 1;
        self.want(blockers, out);
        true
    }

    /// Tells the hosts of `blockers` that somebody waits, unless they could do nothing about it yet: then when they can.
    pub(crate) fn want(&mut self, blockers: &[TransactionId], out: &mut Effects) {
        for blocker in blockers {
            let reads = self.only_holds_locks(*blocker);
            let transaction = self.transactions.get_mut(*blocker).expect("a blocker is known");
            let first = !std::mem::replace(&mut transaction.wanted, true);
            if first && (reads || transaction.state == State::Prepared) {
                self.answer(blocker.host, Reply::Blocked { transaction: *blocker }, out);
            }
        }
    }

    /// If claims were released, on with whoever waited for them, in the order of stamps. One pass may release more: a loop
    /// rather than a call from where claims are released, since the chain can be as long as the queue.
    pub(crate) fn resume_waiting(&mut self, now: Now, out: &mut Effects) {
        while self.transactions.take_released() {
            self.unlock_ended(now, out);
            for id in self.waiting.in_order() {
                self.resume(now, id, out);
            }
        }
    }

    fn resume(&mut self, now: Now, id: TransactionId, out: &mut Effects) {
        // Gone, if an earlier one of this round ended it.
        let Some(waiting) = self.waiting.get(id) else { return };
        let Waiting { stamp, ordering, object, blocks, .. } = waiting;
        if self.transactions.is_blocked(id, *stamp, *ordering, *object, blocks) {
            return;
        }
        let Waiting { stamp, request, .. } = self.waiting.take(id).expect("just seen");
        match request {
            WaitingRequest::Read(read) => {
                let step = if self.transactions.get(id).is_some() { Step::Prewrite } else { Step::Read };
                self.read_in_order(now, id, stamp, step, read, out);
            }
            WaitingRequest::Write(intent, mode) => self.write_in_order(now, intent, mode, out),
        }
    }

    fn is_being_read(&self, id: TransactionId) -> bool {
        self.waiting.get(id).is_some() || self.tickets.is_reading(id)
    }

    pub(crate) fn serve(&mut self, id: TransactionId, step: Step, read: ReadRequest, out: &mut Effects) {
        self.counters.reads += 1;
        match read.want {
            Want::Allocation => {
                let mut pieces = self.store.allocation(read.object, &read.extents);
                // What does not fit into one answer is asked for again.
                pieces.truncate(limits::EXTENTS_MAX);
                self.answer(id.host, Reply::Data { transaction: id, waited: read.waited, pieces }, out);
            }
            Want::Data | Want::Linkage | Want::Salvage => {
                let ticket = self.tickets.open(Ticket::Read { transaction: id, step, waited: read.waited });
                match read.want {
                    Want::Linkage => self.store.linkage(ticket, read.object, &read.extents, out),
                    Want::Salvage => self.store.salvage(ticket, read.object, &read.extents, out),
                    _ => self.store.read(ticket, read.object, &read.extents, out),
                }
            }
        }
    }

    /// The store has read what [`Device::serve`] asked for.
    pub(crate) fn on_content(&mut self, ticket: u64, result: Result<Vec<Piece>, Failure>, out: &mut Effects) {
        let Ticket::Read { transaction, step, waited } = self.tickets.close(ticket) else {
            panic!("the store has read for a ticket that it was not given: {ticket}");
        };
        match result {
            Ok(pieces) => {
                if let Some(held) = self.transactions.get_mut(transaction) {
                    held.granted = true;
                }
                self.answer(transaction.host, Reply::Data { transaction, waited, pieces }, out);
            }
            Err(failure) => self.fail(transaction, step, failure, out),
        }
    }

    /// A write of an object without ordering.
    fn apply_unordered(&mut self, now: Now, intent: Intent, out: &mut Effects) {
        let id = intent.transaction;
        let ranges: Vec<_> = intent.pieces.iter().map(|piece| piece.range).collect();
        match self.check_ranges(intent.object, &ranges, false) {
            Ok(Ordering::None) if has_content(&intent.pieces) && are_disjoint(&ranges) => {}
            Ok(_) => return self.fail(id, Step::Write, Failure::Malformed, out),
            Err(failure) => return self.fail(id, Step::Write, failure, out),
        }
        if self.transactions.is_full() {
            return self.refuse(id, Step::Write, Refusal::Busy, out);
        }
        self.counters.writes += 1;
        self.transactions
            .insert(id, Transaction::new(intent.stamp, intent.object, Ordering::None, Vec::new(), State::Applying));
        self.store.apply(now, intent, out);
    }

    /// A write without a live pre-write is refused, and its stamp left behind on its blocks: should a copy of its pre-write
    /// still be on its way, that comes too late. So the host may take this refusal for final.
    fn refuse_stray_write(&mut self, now: Now, intent: &Intent, out: &mut Effects) {
        let ranges: Vec<_> = intent.pieces.iter().map(|piece| piece.range).collect();
        if self.check_ranges(intent.object, &ranges, false).is_ok() {
            self.stamps.raise(now.time, intent.object, &ranges, Access::Read, intent.stamp);
        }
        self.refuse(intent.transaction, Step::Write, Refusal::NoPrewrite, out);
    }

    /// Drops a pre-write that has no intent, and whatever waits with it; its stamp stays on its blocks, so that a late copy is
    /// refused. Kept as aborted until it is settled. Does nothing for what was never pre-written here.
    pub(crate) fn refuse_for_ever(&mut self, now: Now, id: TransactionId, out: &mut Effects) {
        self.waiting.take(id);
        let Some(transaction) = self.transactions.get(id) else { return };
        assert_eq!(transaction.state, State::Prewritten, "only what has no intent is simply dropped: {id}");
        // Under device locks what comes of it later is refused by its being remembered, until a mark or the floor is above it: a
        // stamp left here would refuse those who wait for its locks.
        if transaction.ordering != Ordering::DeviceLock {
            let (object, stamp, ranges) = (transaction.object, transaction.stamp, transaction.ranges.clone());
            self.stamps.raise(now.time, object, &ranges, Access::Read, stamp);
        }
        self.advance(now, id, State::Aborted, out);
    }

    /// Moves a transaction on, tells those who asked, and forgets it if nobody is left who could ask. Those who waited for it
    /// go on by [`Device::resume_waiting`].
    pub(crate) fn advance(&mut self, now: Now, id: TransactionId, to: State, out: &mut Effects) {
        let released = self.transactions.advance(id, to);
        let transaction = self.transactions.get_mut(id).expect("just moved on");
        if released && transaction.ordering == Ordering::DeviceLock {
            self.locking.ended.push(id);
        }
        for (host, asked) in std::mem::take(&mut transaction.askers) {
            let reply = match (asked, to) {
                (Asked::Vote, State::Prepared) => Reply::Vote { transaction: id, vote: Vote::Prepared },
                (Asked::Vote, State::Aborted) => Reply::Vote { transaction: id, vote: Vote::NeverPrepared },
                (Asked::Decision, State::Committed) => Reply::Decided { transaction: id, outcome: Outcome::Commit },
                (Asked::Decision, State::Aborted | State::Applied | State::Suspect { .. }) => {
                    Reply::Decided { transaction: id, outcome: Outcome::Abort }
                }
                _ => {
                    self.transactions.get_mut(id).expect("just moved on").askers.push((host, asked));
                    continue;
                }
            };
            self.answer(host, reply, out);
        }
        self.keep_or_forget(now, id, out);
    }

    /// A transaction whose host is gone, or has declared it over, is forgotten if it left nothing, and otherwise an orphan, or
    /// suspect.
    pub(crate) fn keep_or_forget(&mut self, now: Now, id: TransactionId, out: &mut Effects) {
        let has_session = self.sessions.has(id.host);
        let looked_after = has_session && !self.sessions.is_settled(id.host, id.sequence);
        let transaction = self.transactions.get(id).expect("it was just moved on");
        match transaction.state {
            State::Applied if !has_session && self.can_be_suspect(transaction.object) => {
                self.suspect(now, id, out);
            }
            State::Aborted | State::Applied if !looked_after => self.drop_decided(id),
            State::Prepared | State::Committed if !looked_after => {
                self.orphans.insert(id);
            }
            _ => {}
        }
    }

    pub(crate) fn fail(&mut self, transaction: TransactionId, step: Step, failure: Failure, out: &mut Effects) {
        self.note_failure(failure);
        self.answer(transaction.host, Reply::Failed { transaction, step, failure }, out);
    }

    /// The object's ordering, if the ranges are within it and, where content moves, not too much.
    fn check_ranges(&self, object: ObjectId, ranges: &[BlockRange], moves: bool) -> Result<Ordering, Failure> {
        let description = self.store.object(object).ok_or(Failure::NoSuchObject)?;
        let whole = description.range();
        if ranges.is_empty() || ranges.len() > limits::EXTENTS_MAX || ranges.iter().any(|range| range.is_empty()) {
            return Err(Failure::Malformed);
        }
        if !ranges.iter().all(|range| whole.contains(*range)) {
            return Err(Failure::OutOfRange);
        }
        let blocks: u64 = ranges.iter().map(|range| range.count).sum();
        // Bytes that do not begin with a block touch one more.
        if moves && blocks > (limits::DEVICE_BYTES_MAX / BLOCK_BYTES) as u64 + 2 {
            return Err(Failure::Malformed);
        }
        Ok(description.ordering)
    }

    fn check_read(&self, read: &ReadRequest) -> Result<Ordering, Failure> {
        let ordering =
            self.check_ranges(read.object, &read.extents, matches!(read.want, Want::Data | Want::Salvage))?;
        if self.is_absent(read.object) {
            return Err(Failure::Absent);
        }
        if are_disjoint(&read.extents) { Ok(ordering) } else { Err(Failure::Malformed) }
    }

    fn check_prewrite(&self, prewrites: &[BlockRange], reads: &ReadRequest) -> Result<Ordering, Failure> {
        if !reads.extents.is_empty() {
            self.check_read(reads)?;
        }
        let ordering = self.check_ranges(reads.object, prewrites, false)?;
        if are_disjoint(prewrites) { Ok(ordering) } else { Err(Failure::Malformed) }
    }
}

/// True if the intent writes blocks that were pre-written, at the same stamp. It need not write all of them: who works out from what was
/// there what is to change announces more than that.
fn is_as_prewritten(transaction: &Transaction, intent: &Intent) -> bool {
    let mut claimed: Vec<BlockRange> = Vec::new();
    for range in &transaction.ranges {
        match claimed.last_mut() {
            Some(last) if last.end() == range.start => last.count += range.count,
            _ => claimed.push(*range),
        }
    }
    let written: Vec<BlockRange> = intent.pieces.iter().map(|piece| piece.range).collect();
    let is_claimed = |range: &BlockRange| {
        let held = claimed.get(claimed.partition_point(|held| held.end() < range.end()));
        !range.is_empty() && held.is_some_and(|held| held.contains(*range))
    };
    let within = !written.is_empty() && written.iter().all(is_claimed) && are_disjoint(&written);
    let same_place = transaction.object == intent.object && transaction.stamp == intent.stamp;
    same_place && within && has_content(&intent.pieces) && !intent.participants.is_empty()
}

fn has_content(pieces: &[Piece]) -> bool {
    pieces.iter().all(|piece| piece.content != Content::Present)
}

/// True if the ranges are sorted and share no block.
fn are_disjoint(ranges: &[BlockRange]) -> bool {
    ranges.windows(2).all(|pair| pair[0].end() <= pair[1].start)
}
