//! Calls that are logged at once: decisions, changes to objects, reserved stamps and memberships.

use crate::StoreEvent;
use crate::ctx::Ctx;
use crate::journal_format::Record;
use braid_base::{BlockRange, Clock, Membership, ObjectId, TransactionId};
use braid_journal::{AnswerRoom, bytes_max, over_len};
use braid_ordering::Ordering;
use braid_wire::{Failure, ObjectAnswer, ObjectDescription, encode_answer};
use bytes::Bytes;

impl Ctx<'_> {
    /// See [`Storage::commit`](crate::Storage::commit).
    pub fn commit(&mut self, transaction: TransactionId) {
        let known = self.state.commit(transaction, &mut self.journal.then.released);
        self.decide(known, Record::Commit(transaction), StoreEvent::Committed { transaction });
    }

    /// See [`Storage::abort`](crate::Storage::abort).
    pub fn abort(&mut self, transaction: TransactionId) {
        let known = self.state.abort(transaction, &mut self.journal.then.released);
        self.decide(known, Record::Abort(transaction), StoreEvent::Aborted { transaction });
        self.journal.hurry();
    }

    /// If the intent was dropped with its object, nothing is noted: the decision is as durable as the removal.
    fn decide(&mut self, known: bool, note: Record, event: StoreEvent) {
        if known {
            self.journal.note(&note);
        }
        self.journal.then.events.push(event);
        self.linger(false);
    }

    /// See [`Storage::keep`](crate::Storage::keep).
    pub fn keep(&mut self, ticket: u64, name: TransactionId, settled: u64, answer: &ObjectAnswer) {
        let answer = Bytes::from(encode_answer(answer));
        let length = over_len(1) + answer.len() as u64;
        let kept = self.kept_room(self.state.merging_needs()) + 2 * length;
        let room = self.state.answers.room(name.host, (1, answer.len()), bytes_max(self.journal.capacity()));
        // The answers of a fenced host are forgotten already.
        if room != AnswerRoom::Enough || self.state.is_fenced(name.host) || !self.has_room(length, false, kept) {
            return self.end(ticket, Err(Failure::Busy));
        }
        let kept = vec![(name.sequence, answer.clone())];
        self.journal.note(&Record::Answers { host: name.host, settled, kept });
        self.state.answers.keep(name, settled, answer);
        self.end(ticket, Ok(()));
    }

    pub fn create_object(&mut self, ticket: u64, description: ObjectDescription, absent: u64) {
        let there = self.state.objects.get(description.object).map(|record| record.description);
        let result = match there {
            Some(there) if there == description => Ok(()),
            Some(_) => Err(Failure::ObjectExists),
            None => self.state.objects.place(description, self.state.index_slots()).map(|record| {
                self.journal.note(&Record::Created { object: record.clone(), absent });
                assert!(self.state.create(record, absent), "its map entries were free");
            }),
        };
        self.end(ticket, result);
    }

    pub fn set_ordering(&mut self, ticket: u64, object: ObjectId, ordering: Ordering) {
        let known = self.state.objects.set_ordering(object, ordering);
        self.end_if(ticket, known, Record::Reordered { object, ordering });
    }

    pub fn resize_object(&mut self, ticket: u64, object: ObjectId, range: BlockRange, absent: BlockRange) {
        let index_slots = self.state.index_slots();
        let result = self.state.objects.place_resized(object, range, index_slots).map(|record| {
            self.journal.note(&Record::Resized { object: record.clone(), absent });
            let released = &mut self.journal.then.released;
            assert!(self.state.resize(record, absent, released), "its map entries were free");
        });
        self.end(ticket, result);
    }

    pub fn remove_object(&mut self, ticket: u64, object: ObjectId) {
        let known = self.state.remove(object, &mut self.journal.then.released);
        self.end_if(ticket, known, Record::Removed(object));
    }

    pub fn reserve_stamps(&mut self, ticket: u64, until: Clock) {
        self.state.stamps_reserved = self.state.stamps_reserved.max(until);
        self.journal.note(&Record::Stamps(until));
        self.end(ticket, Ok(()));
    }

    /// See [`Storage::adopt`](crate::Storage::adopt). True if the membership is new.
    pub fn adopt(&mut self, ticket: u64, membership: Membership) -> bool {
        let record = Record::Adopted(membership.clone());
        let dropped = self.state.adopt(membership, &mut self.journal.then.released);
        let is_news = dropped.is_some();
        if is_news {
            self.journal.note(&record);
        }
        self.tell_when_durable(StoreEvent::Adopted { ticket, dropped: dropped.unwrap_or_default() });
        is_news
    }

    pub fn flush(&mut self, ticket: u64) {
        self.end(ticket, Ok(()));
    }

    /// Notes a change to an object if the object exists, and ends the request.
    fn end_if(&mut self, ticket: u64, known: bool, record: Record) {
        if known {
            self.journal.note(&record);
        }
        self.end(ticket, if known { Ok(()) } else { Err(Failure::NoSuchObject) });
    }

    /// A refusal is also told when the journal is durable: the state that caused it may not be durable yet.
    fn end(&mut self, ticket: u64, result: Result<(), Failure>) {
        self.tell_when_durable(StoreEvent::Done { ticket, result });
    }
}
