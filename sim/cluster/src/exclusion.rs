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
    let held: Vec<_> = cluster.slots().filter_map(|slot| held_locks(cluster, cluster.node(slot))).collect();
    check_held(cluster, &held)
}

/// The same for these locks of hosts.
pub(crate) fn check_held(cluster: &Cluster, held: &[(Generation, Vec<(ObjectId, LockExtent)>)]) -> Result<(), Failed> {
    for (number, (host, locks)) in held.iter().enumerate() {
        for (other, theirs) in &held[number + 1..] {
            let conflict = locks.iter().find_map(|lock| Some((lock, theirs.iter().find(|its| conflict(lock, its))?)));
            if let Some(((_, lock), (_, its))) = conflict
                && is_served(&cluster.world, &cluster.devices(), *host)
                && is_served(&cluster.world, &cluster.devices(), *other)
            {
                return failed("exclusion", format!("{host} holds {lock:?}, and {other} holds {its:?}"));
            }
        }
    }
    Ok(())
}

fn held_locks(cluster: &Cluster, node: NodeId) -> Option<(Generation, Vec<(ObjectId, LockExtent)>)> {
    match (node, cluster.world.machine(node)) {
        (NodeId::Host(host), Some(role)) => Some((host, role.host()?.held_locks().collect())),
        _ => None,
    }
}

fn conflict((object, lock): &(ObjectId, LockExtent), (other, its): &(ObjectId, LockExtent)) -> bool {
    object == other && lock.position == its.position && lock.mode.conflicts(its.mode) && lock.range.overlaps(its.range)
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
