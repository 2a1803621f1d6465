//! Encoding of replies. This module is pure. Replies are collected in a queue of buffers, which one vectored write sends. Headers share
//! buffers of their own; only short data is copied.

use crate::protocol::*;
use crate::{Error, ErrorNumber};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::VecDeque;
use std::io::IoSlice;

/// The most runs in one answer to BLOCK_STATUS; the client asks again for the rest.
const EXTENTS_MAX: usize = 4096;
/// Data up to this length, in bytes, is copied, which is cheaper than a buffer of its own.
const COPIED_BYTES_MAX: usize = 512;
const HEADERS_BYTES: usize = 16 << 10;
/// Shorter data may be in a buffer that is many times as long, which it keeps in memory.
const COMPACT_BYTES: usize = 32 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub cookie: u64,
    pub outcome: Result<Outcome, Error>,
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// There is nothing to return.
    Done,
    /// The `length` bytes at `offset`, as buffers to be joined.
    Data { offset: u64, length: usize, buffers: Vec<Bytes> },
    /// Runs of bytes, and whether they are allocated; at least one.
    Extents(Vec<(u32, bool)>),
}

/// Replies that are to be sent to a client.
#[derive(Debug)]
pub(crate) struct Output {
    structured: bool,
    queue: VecDeque<Bytes>,
    queued_bytes: usize,
    /// How many buffers at the front are no longer than they must be.
    compact: usize,
    /// The end of the queue, to which headers and short data are appended.
    tail: BytesMut,
}

impl Output {
    pub fn new(structured: bool) -> Output {
        Output { structured, queue: VecDeque::new(), queued_bytes: 0, compact: 0, tail: BytesMut::new() }
    }

    /// How many bytes are to be sent.
    pub fn bytes(&self) -> usize {
        self.queued_bytes + self.tail.len()
    }

    pub fn put(&mut self, reply: Reply) {
        let cookie = reply.cookie;
        match reply.outcome {
            Ok(Outcome::Done) => self.put_simple(cookie, 0),
            Ok(Outcome::Data { offset, length, buffers }) => self.put_read(cookie, offset, length, buffers),
            Ok(Outcome::Extents(extents)) => self.put_extents(cookie, &extents),
            Err(error) if self.structured => self.put_error(cookie, &error),
            Err(error) => self.put_simple(cookie, error.number as u32),
        }
    }

    /// Fills `slices` with the first buffers to be sent, in order. Returns how many it filled.
    pub fn peek<'a>(&'a mut self, slices: &mut [IoSlice<'a>]) -> usize {
        self.close_tail();
        let mut filled = 0;
        for (slice, buffer) in slices.iter_mut().zip(&self.queue) {
            *slice = IoSlice::new(buffer);
            filled += 1;
        }
        filled
    }

    /// Removes the first `bytes` bytes, which were sent.
    pub fn advance(&mut self, mut bytes: usize) {
        self.queued_bytes -= bytes;
        while bytes > 0 {
            let first = self.queue.front_mut().expect("at most the bytes returned by peek were sent");
            if bytes < first.len() {
                return first.advance(bytes);
            }
            bytes -= first.len();
            self.queue.pop_front();
            self.compact = self.compact.saturating_sub(1);
        }
    }

    /// Copies short data, so that what waits takes no more memory than it has bytes.
    pub fn compact(&mut self) {
        let (mut joined, rest) = (BytesMut::new(), self.queue.split_off(self.compact));
        for buffer in rest {
            if buffer.len() < COMPACT_BYTES {
                joined.put_slice(&buffer);
                continue;
            }
            self.queue.extend(Some(joined.split().freeze()).filter(|joined| !joined.is_empty()));
            self.queue.push_back(buffer);
        }
        self.queue.extend(Some(joined.freeze()).filter(|joined| !joined.is_empty()));
        self.compact = self.queue.len();
    }

    fn put_read(&mut self, cookie: u64, offset: u64, length: usize, buffers: Vec<Bytes>) {
        let brought: usize = buffers.iter().map(Bytes::len).sum();
        assert_eq!(brought, length, "a read returns as many bytes as were requested");
        match (self.structured, length) {
            (false, _) => self.put_simple(cookie, 0),
            // A data chunk must not be empty.
            (true, 0) => self.put_chunk(cookie, chunk::NONE, 0),
            (true, _) => {
                self.put_chunk(cookie, chunk::OFFSET_DATA, 8 + length);
                self.tail.put_u64(offset);
            }
        }
        for buffer in buffers {
            self.put_data(buffer);
        }
    }

    fn put_extents(&mut self, cookie: u64, extents: &[(u32, bool)]) {
        assert!(self.structured, "only structured sessions may ask for the status of blocks");
        self.put_chunk(cookie, chunk::BLOCK_STATUS, 4 + 8 * extents.len());
        self.tail.put_u32(base_allocation::ID);
        for &(length, allocated) in extents {
            self.tail.put_u32(length);
            self.tail.put_u32(if allocated { 0 } else { base_allocation::HOLE | base_allocation::ZERO });
        }
    }

    fn put_error(&mut self, cookie: u64, error: &Error) {
        let text = &error.text[..error.text.floor_char_boundary(STRING_BYTES_MAX)];
        self.put_chunk(cookie, chunk::ERROR, 6 + text.len());
        self.tail.put_u32(error.number as u32);
        self.tail.put_u16(text.len() as u16);
        self.tail.put_slice(text.as_bytes());
    }

    fn put_simple(&mut self, cookie: u64, error: u32) {
        self.reserve();
        self.tail.put_u32(SIMPLE_REPLY_MAGIC);
        self.tail.put_u32(error);
        self.tail.put_u64(cookie);
    }

    /// The header of a reply's only chunk.
    fn put_chunk(&mut self, cookie: u64, kind: u16, length: usize) {
        self.reserve();
        self.tail.put_u32(CHUNK_MAGIC);
        self.tail.put_u16(chunk::DONE);
        self.tail.put_u16(kind);
        self.tail.put_u64(cookie);
        self.tail.put_u32(length as u32);
    }

    fn put_data(&mut self, data: Bytes) {
        if data.len() <= COPIED_BYTES_MAX {
            return self.tail.put_slice(&data);
        }
        self.close_tail();
        self.queued_bytes += data.len();
        self.queue.push_back(data);
    }

    /// Reserves space for a header, so that many headers share one allocation.
    fn reserve(&mut self) {
        if self.tail.capacity() - self.tail.len() < 64 {
            self.tail.reserve(HEADERS_BYTES);
        }
    }

    fn close_tail(&mut self) {
        if !self.tail.is_empty() {
            self.queued_bytes += self.tail.len();
            self.queue.push_back(self.tail.split().freeze());
        }
    }
}

/// The runs in the form of an answer: joined, cut to the requested `length` bytes, and limited in number.
pub(crate) fn extents(runs: Vec<(u64, bool)>, length: u64, only_first: bool) -> Result<Outcome, Error> {
    let most = if only_first { 1 } else { EXTENTS_MAX };
    let mut extents: Vec<(u32, bool)> = Vec::new();
    let mut left = u32::try_from(length).expect("requests count their bytes in 32 bits");
    for (bytes, allocated) in runs {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(left);
        left -= bytes;
        let full = extents.len() == most;
        match extents.last_mut() {
            _ if bytes == 0 => {}
            Some(last) if last.1 == allocated => last.0 += bytes,
            _ if full => break,
            _ => extents.push((bytes, allocated)),
        }
    }
    if extents.is_empty() {
        return Err(Error::new(ErrorNumber::Io, "the volume did not report any allocation"));
    }
    Ok(Outcome::Extents(extents))
}
