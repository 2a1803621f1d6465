//! The membership as this device knows it: its lease, its epoch, and how it adopts a new membership
//! (`docs/membership.md`).
//!
//! ```text
//!   a new membership is heard of ─► being written to disk ─► adopted
//!                                   (nothing is served)      pre-writes are dropped: their hosts begin them anew;
//!                                                            after an absence, undecided intents too: other devices decided them
//! ```

use crate::device::{Device, Service};
use crate::tickets::Ticket;
use braid_base::{Generation, MemberState, Membership, NodeId, Now, Time, TransactionId};
use braid_machine::{Effects, Ignored};
use braid_membership::client::{Ctx, DeviceEvent, MembershipView, Report};
use braid_wire::{Answer, JoinRefused, Message, MonitorAnswer, Rejection, Reply};

impl Device {
    /// The adopted membership, once there is one.
    pub fn membership(&self) -> Option<&Membership> {
        self.view().membership()
    }

    /// The device's view of the membership.
    pub(crate) fn view(&self) -> &MembershipView {
        self.monitor.view()
    }

    /// True if the device may serve: it is in or returning, and its lease runs.
    pub fn has_lease(&self, now: Time) -> bool {
        self.monitor.may_serve(now)
    }

    /// The reason why the monitor refuses this device for good, if it does.
    pub fn join_refused(&self) -> Option<JoinRefused> {
        self.monitor.join_refused()
    }

    /// Reports to the monitor: the device's epoch, the health of its disk, and fenced hosts with undecided transactions
    /// here. The monitor answers with the next lease.
    pub(crate) fn report(&mut self, now: Now, out: &mut Effects) {
        let (bad_slots, failing) = self.store.bad_slots();
        let failing = failing || self.is_to_be_rebuilt(now.time);
        let (undecided, stamps) = (self.undecided_of_fenced(), self.scheduler.known_stamps());
        let report = Report { bad_slots, failing, undecided, stamps, ..Report::default() };
        self.monitor.report(&mut Ctx { now, settings: &self.config.settings, out }, report);
    }

    /// True if the device is in, and yet has absent blocks. No host that keeps to the protocol brings that about. The blocks can't be read,
    /// and a device is rebuilt only when it returns. So it reports that it fails: it is marked out as soon as the others can serve without
    /// it, and once its lease has been over for as long again, it asks to return.
    fn is_to_be_rebuilt(&self, now: Time) -> bool {
        let is_in = self.monitor.own_state() == Some(MemberState::In);
        is_in && self.store.absent_blocks() > 0 && self.monitor.had_lease_lately(now, &self.config.settings)
    }

    /// Fenced hosts that have undecided transactions here.
    fn undecided_of_fenced(&self) -> Vec<Generation> {
        let of = |membership| self.scheduler.ledger().undecided_of_fenced(&self.store, membership);
        self.membership().map_or_else(Vec::new, of)
    }

    /// Reports at once when the last transaction of a fenced host is decided: the request to fence the host waits for
    /// it.
    pub(crate) fn tell_when_decided(&mut self, now: Now, out: &mut Effects) {
        if self.monitor.has_reported_undecided() && self.undecided_of_fenced().is_empty() {
            self.report(now, out);
        }
    }

    /// Answers a host though the device may not serve, so that the host knows it is reachable.
    pub(crate) fn show_up(&mut self, host: Generation, out: &mut Effects) {
        self.counters.messages_sent += 1;
        let epoch = self.monitor.epoch();
        let reply = Reply::Rejected { rejection: Rejection::WrongEpoch { current: epoch } };
        out.send(NodeId::Host(host), Message::Answer(Answer { epoch, confirmed: Vec::new(), reply }));
    }

    /// Asks the monitor for a newer membership, after a host has spoken with a later epoch.
    pub(crate) fn ask_for_news(&mut self, now: Now, out: &mut Effects) {
        if self.monitor.seeks_news(now.time) {
            self.report(now, out);
        }
    }

    /// When to report next. `None` with a fixed membership.
    pub(crate) fn next_report(&self) -> Option<Time> {
        self.monitor.next_report(&self.config.settings).filter(|_| self.service == Service::Serving)
    }

    pub(crate) fn on_monitor(&mut self, now: Now, answer: MonitorAnswer, out: &mut Effects) {
        if self.service != Service::Serving {
            return self.ignore(Ignored::NotStarted, out);
        }
        self.monitor.on_answer(now.time, answer);
        while let Some(event) = self.monitor.next_device_event(&Ctx { now, settings: &self.config.settings, out }) {
            match event {
                DeviceEvent::ReportDue => self.report(now, out),
                DeviceEvent::Lease { stamps } => {
                    self.scheduler.know_stamps(now.time, stamps);
                    self.store.raise_level(self.monitor.level(), out);
                }
                DeviceEvent::Adopt { membership } => {
                    let ticket = self.tickets.open(Ticket::Adopt);
                    self.store.adopt(ticket, membership, out);
                }
                DeviceEvent::Ignored(why) => self.ignore(why, out),
            }
        }
    }

    /// The new membership is durable. `dropped`: intents that the store dropped because the device was out.
    pub(crate) fn on_adopted(&mut self, now: Now, dropped: Vec<TransactionId>, out: &mut Effects) {
        let before = self.monitor.adopted(now.time);
        self.schedule(now, out, |scheduler, cx| scheduler.on_adopted(cx, before.as_ref(), dropped));
        let view = self.monitor.view();
        self.requests.drop_fenced(|host| view.refuses(host));
        self.expire_fenced(now, out);
        // The monitor, and the hosts that wait for it, learn this device's new epoch at once.
        self.report(now, out);
    }

    /// Ends the leases of fenced hosts.
    fn expire_fenced(&mut self, now: Now, out: &mut Effects) {
        let fenced: Vec<_> = self.sessions.hosts().filter(|host| self.view().refuses(*host)).collect();
        for host in fenced {
            self.expire(now, host, out);
        }
    }
}
