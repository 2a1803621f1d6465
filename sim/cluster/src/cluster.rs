//! An array in a world, and the words that scenarios are told in.
//!
//! Whatever clients ask goes through here, so that all of it is in the history; and every scenario can end with
//! [`Cluster::check_all`], which is what a swarm run ends with too.

mod at_rest;

use crate::attribute_volumes::{self, Open};
use crate::damage;
use crate::leaving::Left;
use crate::member_state::{Absences, Seen};
use crate::object_workload::attribute_volume::ATTRIBUTE_VOLUME;
use crate::objects::{Abandoned, Sniffer};
use crate::options::Options;
use crate::role::Role;
use crate::surveyor::Surveyor;
use crate::workload::ClientOperation;
use braid_base::{
    ArrayId, BLOCK_BYTES, BlockRange, DeviceId, DiskId, Generation, LockServerId, MemberState, Membership, NodeId, Rng,
    Time, VolumeId,
};
use braid_check::history::CELL_BYTES;
use braid_check::{
    Cells, Client, History, ObjectHistory, ObjectOperationId, OperationId, Run, Tag, Verdict, check_stripe, reconstruct,
};
use braid_device::{Device, DeviceConfig, Service};
use braid_layout::{UnitAddress, VolumeDescription};
use braid_locks::{LockServer, LockServerConfig, LockService, LockState};
use braid_machine::{DiskError, HostError, HostOutcome, HostRequest, HostSuccess, OpId};
use braid_membership::{Monitor, MonitorConfig};
use braid_store::{Geometry, Medium, Store, StoreConfig, StoreError};
use braid_wire::{Atomicity, Ordering, RecoveryThrottle, Task};
use braid_world::{Disk, DiskOptions, LocalClock, Trace, World, WorldEvent};
use bytes::Bytes;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

const ARRAY: ArrayId = ArrayId(*b"a simulated one.");
const VOLUME: VolumeId = VolumeId(1);
/// No scenario waits longer for one thing than this.
const PATIENCE: Duration = Duration::from_secs(120);
/// After so many heartbeats a device with a full table forgets a host of which it keeps nothing.
const HEARTBEATS_MISSED: u32 = 3;

/// A place for a host; whoever dies there comes back as another generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostSlot(pub usize);

/// What a check found wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Which check.
    pub check: &'static str,
    /// What it saw.
    pub details: String,
}

/// A request under way.
#[derive(Clone, Debug)]
pub struct PendingOperation {
    /// Of which host.
    pub node: NodeId,
    /// Its number there.
    pub op: OpId,
    /// For which client.
    pub client: usize,
    /// Since when.
    pub since: Time,
    /// Its client has lost its connection, and asks again on another.
    pub abandoned: bool,
    pub(crate) record: Record,
}

/// What becomes of an answer.
#[derive(Clone, Debug)]
pub(crate) enum Record {
    Read(OperationId, Cells),
    Write(OperationId),
    Allocation(OperationId, BlockRange),
    Objects(ObjectOperationId),
    /// Another value than this.
    Change(ObjectOperationId, Bytes),
    AttributeVolume(ObjectOperationId),
    /// That this host is kept out.
    Fence(Generation),
    Nothing,
}

