//! Objects, what others missed, and counters.

use crate::device::{Device, Ticket};
use braid_base::{BlockRange, Generation};
use braid_machine::{Effects, Ignored};
use braid_wire::{Failure, Inspection, Managed, ObjectDescription, Reply, Task};

impl Device {
    pub(crate) fn on_task(&mut self, host: Generation, ticket: u64, task: Task, out: &mut Effects) {
        let pending =
            |held: &Ticket| matches!(held, Ticket::Manage { host: h, ticket: t } if *h == host && *t == ticket);
        if self.tickets.values().any(pending) {
            return self.ignore(Ignored::InProgress, out);
        }
        let result = match task {
            Task::CreateObject { blocks: 0, .. } => Err(Failure::Malformed),
            Task::CreateObject { first, blocks, .. } if !is_possible(BlockRange::new(first, blocks)) => {
                Err(Failure::Malformed)
            }
            Task::CreateObject { redundant: false, absent: 1.., .. } => Err(Failure::Malformed),
            Task::CreateObject { object, first, blocks, ordering, redundant, atomicity, absent } => {
                let description = ObjectDescription { object, first, blocks, ordering, redundant, atomicity };
                match self.store.object(object) {
                    // Made before, and asked again; perhaps not durably yet.
                    Some(existing) if *existing == description => {
                        let own = self.ticket(Ticket::Manage { host, ticket });
                        return self.store.flush(own, out);
                    }
                    Some(_) => Err(Failure::ObjectExists),
                    None => {
                        let own = self.ticket(Ticket::Manage { host, ticket });
                        return self.store.create_object(own, description, absent, out);
                    }
                }
            }
            Task::SetOrdering { object, ordering } => match self.store.object(object) {
                None => Err(Failure::NoSuchObject),
                Some(existing) if existing.ordering == ordering => {
                    let own = self.ticket(Ticket::Manage { host, ticket });
                    return self.store.flush(own, out);
                }
                Some(_) if self.transactions.touch(object) => Err(Failure::InUse),
                Some(_) => {
                    let own = self.ticket(Ticket::Manage { host, ticket });
                    return self.store.set_ordering(own, object, ordering, out);
                }
            },
            Task::ResizeObject { range, .. } if range.is_empty() || !is_possible(range) => Err(Failure::Malformed),
            Task::ResizeObject { object, range, absent } => match self.store.object(object) {
                None => Err(Failure::NoSuchObject),
                // Also where nothing changes: whoever asks may go by another description of the volume afterwards.
                Some(_) if self.transactions.touch(object) => Err(Failure::InUse),
                Some(existing) if existing.range() == range => {
                    let own = self.ticket(Ticket::Manage { host, ticket });
                    return self.store.flush(own, out);
                }
                Some(existing) if !existing.redundant && !absent.is_empty() => Err(Failure::Malformed),
                Some(_) => {
                    let own = self.ticket(Ticket::Manage { host, ticket });
                    return self.store.resize_object(own, object, range, absent, out);
                }
            },
            Task::RemoveObject { object } => match self.store.object(object) {
                None => {
                    let own = self.ticket(Ticket::Manage { host, ticket });
                    return self.store.flush(own, out);
                }
                Some(_) if self.transactions.touch(object) => Err(Failure::InUse),
                Some(_) => {
                    self.drop_suspects_of(object);
                    let own = self.ticket(Ticket::Manage { host, ticket });
                    return self.store.remove_object(own, object, out);
                }
            },
            Task::ListObjects => Ok(Managed::Objects(self.store.objects())),
            Task::Flush => {
                let own = self.ticket(Ticket::Manage { host, ticket });
                return self.store.flush(own, out);
            }
            Task::ListMissed { device, object, .. } if self.has_undecided_before_return_of(device, object) => {
                Err(Failure::Busy)
            }
            Task::ListMissed { device, object, from } => {
                let (extents, next) = self.store.missed(device, object, from);
                Ok(Managed::Missed { extents, next })
            }
            Task::ListAbsent { object, .. } | Task::ListAllocated { object, .. }
                if self.store.object(object).is_none() =>
            {
                Err(Failure::NoSuchObject)
            }
            Task::ListAbsent { object, from } => {
                let (extents, next) = self.store.absent(object, from);
                Ok(Managed::Extents { extents, next })
            }
            Task::ListAllocated { object, range } => {
                let (extents, next) = self.store.allocated(object, range);
                Ok(Managed::Extents { extents, next })
            }
            Task::Inspect => Ok(Managed::Inspected(self.inspect())),
        };
        self.answer(host, Reply::Managed { ticket, result }, out);
    }

    /// The store has done what a task needed.
    pub(crate) fn on_task_done(
        &mut self,
        host: Generation,
        ticket: u64,
        result: Result<(), Failure>,
        out: &mut Effects,
    ) {
        let result = result.map(|()| Managed::Done);
        self.answer(host, Reply::Managed { ticket, result }, out);
    }

    fn inspect(&self) -> Inspection {
        let counters = &self.counters;
        let own: [(&str, u64); 24] = [
            ("epoch", u64::from(self.membership().map_or(0, |membership| membership.epoch.0))),
            ("messages_received", counters.messages_received),
            ("messages_sent", counters.messages_sent),
            ("reads", counters.reads),
            ("prewrites", counters.prewrites),
            ("writes", counters.writes),
            ("commits", counters.commits),
            ("aborts", counters.aborts),
            ("resolves", counters.resolves),
            ("refused_too_late", counters.refused_too_late),
            ("refused_other", counters.refused_other),
            ("waits", counters.waits),
            ("ignored", counters.ignored),
            ("leases_expired", counters.leases_expired),
            ("hosts", self.hosts.len() as u64),
            ("transactions", self.transactions.iter().count() as u64),
            ("undecided", self.transactions.iter().filter(|(_, held)| held.state.undecided()).count() as u64),
            ("waiting", self.waiting() as u64),
            ("locks", self.locking.table.len() as u64),
            ("lock_timeouts", self.locking.timed_out),
            ("object_requests_under_way", self.requests.executing() as u64),
            ("watchers", self.requests.watchers() as u64),
            ("orphans", self.orphans.len() as u64),
            ("suspects", self.suspects() as u64),
        ];
        let all = own.into_iter().chain(self.store.counters());
        Inspection { counters: all.map(|(name, value)| (name.to_string(), value)).collect() }
    }
}

/// Whether an object may consist of these blocks: a store tells chunks by 32 bits.
fn is_possible(range: BlockRange) -> bool {
    let whole = range.start.is_multiple_of(braid_store::CHUNK_BLOCKS);
    whole
        && range
            .start
            .checked_add(range.count)
            .is_some_and(|end| end <= u64::from(u32::MAX) * braid_store::CHUNK_BLOCKS)
}
