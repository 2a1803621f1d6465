//! The outbox of a connection: frames that wait to be written. It is bounded, and writes many frames at a time.

use crate::budget::{Account, Charge};
use braid_base::Level;
use braid_wire::{EncodedFrame, Frame, Hello};
use bytes::{Buf, Bytes};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::task::{Poll, ready};

/// The most bytes that wait for one connection. Further messages are dropped; the protocols send them again.
pub(crate) const OUTBOX_BYTES_MAX: usize = 32 << 20;
/// Buffers in one system call: some hundred frames, and fewer than the kernel's limit.
const PARTS_PER_WRITE: usize = 256;

/// The agreement of both ends about the version of their frames.
enum Greeting {
    /// The peer has not said hello; ours is this. These frames, of so many bytes, wait until it is known in which version they are to be
    /// encoded.
    Awaited { ours: Hello, waiting: Vec<Frame>, bytes: usize },
    /// Both speak this version, and the peer knows this level.
    Over { version: u16, knows: Level },
}

/// The result of pushing a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// The frame waits, behind others or for the hello of the peer.
    Behind,
    /// The frame is in the outbox, which was empty.
    First,
    /// The frame was dropped, because the outbox is full.
    Full,
}

pub(crate) struct Outbox {
    greeting: Greeting,
    parts: VecDeque<Bytes>,
    account: Account,
    /// The bytes that wait.
    charge: Charge,
}

impl Outbox {
    /// An empty outbox, which charges what waits to an account.
    pub fn new(account: &Account, ours: Hello) -> Outbox {
        let greeting = Greeting::Awaited { ours, waiting: Vec::new(), bytes: 0 };
        Outbox { greeting, parts: VecDeque::new(), account: account.clone(), charge: account.charge(0) }
    }

    /// How many bytes wait.
    pub fn bytes(&self) -> usize {
        self.charge.bytes()
    }

    /// Our hello, until the peer has said its own.
    pub fn hello(&self) -> Option<&Hello> {
        let Greeting::Awaited { ours, .. } = &self.greeting else { return None };
        Some(ours)
    }

    /// Adds our hello, with which all begins. It is short, and nothing can be said without it.
    pub fn say_hello(&mut self) {
        if let Some(head) = self.hello().map(Hello::encode) {
            self.charge.resize(self.bytes() + head.len());
            self.parts.push_back(head);
        }
    }

    /// Both speak this version, and the peer knows this level. Returns how many of the frames that waited are in the outbox now, and how
    /// many had no room.
    pub fn agree(&mut self, version: u16, knows: Level) -> (usize, usize) {
        let before = std::mem::replace(&mut self.greeting, Greeting::Over { version, knows });
        let Greeting::Awaited { waiting, bytes, .. } = before else { return (0, 0) };
        self.charge.resize(self.bytes() - bytes);
        let lost = waiting.iter().filter(|frame| !self.push_encoded(frame.encode_as(version))).count();
        (waiting.len() - lost, lost)
    }

    /// The highest level that the peer knows, once it has said hello.
    pub fn known_level(&self) -> Option<Level> {
        match &self.greeting {
            Greeting::Over { knows, .. } => Some(*knows),
            Greeting::Awaited { .. } => None,
        }
    }

    /// Adds a frame.
    pub fn push(&mut self, frame: Frame) -> Pushed {
        let Greeting::Over { version, .. } = self.greeting else { return self.push_early(frame) };
        let first = self.is_empty();
        match self.push_encoded(frame.encode_as(version)) {
            false => Pushed::Full,
            true if first => Pushed::First,
            true => Pushed::Behind,
        }
    }

    /// Lets a frame wait until it is known in which version to encode it.
    fn push_early(&mut self, frame: Frame) -> Pushed {
        let length = frame.encode().len();
        if !self.has_room(length) {
            return Pushed::Full;
        }
        self.charge.resize(self.bytes() + length);
        if let Greeting::Awaited { waiting, bytes, .. } = &mut self.greeting {
            *bytes += length;
            waiting.push(frame);
        }
        Pushed::Behind
    }

