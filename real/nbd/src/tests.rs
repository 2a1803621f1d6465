//! Tests of the codec against a naive client, which encodes and decodes every message byte by byte.

use crate::fuzz::{fuzz_handshake, fuzz_requests};
use crate::handshake::{Handshake, HandshakeError, Negotiated, Progress};
use crate::reply::{Outcome, Output, Reply, extents};
use crate::request::{Command, DecodeError, Request, Requests};
use crate::{Error, ErrorNumber, Export, Space};
use bytes::{Buf, Bytes, BytesMut};
use proptest::prelude::*;
use std::io::IoSlice;

const EXPORT_BYTES: u64 = 1 << 40;

fn exports() -> Vec<Export> {
    let export = |name: &str, description: &str| Export {
        name: name.into(),
        bytes: EXPORT_BYTES,
        description: description.into(),
    };
    vec![export("first", "the first"), export("second", "")]
}

fn negotiated(structured: bool) -> Negotiated {
    Negotiated { export: exports().remove(0), structured, allocation: structured }
}

// ---- handshake ----

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    [b"IHAVEOPT", &number.to_be_bytes()[..], &(data.len() as u32).to_be_bytes(), data].concat()
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

fn contexts(export: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = string(export);
    data.extend((queries.len() as u32).to_be_bytes());
    queries.iter().for_each(|query| data.extend(string(query)));
    data
}

fn info(export: &str, asked: &[u16]) -> Vec<u8> {
    let mut data = string(export);
    data.extend((asked.len() as u16).to_be_bytes());
    asked.iter().for_each(|asked| data.extend(asked.to_be_bytes()));
    data
}

type OptionReplies = Vec<(u32, u32, Vec<u8>)>;

/// Sends flags and options. Returns the answers as (option, reply, data), and the result.
fn converse(exports: &[Export], options: &[Vec<u8>]) -> (OptionReplies, Result<Option<Progress>, HandshakeError>) {
    let mut input = BytesMut::from(&3u32.to_be_bytes()[..]);
    options.iter().for_each(|option| input.extend_from_slice(option));
    let (mut handshake, mut out) = (Handshake::default(), BytesMut::new());
    let end = loop {
        match handshake.take(&mut input, exports, &mut out) {
            Ok(Progress::Incomplete) => break Ok(None),
            Ok(Progress::Answered) => {}
            Ok(end) => break Ok(Some(end)),
            Err(error) => break Err(error),
        }
    };
    let mut replies = Vec::new();
    while out.starts_with(&0x0003_e889_0455_65a9u64.to_be_bytes()) {
        out.advance(8);
        let (option, reply, length) = (out.get_u32(), out.get_u32(), out.get_u32() as usize);
        replies.push((option, reply, out.split_to(length).to_vec()));
    }
    (replies, end)
}

#[test]
fn go_answers_with_size_flags_and_the_requested_information_and_begins() {
    let options = [
        option(8, b""),
        option(10, &contexts("first", &["base:allocation"])),
        option(7, &info("first", &[3, 1, 2, 3])),
    ];
    let (replies, end) = converse(&exports(), &options);
    let size_and_flags = [&[0, 0], &EXPORT_BYTES.to_be_bytes()[..], &0x0dedu16.to_be_bytes()].concat();
    let block_sizes = [&[0, 3][..], &1u32.to_be_bytes(), &4096u32.to_be_bytes(), &(32u32 << 20).to_be_bytes()].concat();
    let expected = vec![
        (8, 1, vec![]),
        (10, 4, b"\x00\x00\x00\x01base:allocation".to_vec()),
        (10, 1, vec![]),
        (7, 3, size_and_flags),
        (7, 3, b"\x00\x01first".to_vec()),
        (7, 3, b"\x00\x02the first".to_vec()),
        (7, 3, block_sizes),
        (7, 1, vec![]),
    ];
    assert_eq!(replies, expected);
    assert_eq!(end, Ok(Some(Progress::Chosen(negotiated(true)))));
}

