//! Decoding of requests. This module is pure. It checks requests against the result of the negotiation: a decoded command lies within the export, and uses
//! only options that were negotiated.

use crate::handshake::Negotiated;
use crate::protocol::*;
use crate::{Error, ErrorNumber, Space};
use bytes::{Buf, Bytes, BytesMut};

/// The data of a WRITE that is too long is discarded, so that the WRITE can be refused, up to this length in bytes. Beyond that, the
/// connection is closed.
const DRAINED_BYTES_MAX: u32 = 4 * REQUEST_BYTES_MAX;
const HEADER_BYTES: usize = 28;

/// A client's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Identifies the request; the reply carries it, too.
    pub cookie: u64,
    /// The command, or why it is refused.
    pub command: Result<Command, Error>,
}

/// A command to the export. FUA does not appear: every change is durable when it is acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Read { offset: u64, length: usize },
    Write { offset: u64, data: Bytes },
    Zero { offset: u64, length: u64, space: Space },
    Trim { offset: u64, length: u64 },
    Allocation { offset: u64, length: u64, only_first: bool },
    Flush,
    Cache,
    Disconnect,
}

/// The input is not a request. The connection must be closed, since it is unknown where the next request begins.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecodeError {
    #[error("the client sent {magic:#x} where a request begins")]
    NotARequest { magic: u32 },
    #[error("the client announced a write of {length} bytes; more than {DRAINED_BYTES_MAX} are not accepted")]
    WriteTooLong { length: u32 },
}

/// The decoder of a client's requests.
#[derive(Debug)]
pub(crate) struct Requests {
    export_bytes: u64,
    structured: bool,
    allocation: bool,
    /// A refused WRITE, and how many bytes of its data are still to be discarded.
    refused: Option<(Request, usize)>,
}

struct Header {
    flags: u16,
    command: u16,
    cookie: u64,
    offset: u64,
    length: u32,
}

impl Requests {
    pub fn new(negotiated: &Negotiated) -> Requests {
        Requests {
            export_bytes: negotiated.export.bytes,
            structured: negotiated.structured,
            allocation: negotiated.allocation,
            refused: None,
        }
    }

    /// The next request, if it has arrived completely.
    pub fn take(&mut self, input: &mut BytesMut) -> Result<Option<Request>, DecodeError> {
        if self.refused.is_some() {
            return Ok(self.throw_away(input));
        }
        let Some(header) = Header::peek(input)? else { return Ok(None) };
        let (cookie, payload) = (header.cookie, header.payload());
        if payload > DRAINED_BYTES_MAX as usize {
            return Err(DecodeError::WriteTooLong { length: header.length });
        }
        let refusal = self.check(&header).err();
        if let Some(error) = refusal {
            input.advance(HEADER_BYTES);
            self.refused = Some((Request { cookie, command: Err(error) }, payload));
            return Ok(self.throw_away(input));
        }
        if input.len() < HEADER_BYTES + payload {
            return Ok(None);
        }
        input.advance(HEADER_BYTES);
        let command = header.command(input.split_to(payload));
        Ok(Some(Request { cookie, command: Ok(command) }))
    }

    /// The least number of bytes that the request at the front of `input` still lacks.
    pub fn missing(&self, input: &BytesMut) -> usize {
        match (&self.refused, Header::peek(input)) {
            (None, Ok(Some(header))) => (HEADER_BYTES + header.payload()).saturating_sub(input.len()),
            _ => 1,
        }
    }

    /// How many bytes of data the request at the front of `input` brings, or asks for.
    pub fn weight(&self, input: &BytesMut) -> usize {
        match self.next(input) {
            Some(Header { command: command::READ | command::WRITE, length, .. }) => length as usize,
            _ => 0,
        }
    }

    /// How much memory the request at the front of `input` needs, beside `input` itself. Data that is refused needs none.
    pub fn memory(&self, input: &BytesMut) -> usize {
        match self.next(input) {
            Some(Header { command: command::READ, length, .. }) => length as usize,
            Some(Header { command: command::WRITE, length, .. }) => {
                (HEADER_BYTES + length as usize).saturating_sub(input.capacity())
            }
            _ => 0,
        }
    }

