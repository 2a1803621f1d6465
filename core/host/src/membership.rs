//! Who is in the array, as this host knows it, and what it does when that changes (`docs/membership.md`).

use crate::host::Host;
use braid_base::{DeviceId, Generation, MemberState, Membership, Now};
use braid_machine::{Effects, HostError, HostSuccess, OpId};
use braid_membership::client::{Ctx, Event, FenceRequest, MembershipView, Persistence, Report};
use braid_transactions::Coordinator;
use braid_wire::{Administration, MonitorAnswer};
use std::collections::BTreeSet;
use std::time::Duration;

/// A device that may not have adopted the epoch is asked again so soon.
const REPORT_AGAIN_AFTER: Duration = Duration::from_millis(20);
/// A device that has not been heard for so many heartbeats is reported to the monitor.
const HEARTBEATS_MISSED: u32 = 2;

impl Host {
    /// The membership that it lives by, once it has heard of one.
    pub fn membership(&self) -> Option<&Membership> {
        self.monitor.view().membership()
    }

    /// The membership that it lives by, and which devices are unavailable.
    pub(crate) fn view(&self) -> &MembershipView {
        self.monitor.view()
    }

    /// Reports to the monitor that this host is there, and which devices are not.
    fn report(&mut self, now: Now, out: &mut Effects) {
        let settings = &self.config.settings;
        let patience = settings.heartbeat * HEARTBEATS_MISSED;
        // All are asked whether they are there, those that are out as well: nobody lets in one that hosts can't reach.
        let heard = |device: &DeviceId| self.links.last_heard(*device).or(self.view().began());
        let silent = |device: &DeviceId| heard(device).is_some_and(|heard| now.time.since(heard) > patience);
        let report = Report {
            silent: self.links.devices().filter(silent).collect(),
            stamps: self.coordinator.highest_accepted(),
            healing: self.healing.progress().collect(),
            caught_up: self.healing.recovered().collect(),
            ..Report::default()
        };
        self.monitor.report(&mut Ctx { now, settings: &self.config.settings, out }, report);
    }

    /// There is something to tell the monitor at once.
    pub(crate) fn report_at_once(&mut self, now: Now, out: &mut Effects) {
        self.monitor.put_off_report(&Ctx { now, settings: &self.config.settings, out });
        self.report(now, out);
    }

    /// Somebody lives by a later epoch: so there is news.
    pub(crate) fn ask_for_news(&mut self, now: Now, out: &mut Effects) {
        if self.monitor.seeks_news(now.time) {
            self.report(now, out);
        }
    }

    /// A front end wants hosts kept out.
    pub(crate) fn start_fence(
        &mut self,
        now: Now,
        op: OpId,
        below: Generation,
        except: Vec<Generation>,
        out: &mut Effects,
    ) {
        if !self.monitor.has_monitor() {
            return out.reply(op, Err(HostError::NoMonitor));
        }
        let (ticket, request) = (self.links.take_sequence(), FenceRequest { below, except, also: Vec::new() });
        let cx = &mut Ctx { now, settings: &self.config.settings, out };
        self.monitor.fence(cx, ticket, op.0, request, Persistence::UntilExpired);
    }

    /// A front end wants something changed that is on the monitor's record.
    pub(crate) fn start_administration(&mut self, now: Now, op: OpId, request: Administration, out: &mut Effects) {
        if !self.monitor.has_monitor() {
            return out.reply(op, Err(HostError::NoMonitor));
        }
        let ticket = self.links.take_sequence();
        self.monitor.administer(&mut Ctx { now, settings: &self.config.settings, out }, ticket, op.0, request);
    }

    pub(crate) fn on_monitor_timer(&mut self, now: Now, out: &mut Effects) {
        if let Some(event) = self.monitor.wake(&mut Ctx { now, settings: &self.config.settings, out }) {
            self.on_monitor_event(now, event, out);
        }
    }