#[test]
fn a_session_is_what_was_agreed_on_for_the_export_that_was_chosen() {
    let allocation = |options: &[Vec<u8>]| match converse(&exports(), options).1 {
        Ok(Some(Progress::Chosen(negotiated))) => (negotiated.structured, negotiated.allocation),
        other => panic!("{other:?}"),
    };
    let structured = || option(8, b"");
    let choose = |export| option(10, &contexts(export, &["x", "base:allocation"]));
    let go = || option(7, &info("first", &[]));
    assert_eq!(allocation(&[go()]), (false, false));
    assert_eq!(allocation(&[structured(), go()]), (true, false));
    assert_eq!(allocation(&[structured(), choose("first"), go()]), (true, true));
    assert_eq!(allocation(&[structured(), choose("second"), go()]), (true, false));
    assert_eq!(allocation(&[structured(), choose("first"), choose("nowhere"), go()]), (true, false));
    assert_eq!(allocation(&[choose("first"), structured(), go()]), (true, false));
    assert_eq!(allocation(&[structured(), option(10, &contexts("first", &["base:"])), go()]), (true, false));
}

#[test]
fn listing_names_every_export_and_context() {
    let (replies, _) = converse(&exports(), &[option(3, b""), option(9, &contexts("first", &[]))]);
    let expected = vec![
        (3, 2, b"\x00\x00\x00\x05firstthe first".to_vec()),
        (3, 2, b"\x00\x00\x00\x06second".to_vec()),
        (3, 1, vec![]),
        (9, 4, b"\x00\x00\x00\x00base:allocation".to_vec()),
        (9, 1, vec![]),
    ];
    assert_eq!(replies, expected);
}

#[test]
fn an_unsupported_option_is_refused_and_the_client_may_go_on() {
    const UNSUPPORTED: u32 = (1 << 31) + 1;
    const INVALID: u32 = (1 << 31) + 3;
    const UNKNOWN: u32 = (1 << 31) + 6;
    const TOO_BIG: u32 = (1 << 31) + 9;
    let cases = [
        (option(5, b""), UNSUPPORTED),                                     // STARTTLS
        (option(11, b""), UNSUPPORTED),                                    // EXTENDED_HEADERS
        (option(77, b"what?"), UNSUPPORTED),                               // nobody knows
        (option(3, b"x"), INVALID),                                        // LIST takes nothing
        (option(8, b"x"), INVALID),                                        // nor STRUCTURED_REPLY
        (option(7, &info("third", &[])), UNKNOWN),                         // no such export
        (option(6, &info("", &[])), UNKNOWN),                              // which of the two?
        (option(7, &info("first", &[])[..6]), INVALID),                    // cut short
        (option(7, b"\xff\xff\xff\xff"), INVALID),                         // longer than there is
        (option(7, &[info("first", &[]), vec![0]].concat()), INVALID),     // longer than it says
        (option(6, &info(&"x".repeat(5000), &[])), TOO_BIG),               // longer than a name may be
        (option(10, &contexts("first", &["base:allocation"])), INVALID),   // before STRUCTURED_REPLY
        (option(9, &contexts("third", &[])), UNKNOWN),                     // no such export
        (option(9, &[contexts("first", &[]), vec![0]].concat()), INVALID), // longer than it says
        (option(9, &[string("first"), vec![0xff; 4]].concat()), INVALID),  // more queries than there are
    ];
    for (option, refusal) in cases {
        let (replies, end) = converse(&exports(), &[option.clone(), b"IHAVEOPT\0\0\0\x02\0\0\0\0".to_vec()]);
        assert_eq!(replies.iter().map(|reply| reply.1).collect::<Vec<_>>(), [refusal, 1], "{option:?}");
        assert!(!replies[0].2.is_empty(), "a refusal says why");
        assert_eq!(end, Ok(Some(Progress::Aborted)));
    }
}

