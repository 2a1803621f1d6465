//! The monitor's client: the one of hosts, devices and lock servers alike (`docs/membership.md`).
//!
//! ```text
//!   owner ── report, fence, administer ──► MonitorClient ──► monitor
//!   owner ◄─── Event or DeviceEvent ────── MonitorClient ◄── monitor
//! ```
//!
//! The client owns the membership that its owner lives by, which devices are unavailable, the recovery throttle, a device's lease, and
//! what was asked of the monitor and not answered. What follows from an event is its owner's business.
//!
//! | owner | reports | adopts a membership | its fences |
//! | --- | --- | --- | --- |
//! | host | every heartbeat | at once | are sent with its reports, and expire |
//! | device | as its lease needs it | once that is durable | |
//! | lock server | never | never | are sent until they are answered |
//!
//! What an answer brings is taken over piece by piece: each [`MonitorClient::next_event`], or of a device
//! [`MonitorClient::next_device_event`], takes over one thing and tells it, so that the owner acts on that before the next.

mod lease;
mod pending;
mod view;

use braid_base::limits::Settings;
use braid_base::{Clock, DeviceId, DiskId, Epoch, Generation, MemberState, Membership, NodeId, Now, Time, Timers};
use braid_machine::{Effects, Ignored};
use braid_wire::{
    AdminError, Administration, HealingProgress, JoinRefused, Message, MonitorAnswer, MonitorCommand, MonitorReply,
    MonitorRequest, RecoveryThrottle,
};
use lease::LeaseState;
pub use pending::{FenceRequest, Persistence};
use pending::{Pending, PendingAdministration, PendingFence};
use std::time::Duration;
pub use view::MembershipView;

/// The least time between two reports that are sent because something is amiss.
const REPORT_AGAIN_AFTER: Duration = Duration::from_millis(20);
/// Before it knows a membership, a node reports so many times as often as later: it is just starting, and so perhaps is the monitor.
const STARTING: u32 = 10;

/// A node's client of the array's monitor.
#[derive(Clone, Debug)]
pub struct MonitorClient {
    view: MembershipView,
    /// Whether it lives by a membership at all.
    adopts: bool,
    /// How fast returning devices are to be resynchronised, as the monitor last said.
    throttle: RecoveryThrottle,
    /// Only devices have one.
    lease: Option<LeaseState>,
    pending: Pending,
    last_report: Option<Time>,
    timers: Timers<Deadline>,
    /// What the last answer brought and has not been taken over.
    news: Option<StatusDiff>,
}

/// What the client borrows of its owner.
pub struct Ctx<'a> {
    /// The time.
    pub now: Now,
    /// Waits and spans.
    pub settings: &'a Settings,
    /// Where requests go.
    pub out: &'a mut Effects,
}

/// What a device is told.
#[derive(Clone, Debug)]
pub enum DeviceEvent {
    /// It is to make this membership durable, and then to call [`MonitorClient::adopted`].
    Adopt {
        /// The next membership.
        membership: Membership,
    },
    /// Its lease has been extended.
    Lease {
        /// Devices and hosts have named stamps up to this clock to the monitor.
        stamps: Clock,
    },
    /// It is time to report.
    ReportDue,
    /// The answer had no effect.
    Ignored(Ignored),
}

/// What a host is told; of these a lock server, which asks for fences alone, hears that hosts are fenced.
#[derive(Clone, Debug)]
pub enum Event {
    /// The view has another membership; `before` was the last one.
    NewView {
        /// None if this is the first.
        before: Option<Membership>,
    },
    /// Other devices are unavailable than before.
    Unavailable,
    /// It is time to report.
    ReportDue,
    /// Hosts are fenced.
    Fenced {
        /// Who asked.
        asker: u64,
        /// Those that were named one by one.
        also: Vec<Generation>,
    },
    /// The monitor has changed what it was asked to, or refused.
    Administered {
        /// Who asked.
        asker: u64,
        /// Why not.
        result: Result<(), AdminError>,
    },
    /// The monitor did not answer a request in time.
    Expired {
        /// Who asked.
        asker: u64,
        /// How long was waited.
        waited: Duration,
    },
    /// The answer had no effect.
    Ignored(Ignored),
}

/// What a node reports of itself.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Of a host: devices that do not answer it.
    pub silent: Vec<DeviceId>,
    /// Of a device: the slots of its disk that can't be written.
    pub bad_slots: u32,
    /// Of a device: these are so many that it is to be done without.
    pub failing: bool,
    /// Of a device: fenced hosts of which it holds something undecided.
    pub undecided: Vec<Generation>,
    /// The highest stamp clock that is known to be accepted.
    pub stamps: Clock,
    /// Of a host: how far the devices are that it resynchronises.
    pub healing: Vec<(DeviceId, HealingProgress)>,
    /// Of a host: those that have all that they missed, with the epochs in which they came back.
    pub caught_up: Vec<(DeviceId, Epoch)>,
}

