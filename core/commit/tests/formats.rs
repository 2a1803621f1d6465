//! The bytes of messages and records: written down here, because other builds have to read them.

use braid_base::ShardId;
use braid_commit::{
    Body, Commits, CoordinatorRecord, CoordinatorStage, DecodeError, Message, Operation, Protocol, Record, RecordKey,
    Timing, TransactionName, Verdict, WorkerRecord, WorkerStage,
};
use bytes::Bytes;

const NAME: TransactionName = TransactionName { shard: ShardId(3), sequence: 0x0102 };

fn verdicts() -> Vec<Verdict> {
    let (answer, reason) = (Bytes::from_static(b"ab"), Bytes::from_static(b"c"));
    vec![Verdict::Accepted { answer }, Verdict::Refused { reason }]
}

fn message(body: Body) -> Message {
    Message { protocol: Protocol::OnePhase, transaction: NAME, settled: 7, body }
}

fn bodies() -> Vec<Body> {
    vec![
        Body::Update { requests: vec![Bytes::from_static(b"xyz"), Bytes::new()] },
        Body::Updated { verdicts: verdicts() },
        Body::Prepare,
        Body::Prepared { verdicts: verdicts() },
        Body::NotPrepared,
        Body::Commit,
        Body::Abort,
        Body::Acknowledge,
        Body::Ask,
        Body::Inquire,
        Body::Settled,
    ]
}

fn records() -> Vec<Record> {
    let requests = vec![Bytes::from_static(b"r"), Bytes::from_static(b"s")];
    let operations = vec![Operation { own: Bytes::from_static(b"o"), requests }];
    let workers = vec![ShardId(1), ShardId(2)];
    let mut records = vec![Record::Next(9), Record::Mark(8)];
    for stage in
        [CoordinatorStage::Begun, CoordinatorStage::Prepared, CoordinatorStage::Committed, CoordinatorStage::Aborted]
    {
        let (workers, operations) = (workers.clone(), operations.clone());
        records.push(Record::Coordinated(CoordinatorRecord {
            protocol: Protocol::PresumeCommit,
            stage,
            workers,
            operations,
        }));
    }
    for stage in [WorkerStage::Prepared, WorkerStage::Committed, WorkerStage::Aborted, WorkerStage::Ended] {
        let changes = vec![Bytes::from_static(b"change")];
        records.push(Record::Worked(WorkerRecord {
            protocol: Protocol::EarlyPrepare,
            stage,
            changes,
            verdicts: verdicts(),
        }));
    }
    records
}

#[test]
fn messages_and_records_survive_their_bytes() {
    for body in bodies() {
        let message = message(body);
        assert_eq!(Message::decode(message.encode()), Ok(message));
    }
    for record in records() {
        assert_eq!(Record::decode(record.encode()), Ok(record));
    }
}

#[test]
fn messages_and_records_have_the_bytes_written_down_here() {
    let update = message(Body::Update { requests: vec![Bytes::from_static(b"xyz")] });
    let head = [1, 4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0];
    let expected = [&head[..], &[1, 1, 0, 0, 0, 3, 0, 0, 0], b"xyz"].concat();
    assert_eq!(update.encode(), expected);
    let updated = [&head[..], &[2, 2, 0, 0, 0, 1, 2, 0, 0, 0], b"ab", &[2, 1, 0, 0, 0], b"c"].concat();
    assert_eq!(message(Body::Updated { verdicts: verdicts() }).encode(), updated);
    let numbers = bodies().into_iter().map(|body| message(body).encode()[head.len()]);
    assert_eq!(numbers.collect::<Vec<_>>(), (1..=11).collect::<Vec<_>>());
    assert_eq!(records()[0].encode(), [1, 1, 9, 0, 0, 0, 0, 0, 0, 0].as_slice());
    assert_eq!(records()[1].encode(), [1, 2, 8, 0, 0, 0, 0, 0, 0, 0].as_slice());
    let begun = [&[1, 3, 2, 0, 2, 0, 0, 0, 1, 2, 1, 0, 0, 0][..], &[1, 0, 0, 0], b"o", &[2, 0, 0, 0]];
    let requests = [&[1, 0, 0, 0][..], b"r", &[1, 0, 0, 0], b"s"];
    assert_eq!(records()[2].encode(), [begun.concat(), requests.concat()].concat());
    let worked = [&[1, 4, 3, 1, 1, 0, 0, 0, 6, 0, 0, 0][..], b"change", &updated[head.len() + 1..]].concat();
    assert_eq!(records()[7].encode(), worked);
}

#[test]
fn bytes_that_are_cut_or_too_long_are_refused() {
    let whole = bodies().into_iter().map(|body| message(body).encode());
    for bytes in whole {
        for length in 0..bytes.len() {
            assert_eq!(<Message>::decode(bytes.slice(..length)), Err(DecodeError));
        }
        assert_eq!(<Message>::decode([&bytes[..], b"!"].concat().into()), Err(DecodeError));
    }
    for bytes in records().iter().map(Record::encode) {
        for length in 0..bytes.len() {
            assert_eq!(<Record>::decode(bytes.slice(..length)), Err(DecodeError));
        }
        assert_eq!(<Record>::decode([&bytes[..], b"!"].concat().into()), Err(DecodeError));
    }
    let mut long = message(Body::Update { requests: Vec::new() }).encode().to_vec();
    let length = long.len() - 4;
    long[length..].copy_from_slice(&u32::MAX.to_le_bytes());
    // Nothing is allocated for a length that is out of bounds.
    assert_eq!(<Message>::decode(long.into()), Err(DecodeError));
}

#[test]
fn a_coordinator_record_without_a_request_for_each_worker_is_refused() {
    let (own, requests) = (Bytes::from_static(b"o"), vec![Bytes::from_static(b"r")]);
    let operations = vec![Operation { own, requests }];
    for (workers, fits) in [(vec![ShardId(1)], true), (vec![ShardId(1), ShardId(2)], false), (Vec::new(), false)] {
        let (protocol, stage, operations) = (Protocol::OnePhase, CoordinatorStage::Begun, operations.clone());
        let record = <Record>::Coordinated(CoordinatorRecord { protocol, stage, workers, operations });
        assert_eq!(<Record>::decode(record.encode()).is_ok(), fits, "{record:?}");
    }
}

#[test]
fn a_record_under_a_key_of_another_kind_is_not_restored() {
    let mut server = <Commits>::new(ShardId(0), Timing::default());
    for record in records() {
        let is_mark = matches!(record, Record::Mark(_));
        assert_eq!(server.restore(RecordKey::Mark(ShardId(5)), record), is_mark);
    }
}
