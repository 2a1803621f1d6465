//! Carries out the decisions of the scheduler, on the store and on the sessions of hosts.

use crate::device::Device;
use crate::scheduler::ctx::Objects;
use crate::scheduler::decision::Decision;
use crate::scheduler::waiting::ReadRequest;
use crate::tickets::Ticket;
use braid_base::{NodeId, Now, ObjectId, TransactionId, limits};
use braid_blocks::Want;
use braid_machine::Effects;
use braid_store::{Logged, Storage};
use braid_wire::{Failure, Message, ObjectDescription, Refusal, Reply, Step};

impl Objects for Box<dyn Storage> {
    fn object(&self, object: ObjectId) -> Option<&ObjectDescription> {
        (**self).object(object)
    }
}

impl Device {
    pub(crate) fn carry_out(&mut self, now: Now, decision: Decision, out: &mut Effects) {
        match decision {
            Decision::Answer { host, reply } => self.answer(host, reply, out),
            Decision::Refuse { transaction, step, refusal } => {
                match refusal {
                    Refusal::TooLate { .. } => self.counters.refused_too_late += 1,
                    _ => self.counters.refused_other += 1,
                }
                self.answer(transaction.host, Reply::Refused { transaction, step, refusal }, out);
            }
            Decision::Fail { transaction, step, failure } => {
                self.note_failure(failure);
                self.answer(transaction.host, Reply::Failed { transaction, step, failure }, out);
            }
            Decision::Serve { transaction, step, read } => self.serve(transaction, step, read, out),
            Decision::Send { to, partial } => {
                self.counters.messages_sent += 1;
                out.send(NodeId::Device(to), Message::Partial(partial));
            }
            Decision::Prepare(intent) => self.store.prepare(now, intent, out),
            Decision::Apply(intent) => self.store.apply(now, intent, out),
            Decision::Commit(id) => self.store.commit(now, id, out),
            Decision::Abort(id) => self.store.abort(now, id, out),
            Decision::Forget(id) => self.store.forget(id),
            Decision::KeepForHost(id) => self.store.nobody_misses(id),
            Decision::Reserve { until } => {
                self.store.log(self.tickets.open(Ticket::Reserve), Logged::StampsReserved(until), out);
            }
            Decision::Confirm(id) => self.sessions.confirm(id.host, id.sequence),
            Decision::Ignore(why) => self.ignore(why, out),
        }
    }

    fn serve(&mut self, transaction: TransactionId, step: Step, read: ReadRequest, out: &mut Effects) {
        if read.want == Want::Allocation {
            let mut pieces = self.store.allocation(read.object, &read.extents);
            // The host asks again for what does not fit into one answer.
            pieces.truncate(limits::EXTENTS_MAX);
            return self.answer(transaction.host, Reply::Data { transaction, waited: read.waited, pieces }, out);
        }
        let ticket = self.tickets.open(Ticket::Read { transaction, step, waited: read.waited });
        self.store.read_as(read.want, ticket, read.object, &read.extents, out);
    }

    fn note_failure(&mut self, failure: Failure) {
        if matches!(failure, Failure::NoSpace | Failure::Disk) {
            self.monitor.note_disk_failure();
        }
    }
}
