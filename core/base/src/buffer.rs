//! Memory whose address suits direct I/O, without `unsafe`: a little too much is allocated, and the part that
//! begins at an even address is used.

use bytes::Bytes;
use std::ops::{Deref, DerefMut};

/// Zeroed bytes that begin at a multiple of [`AlignedBuffer::ALIGNMENT`] in memory.
pub struct AlignedBuffer {
    memory: Vec<u8>,
    skip: usize,
    len: usize,
}

impl AlignedBuffer {
    /// What direct I/O asks for on every disk we know.
    pub const ALIGNMENT: usize = 4096;

    /// `len` bytes, all zero.
    pub fn zeroed(len: usize) -> AlignedBuffer {
        let memory = vec![0; len + Self::ALIGNMENT];
        let skip = memory.as_ptr().align_offset(Self::ALIGNMENT);
        AlignedBuffer { memory, skip, len }
    }

    /// A copy of `bytes`.
    pub fn copied(bytes: &[u8]) -> AlignedBuffer {
        let mut memory: Vec<u8> = Vec::with_capacity(bytes.len() + Self::ALIGNMENT);
        let skip = memory.as_ptr().align_offset(Self::ALIGNMENT);
        memory.resize(skip, 0);
        memory.extend_from_slice(bytes);
        AlignedBuffer { memory, skip, len: bytes.len() }
    }

    /// The same bytes, shared and unchangeable; still aligned.
    pub fn freeze(self) -> Bytes {
        Bytes::from(self.memory).slice(self.skip..self.skip + self.len)
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.memory[self.skip..self.skip + self.len]
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.skip..self.skip + self.len]
    }
}