#[test]
fn the_only_export_needs_no_name() {
    let only = &exports()[..1];
    let (_, end) = converse(only, &[option(7, &info("", &[]))]);
    assert_eq!(end, Ok(Some(Progress::Chosen(negotiated(false)))));
    let (_, end) = converse(only, &[option(1, b"")]);
    assert_eq!(end, Ok(Some(Progress::Chosen(negotiated(false)))));
    let (_, end) = converse(only, &[option(1, b"other")]);
    assert_eq!(end, Err(HandshakeError::NoSuchExport { name: "other".into() }));
}

#[test]
fn a_client_can_not_forge_lines_of_the_log_with_a_name() {
    let (_, end) = converse(&exports(), &[option(1, b"x\x1b[2K\r\n2026-11-24 INFO all is well")]);
    let text = end.expect_err("there is no such export").to_string();
    assert!(!text.contains(['\x1b', '\r', '\n']), "{text:?}");
}

#[test]
fn the_old_export_name_is_answered_with_zeroes_unless_they_were_declined() {
    for (flags, zeroes) in [(1u32, 124), (3, 0)] {
        let mut input = BytesMut::from(&[&flags.to_be_bytes()[..], &option(1, b"second")].concat()[..]);
        let (mut handshake, mut out) = (Handshake::default(), BytesMut::new());
        assert_eq!(handshake.take(&mut input, &exports(), &mut out), Ok(Progress::Answered));
        assert!(matches!(handshake.take(&mut input, &exports(), &mut out), Ok(Progress::Chosen(_))));
        assert_eq!(out, [&EXPORT_BYTES.to_be_bytes()[..], &0x0d6du16.to_be_bytes(), &vec![0; zeroes]].concat());
    }
}

#[test]
fn an_invalid_handshake_ends_the_connection() {
    let first = |bytes: &[u8]| {
        let (mut handshake, mut input, mut out) = (Handshake::default(), BytesMut::from(bytes), BytesMut::new());
        match handshake.take(&mut input, &exports(), &mut out) {
            Ok(Progress::Answered) => handshake.take(&mut input, &exports(), &mut out),
            other => other,
        }
    };
    assert_eq!(first(b"GET / HTTP/1.1\r\n"), Err(HandshakeError::UnknownFlags { flags: 0x4745_5420 }));
    assert!(matches!(first(b"\0\0\0\x03GET / HTTP/1.1\r\n"), Err(HandshakeError::NotAnOption { .. })));
    let long = b"\0\0\0\x03IHAVEOPT\0\0\0\x07\x7f\xff\xff\xff";
    assert_eq!(first(long), Err(HandshakeError::OptionTooLong { length: 0x7fff_ffff }));
    let (_, end) = converse(&exports(), &vec![option(77, b""); 5000]);
    assert_eq!(end, Err(HandshakeError::TooManyOptions));
}

// ---- requests ----

fn request(flags: u16, command: u16, cookie: u64, offset: u64, length: u32) -> Vec<u8> {
    let magic = 0x2560_9513u32.to_be_bytes();
    let (flags, command) = (flags.to_be_bytes(), command.to_be_bytes());
    [&magic[..], &flags, &command, &cookie.to_be_bytes(), &offset.to_be_bytes(), &length.to_be_bytes()].concat()
}

