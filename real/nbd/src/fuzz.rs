//! The code of fuzz targets for the codec. Their input is arbitrary bytes, in pieces of any size. It also runs as property tests.

use crate::Export;
use crate::handshake::{Handshake, HandshakeError, Negotiated, Progress};
use crate::protocol::{OPTION_REPLY_MAGIC, REQUEST_BYTES_MAX};
use crate::request::{Command, DecodeError, Request, Requests};
use bytes::{Buf, Bytes, BytesMut};

const EXPORT_BYTES: u64 = 1 << 20;

/// A client sends `data` in the handshake. The answers must not depend on how its bytes are split, and must be well-formed.
pub fn fuzz_handshake(data: &[u8]) {
    let Some((&piece, data)) = data.split_first() else { return };
    let whole = handshake(data, data.len().max(1));
    assert_eq!(whole, handshake(data, usize::from(piece).max(1)), "answers depend on how the bytes were cut");
    check_option_replies(whole.0, matches!(whole.1, Some(Ok(Progress::Chosen(_)))));
}

/// A client sends `data` after the handshake. The decoded requests must not depend on how its bytes are split, and must lie within the
/// export.
pub fn fuzz_requests(data: &[u8]) {
    let &[piece, flags, ref data @ ..] = data else { return };
    let export = Export { name: String::new(), bytes: EXPORT_BYTES, description: String::new() };
    let structured = flags & 1 != 0;
    let negotiated = Negotiated { export, structured, allocation: structured && flags & 2 != 0 };
    let whole = requests(&negotiated, data, data.len().max(1));
    let cut = requests(&negotiated, data, usize::from(piece).max(1));
    assert_eq!(whole, cut, "requests depend on how the bytes were cut");
    whole.0.iter().filter_map(|request| request.command.as_ref().ok()).for_each(check_command);
}

/// All answers to `data`, and the result, if the handshake ended.
fn handshake(data: &[u8], piece: usize) -> (Bytes, Option<Result<Progress, HandshakeError>>) {
    let export = |name: &str| Export { name: name.into(), bytes: EXPORT_BYTES, description: "an export".into() };
    let exports = [export("a"), export("b")];
    let (mut handshake, mut input, mut out) = (Handshake::default(), BytesMut::new(), BytesMut::new());
    for piece in data.chunks(piece) {
        input.extend_from_slice(piece);
        loop {
            match handshake.take(&mut input, &exports, &mut out) {
                Ok(Progress::Incomplete) => break,
                Ok(Progress::Answered) => {}
                end => return (out.freeze(), Some(end)),
            }
        }
    }
    (out.freeze(), None)
}

fn check_option_replies(mut replies: Bytes, chosen: bool) {
    while replies.starts_with(&OPTION_REPLY_MAGIC.to_be_bytes()) {
        replies.advance(16);
        let length = replies.get_u32() as usize;
        replies.advance(length);
    }
    // Only EXPORT_NAME has another form of answer: a size, flags, and optional zeros.
    assert!(replies.is_empty() || (chosen && [10, 134].contains(&replies.len())), "{replies:?}");
}

/// All requests in `data`, and the error, if decoding failed.
fn requests(negotiated: &Negotiated, data: &[u8], piece: usize) -> (Vec<Request>, Option<DecodeError>) {
    let (mut requests, mut input, mut taken) = (Requests::new(negotiated), BytesMut::new(), Vec::new());
    for piece in data.chunks(piece) {
        input.extend_from_slice(piece);
        loop {
            match requests.take(&mut input) {
                Ok(Some(request)) => taken.push(request),
                Ok(None) => break,
                Err(garbage) => return (taken, Some(garbage)),
            }
        }
        assert!(requests.missing(&input) > 0, "something is missing, or there would have been a request");
    }
    (taken, None)
}

fn check_command(command: &Command) {
    let (offset, length) = match command {
        Command::Read { offset, length } => {
            assert!(*length <= REQUEST_BYTES_MAX as usize);
            (*offset, *length as u64)
        }
        Command::Write { offset, data } => (*offset, data.len() as u64),
        Command::Zero { offset, length, .. }
        | Command::Trim { offset, length }
        | Command::Allocation { offset, length, .. } => (*offset, *length),
        Command::Flush | Command::Cache | Command::Disconnect => (0, 0),
    };
    assert!(offset + length <= EXPORT_BYTES);
}
