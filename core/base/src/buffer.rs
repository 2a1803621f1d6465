//! Memory whose address suits direct I/O, without `unsafe`: a little too much is allocated, and the part that begins at an even
//! address is used. It is filled by appending, so that nothing is zeroed only to be overwritten.

use bytes::Bytes;
use std::ops::{Deref, DerefMut};

static ZEROS: [u8; 512] = [0; 512];

/// Bytes that begin at a multiple of [`AlignedBuffer::ALIGNMENT`] in memory.
pub struct AlignedBuffer {
    memory: Vec<u8>,
    skip: usize,
}

impl AlignedBuffer {
    /// What direct I/O asks for on disks with sectors of this size.
    pub const ALIGNMENT: usize = 512;

    /// None yet, with room for `len` bytes.
    pub fn with_capacity(len: usize) -> AlignedBuffer {
        let mut memory = Vec::<u8>::with_capacity(len + Self::ALIGNMENT);
        let skip = memory.as_ptr().align_offset(Self::ALIGNMENT);
        memory.resize(skip, 0);
        AlignedBuffer { memory, skip }
    }

    /// `len` bytes, all zero.
    pub fn zeroed(len: usize) -> AlignedBuffer {
        let mut buffer = AlignedBuffer::with_capacity(len);
        buffer.append_zeros(len);
        buffer
    }

    /// Adds some bytes, for which there must be room.
    pub fn append(&mut self, bytes: &[u8]) {
        self.assert_room(bytes.len());
        self.memory.extend_from_slice(bytes);
    }

    /// Adds `count` zeros, for which there must be room; these are returned.
    pub fn append_zeros(&mut self, count: usize) -> &mut [u8] {
        self.assert_room(count);
        let before = self.memory.len();
        match ZEROS.get(..count) {
            // A copy, which is less work than to fill.
            Some(zeros) => self.memory.extend_from_slice(zeros),
            None => self.memory.resize(before + count, 0),
        }
        &mut self.memory[before..]
    }

    /// Memory that grew would move, and be aligned no more.
    fn assert_room(&self, count: usize) {
        assert!(
            count <= self.memory.capacity() - self.memory.len(),
            "an aligned buffer has room for what it was made for"
        );
    }

    /// The same bytes, shared and unchangeable; still aligned.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for AlignedBuffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.memory[self.skip..]
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.skip..]
    }
}
