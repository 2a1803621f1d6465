//! Strategies that generate arbitrary messages: one for each type.

use crate::{any_files, any_objects};
use braid_base::{
    ArrayId, BLOCK_BYTES, BlockRange, Clock, DeviceId, DiskId, Epoch, FenceTable, FileSystemId, Generation,
    LockServerId, Member, MemberState, Membership, NodeId, ObjectId, Ownership, Stamp, Time, TransactionId, VolumeId,
};
use braid_blocks::*;
use braid_ordering::{Atomicity, Ordering, WriteMode};
use braid_wire::*;
use bytes::Bytes;
use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;
use std::time::Duration;

pub fn frame() -> impl Strategy<Value = Frame> {
    (any::<[u8; 16]>(), node(), node(), message()).prop_map(|(array, from, to, message)| Frame {
        array: ArrayId(array),
        from,
        to,
        message,
    })
}

pub fn message() -> impl Strategy<Value = Message> {
    let request = (generation(), epoch(), number(), vec(number(), 0..5), vec(number(), 0..5), command()).prop_map(
        |(host, epoch, settled, over, commits, command)| {
            Message::Request(Request { host, epoch, settled, over, commits, command })
        },
    );
    let answer = (epoch(), vec(number(), 0..5), reply())
        .prop_map(|(epoch, confirmed, reply)| Message::Answer(Answer { epoch, confirmed, reply }));
    let monitor = prop_oneof![monitor_request(), monitor_answer()];
    let partial = (epoch(), transaction(), object(), pieces()).prop_map(|(epoch, transaction, object, pieces)| {
        Message::Partial(Partial { epoch, transaction, object, pieces })
    });
    prop_oneof![4 => request, 4 => answer, 1 => lock_request(), 1 => lock_answer(), 2 => monitor, 1 => partial, 3 => any_files::message()]
}

fn lock_request() -> impl Strategy<Value = Message> {
    let term = prop_oneof![
        any::<bool>().prop_map(|impatient| LockTerm::Transaction { impatient }),
        Just(LockTerm::Cached),
        (generation(), any::<bool>()).prop_map(|(start, cached)| LockTerm::Held { start, cached }),
    ];
    let mode = prop_oneof![Just(LockMode::Shared), Just(LockMode::Exclusive)];
    let extent = (any::<u16>(), range(), mode).prop_map(|(position, range, mode)| LockExtent { position, range, mode });
    let extents = vec(extent, 0..5).boxed();
    let command = prop_oneof![
        Just(LockCommand::Heartbeat),
        (number(), object(), extents.clone(), vec(number(), 0..5))
            .prop_map(|(lock_id, object, extents, over)| LockCommand::LockOver { lock_id, object, extents, over }),
        (number(), object(), extents, term).prop_map(|(lock_id, object, extents, term)| LockCommand::Lock {
            lock_id,
            object,
            extents,
            term
        }),
        number().prop_map(|lock_id| LockCommand::Unlock { lock_id }),
        vec(number(), 0..5).prop_map(|lock_ids| LockCommand::Yield { lock_ids }),
    ];
    (generation(), generation(), vec(number(), 0..5), command)
        .prop_map(|(host, start, dropped, command)| Message::LockRequest(LockRequest { host, start, dropped, command }))
}

fn lock_answer() -> impl Strategy<Value = Message> {
    let refusal = prop_oneof![Just(LockRefusal::Timeout), Just(LockRefusal::Busy), Just(LockRefusal::Malformed)];
    let reply = prop_oneof![
        Just(LockReply::Heartbeat),
        (number(), any::<bool>()).prop_map(|(lock_id, waited)| LockReply::Granted { lock_id, waited }),
        number().prop_map(|lock_id| LockReply::Unlocked { lock_id }),
        vec(number(), 0..5).prop_map(|lock_ids| LockReply::Revoke { lock_ids }),
        (number(), refusal).prop_map(|(lock_id, refusal)| LockReply::Refused { lock_id, refusal }),
        rejection().prop_map(|rejection| LockReply::Rejected { rejection }),
    ];
    (generation(), reply).prop_map(|(start, reply)| Message::LockAnswer(LockAnswer { start, reply }))
}

