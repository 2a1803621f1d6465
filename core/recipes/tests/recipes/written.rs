//! Writes that clients guard with their tokens: each appends the token, the client and the number of the write to an object.

use crate::bench::space;
use braid_base::{ObjectId, Time};
use braid_recipes::Answer;
use braid_recipes::fencing_token::unguard;
use braid_wire::{Action, ObjectRequest};
use bytes::Bytes;
use std::time::Duration;

/// Token, client, and number of the write.
pub type Record = [u64; 3];

pub fn append(object: ObjectId, record: Record) -> ObjectRequest {
    let data: Bytes = record.iter().flat_map(|word| word.to_be_bytes()).collect();
    space::one(object, Action::Append { data })
}

pub fn records(data: &[u8]) -> Vec<Record> {
    let words =
        |record: &[u8]| std::array::from_fn(|at| u64::from_be_bytes(record[8 * at..8 * at + 8].try_into().unwrap()));
    data.chunks(size_of::<Record>()).map(words).collect()
}

/// Tokens in order, one client a token, each write once.
pub fn check_order(records: &[Record]) {
    for (at, [token, client, write]) in records.iter().enumerate() {
        for [before, other, its] in &records[..at] {
            assert!(before <= token, "none of a token happens after a later one has begun: {records:?}");
            assert!(before != token || (other == client && its < write), "one client a token: {records:?}");
        }
    }
}

/// What was reported as executed is there once, and what was reported as not executed is not.
pub fn check_reports(records: &[Record], happened: &[Record], not_happened: &[Record]) {
    for record in happened {
        let times = records.iter().filter(|other| *other == record).count();
        assert_eq!(times, 1, "it was reported as executed: {record:?}");
    }
    for record in not_happened {
        assert!(!records.contains(record), "it was reported as not executed: {record:?}");
    }
}

/// Of all who had a token, one at a time was sure of it: token, client, beginning, and sure until, in true time.
pub fn check_holds(holds: &[(u64, usize, Time, Time)]) {
    for (at, (token, _, from, sure)) in holds.iter().enumerate() {
        for (other, _, other_from, other_sure) in &holds[at + 1..] {
            assert!(token != other, "nobody has the token of another one");
            let (sure, from) =
                if token < other { (sure, other_from.max(from)) } else { (other_sure, from.max(other_from)) };
            assert!(sure <= from, "{token} and {other} were both sure");
        }
    }
}

pub fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// True if a guarded request was executed, and not refused.
pub fn taken(answer: &Answer) -> bool {
    match answer {
        Answer::Results(results) => unguard(results.clone()).is_ok(),
        other => panic!("{other:?}"),
    }
}
