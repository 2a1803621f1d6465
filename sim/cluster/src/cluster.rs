//! A cluster is a whole array in a simulated world, with the operations that scenarios consist of.
//!
//! All operations of clients go through the cluster, so that the history contains them. So every scenario can end with
//! [`Cluster::check_all`], like a swarm run.

mod at_rest;
mod disks;
mod scenario_time;

use crate::control::ControlPlane;
use crate::damage;
use crate::file_records::FileRecords;
use crate::member_state::{Absences, Seen};
use crate::options::Options;
use crate::ownership_history::OwnershipHistory;
use crate::role::{Role, monitor_of};
use crate::sniffer::Sniffer;
use crate::undecided_requests::UndecidedRequests;
use crate::workload::ClientOperation;
use braid_base::{
    ArrayId, BLOCK_BYTES, BlockRange, DeviceId, DiskId, Epoch, FileSystemId, Generation, LockServerId, MemberState,
    Membership, NodeId, Rng, Time, VolumeId,
};
use braid_check::history::CELL_BYTES;
use braid_check::{
    Cells, Client, FileOperationId, History, ObjectHistory, ObjectOperationId, OperationId, Run, Tag, Verdict,
    check_stripe, reconstruct,
};
use braid_device::{Device, DeviceConfig, Service};
use braid_host::Host;
use braid_layout::{UnitAddress, VolumeDescription};
use braid_locks::{LockServer, LockServerConfig, LockService, LockState};
use braid_machine::{
    ArrayRequest, DiskError, HostError, HostOutcome, HostRequest, HostSuccess, MountRequest, OpId, Patience,
    VolumeRequest,
};
use braid_membership::{Monitor, MonitorConfig};
use braid_ordering::{Atomicity, Ordering};
use braid_store::{Medium, Store, StoreConfig, StoreError};
use braid_wire::{OwnershipRequest, RecoveryThrottle, Task};
use braid_world::{Disk, DiskOptions, LocalClock, Trace, World, WorldEvent};
use bytes::Bytes;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

pub use crate::failed::Failed;
pub(crate) use crate::failed::failed;
pub use crate::role::HostSlot;

/// The monitor takes all generations up to this one to be given out: the control plane of a run gives out a few hundred.
const LAST_GENERATION: Generation = Generation(1 << 20);
pub(crate) const ARRAY: ArrayId = ArrayId(*b"a simulated one.");
const VOLUME: VolumeId = VolumeId(1);
/// The longest time that a scenario waits for one condition.
const PATIENCE: Duration = Duration::from_secs(120);

/// A request in progress.
#[derive(Clone, Debug)]
pub struct PendingOperation {
    /// The host.
    pub node: NodeId,
    /// The number of the request at the host.
    pub op: OpId,
    pub client: usize,
    /// When it was issued.
    pub since: Time,
    pub patience: Patience,
    /// The client has lost its connection, and repeats the request on another one.
    pub abandoned: bool,
    pub(crate) record: Record,
}

/// How an answer is recorded in the histories.
#[derive(Clone, Debug)]
pub(crate) enum Record {
    Read(OperationId, Cells),
    Write(OperationId),
    Allocation(OperationId, BlockRange),
    Objects(ObjectOperationId),
    /// A request to wait for another value than this.
    Change(ObjectOperationId, Bytes),
    AttributeVolume(ObjectOperationId),
    /// A request to fence this host.
    Fence(Generation),
    /// A request about the ownership of a file system.
    Ownership(FileSystemId, OwnershipRequest),
    /// An operation on files.
    Files(FileOperationId),
    Nothing,
}

