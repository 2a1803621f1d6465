//! The encoding of every variant of every message, as in `docs/wire-format.md`: messages of one release are understood by the next, or
//! the version changes.

use crate::golden_files::{FILE_ANSWER, FILE_REQUEST, files};
use crate::golden_objects::objects;
use crate::golden_shards::shards;
use braid_base::{
    ArrayId, BLOCK_BYTES, BlockRange, Clock, DeviceId, DiskId, Epoch, FenceTable, FileSystemId, Generation,
    LockServerId, Member, MemberState, Membership, NodeId, ObjectId, Ownership, Stamp, Time, TransactionId, VolumeId,
};
use braid_blocks::*;
use braid_ordering::{Atomicity, Ordering, WriteMode};
use braid_wire::fuzzing::seal;
use braid_wire::*;
use bytes::Bytes;
use std::time::Duration;

/// A message and its description on the wire, as hexadecimal digits and spaces.
pub struct Golden {
    pub message: Message,
    pub description: String,
}

impl Golden {
    /// The message in a frame from host 7 to device 2, or back.
    pub fn encode(&self) -> EncodedFrame {
        let (host, device) = (NodeId::Host(Generation(7)), NodeId::Device(DeviceId(2)));
        let (from, to) = match self.message {
            Message::Request(_) => (host, device),
            Message::Answer(_) => (device, host),
            Message::LockRequest(_) => (host, NodeId::LockServer(LockServerId(1))),
            Message::LockAnswer(_) => (NodeId::LockServer(LockServerId(1)), host),
            Message::MonitorRequest(_) => (device, NodeId::Monitor),
            Message::MonitorAnswer(_) => (NodeId::Monitor, device),
            Message::FileRequest(_) => (host, NodeId::MetadataServer(FileSystemId(3))),
            Message::FileAnswer(_) => (NodeId::MetadataServer(FileSystemId(3)), host),
            Message::Shard(_) => (NodeId::MetadataServer(FileSystemId(3)), NodeId::MetadataServer(FileSystemId(4))),
            Message::Partial(_) => (NodeId::Device(DeviceId(5)), device),
        };
        let array = ArrayId(std::array::from_fn(|index| 0xa0 + index as u8));
        Frame { array, from, to, message: self.message.clone() }.encode()
    }

    pub fn frame(&self) -> Bytes {
        self.encode().to_bytes()
    }
}

/// From host 7 in epoch 3: all sequences below 5 are settled, 6 is over, 11 and 12 are committed.
const REQUEST: &str =
    "01 07000000 03000000 0500000000000000 01000000 0600000000000000 02000000 0b00000000000000 0c00000000000000";
/// From epoch 3, confirming 11.
const ANSWER: &str = "02 03000000 01000000 0b00000000000000";
/// From host 7, to a server whose start 5 knows all its locks; lock 11 is dropped.
const LOCK_REQUEST: &str = "03 07000000 05000000 01000000 0b00000000000000";
/// From start 5.
const LOCK_ANSWER: &str = "04 05000000";
/// From a node in epoch 3.
const MONITOR_REQUEST: &str = "05 03000000";
/// Without a membership; device 2 is unavailable.
const MONITOR_ANSWER: &str = "06 00 01000000 0200";
const TRANSACTION: &str = "07000000 0900000000000000";
const STAMP: &str = "0807060504030201 07000000";
pub const OBJECT: &str = "2100000000000000";
/// Blocks 4 and 5 for blocks 9 and 10 of device 3.
const SENDING: &str = "0400000000000000 0200000000000000 0300 0900000000000000";
/// A list of one range: blocks 4 and 5.
const RANGES: &str = "01000000 0400000000000000 0200000000000000";
pub const TICKET: &str = "0600000000000000";