fn monitor_request() -> impl Strategy<Value = Message> {
    let command = prop_oneof![
        (time(), vec(device(), 0..5), prop::option::of(disk()), vec(generation(), 0..5), number()).prop_map(
            |(sent, silent, disk, undecided, stamps)| {
                MonitorCommand::Renew {
                    sent,
                    silent,
                    disk,
                    bad_slots: disk.map_or(0, |disk| disk.0 as u32),
                    failing: disk.is_some_and(|disk| disk.0 % 2 == 1),
                    undecided,
                    stamps: Clock(stamps),
                }
            }
        ),
        (device(), number(), number(), number()).prop_map(|(device, done, left, lost)| MonitorCommand::Healing {
            device,
            progress: HealingProgress { done, left, lost }
        }),
        (number(), administration()).prop_map(|(ticket, request)| MonitorCommand::Administer { ticket, request }),
        (number(), any::<u16>(), ownership_request()).prop_map(|(ticket, file_system, request)| {
            MonitorCommand::Ownership { ticket, file_system: FileSystemId(file_system), request }
        }),
        (number(), generation(), vec(generation(), 0..5), vec(generation(), 0..5))
            .prop_map(|(ticket, below, except, also)| MonitorCommand::Fence { ticket, below, except, also }),
        (device(), epoch()).prop_map(|(device, since)| MonitorCommand::Resynchronised { device, since }),
    ];
    (epoch(), command).prop_map(|(epoch, command)| Message::MonitorRequest(MonitorRequest { epoch, command }))
}

fn monitor_answer() -> impl Strategy<Value = Message> {
    let reply = prop_oneof![
        (time(), any::<u64>(), throttle(), number()).prop_map(|(sent, length, throttle, stamps)| {
            MonitorReply::Lease { sent, length: Duration::from_nanos(length), throttle, stamps: Clock(stamps) }
        }),
        disk().prop_map(|expected| MonitorReply::JoinRefused(JoinRefused::OtherDisk { expected })),
        epoch().prop_map(|epoch| MonitorReply::JoinRefused(JoinRefused::Used { epoch })),
        (number(), prop::option::of(admin_error())).prop_map(|(ticket, admin_error)| MonitorReply::Administered {
            ticket,
            result: admin_error.map_or(Ok(()), Err)
        }),
        number().prop_map(|ticket| MonitorReply::Fenced { ticket }),
        (number(), ownership(), prop::option::of(ownership_refused())).prop_map(|(ticket, ownership, refused)| {
            MonitorReply::Ownership { ticket, result: refused.map_or(Ok(ownership), Err) }
        }),
        Just(MonitorReply::Changed),
    ];
    (prop::option::of(membership()), vec(device(), 0..5), reply).prop_map(|(membership, unavailable, reply)| {
        Message::MonitorAnswer(MonitorAnswer { membership, unavailable, reply })
    })
}

fn disk() -> impl Strategy<Value = DiskId> {
    any::<u64>().prop_map(DiskId)
}

fn throttle() -> impl Strategy<Value = RecoveryThrottle> {
    (number(), any::<u8>(), any::<bool>()).prop_map(|(bytes_per_second, share, paused)| RecoveryThrottle {
        bytes_per_second,
        share,
        paused,
    })
}

fn administration() -> impl Strategy<Value = Administration> {
    prop_oneof![
        device().prop_map(|device| Administration::Fail { device }),
        device().prop_map(|device| Administration::Readmit { device }),
        (device(), disk(), number(), any::<bool>()).prop_map(|(device, disk, blocks, lose)| Administration::Replace {
            device,
            disk,
            blocks,
            lose
        }),
        (disk(), number()).prop_map(|(disk, blocks)| Administration::AddSpare { disk, blocks }),
        disk().prop_map(|disk| Administration::RemoveSpare { disk }),
        throttle().prop_map(Administration::RecoveryThrottle),
        (device(), disk()).prop_map(|(device, disk)| Administration::AddDevice { device, disk }),
        device().prop_map(|device| Administration::RemoveDevice { device }),
    ]
}

