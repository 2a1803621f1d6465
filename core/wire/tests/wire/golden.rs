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

/// The names of the variants of all enums in messages.
fn variants() -> BTreeMap<&'static str, Vec<&'static str>> {
    let mut each = EachVariant::default();
    for _ in 0..10_000 {
        let _ = Message::any(&mut each, "message");
    }
    let of = |(kind, (_, variants)): (_, (_, Vec<&'static str>))| (!variants[0].is_empty()).then_some((kind, variants));
    each.0.into_iter().filter_map(of).collect()
}

#[test]
fn every_variant_is_written_down() {
    let words: BTreeSet<&str> = include_str!("golden.txt").split(|c: char| !c.is_alphanumeric()).collect();
    for (kind, variants) in variants() {
        for variant in variants {
            assert!(words.contains(variant), "golden.txt has no {kind}::{variant}");
        }
    }
}

/// Each byte of a message is replaced, and what follows it cut off. It is the byte of an enum if all that are no variants are refused by name.
#[test]
fn a_byte_that_is_no_choice_is_refused_by_name() {
    // The last byte of each enum, and one that an earlier version used.
    let of = |(kind, variants): (&'static str, Vec<_>)| (kind, (variants.len() as u8, 0));
    let mut choices: BTreeMap<&str, (u8, u8)> = variants().into_iter().map(of).collect();
    choices.remove("Content");
    choices.extend([("Task", (11, 5)), ("LockCommand", (8, 5)), ("content", (5, 0)), ("result", (2, 0))]);
    let mut seen = BTreeSet::new();
    for golden in goldens() {
        for at in 0..golden.description.len() {
            let refusal = |byte| {
                let description = [&golden.description[..at], &[byte]].concat();
                match Frame::decode(seal(&description, &golden.payload)) {
                    Err(WireError::BadValue { what }) => Some(what),
                    _ => None,
                }
            };
            let Some(what) = refusal(0).filter(|what| refusal(255) == Some(what)) else { continue };
            let Some((last, earlier)) = choices.get(what) else { continue };
            if seen.insert(what) {
                for byte in 0..=255 {
                    let is_choice = (1..=*last).contains(&byte) && byte != *earlier;
                    assert_eq!(refusal(byte) != Some(what), is_choice, "{what} {byte}");
                }
            }
        }
    }
    assert_eq!(seen, choices.into_keys().collect());
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
    // The answer to a write, from epoch 3, confirming 11.
    let answer = hex("02 03000000 01000000 0b00000000000000 04 07000000 0900000000000000 00");
    let written = all.iter().position(|golden| golden.description == answer);
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

pub fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
    assert!(digits.len().is_multiple_of(2), "two digits a byte");
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

pub fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