/// A host that has disconnected gracefully.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DisconnectedHost {
    /// When it was told to disconnect.
    pub asked: Time,
    /// Its last epoch. A device that was out in this epoch was not told.
    pub epoch: Epoch,
}

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
    /// Removed volumes.
    pub(crate) removed: Vec<VolumeDescription>,
    pub(crate) hosts: Vec<NodeId>,
    /// The control plane, from when it is needed.
    pub(crate) control: Option<Box<ControlPlane>>,
    asked: BTreeMap<OpId, PendingOperation>,
    /// Answers that arrived while a scenario waited for another one.
    answered: BTreeMap<OpId, HostOutcome>,
    pub(crate) next_generation: u32,
    /// All hosts that ever existed.
    pub(crate) hosts_ever: BTreeSet<Generation>,
    /// Hosts that have disconnected gracefully, with all confirmations.
    pub(crate) disconnected: BTreeMap<Generation, DisconnectedHost>,
    /// When devices were last started.
    pub(crate) started: BTreeMap<DeviceId, Time>,
    pub(crate) next_op: u64,
    next_disk: u64,
    disks: BTreeMap<DeviceId, DiskId>,
    next_tag: u64,
    pub(crate) rng: Rng,
    /// A disk is being replaced, or may still be: no disk may be damaged meanwhile.
    pub(crate) replacing: bool,
    /// Earlier memberships, for the checks.
    pub(crate) seen: Seen,
    /// When devices were unavailable or out.
    pub(crate) missed: Absences,
    /// When a device was last unavailable, that is, in and without a lease.
    pub(crate) last_unavailable: Option<Time>,
    /// The answers of devices, taken from the network.
    pub(crate) sniffer: Rc<RefCell<Sniffer>>,
    /// The file system, if there is one, and what is recorded of it.
    pub(crate) files: FileRecords,
    /// What hosts were told of the owners of file systems.
    pub(crate) ownership: OwnershipHistory,
    /// Requests on objects whose outcome is unknown.
    pub(crate) undecided: UndecidedRequests,
    /// A device has restarted.
    pub(crate) restarted: bool,
    /// A clock ran fast or slow, or leapt.
    pub(crate) turned: bool,
    /// Devices that have died for good.
    pub(crate) dead: BTreeSet<DeviceId>,
    /// The operator has given up stripes that lost too much, so stripes may lack more devices than their redundancy covers.
    pub gives_up: bool,
}

/// The first cell of a volume in the history. No two volumes share cells, so that content of another volume is detected.
fn first_byte(volume: VolumeId) -> u64 {
    (volume.0 - VOLUME.0) << 44
}

impl Cluster {
    /// Creates an array of empty devices, all up, with its volume and the hosts that `options` ask for.
    pub fn new(options: Options, trace: Trace) -> Cluster {
        let mut rng = options.source("cluster");
        let world = World::new(ARRAY, rng.next_u64(), braid_world::NetworkOptions::clean(), trace);
        let layout = options.layout;
        let volume = VolumeDescription {
            ordering: options.ordering,
            atomicity: options.atomicity,
            ..VolumeDescription::new(
                VOLUME,
                options.stripes * layout.stripe_blocks() * BLOCK_BYTES as u64,
                layout,
                (0..layout.devices() as u16).map(DeviceId).collect(),
            )
        };
        let mut cluster = Cluster {
            world,
            history: History::default(),
            objects: ObjectHistory::default(),
            options,
            volume,
            others: Vec::new(),
            removed: Vec::new(),
            hosts: Vec::new(),
            control: None,
            asked: BTreeMap::new(),
            answered: BTreeMap::new(),
            next_generation: 1,
            hosts_ever: BTreeSet::new(),
            disconnected: BTreeMap::new(),
            started: BTreeMap::new(),
            next_op: 1,
            next_disk: 0,
            disks: BTreeMap::new(),
            next_tag: 1,
            rng,
            replacing: false,
            seen: Seen::default(),
            missed: Absences::default(),
            last_unavailable: None,
            sniffer: Rc::default(),
            files: FileRecords::default(),
            ownership: OwnershipHistory::default(),
            undecided: UndecidedRequests::default(),
            restarted: false,
            turned: false,
            dead: BTreeSet::new(),
            gives_up: false,
        };
        cluster.world.watch(NodeId::Monitor);
        cluster.add_monitor();
        for device in cluster.devices() {
            cluster.add_device(device);
        }
        for server in cluster.lock_servers() {
            cluster.add_lock_server(server);
        }
        let first = cluster.add_host();
        for device in cluster.volume.devices.clone() {
            let (object, blocks) = (VOLUME.object(), cluster.volume.component_blocks());
            let (ordering, redundant) = (cluster.options.ordering, layout.redundancy_units() > 0);
            let atomicity = cluster.options.atomicity;
            let task = Task::CreateObject { object, first: 0, blocks, ordering, redundant, atomicity, absent: 0 };
            let asked = cluster.ask(first, ArrayRequest::Manage { device, task });
            cluster.finish(asked).expect("an empty device takes an object");
        }
        let activities = cluster.options.activities.clone();
        activities.iter().for_each(|activity| activity.prepare(&mut cluster, first));
        while cluster.hosts.len() < cluster.options.hosts {
            cluster.add_host();
        }
        cluster
    }

