//! A task is a request to create, change or remove an object, to list missed writes, or to read counters. This module
//! executes the tasks of a device; `docs/messages.md` lists them.

use crate::device::Device;
use crate::tickets::Ticket;
use braid_base::{BlockRange, DeviceId, Generation, MemberState, Now, ObjectId, Stamp, TransactionId};
use braid_machine::{Effects, Ignored};
use braid_store::Logged;
use braid_wire::{Failure, Inspection, Managed, ObjectDescription, ObjectFailure, ObjectRefusal, Reply, Task};

const NANOS_PER_MILLI: u64 = 1_000_000;

/// Refusals of tasks, and what they are kept as. Any other one is kept as the last.
const REFUSALS: [(Failure, ObjectFailure); 5] = [
    (Failure::NoSuchObject, ObjectFailure::NoSuchObject),
    (Failure::ObjectExists, ObjectFailure::ObjectExists),
    (Failure::NoSpace, ObjectFailure::NoSpace),
    (Failure::Malformed, ObjectFailure::Malformed),
    (Failure::InUse, ObjectFailure::Busy),
];

/// How a task is executed.
#[derive(Clone, Debug)]
enum Plan {
    /// Answer it at once.
    Answer(Result<Managed, Failure>),
    /// Answer it so once all earlier changes are durable.
    Flush(Managed),
    /// Change an object.
    Change(Logged),
}

impl Device {
    pub(crate) fn on_task(&mut self, now: Now, host: Generation, ticket: u64, task: Task, out: &mut Effects) {
        if self.tickets.has_task(host, ticket) {
            return self.ignore(Ignored::InProgress, out);
        }
        // A late copy changes nothing: meanwhile another host may have removed the object.
        if let Some(answer) = self.store.ended(TransactionId { host, sequence: ticket }) {
            let refusal = |kept: ObjectRefusal| {
                let of = REFUSALS.iter().find(|(_, failure)| *failure == kept.failure);
                of.map_or(Failure::InUse, |(refusal, _)| *refusal)
            };
            let result = answer.map(|_| Managed::Done).map_err(refusal);
            return self.answer(host, Reply::Managed { ticket, result }, out);
        }
        let changes = changes_objects(&task);
        let plan = self.plan(now, host, task);
        let own = match &plan {
            Plan::Answer(result) if changes => return self.keep_end(host, ticket, result.clone().map(|_| ()), out),
            Plan::Answer(result) => {
                return self.answer(host, Reply::Managed { ticket, result: result.clone() }, out);
            }
            Plan::Flush(answer) if !changes => {
                self.tickets.open(Ticket::Manage { host, ticket, result: Ok(answer.clone()) })
            }
            _ => self.tickets.open(Ticket::Change { host, ticket }),
        };
        match plan {
            Plan::Answer(_) => unreachable!("dealt with above"),
            Plan::Flush(_) => self.store.log(own, Logged::Nothing, out),
            Plan::Change(change) => {
                if let Logged::Removed(object) = change {
                    self.schedule(now, out, |scheduler, cx| scheduler.on_removal(cx, object));
                }
                self.store.log(own, change, out);
            }
        }
    }

    fn plan(&self, now: Now, host: Generation, task: Task) -> Plan {
        let existing = |object| self.store.object(object);
        let refuse = |failure| Plan::Answer(Err(failure));
        match task {
            Task::CreateObject { blocks: 0, .. } => refuse(Failure::Malformed),
            Task::CreateObject { first, blocks, .. } if !is_possible(BlockRange::new(first, blocks)) => {
                refuse(Failure::Malformed)
            }
            Task::CreateObject { redundant: false, absent: 1.., .. } => refuse(Failure::Malformed),
            Task::CreateObject { object, first, blocks, ordering, redundant, atomicity, absent } => {
                let description = ObjectDescription { object, first, blocks, ordering, redundant, atomicity };
                match existing(object) {
                    // The object was created before, and the request is a repetition. The creation may not be durable
                    // yet.
                    Some(existing) if *existing == description => Plan::Flush(Managed::Done),
                    Some(_) => refuse(Failure::ObjectExists),
                    None if absent > 0 && !self.is_resynchronised_by(host) => refuse(Failure::Malformed),
                    None => Plan::Change(Logged::Created { description, absent }),
                }
            }
            Task::SetOrdering { object, ordering } => match existing(object) {
                None => refuse(Failure::NoSuchObject),
                Some(existing) if existing.ordering == ordering => Plan::Flush(Managed::Done),
                Some(_) if self.scheduler.ledger().touch(object) => refuse(Failure::InUse),
                Some(_) => Plan::Change(Logged::Reordered { object, ordering }),
            },
            Task::ResizeObject { range, .. } if range.is_empty() || !is_possible(range) => refuse(Failure::Malformed),
            Task::ResizeObject { object, range, absent } => match existing(object) {
                None => refuse(Failure::NoSuchObject),
                // Also where nothing changes: the host may use another description of the volume afterwards.
                Some(_) if self.scheduler.ledger().touch(object) => refuse(Failure::InUse),
                Some(existing) if existing.range() == range => Plan::Flush(Managed::Done),
                Some(existing) if !(absent.is_empty() || existing.redundant && self.is_resynchronised_by(host)) => {
                    refuse(Failure::Malformed)
                }
                Some(_) => Plan::Change(Logged::Resized { object, range, absent }),
            },
            Task::RemoveObject { object } => match existing(object) {
                None => Plan::Flush(Managed::Done),
                Some(_) if self.scheduler.ledger().touch(object) => refuse(Failure::InUse),
                Some(_) => Plan::Change(Logged::Removed(object)),
            },
            Task::ListObjects => Plan::Answer(Ok(Managed::Objects(self.store.objects()))),
            Task::Flush => Plan::Flush(Managed::Done),
            Task::ListMissed { device, object, .. } if self.has_undecided_before_return_of(device, object) => {
                refuse(Failure::Busy)
            }
            Task::ListMissed { device, object, from } => {
                let (extents, next) = self.store.missed(device, object, from);
                Plan::Answer(Ok(Managed::Missed { extents, next }))
            }
            Task::ListAbsent { object, .. } | Task::ListAllocated { object, .. } if existing(object).is_none() => {
                refuse(Failure::NoSuchObject)
            }
            Task::ListAbsent { object, from } => {
                let (extents, next) = self.store.absent(object, from);
                // The device is taken for whole if nothing is absent. So the commits that restored the last blocks must survive a restart.
                let is_whole = extents.is_empty();
                let answer = Managed::Extents { extents, next };
                if is_whole { Plan::Flush(answer) } else { Plan::Answer(Ok(answer)) }
            }
            Task::ListAllocated { object, range } => {
                let (extents, next) = self.store.allocated(object, range);
                Plan::Answer(Ok(Managed::Extents { extents, next }))
            }
            Task::Inspect => Plan::Answer(Ok(Managed::Inspected(self.inspect(now)))),
        }
    }

