//! Any message at all: a strategy for each type of the vocabulary.

use braid_base::{
    ArrayId, BLOCK_BYTES, BlockRange, Clock, DeviceId, Epoch, Generation, NodeId, ObjectId, Stamp, TransactionId,
};
use braid_wire::*;
use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

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
    prop_oneof![request, answer]
}

fn command() -> impl Strategy<Value = Command> {
    let read = (transaction(), stamp(), object(), ranges(), prop_oneof![Just(Want::Data), Just(Want::Allocation)])
        .prop_map(|(transaction, stamp, object, extents, want)| Command::Read {
            transaction,
            stamp,
            object,
            ordering: Ordering::Timestamp,
            extents,
            want,
        });
    let prewrite = (transaction(), stamp(), object(), ranges(), ranges()).prop_map(
        |(transaction, stamp, object, prewrites, reads)| Command::Prewrite {
            transaction,
            stamp,
            object,
            ordering: Ordering::Timestamp,
            prewrites,
            reads,
        },
    );
    let write = (transaction(), stamp(), object(), vec(device(), 0..5), linkage(), mode(), pieces()).prop_map(
        |(transaction, stamp, object, participants, linkage, mode, pieces)| Command::Write {
            transaction,
            stamp,
            object,
            ordering: Ordering::Timestamp,
            participants,
            linkage,
            mode,
            pieces,
        },
    );
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
        transaction().prop_map(|transaction| Command::Forget { transaction }),
        (number(), task()).prop_map(|(ticket, task)| Command::Manage { ticket, task }),
    ]
}

fn task() -> impl Strategy<Value = Task> {
    prop_oneof![
        (object(), number(), ordering()).prop_map(|(object, blocks, ordering)| Task::CreateObject {
            object,
            blocks,
            ordering
        }),
        object().prop_map(|object| Task::RemoveObject { object }),
        Just(Task::ListObjects),
        Just(Task::Flush),
        (generation(), vec(generation(), 0..5), vec(generation(), 0..5))
            .prop_map(|(below, except, also)| Task::Fence { below, except, also }),
        Just(Task::Inspect),
    ]
}

fn reply() -> impl Strategy<Value = Reply> {
    prop_oneof![
        vec(orphan(), 0..4).prop_map(|orphans| Reply::Heartbeat { orphans }),
        (transaction(), pieces()).prop_map(|(transaction, pieces)| Reply::Data { transaction, waited: false, pieces }),
        transaction().prop_map(|transaction| Reply::Accepted { transaction, waited: false }),
        transaction().prop_map(|transaction| Reply::Written { transaction, waited: false }),
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
    ]
}

fn managed() -> impl Strategy<Value = Managed> {
    let description = (object(), number(), ordering()).prop_map(|(object, blocks, ordering)| ObjectDescription {
        object,
        blocks,
        ordering,
    });
    prop_oneof![
        Just(Managed::Done),
        vec(description, 0..5).prop_map(Managed::Objects),
        // At most 256 bytes, whatever the letters.
        vec(("\\PC{0,64}", number()), 0..5).prop_map(|counters| Managed::Inspected(Inspection { counters })),
    ]
}

fn refusal() -> impl Strategy<Value = Refusal> {
    prop_oneof![
        stamp().prop_map(|seen| Refusal::TooLate { seen }),
        number().prop_map(|clock| Refusal::TooFarAhead { clock: Clock(clock) }),
        Just(Refusal::NoPrewrite),
        Just(Refusal::Busy),
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
        Just(Failure::WrongOrdering),
        Just(Failure::Malformed),
    ]
}

fn rejection() -> impl Strategy<Value = Rejection> {
    prop_oneof![
        Just(Rejection::Fenced),
        epoch().prop_map(|current| Rejection::WrongEpoch { current }),
        Just(Rejection::TooManyHosts),
    ]
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
        (0..1u64 << 40, 0..3u64, any::<u8>()).prop_map(|(start, count, byte)| Piece {
            range: BlockRange::new(start, count),
            content: Content::Data(Bytes::from(vec![byte; count as usize * BLOCK_BYTES])),
        }),
    ];
    vec(piece, 0..4)
}

fn ranges() -> impl Strategy<Value = Vec<BlockRange>> {
    vec(range(), 0..5)
}

/// Any range whose bytes can be counted, the longest and the last ones included.
fn range() -> impl Strategy<Value = BlockRange> {
    let end = u64::MAX / BLOCK_BYTES as u64;
    (number(), number()).prop_map(move |(start, count)| {
        let start = start.min(end);
        BlockRange::new(start, count.min(end - start))
    })
}

fn node() -> impl Strategy<Value = NodeId> {
    prop_oneof![generation().prop_map(NodeId::Host), device().prop_map(NodeId::Device)]
}

fn stamp() -> impl Strategy<Value = Stamp> {
    (number(), generation()).prop_map(|(clock, host)| Stamp { clock: Clock(clock), host })
}

fn transaction() -> impl Strategy<Value = TransactionId> {
    (generation(), number()).prop_map(|(host, sequence)| TransactionId { host, sequence: sequence.min(u64::MAX - 1) })
}

fn linkage() -> impl Strategy<Value = Linkage> {
    (number(), number()).prop_map(|(first, last)| Linkage { first, last })
}

fn mode() -> impl Strategy<Value = WriteMode> {
    prop_oneof![Just(WriteMode::Intent), Just(WriteMode::Immediate)]
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![Just(Outcome::Commit), Just(Outcome::Abort)]
}

fn ordering() -> impl Strategy<Value = Ordering> {
    prop_oneof![Just(Ordering::Timestamp), Just(Ordering::None)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![Just(Step::Read), Just(Step::Prewrite), Just(Step::Write)]
}

fn vote() -> impl Strategy<Value = Vote> {
    prop_oneof![Just(Vote::Prepared), Just(Vote::Committed), Just(Vote::NeverPrepared)]
}

fn generation() -> impl Strategy<Value = Generation> {
    any::<u32>().prop_map(Generation)
}

fn epoch() -> impl Strategy<Value = Epoch> {
    any::<u32>().prop_map(Epoch)
}

fn device() -> impl Strategy<Value = DeviceId> {
    any::<u16>().prop_map(DeviceId)
}

fn object() -> impl Strategy<Value = ObjectId> {
    number().prop_map(ObjectId)
}

/// Numbers of all sizes, the extreme ones often.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..100u64, any::<u64>(), Just(u64::MAX)]
}
