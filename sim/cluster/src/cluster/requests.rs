//! Requests of clients and of scenarios: those in progress, and how they begin.

use super::{Cluster, as_on, first_byte};
use crate::prelude::*;
use crate::role::HostSlot;
use crate::workload::ClientOperation;
use braid_check::history::CELL_BYTES;
use braid_check::{Cells, Client, FileOperationId, ObjectOperationId, OperationId, Tag};
use braid_machine::HostRequest;

#[derive(Clone, Debug, Default)]
pub struct Requests {
    pub pending: BTreeMap<OpId, PendingOperation>,
    /// Answers that arrived while a scenario waited for another one.
    pub answered: BTreeMap<OpId, HostOutcome>,
    numbered: u64,
    tagged: u64,
}

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
    /// A program's request for a lock of ranges, or its end.
    Ranges,
    Nothing,
}

impl Requests {
    pub fn next_number(&mut self) -> OpId {
        self.numbered += 1;
        OpId::front_end(self.numbered)
    }

    /// The content of a write that no other one has.
    pub fn next_tag(&mut self) -> Tag {
        self.tagged += 1;
        Tag(self.tagged)
    }

    /// Requests in progress.
    pub fn asked(&self) -> impl Iterator<Item = &PendingOperation> {
        self.pending.values()
    }

    /// True if a request is in progress.
    pub fn is_open(&self, op: OpId) -> bool {
        self.pending.contains_key(&op)
    }

    /// True if a request was answered, and its answer was not fetched yet.
    pub fn is_answered(&self, op: OpId) -> bool {
        self.answered.contains_key(&op)
    }

    /// Drops the requests of this node, which will not be answered.
    pub fn forget(&mut self, node: NodeId) {
        self.pending.retain(|_, asked| asked.node != node);
    }
}

impl Cluster {
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
                let (tag, cells) = (self.requests.next_tag(), cells_of(offset, length));
                let request = VolumeRequest::Write { volume, offset, data: tag.fill(cells), patience };
                (request, Record::Write(self.history.write(name, now, cells, tag)))
            }
            ClientOperation::Zero { offset, length } => (
                VolumeRequest::Zero { volume, offset, length, patience },
                Record::Write(self.history.write(name, now, cells_of(offset, length), Tag::ZEROS)),
            ),
            ClientOperation::Allocation { range } => {
                let range = told_at_once(self, range);
                let recorded = BlockRange::new(first / BLOCK_BYTES as u64 + range.start, range.count);
                (
                    VolumeRequest::Allocation { volume, range, patience },
                    Record::Allocation(self.history.read(name, now), recorded),
                )
            }
        };
        self.begin(slot, client, request, record)
    }

    /// Sends a request to a host that is not part of the history.
    pub fn ask(&mut self, slot: HostSlot, request: impl Into<MountRequest>) -> OpId {
        let request = request.into();
        if request == ArrayRequest::Disconnect.into() {
            self.files.unmounting.insert(self.node(slot));
        }
        let request = match request {
            MountRequest::Host(HostRequest::Array(ArrayRequest::AdoptVolume { volume })) => {
                ArrayRequest::AdoptVolume { volume: as_on(self, self.node(slot), volume) }.into()
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
        let (op, node) = (self.requests.next_number(), self.hosts[slot.0]);
        let since = self.world.now();
        self.requests
            .pending
            .insert(op, PendingOperation { node, op, client, since, patience, abandoned: false, record });
        op
    }
}

/// With an ordering by locks, each device reports its allocation by itself and without a lock. So only the part that lies on one
/// device is reported at one point of time.
fn told_at_once(cluster: &Cluster, range: BlockRange) -> BlockRange {
    let unit = cluster.volume.layout.unit_blocks();
    if cluster.volume.ordering == Ordering::Timestamp && cluster.control.is_none() {
        range
    } else {
        BlockRange::between(range.start, range.end().min((range.start / unit + 1) * unit))
    }
}

/// All clients of a host that have a write in progress lose their connections. Returns these clients, their operations, and the
/// request that tells the host.
pub(crate) fn lose_connections(cluster: &mut Cluster, slot: HostSlot) -> (Vec<(usize, ClientOperation)>, OpId) {
    let (now, node) = (cluster.world.now(), cluster.hosts[slot.0]);
    let (mut wishes, mut ops) = (Vec::new(), Vec::new());
    for asked in cluster.requests.pending.values_mut().filter(|asked| asked.node == node && !asked.abandoned) {
        let Record::Write(id) = asked.record else { continue };
        asked.abandoned = true;
        cluster.history.abandon(id, now);
        let Cells { start, end } = cluster.history.operation(id).runs[0].cells;
        let (offset, length) = (start * CELL_BYTES as u64, (end - start) * CELL_BYTES as u64);
        wishes.push((asked.client, ClientOperation::Write { offset, length }));
        ops.push(asked.op);
    }
    (wishes, cluster.ask(slot, ArrayRequest::Abandon { ops }))
}
