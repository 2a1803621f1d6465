//! Calls that are logged at once: decisions, changes to objects, reserved stamps and memberships.

use crate::ctx::Ctx;
use crate::journal_format::Record;
use crate::{Logged, StoreEvent};
use braid_base::{Membership, TransactionId};
use braid_journal::{AnswerRoom, bytes_max, over_len};
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

    /// See [`Storage::log`](crate::Storage::log). A refusal is also told when the journal is durable: the state that caused it may not be
    /// durable yet.
    pub fn log(&mut self, ticket: u64, change: Logged) {
        let result = self.logged(change);
        self.tell_when_durable(StoreEvent::Done { ticket, result });
    }

    fn logged(&mut self, change: Logged) -> Result<(), Failure> {
        match change {
            Logged::Nothing => Ok(()),
            Logged::Created { description, absent } => self.create(description, absent),
            Logged::Reordered { object, ordering } => {
                let known = self.state.objects.set_ordering(object, ordering);
                self.note_if(known, Record::Reordered { object, ordering })
            }
            Logged::Resized { object, range, absent } => {
                let record = self.state.objects.place_resized(object, range, self.state.index_slots())?;
                self.journal.note(&Record::Resized { object: record.clone(), absent });
                assert!(
                    self.state.resize(record, absent, &mut self.journal.then.released),
                    "its map entries were free"
                );
                Ok(())
            }
            Logged::Removed(object) => {
                let known = self.state.remove(object, &mut self.journal.then.released);
                self.note_if(known, Record::Removed(object))
            }
            Logged::StampsReserved(until) => {
                self.state.stamps_reserved = self.state.stamps_reserved.max(until);
                self.journal.note(&Record::Stamps(until));
                Ok(())
            }
            Logged::Ended { name, settled, answer } => self.keep(name, settled, &answer),
        }
    }

    fn create(&mut self, description: ObjectDescription, absent: u64) -> Result<(), Failure> {
        match self.state.objects.get(description.object) {
            Some(there) if there.description == description => return Ok(()),
            Some(_) => return Err(Failure::ObjectExists),
            None => {}
        }
        let record = self.state.objects.place(description, self.state.index_slots())?;
        self.journal.note(&Record::Created { object: record.clone(), absent });
        assert!(self.state.create(record, absent), "its map entries were free");
        Ok(())
    }

    /// Notes a change to an object if the object exists.
    fn note_if(&mut self, known: bool, record: Record) -> Result<(), Failure> {
        if !known {
            return Err(Failure::NoSuchObject);
        }
        self.journal.note(&record);
        Ok(())
    }

    fn keep(&mut self, name: TransactionId, settled: u64, answer: &ObjectAnswer) -> Result<(), Failure> {
        let answer = Bytes::from(encode_answer(answer));
        let length = over_len(1) + answer.len() as u64;
        let kept = self.kept_room(self.state.merging_needs()) + 2 * length;
        let room = self.state.answers.room(name.host, (1, answer.len()), bytes_max(self.journal.capacity()));
        // The answers of a fenced host are forgotten already.
        if room != AnswerRoom::Enough || self.state.is_fenced(name.host) || !self.has_room(length, false, kept) {
            return Err(Failure::Busy);
        }
        let kept = vec![(name.sequence, answer.clone())];
        self.journal.note(&Record::Answers { host: name.host, settled, kept });
        self.state.answers.keep(name, settled, answer);
        Ok(())
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
}
