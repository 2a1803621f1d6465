//! Properties that must hold for arbitrary bytes. The fuzzer and the property tests call the same functions, which panic where decoding
//! accepts something invalid.

use crate::any::{Any, Choices, Source};
use crate::files::FileReply;
use crate::frame::{Frame, HEADER_BYTES, WireError};
use crate::message::{Answer, Message, Reply};
use crate::objects::ObjectAnswer;
use braid_base::{ArrayId, DeviceId, Epoch, Generation, NodeId, checksum, limits};
use bytes::Bytes;

/// A frame that depends on these numbers: any message, with any valid values.
pub fn any_frame(choices: &[u64]) -> Frame {
    Any::any(&mut Choices(choices), "")
}

/// An answer to an object request, likewise.
pub fn any_object_answer(choices: &[u64]) -> ObjectAnswer {
    Any::any(&mut Choices(choices), "")
}

/// A reply of a metadata server, likewise.
pub fn any_file_reply(choices: &[u64]) -> FileReply {
    Any::any(&mut Choices(choices), "")
}

impl Any for Frame {
    fn any<S: Source>(of: &mut S, _field: &'static str) -> Self {
        let array = ArrayId(std::array::from_fn(|_| of.below(256) as u8));
        Frame { message: Any::any(of, "message"), array, from: Any::any(of, "from"), to: Any::any(of, "to") }
    }
}

/// A sender sends `data` in place of a frame.
pub fn wire_frame(data: &[u8]) {
    let header = Frame::header(data);
    for short in 0..HEADER_BYTES.min(data.len()) {
        let early = Frame::header(&data[..short]);
        assert!(
            early == Ok(None) || early == Err(WireError::NotBraid) && early == header,
            "a header is judged only when it is complete"
        );
    }
    if let Ok(Some(header)) = header {
        assert!((HEADER_BYTES..=limits::FRAME_BYTES_MAX).contains(&header.frame_bytes));
    }
    if let Ok(frame) = Frame::decode(Bytes::copy_from_slice(data)) {
        assert_eq!(
            Ok(&frame),
            Frame::decode(frame.encode().to_bytes()).as_ref(),
            "encoding and decoding change nothing"
        );
    }
}

/// A sender that knows the format sends a valid frame around an arbitrary description. The first two bytes of `data` are the length of
/// the payload, the rest is the description.
pub fn wire_message(data: &[u8]) {
    let &[low, high, ref description @ ..] = data else {
        return;
    };
    // Each byte depends on its position, so that a slice at a wrong position is detected.
    let payload: Vec<u8> = (0..u16::from_le_bytes([low, high])).map(|at| (at ^ (at >> 8)) as u8).collect();
    let bytes = seal(description, &payload);
    if let Ok(frame) = Frame::decode(bytes.clone()) {
        assert_eq!(frame.encode().to_bytes(), bytes, "a message has only one encoding");
    }
}

/// A frame from device 2 to host 7 with any description and payload. Everything else in it is valid.
pub fn seal(description: &[u8], payload: &[u8]) -> Bytes {
    let message = Message::Answer(Answer {
        epoch: Epoch(0),
        confirmed: vec![],
        reply: Reply::Heartbeat { orphans: vec![], suspects: vec![], busy: false },
    });
    let (from, to) = (NodeId::Device(DeviceId(2)), NodeId::Host(Generation(7)));
    let proper = Frame { array: ArrayId(*b"a fuzzer's array"), from, to, message }.encode();
    let mut bytes = [&proper.head[..HEADER_BYTES], description, payload].concat();
    bytes[8..12].copy_from_slice(&(description.len() as u32).to_le_bytes());
    bytes[12..16].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    reseal(bytes)
}

/// `frame`, which a test has changed, with a valid checksum.
pub fn reseal(mut frame: Vec<u8>) -> Bytes {
    frame[56..60].fill(0);
    let crc = checksum::crc32c(&frame);
    frame[56..60].copy_from_slice(&crc.to_le_bytes());
    frame.into()
}
