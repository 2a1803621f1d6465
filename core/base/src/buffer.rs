//! An aligned buffer is memory whose address suits direct I/O. It is made without `unsafe`: the allocation is slightly larger than asked
//! for, and the buffer begins at the first aligned address in it. Bytes are appended, so that memory is not zeroed only to be
//! overwritten.

use bytes::Bytes;
use std::fmt;
use std::ops::{Deref, DerefMut};

static ZEROS: [u8; 512] = [0; 512];

/// Bytes that begin at a multiple of [`AlignedBuffer::ALIGNMENT`] in memory.
pub struct AlignedBuffer {
    memory: Vec<u8>,
    skip: usize,
}

impl AlignedBuffer {
    /// The alignment in bytes that direct I/O demands on disks with 512-byte sectors.
    pub const ALIGNMENT: usize = 512;

    /// An empty buffer with a capacity of `len` bytes.
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

    /// Appends bytes. Panics if they exceed the capacity.
    pub fn append(&mut self, bytes: &[u8]) {
        self.assert_room(bytes.len());
        self.memory.extend_from_slice(bytes);
    }

    /// Appends `count` zeros and returns them. Panics if they exceed the capacity.
    pub fn append_zeros(&mut self, count: usize) -> &mut [u8] {
        self.assert_room(count);
        let before = self.memory.len();
        match ZEROS.get(..count) {
            // Copying from a constant is cheaper than filling.
            Some(zeros) => self.memory.extend_from_slice(zeros),
            None => self.memory.resize(before + count, 0),
        }
        &mut self.memory[before..]
    }

    /// Growing would move the memory, and the new address might not be aligned.
    fn assert_room(&self, count: usize) {
        assert!(
            count <= self.memory.capacity() - self.memory.len(),
            "an aligned buffer has room for what it was made for"
        );
    }

    /// The same bytes, shared and immutable, at the same aligned address.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl Clone for AlignedBuffer {
    /// As large as the original can become, and aligned, too.
    fn clone(&self) -> AlignedBuffer {
        let mut clone = AlignedBuffer::with_capacity(self.memory.capacity() - self.skip);
        clone.append(self);
        clone
    }
}

impl fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuffer of {} bytes", self.len())
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