/// An array in a world.
pub struct Cluster {
    /// Where it all happens.
    pub world: World<Role>,
    /// What clients asked and saw.
    pub history: History,
    /// What they had done on objects.
    pub objects: ObjectHistory,
    /// What it was built from.
    pub options: Options,
    /// The one that is spoken of; see [`Cluster::on_volume`].
    pub(crate) volume: VolumeDescription,
    /// Others on the same devices.
    pub(crate) others: Vec<VolumeDescription>,
    /// Those that were removed.
    pub(crate) removed: Vec<VolumeDescription>,
    hosts: Vec<NodeId>,
    asked: BTreeMap<OpId, PendingOperation>,
    /// Answers that came while a scenario waited for another.
    answered: BTreeMap<OpId, HostOutcome>,
    pub(crate) next_generation: u32,
    /// All hosts that there were.
    pub(crate) hosts_ever: BTreeSet<Generation>,
    /// Those that have ended in good order, and waited for all confirmations.
    pub(crate) left: BTreeMap<Generation, Left>,
    /// When devices were started anew.
    pub(crate) started: BTreeMap<DeviceId, Time>,
    next_op: u64,
    next_disk: u64,
    /// The disk that each device has.
    disks: BTreeMap<DeviceId, DiskId>,
    next_tag: u64,
    pub(crate) rng: Rng,
    /// A disk is being replaced, or may be yet: nothing may be damaged meanwhile.
    pub(crate) replacing: bool,
    /// What the checks remember of who was in.
    pub(crate) seen: Seen,
    /// When devices were missed.
    pub(crate) missed: Absences,
    /// When a device was last away: in, and without a lease.
    pub(crate) last_unavailable: Option<Time>,
    /// What devices were heard to answer.
    pub(crate) sniffer: Rc<RefCell<Sniffer>>,
    /// Requests to the attribute volume that ended so that nobody knows what becomes of them.
    pub(crate) open: Open,
    /// Requests to devices that were given up.
    pub(crate) abandoned: Abandoned,
    /// A device has restarted.
    pub(crate) restarted: bool,
    /// A clock ran fast or slow, or leapt.
    pub(crate) turned: bool,
    /// Devices that have died for good.
    pub(crate) dead: BTreeSet<DeviceId>,
    /// An operator has given up stripes of which too much is lost: so they may lack more than their redundancy makes up for.
    pub gives_up: bool,
}

/// Where a volume's cells begin in the history: no two have the same, so that what strays from one to another is noticed.
fn first_byte(volume: VolumeId) -> u64 {
    (volume.0 - VOLUME.0) << 44
}

impl Cluster {
    /// An array of empty devices, all up, its volume created, and as many hosts as `options` say.
    pub fn new(options: Options, trace: Trace) -> Cluster {
        let mut rng = Rng::new(options.seed ^ 0xb7a1d);
        let world = World::new(ARRAY, rng.next_u64(), braid_world::NetworkOptions::clean(), trace);
        let layout = options.layout;
        let volume = VolumeDescription {
            id: VOLUME,
            bytes: options.stripes * layout.stripe_blocks() * BLOCK_BYTES as u64,
            layout,
            devices: (0..layout.devices() as u16).map(DeviceId).collect(),
            ordering: options.ordering,
            atomicity: options.atomicity,
            moving: None,
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
            asked: BTreeMap::new(),
            answered: BTreeMap::new(),
            next_generation: 1,
            hosts_ever: BTreeSet::new(),
            left: BTreeMap::new(),
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
            open: Open::default(),
            abandoned: Abandoned::default(),
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
            let asked = cluster.ask(first, HostRequest::Manage { device, task });
            cluster.finish(asked).expect("an empty device takes an object");
        }
        if let Some(objects) = cluster.options.objects.clone() {
            for device in cluster.devices().into_iter().take(objects.devices.into()) {
                cluster.make_objects(first, device, 1..=objects.staying);
            }
        }
        if let Some(attribute_volume) = &cluster.options.attribute_volume {
            cluster
                .objects
                .begin_with(ATTRIBUTE_VOLUME, attribute_volumes::empty(attribute_volume.in_attribute_volume()));
        }
        for volume in cluster.options.more_volumes.clone() {
            cluster.make_volume(first, &volume).expect("empty devices take objects");
        }
        while cluster.hosts.len() < cluster.options.hosts {
            cluster.add_host();
        }
        cluster
    }

    /// A quiet array for a scenario: no faults but those that the scenario tells.
    pub fn calm(layout: &str, devices: usize, unit_blocks: u64, stripes: u64) -> Cluster {
        Cluster::new(Options::calm(layout, devices, unit_blocks, stripes), Trace::keeping(4_000))
    }

