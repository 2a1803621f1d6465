//! Hosts that are cut off from a device, and fenced by another host, which then reads the blocks on which they had worked. After that the
//! device dies, which may have missed some of the writes.

use crate::activity::{Activity, Draw, Feature, Options, Run};
use crate::cluster::{Cluster, HostSlot};
use crate::prelude::*;
use crate::workload::ClientOperation;

/// The hosts that take over from fenced hosts, by their requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fences(BTreeMap<OpId, Takeover>);

/// A host has another host fenced, and then reads the blocks on which that one had worked.
#[derive(Clone, Debug)]
struct Takeover {
    /// The host that takes over.
    by: HostSlot,
    /// The device that dies when the blocks have been read.
    device: NodeId,
    /// How long the device is down.
    unavailable: Duration,
    /// Reads that have not been answered.
    left: BTreeSet<OpId>,
}

impl Feature for Fences {
    const NAME: &'static str = "fence";
    const ONE_IN: u64 = 8;

    fn draw(options: &mut Options, draw: &mut Draw) -> Option<Fences> {
        options.faults.weights.insert(FaultKind::Fence, draw.rng.between(5, 20));
        options.faults.every = options.faults.every.min(Duration::from_millis(draw.rng.between(100, 1_000)));
        // Another host must request the fence.
        options.hosts = options.hosts.max(2);
        Some(Fences::default())
    }
}

impl Fences {
    /// Another host requests that this host be fenced.
    fn fence(&mut self, run: &mut Run, (host, device): (NodeId, NodeId), dies: bool, unavailable: Duration) {
        let NodeId::Host(generation) = host else { unreachable!("only hosts are fenced") };
        run.cluster.world.network.join(host, device);
        if dies && run.cluster.world.is_up(host) {
            run.crash(host);
            run.plan(unavailable, move |run| run.bring_back(host, false));
        }
        let mut others = run.staying_slots().into_iter().filter(|slot| run.cluster.node(*slot) != host);
        let Some(by) = others.next() else { return };
        let op = run.cluster.fence(by, generation);
        self.0.insert(op, Takeover { by, device, unavailable, left: BTreeSet::new() });
    }

    fn take_over(&mut self, cluster: &mut Cluster, op: OpId, mut takeover: Takeover) {
        let volume = cluster.volume().clone();
        let stripe = volume.layout.stripe_blocks() * BLOCK_BYTES as u64;
        // This request belongs to none of the host's clients, each of which waits for its own request.
        let client = cluster.options.clients;
        if cluster.options.activities.has("attribute-volumes") || !cluster.world.is_up(cluster.node(takeover.by)) {
            return;
        }
        for offset in (0..volume.bytes).step_by(stripe as usize) {
            let operation = ClientOperation::Read { offset, length: stripe.min(volume.bytes - offset) };
            takeover.left.insert(cluster.operation(takeover.by, client, operation));
        }
        self.0.insert(op, takeover);
    }
}

impl Activity for Fences {
    fn on_fault(&mut self, run: &mut Run, fault: &Fault) {
        let Fault::Fence { node, device, deaf, dies, unavailable } = *fault else { return };
        run.cluster.world.network.cut(node, device);
        run.plan(deaf, move |run| {
            run.with(|fences: &mut Fences, run, _| fences.fence(run, (node, device), dies, unavailable));
        });
    }

    /// Handles the answer to a request to fence a host, or to a read of the blocks on which that host had worked.
    fn on_reply(&mut self, run: &mut Run, op: OpId, outcome: &HostOutcome) -> bool {
        if let Some(takeover) = self.0.remove(&op) {
            if outcome.is_ok() && run.storming {
                self.take_over(&mut run.cluster, op, takeover);
            }
            return true;
        }
        let Some((name, takeover)) = self.0.iter_mut().find(|(_, takeover)| takeover.left.contains(&op)) else {
            return false;
        };
        takeover.left.remove(&op);
        if takeover.left.is_empty() {
            let name = *name;
            let Takeover { device, unavailable, .. } = self.0.remove(&name).expect("just seen");
            if run.storming && run.cluster.world.is_up(device) {
                run.count_fault("device crash after a fence");
                run.crash(device);
                run.plan(unavailable, move |run| run.bring_back(device, false));
            }
        }
        true
    }
}
