//! Hosts of a cluster: their generations, and clocks with errors within the options.

use crate::cluster;
use crate::control::context::lease_time;
use crate::prelude::*;
use crate::{Cluster, HostSlot, Role};
use braid_host::HostConfig;

pub(crate) fn new_host(cluster: &mut Cluster, clock: LocalClock) -> NodeId {
    new_host_in(cluster, clock, |host, _| Role::Host(Box::new(host)))
}

/// Starts a new host, perhaps as a part of another machine.
pub(crate) fn new_host_in(
    cluster: &mut Cluster,
    clock: LocalClock,
    role: impl FnOnce(HoldingHost<Host>, Generation) -> Role,
) -> NodeId {
    let generation = take_generation(cluster);
    assert!(cluster.generations.all.insert(generation), "{generation} is given twice");
    let node = NodeId::Host(generation);
    let held = cluster.volumes_on_hold();
    let config = HostConfig {
        generation,
        membership: None,
        devices: cluster.devices(),
        lock_servers: cluster.lock_servers(),
        acquisition: cluster.options.acquisition,
        volumes: cluster.volumes().into_iter().map(|volume| cluster::as_on(cluster, node, volume)).collect(),
        held: held.clone(),
        settings: cluster.options.settings.clone(),
        seed: cluster.rng.next_u64(),
    };
    cluster.world.add(node, role(HoldingHost::new(Host::new(config), held), generation), None, clock);
    cluster.with_control(|control, cx| control.lease_host(cx, generation));
    node
}

/// Starts a host that ends soon, like a command that asks for the state of the array. It uses no volume.
pub(crate) fn add_visitor(cluster: &mut Cluster) -> NodeId {
    let clock = clock(cluster);
    new_host(cluster, clock)
}

pub(crate) fn add_host_in(cluster: &mut Cluster, role: impl FnOnce(HoldingHost<Host>, Generation) -> Role) -> HostSlot {
    let clock = clock(cluster);
    let node = new_host_in(cluster, clock, role);
    cluster.hosts.push(node);
    HostSlot(cluster.hosts.len() - 1)
}

/// A clock that drifts within the options, and was started at any time.
pub(crate) fn clock(cluster: &mut Cluster) -> LocalClock {
    let most = cluster.options.faults.drift_ppm_max;
    let drift = cluster.rng.below(2 * most + 1) as i64 - most as i64;
    LocalClock::exact(Time(cluster.rng.below(1_000_000_000_000))).drifting(drift)
}

/// A generation for a host that starts.
fn take_generation(cluster: &mut Cluster) -> Generation {
    let now = lease_time(cluster.world.now());
    let taken = cluster.with_control(|control, _| control.take_generation(&now));
    taken.inspect(|taken| cluster.generations.last = taken.0).unwrap_or_else(|| fresh_generation(cluster))
}

/// A generation without a lease.
pub(crate) fn fresh_generation(cluster: &mut Cluster) -> Generation {
    let now = lease_time(cluster.world.now());
    if let Some(taken) = cluster.with_control(|control, _| control.take_unleased(&now)) {
        cluster.generations.last = taken.0 - 1;
    }
    cluster.generations.take_next()
}