    /// All devices.
    pub fn devices(&self) -> Vec<DeviceId> {
        let count = self.options.layout.devices() as u16 + self.options.other_devices;
        (0..count).map(DeviceId).collect()
    }

    /// All lock servers.
    pub fn lock_servers(&self) -> Vec<LockServerId> {
        (0..self.options.lock_servers).map(LockServerId).collect()
    }

    /// All nodes that keep something on a disk.
    pub fn nodes_with_disks(&self) -> impl Iterator<Item = NodeId> + use<> {
        let devices = self.devices().into_iter().map(NodeId::Device);
        devices.chain(self.lock_servers().into_iter().map(NodeId::LockServer)).chain([NodeId::Monitor])
    }

    /// The volume.
    pub fn volume(&self) -> &VolumeDescription {
        &self.volume
    }

    /// The node that stands in a host's place now.
    pub fn node(&self, slot: HostSlot) -> NodeId {
        self.hosts[slot.0]
    }

    /// The place of a host, if it is the one that stands there now.
    pub fn slot(&self, node: NodeId) -> Option<HostSlot> {
        self.hosts.iter().position(|held| *held == node).map(HostSlot)
    }

    /// All places for hosts.
    pub fn slots(&self) -> impl Iterator<Item = HostSlot> + use<> {
        (0..self.hosts.len()).map(HostSlot)
    }

    /// Brings in one more host.
    pub fn add_host(&mut self) -> HostSlot {
        let clock = self.clock();
        self.add_host_with(clock)
    }

    /// Brings in one more host, whose clocks are these.
    pub fn add_host_with(&mut self, clock: LocalClock) -> HostSlot {
        let node = self.new_host(clock);
        self.hosts.push(node);
        HostSlot(self.hosts.len() - 1)
    }

    /// A new generation takes a host's place; the old one must be down.
    pub fn replace_host(&mut self, slot: HostSlot, clock: LocalClock) {
        assert!(self.world.machine(self.hosts[slot.0]).is_none(), "the old host is gone");
        self.hosts[slot.0] = self.new_host(clock);
    }

    /// Starts a device that is down, with what its disk holds.
    pub fn restart_device(&mut self, device: DeviceId) {
        self.restarted = true;
        self.started.insert(device, self.world.now());
        let machine = self.new_device(device);
        self.world.start(NodeId::Device(device), machine);
    }

    /// Devices that have given up, as their disks failed: whoever started them starts them again.
    pub fn broken(&self) -> Vec<DeviceId> {
        let failed = Service::Unusable(StoreError::Disk(DiskError::Failed));
        let broken = |device: &DeviceId| match self.world.machine(NodeId::Device(*device)) {
            Some(Role::Device(machine)) => *machine.service() == failed,
            _ => false,
        };
        self.devices().into_iter().filter(broken).collect()
    }

    /// A device ends, and is started again; its power stays.
    pub fn start_again(&mut self, device: DeviceId) {
        self.world.stop(NodeId::Device(device));
        self.restart_device(device);
    }

    /// Another disk, which is empty, is put into a device that is down.
    pub fn swap_disk(&mut self, device: DeviceId, disk: DiskId) {
        assert!(self.world.machine(NodeId::Device(device)).is_none(), "it is down");
        let fresh = self.empty_disk(device, disk);
        *self.world.disk_mut(NodeId::Device(device)).expect("devices have disks") = fresh;
    }

    /// The disk that a device has.
    pub fn disk_of(&self, device: DeviceId) -> DiskId {
        self.disks[&device]
    }

    /// Devices whose slots wait for another disk than the one that they have, as the monitor has on record.
    pub fn awaited_disks(&self) -> Vec<(DeviceId, DiskId)> {
        let Some(Role::Monitor(monitor)) = self.world.machine(NodeId::Monitor) else { return Vec::new() };
        let awaited = monitor.slots().filter_map(|slot| Some((slot.device, slot.awaits?)));
        awaited.filter(|(device, disk)| self.disks.get(device) != Some(disk)).collect()
    }

