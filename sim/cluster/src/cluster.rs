//! A cluster is a whole array in a simulated world, with the operations that scenarios consist of.
//!
//! All operations of clients go through the cluster, so that the history contains them. So every scenario can end with
//! [`Cluster::check_all`], like a swarm run.

mod controlled;
pub(crate) mod device_notes;
mod generations;
mod observed;
mod operator;
pub(crate) mod requests;

use crate::candidates::Candidates;
use crate::control::ControlPlane;
use crate::file_records::FileRecords;
use crate::options::Options;
use crate::ownership_history::OwnershipHistory;
use crate::prelude::*;
use crate::role::{Role, device_of, leader, monitor_of};
use crate::sniffer::Sniffer;
use crate::undecided_requests::UndecidedRequests;
use braid_base::ArrayId;
use braid_check::{History, ObjectHistory};
use braid_wire::RecoveryThrottle;
use std::cell::RefCell;

pub use self::device_notes::DeviceNotes;
pub(crate) use self::generations::{DisconnectedHost, Generations};
pub(crate) use self::observed::{Observed, Seen};
pub use self::operator::Operator;
pub(crate) use self::requests::Record;
pub use self::requests::{PendingOperation, Requests};
pub use crate::failed::Failed;
pub(crate) use crate::failed::failed;
pub use crate::role::HostSlot;

pub(crate) const ARRAY: ArrayId = ArrayId(*b"a simulated one.");
pub(crate) const VOLUME: VolumeId = VolumeId(1);
/// The longest time that a scenario waits for one condition.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// The longest stall and the longest delay of a message; these end on their own after healing.
pub(crate) const AFTERMATH: Duration = Duration::from_secs(16);

/// An array in a simulated world.
pub struct Cluster {
    pub world: World<Role>,
    /// The operations of clients on volumes.
    pub history: History,
    /// The requests of clients on objects.
    pub objects: ObjectHistory,
    /// The options that the cluster was built from.
    pub options: Options,
    /// The current volume; see [`Cluster::on_volume`].
    pub(crate) volume: VolumeDescription,
    /// The other volumes on the same devices.
    pub(crate) others: Vec<VolumeDescription>,
    pub(crate) removed: Vec<VolumeDescription>,
    pub(crate) hosts: Vec<NodeId>,
    /// The control plane, from when it is needed.
    pub(crate) control: Option<Box<ControlPlane>>,
    /// The candidates, if the monitor is one of several.
    pub(crate) candidates: Option<Box<Candidates>>,
    pub requests: Requests,
    pub(crate) generations: Generations,
    pub device_notes: DeviceNotes,
    pub(crate) observed: Observed,
    pub(crate) rng: Rng,
    /// The answers of devices, taken from the network.
    pub(crate) sniffer: Rc<RefCell<Sniffer>>,
    /// The file system, if there is one, and what is recorded of it.
    pub(crate) files: FileRecords,
    /// What hosts were told of the owners of file systems.
    pub(crate) ownership: OwnershipHistory,
    /// Requests on objects whose outcome is unknown.
    pub(crate) undecided: UndecidedRequests,
    /// A clock ran fast or slow, or leapt.
    pub(crate) turned: bool,
    /// The operator has given up stripes that lost too much, so stripes may lack more devices than their redundancy covers.
    pub gives_up: bool,
}

/// The first cell of a volume in the history. No two volumes share cells, so that content of another volume is detected.
pub(crate) fn first_byte(volume: VolumeId) -> u64 {
    (volume.0 - VOLUME.0) << 44
}

impl Cluster {
    pub fn devices(&self) -> Vec<DeviceId> {
        let count = self.options.layout.devices() as u16 + self.options.other_devices;
        (0..count).map(DeviceId).collect()
    }

    pub fn lock_servers(&self) -> Vec<LockServerId> {
        (0..self.options.lock_servers).map(LockServerId).collect()
    }

    pub fn volume(&self) -> &VolumeDescription {
        &self.volume
    }

