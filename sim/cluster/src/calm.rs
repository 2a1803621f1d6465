//! Calm runs have one fault at a time, and begin the next fault only when no effect of the last one remains. So every operation must
//! succeed, except for the pauses that are promised ([`crate::availability`]).

use crate::availability::Cause;
use crate::fault_events::FaultEvent;
use crate::options::{Choices, Options};
use crate::swarm::Run;
use braid_base::{LockServerId, NodeId};
use braid_ordering::Atomicity;
use braid_world::{CrashPoint, CutShape, Fault, FaultKind, NetworkOptions};
use std::time::Duration;

/// The kinds of faults of calm runs.
const KINDS: [FaultKind; 8] = [
    FaultKind::HostCrash,
    FaultKind::DeviceCrash,
    FaultKind::ServerCrash,
    FaultKind::Flap,
    FaultKind::Stall,
    FaultKind::Cut,
    FaultKind::ClockStep,
    FaultKind::Chore,
];
/// How often the run checks whether effects of the last fault remain.
const LOOK_EVERY: Duration = Duration::from_millis(100);

impl Options {
    /// Makes some seeds calm; if the choices name this kind, all seeds that can be calm.
    pub(crate) fn calmed(mut self, choices: &Choices) -> Options {
        let may = choices.kinds().contains(&FaultKind::Calm)
            && self.atomicity == Atomicity::Implied
            && self.objects.is_none()
            && self.attribute_volume.is_none()
            && !self.moves;
        let named = choices.only.contains(&FaultKind::Calm) || choices.also.contains(&FaultKind::Calm);
        let rng = &mut self.source("calm");
        if !may || !(rng.below(8) == 0 || named) {
            return self;
        }
        let kinds = choices.kinds();
        self.faults.weights = KINDS.into_iter().filter(|kind| kinds.contains(kind)).map(|kind| (kind, 1)).collect();
        if let Some(weight) = self.faults.weights.get_mut(&FaultKind::DeviceCrash) {
            *weight = 3;
        }
        self.faults.weights.insert(FaultKind::Calm, 1);
        self.faults.every = Duration::from_millis(rng.between(200, 2_000));
        self.faults.network = NetworkOptions {
            latency_max: self.faults.network.latency_max,
            double: self.faults.network.double,
            in_order: self.faults.network.in_order,
            ..NetworkOptions::clean()
        };
        let lease = self.settings.host_lease;
        self.settings.request_timeout = self.settings.request_timeout.max(8 * lease);
        self.settings.resend_max = (lease / 4).max(Duration::from_millis(50));
        self.settings.resend_min = self.settings.resend_min.min(self.settings.resend_max);
        let swarm = 12 * lease + Duration::from_secs(10);
        let clients = (self.hosts * self.clients) as u32;
        Options {
            swarm,
            // The operations are spread over the whole run.
            think_max: 2 * swarm * clients / self.operations as u32,
            chunks: None,
            ..self
        }
    }
}

impl Run {
    /// Begins the next fault of a calm run, if no effect of the one before remains.
    pub(crate) fn next_calm(&mut self) {
        if !self.is_quiet() {
            return self.plan_fault(LOOK_EVERY, FaultEvent::Next);
        }
        let total: u64 = self.cluster.options.faults.weights.values().sum();
        let mut drawn = self.calm_rng.below(total);
        let weights = self.cluster.options.faults.weights.clone();
        let kind = weights.into_iter().find(|(_, weight)| {
            let here = drawn < *weight;
            drawn = drawn.saturating_sub(*weight);
            here
        });
        let (kind, _) = kind.expect("the kind was drawn from these weights");
        self.calm_fault(kind);
        let pause = self.swarm.pause();
        self.plan_fault(pause, FaultEvent::Next);
    }