    pub(crate) fn on_monitor(&mut self, now: Now, answer: MonitorAnswer, out: &mut Effects) {
        self.monitor.on_answer(now.time, answer);
        while let Some(event) = self.monitor.next_event(&Ctx { now, settings: &self.config.settings, out }) {
            self.on_monitor_event(now, event, out);
        }
    }

    fn on_monitor_event(&mut self, now: Now, event: Event, out: &mut Effects) {
        match event {
            Event::NewView { before } => self.on_new_view(now, before, out),
            Event::Unavailable => self.on_unavailable(now, out),
            Event::ReportDue => self.report(now, out),
            Event::Fenced { asker, .. } => out.reply(OpId(asker), Ok(HostSuccess::Done)),
            Event::Administered { asker, result } => {
                let outcome = result.map(|()| HostSuccess::Done).map_err(HostError::AdminError);
                out.reply(OpId(asker), outcome);
            }
            Event::Expired { asker, waited } => out.reply(OpId(asker), Err(HostError::MonitorSilent { waited })),
            Event::Ignored(why) => out.ignore(why),
        }
    }

    /// A device lives by an earlier epoch, and so took nothing of what it was sent in this one. It is asked again soon, while the epoch is
    /// new: what it did not take need not wait until it is sent again anyhow.
    pub(crate) fn await_adoption(&mut self, now: Now, device: DeviceId, out: &mut Effects) {
        let is_new = now.time.since(self.view().since()) <= self.config.settings.resend_max;
        if is_new && self.view().state(device).is_some_and(|member_state| member_state != MemberState::Out) {
            let (_, links, mut ctx) = self.requests(now, out);
            links.await_adoption(&ctx.outbound(), device, REPORT_AGAIN_AFTER);
        }
    }

    /// A device that was behind has taken over the epoch: now it takes what waits for it.
    pub(crate) fn on_adoption(&mut self, now: Now, device: DeviceId) {
        self.coordinator.on_adoption(now, device);
        self.requests.hurry(now, |asked| asked == device);
    }

    /// Another epoch begins.
    fn on_new_view(&mut self, now: Now, before: Option<Membership>, out: &mut Effects) {
        self.counters.epochs += 1;
        let membership = self.membership().expect("just adopted");
        if membership.fence.refuses(self.config.generation) {
            return self.on_fenced(now, out);
        }
        let same = before.is_some_and(|before| before.has_same_devices(membership));
        self.coordinate(now, out, |coordinator, ctx| coordinator.on_epoch(ctx, same));
        self.follow_members();
        self.requests.hurry(now, |_| true);
        self.heal(now, out, |healing, ctx| healing.on_membership(ctx));
        self.coordinate(now, out, Coordinator::retry_all);
        let is_member = |device: &DeviceId| self.view().member(*device).is_some();
        let members: Vec<_> = self.links.devices().filter(is_member).collect();
        members.into_iter().for_each(|device| self.send_heartbeat(now, device, out));
    }

    /// Makes links to devices that are new in the array. Those that are gone from it are forgotten, as soon as nothing here has to do with
    /// them any more.
    fn follow_members(&mut self) {
        let members: BTreeSet<_> =
            self.membership().expect("just taken over").members.iter().map(|member| member.device).collect();
        let mut needed = members.clone();
        needed.extend(self.volumes.values().flat_map(|volume| volume.holders()));
        needed.extend(self.coordinator.devices());
        needed.extend(self.requests.devices());
        self.links.follow(&members, &needed);
    }

    /// Other devices than before are unavailable. What waits for them is tried otherwise, or fails.
    fn on_unavailable(&mut self, now: Now, out: &mut Effects) {
        self.coordinate(now, out, Coordinator::on_unavailable);
        self.heal(now, out, |healing, ctx| healing.on_availability(ctx));
        self.coordinate(now, out, Coordinator::retry_all);
    }
}
