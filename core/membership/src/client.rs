//! The monitor's client: the part of a host, device or lock server that talks to the monitor (`docs/membership.md`).
//!
//! ```text
//!   owner ── report, fence, administer, own ──► MonitorClient ──► monitor
//!   owner ◄─── Event or DeviceEvent ─────────── MonitorClient ◄── monitor
//! ```
//!
//! The client owns its owner's membership, the set of unavailable devices, the recovery throttle, a device's lease, and the requests to the
//! monitor that are not answered yet. It reports changes as events; the owner decides what to do about them.
//!
//! | owner | reports | adopts a membership | its fences |
//! | --- | --- | --- | --- |
//! | host | every heartbeat | at once | sent with each report, until they expire |
//! | device | as often as its lease needs | once it is durable | |
//! | lock server | never | never | sent again until they are answered |
//!
//! An answer is taken over in parts: each call of [`MonitorClient::next_event`] (for a device [`MonitorClient::next_device_event`]) takes
//! over one change and returns it, so that the owner reacts to it before the next.

mod lease;
mod membership_view;
mod pending;

use braid_base::limits::Settings;
use braid_base::{
    Backoff, Clock, DeviceId, DiskId, Epoch, FileSystemId, Generation, Level, MemberState, Membership, NodeId, Now,
    Ownership, Time, Timers,
};
use braid_machine::{Disk, Effects, Ignored, Never, OneDisk, OpId};
use braid_wire::{
    AdminError, Administration, HealingProgress, JoinRefused, Message, MonitorAnswer, MonitorCommand, MonitorReply,
    MonitorRequest, OwnershipRefused, OwnershipRequest, RecoveryThrottle,
};
use lease::LeaseState;
pub use membership_view::MembershipView;
pub use pending::{FenceRequest, Persistence};
use pending::{Pending, PendingChange, PendingFence};
use std::time::Duration;

/// The least time between two reports that are sent out of turn, because something is wrong.
const REPORT_AGAIN_AFTER: Duration = Duration::from_millis(20);
/// Before it knows a membership, a node reports this many times as often: it has just started, and perhaps so has the monitor.
const STARTING: u32 = 10;

/// A node's client of the array's monitor.
#[derive(Clone, Debug, Default)]
pub struct MonitorClient {
    view: MembershipView,
    /// Whether it adopts memberships at all.
    adopts: bool,
    /// How fast returning devices are to be resynchronised, as the monitor last said.
    throttle: RecoveryThrottle,
    /// The level of the array, as the monitor last said. It never falls.
    level: Level,
    /// Only devices have one.
    lease: Option<LeaseState>,
    pending: Pending,
    last_report: Option<Time>,
    /// When the latest of the reports was sent that the monitor has answered.
    answered: Option<Time>,
    timers: Timers<Deadline>,
    /// The part of the last answer that has not been taken over.
    news: Option<StatusDiff>,
}

/// What the owner lends to the client for one call.
pub struct Ctx<'a, O = Never, D: Disk = OneDisk> {
    pub now: Now,
    /// Timeouts, intervals and limits.
    pub settings: &'a Settings,
    /// Receives the requests to the monitor.
    pub out: &'a mut Effects<O, D>,
}

#[derive(Clone, Debug)]
pub enum DeviceEvent {
    /// The device has to make this membership durable, and then call [`MonitorClient::adopted`].
    Adopt {
        /// The next membership.
        membership: Membership,
    },
    /// The lease has been extended.
    Lease {
        /// The highest stamp clock that devices and hosts have reported to the monitor.
        stamps: Clock,
    },
    ReportDue,
    /// The answer had no effect.
    Ignored(Ignored),
}

