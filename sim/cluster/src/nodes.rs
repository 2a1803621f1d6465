//! Nodes: hosts that share a place with devices, as the program does that runs a machine's devices and a host in one process. They crash,
//! are killed, stall and are cut off together.
//!
//! A host that originates a write may then die with a device that takes part in it. If a place has more devices than the layout can miss,
//! nothing is promised while it is down; afterwards nothing that was acknowledged may be lost.

use crate::activity::{Activity, Draw, Feature, Options, Run};
use crate::cluster::{Cluster, HostSlot};
use crate::fault_injection::{cause_of, causes};
use crate::prelude::*;
use braid_world::{CutShape, Swarm, Topology};

/// Faults of the world of which one is drawn, beside a kill and a cut. Each hits all at a place.
const KINDS: [FaultKind; 4] = [FaultKind::Stall, FaultKind::SlowNode, FaultKind::DeviceCrash, FaultKind::Flap];

/// A host, and the devices that share its place.
#[derive(Clone, Debug)]
struct Place {
    host: HostSlot,
    devices: Vec<DeviceId>,
}

#[derive(Clone, Debug)]
pub(crate) struct Nodes(Vec<Place>);

impl Feature for Nodes {
    const NAME: &'static str = "nodes";
    const ONE_IN: u64 = 8;
    const EVERY: Option<[u64; 3]> = Some([500, 2_000, 5_000]);
    // Where content is lost with a device, no further ones may go. Processes of file systems have places of their own.
    const NOT_WITH: &'static [&'static str] = &["dead", "record-damage", "files"];

    /// One device and one host at each of some places, or several devices and one host at one place.
    fn draw(options: &mut Options, draw: &mut Draw) -> Option<Nodes> {
        // Other hosts must go on.
        if options.hosts < 2 {
            return None;
        }
        let rng = &mut draw.rng;
        let mut left: Vec<DeviceId> = (0..options.layout.devices() as u16).map(DeviceId).collect();
        let mut take = |rng: &mut Rng| left.swap_remove(rng.below(left.len() as u64) as usize);
        let devices = options.layout.devices() as u64;
        if devices > 1 && rng.chance(1, 3) {
            let devices = (0..rng.between(2, devices)).map(|_| take(rng)).collect();
            return Some(Nodes(vec![Place { host: HostSlot(0), devices }]));
        }
        let places = rng.between(1, devices.min(options.hosts as u64)) as usize;
        Some(Nodes((0..places).map(|host| Place { host: HostSlot(host), devices: vec![take(rng)] }).collect()))
    }
}

impl Activity for Nodes {
    fn start(&mut self, run: &mut Run, _rng: &mut Rng) {
        for Place { host, devices } in &self.0 {
            let nodes = devices[1..].iter().copied().map(NodeId::Device).chain([run.cluster.node(*host)]);
            nodes.for_each(|node| run.cluster.world.share_place(node, NodeId::Device(devices[0])));
        }
    }

    fn act(&mut self, run: &mut Run, rng: &mut Rng) {
        // Calm runs draw faults when no effect of the last one remains; they hit places, too.
        if run.cluster.options.activities.has("calm") {
            return;
        }
        let Place { devices, .. } = &self.0[rng.below(self.0.len() as u64) as usize];
        let place = run.cluster.world.places.together(NodeId::Device(devices[0]));
        let mut swarm = Swarm::new(run.cluster.options.faults.clone(), rng.fork());
        let (name, fault) = match rng.below(7) as usize {
            0 => return kill(run, place[0], swarm.span()),
            1 => {
                let ways = [(true, true), (true, false), (false, true)][rng.below(3) as usize];
                ("node cut off", Some(cut_off(&place, &run.cluster.world.up(), ways, swarm.span())))
            }
            number => ("fault of a node", swarm.draw(KINDS[number % 4], &AtPlace(&run.cluster, &place))),
        };
        if let Some(fault) = fault {
            run.count_fault(name);
            let cause = cause_of(&fault);
            run.on_fault_of(fault, cause);
        }
    }
}

/// Ends the process at a place: no power is lost, so the disks complete what they were told.
fn kill(run: &mut Run, node: NodeId, span: Duration) {
    let causes = causes(&run.cluster.world.places, node);
    for node in run.cluster.world.places.together(node) {
        match node {
            _ if !run.cluster.world.is_up(node) => {}
            NodeId::Host(_) => run.crash_alone(node),
            _ => {
                run.count_machine(node);
                run.cluster.world.stop(node);
            }
        }
    }
    run.count_fault("node killed");
    run.availability.begin_together(run.cluster.world.now(), "node killed", &causes, span);
    run.plan(span, move |run| run.bring_back(node, false));
}

/// A cut of a place from others: of what is sent to them, by them, or both.
pub(crate) fn cut_off(place: &[NodeId], others: &[NodeId], (there, back): (bool, bool), span: Duration) -> Fault {
    let mut pairs = Vec::new();
    for node in place {
        let others = || others.iter().filter(|other| !place.contains(other));
        pairs.extend(others().filter(|_| there).map(|other| (*node, *other)));
        pairs.extend(others().filter(|_| back).map(|other| (*other, *node)));
    }
    Fault::Cut { shape: if there && back { CutShape::Node } else { CutShape::NodeOneWay }, pairs, span }
}

/// The nodes at one place, as all that a fault can hit.
struct AtPlace<'a>(&'a Cluster, &'a [NodeId]);

impl Topology for AtPlace<'_> {
    fn up(&self) -> Vec<NodeId> {
        self.1.iter().copied().filter(|node| self.0.world.is_up(*node)).collect()
    }

    fn skew(&self, node: NodeId) -> i64 {
        self.0.skew(node)
    }
}
