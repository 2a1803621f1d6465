//! The records of a recording.
//!
//! ```text
//!   magic (8) │ version (4) │ record: header │ record: input │ record: effects │ record: input │ …
//!
//!   record:  length (4) │ CRC-32C of the payload (4) │ payload
//! ```
//!
//! Numbers are little-endian. A payload is encoded with `postcard`, except that messages are frames of the wire. An input is recorded before
//! its step, and the effects after it: if the machine panics, the input that led to that is there.

use braid_base::checksum::crc32c;
use braid_base::{ArrayId, NodeId, Now};
use braid_machine::{
    ControlOutcome, Disk, DiskCommand, DiskError, DiskResult, DiskTag, Effect, FilesSuccess, HostOutcome, HostSuccess,
    Input, Never, OpId,
};
use braid_wire::Frame;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::fmt::{Debug, Write as _};

/// The version of the format. Only the build that wrote a recording is expected to have the same effects, so no other version is read.
pub const VERSION: u32 = 3;
pub(crate) const MAGIC: [u8; 8] = *b"braidrec";
/// The bytes before the first record.
pub(crate) const PREFIX_BYTES: usize = 12;
/// The most bytes of a payload: a message, or the result of a disk command, with room for the rest.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 64 << 20;

/// What is needed to construct the machine again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The build that recorded: another one may have other effects.
    pub build: String,
    pub role: String,
    /// The machine's configuration, as its role encodes it.
    pub config: Vec<u8>,
}

/// Why a file is not a recording that this build can read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    #[error("the file is not a recording")]
    NotARecording,
    #[error("the recording has format {found}; this build reads format {VERSION}")]
    OtherVersion { found: u32 },
    #[error("the recording's header is damaged")]
    Damaged,
}

impl Header {
    /// The machine's configuration.
    pub fn config<C: for<'de> Deserialize<'de>>(&self) -> Result<C, HeaderError> {
        decode(&self.config)
    }
}

/// Encodes a part of a configuration, which a role keeps as bytes.
pub fn encode(value: &impl Serialize) -> Vec<u8> {
    postcard::to_allocvec(value).expect("memory is all that it needs")
}

/// Reads what [`encode`] has written.
pub fn decode<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Result<T, HeaderError> {
    postcard::from_bytes(bytes).map_err(|_| HeaderError::Damaged)
}

/// A record after the header.
#[derive(Serialize, Deserialize)]
pub(crate) enum Entry<R> {
    Input { now: Now, input: RecordedInput<R> },
    Effects(EffectsDigest),
}

#[derive(Serialize, Deserialize)]
pub(crate) enum RecordedInput<R> {
    Start,
    /// A frame.
    Message(Bytes),
    DiskDone(u64, RecordedResult),
    Request(OpId, R),
    Wake,
}

#[derive(Serialize, Deserialize)]
pub(crate) enum RecordedResult {
    Read(Bytes),
    ReadFailed(RecordedDiskError),
    Done,
    Failed(RecordedDiskError),
}

#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) enum RecordedDiskError {
    NoSpace,
    Failed,
}

/// The effects of a step: how many, and a checksum of them all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EffectsDigest {
    pub count: u32,
    pub checksum: u32,
}

impl<R: Clone> RecordedInput<R> {
    pub fn of<D: Disk>(input: &Input<R, D>) -> RecordedInput<R> {
        match input {
            Input::Start => RecordedInput::Start,
            Input::Message { to, from, message } => {
                RecordedInput::Message(frame(*from, *to, message.clone()).encode().to_bytes())
            }
            Input::DiskDone { tag, result } => RecordedInput::DiskDone(tag.0, RecordedResult::of(D::recorded(result))),
            Input::Request { op, request } => RecordedInput::Request(*op, request.clone()),
            Input::Wake => RecordedInput::Wake,
        }
    }
}

impl<R> RecordedInput<R> {
    /// The input; none if the machine can't get such a one.
    pub fn into_input<D: Disk>(self) -> Option<Input<R, D>> {
        Some(match self {
            RecordedInput::Start => Input::Start,
            RecordedInput::Message(bytes) => {
                let Frame { to, from, message, .. } = Frame::decode(bytes).ok()?;
                Input::Message { to, from, message }
            }
            RecordedInput::DiskDone(tag, result) => {
                Input::DiskDone { tag: DiskTag(tag), result: D::result(result.into_result())? }
            }
            RecordedInput::Request(op, request) => Input::Request { op, request },
            RecordedInput::Wake => Input::Wake,
        })
    }
}

