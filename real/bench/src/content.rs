//! The expected content of a volume. Every block that the bench writes carries a stamp at both ends, and every read is compared with
//! what its blocks may contain. Therefore no rate is ever reported for wrong answers.
//!
//! ```text
//!     block:  key | which block | number of the write | filler … | number of the write
//! ```
//!
//! Writes are numbered in the order in which they begin. Each block has a *floor*: a read that begins now must not return a write with a
//! lower number. The reason is that all lower writes had ended before another write began, and that this write has been acknowledged.
//! While several writes of a block are under way, any of them may take effect last; the floor then stays low.

use crate::prelude::*;
use std::cell::RefCell;
use std::ops::Range;

/// The expected content of a volume's blocks.
pub struct Content {
    /// Different for each volume and each run of the bench.
    key: u64,
    filler: Vec<u8>,
    state: RefCell<State>,
}

struct State {
    last_write: u64,
    blocks: Vec<Block>,
}

#[derive(Clone, Copy, Default)]
struct Block {
    /// The lowest write number that may be read; 0 while the block may be unwritten.
    floor: u64,
    /// A lower bound of the numbers of writes under way; unused if there are none.
    lowest_under_way: u64,
    under_way: u32,
}

/// A write under way.
pub struct Write {
    number: u64,
    /// For each of its blocks, the floor after the write has ended.
    floors: Vec<u64>,
}

/// A read under way: for each of its blocks, the lowest write number that it may return.
pub struct Read(Vec<u64>);

/// A block with unexpected content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("block {block} of the volume is wrong: {what}")]
pub struct WrongBlock {
    /// In blocks of 4 KiB from the volume's start.
    pub block: u64,
    /// The content found.
    pub what: String,
}

const HEAD: usize = 24;
const TAIL: usize = BLOCK_BYTES - 8;

impl Content {
    /// An unwritten volume of this size.
    pub fn new(bytes: u64, seed: u64) -> Content {
        let mut rng = Rng::new(seed);
        let key = rng.next_u64();
        let filler = (0..BLOCK_BYTES / 8).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
        let blocks = vec![Block::default(); (bytes / BLOCK_BYTES as u64) as usize];
        Content { key, filler, state: RefCell::new(State { last_write: 0, blocks }) }
    }

    /// The size of the volume in bytes.
    pub fn bytes(&self) -> u64 {
        self.state.borrow().blocks.len() as u64 * BLOCK_BYTES as u64
    }

    /// Begins a write, and returns its data.
    pub fn begin_write(&self, offset: u64, length: u64) -> (Write, Bytes) {
        let mut state = self.state.borrow_mut();
        state.last_write += 1;
        let number = state.last_write;
        let mut floors = Vec::with_capacity(length as usize / BLOCK_BYTES);
        let mut data = Vec::with_capacity(length as usize);
        for index in blocks(offset, length) {
            let block = &mut state.blocks[index];
            if block.under_way == 0 {
                block.lowest_under_way = number;
            }
            block.under_way += 1;
            floors.push(block.lowest_under_way);
            let start = data.len();
            data.extend_from_slice(&self.filler);
            let stamp = &mut data[start..];
            stamp[..8].copy_from_slice(&self.key.to_le_bytes());
            stamp[8..16].copy_from_slice(&(index as u64).to_le_bytes());
            stamp[16..HEAD].copy_from_slice(&number.to_le_bytes());
            stamp[TAIL..].copy_from_slice(&number.to_le_bytes());
        }
        (Write { number, floors }, data.into())
    }

    /// Ends a write that was acknowledged.
    pub fn end_write(&self, offset: u64, write: &Write) {
        let mut state = self.state.borrow_mut();
        let first = (offset / BLOCK_BYTES as u64) as usize;
        for (block, floor) in state.blocks[first..].iter_mut().zip(&write.floors) {
            assert!(*floor <= write.number && block.under_way > 0, "a write ends once, after it has begun");
            block.under_way -= 1;
            block.floor = block.floor.max(*floor);
        }
    }

    pub fn begin_read(&self, offset: u64, length: u64) -> Read {
        let state = self.state.borrow();
        Read(state.blocks[blocks(offset, length)].iter().map(|block| block.floor).collect())
    }