    /// The header of the next request, if it is not refused.
    fn next(&self, input: &BytesMut) -> Option<Header> {
        let header = Header::peek(input).ok()??;
        (self.refused.is_none() && self.check(&header).is_ok()).then_some(header)
    }

    fn throw_away(&mut self, input: &mut BytesMut) -> Option<Request> {
        let (_, left) = self.refused.as_mut()?;
        let here = input.len().min(*left);
        input.advance(here);
        *left -= here;
        let done = *left == 0;
        if done { self.refused.take().map(|(request, _)| request) } else { None }
    }

    fn check(&self, header: &Header) -> Result<(), Error> {
        use command::*;
        let invalid = |text| Err(Error::new(ErrorNumber::Invalid, text));
        let allowed = match header.command {
            READ if self.structured => command_flag::DF,
            WRITE_ZEROES => command_flag::NO_HOLE | command_flag::FAST_ZERO,
            BLOCK_STATUS => command_flag::REQ_ONE,
            READ | WRITE | DISC | FLUSH | TRIM | CACHE => 0,
            _ => return invalid("the command is unknown".to_string()),
        };
        if header.flags & !(allowed | command_flag::FUA) != 0 {
            return invalid(format!("command {} does not take the flags {:#x}", header.command, header.flags));
        }
        if matches!(header.command, DISC | FLUSH) {
            return Ok(());
        }
        if matches!(header.command, READ | WRITE) && header.length > REQUEST_BYTES_MAX {
            return invalid(format!("at most {REQUEST_BYTES_MAX} bytes are read or written at once"));
        }
        if header.command == BLOCK_STATUS && !self.allocation {
            return invalid(format!("{} was not negotiated", base_allocation::NAME));
        }
        if header.command == BLOCK_STATUS && header.length == 0 {
            return invalid("the status of an empty range was requested".to_string());
        }
        if header.offset.checked_add(header.length.into()).is_none_or(|end| end > self.export_bytes) {
            let number = match header.command {
                WRITE | WRITE_ZEROES => ErrorNumber::NoSpace,
                _ => ErrorNumber::Invalid,
            };
            return Err(Error::new(number, format!("the export ends at byte {}", self.export_bytes)));
        }
        let keeping = command_flag::NO_HOLE | command_flag::FAST_ZERO;
        if header.flags & keeping == keeping {
            // Zeroes that keep their space are written like any other data.
            return Err(Error::new(ErrorNumber::NotSupported, "zeros without a hole are no faster than a write"));
        }
        Ok(())
    }
}

impl Header {
    fn peek(input: &BytesMut) -> Result<Option<Header>, DecodeError> {
        let Some(mut from) = input.get(..HEADER_BYTES) else { return Ok(None) };
        let magic = from.get_u32();
        if magic != REQUEST_MAGIC {
            return Err(DecodeError::NotARequest { magic });
        }
        Ok(Some(Header {
            flags: from.get_u16(),
            command: from.get_u16(),
            cookie: from.get_u64(),
            offset: from.get_u64(),
            length: from.get_u32(),
        }))
    }

    /// How many bytes of data follow the header.
    fn payload(&self) -> usize {
        if self.command == command::WRITE { self.length as usize } else { 0 }
    }

    fn command(&self, data: BytesMut) -> Command {
        let (offset, length) = (self.offset, u64::from(self.length));
        let flag = |flag| self.flags & flag != 0;
        match self.command {
            command::READ => Command::Read { offset, length: self.length as usize },
            command::WRITE => Command::Write { offset, data: data.freeze() },
            command::DISC => Command::Disconnect,
            command::FLUSH => Command::Flush,
            command::TRIM => Command::Trim { offset, length },
            command::CACHE => Command::Cache,
            command::WRITE_ZEROES => {
                let space = if flag(command_flag::NO_HOLE) { Space::Keep } else { Space::GiveBack };
                Command::Zero { offset, length, space }
            }
            command::BLOCK_STATUS => Command::Allocation { offset, length, only_first: flag(command_flag::REQ_ONE) },
            _ => unreachable!("check() refuses unknown commands"),
        }
    }
}

impl Request {
    /// How many bytes of data the request contains, or its reply will contain.
    pub fn weight(&self) -> usize {
        match &self.command {
            Ok(Command::Read { length, .. }) => *length,
            Ok(Command::Write { data, .. }) => data.len(),
            _ => 0,
        }
    }
}
