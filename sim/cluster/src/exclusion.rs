//! Checks mutual exclusion at the hosts: no two hosts may hold conflicting locks of a lock server.
//!
//! A host that was silent may continue without knowing that it lost its locks. This does no harm once every device refuses it.

use crate::cluster::{Cluster, Failed, failed};
use crate::prelude::*;
use crate::role::is_served;
use braid_wire::LockExtent;

/// So many of the hosts that were taken over from last are looked for at each moment.
const WATCHED: usize = 4;

/// At any moment of any run, no two hosts that devices still serve hold conflicting locks.
pub(crate) fn check_exclusion(cluster: &Cluster) -> Result<(), Failed> {
    let at_servers =
        |host: &Host| host.locks().held().map(|(server, object, extent)| ((server, object), extent)).collect();
    check_held(cluster, &of_hosts(cluster, at_servers))
}

/// Something of each host that is in a slot.
pub(crate) fn of_hosts<T>(cluster: &Cluster, of: impl Fn(&Host) -> T) -> Vec<(Generation, T)> {
    let of_node = |node: &NodeId| match (*node, cluster.world.machine(*node)) {
        (NodeId::Host(host), Some(role)) => Some((host, of(role.host()?))),
        _ => None,
    };
    cluster.hosts.iter().filter_map(of_node).collect()
}

/// The same for these locks of hosts, each with the place where it excludes others.
pub(crate) fn check_held<Place: PartialEq + fmt::Debug>(
    cluster: &Cluster,
    held: &[(Generation, Vec<(Place, LockExtent)>)],
) -> Result<(), Failed> {
    let devices = cluster.devices();
    check_held_by(held, |host| is_served(&cluster.world, &devices, host))
}

/// The same for the hosts that count.
pub(crate) fn check_held_by<Place: PartialEq + fmt::Debug>(
    held: &[(Generation, Vec<(Place, LockExtent)>)],
    counts: impl Fn(Generation) -> bool,
) -> Result<(), Failed> {
    for (number, (host, locks)) in held.iter().enumerate() {
        for (other, theirs) in &held[number + 1..] {
            let conflict = locks.iter().find_map(|lock| Some((lock, theirs.iter().find(|its| conflict(lock, its))?)));
            if let Some(((_, lock), (_, its))) = conflict
                && counts(*host)
                && counts(*other)
            {
                return failed("exclusion", format!("{host} holds {lock:?}, and {other} holds {its:?}"));
            }
        }
    }
    Ok(())
}

fn conflict<Place: PartialEq>((place, lock): &(Place, LockExtent), (other, its): &(Place, LockExtent)) -> bool {
    place == other && lock.conflicts(its)
}

/// At any moment, no device that serves would execute a request of a host that was taken over from.
pub(crate) fn check_taken_over(cluster: &Cluster) -> Result<(), Failed> {
    for (host, _) in cluster.ownership.taken_over.iter().rev().take(WATCHED) {
        if is_served(&cluster.world, &cluster.devices(), *host) {
            return failed("taken-over-and-served", format!("{host} was taken over from, and a device serves it"));
        }
    }
    Ok(())
}
