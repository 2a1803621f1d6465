//! A bucket is the unit of an attribute volume: 128 KiB that store a few attributes (`docs/attribute-volumes.md`).
//!
//! ```text
//!   magic 8 | checksum 4 | version 4 | entries 4 | length 4 | bucket 8 | buckets 8 |  key 17 | bytes 4 | value … |  key … | …
//! ```
//!
//! Entries are in ascending order of their keys. The checksum covers everything after it, up to `length`. Integers are big-endian. After
//! `length` there are zeros to the end of the block, and then holes. An empty bucket consists of holes, like one that was never written.

use crate::key::{KEY_BYTES, Key, Kind};
use braid_base::checksum::crc32c;
use braid_base::{BLOCK_BYTES, limits};
use bytes::{BufMut, Bytes, BytesMut};
use std::collections::BTreeMap;

/// Blocks of a bucket: enough for twice the longest value.
pub const BUCKET_BLOCKS: usize = 32;
pub const BUCKET_BYTES: usize = BUCKET_BLOCKS * BLOCK_BYTES;

const MAGIC: [u8; 8] = *b"braidbkt";
const VERSION: u32 = 1;
const CHECKSUM_AT: usize = 8;
const CHECKED_FROM: usize = 12;
const HEADER_BYTES: usize = 40;
const ENTRY_BYTES: usize = KEY_BYTES + 4;

const _: () = assert!(HEADER_BYTES + ENTRY_BYTES + limits::ATTRIBUTE_BYTES_MAX <= BUCKET_BYTES);

/// A bucket's blocks, as stored in the volume. `None` is a hole.
pub type Blocks = [Option<Bytes>; BUCKET_BLOCKS];

/// The index of a bucket, and the number of buckets of its volume. Both are stored in the bucket, to detect a bucket that was written to
/// a wrong location, or by an attribute volume of another size, which would have looked for its keys elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BucketAddress {
    /// The index of the bucket, from 0.
    pub bucket: u64,
    /// The number of buckets of the attribute volume.
    pub buckets: u64,
}

/// The content of a bucket.
pub type Entries = BTreeMap<Key, Bytes>;

/// Why blocks are not a valid bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketError {
    /// They contain something else, which must not be overwritten.
    Foreign,
    /// They contain a bucket that is damaged.
    Damaged,
}

/// The entries do not fit into a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

pub fn decode(place: BucketAddress, blocks: &Blocks) -> Result<Entries, BucketError> {
    // Blocks of zeros are equivalent to holes.
    let is_there = |block: &&Option<Bytes>| block.as_ref().is_some_and(|block| block.iter().any(|byte| *byte != 0));
    let Some(head) = blocks.first().filter(is_there).and_then(Option::as_ref) else {
        return if blocks.iter().any(|block| is_there(&block)) {
            Err(BucketError::Foreign)
        } else {
            Ok(Entries::new())
        };
    };
    let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("four bytes"));
    let long = |at: usize| u64::from_be_bytes(head[at..at + 8].try_into().expect("eight bytes"));
    if head[..CHECKSUM_AT] != MAGIC || word(CHECKED_FROM) != VERSION {
        return Err(BucketError::Foreign);
    }
    let (count, length) = (word(16), word(20) as usize);
    if !(HEADER_BYTES..=BUCKET_BYTES).contains(&length) {
        return Err(BucketError::Damaged);
    }
    let used = length.div_ceil(BLOCK_BYTES);
    let whole = joined(&blocks[..used]);
    let behind = whole[length..].iter().any(|byte| *byte != 0) || blocks[used..].iter().any(|block| is_there(&block));
    if behind || crc32c(&whole[CHECKED_FROM..length]) != word(CHECKSUM_AT) {
        return Err(BucketError::Damaged);
    }
    if (BucketAddress { bucket: long(24), buckets: long(32) }) != place {
        return Err(BucketError::Foreign);
    }
    let entries = entries(whole.slice(HEADER_BYTES..length)).ok_or(BucketError::Damaged)?;
    if entries.len() == count as usize { Ok(entries) } else { Err(BucketError::Damaged) }
}

fn entries(mut rest: Bytes) -> Option<Entries> {
    let mut entries = Entries::new();
    while !rest.is_empty() {
        let head = first(&mut rest, ENTRY_BYTES)?;
        let key = Key::decode(head[..KEY_BYTES].try_into().expect("as many bytes"))?;
        let length = u32::from_be_bytes(head[KEY_BYTES..].try_into().expect("four bytes")) as usize;
        let ascends = entries.last_key_value().is_none_or(|(last, _)| *last < key);
        if key.kind != Kind::Attribute || !ascends || !(1..=limits::ATTRIBUTE_BYTES_MAX).contains(&length) {
            return None;
        }
        entries.insert(key, first(&mut rest, length)?);
    }
    Some(entries)
}

/// Removes and returns the first `count` bytes; `None` if there are fewer.
fn first(rest: &mut Bytes, count: usize) -> Option<Bytes> {
    (count <= rest.len()).then(|| rest.split_to(count))
}

/// Encodes a bucket. The entries must be attributes with values of at least one byte and at most the longest value allowed.
pub fn encode(place: BucketAddress, entries: &Entries) -> Result<Blocks, Full> {
    let mut blocks = Blocks::default();
    if entries.is_empty() {
        return Ok(blocks);
    }
    let length = HEADER_BYTES + entries.values().map(|value| ENTRY_BYTES + value.len()).sum::<usize>();
    if length > BUCKET_BYTES {
        return Err(Full);
    }
    let mut bytes = BytesMut::with_capacity(length.next_multiple_of(BLOCK_BYTES));
    bytes.put_slice(&MAGIC);
    bytes.put_u32(0);
    bytes.put_u32(VERSION);
    bytes.put_u32(entries.len() as u32);
    bytes.put_u32(length as u32);
    bytes.put_u64(place.bucket);
    bytes.put_u64(place.buckets);
    for (key, value) in entries {
        assert!(
            key.kind == Kind::Attribute && !value.is_empty(),
            "an attribute volume stores only attributes: {key:?}"
        );
        bytes.put_slice(&key.encode());
        bytes.put_u32(value.len() as u32);
        bytes.put_slice(value);
    }
    let checksum = crc32c(&bytes[CHECKED_FROM..]);
    bytes[CHECKSUM_AT..CHECKED_FROM].copy_from_slice(&checksum.to_be_bytes());
    bytes.resize(length.next_multiple_of(BLOCK_BYTES), 0);
    let mut rest = bytes.freeze();
    for block in blocks.iter_mut().take(length.div_ceil(BLOCK_BYTES)) {
        *block = Some(rest.split_to(BLOCK_BYTES));
    }
    Ok(blocks)
}

fn joined(blocks: &[Option<Bytes>]) -> Bytes {
    if let [Some(block)] = blocks {
        return block.clone();
    }
    let mut whole = BytesMut::with_capacity(blocks.len() * BLOCK_BYTES);
    for block in blocks {
        match block {
            Some(block) => whole.put_slice(block),
            None => whole.put_bytes(0, BLOCK_BYTES),
        }
    }
    whole.freeze()
}
