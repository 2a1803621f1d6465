//! Lists and lengths at their bounds, beyond them, and with false values.

use crate::golden::hex;
use braid_base::limits::*;
pub use braid_base::{
    ArrayId, BLOCK_BYTES, BlockRange, DeviceId, Epoch, FenceTable, Generation, Member, MemberState, Membership, NodeId,
    ObjectId, Stamp, TransactionId,
};
pub use braid_blocks::{Content, Linkage, Piece, Want};
pub use braid_ordering::{Ordering, WriteMode};
pub use braid_wire::any::{Any, Source};
pub use braid_wire::fuzzing::seal;
use braid_wire::*;
pub use bytes::Bytes;
pub use proptest::collection::vec;

const TRANSACTION: TransactionId = TransactionId { host: Generation(7), sequence: 9 };
const STAMP: Stamp = Stamp::ZERO;
pub const OBJECT: ObjectId = ObjectId(1);

/// A list of a message: the field, its bound, and what leads to it: variants, optional values that are there, lists of one item.
type ListLimit = (&'static str, usize, &'static [&'static str]);

const LISTS: [ListLimit; 56] = [
    ("over", COMMITS_PER_REQUEST_MAX, &["Request"]),
    ("commits", COMMITS_PER_REQUEST_MAX, &["Request"]),
    ("extents", EXTENTS_MAX, &["Request", "Read"]),
    ("prewrites", EXTENTS_MAX, &["Request", "Prewrite"]),
    ("reads", EXTENTS_MAX, &["Request", "Prewrite"]),
    ("participants", PARTICIPANTS_MAX, &["Request", "Write"]),
    ("pieces", EXTENTS_MAX, &["Request", "Write"]),
    ("participants", PARTICIPANTS_MAX, &["Request", "Execute"]),
    ("pieces", EXTENTS_MAX, &["Request", "Execute"]),
    ("sends", EXTENTS_MAX, &["Request", "Execute"]),
    ("parity", EXTENTS_MAX, &["Request", "Execute"]),
    ("from", PARTICIPANTS_MAX, &["Request", "Execute", "parity"]),
    ("own", EXTENTS_MAX, &["Request", "Execute", "parity"]),
    ("abandoned", ABANDONED_MAX, &["Request", "Objects"]),
    ("commands", OBJECT_COMMANDS_MAX, &["Request", "Objects"]),
    ("sets", ATTRIBUTES_PER_COMMAND_MAX, &["Request", "Objects", "commands"]),
    ("gets", ATTRIBUTES_PER_COMMAND_MAX, &["Request", "Objects", "commands"]),
    ("confirmed", COMMITS_PER_REQUEST_MAX, &["Answer"]),
    ("orphans", ORPHANS_PER_ANSWER_MAX, &["Answer", "Heartbeat"]),
    ("suspects", ORPHANS_PER_ANSWER_MAX, &["Answer", "Heartbeat"]),
    ("pieces", EXTENTS_MAX, &["Answer", "Data"]),
    ("missing", PARTICIPANTS_MAX, &["Answer", "Executing", "Gathering"]),
    ("objects", OBJECTS_MAX, &["Answer", "Managed", "Objects"]),
    ("counters", 1024, &["Answer", "Managed", "Inspected"]),
    ("extents", EXTENTS_MAX, &["Answer", "Managed", "Missed"]),
    ("extents", EXTENTS_MAX, &["Answer", "Managed", "Extents"]),
    ("answer", OBJECT_COMMANDS_MAX, &["Answer", "Objects"]),
    ("values", ATTRIBUTES_PER_COMMAND_MAX, &["Answer", "Objects", "answer"]),
    ("found", OBJECT_LIST_MAX, &["Answer", "Objects", "answer", "Attributes"]),
    ("found", OBJECT_LIST_MAX, &["Answer", "Objects", "answer"]),
    ("dropped", COMMITS_PER_REQUEST_MAX, &["LockRequest"]),
    ("extents", EXTENTS_MAX, &["LockRequest", "Lock"]),
    ("lock_ids", COMMITS_PER_REQUEST_MAX, &["LockRequest", "Yield"]),
    ("over", COMMITS_PER_REQUEST_MAX, &["LockRequest", "LockRange"]),
    ("ahead", EXTENTS_MAX, &["LockRequest", "LockRange"]),
    ("rest", LOCK_PARTS_MAX, &["LockRequest", "Shrink"]),
    ("in_use", LOCK_PARTS_MAX, &["LockRequest", "Shrink"]),
    ("lock_ids", COMMITS_PER_REQUEST_MAX, &["LockAnswer", "Revoke"]),
    ("wanted", LOCK_PARTS_MAX, &["LockAnswer", "Recall"]),
    ("locks", LOCKS_SURVEYED_MAX, &["LockAnswer", "Surveyed"]),
    ("behind", FENCED_MAX, &["LockAnswer", "Surveyed", "locks"]),
    ("silent", PARTICIPANTS_MAX, &["MonitorRequest", "Renew"]),
    ("undecided", FENCED_MAX, &["MonitorRequest", "Renew"]),
    ("except", FENCED_MAX, &["MonitorRequest", "Fence"]),
    ("also", FENCED_MAX, &["MonitorRequest", "Fence"]),
    ("unavailable", PARTICIPANTS_MAX, &["MonitorAnswer"]),
    ("members", DEVICES_MAX, &["MonitorAnswer", "membership"]),
    ("except", FENCED_MAX, &["MonitorAnswer", "membership"]),
    ("also", FENCED_MAX, &["MonitorAnswer", "membership"]),
    ("pieces", EXTENTS_MAX, &["Partial"]),
    ("over", COMMITS_PER_REQUEST_MAX, &["FileRequest"]),
    ("extents", FILE_EXTENTS_MAX, &["FileRequest", "Attach"]),
    ("runs", EXTENTS_MAX, &["FileRequest", "GiveBack"]),
    ("entries", FILE_ENTRIES_MAX, &["FileAnswer", "Entries"]),
    ("extents", FILE_EXTENTS_MAX, &["FileAnswer", "Extents"]),
    ("runs", EXTENTS_MAX, &["Shard", "SpaceTransfer"]),
];

/// The source of a message with one list of this length; all that does not lead to it is empty, the first variant, or one.
struct OneList {
    list: ListLimit,
    length: usize,
    /// Devices of a membership and fenced hosts differ from each other.
    distinct: u64,
}

impl Source for OneList {
    fn below(&mut self, _bound: u64) -> u64 {
        0
    }

    fn number(&mut self, _kind: &'static str, field: &'static str) -> u64 {
        let differs = matches!(field, "device" | "except" | "also");
        self.distinct += u64::from(differs);
        if differs { self.distinct } else { 1 }
    }

    fn variant(&mut self, _kind: &'static str, variants: &[&'static str]) -> usize {
        variants.iter().position(|variant| self.list.2.contains(variant)).unwrap_or(0)
    }

    fn is_there(&mut self, field: &'static str) -> bool {
        self.list.2.contains(&field)
    }

    fn length(&mut self, field: &'static str) -> u64 {
        if field == self.list.0 { self.length as u64 } else { u64::from(self.list.2.contains(&field)) }
    }

    /// The longest name.
    fn bytes(&mut self, _field: &'static str) -> Bytes {
        Bytes::from(vec![b'a'; FILE_NAME_BYTES_MAX])
    }
}

fn with_list(list: ListLimit, length: usize) -> Frame {
    frame(Message::any(&mut OneList { list, length, distinct: 0 }, "message"))
}

pub fn request(command: Command) -> Message {
    let (host, epoch) = (Generation(7), Epoch(0));
    Message::Request(Request { host, epoch, settled: 0, over: vec![], commits: vec![], command })
}

fn changed(membership: Membership) -> Message {
    let (membership, reply) = (Some(membership), MonitorReply::Changed);
    Message::MonitorAnswer(MonitorAnswer { membership, unavailable: vec![], reply })
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

fn write(participants: Vec<DeviceId>, pieces: Vec<Piece>) -> Message {
    let (transaction, stamp, object, ordering) = (TRANSACTION, STAMP, OBJECT, Ordering::Timestamp);
    let (linkage, mode) = (Linkage { first: 0, last: 0 }, WriteMode::Intent);
    request(Command::Write { transaction, stamp, object, ordering, participants, linkage, mode, pieces })
}

fn hole() -> Piece {
    Piece { range: BlockRange::new(1, 1), content: Content::Hole }
}

pub fn frame(message: Message) -> Frame {
    let (from, to) = (NodeId::Host(Generation(7)), NodeId::Device(DeviceId(2)));
    Frame { array: ArrayId([1; 16]), from, to, message }
}

/// What becomes of a message on the wire.
pub fn decoded(message: Message) -> Result<(), WireError> {
    Frame::decode(frame(message).encode().to_bytes()).map(|_| ())
}

#[test]
fn a_list_at_its_bound_is_taken_and_one_beyond_it_is_refused() {
    for list @ (_, max, _) in LISTS {
        let full = with_list(list, max);
        assert_eq!(Frame::decode(full.encode().to_bytes()), Ok(full), "{list:?}");
        let beyond = Frame::decode(with_list(list, max + 1).encode().to_bytes());
        assert_eq!(beyond, Err(WireError::TooLong { length: max + 1, max }), "{list:?}");
    }
    let text = |length: usize| {
        let counters = vec![("c".repeat(length), 1)];
        decoded(managed(Managed::Inspected(Inspection { counters })))
    };
    assert_eq!(text(256), Ok(()));
    assert_eq!(text(257), Err(WireError::TooLong { length: 257, max: 256 }));
}

#[test]
fn a_list_that_claims_more_than_there_is_is_refused() {
    for list @ (_, max, _) in LISTS {
        let (one, two) = (with_list(list, 1).encode().head, with_list(list, 2).encode().head);
        // The first difference between the two is the length of the list.
        let at = (64..).find(|at| one[*at] != two[*at]).expect("a length");
        for (declared, error) in [
            (max as u32, WireError::Truncated),
            (max as u32 + 1, WireError::TooLong { length: max + 1, max }),
            (u32::MAX, WireError::TooLong { length: u32::MAX as usize, max }),
        ] {
            let mut description = one[64..].to_vec();
            description[at - 64..at - 60].copy_from_slice(&declared.to_le_bytes());
            assert_eq!(Frame::decode(seal(&description, &[])), Err(error), "{list:?} of {declared}");
        }
    }
}

#[test]
fn the_most_orphans_of_the_most_participants_fit_into_a_frame() {
    let orphan = Orphan { transaction: TRANSACTION, stamp: STAMP, participants: vec![DeviceId(1); PARTICIPANTS_MAX] };
    let orphans = vec![orphan; ORPHANS_PER_ANSWER_MAX];
    let full = frame(answer(Reply::Heartbeat { orphans, suspects: vec![], busy: false }));
    assert_eq!(Frame::decode(full.encode().to_bytes()), Ok(full));
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
        let fence = FenceTable::default();
        decoded(changed(Membership { epoch: Epoch(5), members: members.to_vec(), fence }))
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
        decoded(write(vec![], vec![Piece { range: BlockRange::new(0, blocks), content }]))
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
        let (transaction, stamp, object, ordering) = (TRANSACTION, STAMP, OBJECT, Ordering::Timestamp);
        let (extents, want) = (vec![BlockRange::new(start, count)], Want::Data);
        decoded(request(Command::Read { transaction, stamp, object, ordering, extents, want }))
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