    /// True if a disk is about to be replaced, or is being waited for.
    pub(crate) fn is_any_disk_changing(&self) -> bool {
        let Some(Role::Monitor(monitor)) = self.world.machine(NodeId::Monitor) else { return false };
        monitor.slots().any(|slot| slot.leaves_to.is_some() || slot.awaits.is_some())
    }

    /// True if healing goes at the usual pace, as far as the monitor has it on record.
    pub(crate) fn is_throttle_default(&self) -> bool {
        match self.world.machine(NodeId::Monitor) {
            Some(Role::Monitor(monitor)) => monitor.throttle() == RecoveryThrottle::default(),
            _ => true,
        }
    }

    /// True if a device is in, and has this disk.
    pub(crate) fn is_whole_with(&self, device: DeviceId, disk: DiskId) -> bool {
        let is_in = |membership: &Membership| {
            membership.member(device).is_some_and(|member| member.member_state == MemberState::In)
        };
        self.disks.get(&device) == Some(&disk) && self.membership().is_some_and(is_in)
    }

    /// A name that no disk has had.
    pub fn new_disk(&mut self) -> DiskId {
        self.next_disk += 1;
        DiskId(self.next_disk)
    }

    /// Blocks that objects may have on a device's disk.
    pub fn disk_blocks(&self) -> u64 {
        Geometry::room(self.options.device_bytes).expect("devices are large enough")
    }

    /// Starts a lock server that is down, with what its disk holds.
    pub fn restart_lock_server(&mut self, server: LockServerId) {
        let machine = self.new_lock_server(server);
        self.world.start(NodeId::LockServer(server), machine);
    }

    /// Starts the monitor, which is down, with what its disk holds.
    pub fn restart_monitor(&mut self) {
        let machine = self.new_monitor();
        self.world.start(NodeId::Monitor, machine);
        self.tell_monitor_of_volume();
    }

    /// Who is in, as the monitor last made it durable; none while it is down.
    pub fn membership(&self) -> Option<&Membership> {
        match self.world.machine(NodeId::Monitor)? {
            Role::Monitor(monitor) => Some(monitor.membership()),
            _ => None,
        }
    }

    /// Orders the volume otherwise: at every device, and then at every host. Nothing may be under way.
    pub fn set_ordering(&mut self, by: HostSlot, ordering: Ordering) -> Result<(), HostError> {
        let object = VOLUME.object();
        for device in self.devices() {
            let task = Task::SetOrdering { object, ordering };
            let asked = self.ask(by, HostRequest::Manage { device, task });
            self.finish(asked)?;
        }
        (self.volume.ordering, self.options.ordering) = (ordering, ordering);
        for slot in self.slots() {
            let asked = self.ask(slot, HostRequest::AdoptVolume { volume: self.volume.clone() });
            self.finish(asked).expect("a host takes any volume whose devices it knows");
        }
        Ok(())
    }

    /// Power fails at a node.
    pub fn crash(&mut self, node: NodeId) {
        self.world.crash(node);
        self.forget_asked(node);
    }

    /// Nobody will answer what this node was asked.
    pub fn forget_asked(&mut self, node: NodeId) {
        self.asked.retain(|_, asked| asked.node != node);
    }

    /// Places whose hosts have heard that they are fenced, and so will do nothing any more.
    pub fn fenced(&self) -> Vec<HostSlot> {
        let fenced = |slot: &HostSlot| match self.world.machine(self.node(*slot)) {
            Some(Role::Host(host)) => host.is_fenced(),
            _ => false,
        };
        self.slots().filter(fenced).collect()
    }

    /// What is under way.
    pub fn asked(&self) -> impl Iterator<Item = &PendingOperation> {
        self.asked.values()
    }