/// Every variant of every enum at least once, the simplest request first.
pub fn goldens() -> Vec<Golden> {
    let blocks = BlockRange::new(4, 2);
    let sending = |what| Sending { blocks, to: DeviceId(3), at: 9, what };
    let rows = |base, from, own| ParityRows { blocks, base, from, own };
    let transaction = TransactionId { host: Generation(7), sequence: 9 };
    let stamp = Stamp { clock: Clock(0x0102_0304_0506_0708), host: Generation(7) };
    let object = ObjectId(0x21);
    let ordering = Ordering::Timestamp;
    let ranges = vec![blocks];
    let linkage = Linkage { first: 16, last: 18 };
    let read = |extents, want| Command::Read { transaction, stamp, object, ordering, extents, want };
    let write = |participants, mode, pieces| Command::Write {
        transaction,
        stamp,
        object,
        ordering,
        participants,
        linkage,
        mode,
        pieces,
    };
    let decide = |outcome| Command::Decide { transaction, stamp, outcome };
    let data = |waited, pieces| Reply::Data { transaction, waited, pieces };
    let single = |content| vec![Piece { range: blocks, content }];
    let participants = vec![DeviceId(2), DeviceId(0x0103)];
    let pieces = vec![
        Piece { range: BlockRange::new(4, 1), content: Content::Data(Bytes::from(vec![0xd7; BLOCK_BYTES])) },
        Piece { range: BlockRange::new(5, 1), content: Content::Hole },
        Piece { range: BlockRange::new(6, 1), content: Content::Present },
    ];
    let pieces_hex = "03000000 \
        0400000000000000 0100000000000000 03 00100000 \
        0500000000000000 0100000000000000 01 \
        0600000000000000 0100000000000000 02";

    let mut all = vec![
        request(Command::Heartbeat, "01"),
        request(read(ranges.clone(), Want::Data), &format!("02 {TRANSACTION} {STAMP} {OBJECT} 01 {RANGES} 01")),
        request(read(vec![], Want::Allocation), &format!("02 {TRANSACTION} {STAMP} {OBJECT} 01 00000000 02")),
        request(read(vec![], Want::Linkage), &format!("02 {TRANSACTION} {STAMP} {OBJECT} 01 00000000 03")),
        request(
            Command::Prewrite { transaction, stamp, object, ordering, prewrites: ranges, reads: vec![] },
            &format!("03 {TRANSACTION} {STAMP} {OBJECT} 01 {RANGES} 00000000"),
        ),
        request(
            write(participants.clone(), WriteMode::Intent, pieces.clone()),
            &format!(
                "04 {TRANSACTION} {STAMP} {OBJECT} 01 02000000 0200 0301 1000000000000000 1200000000000000 01 {pieces_hex}"
            ),
        ),
        request(
            write(vec![], WriteMode::Immediate, vec![]),
            &format!("04 {TRANSACTION} {STAMP} {OBJECT} 01 00000000 1000000000000000 1200000000000000 02 00000000"),
        ),
        request(decide(Outcome::Commit), &format!("05 {TRANSACTION} {STAMP} 01")),
        request(decide(Outcome::Abort), &format!("05 {TRANSACTION} {STAMP} 02")),
        request(decide(Outcome::Interrupted), &format!("05 {TRANSACTION} {STAMP} 03")),
        request(
            Command::Execute {
                transaction,
                stamp,
                object,
                ordering,
                participants: participants.clone(),
                linkage,
                column: Box::new(Column {
                    pieces: vec![Piece { range: BlockRange::new(5, 1), content: Content::Hole }],
                    sends: [Sent::Old, Sent::New, Sent::Change].map(sending).into(),
                    parity: vec![
                        rows(Base::Old, participants.clone(), vec![]),
                        rows(Base::Zeros, vec![], pieces.clone()),
                    ],
                }),
            },
            &format!(
                "0c {TRANSACTION} {STAMP} {OBJECT} 01 02000000 0200 0301 1000000000000000 1200000000000000 \
                 01000000 0500000000000000 0100000000000000 01 \
                 03000000 {SENDING} 01 {SENDING} 02 {SENDING} 03 \
                 02000000 0400000000000000 0200000000000000 01 02000000 0200 0301 00000000 \
                 0400000000000000 0200000000000000 02 00000000 {pieces_hex}"
            ),
        ),
        request(Command::Retract { transaction, stamp }, &format!("0b {TRANSACTION} {STAMP}")),
        request(Command::Resolve { transaction, stamp }, &format!("06 {TRANSACTION} {STAMP}")),
        request(Command::Forget { transaction }, &format!("07 {TRANSACTION}")),
        task(
            Task::CreateObject {
                object,
                first: 32,
                blocks: 256,
                ordering,
                redundant: true,
                atomicity: Atomicity::Implied,
                absent: 16,
            },
            &format!("01 {OBJECT} 2000000000000000 0001000000000000 01 01 01 1000000000000000"),
        ),
        task(Task::ListAbsent { object, from: 16 }, &format!("09 {OBJECT} 1000000000000000")),
        task(
            Task::ListAllocated { object, range: BlockRange::new(4, 2) },
            &format!("0a {OBJECT} 0400000000000000 0200000000000000"),
        ),
        task(
            Task::ResizeObject { object, range: BlockRange::new(16, 4), absent: BlockRange::new(18, 1) },
            &format!("0b {OBJECT} 1000000000000000 0400000000000000 1200000000000000 0100000000000000"),
        ),
        task(Task::RemoveObject { object }, &format!("02 {OBJECT}")),
        task(Task::ListObjects, "03"),
        task(Task::Flush, "04"),
        task(
            Task::ListMissed { device: DeviceId(0x0103), object, from: 16 },
            &format!("08 0301 {OBJECT} 1000000000000000"),
        ),
        task(Task::Inspect, "06"),
        task(Task::SetOrdering { object, ordering: Ordering::None }, &format!("07 {OBJECT} 02")),
        answer(
            Reply::Heartbeat {
                orphans: vec![Orphan { transaction, stamp, participants: participants.clone() }],
                suspects: vec![],
                busy: false,
            },
            &format!("01 01000000 {TRANSACTION} {STAMP} 02000000 0200 0301 00000000 00"),
        ),
        answer(
            Reply::Heartbeat {
                orphans: vec![],
                suspects: vec![
                    Suspect { transaction, object, blocks: SuspectBlocks::Written(Linkage { first: 7, last: 9 }) },
                    Suspect { transaction, object, blocks: SuspectBlocks::Announced(BlockRange::new(4, 2)) },
                ],
                busy: true,
            },
            &format!(
                "01 00000000 02000000 {TRANSACTION} {OBJECT} 01 0700000000000000 0900000000000000 \
                 {TRANSACTION} {OBJECT} 02 0400000000000000 0200000000000000 01"
            ),
        ),
        answer(data(true, pieces.clone()), &format!("02 {TRANSACTION} 01 {pieces_hex}")),
        answer(
            data(false, single(Content::Header { transaction, linkage })),
            &format!(
                "02 {TRANSACTION} 00 01000000 0400000000000000 0200000000000000 04 {TRANSACTION} 1000000000000000 1200000000000000"
            ),
        ),
        answer(Reply::Accepted { transaction, waited: false }, &format!("03 {TRANSACTION} 00")),
        answer(Reply::Written { transaction, waited: false }, &format!("04 {TRANSACTION} 00")),
        answer(Reply::Executing { transaction, progress: Progress::Waiting }, &format!("0f {TRANSACTION} 01")),
        answer(
            Reply::Executing { transaction, progress: Progress::Gathering { missing: participants } },
            &format!("0f {TRANSACTION} 02 02000000 0200 0301"),
        ),
        Golden {
            message: Message::Partial(Partial { epoch: Epoch(3), transaction, object, pieces }),
            description: format!("07 03000000 {TRANSACTION} {OBJECT} {pieces_hex}"),
        },
        answer(Reply::Blocked { transaction }, &format!("07 {TRANSACTION}")),
        answer(Reply::Decided { transaction, outcome: Outcome::Abort }, &format!("08 {TRANSACTION} 02")),
        answer(Reply::Forgotten { transaction }, &format!("0a {TRANSACTION}")),
        managed(Ok(Managed::Done), "01 01"),
        managed(
            Ok(Managed::Objects(vec![ObjectDescription {
                object,
                first: 32,
                blocks: 256,
                ordering: Ordering::None,
                redundant: false,
                atomicity: Atomicity::Consistent,
            }])),
            &format!("01 02 01000000 {OBJECT} 2000000000000000 0001000000000000 02 00 02"),
        ),
        managed(
            Ok(Managed::Inspected(Inspection { counters: vec![("größe".into(), 5)] })),
            "01 03 01000000 07000000 6772c3b6c39f65 0500000000000000",
        ),
        managed(
            Ok(Managed::Missed { extents: vec![BlockRange::new(4, 2)], next: Some(16) }),
            &format!("01 04 {RANGES} 01 1000000000000000"),
        ),
        managed(Ok(Managed::Missed { extents: vec![], next: None }), "01 04 00000000 00"),
        managed(
            Ok(Managed::Extents { extents: vec![BlockRange::new(4, 2)], next: Some(16) }),
            &format!("01 05 {RANGES} 01 1000000000000000"),
        ),
        answer(
            data(false, single(Content::Lost)),
            &format!("02 {TRANSACTION} 00 01000000 0400000000000000 0200000000000000 05"),
        ),
        managed(Err(Failure::NoSpace), "02 04"),
        answer(Reply::Rejected { rejection: Rejection::Fenced }, "0c 01"),
        answer(Reply::Rejected { rejection: Rejection::WrongEpoch { current: Epoch(4) } }, "0c 02 04000000"),
        answer(Reply::Rejected { rejection: Rejection::TooManyHosts }, "0c 03"),
    ];
    let seen = Stamp { clock: Clock(2), host: Generation(1) };
    for (step, step_hex, refusal, hex) in [
        (Step::Read, "01", Refusal::TooLate { seen }, "01 0200000000000000 01000000"),
        (Step::Prewrite, "02", Refusal::TooFarAhead { clock: Clock(2) }, "02 0200000000000000"),
        (Step::Write, "03", Refusal::NoPrewrite, "03"),
        (Step::Prewrite, "02", Refusal::Busy, "04"),
        (Step::Read, "01", Refusal::LockTimeout, "05"),
        (Step::Prewrite, "02", Refusal::Suspect, "06"),
        (Step::Execute, "04", Refusal::Busy, "04"),
    ] {
        let reply = Reply::Refused { transaction, step, refusal };
        all.push(answer(reply, &format!("05 {TRANSACTION} {step_hex} {hex}")));
    }
    for (failure, hex) in [
        (Failure::NoSuchObject, "01"),
        (Failure::ObjectExists, "02"),
        (Failure::OutOfRange, "03"),
        (Failure::NoSpace, "04"),
        (Failure::Lost { block: 3 }, "05 0300000000000000"),
        (Failure::Disk, "06"),
        (Failure::WrongOrdering, "07"),
        (Failure::Malformed, "08"),
        (Failure::InUse, "09"),
        (Failure::Busy, "0a"),
        (Failure::Absent, "0b"),
    ] {
        let reply = Reply::Failed { transaction, step: Step::Write, failure };
        all.push(answer(reply, &format!("06 {TRANSACTION} 03 {hex}")));
    }
    for (vote, hex) in [
        (Vote::Prepared, "01"),
        (Vote::Committed, "02"),
        (Vote::NeverPrepared, "03"),
        (Vote::TooFarAhead { clock: Clock(2) }, "04 0200000000000000"),
    ] {
        all.push(answer(Reply::Vote { transaction, vote }, &format!("09 {TRANSACTION} {hex}")));
    }
    all.extend(locking(object));
    all.extend(monitoring());
    all.extend(objects());
    all.extend(files());
    all.extend(shards());
    all
}

