//! Hosts that disconnect gracefully, and the control plane that fences hosts that have ended.

use crate::activity::{Activity, Draw, Feature, Options, Run, pick};
use crate::cluster::DisconnectedHost;
use crate::cluster::HostSlot;
use crate::leaks;
use crate::object_requests;
use crate::prelude::*;
use braid_wire::Rejection;

/// A host that disconnected sooner than this was not stopped by its time-out: all nodes that it told have confirmed.
const CONFIRMED_WITHIN: Duration = Duration::from_millis(900);

#[derive(Clone, Debug)]
pub(crate) struct Disconnects;

impl Feature for Disconnects {
    const NAME: &'static str = "disconnect";
    const ONE_IN: u64 = 4;
    const EVERY: Option<[u64; 3]> = Some([100, 500, 2_000]);
    // Where writes take effect on arrival, a host may not end while a device is unavailable. In calm runs no host may be refused for lack
    // of room.
    const NOT_WITH: &'static [&'static str] = &["calm"];
    /// The request was sent to a host that was about to disconnect. Session tables are full until devices have forgotten hosts that have
    /// ended.
    const EXCUSES: fn(&HostError) -> bool = |error| match error {
        HostError::Rejected { rejection, .. } | HostError::LockServerRejected { rejection, .. } => {
            *rejection == Rejection::TooManyHosts
        }
        error => matches!(error, HostError::Disconnecting),
    };

    /// Session tables then have room for little more than the living hosts.
    fn draw(options: &mut Options, draw: &mut Draw) -> Option<Disconnects> {
        options.settings.hosts_max = options.hosts + draw.rng.between(2, 4) as usize;
        options.settings.device_transactions_max = draw.rng.between(24, 512) as usize;
        Some(Disconnects)
    }
}

impl Activity for Disconnects {
    fn start(&mut self, run: &mut Run, _rng: &mut Rng) {
        object_requests::overhear(&mut run.cluster);
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
            object_requests::overhear(&mut run.cluster);
        }
    }
}

impl Run {
    /// Hosts that accept requests: the others are down, or refuse requests because they disconnect.
    pub(crate) fn staying_slots(&self) -> Vec<HostSlot> {
        let up = leaks::living_slots(&self.cluster).into_iter();
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
            self.cluster.generations.disconnected.insert(generation, DisconnectedHost { asked: since, epoch });
        }
        self.cluster.with_control(|control, cx| control.release_lease(cx, generation));
        self.crash_alone(node);
        self.replace_if_down(slot);
        self.wake_clients(slot);
    }

    /// The control plane fences all hosts that have ended, through any host.
    fn sweep(&mut self) {
        // Fencers do it in runs that have them.
        if self.cluster.options.activities.has("silent-hosts") {
            return;
        }
        let Some(slot) = self.staying_slots().first().copied() else { return };
        let except = leaks::living(&self.cluster);
        let below = self.cluster.generations.next();
        self.count_fault("ended hosts fenced");
        self.begin_chore(slot, ArrayRequest::Fence { below, except: except.into_iter().collect() });
    }

    /// True if all hosts that have ended are fenced; otherwise the control plane starts to fence them.
    pub(crate) fn is_swept(&mut self) -> bool {
        let Some(membership) = self.cluster.membership() else { return false };
        let living = leaks::living(&self.cluster);
        let swept = self.cluster.generations.all.difference(&living).all(|host| membership.fence.refuses(*host));
        let asked = self.cluster.requests.asked().next().is_some();
        if !swept && !asked {
            self.sweep();
        }
        let is_up = |host| self.cluster.world.is_up(NodeId::Host(host));
        swept && self.cluster.control.as_ref().is_none_or(|control| control.has_fenced_the_silent(is_up))
    }
}
