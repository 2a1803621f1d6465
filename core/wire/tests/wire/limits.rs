//! Lists and lengths at their bounds, beyond them, and with false values.

use crate::golden::hex;
use crate::{limits_files, limits_objects};
use braid_base::limits::*;
use braid_base::{
    ArrayId, BLOCK_BYTES, BlockRange, Clock, DeviceId, Epoch, FenceTable, Generation, Member, MemberState, Membership,
    NodeId, ObjectId, Stamp, Time, TransactionId,
};
use braid_blocks::{Content, Linkage, Piece, Want};
use braid_ordering::{Atomicity, Ordering, WriteMode};
use braid_wire::fuzzing::seal;
use braid_wire::*;
use bytes::Bytes;

const TRANSACTION: TransactionId = TransactionId { host: Generation(7), sequence: 9 };
const STAMP: Stamp = Stamp::ZERO;
pub const OBJECT: ObjectId = ObjectId(1);

/// A message whose list has a variable length, the name of the list, and its bound.
pub type ListLimit = (&'static str, usize, fn(usize) -> Message);

const LISTS: [ListLimit; 29] = [
    ("over", COMMITS_PER_REQUEST_MAX, |n| {
        Message::Request(Request {
            host: Generation(7),
            epoch: Epoch(0),
            settled: 0,
            over: vec![1; n],
            commits: vec![],
            command: Command::Heartbeat,
        })
    }),
    ("commits", COMMITS_PER_REQUEST_MAX, |n| {
        Message::Request(Request {
            host: Generation(7),
            epoch: Epoch(0),
            settled: 0,
            over: vec![],
            commits: vec![1; n],
            command: Command::Heartbeat,
        })
    }),
    ("confirmed", COMMITS_PER_REQUEST_MAX, |n| {
        Message::Answer(Answer {
            epoch: Epoch(0),
            confirmed: vec![1; n],
            reply: Reply::Accepted { transaction: TRANSACTION, waited: false },
        })
    }),
    ("extents", EXTENTS_MAX, |n| {
        let (extents, want) = (vec![BlockRange::new(1, 1); n], Want::Data);
        request(Command::Read {
            transaction: TRANSACTION,
            stamp: STAMP,
            object: OBJECT,
            ordering: Ordering::Timestamp,
            extents,
            want,
        })
    }),
    ("prewrites", EXTENTS_MAX, |n| prewrite(vec![BlockRange::new(1, 1); n], vec![])),
    ("reads", EXTENTS_MAX, |n| prewrite(vec![], vec![BlockRange::new(1, 1); n])),
    ("participants", PARTICIPANTS_MAX, |n| write(vec![DeviceId(1); n], vec![])),
    ("pieces of a write", EXTENTS_MAX, |n| write(vec![], vec![hole(); n])),
    ("pieces of a reply", EXTENTS_MAX, |n| {
        answer(Reply::Data { transaction: TRANSACTION, waited: false, pieces: vec![hole(); n] })
    }),
    ("except", FENCED_MAX, |n| {
        let (ticket, below) = (1, Generation(1));
        monitor_request(MonitorCommand::Fence { ticket, below, except: vec![Generation(1); n], also: vec![] })
    }),
    ("also", FENCED_MAX, |n| {
        let (ticket, below) = (1, Generation(1));
        monitor_request(MonitorCommand::Fence { ticket, below, except: vec![], also: vec![Generation(1); n] })
    }),
    ("silent devices", PARTICIPANTS_MAX, |n| {
        monitor_request(MonitorCommand::Renew {
            sent: Time(1),
            silent: vec![DeviceId(1); n],
            disk: None,
            bad_slots: 0,
            failing: false,
            undecided: vec![],
            stamps: Clock(1),
        })
    }),
    ("fenced hosts of which something is undecided", FENCED_MAX, |n| {
        let (sent, undecided) = (Time(1), vec![Generation(1); n]);
        monitor_request(MonitorCommand::Renew {
            sent,
            silent: vec![],
            disk: None,
            bad_slots: 0,
            failing: false,
            undecided,
            stamps: Clock(1),
        })
    }),
    ("devices that are unavailable", PARTICIPANTS_MAX, |n| {
        let (membership, reply) = (None, MonitorReply::Changed);
        Message::MonitorAnswer(MonitorAnswer { membership, unavailable: vec![DeviceId(1); n], reply })
    }),
    ("members", DEVICES_MAX, |n| changed(membership(n, 0, 0))),
    ("hosts not kept out", FENCED_MAX, |n| changed(membership(1, n, 0))),
    ("hosts kept out", FENCED_MAX, |n| changed(membership(1, 0, n))),
    ("extents that were missed", EXTENTS_MAX, |n| {
        managed(Managed::Missed { extents: vec![BlockRange::new(1, 1); n], next: None })
    }),
    ("extents that are absent", EXTENTS_MAX, |n| {
        managed(Managed::Extents { extents: vec![BlockRange::new(1, 1); n], next: None })
    }),
    ("orphans", ORPHANS_PER_ANSWER_MAX, |n| {
        let orphan =
            Orphan { transaction: TRANSACTION, stamp: STAMP, participants: vec![DeviceId(1); PARTICIPANTS_MAX] };
        answer(Reply::Heartbeat { orphans: vec![orphan; n], suspects: vec![], busy: false })
    }),
    ("suspects", ORPHANS_PER_ANSWER_MAX, |n| {
        let blocks = SuspectBlocks::Announced(BlockRange::new(1, 1));
        let suspect = Suspect { transaction: TRANSACTION, object: OBJECT, blocks };
        answer(Reply::Heartbeat { orphans: vec![], suspects: vec![suspect; n], busy: false })
    }),
    ("objects", OBJECTS_MAX, |n| {
        let object = ObjectDescription {
            object: OBJECT,
            first: 0,
            blocks: 1,
            ordering: Ordering::None,
            redundant: true,
            atomicity: Atomicity::Implied,
        };
        managed(Managed::Objects(vec![object; n]))
    }),
    ("extents to lock", EXTENTS_MAX, |n| {
        let extent = LockExtent { position: 0, range: BlockRange::new(1, 1), mode: LockMode::Shared };
        let (extents, term) = (vec![extent; n], LockTerm::Cached);
        lock_request(vec![], LockCommand::Lock { lock_id: 1, object: OBJECT, extents, term })
    }),
    ("dropped locks", COMMITS_PER_REQUEST_MAX, |n| lock_request(vec![1; n], LockCommand::Heartbeat)),
    ("yielded locks", COMMITS_PER_REQUEST_MAX, |n| lock_request(vec![], LockCommand::Yield { lock_ids: vec![1; n] })),
    ("locks under another", COMMITS_PER_REQUEST_MAX, |n| {
        let extents = vec![LockExtent { position: 0, range: BlockRange::new(1, 1), mode: LockMode::Shared }];
        lock_request(vec![], LockCommand::LockOver { lock_id: 1, object: OBJECT, extents, over: vec![1; n] })
    }),
    ("revoked locks", COMMITS_PER_REQUEST_MAX, |n| {
        let start = Generation(1);
        Message::LockAnswer(LockAnswer { start, reply: LockReply::Revoke { lock_ids: vec![1; n] } })
    }),
    ("counters", 1024, |n| managed(Managed::Inspected(Inspection { counters: vec![("c".into(), 1); n] }))),
    ("text", 256, |n| managed(Managed::Inspected(Inspection { counters: vec![("c".repeat(n), 1)] }))),
];

pub fn request(command: Command) -> Message {
    Message::Request(Request {
        host: Generation(7),
        epoch: Epoch(0),
        settled: 0,
        over: vec![],
        commits: vec![],
        command,
    })
}

fn lock_request(dropped: Vec<u64>, command: LockCommand) -> Message {
    let (host, start) = (Generation(7), Generation(1));
    Message::LockRequest(LockRequest { host, start, dropped, command })
}

fn monitor_request(command: MonitorCommand) -> Message {
    Message::MonitorRequest(MonitorRequest { epoch: Epoch(0), command })
}

fn changed(membership: Membership) -> Message {
    Message::MonitorAnswer(MonitorAnswer {
        membership: Some(membership),
        unavailable: vec![],
        reply: MonitorReply::Changed,
    })
}

/// The longest membership: all devices are returning, each with a recovery coordinator, and this many hosts are spared and fenced.
fn membership(devices: usize, except: usize, also: usize) -> Membership {
    let member_state = MemberState::Returning { recovery_coordinator: Some(Generation(9)) };
    let member = |device| Member { device: DeviceId(device as u16), member_state, since: Epoch(2) };
    let hosts = |count| (1..=count as u32).map(Generation).collect();
    let fence = FenceTable { below: Generation(1), except: hosts(except), also: hosts(also) };
    Membership { epoch: Epoch(2), members: (0..devices).map(member).collect(), fence }
}

pub fn answer(reply: Reply) -> Message {
    Message::Answer(Answer { epoch: Epoch(0), confirmed: vec![], reply })
}

fn managed(managed: Managed) -> Message {
    answer(Reply::Managed { ticket: 1, result: Ok(managed) })
}

fn prewrite(prewrites: Vec<BlockRange>, reads: Vec<BlockRange>) -> Message {
    let (transaction, stamp, object, ordering) = (TRANSACTION, STAMP, OBJECT, Ordering::Timestamp);
    request(Command::Prewrite { transaction, stamp, object, ordering, prewrites, reads })
}

fn write(participants: Vec<DeviceId>, pieces: Vec<Piece>) -> Message {
    let (linkage, mode) = (Linkage { first: 0, last: 0 }, WriteMode::Intent);
    request(Command::Write {
        transaction: TRANSACTION,
        stamp: STAMP,
        object: OBJECT,
        ordering: Ordering::Timestamp,
        participants,
        linkage,
        mode,
        pieces,
    })
}

fn hole() -> Piece {
    Piece { range: BlockRange::new(1, 1), content: Content::Hole }
}

pub fn frame(message: Message) -> Frame {
    let (from, to) = (NodeId::Host(Generation(7)), NodeId::Device(DeviceId(2)));
    Frame { array: ArrayId([1; 16]), from, to, message }
}

#[test]
fn a_list_at_its_bound_is_taken_and_one_beyond_it_is_refused() {
    for (name, max, message) in LISTS.into_iter().chain(limits_objects::LISTS).chain(limits_files::LISTS) {
        let full = frame(message(max));
        assert_eq!(Frame::decode(full.encode().to_bytes()), Ok(full), "{name}");
        let beyond = Frame::decode(frame(message(max + 1)).encode().to_bytes());
        assert_eq!(beyond, Err(WireError::TooLong { length: max + 1, max }), "{name}");
    }
}

#[test]
fn a_list_that_claims_more_than_there_is_is_refused() {
    for (name, max, message) in LISTS.into_iter().chain(limits_objects::LISTS).chain(limits_files::LISTS) {
        let (one, two) = (frame(message(1)).encode().head, frame(message(2)).encode().head);
        // The first difference between the two is the length of the list.
        let at = (64..).find(|at| one[*at] != two[*at]).expect("a length");
        for (declared, error) in [
            (max as u32, WireError::Truncated),
            (max as u32 + 1, WireError::TooLong { length: max + 1, max }),
            (u32::MAX, WireError::TooLong { length: u32::MAX as usize, max }),
        ] {
            let mut description = one[64..].to_vec();
            description[at - 64..at - 60].copy_from_slice(&declared.to_le_bytes());
            assert_eq!(Frame::decode(seal(&description, &[])), Err(error), "{name} of {declared}");
        }
    }
}

#[test]
fn the_largest_write_and_the_most_ranges_fit_into_a_frame() {
    let blocks = DEVICE_BYTES_MAX / BLOCK_BYTES;
    let block = Bytes::from(vec![5; BLOCK_BYTES]);
    let piece = |at| Piece { range: BlockRange::new(2 * at as u64, 1), content: Content::Data(block.clone()) };
    let pieces = (0..blocks).map(piece).chain((blocks..EXTENTS_MAX).map(|_| hole())).collect();
    let mut largest = frame(write(vec![DeviceId(1); PARTICIPANTS_MAX], pieces));
    if let Message::Request(request) = &mut largest.message {
        request.commits = vec![1; COMMITS_PER_REQUEST_MAX];
    }
    assert_eq!(Frame::decode(largest.encode().to_bytes()), Ok(largest));
}

#[test]
fn the_longest_membership_leaves_the_room_of_a_transaction() {
    let mut longest = changed(membership(DEVICES_MAX, FENCED_MAX, FENCED_MAX));
    if let Message::MonitorAnswer(answer) = &mut longest {
        answer.unavailable = vec![DeviceId(1); DEVICES_MAX];
    }
    let longest = frame(longest);
    let bytes = longest.encode().to_bytes();
    assert!(bytes.len() < FRAME_BYTES_MAX - DEVICE_BYTES_MAX, "{} bytes", bytes.len());
    assert_eq!(Frame::decode(bytes), Ok(longest));
}

#[test]
fn a_membership_that_makes_no_sense_is_refused() {
    let member = |device, member_state, since| Member { device: DeviceId(device), member_state, since: Epoch(since) };
    let decoded = |members: &[Member]| {
        let membership = Membership { epoch: Epoch(5), members: members.to_vec(), fence: FenceTable::default() };
        Frame::decode(frame(changed(membership)).encode().to_bytes()).map(|_| ())
    };
    let helped_by = |host| MemberState::Returning { recovery_coordinator: Some(Generation(host)) };
    let (first, second) = (member(1, MemberState::In, 1), member(2, MemberState::Out, 5));
    assert_eq!(decoded(&[]), Ok(()));
    assert_eq!(decoded(&[first, second, member(7, helped_by(1), 5)]), Ok(()));
    for (why, members) in [
        ("not in order", [second, first]),
        ("twice the same", [first, member(1, MemberState::Out, 5)]),
        ("since an epoch to come", [first, member(2, MemberState::In, 6)]),
        ("a recovery coordinator that no host is", [first, member(2, helped_by(0), 5)]),
    ] {
        assert_eq!(decoded(&members), Err(WireError::BadValue { what: "membership" }), "{why}");
    }
}

#[test]
fn a_fence_that_names_hosts_twice_or_out_of_order_is_refused() {
    // Epoch 5 without devices; all below 9 are fenced except two hosts, and one other.
    let decoded = |except: &str, also: &str| {
        let message = format!("06 01 05000000 00000000 09000000 02000000 {except} {also} 00000000 03");
        Frame::decode(seal(&hex(&message), &[])).map(|_| ())
    };
    assert_eq!(decoded("03000000 04000000", "01000000 0a000000"), Ok(()));
    let refused = Err(WireError::BadValue { what: "set of hosts" });
    assert_eq!(decoded("03000000 03000000", "00000000"), refused);
    assert_eq!(decoded("04000000 03000000", "00000000"), refused);
    assert_eq!(decoded("03000000 04000000", "02000000 0b000000 0a000000"), refused);
}

#[test]
#[should_panic(expected = "a frame we make ourselves fits")]
fn a_frame_longer_than_allowed_is_never_made() {
    let count = FRAME_BYTES_MAX / BLOCK_BYTES;
    let content = Content::Data(Bytes::from(vec![5; count * BLOCK_BYTES]));
    frame(write(vec![], vec![Piece { range: BlockRange::new(0, count as u64), content }])).encode();
}

#[test]
fn a_frame_that_claims_to_be_longer_than_allowed_is_refused_by_its_header() {
    let header = seal(&[], &[]);
    let body = (FRAME_BYTES_MAX - 64) as u32;
    for (description, payload, refused) in
        [(body, 0, false), (0, body, false), (body, 1, true), (1, body, true), (u32::MAX, u32::MAX, true)]
    {
        let mut bytes = header.to_vec();
        bytes[8..12].copy_from_slice(&u32::to_le_bytes(description));
        bytes[12..16].copy_from_slice(&u32::to_le_bytes(payload));
        let frame_bytes = 64 + description as usize + payload as usize;
        let read = Frame::header(&bytes).map(|header| header.expect("it is whole").frame_bytes);
        let expected = if refused { Err(WireError::FrameTooLong { bytes: frame_bytes }) } else { Ok(frame_bytes) };
        assert_eq!(read, expected, "{description} and {payload} bytes");
    }
}

#[test]
fn data_that_is_not_a_block_for_each_block_is_refused() {
    let data = |blocks: u64, bytes: usize| {
        let content = Content::Data(Bytes::from(vec![5; bytes]));
        let message = write(vec![], vec![Piece { range: BlockRange::new(0, blocks), content }]);
        Frame::decode(frame(message).encode().to_bytes()).map(|_| ())
    };
    assert_eq!(data(2, 2 * BLOCK_BYTES), Ok(()));
    assert_eq!(data(0, 0), Ok(()));
    for (blocks, bytes) in [(1, 0), (0, 1), (1, BLOCK_BYTES - 1), (1, BLOCK_BYTES + 1), (2, BLOCK_BYTES), (1 << 32, 0)]
    {
        assert_eq!(data(blocks, bytes), Err(WireError::BadValue { what: "length of data" }), "{blocks} blocks");
    }
}

#[test]
fn a_range_whose_bytes_cannot_be_counted_is_refused() {
    let last = u64::MAX / BLOCK_BYTES as u64;
    let decoded = |start, count| {
        let extents = vec![BlockRange::new(start, count)];
        let read = Command::Read {
            transaction: TRANSACTION,
            stamp: STAMP,
            object: OBJECT,
            ordering: Ordering::Timestamp,
            extents,
            want: Want::Data,
        };
        Frame::decode(frame(request(read)).encode().to_bytes()).map(|_| ())
    };
    for (start, count) in [(0, 0), (0, last), (last, 0), (last - 1, 1)] {
        assert_eq!(decoded(start, count), Ok(()), "{start}+{count}");
    }
    for (start, count) in [(0, last + 1), (last, 1), (last + 1, 0), (u64::MAX, 1), (1, u64::MAX), (u64::MAX, u64::MAX)]
    {
        assert_eq!(decoded(start, count), Err(WireError::BadValue { what: "block range" }), "{start}+{count}");
    }
}

#[test]
fn text_that_is_not_utf_8_is_refused() {
    let description = hex("02 00000000 00000000 0b 0100000000000000 01 03 01000000 02000000 ff61 0500000000000000");
    assert_eq!(Frame::decode(seal(&description, &[])), Err(WireError::BadValue { what: "text" }));
}