/// An event for a host or a lock server. A lock server only requests fences, so it only gets [`Event::Fenced`].
#[derive(Clone, Debug)]
pub enum Event {
    /// A membership was adopted.
    NewView {
        /// The previous membership; none if this is the first.
        before: Option<Membership>,
    },
    /// The set of unavailable devices has changed.
    Unavailable,
    ReportDue,
    /// The requested hosts are fenced.
    Fenced {
        /// The requester, as given to [`MonitorClient::fence`].
        asker: OpId,
        /// The hosts that the request named one by one.
        also: Vec<Generation>,
    },
    /// The monitor has carried out or refused an administration.
    Administered {
        /// The requester, as given to [`MonitorClient::administer`].
        asker: OpId,
        /// The refusal, if it was refused.
        result: Result<(), AdminError>,
    },
    /// The monitor has answered a request about the ownership of a file system.
    Ownership {
        /// The requester, as given to [`MonitorClient::own`].
        asker: OpId,
        result: Result<Ownership, OwnershipRefused>,
    },
    /// The monitor has answered an inquiry: the membership is adopted that it has.
    Inquired {
        /// The requester, as given to [`MonitorClient::inquire`].
        asker: OpId,
    },
    /// The monitor did not answer a request in time.
    Expired {
        /// The requester.
        asker: OpId,
        /// How long the request waited.
        waited: Duration,
    },
    /// The answer had no effect.
    Ignored(Ignored),
}

/// A node's report to the monitor.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Of a host: devices that do not answer it.
    pub silent: Vec<DeviceId>,
    /// Of a device: how many slots of its disk cannot be written.
    pub bad_slots: u32,
    /// Of a device: so many slots are bad that the device should be marked out.
    pub failing: bool,
    /// Of a device: fenced hosts of which it holds undecided intents.
    pub undecided: Vec<Generation>,
    /// The highest stamp clock known to be accepted.
    pub stamps: Clock,
    /// Of a host: the progress of the devices that it resynchronises.
    pub healing: Vec<(DeviceId, HealingProgress)>,
    /// Of a host: devices that are completely resynchronised, each with the epoch in which it returned.
    pub resynchronised: Vec<(DeviceId, Epoch)>,
}

/// The part of an answer that has not been taken over.
#[derive(Clone, Debug)]
struct StatusDiff {
    /// The last report said that the monitor's answers are not heard.
    reported_deaf: bool,
    membership: Option<Membership>,
    unavailable: Option<Vec<DeviceId>>,
    reply: Option<MonitorReply>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Deadline {
    /// The next report of a host.
    Report,
    /// A fence expires, or is sent again.
    Fence(u64),
    /// A request for a change expires.
    Change(u64),
}

impl MonitorClient {
    /// The client of a host. `fixed` is the membership of an array without a monitor.
    pub fn of_host(fixed: Option<Membership>) -> MonitorClient {
        MonitorClient { view: MembershipView::new(fixed), adopts: true, ..MonitorClient::default() }
    }

    /// The client of a device, which needs leases.
    pub fn of_device(fixed: Option<Membership>, device: DeviceId, holder: Option<u64>) -> MonitorClient {
        MonitorClient { lease: Some(LeaseState::new(device, holder)), ..MonitorClient::of_host(fixed) }
    }

    /// The client of a lock server, which has no epoch.
    pub fn of_lock_server() -> MonitorClient {
        MonitorClient { adopts: false, ..MonitorClient::of_host(None) }
    }

    /// The owner's membership, and which devices are unavailable.
    pub fn view(&self) -> &MembershipView {
        &self.view
    }

    /// The owner's current epoch; zero before the first.
    pub fn epoch(&self) -> Epoch {
        self.view.epoch()
    }

    /// How fast returning devices are to be resynchronised.
    pub fn throttle(&self) -> RecoveryThrottle {
        self.throttle
    }