impl RecordedResult {
    fn of(result: &DiskResult) -> RecordedResult {
        match result {
            DiskResult::Read(Ok(bytes)) => RecordedResult::Read(bytes.clone()),
            DiskResult::Read(Err(error)) => RecordedResult::ReadFailed(RecordedDiskError::of(*error)),
            DiskResult::Done(Ok(())) => RecordedResult::Done,
            DiskResult::Done(Err(error)) => RecordedResult::Failed(RecordedDiskError::of(*error)),
        }
    }

    fn into_result(self) -> DiskResult {
        match self {
            RecordedResult::Read(bytes) => DiskResult::Read(Ok(bytes)),
            RecordedResult::ReadFailed(error) => DiskResult::Read(Err(error.to_error())),
            RecordedResult::Done => DiskResult::Done(Ok(())),
            RecordedResult::Failed(error) => DiskResult::Done(Err(error.to_error())),
        }
    }
}

impl RecordedDiskError {
    fn of(error: DiskError) -> RecordedDiskError {
        match error {
            DiskError::NoSpace => RecordedDiskError::NoSpace,
            DiskError::Failed => RecordedDiskError::Failed,
        }
    }

    fn to_error(self) -> DiskError {
        match self {
            RecordedDiskError::NoSpace => DiskError::NoSpace,
            RecordedDiskError::Failed => DiskError::Failed,
        }
    }
}

/// A message in its encoding on the wire. The array is that of the machine, and not recorded.
fn frame(from: NodeId, to: NodeId, message: braid_wire::Message) -> Frame {
    Frame { array: ArrayId([0; 16]), from, to, message }
}

/// An outcome whose checksum is recorded.
pub trait RecordedOutcome {
    /// Appends bytes that determine the outcome.
    fn put(&self, to: &mut Vec<u8>);
}

impl RecordedOutcome for Never {
    fn put(&self, _: &mut Vec<u8>) {
        match *self {}
    }
}

impl RecordedOutcome for ControlOutcome {
    fn put(&self, to: &mut Vec<u8>) {
        put_text(self, to);
    }
}

impl RecordedOutcome for HostOutcome {
    fn put(&self, to: &mut Vec<u8>) {
        match self {
            // As text, bytes would take several times as long.
            Ok(HostSuccess::Data(buffers) | HostSuccess::Files(FilesSuccess::Data(buffers))) => {
                put_buffers(buffers, to)
            }
            other => put_text(other, to),
        }
    }
}

fn put_text(value: &impl Debug, to: &mut Vec<u8>) {
    struct Text<'a>(&'a mut Vec<u8>);
    impl std::fmt::Write for Text<'_> {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            self.0.extend_from_slice(text.as_bytes());
            Ok(())
        }
    }
    let _ = write!(Text(to), "{value:?}");
}

fn put_buffers(buffers: &[Bytes], to: &mut Vec<u8>) {
    for buffer in buffers {
        to.extend_from_slice(&(buffer.len() as u64).to_le_bytes());
        to.extend_from_slice(&crc32c(buffer).to_le_bytes());
    }
}

/// The digest of effects. `scratch` is reused.
pub(crate) fn digest<O: RecordedOutcome, D: Disk>(effects: &[Effect<O, D>], scratch: &mut Vec<u8>) -> EffectsDigest {
    scratch.clear();
    for effect in effects {
        match effect {
            Effect::Send { to, message } => {
                scratch.push(1);
                put_text(to, scratch);
                scratch
                    .extend_from_slice(&frame(NodeId::Monitor, NodeId::Monitor, message.clone()).encode().to_bytes());
            }
            Effect::Disk { tag, command } => {
                scratch.push(2);
                scratch.extend_from_slice(&tag.0.to_le_bytes());
                put_command(&D::command(command.clone()), scratch);
            }
            Effect::Reply { op, outcome } => {
                scratch.push(3);
                scratch.extend_from_slice(&u64::from(*op).to_le_bytes());
                outcome.put(scratch);
            }
        }
    }
    EffectsDigest { count: effects.len() as u32, checksum: crc32c(scratch) }
}

fn put_command(command: &DiskCommand, to: &mut Vec<u8>) {
    match command {
        DiskCommand::Write { offset, data, durable } => {
            to.extend_from_slice(&offset.to_le_bytes());
            to.push(u8::from(*durable));
            put_buffers(data, to);
        }
        other => put_text(other, to),
    }
}

pub(crate) fn put_record(value: &impl Serialize, to: &mut Vec<u8>) {
    let payload = encode(value);
    to.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    to.extend_from_slice(&crc32c(&payload).to_le_bytes());
    to.extend_from_slice(&payload);
}