    /// Creates a cluster without faults, except those that the scenario causes.
    pub fn calm(layout: &str, devices: usize, unit_blocks: u64, stripes: u64) -> Cluster {
        Cluster::new(Options::calm(layout, devices, unit_blocks, stripes), Trace::keeping(4_000))
    }

    pub fn devices(&self) -> Vec<DeviceId> {
        let count = self.options.layout.devices() as u16 + self.options.other_devices;
        (0..count).map(DeviceId).collect()
    }

    pub fn lock_servers(&self) -> Vec<LockServerId> {
        (0..self.options.lock_servers).map(LockServerId).collect()
    }

    /// All nodes with durable state on a disk.
    pub fn nodes_with_disks(&self) -> impl Iterator<Item = NodeId> + use<> {
        // Also devices that were added during the run.
        let devices: Vec<NodeId> = self.disks.keys().copied().map(NodeId::Device).collect();
        devices.into_iter().chain(self.lock_servers().into_iter().map(NodeId::LockServer)).chain([NodeId::Monitor])
    }

    pub fn volume(&self) -> &VolumeDescription {
        &self.volume
    }

    /// The node that is in a host's slot now.
    pub fn node(&self, slot: HostSlot) -> NodeId {
        self.hosts[slot.0]
    }

    /// The slot of a host, if the host is in a slot now.
    pub fn slot(&self, node: NodeId) -> Option<HostSlot> {
        self.hosts.iter().position(|held| *held == node).map(HostSlot)
    }

    pub fn slots(&self) -> impl Iterator<Item = HostSlot> + use<> {
        (0..self.hosts.len()).map(HostSlot)
    }

    /// Adds a host.
    pub fn add_host(&mut self) -> HostSlot {
        let clock = self.clock();
        self.add_host_with(clock)
    }

    /// Adds a host with these clocks.
    pub fn add_host_with(&mut self, clock: LocalClock) -> HostSlot {
        let node = self.new_host(clock);
        self.hosts.push(node);
        HostSlot(self.hosts.len() - 1)
    }

    /// Starts a new generation in a host's slot; the old host must be down.
    pub fn replace_host(&mut self, slot: HostSlot, clock: LocalClock) {
        assert!(self.world.machine(self.hosts[slot.0]).is_none(), "the old host is down");
        self.hosts[slot.0] = if self.files.hosts.contains(&slot) {
            let role = self.files.mounted().host_role(self);
            self.new_host_in(clock, role)
        } else if let Some((system, shard)) = self.files.shard_of(slot) {
            let (role, service) = (system.server_role(self, shard), system.service(shard));
            let node = self.new_host_in(clock, role);
            self.world.speak_for(service, node);
            node
        } else {
            self.new_host(clock)
        };
    }

    /// Starts a device that is down, with the content of its disk.
    pub fn restart_device(&mut self, device: DeviceId) {
        self.restarted = true;
        self.started.insert(device, self.world.now());
        let machine = self.new_device(device);
        self.world.start(NodeId::Device(device), machine);
    }

