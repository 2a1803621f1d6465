//! Hosts that end in good order, and what those that have ended leave behind: nothing, once the dead among them are kept out.

use crate::cluster::{Cluster, Failed, HostSlot};
use crate::fault_events::FaultEvent;
use crate::role::Role;
use crate::swarm::Run;
use braid_base::{DeviceId, Epoch, Generation, NodeId, Rng, Time};
use braid_device::TransactionView;
use braid_machine::{HostRequest, OpId};
use std::collections::BTreeSet;
use std::time::Duration;

/// A host that has left sooner than this was not stopped by its time limit: it has heard from all whom it had told.
const CONFIRMED_WITHIN: Duration = Duration::from_millis(900);
/// What a device counts of what it keeps for hosts, or lacks itself: nothing, at rest.
const KEPT: [&str; 4] = ["answers_kept", "commits_remembered", "intents_undecided", "blocks_absent"];

/// A host that has ended in good order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left {
    /// When it was asked to.
    asked: Time,
    /// By which it lived in the end: a device that was out in it was told nothing.
    epoch: Epoch,
}

impl Run {
    /// Hosts begin to leave, if they do so in this run.
    pub(crate) fn plan_leaving(&mut self) {
        if let Some(mean) = self.cluster.options.leaves {
            let pause = Duration::from_nanos(self.leave_rng.below(2 * mean.as_nanos() as u64) + 1);
            self.plan_fault(pause, FaultEvent::Leave);
        }
    }

    /// One host leaves; or the control plane has all kept out that have ended.
    pub(crate) fn leave_and_plan_next(&mut self) {
        let staying = self.staying_slots();
        if self.leave_rng.chance(1, 4) {
            self.sweep();
        } else if let Some(slot) = pick(&mut self.leave_rng, &staying) {
            self.count_fault("host leaves");
            let (node, now) = (self.cluster.node(slot), self.cluster.world.now());
            let op = self.cluster.ask(slot, HostRequest::Disconnect);
            self.leaving.insert(op, (node, now));
        }
        self.plan_leaving();
    }

    /// Whoever may be asked for something: the others are down, or refuse it as they are about to end.
    pub(crate) fn staying_slots(&self) -> Vec<HostSlot> {
        let up = self.cluster.living_slots().into_iter();
        up.filter(|slot| !self.is_leaving(self.cluster.node(*slot))).collect()
    }

    pub(crate) fn is_leaving(&self, node: NodeId) -> bool {
        self.leaving.values().any(|(leaving, _)| *leaving == node)
    }

    /// A host has left: its process ends, and another takes its place.
    pub(crate) fn on_left(&mut self, op: OpId) {
        let Some((node, since)) = self.leaving.remove(&op) else { return };
        let (Some(slot), NodeId::Host(generation)) = (self.cluster.slot(node), node) else { return };
        let took = self.cluster.world.now().since(since);
        let epoch = match self.cluster.world.machine(node) {
            Some(Role::Host(host)) => host.membership().map_or(Epoch(0), |membership| membership.epoch),
            _ => Epoch(0),
        };
        if took < CONFIRMED_WITHIN && !self.cluster.fenced().contains(&slot) {
            self.cluster.left.insert(generation, Left { asked: since, epoch });
        }
        self.crash(node);
        self.replace_if_down(slot);
        self.wake_clients(slot);
    }

    /// The control plane has all kept out that have ended, by way of any host.
    fn sweep(&mut self) {
        let Some(slot) = self.staying_slots().first().copied() else { return };
        let except = self.cluster.living();
        let below = Generation(self.cluster.next_generation);
        self.count_fault("ended hosts fenced");
        let op = self.cluster.ask(slot, HostRequest::Fence { below, except: except.into_iter().collect() });
        self.chores.insert(op);
    }