/// What is left of an answer.
#[derive(Clone, Debug)]
struct StatusDiff {
    /// The monitor was last told that it is not heard.
    reported_deaf: bool,
    membership: Option<Membership>,
    unavailable: Option<Vec<DeviceId>>,
    reply: Option<MonitorReply>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Deadline {
    /// A host reports.
    Report,
    /// A fence expires, or is sent again.
    Fence(u64),
    /// An administration expires.
    Administer(u64),
}

impl MonitorClient {
    /// That of a host, in an array whose membership is fixed, or else in one with a monitor.
    pub fn of_host(fixed: Option<Membership>) -> MonitorClient {
        MonitorClient {
            view: MembershipView::new(fixed),
            adopts: true,
            throttle: RecoveryThrottle::default(),
            lease: None,
            pending: Pending::default(),
            last_report: None,
            timers: Timers::default(),
            news: None,
        }
    }

    /// That of a device, which needs leases.
    pub fn of_device(fixed: Option<Membership>, device: DeviceId) -> MonitorClient {
        MonitorClient { lease: Some(LeaseState::new(device)), ..MonitorClient::of_host(fixed) }
    }

    /// That of a lock server, which lives by no epoch.
    pub fn of_lock_server() -> MonitorClient {
        MonitorClient { adopts: false, ..MonitorClient::of_host(None) }
    }

    /// The membership that the owner lives by, and which devices are unavailable.
    pub fn view(&self) -> &MembershipView {
        &self.view
    }

    /// The epoch that the owner lives by; zero before the first.
    pub fn epoch(&self) -> Epoch {
        self.view.epoch()
    }

    /// How fast returning devices are to be resynchronised.
    pub fn throttle(&self) -> RecoveryThrottle {
        self.throttle
    }

    /// True if there is a monitor.
    pub fn has_monitor(&self) -> bool {
        !self.view.is_fixed()
    }

    /// Begins the reports of a host.
    pub fn start(&mut self, now: Time) {
        if self.has_monitor() {
            self.timers.set(Deadline::Report, now);
        }
    }

    /// When [`MonitorClient::wake`] has something to do.
    pub fn deadline(&self) -> Option<Time> {
        self.timers.next().map(|(time, _)| time)
    }

    /// Does the first thing that is due.
    pub fn wake(&mut self, cx: &mut Ctx) -> Option<Event> {
        match self.timers.pop_due(cx.now.time)? {
            Deadline::Report => {
                self.put_off_report(cx);
                Some(Event::ReportDue)
            }
            Deadline::Fence(ticket) => {
                let fence = self.pending.fences.get_mut(&ticket).expect("its timer is cancelled with it");
                let Some(wait) = &mut fence.resend_after else {
                    let PendingFence { asker, since, .. } = self.pending.fences.remove(&ticket).expect("just seen");
                    return Some(Event::Expired { asker, waited: cx.now.time.since(since) });
                };
                *wait = (*wait * 2).min(cx.settings.resend_max);
                self.timers.set(Deadline::Fence(ticket), cx.now.time.after(*wait));
                let command = fence.command(ticket);
                self.tell(cx, command);
                None
            }
            Deadline::Administer(ticket) => {
                let pending = self.pending.administrations.remove(&ticket).expect("its timer is cancelled with it");
                Some(Event::Expired { asker: pending.asker, waited: cx.now.time.since(pending.since) })
            }
        }
    }

    /// A host is about to report: the next report is due in its time from now on.
    pub fn put_off_report(&mut self, cx: &Ctx) {
        let heartbeat = cx.settings.heartbeat;
        let wait = if self.view.membership().is_some() { heartbeat } else { heartbeat / STARTING };
        self.timers.set(Deadline::Report, cx.now.time.after(wait));
    }

    /// Reports to the monitor, and asks once more for what it has not answered.
    pub fn report(&mut self, cx: &mut Ctx, report: Report) {
        let (now, settings) = (cx.now.time, cx.settings);
        self.last_report = Some(now);
        let Report { mut silent, bad_slots, failing, undecided, stamps, healing, caught_up } = report;
        if let Some(lease) = &mut self.lease {
            silent = lease.renew(now, settings, &undecided);
        }
        let disk = self.lease.as_ref().and_then(|lease| lease.disk);
        self.tell(cx, MonitorCommand::Renew { sent: now, silent, disk, bad_slots, failing, undecided, stamps });
        for (ticket, pending) in &self.pending.administrations {
            self.tell(cx, pending.command(*ticket));
        }
        for (device, progress) in healing {
            self.tell(cx, MonitorCommand::Healing { device, progress });
        }
        for (ticket, fence) in &self.pending.fences {
            self.tell(cx, fence.command(*ticket));
        }
        for (device, since) in caught_up {
            self.tell(cx, MonitorCommand::CaughtUp { device, since });
        }
    }

