//! Who is in the array, as this device knows it: its lease, the epoch that it lives by, and how it takes over a new one
//! (`docs/membership.md`).
//!
//! ```text
//!   a new membership is heard of ─► on its way to the disk ─► adopted
//!                                   (nothing is served)       what was only announced is dropped: its hosts begin it anew;
//!                                                             after an absence, also what was undecided: others have decided it
//! ```

use crate::device::{Device, Service};
use crate::tickets::Ticket;
use crate::transactions::{State, Transaction};
use braid_base::{
    DeviceId, FenceTable, Generation, Membership, NodeId, Now, ObjectId, Standing, Time, TransactionId, limits,
};
use braid_machine::{Effects, Ignored};
use braid_membership::client::{Ctx, Event, MembershipView, Report};
use braid_wire::{Answer, Failure, Message, MonitorAnswer, Rejection, Reply, Unwelcome};

impl Device {
    /// The membership that it lives by, once it has heard of one.
    pub fn membership(&self) -> Option<&Membership> {
        self.view().membership()
    }

    /// The membership that it lives by.
    pub(crate) fn view(&self) -> &MembershipView {
        self.monitor.view()
    }

    /// True if it may serve: it is in, or returning, and its lease runs.
    pub fn has_lease(&self, now: Time) -> bool {
        self.monitor.may_serve(now)
    }

    /// Why it may never serve as it is, if the monitor has said so.
    pub fn unwelcome(&self) -> Option<Unwelcome> {
        self.monitor.join_refused()
    }

    /// True if it is back, or new, and lacks something yet.
    pub(crate) fn is_returning(&self) -> bool {
        matches!(self.monitor.own_state(), Some(Standing::Returning { .. }))
    }

    /// True if it may have missed writes to this object, and so must not be read.
    pub(crate) fn is_absent(&self, object: ObjectId) -> bool {
        self.is_returning() && self.store.object(object).is_some_and(|object| object.redundant)
    }

    /// Reports to the monitor that it is there, by which epoch it lives, and whether it is of use: so it gets its next lease.
    pub(crate) fn report(&mut self, now: Now, out: &mut Effects) {
        let (bad_slots, failing) = self.store.bad_slots();
        let (undecided, stamps) = (self.undecided_of_fenced(), self.reservation.known());
        let report = Report { bad_slots, failing, undecided, stamps, ..Report::default() };
        self.monitor.report(&mut Ctx { now, settings: &self.config.settings, out }, report);
    }

    /// Fenced hosts of which something is undecided here, in volumes with redundancy: not durably committed or aborted. Without
    /// redundancy nobody decides without this device, so that nothing which was read can come out otherwise.
    fn undecided_of_fenced(&self) -> Vec<Generation> {
        let Some(membership) = self.membership() else { return Vec::new() };
        if membership.fence == FenceTable::default() {
            return Vec::new();
        }
        let redundant = |held: &Transaction| self.store.object(held.object).is_some_and(|object| object.redundant);
        let undecided = self.transactions.iter().filter(|(id, held)| {
            held.state.is_written_and_undecided() && membership.fence.refuses(id.host) && redundant(held)
        });
        // They are in the order of their hosts.
        let mut hosts: Vec<Generation> = Vec::new();
        for (id, _) in undecided {
            if hosts.last() != Some(&id.host) {
                hosts.push(id.host);
            }
            if hosts.len() == limits::UNDECIDED_HOSTS_MAX {
                break;
            }
        }
        hosts
    }

    /// Says at once that nothing of fenced hosts is undecided any more: whoever has them fenced waits for it.
    pub(crate) fn tell_when_decided(&mut self, now: Now, out: &mut Effects) {
        if self.monitor.has_reported_undecided() && self.undecided_of_fenced().is_empty() {
            self.report(now, out);
        }
    }

    /// A request has failed.
    pub(crate) fn note_failure(&mut self, failure: Failure) {
        if matches!(failure, Failure::NoSpace | Failure::Disk) {
            self.monitor.note_disk_failure();
        }
    }

    /// Lets a host that asks know that it can be reached, though it may not serve.
    pub(crate) fn show_up(&mut self, host: Generation, out: &mut Effects) {
        self.counters.messages_sent += 1;
        let epoch = self.monitor.epoch();
        let reply = Reply::Rejected { rejection: Rejection::WrongEpoch { current: epoch } };
        out.send(NodeId::Host(host), Message::Answer(Answer { epoch, confirmed: Vec::new(), reply }));
    }

    /// Somebody lives by a later epoch: so there is news.
    pub(crate) fn ask_for_news(&mut self, now: Now, out: &mut Effects) {
        if self.monitor.seeks_news(now.time) {
            self.report(now, out);
        }
    }

    /// When to report next; never with a fixed membership.
    pub(crate) fn next_report(&self) -> Option<Time> {
        self.monitor.next_report(&self.config.settings).filter(|_| self.service == Service::Serving)
    }

    pub(crate) fn on_monitor(&mut self, now: Now, answer: MonitorAnswer, out: &mut Effects) {
        if self.service != Service::Serving {
            return self.ignore(Ignored::NotStarted, out);
        }
        self.monitor.on_answer(now.time, answer);
        while let Some(event) = self.monitor.next_event(&Ctx { now, settings: &self.config.settings, out }) {
            match event {
                Event::ReportDue => self.report(now, out),
                Event::Lease { stamps } => self.reservation.know(now.time, stamps),
                Event::Adopt { membership } => {
                    let ticket = self.tickets.open(Ticket::Adopt);
                    self.store.adopt(ticket, membership, out);
                }
                Event::Ignored(why) => self.ignore(why, out),
                Event::NewView { .. }
                | Event::Unavailable
                | Event::Fenced { .. }
                | Event::Administered { .. }
                | Event::Expired { .. } => unreachable!("a device asks for nothing but leases"),
            }
        }
    }