    /// Devices that have stopped because their disks failed. The supervisor of such a process would restart it.
    pub fn broken(&self) -> Vec<DeviceId> {
        let failed = Service::Unusable(StoreError::Disk(DiskError::Failed));
        let broken = |device: &DeviceId| self.device(*device).is_some_and(|machine| *machine.service() == failed);
        self.disks.keys().copied().filter(broken).collect()
    }

    /// Ends the machine of a device without a loss of power, and starts it again.
    pub fn start_again(&mut self, device: DeviceId) {
        self.world.stop(NodeId::Device(device));
        self.restart_device(device);
    }

    /// True if the recovery throttle has its default, according to the monitor's record.
    pub(crate) fn is_throttle_default(&self) -> bool {
        self.monitor().is_none_or(|monitor| monitor.throttle() == RecoveryThrottle::default())
    }

    /// Starts a lock server that is down, with the content of its disk.
    pub fn restart_lock_server(&mut self, server: LockServerId) {
        let machine = self.new_lock_server(server);
        self.world.start(NodeId::LockServer(server), machine);
    }

    /// Starts the monitor, which must be down, with the content of its disk.
    pub fn restart_monitor(&mut self) {
        let machine = self.new_monitor();
        self.world.start(NodeId::Monitor, machine);
        self.tell_monitor_of_volume();
    }

    /// The membership that the monitor last made durable; `None` while it is down.
    pub fn membership(&self) -> Option<&Membership> {
        self.monitor().map(|monitor| monitor.membership())
    }

    /// The monitor, if it is up.
    pub fn monitor(&self) -> Option<&Monitor> {
        monitor_of(&self.world)
    }

    /// A device, if it is up.
    pub fn device(&self, device: DeviceId) -> Option<&Device> {
        match self.world.machine(NodeId::Device(device))? {
            Role::Device(machine) => Some(machine),
            _ => None,
        }
    }

    /// True if a device is up, and finds that it can serve.
    pub(crate) fn can_serve(&self, device: DeviceId) -> bool {
        self.device(device).is_some_and(|machine| *machine.service() == Service::Serving)
    }

    /// Makes power fail at a node.
    pub fn crash(&mut self, node: NodeId) {
        self.world.crash(node);
        if let NodeId::Host(host) = node {
            self.files.unknown.insert(host);
        }
        self.forget_asked(node);
    }

    /// Drops the requests of this node, which will not be answered.
    pub fn forget_asked(&mut self, node: NodeId) {
        self.asked.retain(|_, asked| asked.node != node);
    }

    /// Slots of hosts that have learned that they are fenced.
    pub fn fenced(&self) -> Vec<HostSlot> {
        let fenced = |slot: &HostSlot| match self.world.machine(self.node(*slot)) {
            Some(Role::FileHost(client)) => client.is_fenced() || client.host().host().is_fenced(),
            Some(role) => role.host().is_some_and(Host::is_fenced),
            None => false,
        };
        self.slots().filter(fenced).collect()
    }

    /// Requests in progress.
    pub fn asked(&self) -> impl Iterator<Item = &PendingOperation> {
        self.asked.values()
    }

    /// Issues an operation of a client at a host.
    pub fn operation(&mut self, slot: HostSlot, client: usize, operation: ClientOperation) -> OpId {
        self.operation_with(slot, client, operation, Patience::Host)
    }

    /// The same, with this patience.
    pub fn operation_with(
        &mut self,
        slot: HostSlot,
        client: usize,
        operation: ClientOperation,
        patience: Patience,
    ) -> OpId {
        let (now, node) = (self.world.now(), self.hosts[slot.0]);
        let NodeId::Host(generation) = node else { unreachable!("host slots hold hosts") };
        let name = Client { host: generation.0, number: client };
        let (volume, first) = (self.volume.id, first_byte(self.volume.id));
        let cells_of = |offset, length| Cells::of_bytes(first + offset, length);
        let (request, record) = match operation {
            ClientOperation::Read { offset, length } => (
                VolumeRequest::Read { volume, offset, length: length as usize, patience },
                Record::Read(self.history.read(name, now), cells_of(offset, length)),
            ),
            ClientOperation::Write { offset, length } => {
                let (tag, cells) = (Tag(self.next_tag), cells_of(offset, length));
                self.next_tag += 1;
                let request = VolumeRequest::Write { volume, offset, data: tag.fill(cells), patience };
                (request, Record::Write(self.history.write(name, now, cells, tag)))
            }
            ClientOperation::Zero { offset, length } => (
                VolumeRequest::Zero { volume, offset, length, patience },
                Record::Write(self.history.write(name, now, cells_of(offset, length), Tag::ZEROS)),
            ),
            ClientOperation::Allocation { range } => {
                let range = self.told_at_once(range);
                let recorded = BlockRange::new(first / BLOCK_BYTES as u64 + range.start, range.count);
                (
                    VolumeRequest::Allocation { volume, range, patience },
                    Record::Allocation(self.history.read(name, now), recorded),
                )
            }
        };
        self.begin(slot, client, request, record)
    }