    fn calm_fault(&mut self, kind: FaultKind) {
        let devices = self.cluster.devices();
        let device = devices[self.calm_rng.below(devices.len() as u64) as usize];
        let node = NodeId::Device(device);
        let gone = Cause::Device(device);
        match kind {
            FaultKind::DeviceCrash => {
                let count = self.calm_rng.between(1, 12);
                let at = [None, Some(CrashPoint::Write(count)), Some(CrashPoint::Sync(count))];
                let (at, unavailable, reboot) = (at[self.calm_rng.below(3) as usize], self.absence(), self.calm_rng.chance(1, 2));
                self.on_fault_of(Fault::Crash { node, at, unavailable, reboot }, gone);
            }
            FaultKind::Flap => {
                let lease = self.cluster.options.settings.device_lease.as_millis() as u64;
                let mut span = || Duration::from_millis(self.calm_rng.between(1, lease));
                let (down, up) = (span(), span());
                let times = self.calm_rng.between(2, 4) as u32;
                self.on_fault_of(Fault::Flap { node, times, down, up }, gone);
            }
            FaultKind::Stall => {
                let span = self.absence();
                // Then the messages of the whole pause wait for a machine that decides by silence.
                let (node, cause) = if self.calm_rng.chance(1, 2) { self.a_server() } else { (node, gone) };
                self.on_fault_of(Fault::Stall { node, span }, cause);
            }
            FaultKind::Cut => {
                let hosts = self.cluster.slots().map(|slot| self.cluster.node(slot));
                let others: Vec<NodeId> = match self.calm_rng.below(3) {
                    0 => hosts.collect(),
                    1 => vec![NodeId::Monitor],
                    _ => hosts.chain([NodeId::Monitor]).collect(),
                };
                let (there, back) = [(true, true), (true, false), (false, true)][self.calm_rng.below(3) as usize];
                let mut pairs = Vec::new();
                pairs.extend(others.iter().filter(|_| there).map(|other| (node, *other)));
                pairs.extend(others.iter().filter(|_| back).map(|other| (*other, node)));
                let shape = if there && back { CutShape::Node } else { CutShape::NodeOneWay };
                let span = self.absence();
                self.on_fault_of(Fault::Cut { shape, pairs, span }, gone);
            }
            FaultKind::HostCrash => {
                let slot = self.calm_rng.below(self.cluster.slots().count() as u64) as usize;
                let node = self.cluster.node(crate::HostSlot(slot));
                let unavailable = self.absence();
                self.on_fault_of(Fault::Crash { node, at: None, unavailable, reboot: false }, Cause::Host);
            }
            FaultKind::ServerCrash => {
                let (node, cause) = self.a_server();
                let (unavailable, reboot) = (self.absence(), self.calm_rng.chance(1, 2));
                self.on_fault_of(Fault::Crash { node, at: None, unavailable, reboot }, cause);
            }
            FaultKind::ClockStep => {
                let up = self.cluster.world.up();
                let node = up[self.calm_rng.below(up.len() as u64) as usize];
                let by = self.swarm.skew() - self.cluster.world.skew(node);
                self.count_fault("clock step");
                self.cluster.world.step_clock(node, by);
            }
            FaultKind::Chore => {
                let slot = crate::HostSlot(self.calm_rng.below(self.cluster.slots().count() as u64) as usize);
                let node = self.cluster.node(slot);
                if self.cluster.world.machine(node).is_some() {
                    self.on_fault_of(Fault::Scrub { node }, Cause::Other);
                }
            }
            _ => {}
        }
    }

    /// Draws the monitor or a lock server.
    fn a_server(&mut self) -> (NodeId, Cause) {
        let servers = self.cluster.lock_servers();
        match self.calm_rng.below(servers.len() as u64 + 1) {
            0 => (NodeId::Monitor, Cause::Monitor),
            server => (NodeId::LockServer(LockServerId(server as u16 - 1)), Cause::LockServer),
        }
    }

    /// Draws a duration that is shorter than a lease, about a lease, or much longer.
    fn absence(&mut self) -> Duration {
        let lease = self.cluster.options.settings.host_lease.as_millis() as u64;
        let most = [lease / 10, lease / 2, 2 * lease, 4 * lease][self.calm_rng.below(4) as usize];
        Duration::from_millis(self.calm_rng.between(1, most.max(1)))
    }
}
