//! The encoding of every variant of every message, as in `docs/wire-format.md`: messages of one release are understood by the next, or
//! the version changes. The messages, and their bytes, are in `golden.txt`.

use crate::limits::*;
use braid_wire::*;
use std::collections::{BTreeMap, BTreeSet};

/// A message and its bytes on the wire.
pub struct Golden {
    /// The message as `Debug` shows it, with `…` for the payload.
    shown: &'static str,
    description: Vec<u8>,
    payload: Vec<u8>,
}

impl Golden {
    pub fn frame(&self) -> Bytes {
        frame_of(self.message()).encode().to_bytes()
    }

    fn message(&self) -> Message {
        let frame = Frame::decode(seal(&self.description, &self.payload));
        frame.unwrap_or_else(|error| panic!("{}: {error}", self.shown)).message
    }
}

pub fn goldens() -> Vec<Golden> {
    let mut all: Vec<Golden> = Vec::new();
    for line in include_str!("golden.txt").lines().filter(|line| !line.starts_with('#')) {
        match (line.strip_prefix("    "), all.last_mut()) {
            (None, _) => all.push(Golden { shown: line, description: Vec::new(), payload: Vec::new() }),
            (Some(bytes), Some(last)) => match bytes.split_once(" * ") {
                None => last.description = hex(bytes),
                Some((byte, count)) => last.payload = hex(byte).repeat(count.parse().expect("a number")),
            },
            (Some(_), None) => panic!("bytes without a message"),
        }
    }
    all
}

#[test]
fn every_message_has_the_bytes_that_are_written_down() {
    for golden in goldens() {
        let message = golden.message();
        let mut shown = format!("{message:?}");
        if !golden.payload.is_empty() {
            shown = shown.replace(&format!("{:?}", Bytes::from(golden.payload.clone())), "…");
        }
        assert_eq!(shown, golden.shown);
        let encoded = frame_of(message).encode();
        assert_eq!(digits(&encoded.head[64..]), digits(&golden.description), "{shown}");
        assert_eq!(encoded.payload.concat(), golden.payload, "{shown}");
    }
}

/// Takes the variants of each enum in turn.
#[derive(Default)]
struct EachVariant(BTreeMap<&'static str, (usize, Vec<&'static str>)>);

impl Source for EachVariant {
    fn below(&mut self, bound: u64) -> u64 {
        self.number("below", "") % bound
    }

    fn number(&mut self, kind: &'static str, _field: &'static str) -> u64 {
        self.variant(kind, &[""; 7]) as u64
    }

    fn variant(&mut self, kind: &'static str, variants: &[&'static str]) -> usize {
        let (turn, known) = self.0.entry(kind).or_default();
        (*turn, *known) = (*turn + 1, variants.to_vec());
        *turn % variants.len()
    }
}

#[test]
fn every_variant_is_written_down() {
    let mut each = EachVariant::default();
    for _ in 0..10_000 {
        let _ = Message::any(&mut each, "message");
    }
    let words: BTreeSet<&str> = include_str!("golden.txt").split(|c: char| !c.is_alphanumeric()).collect();
    for (kind, (_, variants)) in each.0 {
        for variant in variants.iter().filter(|variant| !variant.is_empty()) {
            assert!(words.contains(variant), "golden.txt has no {kind}::{variant}");
        }
    }
}

/// A message in a frame from host 7 to device 2, or back.
fn frame_of(message: Message) -> Frame {
    let (host, device) = (NodeId::Host(Generation(7)), NodeId::Device(DeviceId(2)));
    let (from, to) = if matches!(message, Message::Answer(_)) { (device, host) } else { (host, device) };
    Frame { array: ArrayId(std::array::from_fn(|index| 0xa0 + index as u8)), from, to, message }
}

#[test]
fn whole_frames_have_the_bytes_that_are_written_down() {
    let array = "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf";
    let (host, device) = ("01000000 07000000", "02000000 02000000");
    let header = |bytes: &str, from: &str, to: &str, crc: &str| {
        format!("42524144 1000 0000 {bytes} {array} {from} {to} 0000000000000000 {crc} 00000000")
    };
    let all = goldens();
    let written = all.iter().position(|golden| golden.description == hex(&format!("{ANSWER} 04 {TRANSACTION} 00")));
    let with_data = all.iter().position(|golden| !golden.payload.is_empty());
    for (index, header) in [
        (0, header("32000000 00000000", host, device, "6ccfc079")),
        (written.expect("an answer"), header("1f000000 00000000", device, host, "e5eff077")),
        (with_data.expect("a write"), header("a7000000 00100000", host, device, "b9100bc8")),
    ] {
        let golden = &all[index];
        let frame = frame_of(golden.message());
        let expected = [&hex(&header)[..], &golden.description, &golden.payload].concat();
        assert_eq!(digits(&frame.encode().to_bytes()), digits(&expected), "{}", golden.shown);
        assert_eq!(Frame::decode(expected.into()), Ok(frame));
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
const OBJECT: &str = "2100000000000000";
/// Blocks 4 and 5 for blocks 9 and 10 of device 3.
const SENDING: &str = "0400000000000000 0200000000000000 0300 0900000000000000";
/// A list of one range: blocks 4 and 5.
const RANGES: &str = "01000000 0400000000000000 0200000000000000";
const TICKET: &str = "0600000000000000";
/// From host 7: all sequences below 5 are settled, 6 is over, this is 8.
const FILE_REQUEST: &str = "08 07000000 0500000000000000 01000000 0600000000000000 0800000000000000";
/// From start 5, for sequence 8.
const FILE_ANSWER: &str = "09 05000000 0800000000000000";

/// Each enum has the variants of the table and no others. A new variant makes this test fail, which points to the page that must describe it.
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
        ("LockCommand", LOCK_REQUEST.into(), 8),
        ("LockTerm", format!("{LOCK_REQUEST} 02 {TICKET} {OBJECT} 00000000"), 5),
        ("LockMode", format!("{LOCK_REQUEST} 02 {TICKET} {OBJECT} 01000000 0300 {OBJECT} {OBJECT}"), 2),
        ("Patience", format!("{LOCK_REQUEST} 06 {TICKET} {OBJECT} 00000000 {OBJECT} 00000000 00000000"), 4),
        ("LockReply", LOCK_ANSWER.into(), 10),
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
            let abandoned = [("Task", 5), ("LockCommand", 5)].contains(&(what, byte));
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

pub fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