    /// With an ordering by locks, each device reports its allocation by itself and without a lock. So only the part that lies on one
    /// device is reported at one point of time.
    fn told_at_once(&self, range: BlockRange) -> BlockRange {
        let unit = self.volume.layout.unit_blocks();
        if self.volume.ordering == Ordering::Timestamp && self.control.is_none() {
            range
        } else {
            BlockRange::between(range.start, range.end().min((range.start / unit + 1) * unit))
        }
    }

    /// All clients of a host that have a write in progress lose their connections. Returns these clients, their operations, and the
    /// request that tells the host.
    pub fn lose_connections(&mut self, slot: HostSlot) -> (Vec<(usize, ClientOperation)>, OpId) {
        let (now, node) = (self.world.now(), self.hosts[slot.0]);
        let (mut wishes, mut ops) = (Vec::new(), Vec::new());
        for asked in self.asked.values_mut().filter(|asked| asked.node == node && !asked.abandoned) {
            let Record::Write(id) = asked.record else { continue };
            asked.abandoned = true;
            self.history.abandon(id, now);
            let Cells { start, end } = self.history.operation(id).runs[0].cells;
            let (offset, length) = (start * CELL_BYTES as u64, (end - start) * CELL_BYTES as u64);
            wishes.push((asked.client, ClientOperation::Write { offset, length }));
            ops.push(asked.op);
        }
        (wishes, self.ask(slot, ArrayRequest::Abandon { ops }))
    }

    /// Sends a request to a host that is not part of the history.
    pub fn ask(&mut self, slot: HostSlot, request: impl Into<MountRequest>) -> OpId {
        let request = request.into();
        if request == ArrayRequest::Disconnect.into() {
            self.files.unmounting.insert(self.node(slot));
        }
        let request = match request {
            MountRequest::Host(HostRequest::Array(ArrayRequest::AdoptVolume { volume })) => {
                ArrayRequest::AdoptVolume { volume: self.as_on(self.node(slot), volume) }.into()
            }
            other => other,
        };
        self.begin(slot, 0, request, Record::Nothing)
    }

    /// Requests that a host have exactly one other host fenced.
    pub fn fence(&mut self, by: HostSlot, host: Generation) -> OpId {
        let spared =
            (0..=host.0).map(Generation).filter(|other| *other != host && self.hosts.contains(&NodeId::Host(*other)));
        let request = ArrayRequest::Fence { below: Generation(host.0 + 1), except: spared.collect() };
        self.begin(by, 0, request, Record::Fence(host))
    }

    /// Starts a hostread.
    pub fn read(&mut self, slot: HostSlot, offset: u64, length: u64) -> OpId {
        self.operation(slot, 0, ClientOperation::Read { offset, length })
    }

    /// Starts a hostwrite of content that no other write has.
    pub fn write(&mut self, slot: HostSlot, offset: u64, length: u64) -> OpId {
        self.operation(slot, 0, ClientOperation::Write { offset, length })
    }

    pub(crate) fn begin(
        &mut self,
        slot: HostSlot,
        client: usize,
        request: impl Into<MountRequest>,
        record: Record,
    ) -> OpId {
        let request = request.into();
        let op = self.expect(slot, client, request.patience(), record);
        self.world.request(self.hosts[slot.0], op, request);
        op
    }

