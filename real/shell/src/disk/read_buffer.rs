//! A read buffer is filled by the kernel: aligned for direct I/O, and not zeroed first.

use braid_base::AlignedBuffer;
use bytes::Bytes;
use std::mem::MaybeUninit;

/// A buffer, and how much of it is filled.
pub(super) struct ReadBuffer {
    /// The padding before the aligned address, and the bytes filled so far.
    memory: Vec<u8>,
    skip: usize,
    /// The length to be filled.
    wanted: usize,
}

impl ReadBuffer {
    pub fn new(wanted: usize) -> ReadBuffer {
        let mut memory = Vec::<u8>::with_capacity(wanted + AlignedBuffer::ALIGNMENT);
        let skip = memory.as_ptr().align_offset(AlignedBuffer::ALIGNMENT);
        memory.resize(skip, 0);
        ReadBuffer { memory, skip, wanted }
    }

    /// The number of bytes filled.
    pub fn len(&self) -> usize {
        self.memory.len() - self.skip
    }

    pub fn is_full(&self) -> bool {
        self.len() == self.wanted
    }

    /// The part that is not filled yet.
    pub fn rest(&mut self) -> &mut [MaybeUninit<u8>] {
        let missing = self.wanted - self.len();
        &mut self.memory.spare_capacity_mut()[..missing]
    }

    /// Marks `count` more bytes as filled.
    ///
    /// # Safety
    ///
    /// These bytes have been written, starting at the beginning of [`ReadBuffer::rest`].
    #[allow(unsafe_code)]
    pub unsafe fn filled(&mut self, count: usize) {
        assert!(count <= self.wanted - self.len(), "the kernel fills no more than was requested");
        // SAFETY: the caller guarantees that the bytes are initialised; the capacity covers the length to be filled.
        unsafe { self.memory.set_len(self.memory.len() + count) };
    }

    /// Fills the rest with zeros, as reads beyond the end of the file do.
    pub fn fill_with_zeros(&mut self) {
        self.memory.resize(self.skip + self.wanted, 0);
    }

    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for ReadBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.memory[self.skip..]
    }
}