    /// The level of the array, as far as the monitor has said.
    pub fn level(&self) -> Level {
        self.level
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

    /// Handles the first deadline that is due.
    pub fn wake<O, D: Disk>(&mut self, cx: &mut Ctx<'_, O, D>) -> Option<Event> {
        match self.timers.pop_due(cx.now.time)? {
            Deadline::Report => {
                self.put_off_report(cx);
                Some(Event::ReportDue)
            }
            Deadline::Fence(ticket) => {
                let fence = self.pending.fences.get_mut(&ticket).expect("its timer is cancelled with it");
                let Some(resend) = &mut fence.resend else {
                    let PendingFence { asker, since, .. } = self.pending.fences.remove(&ticket).expect("just seen");
                    return Some(Event::Expired { asker, waited: cx.now.time.since(since) });
                };
                self.timers.set(Deadline::Fence(ticket), cx.now.time.after(resend.next_wait()));
                let command = fence.command(ticket);
                self.tell(cx, command);
                None
            }
            Deadline::Change(ticket) => {
                let pending = self.pending.changes.remove(&ticket).expect("its timer is cancelled with it");
                Some(Event::Expired { asker: pending.asker, waited: cx.now.time.since(pending.since) })
            }
        }
    }

    /// Sets the next report one interval from now. To be called when a report is sent.
    pub fn put_off_report<O, D: Disk>(&mut self, cx: &Ctx<'_, O, D>) {
        let heartbeat = cx.settings.heartbeat;
        let wait = if self.view.membership().is_some() { heartbeat } else { heartbeat / STARTING };
        self.timers.set(Deadline::Report, cx.now.time.after(wait));
    }

    /// Reports to the monitor, and repeats the requests that it has not answered.
    pub fn report<O, D: Disk>(&mut self, cx: &mut Ctx<'_, O, D>, report: Report) {
        let (now, settings) = (cx.now.time, cx.settings);
        self.last_report = Some(now);
        let Report { mut silent, bad_slots, failing, undecided, stamps, healing, resynchronised } = report;
        if let Some(lease) = &mut self.lease {
            silent = lease.renew(now, settings, &undecided);
        }
        let disk = self.lease.as_ref().and_then(|lease| lease.disk);
        let holder = self.lease.as_ref().and_then(|lease| lease.holder(now));
        let (sent, knows) = (now, Level::KNOWN);
        let renewal =
            MonitorCommand::Renew { sent, silent, disk, bad_slots, failing, undecided, stamps, knows, holder };
        self.tell(cx, renewal);
        for pending in self.pending.changes.values() {
            self.tell(cx, pending.command.clone());
        }
        for (device, progress) in healing {
            self.tell(cx, MonitorCommand::Healing { device, progress });
        }
        for (ticket, fence) in &self.pending.fences {
            self.tell(cx, fence.command(*ticket));
        }
        for (device, since) in resynchronised {
            self.tell(cx, MonitorCommand::Resynchronised { device, since });
        }
    }

    fn tell<O, D: Disk>(&self, cx: &mut Ctx<'_, O, D>, command: MonitorCommand) {
        let request = MonitorRequest { epoch: self.view.epoch(), command };
        cx.out.send(NodeId::Monitor, Message::MonitorRequest(request));
    }

    /// Another node has a later epoch, so the membership has changed. True if the owner should report at once, to be told of it.
    pub fn seeks_news(&self, now: Time) -> bool {
        let lately = self.last_report.is_some_and(|last| now < last.after(REPORT_AGAIN_AFTER));
        self.has_monitor() && !lately
    }

    /// Requests that hosts be fenced.
    pub fn fence<O, D: Disk>(
        &mut self,
        cx: &mut Ctx<'_, O, D>,
        ticket: u64,
        asker: OpId,
        request: FenceRequest,
        persistence: Persistence,
    ) {
        let mut resend = (persistence == Persistence::Forever).then(|| cx.settings.resend());
        let wait = resend.as_mut().map_or(cx.settings.request_timeout, Backoff::next_wait);
        self.timers.set(Deadline::Fence(ticket), cx.now.time.after(wait));
        let pending = PendingFence { asker, request, since: cx.now.time, resend };
        self.tell(cx, pending.command(ticket));
        self.pending.fences.insert(ticket, pending);
    }

    /// True if a fence is requested and not answered.
    pub fn is_fencing(&self) -> bool {
        !self.pending.fences.is_empty()
    }

    /// Requests a change of the monitor's record.
    pub fn administer<O, D: Disk>(
        &mut self,
        cx: &mut Ctx<'_, O, D>,
        ticket: u64,
        asker: OpId,
        request: Administration,
    ) {
        self.change(cx, ticket, asker, MonitorCommand::Administer { ticket, request });
    }

    /// Requests, or asks for, the ownership of a file system.
    pub fn own<O, D: Disk>(
        &mut self,
        cx: &mut Ctx<'_, O, D>,
        ticket: u64,
        asker: OpId,
        file_system: FileSystemId,
        request: OwnershipRequest,
    ) {
        self.change(cx, ticket, asker, MonitorCommand::Ownership { ticket, file_system, request });
    }

    /// Asks the monitor whether there is another membership: every answer brings it, so the question may be about any file system.
    pub fn inquire<O, D: Disk>(&mut self, cx: &mut Ctx<'_, O, D>, ticket: u64, asker: OpId) {
        self.own(cx, ticket, asker, FileSystemId(0), OwnershipRequest::Inquire);
        self.pending.changes.entry(ticket).and_modify(|pending| pending.is_inquiry = true);
    }

    fn change<O, D: Disk>(&mut self, cx: &mut Ctx<'_, O, D>, ticket: u64, asker: OpId, command: MonitorCommand) {
        self.timers.set(Deadline::Change(ticket), cx.now.time.after(cx.settings.request_timeout));
        self.tell(cx, command.clone());
        self.pending.changes.insert(ticket, PendingChange { asker, command, is_inquiry: false, since: cx.now.time });
    }

    /// Takes in an answer of the monitor. [`MonitorClient::next_event`] returns what it changes.
    pub fn on_answer(&mut self, now: Time, answer: MonitorAnswer) {
        let MonitorAnswer { membership, unavailable, reply } = answer;
        // An answer that was delayed says what is long over, such as that no device was available after a loss of power.
        let is_late = match reply {
            MonitorReply::Lease { sent, level, .. } => {
                self.level = self.level.max(level.min(Level::KNOWN));
                self.answered.replace(sent.max(self.answered.unwrap_or(sent))) > Some(sent)
            }
            _ => false,
        };
        let unavailable = (!is_late).then_some(unavailable);
        let reported_deaf = self.lease.as_mut().is_some_and(|lease| lease.hear(now));
        let membership = membership.filter(|_| self.adopts);
        self.news = Some(StatusDiff { reported_deaf, membership, unavailable, reply: Some(reply) });
    }

    /// Takes over the next change of an answer, for a host or a lock server; none if that was all.
    pub fn next_event<O, D: Disk>(&mut self, cx: &Ctx<'_, O, D>) -> Option<Event> {
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
                Some(Event::Administered { asker: self.take_change(ticket)?, result })
            }
            MonitorReply::Ownership { ticket, result } => {
                let is_inquiry = self.pending.changes.get(&ticket).is_some_and(|pending| pending.is_inquiry);
                let asker = self.take_change(ticket)?;
                Some(if is_inquiry { Event::Inquired { asker } } else { Event::Ownership { asker, result } })
            }
            MonitorReply::Changed | MonitorReply::JoinRefused(_) => None,
        }
    }