    /// The node that is in a host's slot now.
    pub fn node(&self, slot: HostSlot) -> NodeId {
        self.hosts[slot.0]
    }

    /// The machine of the host in a slot, if it is up.
    pub fn role(&self, slot: HostSlot) -> Option<&Role> {
        self.world.machine(self.node(slot))
    }

    /// The slot of a host, if the host is in a slot now.
    pub fn slot(&self, node: NodeId) -> Option<HostSlot> {
        self.hosts.iter().position(|held| *held == node).map(HostSlot)
    }

    pub fn slots(&self) -> impl Iterator<Item = HostSlot> + use<> {
        (0..self.hosts.len()).map(HostSlot)
    }

    /// The membership that the monitor last made durable; `None` while it is down.
    pub fn membership(&self) -> Option<&Membership> {
        self.monitor().map(|monitor| monitor.membership())
    }

    /// The monitor, if it is up. A leader of an earlier term is none, though the later one may be gone again before it has heard of that.
    pub fn monitor(&self) -> Option<&Monitor> {
        let latest = self.candidates.as_ref().map(|candidates| candidates.term());
        let is_past = |latest| leader(&self.world).is_some_and(|(_, head, _)| head.term < latest);
        monitor_of(&self.world).filter(|_| !latest.is_some_and(is_past))
    }

    /// A device, if it is up.
    pub fn device(&self, device: DeviceId) -> Option<&Device> {
        device_of(&self.world, device)
    }

    /// Makes power fail at a node, and at all others at its place.
    pub fn crash(&mut self, node: NodeId) {
        self.world.crash(node).into_iter().for_each(|node| self.forget(node));
    }

    /// A node has lost its memory.
    pub(crate) fn forget(&mut self, node: NodeId) {
        if let NodeId::Host(host) = node {
            self.files.unknown.insert(host);
        }
        self.requests.forget(node);
    }

    /// Slots of hosts that have learned that they are fenced.
    pub fn fenced(&self) -> Vec<HostSlot> {
        let fenced = |slot: &HostSlot| match self.role(*slot) {
            Some(Role::FileHost(client)) => client.is_fenced() || client.host().host().is_fenced(),
            Some(role) => role.host().is_some_and(Host::is_fenced),
            None => false,
        };
        self.slots().filter(fenced).collect()
    }
}

/// All nodes with durable state on a disk, also devices that were added during the run.
pub(crate) fn nodes_with_disks(cluster: &Cluster) -> Vec<NodeId> {
    let devices = cluster.device_notes.disks.keys().copied().map(NodeId::Device);
    devices.chain(cluster.lock_servers().into_iter().map(NodeId::LockServer)).chain(monitors(cluster)).collect()
}

/// The nodes that are the monitor, or may become it.
pub(crate) fn monitors(cluster: &Cluster) -> Vec<NodeId> {
    cluster.candidates.as_ref().map_or(vec![NodeId::Monitor], |candidates| candidates.nodes().collect())
}

/// A volume as this host knows it, with a parity site of its own.
pub(crate) fn as_on(cluster: &Cluster, host: NodeId, mut volume: VolumeDescription) -> VolumeDescription {
    let sites = &cluster.options.sites;
    if let NodeId::Host(generation) = host
        && !sites.is_empty()
    {
        volume.parity_site = sites[(generation.0 as usize + volume.id.0 as usize) % sites.len()];
    }
    volume
}

/// The state of a device that the monitor last made durable; `None` if the monitor does not know it, or is down.
pub(crate) fn state_of(cluster: &Cluster, device: DeviceId) -> Option<MemberState> {
    Some(cluster.membership()?.member(device)?.member_state)
}

/// True if the recovery throttle has its default, according to the monitor's record.
pub(crate) fn is_throttle_default(cluster: &Cluster) -> bool {
    cluster.monitor().is_none_or(|monitor| monitor.throttle() == RecoveryThrottle::default())
}