/// Messages of the monitor.
fn monitoring() -> Vec<Golden> {
    let (sent, sent_hex) = (Time(0x0102_0304_0506_0708), "0807060504030201");
    let member = |device, member_state, since| Member { device: DeviceId(device), member_state, since: Epoch(since) };
    let helped = MemberState::Returning { recovery_coordinator: Some(Generation(7)) };
    let members = vec![
        member(2, MemberState::In, 1),
        member(3, MemberState::Returning { recovery_coordinator: None }, 8),
        member(4, helped, 9),
        member(0x0103, MemberState::Out, 9),
    ];
    let members_hex = "04000000 \
        0200 01 01000000 0300 02 00 08000000 0400 02 01 07000000 09000000 0301 03 09000000";
    let except = [Generation(3), Generation(4)].into();
    let fence = FenceTable { below: Generation(5), except, also: [Generation(8)].into() };
    let fence_hex = "05000000 02000000 03000000 04000000 01000000 08000000";
    let membership = Some(Membership { epoch: Epoch(9), members, fence });
    let changed = MonitorAnswer { membership, unavailable: vec![], reply: MonitorReply::Changed };
    let changed_hex = format!("06 01 09000000 {members_hex} {fence_hex} 00000000 03");
    let mut all = vec![
        monitor_request(
            MonitorCommand::Renew {
                sent,
                silent: vec![DeviceId(2), DeviceId(0x0103)],
                disk: None,
                bad_slots: 0,
                failing: false,
                undecided: vec![],
                stamps: Clock(0),
            },
            &format!("01 {sent_hex} 02000000 0200 0301 00 00000000 00 00000000 0000000000000000"),
        ),
        monitor_request(
            MonitorCommand::Renew {
                sent,
                silent: vec![],
                disk: Some(DiskId(9)),
                bad_slots: 3,
                failing: true,
                undecided: vec![Generation(3)],
                stamps: Clock(7),
            },
            &format!("01 {sent_hex} 00000000 01 0900000000000000 03000000 01 01000000 03000000 0700000000000000"),
        ),
        monitor_request(
            MonitorCommand::Healing { device: DeviceId(2), progress: HealingProgress { done: 4, left: 5, lost: 6 } },
            "04 0200 0400000000000000 0500000000000000 0600000000000000",
        ),
        monitor_request(
            MonitorCommand::Fence {
                ticket: 6,
                below: Generation(5),
                except: vec![Generation(3)],
                also: vec![Generation(8)],
            },
            &format!("02 {TICKET} 05000000 01000000 03000000 01000000 08000000"),
        ),
        monitor_request(MonitorCommand::Resynchronised { device: DeviceId(2), since: Epoch(9) }, "03 0200 09000000"),
        monitor_answer(
            MonitorReply::Lease {
                sent,
                length: Duration::from_nanos(7),
                throttle: RecoveryThrottle { bytes_per_second: 5, share: 9, paused: true },
                stamps: Clock(8),
            },
            &format!("01 {sent_hex} 0700000000000000 0500000000000000 09 01 0800000000000000"),
        ),
        monitor_answer(
            MonitorReply::JoinRefused(JoinRefused::OtherDisk { expected: DiskId(9) }),
            "04 01 0900000000000000",
        ),
        monitor_answer(MonitorReply::JoinRefused(JoinRefused::Used { epoch: Epoch(4) }), "04 02 04000000"),
        monitor_answer(MonitorReply::Administered { ticket: 6, result: Ok(()) }, &format!("05 {TICKET} 01")),
        monitor_answer(MonitorReply::Fenced { ticket: 6 }, &format!("02 {TICKET}")),
        Golden { message: Message::MonitorAnswer(changed), description: changed_hex },
    ];
    let (device, disk, blocks) = (DeviceId(2), DiskId(9), 16);
    for (request, hex) in [
        (Administration::Fail { device }, "01 0200"),
        (Administration::Readmit { device }, "02 0200"),
        (Administration::Replace { device, disk, blocks, lose: true }, "03 0200 0900000000000000 1000000000000000 01"),
        (Administration::AddSpare { disk, blocks }, "04 0900000000000000 1000000000000000"),
        (Administration::RemoveSpare { disk }, "05 0900000000000000"),
        (
            Administration::RecoveryThrottle(RecoveryThrottle { bytes_per_second: 5, share: 7, paused: false }),
            "06 0500000000000000 07 00",
        ),
        (Administration::AddDevice { device, disk }, "07 0200 0900000000000000"),
        (Administration::RemoveDevice { device }, "08 0200"),
    ] {
        let command = MonitorCommand::Administer { ticket: 6, request };
        all.push(monitor_request(command, &format!("05 {TICKET} {hex}")));
    }
    for (admin_error, hex) in [
        (AdminError::NoSuchDevice, "01"),
        (AdminError::NeedsOthers { others: vec![DeviceId(2)] }, "02 01000000 0200"),
        (AdminError::NothingGained, "03"),
        (AdminError::DiskInUse { device }, "04 0200"),
        (AdminError::TooSmall { blocks: 4, needed: 5 }, "05 0400000000000000 0500000000000000"),
        (AdminError::WouldLose { volume: VolumeId(3) }, "06 0300000000000000"),
        (AdminError::TooManySpares, "07"),
        (AdminError::NoSuchSpare, "08"),
        (AdminError::TooManyChanges, "09"),
        (AdminError::DeviceExists { device }, "0a 0200"),
        (AdminError::TooManyDevices, "0b"),
        (AdminError::HoldsVolume { volume: VolumeId(3) }, "0c 0300000000000000"),
    ] {
        let reply = MonitorReply::Administered { ticket: 6, result: Err(admin_error) };
        all.push(monitor_answer(reply, &format!("05 {TICKET} 02 {hex}")));
    }
    all.extend(ownership());
    all
}