fn ownership() -> impl Strategy<Value = Ownership> {
    (epoch(), prop::option::of(generation())).prop_map(|(since, owner)| Ownership { since, owner })
}

fn ownership_request() -> impl Strategy<Value = OwnershipRequest> {
    prop_oneof![
        Just(OwnershipRequest::Inquire),
        ownership().prop_map(|from| OwnershipRequest::TakeOver { from }),
        epoch().prop_map(|since| OwnershipRequest::Release { since }),
    ]
}

fn ownership_refused() -> impl Strategy<Value = OwnershipRefused> {
    prop_oneof![
        ownership().prop_map(OwnershipRefused::Differs),
        Just(OwnershipRefused::Fenced),
        Just(OwnershipRefused::TooManyFileSystems),
    ]
}

fn admin_error() -> impl Strategy<Value = AdminError> {
    prop_oneof![
        Just(AdminError::NoSuchDevice),
        vec(device(), 0..5).prop_map(|others| AdminError::NeedsOthers { others }),
        Just(AdminError::NothingGained),
        device().prop_map(|device| AdminError::DiskInUse { device }),
        (number(), number()).prop_map(|(blocks, needed)| AdminError::TooSmall { blocks, needed }),
        number().prop_map(|volume| AdminError::WouldLose { volume: VolumeId(volume) }),
        Just(AdminError::TooManySpares),
        Just(AdminError::NoSuchSpare),
        Just(AdminError::TooManyChanges),
        device().prop_map(|device| AdminError::DeviceExists { device }),
        Just(AdminError::TooManyDevices),
        number().prop_map(|volume| AdminError::HoldsVolume { volume: VolumeId(volume) }),
    ]
}

/// A membership that a monitor may create: each device once, present since some epoch up to this one.
fn membership() -> impl Strategy<Value = Membership> {
    let member_state = prop_oneof![
        Just(MemberState::In),
        prop::option::of((1..=u32::MAX).prop_map(Generation))
            .prop_map(|recovery_coordinator| MemberState::Returning { recovery_coordinator }),
        Just(MemberState::Out),
    ];
    let members = btree_map(device(), (member_state, any::<u32>()), 0..6);
    let hosts = || btree_set(generation(), 0..5);
    (epoch(), members, generation(), hosts(), hosts()).prop_map(|(epoch, members, below, except, also)| {
        let member = |(device, (member_state, since))| Member { device, member_state, since: epoch.min(Epoch(since)) };
        let fence = FenceTable { below, except, also };
        Membership { epoch, members: members.into_iter().map(member).collect(), fence }
    })
}

fn command() -> impl Strategy<Value = Command> {
    let read = (
        transaction(),
        stamp(),
        object(),
        ordering(),
        ranges(),
        prop::sample::select(vec![Want::Data, Want::Allocation, Want::Linkage, Want::Salvage]),
    )
        .prop_map(|(transaction, stamp, object, ordering, extents, want)| Command::Read {
            transaction,
            stamp,
            object,
            ordering,
            extents,
            want,
        });
    let prewrite = (transaction(), stamp(), object(), ordering(), ranges(), ranges()).prop_map(
        |(transaction, stamp, object, ordering, prewrites, reads)| Command::Prewrite {
            transaction,
            stamp,
            object,
            ordering,
            prewrites,
            reads,
        },
    );
    let write = (transaction(), stamp(), object(), ordering(), vec(device(), 0..5), linkage(), mode(), pieces())
        .prop_map(|(transaction, stamp, object, ordering, participants, linkage, mode, pieces)| Command::Write {
            transaction,
            stamp,
            object,
            ordering,
            participants,
            linkage,
            mode,
            pieces,
        });
    prop_oneof![
        Just(Command::Heartbeat),
        read,
        prewrite,
        write,
        (transaction(), stamp(), outcome()).prop_map(|(transaction, stamp, outcome)| Command::Decide {
            transaction,
            stamp,
            outcome
        }),
        (transaction(), stamp()).prop_map(|(transaction, stamp)| Command::Resolve { transaction, stamp }),
        (transaction(), stamp()).prop_map(|(transaction, stamp)| Command::Retract { transaction, stamp }),
        execute(),
        transaction().prop_map(|transaction| Command::Forget { transaction }),
        (number(), task()).prop_map(|(ticket, task)| Command::Manage { ticket, task }),
        (sequence(), any_objects::intervals(), any_objects::request())
            .prop_map(|(sequence, abandoned, request)| Command::Objects { sequence, abandoned, request }),
        (number(), object(), any_objects::name(), any_objects::value(), any::<u32>())
            .prop_map(|(ticket, object, name, seen, patience)| Command::Await { ticket, object, name, seen, patience }),
    ]
}

