//! Tests: records are read as they were written, and damage is detected.

use super::*;
use crate::journal_format::request::{changes_len, roots_len};
use braid_base::checksum::crc32c;
use braid_base::{BLOCK_BYTES, FenceTable, Member, MemberState, Stamp};
use braid_blocks::Linkage;
use braid_journal::Record as _;
use braid_object_index::SlotRef;
use braid_objects::Key;
use braid_ordering::Atomicity;
use braid_wire::{ObjectDescription, encode_answer};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn intent() -> IntentRecord {
    IntentRecord {
        by: Attribution {
            transaction: TransactionId { host: Generation(3), sequence: 9 },
            stamp: Stamp { clock: Clock(77), host: Generation(3) },
            epoch: Epoch(2),
            linkage: Linkage { first: 5, last: 8 },
        },
        participants: vec![DeviceId(1), DeviceId(4)],
        object: ObjectId(6),
        pieces: vec![
            Part { range: BlockRange::new(0, 3), body: Body::Inline(vec![5; 3 * BLOCK_BYTES].into()) },
            Part { range: BlockRange::new(3, 2), body: Body::Hole },
            Part { range: BlockRange::new(16, 32), body: Body::Slots(11) },
            Part { range: BlockRange::new(50, 1), body: Body::Lost },
        ],
        homes: vec![Home { chunk: 0, slot: 4 }],
    }
}

fn membership(two: BTreeSet<Generation>) -> Membership {
    let member =
        |device, member_state| Member { device: DeviceId(device), member_state, since: Epoch(u32::from(device)) };
    let recovery_coordinator = Some(Generation(7));
    Membership {
        epoch: Epoch(9),
        members: vec![
            member(0, MemberState::In),
            member(1, MemberState::Returning { recovery_coordinator }),
            member(3, MemberState::Returning { recovery_coordinator: None }),
            member(4, MemberState::Out),
        ],
        fence: FenceTable { below: Generation(7), except: two.clone(), also: two },
    }
}

fn changes() -> Vec<Change> {
    let value = Some(Bytes::from_static(b"value"));
    vec![Change { key: Key::piece(7, 2), value }, Change { key: Key::ended(6), value: None }]
}

fn records() -> Vec<Record> {
    let transaction = intent().by.transaction;
    let object = ObjectRecord {
        description: ObjectDescription {
            object: ObjectId(6),
            first: 32,
            blocks: 100,
            ordering: Ordering::None,
            redundant: true,
            atomicity: Atomicity::Implied,
        },
        extents: vec![MapExtent { start: 0, count: 3 }, MapExtent { start: 9, count: 4 }],
    };
    let two: BTreeSet<_> = [Generation(8), Generation(9)].into();
    vec![
        Record::Intent(intent()),
        Record::Applied(intent()),
        Record::Commit(transaction),
        Record::Abort(transaction),
        Record::Decided(Decision { by: intent().by, participants: vec![DeviceId(7)], object: ObjectId(6) }),
        Record::Forget(transaction),
        Record::Settled { host: Generation(4), sequence: 5 },
        Record::Stamps(Clock(99)),
        Record::Adopted(membership(two.clone())),
        Record::Membership { membership: membership(two), returned: Epoch(4) },
        Record::Missed {
            device: DeviceId(4),
            object: ObjectId(6),
            extents: vec![BlockRange::new(3, 4), BlockRange::new(90, 1)],
        },
        Record::Created { object: object.clone(), absent: 0 },
        Record::Created { object: object.clone(), absent: 50 },
        Record::Object(object.clone()),
        Record::Resized { object, absent: BlockRange::new(32, 9) },
        Record::Removed(ObjectId(6)),
        Record::Absent { object: ObjectId(6), extents: vec![BlockRange::new(3, 4), BlockRange::new(90, 1)] },
        Record::Objects(Executed {
            name: transaction,
            settled: 7,
            answer: encode_answer(&Ok(Vec::new())).into(),
            changes: changes(),
        }),
        Record::Answers { host: Generation(3), settled: 7, kept: vec![(9, encode_answer(&Ok(Vec::new())).into())] },
        Record::Over { host: Generation(3), settled: 7, intervals: vec![(9, 12), (20, 21)] },
        Record::Collected(changes()),
        Record::Rooted(vec![Root { first: Key::FIRST, place: SlotRef { slot: 4, length: 900, checksum: 5 } }]),
        Record::Retired(vec![3, 900]),
        Record::Reordered { object: ObjectId(6), ordering: Ordering::CallbackLock },
    ]
}

fn decode(description: &[u8], payload: Vec<u8>) -> Result<(Vec<Record>, bool), DecodeError> {
    let (mut from, mut payload) = (description, Payload::new(payload.into()));
    let mut found = Vec::new();
    while !from.is_empty() {
        found.push(Record::decode(&mut from, &mut payload)?);
    }
    Ok((found, payload.is_whole()))
}

#[test]
fn every_record_is_read_as_it_was_written() {
    let mut description = Vec::new();
    records().iter().for_each(|record| record.encode(&mut description));
    assert_eq!((description.len(), crc32c(&description)), (1176, 0xfdcc_a324), "the format is as it was");
    assert_eq!(decode(&description, vec![5; 6 * BLOCK_BYTES]), Ok((records(), true)));
}

#[test]
fn roots_that_share_a_slot_are_damaged() {
    let root = Root { first: Key::FIRST, place: SlotRef { slot: 4, length: 900, checksum: 5 } };
    let mut description = Vec::new();
    Record::Rooted(vec![root, root]).encode(&mut description);
    assert_eq!(decode(&description, Vec::new()), Err(DecodeError));
}

#[test]
fn a_damaged_payload_block_is_lost_and_its_neighbours_are_not() {
    let mut description = Vec::new();
    intent().encode(false, &mut description);
    let mut payload = vec![5; 3 * BLOCK_BYTES];
    payload[BLOCK_BYTES + 1] = 0;
    let (found, whole) = decode(&description, payload).expect("the description is whole");
    assert!(!whole);
    let Record::Intent(found) = &found[0] else { panic!("an intent") };
    let kinds: Vec<_> = found.pieces.iter().map(|part| (part.range, part.body == Body::Lost)).collect();
    assert_eq!(
        kinds[..3],
        [(BlockRange::new(0, 1), false), (BlockRange::new(1, 1), true), (BlockRange::new(2, 1), false)]
    );
}

#[test]
fn the_room_set_aside_is_enough() {
    let mut description = Vec::new();
    intent().encode(false, &mut description);
    assert!((description.len() + intent().payload_len()) as u64 <= intent().journal_len());
    for record in records() {
        description.clear();
        record.encode(&mut description);
        let room = match record {
            Record::Decided(decision) => decision.journal_len(),
            Record::Membership { membership, .. } => membership_len(&membership),
            Record::Missed { extents, .. } | Record::Absent { extents, .. } => missed_len(extents.len()),
            Record::Object(object) => object.journal_len(),
            Record::Objects(executed) => executed.journal_len(),
            Record::Collected(changes) => changes_len(&changes),
            Record::Rooted(roots) => roots_len(roots.len() as u64),
            _ => continue,
        };
        assert!(description.len() as u64 <= room, "{} of {room}", description.len());
    }
}

proptest! {
    #[test]
    fn garbage_is_an_error_and_not_a_panic(
        which in 0usize..24, at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>(),
    ) {
        let mut description = Vec::new();
        records()[which].encode(&mut description);
        let at = at.index(description.len());
        description[at] = byte;
        description.truncate(cut.index(description.len()) + 1);
        let _ = decode(&description, vec![5; 3 * BLOCK_BYTES]);
    }
}