/// Messages about the ownership of file systems.
fn ownership() -> Vec<Golden> {
    let owned = Ownership { since: Epoch(7), owner: Some(Generation(3)) };
    let requests = [
        (OwnershipRequest::Inquire, "01"),
        (OwnershipRequest::TakeOver { from: owned }, "02 07000000 01 03000000"),
        (OwnershipRequest::TakeOver { from: Ownership { owner: None, ..owned } }, "02 07000000 00"),
        (OwnershipRequest::Release { since: Epoch(7) }, "03 07000000"),
    ];
    let requests = requests.map(|(request, hex)| {
        let command = MonitorCommand::Ownership { ticket: 6, file_system: FileSystemId(9), request };
        monitor_request(command, &format!("06 {TICKET} 0900 {hex}"))
    });
    let answers = [
        (Ok(owned), "01 07000000 01 03000000"),
        (Err(OwnershipRefused::Differs(owned)), "02 01 07000000 01 03000000"),
        (Err(OwnershipRefused::Fenced), "02 02"),
        (Err(OwnershipRefused::TooManyFileSystems), "02 03"),
    ];
    let answers = answers.map(|(result, hex)| {
        monitor_answer(MonitorReply::Ownership { ticket: 6, result }, &format!("06 {TICKET} {hex}"))
    });
    requests.into_iter().chain(answers).collect()
}