fn task() -> impl Strategy<Value = Task> {
    prop_oneof![
        (description(), number()).prop_map(|(description, absent)| {
            let ObjectDescription { object, first, blocks, ordering, redundant, atomicity } = description;
            Task::CreateObject { object, first, blocks, ordering, redundant, atomicity, absent }
        }),
        (object(), number()).prop_map(|(object, from)| Task::ListAbsent { object, from }),
        (object(), range()).prop_map(|(object, range)| Task::ListAllocated { object, range }),
        (object(), ordering()).prop_map(|(object, ordering)| Task::SetOrdering { object, ordering }),
        (object(), range(), range()).prop_map(|(object, range, absent)| Task::ResizeObject { object, range, absent }),
        object().prop_map(|object| Task::RemoveObject { object }),
        Just(Task::ListObjects),
        Just(Task::Flush),
        (device(), object(), number()).prop_map(|(device, object, from)| Task::ListMissed { device, object, from }),
        Just(Task::Inspect),
    ]
}

fn execute() -> impl Strategy<Value = Command> {
    let what = prop::sample::select(vec![Sent::Old, Sent::New, Sent::Change]);
    let sending =
        (0..1u64 << 40, 0..9u64, any::<u16>(), 0..1u64 << 40, what).prop_map(|(start, count, to, at, what)| Sending {
            blocks: BlockRange::new(start, count),
            to: DeviceId(to),
            at,
            what,
        });
    let base = prop::sample::select(vec![Base::Old, Base::Zeros]);
    let rows = (range(), base, devices(), pieces()).prop_map(|(blocks, base, from, own)| ParityRows {
        blocks,
        base,
        from,
        own,
    });
    let column = (pieces(), vec(sending, 0..4), vec(rows, 0..3)).prop_map(|(pieces, sends, parity)| Column {
        pieces,
        sends,
        parity,
    });
    (transaction(), stamp(), object(), ordering(), devices(), linkage(), column).prop_map(
        |(transaction, stamp, object, ordering, participants, linkage, column)| Command::Execute {
            transaction,
            stamp,
            object,
            ordering,
            participants,
            linkage,
            column: Box::new(column),
        },
    )
}

fn devices() -> impl Strategy<Value = Vec<DeviceId>> {
    vec(any::<u16>().prop_map(DeviceId), 0..5)
}

