//! Checks that hosts leave no state behind: those that have left by themselves, and others once they are fenced.

use crate::cluster::{Cluster, DisconnectedHost, Failed, HostSlot, failed};
use crate::prelude::*;
use braid_device::TransactionView;

/// Counters of a device for state kept for hosts, or missing blocks. They must be zero at rest.
const KEPT: [&str; 4] = ["answers_kept", "commits_remembered", "intents_undecided", "blocks_absent"];

pub(crate) fn living_slots(cluster: &Cluster) -> Vec<HostSlot> {
    cluster.slots().filter(|slot| cluster.world.is_up(cluster.node(*slot))).collect()
}

pub(crate) fn living(cluster: &Cluster) -> BTreeSet<Generation> {
    living_slots(cluster).into_iter().map(|slot| cluster.generation(slot)).collect()
}

/// Checks that devices keep only state that living hosts account for; the living hosts have no operation in progress. Blocks that
/// devices missed may be on record only for devices that have died for good, until they have new disks.
pub(crate) fn check_leaks(cluster: &Cluster) -> Result<(), Failed> {
    let living = living(cluster);
    for device in cluster.devices().into_iter().filter(|device| !cluster.device_notes.dead.contains(device)) {
        let Some(machine) = cluster.device(device) else {
            return failed("device-down", format!("{device} is not up"));
        };
        if let Some(transaction) = machine.transactions().next() {
            return failed("left-transaction", format!("{device} still keeps {transaction:?}"));
        }
        if let Some(host) = machine.sessions().find(|host| !living.contains(host)) {
            return failed("left-session", format!("{device} still keeps the session of {host}"));
        }
        if machine.orphans() > 0 {
            return failed("left-orphan", format!("{device} still has {} orphans", machine.orphans()));
        }
        for other in cluster.devices().into_iter().filter(|other| !cluster.device_notes.dead.contains(other)) {
            for volume in cluster.volumes() {
                if let Some(missed) = machine.store().missed(other, volume.id.object(), 0).0.first() {
                    return failed("left-missed", format!("{device} still has on record that {other} misses {missed}"));
                }
            }
        }
        for (name, count) in machine.store().counters() {
            if name == "extents_missed" && count > 0 && cluster.device_notes.dead.is_empty() {
                return failed("left-missed", format!("{device} still has {count} extents on record as missed"));
            }
            if count > 0 && KEPT.contains(&name) {
                return failed("left-in-store", format!("{name} of {device} is {count}"));
            }
        }
    }
    Ok(())
}

/// Checks that no device keeps a transaction of a host that disconnected gracefully, even if the host was not fenced. There are
/// two exceptions. A device may have restarted since the host was told to disconnect, with a journal that does not contain yet
/// that all transactions of the host are over. And a device that was out was not told: for all that it knows when it returns, the
/// host was silent, and sends a write again whose commit it must then hear of. It keeps the transaction until the host is fenced.
pub(crate) fn check_left(cluster: &Cluster) -> Result<(), Failed> {
    for device in cluster.devices() {
        let Some(machine) = cluster.device(device) else { continue };
        let started = cluster.device_notes.started.get(&device).copied().unwrap_or(Time(0));
        let present_since =
            cluster.membership().and_then(|membership| membership.member(device)).map(|member| member.since);
        let was_told = |host: &DisconnectedHost| present_since.is_some_and(|since| since <= host.epoch);
        let is_left = |transaction: &TransactionView| {
            let disconnected = cluster.generations.disconnected.get(&transaction.id.host);
            disconnected.is_some_and(|host| host.asked > started && was_told(host))
        };
        if let Some(transaction) = machine.transactions().find(is_left) {
            let details = format!("{device} keeps what belongs to a host that has left: {transaction:?}");
            return failed("left-behind", details);
        }
    }
    Ok(())
}