fn monitor_request(command: MonitorCommand, hex: &str) -> Golden {
    let message = Message::MonitorRequest(MonitorRequest { epoch: Epoch(3), command });
    Golden { message, description: format!("{MONITOR_REQUEST} {hex}") }
}

fn monitor_answer(reply: MonitorReply, hex: &str) -> Golden {
    let message = Message::MonitorAnswer(MonitorAnswer { membership: None, unavailable: vec![DeviceId(2)], reply });
    Golden { message, description: format!("{MONITOR_ANSWER} {hex}") }
}

/// Messages of lock servers.
fn locking(object: ObjectId) -> Vec<Golden> {
    let extents = vec![
        LockExtent { position: 3, range: BlockRange::new(4, 2), mode: LockMode::Exclusive },
        LockExtent { position: 4, range: BlockRange::new(4, 1), mode: LockMode::Shared },
    ];
    let extents_hex =
        "02000000 0300 0400000000000000 0200000000000000 02 0400 0400000000000000 0100000000000000 01".to_string();
    let lock_id = "0600000000000000";
    let mut all = vec![
        lock_request(LockCommand::Heartbeat, "01"),
        lock_request(LockCommand::Unlock { lock_id: 6 }, &format!("03 {lock_id}")),
        lock_request(LockCommand::Yield { lock_ids: vec![6] }, &format!("04 01000000 {lock_id}")),
        lock_answer(LockReply::Heartbeat, "01"),
        lock_answer(LockReply::Granted { lock_id: 6, waited: true }, &format!("02 {lock_id} 01")),
        lock_answer(LockReply::Unlocked { lock_id: 6 }, &format!("03 {lock_id}")),
        lock_answer(LockReply::Revoke { lock_ids: vec![6] }, &format!("04 01000000 {lock_id}")),
        lock_answer(LockReply::Rejected { rejection: Rejection::Fenced }, "06 01"),
    ];
    for (term, hex) in [
        (LockTerm::Transaction { impatient: true }, "01 01"),
        (LockTerm::Cached, "02"),
        (LockTerm::Held { start: Generation(9), cached: false }, "03 09000000 00"),
    ] {
        let command = LockCommand::Lock { lock_id: 6, object, extents: extents.clone(), term };
        all.push(lock_request(command, &format!("02 {lock_id} {OBJECT} {extents_hex} {hex}")));
    }
    let command = LockCommand::LockOver { lock_id: 6, object, extents: extents.clone(), over: vec![6] };
    all.push(lock_request(command, &format!("05 {lock_id} {OBJECT} {extents_hex} 01000000 {lock_id}")));
    for (refusal, hex) in [(LockRefusal::Timeout, "01"), (LockRefusal::Busy, "02"), (LockRefusal::Malformed, "03")] {
        all.push(lock_answer(LockReply::Refused { lock_id: 6, refusal }, &format!("05 {lock_id} {hex}")));
    }
    all
}