    /// A membership is durable; the store has dropped these intents, since the device was out.
    pub(crate) fn on_adopted(&mut self, now: Now, dropped: Vec<TransactionId>, out: &mut Effects) {
        let own = self.config.store.device;
        let since = |membership: &Membership| membership.member(own).map(|member| member.since);
        let before = self.monitor.adopted(now.time);
        let membership = self.membership().expect("just adopted");
        let same_devices = before.as_ref().is_some_and(|before| before.has_same_devices(membership));
        let was_away = before.as_ref().is_some_and(|before| since(before) < since(membership));
        if !same_devices {
            self.drop_announced(now, out);
        }
        if was_away {
            self.drop_undecided(now, dropped, out);
        }
        let view = self.monitor.view();
        self.requests.drop_fenced(|host| view.refuses(host));
        self.expire_fenced(now, out);
        // The monitor, and all who wait for it, hear at once by which epoch this device lives.
        self.report(now, out);
    }

    /// Drops what has no intent yet, and all that waits: hosts begin it anew in the new epoch. A write that were still to become an
    /// intent of an earlier epoch would be in no account of what others have missed. Those that take effect on arrival do so in the
    /// epoch of their arrival: their hosts go on with them.
    fn drop_announced(&mut self, now: Now, out: &mut Effects) {
        self.reservation.take_deferred();
        for id in self.waiting.in_order() {
            self.waiting.take(id);
        }
        let announced = |state| state == State::Prewritten;
        for id in self.transactions_that(announced) {
            let object = self.transactions.get(id).expect("just listed").object;
            if self.is_unannounced(object) {
                self.put_off(now, id, out);
            } else if !self.outlives_epoch(id) {
                self.refuse_for_ever(now, id, out);
            }
        }
        self.resume_waiting(now, out);
    }

    /// Forgets all transactions on redundant objects that it shares with others: while this device was out, they have decided them.
    fn drop_undecided(&mut self, now: Now, dropped: Vec<TransactionId>, out: &mut Effects) {
        for id in dropped {
            if self.transactions.get(id).is_some_and(|held| held.state == State::Prepared) {
                self.advance(now, id, State::Aborted, out);
            }
        }
        let decided = |state| matches!(state, State::Committed | State::Aborted | State::Applied);
        for id in self.transactions_that(decided) {
            let held = self.transactions.get(id).expect("just listed");
            let object = held.object;
            if held.state == State::Applied && self.can_be_suspect(object) {
                // The others may lack it.
                self.suspect(now, id, out);
                continue;
            }
            // One that was refused before it was known what it writes is of no object.
            if self.is_before_return(id) || self.store.object(object).is_none() {
                self.drop_decided(id);
            }
        }
    }

    /// True if a transaction is from before an absence of this device, and was shared with others: they need not hear of it any more.
    pub(crate) fn is_before_return(&self, id: TransactionId) -> bool {
        let Some(held) = self.transactions.get(id) else { return false };
        let own = self.view().member(self.config.store.device);
        let redundant = self.store.object(held.object).is_none_or(|object| object.redundant);
        redundant && held.participants.len() > 1 && own.is_some_and(|own| held.epoch < own.since)
    }

    fn transactions_that(&self, is: impl Fn(State) -> bool) -> Vec<TransactionId> {
        self.transactions.iter().filter(|(_, held)| is(held.state)).map(|(id, _)| *id).collect()
    }

    /// Ends the leases of hosts that are kept out.
    fn expire_fenced(&mut self, now: Now, out: &mut Effects) {
        let fence = self.membership().map_or_else(FenceTable::default, |membership| membership.fence.clone());
        let fenced: Vec<_> = self.sessions.hosts().filter(|host| fence.refuses(*host)).collect();
        for host in fenced {
            self.expire(now, host, out);
        }
        // Commits that were kept only for them need not be kept any longer.
        let kept = self.transactions.iter();
        let kept = kept.filter(|(id, held)| held.state == State::Committed && fence.refuses(id.host));
        kept.for_each(|(id, _)| self.orphans.insert(*id));
    }

    /// True if a transaction on this object is undecided here that a device which has been out since has no say in: it may not be in
    /// before all of these are decided, or decisions could outlive those who may tell of them.
    pub(crate) fn has_undecided_before_return_of(&self, device: DeviceId, object: ObjectId) -> bool {
        let Some(membership) = self.membership() else { return false };
        self.transactions.iter().any(|(_, held)| {
            // A decision that is not durable can be lost in a restart.
            let pending = held.state.is_written_and_undecided();
            pending && held.object == object && !membership.has_been_in_since(device, held.epoch)
        })
    }

    /// Those of a transaction's participants whose word counts: they have been in since it wrote.
    pub(crate) fn voters(&self, id: TransactionId) -> Vec<DeviceId> {
        let held = self.transactions.get(id).expect("it is known");
        let redundant = self.store.object(held.object).is_some_and(|object| object.redundant);
        let Some(membership) = self.membership().filter(|_| redundant) else {
            return held.participants.clone();
        };
        let counts = |device: &_| membership.has_a_say(*device, &held.participants, held.epoch);
        held.participants.iter().copied().filter(counts).collect()
    }
}