    /// Expects the answer to a request that is about to be passed on.
    pub(crate) fn expect(&mut self, slot: HostSlot, client: usize, patience: Patience, record: Record) -> OpId {
        let (op, node) = (OpId::front_end(self.next_op), self.hosts[slot.0]);
        self.next_op += 1;
        let since = self.world.now();
        self.asked.insert(op, PendingOperation { node, op, client, since, patience, abandoned: false, record });
        op
    }

    /// Records an answer in the history. Some errors are effects of faults; any other error is a failure.
    pub fn on_reply(&mut self, op: OpId, outcome: &HostOutcome) -> Result<Option<PendingOperation>, Failed> {
        let Some(asked) = self.asked.remove(&op) else { return Ok(None) };
        let now = self.world.now();
        if let (Record::Read(..) | Record::Write(_), Ok(_)) = (&asked.record, outcome) {
            self.ownership.check_is_owner_still(asked.node, asked.since)?;
        }
        match (asked.record.clone(), outcome) {
            (Record::Ownership(file_system, request), outcome) => {
                let taken_over = self.ownership.on_reply(now, asked.node, (file_system, request), outcome)?;
                taken_over.into_iter().for_each(|host| self.note_fence(host, asked.since));
            }
            (record @ (Record::Objects(_) | Record::Change(..)), outcome) => self.on_object_reply(&record, outcome)?,
            (Record::AttributeVolume(id), outcome) => self.on_bucket_reply(id, outcome)?,
            (Record::Write(id), Ok(HostSuccess::Done)) => self.history.wrote(id, now),
            (Record::Read(id, cells), Ok(HostSuccess::Data(parts))) => {
                let bytes = parts.concat();
                if (bytes.len() / CELL_BYTES) as u64 != cells.count() {
                    return failed("short-read", format!("{} bytes for {cells:?}", bytes.len()));
                }
                match Tag::parse(cells.start, &bytes) {
                    Ok(runs) => self.history.saw(id, now, runs),
                    Err(garbage) => return failed("garbage-read", format!("{} saw: {garbage}", asked.node)),
                }
            }
            (Record::Allocation(id, range), Ok(HostSuccess::Allocation(runs))) => {
                let mut at = range.start;
                let mut holes = Vec::new();
                for (count, data) in runs {
                    if !data {
                        let block = BLOCK_BYTES as u64;
                        holes.push(Run { cells: Cells::of_bytes(at * block, count * block), tag: Tag::ZEROS });
                    }
                    at += count;
                }
                if at > range.end() || at == range.start {
                    return failed("allocation-shape", format!("{runs:?} for {range}"));
                }
                self.history.saw(id, now, holes);
            }
            (Record::Files(id), outcome) => {
                let is_excused = outcome.as_ref().is_err_and(|error| self.options.excuses(error));
                self.files.on_reply(&self.world, (asked.node, asked.client), id, outcome, is_excused)?;
            }
            (Record::Nothing | Record::Fence(_), Err(_)) | (Record::Nothing, _) => {}
            (Record::Fence(host), Ok(HostSuccess::Done)) => self.note_fence(host, asked.since),
            (record, Err(HostError::NoSuchVolume)) if self.may_be_deleted(&record) => {}
            (_, Err(HostError::OutOfRange)) if lags_behind_growth(self, asked.node) => {}
            (_, Err(error)) if self.options.excuses(error) => {}
            (record, outcome) => return failed("unexpected-answer", format!("{record:?}: {outcome:?}")),
        }
        Ok(Some(asked))
    }

    /// True for an operation on a volume that is created or deleted during the run: its host may not know it.
    fn may_be_deleted(&self, record: &Record) -> bool {
        let first = match record {
            Record::Read(_, cells) => cells.start * CELL_BYTES as u64,
            Record::Write(id) => self.history.operation(*id).runs[0].cells.start * CELL_BYTES as u64,
            Record::Allocation(_, range) => range.start * BLOCK_BYTES as u64,
            _ => return false,
        };
        self.options.activities.has("create-delete") && first >= first_byte(VolumeId(VOLUME.0 + 1))
    }