fn lock_request(command: LockCommand, hex: &str) -> Golden {
    let (host, start) = (Generation(7), Generation(5));
    let message = Message::LockRequest(LockRequest { host, start, dropped: vec![11], command });
    Golden { message, description: format!("{LOCK_REQUEST} {hex}") }
}

fn lock_answer(reply: LockReply, hex: &str) -> Golden {
    let message = Message::LockAnswer(LockAnswer { start: Generation(5), reply });
    Golden { message, description: format!("{LOCK_ANSWER} {hex}") }
}

pub fn request(command: Command, hex: &str) -> Golden {
    let (host, epoch, over, commits) = (Generation(7), Epoch(3), vec![6], vec![11, 12]);
    let message = Message::Request(Request { host, epoch, settled: 5, over, commits, command });
    Golden { message, description: format!("{REQUEST} {hex}") }
}

fn task(task: Task, hex: &str) -> Golden {
    request(Command::Manage { ticket: 6, task }, &format!("08 {TICKET} {hex}"))
}

pub fn answer(reply: Reply, hex: &str) -> Golden {
    let message = Message::Answer(Answer { epoch: Epoch(3), confirmed: vec![11], reply });
    Golden { message, description: format!("{ANSWER} {hex}") }
}

fn managed(result: Result<Managed, Failure>, hex: &str) -> Golden {
    answer(Reply::Managed { ticket: 6, result }, &format!("0b {TICKET} {hex}"))
}