    /// Asks a host what a client wishes.
    pub fn operation(&mut self, slot: HostSlot, client: usize, operation: ClientOperation) -> OpId {
        let (now, node) = (self.world.now(), self.hosts[slot.0]);
        let NodeId::Host(generation) = node else { unreachable!("host slots hold hosts") };
        let name = Client { host: generation.0, number: client };
        let (volume, first) = (self.volume.id, first_byte(self.volume.id));
        let cells_of = |offset, length| Cells::of_bytes(first + offset, length);
        let (request, record) = match operation {
            ClientOperation::Read { offset, length } => (
                HostRequest::Read { volume, offset, length: length as usize },
                Record::Read(self.history.read(name, now), cells_of(offset, length)),
            ),
            ClientOperation::Write { offset, length } => {
                let (tag, cells) = (Tag(self.next_tag), cells_of(offset, length));
                self.next_tag += 1;
                let request = HostRequest::Write { volume, offset, data: tag.fill(cells) };
                (request, Record::Write(self.history.write(name, now, cells, tag)))
            }
            ClientOperation::Zero { offset, length } => (
                HostRequest::Zero { volume, offset, length },
                Record::Write(self.history.write(name, now, cells_of(offset, length), Tag::ZEROS)),
            ),
            ClientOperation::Allocation { range } => {
                let range = self.told_at_once(range);
                let recorded = BlockRange::new(first / BLOCK_BYTES as u64 + range.start, range.count);
                (HostRequest::Allocation { volume, range }, Record::Allocation(self.history.read(name, now), recorded))
            }
        };
        self.begin(slot, client, request, record)
    }

    /// Where locks keep hosts apart, each device tells by itself, and without a lock, where there is data. So only what one of them tells
    /// is told at one moment.
    fn told_at_once(&self, range: BlockRange) -> BlockRange {
        let unit = self.volume.layout.unit_blocks();
        if self.volume.ordering == Ordering::Timestamp {
            range
        } else {
            BlockRange::between(range.start, range.end().min((range.start / unit + 1) * unit))
        }
    }