    /// Compares the result of a read with what it may return.
    pub fn check(&self, offset: u64, read: &Read, brought: &[Bytes]) -> Result<(), WrongBlock> {
        let first = offset / BLOCK_BYTES as u64;
        let wrong = |at: usize, what: String| Err(WrongBlock { block: first + at as u64, what });
        let length: usize = brought.iter().map(Bytes::len).sum();
        if length != read.0.len() * BLOCK_BYTES {
            return wrong(0, format!("a read of {} bytes returned {length}", read.0.len() * BLOCK_BYTES));
        }
        let joined: Vec<u8>;
        let whole = brought.iter().all(|buffer| buffer.len().is_multiple_of(BLOCK_BYTES));
        let buffers: Vec<&[u8]> = if whole {
            brought.iter().map(|buffer| &buffer[..]).collect()
        } else {
            joined = brought.concat();
            vec![&joined]
        };
        let there = buffers.into_iter().flat_map(|buffer| buffer.chunks_exact(BLOCK_BYTES));
        let last_write = self.state.borrow().last_write;
        for (at, (bytes, floor)) in there.zip(&read.0).enumerate() {
            let word = |range: Range<usize>| u64::from_le_bytes(bytes[range].try_into().expect("eight bytes"));
            let (key, block, number, end) = (word(0..8), word(8..16), word(16..HEAD), word(TAIL..BLOCK_BYTES));
            if *floor == 0 && bytes.iter().all(|byte| *byte == 0) {
                continue;
            }
            if key != self.key {
                return wrong(at, "its content was not written by the bench".to_string());
            }
            if block != first + at as u64 {
                return wrong(at, format!("it contains the content of block {block}"));
            }
            if number != end {
                return wrong(at, format!("it begins as write {number} and ends as write {end}"));
            }
            if number < *floor || number > last_write {
                let why = format!("it contains write {number}, but write {floor} or a later one was acknowledged");
                return wrong(at, why);
            }
        }
        Ok(())
    }
}

fn blocks(offset: u64, length: u64) -> Range<usize> {
    let block = BLOCK_BYTES as u64;
    (offset / block) as usize..((offset + length) / block) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = BLOCK_BYTES as u64;

    fn written(content: &Content, offset: u64, length: u64) -> Bytes {
        let (write, data) = content.begin_write(offset, length);
        content.end_write(offset, &write);
        data
    }

    fn check(content: &Content, offset: u64, brought: &[Bytes]) -> Result<(), WrongBlock> {
        let length = brought.iter().map(Bytes::len).sum::<usize>() as u64;
        content.check(offset, &content.begin_read(offset, length), brought)
    }

    #[test]
    fn written_content_is_right_however_it_is_cut() {
        let content = Content::new(8 * BLOCK, 1);
        let data = written(&content, 2 * BLOCK, 3 * BLOCK);
        assert_eq!(check(&content, 2 * BLOCK, std::slice::from_ref(&data)), Ok(()));
        assert_eq!(check(&content, 2 * BLOCK, &[data.slice(..4096), data.slice(4096..)]), Ok(()));
        assert_eq!(check(&content, 2 * BLOCK, &[data.slice(..5000), data.slice(5000..)]), Ok(()));
        assert_eq!(check(&content, 3 * BLOCK, &[data.slice(4096..8192)]), Ok(()));
    }

    #[test]
    fn every_inconsistency_is_reported_with_its_block() {
        let content = Content::new(8 * BLOCK, 1);
        let old = written(&content, 0, 4 * BLOCK);
        let new = written(&content, 0, 4 * BLOCK);
        let zeros = Bytes::from(vec![0; BLOCK_BYTES]);
        let mut torn = new.slice(4096..8192).to_vec();
        torn[TAIL..].copy_from_slice(&old[TAIL..BLOCK_BYTES]);
        let other = written(&Content::new(8 * BLOCK, 2), BLOCK, BLOCK);
        for (second, word) in [
            (zeros, "not written by the bench"),
            (other, "not written by the bench"),
            (new.slice(..4096), "content of block 0"),
            (torn.into(), "begins as write 2 and ends as write 1"),
            (old.slice(4096..8192), "contains write 1"),
        ] {
            let wrong = check(&content, 0, &[new.slice(..4096), second]).unwrap_err();
            assert_eq!(wrong.block, 1, "{wrong}");
            assert!(wrong.to_string().contains(word), "{wrong}");
        }
        let short = content.check(0, &content.begin_read(0, 2 * BLOCK), &[new.slice(..4096)]).unwrap_err();
        assert!(short.to_string().contains("8192 bytes returned 4096"), "{short}");
    }

    #[test]
    fn zeros_are_right_until_a_write_was_acknowledged() {
        let content = Content::new(BLOCK, 1);
        let zeros = [Bytes::from(vec![0; BLOCK_BYTES])];
        assert_eq!(check(&content, 0, &zeros), Ok(()));
        let (write, _) = content.begin_write(0, BLOCK);
        let before = content.begin_read(0, BLOCK);
        content.end_write(0, &write);
        assert_eq!(content.check(0, &before, &zeros), Ok(()), "it began before the write ended");
        assert!(check(&content, 0, &zeros).is_err());
    }

    #[test]
    fn of_writes_that_were_under_way_together_any_may_be_the_last() {
        let content = Content::new(BLOCK, 1);
        let oldest = written(&content, 0, BLOCK);
        let (first, one) = content.begin_write(0, BLOCK);
        let (second, two) = content.begin_write(0, BLOCK);
        content.end_write(0, &second);
        for any in [&one, &two] {
            assert_eq!(check(&content, 0, std::slice::from_ref(any)), Ok(()));
        }
        assert!(check(&content, 0, &[oldest]).is_err());
        content.end_write(0, &first);
        for any in [&one, &two] {
            assert_eq!(check(&content, 0, std::slice::from_ref(any)), Ok(()));
        }
        written(&content, 0, BLOCK);
        for old in [one, two] {
            assert!(check(&content, 0, &[old]).is_err());
        }
    }
}