#[test]
fn every_choice_has_the_bytes_that_are_written_down() {
    for golden in goldens() {
        let encoded = golden.encode();
        let expected = hex(&golden.description);
        assert_eq!(digits(&encoded.head[64..]), digits(&expected), "{:?}", golden.message);
        let decoded = Frame::decode(seal(&expected, &encoded.payload.concat()));
        assert_eq!(decoded.map(|frame| frame.message), Ok(golden.message));
    }
}

#[test]
fn whole_frames_have_the_bytes_that_are_written_down() {
    let array = "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf";
    let (host, device) = ("01000000 07000000", "02000000 02000000");
    let header = |bytes: &str, from: &str, to: &str, crc: &str| {
        format!("42524144 0c00 0000 {bytes} {array} {from} {to} 0000000000000000 {crc} 00000000")
    };
    let all = goldens();
    let written = all.iter().position(|golden| golden.description == format!("{ANSWER} 04 {TRANSACTION} 00"));
    let with_data = all.iter().position(|golden| !golden.encode().payload.is_empty());
    for (index, header) in [
        (0, header("32000000 00000000", host, device, "16f5cbf6")),
        (written.expect("an answer"), header("1f000000 00000000", device, host, "ef6d01a3")),
        (with_data.expect("a write"), header("a7000000 00100000", host, device, "579bc712")),
    ] {
        let golden = &all[index];
        let payload = golden.encode().payload.concat();
        let expected = [hex(&header), hex(&golden.description), payload].concat();
        assert_eq!(digits(&golden.frame()), digits(&expected), "{:?}", golden.message);
        assert_eq!(Frame::decode(expected.into()).map(|frame| frame.message).as_ref(), Ok(&golden.message));
    }
}

