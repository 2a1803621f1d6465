//! Hosts that disconnect gracefully, and the checks that hosts leave no state behind once the dead hosts are fenced.

use crate::activity::{Activity, Draw, Feature, pick};
use crate::cluster::{Cluster, DisconnectedHost, Failed, HostSlot, failed};
use crate::options::Options;
use crate::swarm::Run;
use braid_base::{DeviceId, Epoch, Generation, NodeId, Rng, Time};
use braid_device::TransactionView;
use braid_machine::{ArrayRequest, HostError, OpId};
use braid_wire::Rejection;
use std::collections::BTreeSet;
use std::time::Duration;

/// A host that disconnected sooner than this was not stopped by its time-out: all nodes that it told have confirmed.
const CONFIRMED_WITHIN: Duration = Duration::from_millis(900);
/// Counters of a device for state kept for hosts, or missing blocks. They must be zero at rest.
const KEPT: [&str; 4] = ["answers_kept", "commits_remembered", "intents_undecided", "blocks_absent"];

#[derive(Clone, Debug)]
pub(crate) struct Disconnects;

impl Feature for Disconnects {
    const NAME: &'static str = "disconnect";
    const ONE_IN: u64 = 4;
    const EVERY: Option<[u64; 3]> = Some([100, 500, 2_000]);
    // Where writes take effect on arrival, a host may not end while a device is unavailable. In calm runs no host may be refused for lack
    // of room.
    const NOT_WITH: &'static [&'static str] = &["calm"];

    /// Session tables then have room for little more than the living hosts.
    fn draw(options: &mut Options, draw: &mut Draw) -> Option<Disconnects> {
        options.settings.hosts_max = options.hosts + draw.rng.between(2, 4) as usize;
        options.settings.device_transactions_max = draw.rng.between(24, 512) as usize;
        Some(Disconnects)
    }
}

impl Activity for Disconnects {
    fn start(&mut self, run: &mut Run, _rng: &mut Rng) {
        run.cluster.overhear();
    }

    /// Makes one host disconnect, or has the control plane fence all hosts that have ended.
    fn act(&mut self, run: &mut Run, rng: &mut Rng) {
        let staying = run.staying_slots();
        if rng.chance(1, 4) {
            run.sweep();
        } else if let Some(slot) = pick(rng, &staying) {
            run.count_fault("host disconnects");
            let (node, now) = (run.cluster.node(slot), run.cluster.world.now());
            let op = run.cluster.ask(slot, ArrayRequest::Disconnect);
            run.disconnecting.insert(op, (node, now));
        }
    }

    fn heal(&mut self, run: &mut Run) {
        if !run.cluster.options.activities.has("objects") {
            run.cluster.overhear();
        }
    }

    /// The request was sent to a host that was about to disconnect. Session tables are full until devices have forgotten hosts that have
    /// ended.
    fn excuses(&self, error: &HostError) -> bool {
        use HostError::{Disconnecting, LockServerRejected, Rejected};
        match error {
            Rejected { rejection, .. } | LockServerRejected { rejection, .. } => *rejection == Rejection::TooManyHosts,
            error => matches!(error, Disconnecting),
        }
    }
}

impl Run {
    /// Hosts that accept requests: the others are down, or refuse requests because they disconnect.
    pub(crate) fn staying_slots(&self) -> Vec<HostSlot> {
        let up = self.cluster.living_slots().into_iter();
        let serves = |slot: &HostSlot| self.cluster.files.is_server(*slot);
        up.filter(|slot| !serves(slot) && !self.is_disconnecting(self.cluster.node(*slot))).collect()
    }

    pub(crate) fn is_disconnecting(&self, node: NodeId) -> bool {
        self.disconnecting.values().any(|(host, _)| *host == node)
    }

    /// A host has disconnected: its process ends, and another host takes its slot.
    pub(crate) fn on_disconnected(&mut self, op: OpId) {
        let Some((node, since)) = self.disconnecting.remove(&op) else { return };
        let (Some(slot), NodeId::Host(generation)) = (self.cluster.slot(node), node) else { return };
        let took = self.cluster.world.now().since(since);
        let membership = self.cluster.world.machine(node).and_then(|role| role.host()?.membership());
        let epoch = membership.map_or(Epoch(0), |membership| membership.epoch);
        if took < CONFIRMED_WITHIN && !self.cluster.fenced().contains(&slot) {
            self.cluster.disconnected.insert(generation, DisconnectedHost { asked: since, epoch });
        }
        self.cluster.release_lease(generation);
        self.crash(node);
        self.replace_if_down(slot);
        self.wake_clients(slot);
    }

    /// The control plane fences all hosts that have ended, through any host.
    fn sweep(&mut self) {
        // Fencers do it in runs that have them.
        if self.cluster.has_fencers() {
            return;
        }
        let Some(slot) = self.staying_slots().first().copied() else { return };
        let except = self.cluster.living();
        let below = Generation(self.cluster.next_generation);
        self.count_fault("ended hosts fenced");
        let op = self.cluster.ask(slot, ArrayRequest::Fence { below, except: except.into_iter().collect() });
        self.chores.insert(op);
    }

    /// True if all hosts that have ended are fenced; otherwise the control plane starts to fence them.
    pub(crate) fn is_swept(&mut self) -> bool {
        let Some(membership) = self.cluster.membership() else { return false };
        let living = self.cluster.living();
        let swept = self.cluster.hosts_ever.difference(&living).all(|host| membership.fence.refuses(*host));
        let asked = self.cluster.asked().next().is_some();
        if !swept && !asked {
            self.sweep();
        }
        swept && self.cluster.has_fenced_the_silent()
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

    /// Checks that devices keep only state that living hosts account for; the living hosts have no operation in progress. Blocks that
    /// devices missed may be on record only for devices that have died for good, until they have new disks.
    pub(crate) fn check_leaks(&self) -> Result<(), Failed> {
        let living = self.living();
        for device in self.devices().into_iter().filter(|device| !self.dead.contains(device)) {
            let Some(machine) = self.device(device) else {
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
            for other in self.devices().into_iter().filter(|other| !self.dead.contains(other)) {
                for volume in self.volumes() {
                    if let Some(missed) = machine.store().missed(other, volume.id.object(), 0).0.first() {
                        return failed(
                            "left-missed",
                            format!("{device} still has on record that {other} misses {missed}"),
                        );
                    }
                }
            }
            for (name, count) in machine.store().counters() {
                if name == "extents_missed" && count > 0 && self.dead.is_empty() {
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
    pub(crate) fn check_left(&self) -> Result<(), Failed> {
        for device in self.devices() {
            let Some(machine) = self.device(device) else { continue };
            let started = self.started.get(&device).copied().unwrap_or(Time(0));
            let is_left = |transaction: &TransactionView| {
                let was_told =
                    |host: &DisconnectedHost| self.present_since(device).is_some_and(|since| since <= host.epoch);
                let disconnected = self.disconnected.get(&transaction.id.host);
                disconnected.is_some_and(|host| host.asked > started && was_told(host))
            };
            if let Some(transaction) = machine.transactions().find(is_left) {
                let details = format!("{device} keeps what belongs to a host that has left: {transaction:?}");
                return failed("left-behind", details);
            }
        }
        Ok(())
    }

    /// The epoch since which a device has been in or returning without interruption.
    fn present_since(&self, device: DeviceId) -> Option<Epoch> {
        self.membership().and_then(|membership| membership.member(device)).map(|member| member.since)
    }
}
