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
use braid_base::{Generation, Membership, NodeId, Now, Time, TransactionId};
use braid_machine::{Effects, Ignored};
use braid_membership::client::{Ctx, DeviceEvent, MembershipView, Report};
use braid_wire::{Answer, JoinRefused, Message, MonitorAnswer, Rejection, Reply};

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
    pub fn join_refused(&self) -> Option<JoinRefused> {
        self.monitor.join_refused()
    }

    /// Reports to the monitor that it is there, by which epoch it lives, and whether it is of use: so it gets its next lease.
    pub(crate) fn report(&mut self, now: Now, out: &mut Effects) {
        let (bad_slots, failing) = self.store.bad_slots();
        let (undecided, stamps) = (self.undecided_of_fenced(), self.scheduler.known_stamps());
        let report = Report { bad_slots, failing, undecided, stamps, ..Report::default() };
        self.monitor.report(&mut Ctx { now, settings: &self.config.settings, out }, report);
    }

    /// Fenced hosts of which something is undecided here.
    fn undecided_of_fenced(&self) -> Vec<Generation> {
        let of = |membership| self.scheduler.ledger().undecided_of_fenced(&self.store, membership);
        self.membership().map_or_else(Vec::new, of)
    }

    /// Says at once that nothing of fenced hosts is undecided any more: whoever has them fenced waits for it.
    pub(crate) fn tell_when_decided(&mut self, now: Now, out: &mut Effects) {
        if self.monitor.has_reported_undecided() && self.undecided_of_fenced().is_empty() {
            self.report(now, out);
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
        while let Some(event) = self.monitor.next_device_event(&Ctx { now, settings: &self.config.settings, out }) {
            match event {
                DeviceEvent::ReportDue => self.report(now, out),
                DeviceEvent::Lease { stamps } => self.scheduler.know_stamps(now.time, stamps),
                DeviceEvent::Adopt { membership } => {
                    let ticket = self.tickets.open(Ticket::Adopt);
                    self.store.adopt(ticket, membership, out);
                }
                DeviceEvent::Ignored(why) => self.ignore(why, out),
            }
        }
    }

    /// A membership is durable; the store has dropped these intents, since the device was out.
    pub(crate) fn on_adopted(&mut self, now: Now, dropped: Vec<TransactionId>, out: &mut Effects) {
        let before = self.monitor.adopted(now.time);
        self.schedule(now, out, |scheduler, cx| scheduler.on_adopted(cx, before.as_ref(), dropped));
        let view = self.monitor.view();
        self.requests.drop_fenced(|host| view.refuses(host));
        self.expire_fenced(now, out);
        // The monitor, and all who wait for it, hear at once by which epoch this device lives.
        self.report(now, out);
    }

    /// Ends the leases of hosts that are kept out.
    fn expire_fenced(&mut self, now: Now, out: &mut Effects) {
        let fenced: Vec<_> = self.sessions.hosts().filter(|host| self.view().refuses(*host)).collect();
        for host in fenced {
            self.expire(now, host, out);
        }
    }
}
