//! The host's view of the membership, and its reaction to changes (`docs/membership.md`).

use crate::host::Host;
use braid_base::{DeviceId, MemberState, Membership, Now};
use braid_machine::{ArrayRequest, HostEffects, HostError, HostSuccess, OpId};
use braid_membership::client::{Ctx, Event, FenceRequest, MembershipView, Persistence, Report};
use braid_transactions::Coordinator;
use braid_wire::{MonitorAnswer, OwnershipRefused};
use std::collections::BTreeSet;
use std::time::Duration;

/// The interval at which a device is asked again that may not have adopted the epoch.
const REPORT_AGAIN_AFTER: Duration = Duration::from_millis(20);
/// The number of heartbeats of silence after which the host reports a device to the monitor.
const HEARTBEATS_MISSED: u32 = 2;

impl Host {
    /// The adopted membership, once there is one.
    pub fn membership(&self) -> Option<&Membership> {
        self.monitor.view().membership()
    }

    /// The adopted membership, and the devices that are unavailable.
    pub(crate) fn view(&self) -> &MembershipView {
        self.monitor.view()
    }

    /// Reports to the monitor: that this host is alive, and which devices it can't reach.
    fn report(&mut self, now: Now, out: &mut HostEffects) {
        let settings = &self.config.settings;
        let patience = settings.heartbeat * HEARTBEATS_MISSED;
        // Heartbeats go to all devices, also to those that are out: the monitor admits no device that hosts can't
        // reach.
        let heard = |device: &DeviceId| self.links.last_heard(*device).or(self.view().began());
        let is_sure = self.links.are_read(now.time);
        let silent = |device: &DeviceId| is_sure && heard(device).is_some_and(|heard| now.time.since(heard) > patience);
        let report = Report {
            silent: self.links.devices().filter(silent).collect(),
            stamps: self.coordinator.highest_accepted(),
            healing: self.healing.progress().collect(),
            resynchronised: self.healing.recovered().collect(),
            ..Report::default()
        };
        self.monitor.report(&mut Ctx { now, settings: &self.config.settings, out }, report);
    }

    /// Reports to the monitor at once.
    pub(crate) fn report_at_once(&mut self, now: Now, out: &mut HostEffects) {
        self.monitor.put_off_report(&Ctx { now, settings: &self.config.settings, out });
        self.report(now, out);
    }

    /// Asks the monitor for a newer membership, after a device has answered with a later epoch.
    pub(crate) fn ask_for_news(&mut self, now: Now, out: &mut HostEffects) {
        if self.monitor.seeks_news(now.time) {
            self.report(now, out);
        }
    }

    /// A front end asks something of the monitor: a fence, a change of its record, the ownership of a file system, or the membership.
    pub(crate) fn ask_monitor(&mut self, now: Now, op: OpId, request: ArrayRequest, out: &mut HostEffects) {
        if !self.monitor.has_monitor() {
            return out.reply(op, Err(HostError::NoMonitor));
        }
        if self.is_fenced() && matches!(request, ArrayRequest::Ownership { .. }) {
            return out.reply(op, Err(HostError::Fenced));
        }
        let ticket = self.links.take_sequence();
        let cx = &mut Ctx { now, settings: &self.config.settings, out };
        match request {
            ArrayRequest::Fence { below, except } => {
                let request = FenceRequest { below, except, also: Vec::new() };
                self.monitor.fence(cx, ticket, op, request, Persistence::UntilExpired);
            }
            ArrayRequest::Administer { request } => self.monitor.administer(cx, ticket, op, request),
            ArrayRequest::Ownership { file_system, request } => self.monitor.own(cx, ticket, op, file_system, request),
            ArrayRequest::Membership => self.monitor.inquire(cx, ticket, op),
            other => unreachable!("it is not for the monitor: {other:?}"),
        }
    }

    pub(crate) fn on_monitor_timer(&mut self, now: Now, out: &mut HostEffects) {
        if let Some(event) = self.monitor.wake(&mut Ctx { now, settings: &self.config.settings, out }) {
            self.on_monitor_event(now, event, out);
        }
    }

    pub(crate) fn on_monitor(&mut self, now: Now, answer: MonitorAnswer, out: &mut HostEffects) {
        self.monitor.on_answer(now.time, answer);
        while let Some(event) = self.monitor.next_event(&Ctx { now, settings: &self.config.settings, out }) {
            self.on_monitor_event(now, event, out);
        }
    }