    /// Asserts that answers were taken over completely, that each pending request has a deadline, and that the membership only goes
    /// forward.
    pub fn invariants(&self) {
        assert!(self.news.is_none(), "an owner takes over an answer completely");
        let asked = self.pending.fences.len() + self.pending.changes.len();
        let reports = usize::from(self.timers.deadline_of(Deadline::Report).is_some());
        assert_eq!(self.timers.len(), asked + reports, "each pending request has a deadline");
        let adopting = self.lease.as_ref().and_then(|lease| lease.adopting.as_ref());
        let is_later = |membership: &Membership| membership.epoch > self.view.epoch();
        assert!(adopting.is_none_or(is_later), "only a later membership is made durable");
    }

    /// A request for a change is answered. Returns the requester.
    fn take_change(&mut self, ticket: u64) -> Option<OpId> {
        let pending = self.pending.changes.remove(&ticket)?;
        self.timers.cancel(Deadline::Change(ticket));
        Some(pending.asker)
    }

    /// Drops an unsolicited answer: with a fixed membership there is no monitor. True if there was one.
    fn drop_unasked(&mut self) -> bool {
        self.view.is_fixed() && self.news.take().is_some()
    }
}

/// The part that only devices need.
impl MonitorClient {
    /// Takes over the next change of an answer, for a device; none if that was all.
    pub fn next_device_event<O, D: Disk>(&mut self, cx: &Ctx<'_, O, D>) -> Option<DeviceEvent> {
        if self.drop_unasked() {
            return Some(DeviceEvent::Ignored(Ignored::NotForUs));
        }
        let news = self.news.as_mut()?;
        let lease = self.lease.as_mut().expect("only devices call this");
        if std::mem::take(&mut news.reported_deaf) {
            // The monitor's answers arrive again; but the last report said the opposite, so it was not answered with a lease.
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
            // One membership at a time: the monitor will repeat this one. The lease is valid for the later epoch, and must not be used in
            // the earlier.
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
                lease.extend(cx.now.time, cx.settings, sent, length);
                Some(DeviceEvent::Lease { stamps })
            }
            _ => {
                let told = self.news.take().and_then(|news| news.membership);
                lease.seek(told.map(|membership| membership.epoch)).then_some(DeviceEvent::ReportDue)
            }
        }
    }
    /// True if the owner may serve: it is in or returning, and its lease has not expired.
    pub fn may_serve(&self, now: Time) -> bool {
        let Some(lease) = &self.lease else { return true };
        self.view.is_fixed() || (self.own_state().is_some_and(|state| state != MemberState::Out) && lease.runs(now))
    }

    /// The device's own state in the array, as far as it knows.
    pub fn own_state(&self) -> Option<MemberState> {
        self.view.state(self.lease.as_ref()?.device)
    }

    /// True if the device's lease runs, or has been over for less than the length of a lease.
    pub fn had_lease_lately(&self, now: Time, settings: &Settings) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.ran_within(settings.device_lease, now))
    }

    /// True while a later membership is being written to disk.
    pub fn is_adopting(&self) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.adopting.is_some())
    }

    /// When to report next; none with a fixed membership.
    pub fn next_report(&self, settings: &Settings) -> Option<Time> {
        let lease = self.lease.as_ref().filter(|_| self.has_monitor())?;
        Some(lease.next_renewal(settings, self.last_report, self.view.membership().is_none()))
    }

    /// Takes over what was read from the disk: its name, and a membership.
    pub fn recover(&mut self, disk: DiskId, recorded: Option<Membership>) {
        self.lease_mut().disk = Some(disk);
        self.view.recover(recorded);
    }

    /// The membership of [`DeviceEvent::Adopt`] is durable; from now on it is the owner's. Returns the previous one.
    pub fn adopted(&mut self, now: Time) -> Option<Membership> {
        let membership = self.lease_mut().adopting.take().expect("one membership at a time is on its way to the disk");
        self.view.adopt(now, membership)
    }

    /// A command to the disk failed. If the device is returning, the monitor is told: otherwise the recovery coordinator would retry the
    /// same write forever, while operations wait that could be done without the device. If it is in, the operation fails and its user is
    /// told.
    pub fn note_disk_failure(&mut self) {
        if matches!(self.own_state(), Some(MemberState::Returning { .. })) {
            self.lease_mut().fail();
        }
    }

    /// Why the monitor refuses to let the device join, if it has said so.
    pub fn join_refused(&self) -> Option<JoinRefused> {
        self.lease.as_ref()?.join_refused
    }

    /// True if the last report named fenced hosts with undecided intents.
    pub fn has_reported_undecided(&self) -> bool {
        self.lease.as_ref().is_some_and(|lease| !lease.undecided.is_empty())
    }

    fn lease_mut(&mut self) -> &mut LeaseState {
        self.lease.as_mut().expect("only devices have leases")
    }
}
