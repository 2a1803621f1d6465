//! Hosts of a cluster: their generations, and clocks with errors within the options.

use crate::role::Composite;
use crate::{Cluster, HostSlot, Role};
use braid_base::{Generation, NodeId, Time};
use braid_control_protocol::HoldingHost;
use braid_host::{Host, HostConfig};
use braid_world::LocalClock;

impl Cluster {
    pub(crate) fn new_host(&mut self, clock: LocalClock) -> NodeId {
        self.new_host_in(clock, |host| Role::Host(Box::new(host)))
    }

    /// Starts a new host, perhaps as a part of another machine.
    pub(crate) fn new_host_in(&mut self, clock: LocalClock, role: impl FnOnce(HoldingHost<Host>) -> Role) -> NodeId {
        let generation = self.take_generation();
        assert!(self.hosts_ever.insert(generation), "{generation} is given twice");
        let node = NodeId::Host(generation);
        let held = self.volumes_on_hold();
        let config = HostConfig {
            generation,
            membership: None,
            devices: self.devices(),
            lock_servers: self.lock_servers(),
            acquisition: self.options.acquisition,
            volumes: self.volumes().into_iter().map(|volume| self.as_on(node, volume)).collect(),
            held: held.clone(),
            settings: self.options.settings.clone(),
            seed: self.rng.next_u64(),
        };
        self.world.add(node, role(HoldingHost::new(Host::new(config), held)), None, clock);
        self.lease_host(node);
        node
    }

    /// Starts a host that ends soon, like a command that asks for the state of the array. It uses no volume.
    pub fn add_visitor(&mut self) -> NodeId {
        let clock = self.clock();
        self.new_host(clock)
    }

    /// Adds a host that is a part of another machine.
    pub fn add_composite(&mut self, machine: impl FnOnce(HoldingHost<Host>) -> Box<Composite>) -> HostSlot {
        self.add_host_in(|host| Role::Composite(machine(host)))
    }

    pub(crate) fn add_host_in(&mut self, role: impl FnOnce(HoldingHost<Host>) -> Role) -> HostSlot {
        let clock = self.clock();
        let node = self.new_host_in(clock, role);
        self.hosts.push(node);
        HostSlot(self.hosts.len() - 1)
    }

    /// A clock that drifts within the options, and was started at any time.
    pub(crate) fn clock(&mut self) -> LocalClock {
        let most = self.options.faults.drift_ppm_max;
        let drift = self.rng.below(2 * most + 1) as i64 - most as i64;
        LocalClock::exact(Time(self.rng.below(1_000_000_000_000))).drifting(drift)
    }

    /// A generation without a lease.
    pub(crate) fn fresh_generation(&mut self) -> Generation {
        self.take_unleased();
        self.next_generation += 1;
        Generation(self.next_generation - 1)
    }
}