    /// A request to fence a host, which was made at `asked`, is answered now.
    pub(crate) fn note_fence(&mut self, host: Generation, asked: Time) {
        // A device that was unavailable, while no other device of its stripes could be, may still have a part of a write.
        if self.last_unavailable.is_none_or(|unavailable| unavailable < asked) {
            self.history.fenced(host.0, self.world.now());
        }
    }

    /// Advances a scenario to the next event; false if there is no event until `until`.
    pub(crate) fn pass(&mut self, until: Time) -> bool {
        let event = self.world.next(until);
        if let Some(WorldEvent::Alarm(token)) = event {
            self.on_control_alarm(token);
        }
        self.check_moment().unwrap_or_else(|failed| panic!("{}: {}", failed.check, failed.details));
        if let Some(WorldEvent::Reply { op, outcome, .. }) = &event {
            self.on_reply(*op, outcome).unwrap_or_else(|failed| panic!("{}: {}", failed.check, failed.details));
            if !self.on_control_reply(*op, outcome) {
                self.answered.insert(*op, outcome.clone());
            }
        }
        event.is_some()
    }

    /// Checks the conditions that must hold at any moment of any run, as far as they are visible from outside.
    pub(crate) fn check_moment(&mut self) -> Result<(), Failed> {
        self.note_absence();
        self.note_unavailable();
        self.check_exclusion()?;
        // No two hosts that are served hold locks of inodes that conflict.
        self.check_held(&self.files.held_inode_locks(&self.world, &self.hosts))?;
        self.files.note_kept_out(&self.world, &self.hosts);
        self.check_taken_over()?;
        self.check_leases()?;
        self.sniffer.borrow().check_answers()?;
        self.check_membership()
    }

    /// Checks an array at rest, after everything has healed. Returns the steps of the search for an order of the history, or `None`
    /// if that search or the search for object requests was abandoned.
    pub fn check_all(&mut self) -> Result<Option<u64>, Failed> {
        self.check_nothing_is_left()?;
        self.end_fencers();
        let old_hosts: Vec<HostSlot> = self.slots().collect();
        let reader = self.add_host();
        self.check_volume(reader, &old_hosts)?;
        for number in 0..self.others.len() {
            match self.others[number].clone() {
                volume if self.files.uses(volume.id) => self.check_stripes_by(reader, &volume)?,
                _ => self.on_volume(number, |cluster| cluster.check_volume(reader, &old_hosts))?,
            }
        }
        let of_objects = self.check_objects(reader)?;
        Ok(of_objects.and(self.check_history()?))
    }

    /// Reads the whole volume, also by hosts of the swarm run, and compares the content with the blocks on the devices.
    pub(crate) fn check_volume(&mut self, reader: HostSlot, old_hosts: &[HostSlot]) -> Result<(), Failed> {
        let stripe_bytes = self.volume.layout.stripe_blocks() * BLOCK_BYTES as u64;
        let mut content = Vec::new();
        for stripe in 0..self.volume.stripes() {
            // The volume may end inside its last stripe.
            let offset = stripe * stripe_bytes;
            content.extend(self.read_at_rest(reader, offset, stripe_bytes.min(self.volume.bytes - offset))?);
        }
        self.check_old_hosts(old_hosts, &content)?;
        let volume = self.volume.clone();
        if let Some(target) = volume.target() {
            // The content of a copied volume is not known here, but its redundancy must match.
            self.check_components(&target, None)?;
        }
        self.check_components(&volume, Some(&content))?;
        self.check_parity(reader, &content)
    }

    pub(crate) fn answer(&mut self, op: OpId, otherwise: &str) -> Result<HostSuccess, Failed> {
        let outcome = self.outcome(op, otherwise)?;
        outcome.map_err(|error| Failed { check: "no-progress", details: format!("{otherwise}: {error}") })
    }

