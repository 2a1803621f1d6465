//! What waits to be written to one connection: bounded, and written many frames at a time.

use braid_wire::EncodedFrame;
use bytes::{Buf, Bytes};
use std::collections::VecDeque;
use std::io::{self, IoSlice};

/// Bytes that wait for one connection at most. Beyond them messages are dropped, and sent again by the protocols.
pub(crate) const OUTBOX_BYTES_MAX: usize = 32 << 20;
/// Parts in one system call: some hundred frames, fewer than the kernel takes.
const PARTS_PER_WRITE: usize = 256;

#[derive(Default)]
pub(crate) struct Outbox {
    parts: VecDeque<Bytes>,
    bytes: usize,
}

impl Outbox {
    /// Takes a frame, or refuses it for want of room.
    #[must_use]
    pub fn push(&mut self, frame: EncodedFrame) -> bool {
        let length = frame.len();
        if self.bytes + length > OUTBOX_BYTES_MAX {
            return false;
        }
        self.bytes += length;
        self.parts.push_back(frame.head);
        self.parts.extend(frame.payload.into_iter().filter(|part| !part.is_empty()));
        true
    }

    /// Lets `write` have what waits, until nothing does. An error, such as that it would block, loses nothing.
    pub fn flush(&mut self, mut write: impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>) -> io::Result<()> {
        while !self.parts.is_empty() {
            let mut slices = [IoSlice::new(&[]); PARTS_PER_WRITE];
            let mut count = 0;
            for (slice, part) in slices.iter_mut().zip(&self.parts) {
                *slice = IoSlice::new(part);
                count += 1;
            }
            let written = write(&slices[..count])?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.advance(written);
        }
        Ok(())
    }

    fn advance(&mut self, mut written: usize) {
        self.bytes -= written;
        while let Some(first) = self.parts.front_mut()
            && written > 0
        {
            if first.len() > written {
                first.advance(written);
                return;
            }
            written -= first.len();
            self.parts.pop_front();
        }
    }
}