    fn tell(&self, cx: &mut Ctx, command: MonitorCommand) {
        let request = MonitorRequest { epoch: self.view.epoch(), command };
        cx.out.send(NodeId::Monitor, Message::MonitorRequest(request));
    }

    /// Somebody lives by a later epoch, so there is news: true if the owner is to report at once, to be told.
    pub fn seeks_news(&self, now: Time) -> bool {
        let lately = self.last_report.is_some_and(|last| now < last.after(REPORT_AGAIN_AFTER));
        self.has_monitor() && !lately
    }

    /// Has hosts fenced.
    pub fn fence(&mut self, cx: &mut Ctx, ticket: u64, asker: u64, request: FenceRequest, persistence: Persistence) {
        let resend_after = (persistence == Persistence::Forever).then_some(cx.settings.resend_min);
        let wait = resend_after.unwrap_or(cx.settings.request_timeout);
        self.timers.set(Deadline::Fence(ticket), cx.now.time.after(wait));
        let pending = PendingFence { asker, request, since: cx.now.time, resend_after };
        self.tell(cx, pending.command(ticket));
        self.pending.fences.insert(ticket, pending);
    }

    /// True if hosts are being fenced.
    pub fn is_fencing(&self) -> bool {
        !self.pending.fences.is_empty()
    }

    /// Has something changed that is on the monitor's record.
    pub fn administer(&mut self, cx: &mut Ctx, ticket: u64, asker: u64, request: Administration) {
        self.timers.set(Deadline::Administer(ticket), cx.now.time.after(cx.settings.request_timeout));
        let pending = PendingAdministration { asker, request, since: cx.now.time };
        self.tell(cx, pending.command(ticket));
        self.pending.administrations.insert(ticket, pending);
    }

    /// The monitor has answered. What that brings, [`MonitorClient::next_event`] tells.
    pub fn on_answer(&mut self, now: Time, answer: MonitorAnswer) {
        let MonitorAnswer { membership, unavailable, reply } = answer;
        let reported_deaf = self.lease.as_mut().is_some_and(|lease| lease.hear(now));
        let membership = membership.filter(|_| self.adopts);
        self.news = Some(StatusDiff { reported_deaf, membership, unavailable: Some(unavailable), reply: Some(reply) });
    }

    /// Takes over the next thing that an answer has brought to a host or a lock server; none if that was all.
    pub fn next_event(&mut self, cx: &Ctx) -> Option<Event> {
        if self.drop_unasked() {
            return Some(Event::Ignored(Ignored::NotForUs));
        }
        let news = self.news.as_mut()?;
        if let Some(membership) = news.membership.take_if(|membership| membership.epoch > self.view.epoch()) {
            return Some(Event::NewView { before: self.view.adopt(cx.now.time, membership) });
        }
        if let Some(devices) = news.unavailable.take() {
            let known = |device: &DeviceId| self.view.member(*device).is_some();
            if self.view.set_unavailable(devices.into_iter().filter(known).collect()) {
                return Some(Event::Unavailable);
            }
        }
        let reply = news.reply.take();
        self.news = None;
        match reply? {
            MonitorReply::Lease { throttle, .. } => {
                self.throttle = throttle;
                None
            }
            MonitorReply::Fenced { ticket } => {
                let PendingFence { asker, request, .. } = self.pending.fences.remove(&ticket)?;
                self.timers.cancel(Deadline::Fence(ticket));
                Some(Event::Fenced { asker, also: request.also })
            }
            MonitorReply::Administered { ticket, result } => {
                let pending = self.pending.administrations.remove(&ticket)?;
                self.timers.cancel(Deadline::Administer(ticket));
                Some(Event::Administered { asker: pending.asker, result })
            }
            MonitorReply::Changed | MonitorReply::JoinRefused(_) => None,
        }
    }

    /// Asserts that what an answer brought was taken over, that what was asked for has a deadline, and that the membership only goes forward.
    pub fn invariants(&self) {
        assert!(self.news.is_none(), "an owner takes over all that an answer brings");
        let asked = self.pending.fences.len() + self.pending.administrations.len();
        let reports = usize::from(self.timers.deadline_of(Deadline::Report).is_some());
        assert_eq!(self.timers.len(), asked + reports, "what is asked of the monitor has a deadline");
        let adopting = self.lease.as_ref().and_then(|lease| lease.adopting.as_ref());
        let is_later = |membership: &Membership| membership.epoch > self.view.epoch();
        assert!(adopting.is_none_or(is_later), "a later membership alone is made durable");
    }