    fn on_monitor_event(&mut self, now: Now, event: Event, out: &mut HostEffects) {
        match event {
            Event::NewView { before } => self.on_new_view(now, before, out),
            Event::Unavailable => self.on_unavailable(now, out),
            Event::ReportDue => self.report(now, out),
            Event::Fenced { asker, .. } => out.reply(asker, Ok(HostSuccess::Done)),
            Event::Administered { asker, result } => {
                let outcome = result.map(|()| HostSuccess::Done).map_err(HostError::AdminError);
                out.reply(asker, outcome);
            }
            Event::Ownership { asker, result } => {
                let outcome = match result {
                    // The answer, or a later one, brings the membership with the fence.
                    _ if self.is_fenced() => Err(HostError::Fenced),
                    Ok(ownership) => Ok(HostSuccess::Ownership(ownership)),
                    Err(OwnershipRefused::Fenced) => Err(HostError::Fenced),
                    Err(why) => Err(HostError::Ownership(why)),
                };
                out.reply(asker, outcome);
            }
            Event::Inquired { asker } => {
                let membership = self.membership().cloned().filter(|_| !self.is_fenced());
                let outcome = membership.map(HostSuccess::Membership).ok_or(HostError::Fenced);
                out.reply(asker, outcome);
            }
            Event::Expired { asker, waited } => out.reply(asker, Err(HostError::MonitorSilent { waited })),
            Event::Ignored(why) => out.ignore(why),
        }
    }

    /// A device is in an earlier epoch, and so has dropped the requests of this epoch. While the epoch is new, the
    /// device is asked again soon, so that these requests need not wait for their ordinary repetition.
    pub(crate) fn await_adoption(&mut self, now: Now, device: DeviceId, out: &mut HostEffects) {
        let is_new = now.time.since(self.view().since()) <= self.config.settings.resend_max;
        if is_new && self.view().state(device).is_some_and(|member_state| member_state != MemberState::Out) {
            let (_, mut ctx) = self.requests(now, out);
            let (links, outbound) = ctx.outbound();
            links.await_adoption(&outbound, device, REPORT_AGAIN_AFTER);
        }
    }

    /// A device that was behind has adopted the epoch: the requests that wait for it are sent again.
    pub(crate) fn on_adoption(&mut self, now: Now, device: DeviceId) {
        self.coordinator.on_adoption(now, device);
        self.requests.objects.hurry(now, |asked| asked == device);
    }

    /// A new epoch has begun.
    fn on_new_view(&mut self, now: Now, before: Option<Membership>, out: &mut HostEffects) {
        self.counters.epochs += 1;
        let membership = self.membership().expect("just adopted");
        if membership.fence.refuses(self.config.generation) {
            return self.on_fenced(now, out);
        }
        let same = before.is_some_and(|before| before.has_same_devices(membership));
        self.coordinate(now, out, |coordinator, ctx| coordinator.on_epoch(ctx, same));
        self.follow_members();
        self.requests.objects.hurry(now, |_| true);
        self.heal(now, out, |healing, ctx| healing.on_membership(ctx));
        self.drop_unawaited_tasks();
        self.coordinate(now, out, Coordinator::retry_all);
        let is_member = |device: &DeviceId| self.view().member(*device).is_some();
        let members: Vec<_> = self.links.devices().filter(is_member).collect();
        members.into_iter().for_each(|device| self.send_heartbeat(now, device, out));
    }

    /// Creates links to devices that are new in the array. Links to devices that have left it are dropped as soon as
    /// nothing in this host needs them.
    fn follow_members(&mut self) {
        let members: BTreeSet<_> =
            self.membership().expect("just adopted").members.iter().map(|member| member.device).collect();
        let mut needed = members.clone();
        needed.extend(self.volumes.values().flat_map(|volume| volume.holders()));
        needed.extend(self.coordinator.devices());
        needed.extend(self.requests.devices());
        self.links.follow(&members, &needed);
    }

    /// A task that no job waits for any more is not sent again: it may be about a volume as it was in an earlier epoch.
    fn drop_unawaited_tasks(&mut self) {
        let Host { requests, links, healing, .. } = self;
        requests.tasks.drop_unawaited(links, |step| healing.awaits(step));
    }

    /// The set of unavailable devices has changed. Operations that wait for such devices are tried without them, or
    /// fail.
    fn on_unavailable(&mut self, now: Now, out: &mut HostEffects) {
        self.coordinate(now, out, Coordinator::on_unavailable);
        self.heal(now, out, |healing, ctx| healing.on_availability(ctx));
        self.drop_unawaited_tasks();
        self.coordinate(now, out, Coordinator::retry_all);
    }
}