/// Every command that a client with structured replies may send, and its encoding.
fn any_request() -> impl Strategy<Value = (Request, Vec<u8>)> {
    let command = (0..=7u16, 0..EXPORT_BYTES / 2, 0..100_000u32, any::<[bool; 3]>());
    (any::<u64>(), command).prop_map(|(cookie, (number, offset, length, [fua, one, two]))| {
        let long = u64::from(length);
        let data: Vec<u8> = (0..length).map(|byte| byte as u8).collect();
        let (flags, command) = match number {
            0 => (u16::from(one) << 2, Command::Read { offset, length: length as usize }),
            1 => (0, Command::Write { offset, data: data.clone().into() }),
            2 => (0, Command::Disconnect),
            3 => (0, Command::Flush),
            4 => (0, Command::Trim { offset, length: long }),
            5 => (0, Command::Cache),
            6 if two => (1 << 1, Command::Zero { offset, length: long, space: Space::Keep }),
            6 => (u16::from(one) << 4, Command::Zero { offset, length: long, space: Space::GiveBack }),
            _ => (u16::from(one) << 3, Command::Allocation { offset, length: long + 1, only_first: one }),
        };
        let length = if number == 7 { length + 1 } else { length };
        let mut bytes = request(flags | u16::from(fua), number, cookie, offset, length);
        if number == 1 {
            bytes.extend(data);
        }
        (Request { cookie, command: Ok(command) }, bytes)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn requests_are_understood_however_they_are_cut(
        sent in prop::collection::vec(any_request(), 1..20),
        cuts in prop::collection::vec(1..100_000usize, 1..20),
    ) {
        let (expected, bytes): (Vec<_>, Vec<_>) = sent.into_iter().unzip();
        let bytes = bytes.concat();
        let (mut requests, mut input, mut taken) = (Requests::new(&negotiated(true)), BytesMut::new(), Vec::new());
        let (mut rest, mut cuts) = (&bytes[..], cuts.iter().cycle());
        while !rest.is_empty() {
            let (now, later) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
            input.extend_from_slice(now);
            rest = later;
            while let Some(request) = requests.take(&mut input).unwrap() {
                taken.push(request);
            }
            prop_assert!(rest.is_empty() || requests.missing(&input) > 0);
        }
        prop_assert_eq!(taken, expected);
        prop_assert!(input.is_empty());
    }

    #[test]
    fn replies_arrive_as_they_were_sent_however_they_are_cut(
        structured in any::<bool>(),
        replies in prop::collection::vec(any_reply(), 1..20),
        cuts in prop::collection::vec(1..5_000usize, 1..20),
    ) {
        let replies: Vec<_> =
            replies.into_iter().filter(|r| structured || !matches!(r.outcome, Ok(Outcome::Extents(_)))).collect();
        let (mut output, mut sent, mut cuts) = (Output::new(structured), Vec::new(), cuts.iter().cycle());
        for (index, reply) in replies.iter().enumerate() {
            output.put(reply.clone());
            // Sometimes a part is sent between two replies.
            if index % 3 == 0 {
                sent.extend(take(&mut output, *cuts.next().unwrap()));
            }
            if index % 5 == 0 {
                let before = output.bytes();
                output.compact();
                prop_assert_eq!(output.bytes(), before);
            }
        }
        while output.bytes() > 0 {
            sent.extend(take(&mut output, *cuts.next().unwrap()));
        }
        let expected: Vec<u8> = replies.iter().flat_map(|reply| naive_reply(reply, structured)).collect();
        prop_assert_eq!(sent, expected);
    }

    #[test]
    fn runs_are_reported_as_they_are(
        runs in prop::collection::vec((0..10_000u64, any::<bool>()), 0..20),
        length in 1..40_000u64,
        only_first in any::<bool>(),
    ) {
        let map: Vec<bool> = runs.iter().flat_map(|&(bytes, is)| vec![is; bytes as usize]).take(length as usize).collect();
        match extents(runs, length, only_first) {
            Err(_) => prop_assert!(map.is_empty()),
            Ok(Outcome::Extents(extents)) => {
                let told: Vec<bool> = extents.iter().flat_map(|&(bytes, is)| vec![is; bytes as usize]).collect();
                prop_assert!(extents.windows(2).all(|pair| pair[0].1 != pair[1].1) && extents.iter().all(|e| e.0 > 0));
                let first = map.iter().take_while(|is| **is == map[0]).count();
                let expected = if only_first { &map[..first] } else { &map };
                prop_assert_eq!(&told, expected);
            }
            Ok(other) => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn no_bytes_upset_the_handshake(piece in any::<u8>(), options in prop::collection::vec(any_option(), 0..12)) {
        fuzz_handshake(&[vec![piece, 0, 0, 0, 3], options.concat()].concat());
    }

    #[test]
    fn no_bytes_upset_the_requests(
        start in any::<[u8; 2]>(),
        wild in prop::collection::vec(any_wild_request(), 0..12),
    ) {
        fuzz_requests(&[start.to_vec(), wild.concat()].concat());
    }
}

/// Options, most of them nearly valid.
fn any_option() -> impl Strategy<Value = Vec<u8>> {
    let name = || prop::sample::select(vec!["", "a", "b", "c", "base:allocation", "base:"]);
    prop_oneof![
        4 => (6..8u32, name(), prop::collection::vec(0..5u16, 0..4)).prop_map(|(n, e, i)| option(n, &info(e, &i))),
        4 => (9..11u32, name(), prop::collection::vec(name(), 0..4)).prop_map(|(n, e, q)| option(n, &contexts(e, &q))),
        4 => (0..13u32).prop_map(|n| option(n, b"")),
        2 => (0..13u32, prop::collection::vec(any::<u8>(), 0..40)).prop_map(|(n, data)| option(n, &data)),
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ]
}

/// Requests that are nearly valid; small ones, so that data does not run out.
fn any_wild_request() -> impl Strategy<Value = Vec<u8>> {
    let length = prop_oneof![4 => 0..300u32, 1 => any::<u32>()];
    let offset = prop_oneof![4 => 0..1u64 << 20, 1 => any::<u64>()];
    (0..64u16, 0..9u16, any::<u64>(), offset, length).prop_map(|(flags, command, cookie, offset, length)| {
        let flags = if cookie % 2 == 0 { 0 } else { flags };
        let mut bytes = request(flags, command, cookie, offset, length);
        if command == 1 {
            bytes.extend(vec![7; length.min(1000) as usize]);
        }
        bytes
    })
}

#[test]
fn an_impossible_request_is_refused_with_the_fitting_error_number() {
    let numbers = |structured: bool, bytes: &[u8]| -> Vec<u32> {
        let (mut requests, mut input) = (Requests::new(&negotiated(structured)), BytesMut::from(bytes));
        let taken: Vec<_> = std::iter::from_fn(|| requests.take(&mut input).unwrap()).collect();
        assert!(input.is_empty());
        taken.iter().map(|request| request.command.as_ref().map_or_else(|error| error.number as u32, |_| 0)).collect()
    };
    const INVALID: u32 = 22;
    const NO_SPACE: u32 = 28;
    const NOT_SUPPORTED: u32 = 95;
    let last = EXPORT_BYTES - 1;
    let cases = [
        (request(0, 0, 1, last, 1), 0),
        (request(0, 0, 1, last, 2), INVALID),
        (request(0, 0, 1, u64::MAX, 1), INVALID),
        (request(0, 0, 1, EXPORT_BYTES, 0), 0),
        (request(0, 4, 1, last, 2), INVALID),
        (request(0, 6, 1, last, 2), NO_SPACE),
        (request(0, 7, 1, last, 2), INVALID),
        (request(0, 7, 1, 0, 0), INVALID),
        (request(0, 0, 1, 0, 32 << 20), 0),
        (request(0, 0, 1, 0, (32 << 20) + 1), INVALID),
        (request(0, 6, 1, 0, u32::MAX), 0),
        (request(0, 8, 1, 0, 0), INVALID),
        (request(1 << 4, 6, 1, 0, 1), 0),
        (request(1 << 4 | 1 << 1, 6, 1, 0, 1), NOT_SUPPORTED),
        (request(1 << 5, 0, 1, 0, 1), INVALID),
        (request(1 << 2, 3, 1, 0, 0), INVALID),
        (request(1 << 1, 4, 1, 0, 1), INVALID),
    ];
    for (bytes, number) in cases {
        assert_eq!(numbers(true, &bytes), [number], "{bytes:?}");
    }
    // The request after a refused write is found behind its data.
    let beyond = [request(0, 1, 1, last, 3), vec![0x25; 3], request(0, 3, 2, 0, 0)].concat();
    assert_eq!(numbers(true, &beyond), [NO_SPACE, 0]);
    let too_long = [request(0, 1, 1, 0, (32 << 20) + 1), vec![0x25; (32 << 20) + 1], request(0, 3, 2, 0, 0)].concat();
    assert_eq!(numbers(true, &too_long), [INVALID, 0]);
    // Without structured replies, fragments are not allowed, and block status is not available.
    assert_eq!(numbers(false, &request(1 << 2, 0, 1, 0, 1)), [INVALID]);
    assert_eq!(numbers(false, &request(0, 7, 1, 0, 1)), [INVALID]);
}

#[test]
fn an_invalid_request_ends_the_connection() {
    let first = |bytes: &[u8]| Requests::new(&negotiated(true)).take(&mut BytesMut::from(bytes));
    assert_eq!(first(&[b'x'; 28]), Err(DecodeError::NotARequest { magic: 0x7878_7878 }));
    assert_eq!(first(&request(0, 1, 1, 0, u32::MAX)), Err(DecodeError::WriteTooLong { length: u32::MAX }));
}

// ---- replies ----

fn any_reply() -> impl Strategy<Value = Reply> {
    let data = (any::<u64>(), prop::collection::vec(prop::collection::vec(any::<u8>(), 1..3000), 0..4));
    let outcome = prop_oneof![
        Just(Ok(Outcome::Done)),
        data.prop_map(|(offset, buffers)| {
            let length = buffers.iter().map(Vec::len).sum();
            Ok(Outcome::Data { offset, length, buffers: buffers.into_iter().map(Bytes::from).collect() })
        }),
        prop::collection::vec((1..u32::MAX, any::<bool>()), 1..9).prop_map(|runs| Ok(Outcome::Extents(runs))),
        "é{0,3000}".prop_map(|text| Err(Error::new(ErrorNumber::Io, text))),
    ];
    (any::<u64>(), outcome).prop_map(|(cookie, outcome)| Reply { cookie, outcome })
}

fn naive_reply(reply: &Reply, structured: bool) -> Vec<u8> {
    let cookie = reply.cookie.to_be_bytes();
    let simple = |error: u32| [&0x6744_6698u32.to_be_bytes()[..], &error.to_be_bytes(), &cookie].concat();
    let chunk = |kind: u16, data: &[u8]| {
        let head = [&0x668e_33efu32.to_be_bytes()[..], &[0, 1], &kind.to_be_bytes()].concat();
        [&head[..], &cookie, &(data.len() as u32).to_be_bytes(), data].concat()
    };
    match &reply.outcome {
        Ok(Outcome::Done) => simple(0),
        Ok(Outcome::Data { buffers, .. }) if !structured => [simple(0), buffers.concat()].concat(),
        Ok(Outcome::Data { length: 0, .. }) => chunk(0, &[]),
        Ok(Outcome::Data { offset, buffers, .. }) => chunk(1, &[&offset.to_be_bytes()[..], &buffers.concat()].concat()),
        Ok(Outcome::Extents(runs)) => {
            let run =
                |&(bytes, allocated): &(u32, bool)| [bytes.to_be_bytes(), [0, 0, 0, if allocated { 0 } else { 3 }]];
            chunk(5, &[vec![[0, 0, 0, 1]], runs.iter().flat_map(run).collect()].concat().concat())
        }
        Err(error) if !structured => simple(error.number as u32),
        Err(error) => {
            // Each é has two bytes, and at most 4096 are sent.
            let text: String = error.text.chars().take(2048).collect();
            let number = (error.number as u32).to_be_bytes();
            chunk(0x8001, &[&number[..], &(text.len() as u16).to_be_bytes(), text.as_bytes()].concat())
        }
    }
}

fn take(output: &mut Output, most: usize) -> Vec<u8> {
    let mut slices = [IoSlice::new(&[]); 3];
    let filled = output.peek(&mut slices);
    let mut bytes = slices[..filled].iter().flat_map(|slice| slice.to_vec()).collect::<Vec<u8>>();
    bytes.truncate(most);
    output.advance(bytes.len());
    bytes
}
