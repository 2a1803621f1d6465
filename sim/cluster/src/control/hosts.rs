//! The control part of hosts is that of real arrays (`braid_control_protocol::HostControl`); only the ways to the store and to the host's
//! machine are simulated.

use super::administrators::RETURN_MAX;
use super::{ControlPlane, Event, Purpose};
use crate::cluster::Cluster;
use crate::role::Role;
use braid_base::{Generation, NodeId};
use braid_control_protocol::{HostAction, HostControl, HostEvent, HostStep};
use braid_host::Host;
use braid_host_leases::{Renewer, StopReason};
use std::time::Duration;

/// The pause before a suspended host is looked at again.
const PAUSE: Duration = Duration::from_millis(20);
/// A host that has not performed a step for so long counts as unanswered.
const UNANSWERED: Duration = Duration::from_millis(500);

impl Cluster {
    /// Gives a host that has just started a lease, and has it follow the store.
    pub(crate) fn lease_host(&mut self, node: NodeId) {
        let NodeId::Host(host) = node else { return };
        self.with_control(|cluster, control| {
            // It is created with the volume as it is now.
            let (version, records) = (control.store.version(), control.store.records());
            let renewer = Renewer::new(cluster.lease_time(), cluster.silence_allowed());
            let part = HostControl::new(version, &records, renewer, cluster.control_lease() / 8);
            control.hosts.retain(|host, _| cluster.slot_of(*host).is_some());
            control.hosts.insert(host, part);
            cluster.schedule(control, Duration::ZERO, Event::Host(host, HostEvent::Wake));
        });
    }

    /// A host has disconnected gracefully.
    pub(crate) fn release_lease(&mut self, host: Generation) {
        self.with_control(|cluster, control| {
            // Where that can't be written, the lease stays until the host counts as silent.
            if !control.is_unwritable(cluster.time()) {
                control.store.leases.release(host);
            }
        });
    }

    /// Something happens to the control part of a host.
    pub(super) fn on_host_event(&mut self, control: &mut ControlPlane, host: Generation, event: HostEvent) {
        let node = NodeId::Host(host);
        if self.slot_of(host).is_none() {
            control.hosts.remove(&host);
        }
        let now = self.lease_time();
        let Some(part) = control.hosts.get_mut(&host) else { return };
        if self.world.is_stalled(node) {
            return self.schedule(control, PAUSE, Event::Host(host, event));
        }
        let machine = self.world.machine(node).and_then(Role::host);
        let is_fenced = event == HostEvent::Wake && machine.is_some_and(Host::is_fenced);
        let event = if is_fenced { HostEvent::Fenced } else { event };
        match part.step(&now, event, |volume| machine.is_none_or(|machine| machine.is_idle_for(volume))) {
            HostAction::Read => self.read_for_host(control, host),
            HostAction::Perform(step) => self.perform(control, host, &step),
            HostAction::Renew { confirmed } => self.send_renewal(control, host, confirmed),
            HostAction::Wait(span) => self.schedule(control, span, Event::Host(host, HostEvent::Wake)),
            HostAction::Stop(reason) => {
                control.count(match reason {
                    StopReason::Fenced | StopReason::LeaseLost => "host lost its lease",
                    StopReason::Unrenewed => "host could not renew its lease",
                });
                control.hosts.remove(&host);
                self.files.disturb(self.time().after(RETURN_MAX));
                control.killed.push(node);
                self.crash(node);
            }
        }
    }

    /// A host reads the store. It may be suspended before it sees what it has read.
    fn read_for_host(&mut self, control: &mut ControlPlane, host: Generation) {
        let event = match control.draws_store_fault() {
            true => HostEvent::Unread,
            false => HostEvent::Read { version: control.store.version(), records: control.store.records() },
        };
        let way = control.way();
        self.schedule(control, way, Event::Host(host, event));
        self.settle_sometimes(control, host);
    }

    /// Has a host perform a step. In some cases it does not hear of it, or its answer is lost.
    fn perform(&mut self, control: &mut ControlPlane, host: Generation, step: &HostStep) {
        let slot = self.slot_of(host).expect("it is up");
        let is_lost = control.draws_store_fault();
        if is_lost {
            control.count("steps of hosts unanswered");
            self.schedule(control, UNANSWERED, Event::Host(host, HostEvent::Lost));
        }
        if !is_lost || control.rng.chance(1, 2) {
            let op = self.ask(slot, step.request());
            control.asked.extend((!is_lost).then_some((op, Purpose::Step(host))));
        }
    }
}