    /// True if the device is returning, and this host is its recovery coordinator: only that host knows what the device lacks. In a device
    /// that is in, absent blocks could not be read, and no host would restore them.
    fn is_resynchronised_by(&self, host: Generation) -> bool {
        let coordinated = MemberState::Returning { recovery_coordinator: Some(host) };
        self.monitor.own_state() == Some(coordinated)
    }

    /// A task that changes an object has ended. It is executed once, also if this device restarts: so its end is kept before it is
    /// answered.
    pub(crate) fn keep_end(&mut self, host: Generation, ticket: u64, result: Result<(), Failure>, out: &mut Effects) {
        let kept_as = |failure| {
            let of = REFUSALS.iter().find(|(refusal, _)| *refusal == failure);
            ObjectRefusal { command: 0, failure: of.map_or(ObjectFailure::Busy, |(_, kept)| *kept) }
        };
        let answer = result.map(|()| Vec::new()).map_err(kept_as);
        let (name, settled) =
            (TransactionId { host, sequence: ticket }, self.sessions.settled(host).unwrap_or_default());
        let own = self.tickets.open(Ticket::Manage { host, ticket, result: result.map(|()| Managed::Done) });
        self.store.log(own, Logged::Ended { name, settled, answer }, out);
    }

    /// True if a transaction on this object is undecided here in which `device` has no vote, because it has been out
    /// since.
    fn has_undecided_before_return_of(&self, device: DeviceId, object: ObjectId) -> bool {
        let pending = |membership| self.scheduler.ledger().has_undecided_before_return_of(membership, device, object);
        self.membership().is_some_and(pending)
    }

    fn inspect(&self, now: Now) -> Inspection {
        let (counters, decided) = (&self.counters, self.scheduler.counters());
        // The age of a transaction is known by its stamp alone, which survives a restart of the device.
        let age = |stamp: Stamp| now.clock.since(stamp.clock).as_millis() as u64;
        let undecided = self.transactions().filter(|held| held.state.undecided());
        let oldest_undecided = undecided.map(|held| age(held.stamp)).max().unwrap_or_default();
        let oldest_orphan = self.scheduler.ledger().oldest_unresolved().map(age).unwrap_or_default();
        let own: [(&str, u64); 28] = [
            ("clock_millis", now.clock.0 / NANOS_PER_MILLI),
            ("epoch", u64::from(self.membership().map_or(0, |membership| membership.epoch.0))),
            ("messages_received", counters.messages_received),
            ("messages_sent", counters.messages_sent),
            ("partials_received", counters.partials_received),
            ("reads", decided.reads),
            ("prewrites", decided.prewrites),
            ("writes", decided.writes),
            ("commits", decided.commits),
            ("aborts", decided.aborts),
            ("resolves", decided.resolves),
            ("refused_too_late", counters.refused_too_late),
            ("refused_other", counters.refused_other),
            ("waits", decided.waits),
            ("ignored", counters.ignored),
            ("leases_expired", counters.leases_expired),
            ("hosts", self.sessions.len() as u64),
            ("transactions", self.transactions().count() as u64),
            ("undecided", self.transactions().filter(|held| held.state.undecided()).count() as u64),
            ("waiting", self.waiting() as u64),
            ("locks", self.locks() as u64),
            ("lock_timeouts", decided.lock_timeouts),
            ("object_requests_under_way", self.requests.executing() as u64),
            ("watchers", self.requests.watchers() as u64),
            ("orphans", self.orphans() as u64),
            ("suspects", self.suspects() as u64),
            ("oldest_undecided_millis", oldest_undecided),
            ("oldest_orphan_millis", oldest_orphan),
        ];
        let all = own.into_iter().chain(self.store.counters());
        Inspection { counters: all.map(|(name, value)| (name.to_string(), value)).collect() }
    }
}

/// True if a task creates, changes or removes an object.
fn changes_objects(task: &Task) -> bool {
    use Task::{CreateObject, RemoveObject, ResizeObject, SetOrdering};
    matches!(task, CreateObject { .. } | SetOrdering { .. } | ResizeObject { .. } | RemoveObject { .. })
}

/// True if an object may consist of these blocks: the store numbers chunks with 32 bits.
fn is_possible(range: BlockRange) -> bool {
    let whole = range.start.is_multiple_of(braid_store::CHUNK_BLOCKS);
    whole
        && range
            .start
            .checked_add(range.count)
            .is_some_and(|end| end <= u64::from(u32::MAX) * braid_store::CHUNK_BLOCKS)
}