    /// All clients of a host that have a write under way lose their connections. Who they are, what they wished for, and the request that tells
    /// the host.
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
        (wishes, self.ask(slot, HostRequest::Abandon { ops }))
    }

    /// Asks a host for something that is no part of the history.
    pub fn ask(&mut self, slot: HostSlot, request: HostRequest) -> OpId {
        self.begin(slot, 0, request, Record::Nothing)
    }

    /// Asks a host to have another one kept out, and nobody else.
    pub fn fence(&mut self, by: HostSlot, host: Generation) -> OpId {
        let spared =
            (0..=host.0).map(Generation).filter(|other| *other != host && self.hosts.contains(&NodeId::Host(*other)));
        let request = HostRequest::Fence { below: Generation(host.0 + 1), except: spared.collect() };
        self.begin(by, 0, request, Record::Fence(host))
    }

    /// Begins a hostread.
    pub fn read(&mut self, slot: HostSlot, offset: u64, length: u64) -> OpId {
        self.operation(slot, 0, ClientOperation::Read { offset, length })
    }

    /// Begins a hostwrite of bytes that nobody else writes.
    pub fn write(&mut self, slot: HostSlot, offset: u64, length: u64) -> OpId {
        self.operation(slot, 0, ClientOperation::Write { offset, length })
    }

    pub(crate) fn begin(&mut self, slot: HostSlot, client: usize, request: HostRequest, record: Record) -> OpId {
        let (op, node) = (OpId(self.next_op), self.hosts[slot.0]);
        self.next_op += 1;
        self.asked.insert(op, PendingOperation { node, op, client, since: self.world.now(), abandoned: false, record });
        self.world.request(node, op, request);
        op
    }

    /// Puts an answer into the history. Some errors are what faults bring; any other is a failure.
    pub fn on_reply(&mut self, op: OpId, outcome: &HostOutcome) -> Result<Option<PendingOperation>, Failed> {
        let Some(asked) = self.asked.remove(&op) else { return Ok(None) };
        let now = self.world.now();
        let failed = |check, details| Err(Failed { check, details });
        match (asked.record.clone(), outcome) {
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
            (Record::Nothing | Record::Fence(_), Err(_)) | (Record::Nothing, _) => {}
            (Record::Fence(host), Ok(HostSuccess::Done)) => {
                // A device that was unavailable, while no other of its stripes could be, may have something of it yet.
                if self.last_unavailable.is_none_or(|unavailable| unavailable < asked.since) {
                    self.history.fenced(host.0, now);
                }
            }
            (_, Err(error)) if self.options.excuses(error) => {}
            (record, outcome) => return failed("unexpected-answer", format!("{record:?}: {outcome:?}")),
        }
        Ok(Some(asked))
    }

    /// Runs until this request is answered.
    pub fn finish(&mut self, op: OpId) -> HostOutcome {
        let until = self.world.now().after(PATIENCE);
        while !self.answered.contains_key(&op) && self.pass(until) {}
        let answer = self.answered.remove(&op);
        answer.unwrap_or_else(|| panic!("request {} was not answered within {PATIENCE:?}", op.0))
    }

    /// Runs for a while.
    pub fn run_for(&mut self, span: Duration) {
        let until = self.world.now().after(span);
        while self.pass(until) {}
    }

    /// Lets one thing happen in a scenario; false if nothing more does until then.
    fn pass(&mut self, until: Time) -> bool {
        let event = self.world.next(until);
        self.check_moment().unwrap_or_else(|failed| panic!("{}: {}", failed.check, failed.details));
        if let Some(WorldEvent::Reply { op, outcome, .. }) = &event {
            self.on_reply(*op, outcome).unwrap_or_else(|failed| panic!("{}: {}", failed.check, failed.details));
            self.answered.insert(*op, outcome.clone());
        }
        event.is_some()
    }

    /// What must be true at any moment of any run, as far as it is seen from outside.
    pub(crate) fn check_moment(&mut self) -> Result<(), Failed> {
        self.note_absence();
        self.note_unavailable();
        self.check_exclusion()?;
        self.check_answers()?;
        self.check_membership()
    }

    /// After everything has healed: what must be true of an array at rest. Tells the steps of the search for an order of the history; none
    /// if it, or that for what was asked of objects, was given up.
    pub fn check_all(&mut self) -> Result<Option<u64>, Failed> {
        self.check_nothing_is_left()?;
        let old_hosts: Vec<HostSlot> = self.slots().collect();
        let reader = self.add_host();
        self.check_volume(reader, &old_hosts)?;
        for number in 0..self.others.len() {
            self.on_volume(number, |cluster| cluster.check_volume(reader, &old_hosts))?;
        }
        let of_objects = self.check_objects(reader)?;
        Ok(of_objects.and(self.check_history()?))
    }

    /// Reads all of the volume, also by hosts that were there before, and compares that with what lies on the devices.
    pub(crate) fn check_volume(&mut self, reader: HostSlot, old_hosts: &[HostSlot]) -> Result<(), Failed> {
        let stripe_bytes = self.volume.layout.stripe_blocks() * BLOCK_BYTES as u64;
        let mut content = Vec::new();
        for stripe in 0..self.volume.stripes() {
            // The volume may end within its last stripe.
            let offset = stripe * stripe_bytes;
            content.extend(self.read_at_rest(reader, offset, stripe_bytes.min(self.volume.bytes - offset))?);
        }
        self.check_old_hosts(old_hosts, &content)?;
        let volume = self.volume.clone();
        if let Some(target) = volume.target() {
            // What was copied is not said, but its redundancy matches always.
            self.check_components(&target, None)?;
        }
        self.check_components(&volume, Some(&content))?;
        self.check_parity(reader, &content)
    }

    /// Every block of every component, read device by device.
    fn survey(&mut self, volume: &VolumeDescription) -> Result<BTreeMap<(DeviceId, u64), Vec<u8>>, Failed> {
        let node = self.add_surveyor(volume, &volume.devices);
        // A device may still be in its last stall, or have no room before it has forgotten somebody who is dead.
        for _ in 0..20 {
            self.run_for(Duration::from_secs(1));
            let Some(Role::Surveyor(surveyor)) = self.world.machine(node) else { unreachable!("it was just added") };
            if let Some(found) = surveyor.blocks().cloned() {
                self.world.crash(node);
                if self.options.leaves.is_some() {
                    // Where tables are small, it is to be in nobody's way: it is forgotten after some heartbeats.
                    self.run_for(HEARTBEATS_MISSED * self.options.settings.heartbeat);
                }
                return Ok(found);
            }
        }
        self.world.crash(node);
        Err(Failed { check: "survey", details: "a device does not answer plain reads".into() })
    }

    /// Somebody who reads the volume's components on these devices.
    fn add_surveyor(&mut self, volume: &VolumeDescription, devices: &[DeviceId]) -> NodeId {
        let generation = self.fresh_generation();
        let node = NodeId::Host(generation);
        let object = (volume.id.object(), volume.ordering);
        let epoch = self.membership().expect("the monitor is up").epoch;
        let surveyor = Surveyor::new(generation, epoch, object, volume.component(), devices);
        self.world.add(node, Role::Surveyor(Box::new(surveyor)), None, LocalClock::exact(Time(0)));
        node
    }

    pub(crate) fn answer(&mut self, op: OpId, otherwise: &str) -> Result<HostSuccess, Failed> {
        let outcome = self.outcome(op, otherwise)?;
        outcome.map_err(|error| Failed { check: "no-progress", details: format!("{otherwise}: {error}") })
    }

    /// The same, which may be an error.
    pub(crate) fn outcome(&mut self, op: OpId, otherwise: &str) -> Result<HostOutcome, Failed> {
        let until = self.world.now().after(PATIENCE);
        while let Some(event) = self.world.next(until) {
            if let WorldEvent::Reply { op: answered, outcome, .. } = event {
                self.on_reply(answered, &outcome)?;
                if answered == op {
                    return Ok(outcome);
                }
            }
        }
        Err(Failed { check: "no-progress", details: format!("{otherwise}: no answer at all") })
    }

    /// Starts a device with an empty disk, which the array need not have yet.
    pub fn add_device(&mut self, device: DeviceId) {
        let disk = self.new_disk();
        let disk = self.empty_disk(device, disk);
        let machine = self.new_device(device);
        let clock = self.clock();
        self.world.add(NodeId::Device(device), machine, Some(disk), clock);
    }

    /// A disk for a device, of this name, as it is before the device's first start.
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
        Role::Monitor(Box::new(Monitor::new(MonitorConfig { array: ARRAY, devices, settings })))
    }

    pub(crate) fn tell_monitor_of_volume(&mut self) {
        for volume in self.volumes() {
            self.tell_monitor(HostRequest::AdoptVolume { volume });
        }
    }

    pub(crate) fn tell_monitor(&mut self, request: HostRequest) {
        let op = OpId(self.next_op);
        self.next_op += 1;
        self.world.request(NodeId::Monitor, op, request);
    }

    fn add_lock_server(&mut self, server: LockServerId) {
        let disk = Disk::new(DiskOptions::default(), self.rng.fork());
        let (machine, clock) = (self.new_lock_server(server), self.clock());
        self.world.add(NodeId::LockServer(server), machine, Some(disk), clock);
    }

    fn new_lock_server(&mut self, id: LockServerId) -> Role {
        let (start, settings) = (self.fresh_generation(), self.options.settings.clone());
        let config = LockServerConfig { id, start, unlisted: BTreeSet::new(), settings };
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
