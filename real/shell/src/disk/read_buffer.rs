//! A buffer that the kernel fills: aligned for direct I/O, and not zeroed before.

use braid_base::AlignedBuffer;
use bytes::Bytes;
use std::mem::MaybeUninit;

/// Room for what is read, and how much of it is filled.
pub(super) struct ReadBuffer {
    /// The bytes before the aligned address, and what is filled.
    memory: Vec<u8>,
    skip: usize,
    /// How much is to be filled.
    wanted: usize,
}

impl ReadBuffer {
    pub fn new(wanted: usize) -> ReadBuffer {
        let mut memory = Vec::<u8>::with_capacity(wanted + AlignedBuffer::ALIGNMENT);
        let skip = memory.as_ptr().align_offset(AlignedBuffer::ALIGNMENT);
        memory.resize(skip, 0);
        ReadBuffer { memory, skip, wanted }
    }

    /// Bytes that are filled.
    pub fn len(&self) -> usize {
        self.memory.len() - self.skip
    }

    pub fn is_full(&self) -> bool {
        self.len() == self.wanted
    }

    /// What is yet to be filled.
    pub fn rest(&mut self) -> &mut [MaybeUninit<u8>] {
        let missing = self.wanted - self.len();
        &mut self.memory.spare_capacity_mut()[..missing]
    }

    /// So many more bytes are filled.
    ///
    /// # Safety
    ///
    /// Somebody has written them, from the beginning of [`ReadBuffer::rest`] on.
    #[allow(unsafe_code)]
    pub unsafe fn filled(&mut self, count: usize) {
        assert!(count <= self.wanted - self.len(), "the kernel fills no more than it was asked to");
        // SAFETY: the caller has seen to the bytes; the capacity holds all that is wanted.
        unsafe { self.memory.set_len(self.memory.len() + count) };
    }

    /// What is behind the end of the file reads as zeros.
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