    /// True if all hosts that have ended are kept out; otherwise the control plane sees to that.
    pub(crate) fn is_swept(&mut self) -> bool {
        let Some(membership) = self.cluster.membership() else { return false };
        let living = self.cluster.living();
        let swept = self.cluster.hosts_ever.difference(&living).all(|host| membership.fence.refuses(*host));
        let asked = self.cluster.asked().next().is_some();
        if !swept && !asked {
            self.sweep();
        }
        swept
    }
}

impl Cluster {
    fn living_slots(&self) -> Vec<HostSlot> {
        self.slots().filter(|slot| self.world.machine(self.node(*slot)).is_some()).collect()
    }

    fn living(&self) -> BTreeSet<Generation> {
        let generation = |slot: HostSlot| match self.node(slot) {
            NodeId::Host(generation) => generation,
            _ => unreachable!("host slots hold hosts"),
        };
        self.living_slots().into_iter().map(generation).collect()
    }

    /// Devices keep nothing but what living hosts account for; these have nothing under way. What is on record as missed is so by
    /// devices that have died for good, until they have new disks.
    pub(crate) fn check_leaks(&self) -> Result<(), Failed> {
        let failed = |check, details| Err(Failed { check, details });
        let living = self.living();
        for device in self.devices().into_iter().filter(|device| !self.dead.contains(device)) {
            let Some(Role::Device(machine)) = self.world.machine(NodeId::Device(device)) else {
                return failed("device-down", format!("{device} is not up"));
            };
            if let Some(transaction) = machine.transactions().next() {
                return failed("left-transaction", format!("{device} still keeps {transaction:?}"));
            }
            if let Some(host) = machine.sessions().find(|host| !living.contains(host)) {
                return failed("left-session", format!("{device} still keeps {host} in mind"));
            }
            if machine.orphans() > 0 {
                return failed("left-orphan", format!("{device} still has {} orphans", machine.orphans()));
            }
            for other in self.devices().into_iter().filter(|other| !self.dead.contains(other)) {
                for volume in self.volumes() {
                    if let Some(missed) = machine.store().missed(other, volume.id.object(), 0).0.first() {
                        return failed("left-missed", format!("{device} still keeps that {other} misses {missed}"));
                    }
                }
            }
            for (name, count) in machine.store().counters() {
                if name == "extents_missed" && count > 0 && self.dead.is_empty() {
                    return failed("left-missed", format!("{device} still keeps {count} extents as missed"));
                }
                if count > 0 && KEPT.contains(&name) {
                    return failed("left-in-store", format!("{name} of {device} is {count}"));
                }
            }
        }
        Ok(())
    }

    /// Of hosts that have ended in good order no device keeps a transaction, whoever is kept out, but for two kinds. A device may have
    /// restarted since the host was asked to end, with a journal that does not say yet that all of that host is over. And one that was out
    /// was told nothing: when it is back, it keeps what it alone took part in.
    pub(crate) fn check_left(&self) -> Result<(), Failed> {
        for device in self.devices() {
            let Some(Role::Device(machine)) = self.world.machine(NodeId::Device(device)) else { continue };
            let started = self.started.get(&device).copied().unwrap_or(Time(0));
            let is_left = |transaction: &TransactionView| {
                let was_out = |left: &Left| self.present_since(device).is_none_or(|since| since > left.epoch);
                let has_left = self.left.get(&transaction.id.host).filter(|left| left.asked > started);
                has_left.is_some_and(|left| transaction.participants.len() > 1 || !was_out(left))
            };
            if let Some(transaction) = machine.transactions().find(is_left) {
                let details = format!("{device} keeps what belongs to a host that has left: {transaction:?}");
                return Err(Failed { check: "left-behind", details });
            }
        }
        Ok(())
    }

    /// Since when a device has been in the array or returning, without a break.
    fn present_since(&self, device: DeviceId) -> Option<Epoch> {
        self.membership().and_then(|membership| membership.member(device)).map(|member| member.since)
    }
}

fn pick(rng: &mut Rng, among: &[HostSlot]) -> Option<HostSlot> {
    (!among.is_empty()).then(|| among[rng.below(among.len() as u64) as usize])
}
