//! The control part of hosts is that of real arrays (`braid_control_protocol::HostControl`); only the ways to the store and to the host's
//! machine are simulated.

use super::ControlPlane;
use super::context::{Context, Event, Purpose};
use crate::prelude::*;
use braid_control_protocol::{HostAction, HostControl, HostEvent, HostStep};
use braid_host_leases::{Renewer, StopReason};

/// The pause before a suspended host is looked at again.
const PAUSE: Duration = Duration::from_millis(20);
/// A host that has not performed a step for so long counts as unanswered.
const UNANSWERED: Duration = Duration::from_millis(500);

impl ControlPlane {
    /// Gives a host that has just started a lease, and has it follow the store.
    pub(crate) fn lease_host(&mut self, cx: &mut Context, host: Generation) {
        // It is created with the volume as it is now.
        let (version, records) = (self.store.version(), self.store.records());
        let renewer = Renewer::new(cx.lease_time(), cx.silence_allowed);
        let part = HostControl::new(version, &records, renewer, cx.heartbeat());
        self.hosts.retain(|host, _| cx.is_up(*host));
        self.hosts.insert(host, part);
        cx.later(Duration::ZERO, Event::Host(host, HostEvent::Wake));
    }

    /// A host has disconnected gracefully.
    pub(crate) fn release_lease(&mut self, cx: &Context, host: Generation) {
        // Where that can't be written, the lease stays until the host counts as silent.
        if !self.is_unwritable(cx.now()) {
            self.store.leases.release(host);
        }
    }

    /// Something happens to the control part of a host.
    pub(super) fn on_host_event(&mut self, cx: &mut Context, host: Generation, event: HostEvent) {
        if !cx.is_up(host) {
            self.hosts.remove(&host);
        }
        let Some(part) = self.hosts.get_mut(&host) else { return };
        if cx.is_stalled(host) {
            return cx.later(PAUSE, Event::Host(host, event));
        }
        let machine = cx.host(host);
        let is_fenced = event == HostEvent::Wake && machine.is_some_and(Host::is_fenced);
        let event = if is_fenced { HostEvent::Fenced } else { event };
        match part.step(&cx.lease_time(), event, |volume| machine.is_none_or(|machine| machine.is_idle_for(volume))) {
            HostAction::Read => self.read_for_host(cx, host),
            HostAction::Perform(step) => self.perform(cx, host, &step),
            HostAction::Renew { confirmed } => self.send_renewal(cx, host, confirmed),
            HostAction::Wait(span) => cx.later(span, Event::Host(host, HostEvent::Wake)),
            HostAction::Stop(reason) => {
                self.count(match reason {
                    StopReason::Fenced | StopReason::LeaseLost => "host lost its lease",
                    StopReason::Unrenewed => "host could not renew its lease",
                });
                self.hosts.remove(&host);
                cx.end(host);
            }
        }
    }

    /// A host reads the store. It may be suspended before it sees what it has read.
    fn read_for_host(&mut self, cx: &mut Context, host: Generation) {
        let event = match self.draws_store_fault() {
            true => HostEvent::Unread,
            false => HostEvent::Read { version: self.store.version(), records: self.store.records() },
        };
        cx.later(self.way(), Event::Host(host, event));
        self.settle_sometimes(cx, host);
    }

    /// Has a host perform a step. In some cases it does not hear of it, or its answer is lost.
    fn perform(&mut self, cx: &mut Context, host: Generation, step: &HostStep) {
        let is_lost = self.draws_store_fault();
        if is_lost {
            self.count("steps of hosts unanswered");
            cx.later(UNANSWERED, Event::Host(host, HostEvent::Lost));
        }
        if !is_lost || self.rng.chance(1, 2) {
            cx.ask(host, step.request(), (!is_lost).then_some(Purpose::Step(host)));
        }
    }
}
