//! The part of hosts: each renews its lease, and follows the store. Their machines hold back requests for volumes on hold.

use super::{ControlPlane, Event, Purpose};
use crate::cluster::Cluster;
use crate::role::Role;
use braid_base::{Generation, NodeId};
use braid_control_protocol::{Follower, HostStep, Version};
use braid_host::Host;
use braid_host_leases::{Renewer, RenewerInput, RenewerStep, StopReason};
use std::collections::VecDeque;
use std::time::Duration;

/// How often leases are renewed while the volume is on hold.
const HOLD_HEARTBEAT: Duration = Duration::from_millis(25);
/// The pause before a suspended host is looked at again.
const PAUSE: Duration = Duration::from_millis(20);

pub(super) struct HostPart {
    pub follower: Follower,
    /// It has its lease from the start.
    renewer: Renewer,
    /// The version that is being applied, and the steps that are left.
    applying: Option<(Version, VecDeque<HostStep>)>,
}

impl HostPart {
    /// True if the host has applied this version.
    pub fn has_followed(&self, version: Version) -> bool {
        self.follower.version() >= version && self.applying.is_none()
    }
}

impl Cluster {
    /// Gives a host that has just started a lease, and has it follow the store.
    pub(crate) fn lease_host(&mut self, node: NodeId) {
        let NodeId::Host(host) = node else { return };
        self.with_control(|cluster, control| {
            // It is created with the volume as it is now.
            let records = control.store.records();
            let follower = Follower::new(control.store.version(), &records);
            let renewer = Renewer::new(cluster.lease_time(), cluster.silence_allowed());
            control.hosts.insert(host, HostPart { follower, renewer, applying: None });
            cluster.schedule(control, Duration::ZERO, Event::Tick(host));
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

    /// A host renews its lease, and reads the store.
    pub(super) fn tick(&mut self, control: &mut ControlPlane, host: Generation) {
        let node = NodeId::Host(host);
        let Some(part) = control.hosts.get_mut(&host) else { return };
        if self.world.machine(node).is_none() {
            control.hosts.remove(&host);
            return;
        }
        let is_held = !part.follower.held().is_empty();
        let is_busy = part.applying.is_some();
        let heartbeat = if is_held { HOLD_HEARTBEAT } else { self.control_lease() / 8 };
        self.schedule(control, heartbeat, Event::Tick(host));
        if self.world.is_stalled(node) {
            return;
        }
        if self.is_fenced(host) {
            // Devices refuse it.
            return self.keep_lease(control, host, RenewerInput::Wake { is_fenced: true });
        }
        if is_busy {
            return self.renew(control, host, None);
        }
        if control.faults.as_ref().is_some_and(|faults| control.rng.below(1000) < faults.store_faults) {
            return;
        }
        let (version, records) = (control.store.version(), control.store.records());
        let part = control.hosts.get_mut(&host).expect("it is there");
        let steps = part.follower.follow(version, &records);
        part.applying = Some((version, steps.into()));
        self.apply(control, host);
        self.settle_sometimes(control, host);
    }

    /// Performs the next step, or confirms.
    fn apply(&mut self, control: &mut ControlPlane, host: Generation) {
        let Some(slot) = self.slot_of(host) else { return };
        let node = self.node(slot);
        let part = control.hosts.get_mut(&host).expect("a host that applies a version has a part");
        let (version, steps) = part.applying.as_mut().expect("it applies a version");
        let Some(step) = steps.pop_front() else {
            let version = *version;
            part.applying = None;
            let machine = self.world.machine(node).and_then(|role| role.host());
            let is_idle = |volume| machine.is_none_or(|machine| machine.is_idle_for(volume));
            let confirmed = part.follower.confirmable(version, is_idle);
            return self.renew(control, host, confirmed);
        };
        let op = self.ask(slot, step.request());
        control.asked.insert(op, Purpose::Step(host, step));
    }

    pub(super) fn on_step_done(&mut self, control: &mut ControlPlane, host: Generation, step: &HostStep) {
        if let Some(part) = control.hosts.get_mut(&host) {
            part.follower.did(step);
            self.apply(control, host);
        }
    }

    /// Renews the lease. While the host applies a version, it renews more than once before it hears an answer.
    fn renew(&mut self, control: &mut ControlPlane, host: Generation, confirmed: Option<Version>) {
        let Some(part) = control.hosts.get(&host) else { return };
        if part.renewer.is_renewing() {
            return self.send_renewal(control, host, confirmed);
        }
        let is_fenced = self.is_fenced(host);
        self.keep_lease(control, host, RenewerInput::Wake { is_fenced });
        if !is_fenced {
            self.send_renewal(control, host, confirmed);
        }
    }

    /// A host hears of a renewal, or does not.
    pub(super) fn on_renewal_answer(&mut self, control: &mut ControlPlane, host: Generation, input: RenewerInput) {
        let Some(part) = control.hosts.get(&host).filter(|_| self.slot_of(host).is_some()) else { return };
        if self.world.is_stalled(NodeId::Host(host)) {
            return self.schedule(control, PAUSE, Event::RenewalAnswer { host, input });
        }
        if part.renewer.is_renewing() || input == RenewerInput::Refused {
            self.keep_lease(control, host, input);
        }
    }

    fn keep_lease(&mut self, control: &mut ControlPlane, host: Generation, input: RenewerInput) {
        let now = self.lease_time();
        let part = control.hosts.get_mut(&host).expect("a host that keeps a lease has a part");
        if let RenewerStep::Stop(reason) = part.renewer.step(&now, input) {
            control.count(match reason {
                StopReason::Fenced | StopReason::LeaseLost => "host lost its lease",
                StopReason::Unrenewed => "host could not renew its lease",
            });
            let node = NodeId::Host(host);
            control.hosts.remove(&host);
            control.killed.push(node);
            self.crash(node);
        }
    }

    fn is_fenced(&self, host: Generation) -> bool {
        self.world.machine(NodeId::Host(host)).and_then(Role::host).is_some_and(Host::is_fenced)
    }
}