    /// The outcome of a request, which may be an error.
    pub(crate) fn outcome(&mut self, op: OpId, otherwise: &str) -> Result<HostOutcome, Failed> {
        let until = self.world.now().after(PATIENCE);
        while let Some(event) = self.world.next(until) {
            match event {
                WorldEvent::Reply { op: answered, outcome, .. } => {
                    self.on_reply(answered, &outcome)?;
                    self.on_control_reply(answered, &outcome);
                    if answered == op {
                        return Ok(outcome);
                    }
                }
                WorldEvent::Alarm(token) => drop(self.on_control_alarm(token)),
                _ => {}
            }
        }
        failed("no-progress", format!("{otherwise}: no answer at all"))
    }

    /// Starts a device with an empty disk, which need not be part of the array yet.
    pub fn add_device(&mut self, device: DeviceId) {
        let disk = self.new_disk();
        let disk = self.empty_disk(device, disk);
        let machine = self.new_device(device);
        let clock = self.clock();
        self.world.add(NodeId::Device(device), machine, Some(disk), clock);
    }

    /// Creates a disk with this name for a device, as it is before the first start of the device.
    pub fn empty_disk(&mut self, device: DeviceId, disk: DiskId) -> Disk {
        self.disks.insert(device, disk);
        let config = self.store_config(device);
        let fresh =
            Store::format_with(&config, disk, 77, self.options.journal_bytes).expect("devices are large enough");
        let superblock = fresh.iter().find(|(offset, _)| *offset == 0).expect("a device begins with its superblock");
        let space = self.options.chunks.map(|chunks| damage::space_for(&superblock.1, chunks));
        let mut disk = Disk::new(DiskOptions { space, ..DiskOptions::default() }, self.rng.fork());
        fresh.iter().for_each(|(offset, bytes)| disk.preload(*offset, bytes));
        let Medium { physical_sector, cached } = self.options.medium;
        disk.set_physical_sector(physical_sector.into());
        disk.set_hurt_before(damage::map_offset(&superblock.1));
        if cached {
            disk.set_cached();
        }
        disk
    }

    fn add_monitor(&mut self) {
        let disk = Disk::new(DiskOptions::default(), self.rng.fork());
        let (machine, clock) = (self.new_monitor(), self.clock());
        self.world.add(NodeId::Monitor, machine, Some(disk), clock);
        self.tell_monitor_of_volume();
    }

    fn new_monitor(&self) -> Role {
        let (devices, settings) = (self.devices(), self.options.settings.clone());
        let config = MonitorConfig { array: ARRAY, devices, last_generation: LAST_GENERATION, settings };
        Role::Monitor(Box::new(Monitor::new(config)))
    }

    fn add_lock_server(&mut self, server: LockServerId) {
        let disk = Disk::new(DiskOptions::default(), self.rng.fork());
        let (machine, clock) = (self.new_lock_server(server), self.clock());
        self.world.add(NodeId::LockServer(server), machine, Some(disk), clock);
    }

    fn new_lock_server(&mut self, id: LockServerId) -> Role {
        let (start, settings) = (self.fresh_generation(), self.options.settings.clone());
        let config = LockServerConfig::of_volumes(id, start, BTreeSet::new(), settings);
        Role::LockServer(Box::new(LockServer::new(config)))
    }

    fn new_device(&self, device: DeviceId) -> Role {
        let (store, settings) = (self.store_config(device), self.options.settings.clone());
        Role::Device(Box::new(Device::on(self.options.medium, DeviceConfig { store, membership: None, settings })))
    }

    fn store_config(&self, device: DeviceId) -> StoreConfig {
        StoreConfig { array: ARRAY, device, size: self.options.device_bytes }
    }
}

/// True if a host does not know yet that the volume has grown: it was suspended, or can't reach the record.
fn lags_behind_growth(cluster: &Cluster, node: NodeId) -> bool {
    let known = cluster.world.machine(node).and_then(|role| role.host()?.volume(cluster.volume.id));
    known.is_some_and(|known| known.bytes < cluster.volume.bytes)
}