fn reply() -> impl Strategy<Value = Reply> {
    let progress = prop_oneof![Just(Progress::Waiting), devices().prop_map(|missing| Progress::Gathering { missing })];
    prop_oneof![
        (transaction(), progress).prop_map(|(transaction, progress)| Reply::Executing { transaction, progress }),
        (vec(orphan(), 0..4), vec(suspect(), 0..4), any::<bool>())
            .prop_map(|(orphans, suspects, busy)| Reply::Heartbeat { orphans, suspects, busy }),
        (transaction(), any::<bool>(), pieces()).prop_map(|(transaction, waited, pieces)| Reply::Data {
            transaction,
            waited,
            pieces
        }),
        (transaction(), any::<bool>()).prop_map(|(transaction, waited)| Reply::Accepted { transaction, waited }),
        (transaction(), any::<bool>()).prop_map(|(transaction, waited)| Reply::Written { transaction, waited }),
        (transaction(), step(), refusal()).prop_map(|(transaction, step, refusal)| Reply::Refused {
            transaction,
            step,
            refusal
        }),
        (transaction(), step(), failure()).prop_map(|(transaction, step, failure)| Reply::Failed {
            transaction,
            step,
            failure
        }),
        transaction().prop_map(|transaction| Reply::Blocked { transaction }),
        (transaction(), outcome()).prop_map(|(transaction, outcome)| Reply::Decided { transaction, outcome }),
        (transaction(), vote()).prop_map(|(transaction, vote)| Reply::Vote { transaction, vote }),
        transaction().prop_map(|transaction| Reply::Forgotten { transaction }),
        (number(), managed()).prop_map(|(ticket, managed)| Reply::Managed { ticket, result: Ok(managed) }),
        (number(), failure()).prop_map(|(ticket, failure)| Reply::Managed { ticket, result: Err(failure) }),
        rejection().prop_map(|rejection| Reply::Rejected { rejection }),
        (sequence(), any_objects::answer()).prop_map(|(sequence, answer)| Reply::Objects { sequence, answer }),
        (number(), any_objects::value()).prop_map(|(ticket, value)| Reply::Changed { ticket, value: Ok(value) }),
        (number(), any_objects::failure()).prop_map(|(ticket, failure)| Reply::Changed { ticket, value: Err(failure) }),
    ]
}

fn description() -> impl Strategy<Value = ObjectDescription> {
    (object(), number(), number(), ordering(), any::<bool>(), atomicity()).prop_map(
        |(object, first, blocks, ordering, redundant, atomicity)| ObjectDescription {
            object,
            first,
            blocks,
            ordering,
            redundant,
            atomicity,
        },
    )
}

fn managed() -> impl Strategy<Value = Managed> {
    prop_oneof![
        Just(Managed::Done),
        vec(description(), 0..5).prop_map(Managed::Objects),
        // At most 256 bytes, in characters of any length.
        vec(("\\PC{0,64}", number()), 0..5).prop_map(|counters| Managed::Inspected(Inspection { counters })),
        (ranges(), prop::option::of(number())).prop_map(|(extents, next)| Managed::Missed { extents, next }),
        (ranges(), prop::option::of(number())).prop_map(|(extents, next)| Managed::Extents { extents, next }),
    ]
}

fn refusal() -> impl Strategy<Value = Refusal> {
    prop_oneof![
        stamp().prop_map(|seen| Refusal::TooLate { seen }),
        number().prop_map(|clock| Refusal::TooFarAhead { clock: Clock(clock) }),
        Just(Refusal::NoPrewrite),
        Just(Refusal::Busy),
        Just(Refusal::LockTimeout),
        Just(Refusal::Suspect),
    ]
}

fn failure() -> impl Strategy<Value = Failure> {
    prop_oneof![
        Just(Failure::NoSuchObject),
        Just(Failure::ObjectExists),
        Just(Failure::OutOfRange),
        Just(Failure::NoSpace),
        number().prop_map(|block| Failure::Lost { block }),
        Just(Failure::Disk),
        Just(Failure::InUse),
        Just(Failure::Busy),
        Just(Failure::Absent),
        Just(Failure::WrongOrdering),
        Just(Failure::Malformed),
    ]
}

pub fn rejection() -> impl Strategy<Value = Rejection> {
    prop_oneof![
        Just(Rejection::Fenced),
        epoch().prop_map(|current| Rejection::WrongEpoch { current }),
        Just(Rejection::TooManyHosts),
    ]
}

fn suspect() -> impl Strategy<Value = Suspect> {
    let blocks = prop_oneof![linkage().prop_map(SuspectBlocks::Written), range().prop_map(SuspectBlocks::Announced),];
    (transaction(), object(), blocks).prop_map(|(transaction, object, blocks)| Suspect { transaction, object, blocks })
}

fn atomicity() -> impl Strategy<Value = Atomicity> {
    prop::sample::select(Atomicity::ALL.to_vec())
}

