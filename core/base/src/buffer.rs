//! Memory whose address suits direct I/O, without `unsafe`: a little too much is allocated, and the part that
//! begins at an even address is used.
//!
//! Buffers of blocks come and go by the ten thousand each second. Fresh memory has to be zeroed by the system, page after
//! page; so each thread keeps some of what was given back, up to a bound, and uses it again.

use bytes::Bytes;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

/// What a thread keeps at most: about what a journal half full refers to.
const POOL_BYTES_MAX: usize = 16 << 20;
/// Larger buffers are not kept.
const POOLED_BYTES_MAX: usize = 2 << 20;

/// Bytes that begin at a multiple of [`AlignedBuffer::ALIGNMENT`] in memory.
pub struct AlignedBuffer {
    memory: Memory,
    skip: usize,
    len: usize,
}

impl AlignedBuffer {
    /// What direct I/O asks for on disks with sectors of this size.
    pub const ALIGNMENT: usize = 512;

    /// `len` bytes, all zero.
    pub fn zeroed(len: usize) -> AlignedBuffer {
        let mut buffer = AlignedBuffer::recycled(len);
        buffer.fill(0);
        buffer
    }

    /// `len` bytes that may hold anything: for who writes every one of them.
    pub fn recycled(len: usize) -> AlignedBuffer {
        let memory = Memory::at_least(len + Self::ALIGNMENT);
        let skip = memory.0.as_ptr().align_offset(Self::ALIGNMENT);
        let mut buffer = AlignedBuffer { memory, skip, len };
        if cfg!(debug_assertions) {
            // Who leaves a byte out is found by the first checksum, and the same way each time.
            buffer.fill(0xa5);
        }
        buffer
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
        &self.memory.0[self.skip..self.skip + self.len]
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory.0[self.skip..self.skip + self.len]
    }
}

/// What goes back to the pool when it is no longer used.
struct Memory(Vec<u8>);

impl Memory {
    fn at_least(bytes: usize) -> Memory {
        let class = class_of(bytes);
        let kept = POOL.try_with(|pool| pool.borrow_mut().take(class)).ok().flatten();
        Memory(kept.unwrap_or_else(|| vec![0; class]))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.0);
        // When the thread ends, its pool may have gone before.
        let _ = POOL.try_with(|pool| pool.borrow_mut().keep(memory));
    }
}

/// Sizes are rounded up, large ones by an eighth at most, so that few of them serve all.
fn class_of(bytes: usize) -> usize {
    bytes.next_multiple_of((bytes.next_power_of_two() / 16).max(AlignedBuffer::ALIGNMENT))
}

thread_local! {
    static POOL: RefCell<Pool> = RefCell::default();
}

#[derive(Default)]
struct Pool {
    /// By size.
    free: BTreeMap<usize, Vec<Vec<u8>>>,
    bytes: usize,
}

impl Pool {
    fn take(&mut self, class: usize) -> Option<Vec<u8>> {
        let memory = self.free.get_mut(&class)?.pop()?;
        self.bytes -= class;
        Some(memory)
    }

    fn keep(&mut self, memory: Vec<u8>) {
        let class = memory.len();
        if class > POOLED_BYTES_MAX {
            return;
        }
        self.bytes += class;
        self.free.entry(class).or_default().push(memory);
        // What an earlier load left must not keep out what this one needs: the largest go first.
        while self.bytes > POOL_BYTES_MAX
            && let Some(mut largest) = self.free.last_entry()
        {
            match largest.get_mut().pop() {
                Some(memory) => self.bytes -= memory.len(),
                None => drop(largest.remove()),
            }
        }
    }
}