    /// Drops what has come though nobody was asked, since the membership is fixed. True if there was anything.
    fn drop_unasked(&mut self) -> bool {
        self.view.is_fixed() && self.news.take().is_some()
    }
}

/// What only devices need.
impl MonitorClient {
    /// Takes over the next thing that an answer has brought to a device; none if that was all.
    pub fn next_device_event(&mut self, cx: &Ctx) -> Option<DeviceEvent> {
        if self.drop_unasked() {
            return Some(DeviceEvent::Ignored(Ignored::NotForUs));
        }
        let news = self.news.as_mut()?;
        let lease = self.lease.as_mut().expect("it is that of a device");
        if std::mem::take(&mut news.reported_deaf) {
            // It hears the monitor again; and no lease came for what it had reported.
            return Some(DeviceEvent::ReportDue);
        }
        let Some(reply) = news.reply.take() else {
            let membership = self.news.take().and_then(|news| news.membership)?;
            lease.adopting = Some(membership.clone());
            return Some(DeviceEvent::Adopt { membership });
        };
        let known = lease.adopting.as_ref().map_or(self.view.epoch(), |membership| membership.epoch);
        news.membership.take_if(|membership| membership.epoch <= known);
        if news.membership.is_some() && lease.adopting.is_some() {
            // One after the other: it is told again. The lease is one for the later epoch, and must not serve the earlier.
            self.news = None;
            return Some(DeviceEvent::Ignored(Ignored::InProgress));
        }
        match reply {
            MonitorReply::JoinRefused(why) => {
                lease.join_refused = Some(why);
                self.news = None;
                None
            }
            MonitorReply::Lease { sent, length, stamps, .. } if lease.has_asked(sent) => {
                lease.extend(cx.settings, sent, length);
                Some(DeviceEvent::Lease { stamps })
            }
            _ => {
                let told = self.news.take().and_then(|news| news.membership);
                lease.seek(told.map(|membership| membership.epoch)).then_some(DeviceEvent::ReportDue)
            }
        }
    }
    /// True if the owner may serve: it is in, or returning, and its lease runs.
    pub fn may_serve(&self, now: Time) -> bool {
        let Some(lease) = &self.lease else { return true };
        self.view.is_fixed() || (self.own_state().is_some_and(|state| state != MemberState::Out) && lease.runs(now))
    }

    /// Its own state in the array, as far as it knows.
    pub fn own_state(&self) -> Option<MemberState> {
        self.view.state(self.lease.as_ref()?.device)
    }

    /// True if a later membership is on its way to the disk.
    pub fn is_adopting(&self) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.adopting.is_some())
    }

    /// When to report next; never with a fixed membership.
    pub fn next_report(&self, settings: &Settings) -> Option<Time> {
        let lease = self.lease.as_ref().filter(|_| self.has_monitor())?;
        Some(lease.next_renewal(settings, self.last_report, self.view.membership().is_none()))
    }

    /// Takes up what the disk has on record: its name, and a membership.
    pub fn recover(&mut self, disk: DiskId, recorded: Option<Membership>) {
        self.lease_mut().disk = Some(disk);
        self.view.recover(recorded);
    }

    /// The membership of [`DeviceEvent::Adopt`] is durable, and the owner lives by it. Tells the one before.
    pub fn adopted(&mut self, now: Time) -> Option<Membership> {
        let membership = self.lease_mut().adopting.take().expect("one membership at a time is on its way to the disk");
        self.view.adopt(now, membership)
    }

    /// The disk could not do what it was asked to. While the device is returning, that is for the monitor to know: hosts try the same again
    /// and again, and users wait for what others could do without the device. If it is in, users are told.
    pub fn note_disk_failure(&mut self) {
        if matches!(self.own_state(), Some(MemberState::Returning { .. })) {
            self.lease_mut().fail();
        }
    }

    /// Why it may never serve as it is, if the monitor has said so.
    pub fn join_refused(&self) -> Option<JoinRefused> {
        self.lease.as_ref()?.join_refused
    }

    /// True if it has last reported something undecided of fenced hosts.
    pub fn has_reported_undecided(&self) -> bool {
        self.lease.as_ref().is_some_and(|lease| !lease.undecided.is_empty())
    }

    fn lease_mut(&mut self) -> &mut LeaseState {
        self.lease.as_mut().expect("only devices have leases")
    }
}