fn orphan() -> impl Strategy<Value = Orphan> {
    (transaction(), stamp(), vec(device(), 0..5)).prop_map(|(transaction, stamp, participants)| Orphan {
        transaction,
        stamp,
        participants,
    })
}

fn pieces() -> impl Strategy<Value = Vec<Piece>> {
    let piece = prop_oneof![
        range().prop_map(|range| Piece { range, content: Content::Hole }),
        range().prop_map(|range| Piece { range, content: Content::Present }),
        range().prop_map(|range| Piece { range, content: Content::Lost }),
        (range(), transaction(), linkage()).prop_map(|(range, transaction, linkage)| Piece {
            range,
            content: Content::Header { transaction, linkage },
        }),
        (0..1u64 << 40, 0..3u64, any::<u8>()).prop_map(|(start, count, byte)| Piece {
            range: BlockRange::new(start, count),
            content: Content::Data(Bytes::from(vec![byte; count as usize * BLOCK_BYTES])),
        }),
    ];
    vec(piece, 0..4)
}

pub fn ranges() -> impl Strategy<Value = Vec<BlockRange>> {
    vec(range(), 0..5)
}

/// Any range whose last byte has a 64-bit offset, including the longest and the last ones.
pub fn range() -> impl Strategy<Value = BlockRange> {
    let end = u64::MAX / BLOCK_BYTES as u64;
    (number(), number()).prop_map(move |(start, count)| {
        let start = start.min(end);
        BlockRange::new(start, count.min(end - start))
    })
}

fn node() -> impl Strategy<Value = NodeId> {
    prop_oneof![
        generation().prop_map(NodeId::Host),
        device().prop_map(NodeId::Device),
        lock_server().prop_map(NodeId::LockServer),
        Just(NodeId::Monitor),
        any::<u16>().prop_map(|number| NodeId::MetadataServer(FileSystemId(number))),
    ]
}

fn lock_server() -> impl Strategy<Value = LockServerId> {
    any::<u16>().prop_map(LockServerId)
}

fn stamp() -> impl Strategy<Value = Stamp> {
    (number(), generation()).prop_map(|(clock, host)| Stamp { clock: Clock(clock), host })
}

fn transaction() -> impl Strategy<Value = TransactionId> {
    (generation(), sequence()).prop_map(|(host, sequence)| TransactionId { host, sequence })
}

/// Any sequence number but the highest.
fn sequence() -> impl Strategy<Value = u64> {
    number().prop_map(|sequence| sequence.min(u64::MAX - 1))
}

fn linkage() -> impl Strategy<Value = Linkage> {
    (number(), number()).prop_map(|(first, last)| Linkage { first, last })
}

fn mode() -> impl Strategy<Value = WriteMode> {
    prop_oneof![Just(WriteMode::Intent), Just(WriteMode::Immediate)]
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![Just(Outcome::Commit), Just(Outcome::Abort), Just(Outcome::Interrupted)]
}

fn ordering() -> impl Strategy<Value = Ordering> {
    prop::sample::select(Ordering::ALL.to_vec())
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![Just(Step::Read), Just(Step::Prewrite), Just(Step::Write), Just(Step::Execute)]
}

fn vote() -> impl Strategy<Value = Vote> {
    prop_oneof![
        Just(Vote::Prepared),
        Just(Vote::Committed),
        Just(Vote::NeverPrepared),
        number().prop_map(|clock| Vote::TooFarAhead { clock: Clock(clock) })
    ]
}

pub fn generation() -> impl Strategy<Value = Generation> {
    any::<u32>().prop_map(Generation)
}

fn epoch() -> impl Strategy<Value = Epoch> {
    any::<u32>().prop_map(Epoch)
}

fn time() -> impl Strategy<Value = Time> {
    number().prop_map(Time)
}

fn device() -> impl Strategy<Value = DeviceId> {
    any::<u16>().prop_map(DeviceId)
}

pub fn object() -> impl Strategy<Value = ObjectId> {
    number().prop_map(ObjectId)
}

/// Numbers of all sizes, the extreme ones often.
pub fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..100u64, any::<u64>(), Just(u64::MAX)]
}