/// Each enum has the variants above and no others. A new variant makes this test fail, which points to the page that must describe it.
#[test]
fn a_byte_that_is_no_choice_is_refused_by_name() {
    let manage = format!("{REQUEST} 08 {TICKET}");
    let piece = format!("{ANSWER} 02 {TRANSACTION} 00 01000000 0000000000000000 0000000000000000");
    let places = [
        ("Message", String::new(), 10),
        ("Command", REQUEST.into(), 12),
        ("Want", format!("{REQUEST} 02 {TRANSACTION} {STAMP} {OBJECT} 01 00000000"), 4),
        ("WriteMode", format!("{REQUEST} 04 {TRANSACTION} {STAMP} {OBJECT} 01 00000000 {OBJECT} {OBJECT}"), 2),
        ("Outcome", format!("{REQUEST} 05 {TRANSACTION} {STAMP}"), 3),
        ("Task", manage.clone(), 11),
        ("Ordering", format!("{manage} 01 {OBJECT} {OBJECT} {OBJECT}"), 5),
        ("Atomicity", format!("{manage} 01 {OBJECT} {OBJECT} {OBJECT} 01 01"), 2),
        (
            "Sent",
            format!(
                "{REQUEST} 0c {TRANSACTION} {STAMP} {OBJECT} 01 00000000 {OBJECT} {OBJECT} 00000000 01000000 {SENDING}"
            ),
            3,
        ),
        (
            "Base",
            format!(
                "{REQUEST} 0c {TRANSACTION} {STAMP} {OBJECT} 01 00000000 {OBJECT} {OBJECT} 00000000 00000000 {RANGES}"
            ),
            2,
        ),
        ("SuspectBlocks", format!("{ANSWER} 01 00000000 01000000 {TRANSACTION} {OBJECT}"), 2),
        ("Reply", ANSWER.into(), 15),
        ("Progress", format!("{ANSWER} 0f {TRANSACTION}"), 2),
        ("content", piece, 5),
        ("Step", format!("{ANSWER} 05 {TRANSACTION}"), 4),
        ("Refusal", format!("{ANSWER} 05 {TRANSACTION} 01"), 6),
        ("Failure", format!("{ANSWER} 06 {TRANSACTION} 01"), 11),
        ("Vote", format!("{ANSWER} 09 {TRANSACTION}"), 4),
        ("result", format!("{ANSWER} 0b {TICKET}"), 2),
        ("Managed", format!("{ANSWER} 0b {TICKET} 01"), 5),
        ("Rejection", format!("{ANSWER} 0c"), 3),
        ("When", format!("{REQUEST} 09 {TICKET} 00000000 01000000 {OBJECT}"), 3),
        ("Action", format!("{REQUEST} 09 {TICKET} 00000000 01000000 {OBJECT} 01"), 13),
        ("Undefined", format!("{REQUEST} 09 {TICKET} 00000000 01000000 {OBJECT} 01 0a {TICKET} 00000000 00000000"), 2),
        ("result", format!("{ANSWER} 0d {TICKET}"), 2),
        ("ActionResult", format!("{ANSWER} 0d {TICKET} 01 01000000"), 10),
        ("ObjectFailure", format!("{ANSWER} 0e {TICKET} 02"), 16),
        ("FileCommand", FILE_REQUEST.into(), 17),
        ("NewInode", format!("{FILE_REQUEST} 06 {OBJECT} 01000000 61"), 4),
        ("NewTime", format!("{FILE_REQUEST} 0b {OBJECT} 00 00 00 01"), 2),
        ("result", FILE_ANSWER.into(), 2),
        ("FileResult", format!("{FILE_ANSWER} 01"), 13),
        ("FileType", format!("{FILE_ANSWER} 01 02 {OBJECT}"), 4),
        ("SpecialType", format!("{FILE_ANSWER} 01 02 {OBJECT} 04"), 4),
        ("FileError", format!("{FILE_ANSWER} 02"), 22),
        ("ShardBody", "0a 01".into(), 5),
        ("ShardQuestion", format!("0a 01 02 05000000 {TICKET}"), 4),
        ("ShardReply", format!("0a 01 03 05000000 {TICKET} 01"), 3),
        ("LockCommand", LOCK_REQUEST.into(), 5),
        ("LockTerm", format!("{LOCK_REQUEST} 02 {TICKET} {OBJECT} 00000000"), 3),
        ("LockMode", format!("{LOCK_REQUEST} 02 {TICKET} {OBJECT} 01000000 0300 {OBJECT} {OBJECT}"), 2),
        ("LockReply", LOCK_ANSWER.into(), 6),
        ("LockRefusal", format!("{LOCK_ANSWER} 05 {TICKET}"), 3),
        ("MonitorCommand", MONITOR_REQUEST.into(), 6),
        ("OwnershipRequest", format!("{MONITOR_REQUEST} 06 {TICKET} 0900"), 3),
        ("MonitorReply", MONITOR_ANSWER.into(), 6),
        ("OwnershipRefused", format!("{MONITOR_ANSWER} 06 {TICKET} 02"), 3),
        ("MemberState", "06 01 09000000 01000000 0200".into(), 3),
    ];
    for (what, before, choices) in places {
        for byte in 0..=255 {
            let decoded = Frame::decode(seal(&[&hex(&before)[..], &[byte]].concat(), &[]));
            let abandoned = what == "Task" && byte == 5;
            let known = (1..=choices).contains(&byte) && !abandoned;
            assert_eq!(decoded != Err(WireError::BadValue { what }), known, "{what} {byte}: {decoded:?}");
        }
    }
}

pub fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
    assert!(digits.len().is_multiple_of(2), "two digits a byte");
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