    fn has_room(&self, length: usize) -> bool {
        self.bytes() + length <= OUTBOX_BYTES_MAX && self.account.has_room_for(length)
    }

    /// Returns false if there is no room.
    #[must_use]
    fn push_encoded(&mut self, frame: EncodedFrame) -> bool {
        let length = frame.len();
        if !self.has_room(length) {
            return false;
        }
        self.charge.resize(self.bytes() + length);
        self.parts.push_back(frame.head);
        self.parts.extend(frame.payload.into_iter().filter(|part| !part.is_empty()));
        true
    }

    /// True if no frame waits.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Calls `write` with the waiting bytes until none are left. Nothing is lost if `write` is pending or fails.
    pub fn poll_flush(
        &mut self,
        mut write: impl FnMut(&[IoSlice<'_>]) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<()>> {
        while !self.parts.is_empty() {
            let mut slices = [IoSlice::new(&[]); PARTS_PER_WRITE];
            let mut count = 0;
            for (slice, part) in slices.iter_mut().zip(&self.parts) {
                *slice = IoSlice::new(part);
                count += 1;
            }
            let written = ready!(write(&slices[..count]))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.advance(written);
        }
        Poll::Ready(Ok(()))
    }

    fn advance(&mut self, mut written: usize) {
        self.charge.resize(self.bytes() - written);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;
    use braid_base::ArrayId;
    use proptest::prelude::*;

    fn frame(head: Vec<u8>, payload: Vec<Vec<u8>>) -> EncodedFrame {
        EncodedFrame { head: head.into(), payload: payload.into_iter().map(Bytes::from).collect() }
    }

    fn outbox() -> Outbox {
        Outbox::new(&Account::new(Budget::process()), Hello::ours(ArrayId([1; 16]), Level::FIRST))
    }

    proptest! {
        /// However much the socket accepts at a time, the bytes are written in their order.
        #[test]
        fn bytes_leave_in_order(
            frames in prop::collection::vec((1..50_usize, prop::collection::vec(0..3000_usize, 0..4)), 0..200),
            takes in prop::collection::vec(0..9000_usize, 1..50),
        ) {
            let mut outbox = outbox();
            let mut expected = Vec::new();
            for (index, (head, payload)) in frames.into_iter().enumerate() {
                let fill = |length| vec![index as u8; length];
                let frame = frame(fill(head), payload.into_iter().map(fill).collect());
                expected.extend_from_slice(&frame.to_bytes());
                prop_assert!(outbox.push_encoded(frame));
            }
            let mut left = Vec::new();
            let mut takes = takes.into_iter().chain([9000]).cycle();
            loop {
                let flushed = outbox.poll_flush(|slices| {
                    let all: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
                    match takes.next().expect("the iterator is endless").min(all.len()) {
                        0 => Poll::Pending,
                        count => {
                            left.extend_from_slice(&all[..count]);
                            Poll::Ready(Ok(count))
                        }
                    }
                });
                if flushed.is_ready() {
                    break;
                }
            }
            prop_assert_eq!(left, expected);
            prop_assert_eq!(outbox.bytes(), 0);
        }
    }

    #[test]
    fn a_full_outbox_refuses_and_has_room_again_when_flushed() {
        let mut outbox = outbox();
        let large = || frame(vec![1], vec![vec![0; 4 << 20]]);
        let taken = (0..100).take_while(|_| outbox.push_encoded(large())).count();
        assert_eq!(taken, OUTBOX_BYTES_MAX / ((4 << 20) + 1));
        let flushed = outbox.poll_flush(|slices| Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum())));
        assert!(matches!(flushed, Poll::Ready(Ok(()))));
        assert!(outbox.push_encoded(large()));
    }
}
