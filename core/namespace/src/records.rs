//! The values of the map. Each begins with the version of its form; numbers are big-endian. A value of an unknown version or of another
//! length is damaged.
//!
//! | value | fields |
//! | --- | --- |
//! | parameters | version 1, blocks 8, stripe blocks 8, hash key 16, hash bits 1; version 2, of a file system with several shards: then the shard 1, the number of shards 1, placement 1 |
//! | counters | version 1, last inode 8, inodes 8, free 8, allotted 8, next block 8 |
//! | inode | version 1, type 1, mode 2, uid 4, gid 4, links 4, size 8, blocks 8, atime 8, mtime 8, ctime 8, parent 8 (or 0), target; of a special file: device 4 |
//! | entry | version 1, type 1, inode 8, name |
//! | extent | version 1, first block in the volume 8, blocks 8 |
//! | run | version 1, blocks 8 |
//! | mark for reclaim | version 1 |
//! | number | version 1, number 8 |
//! | transfer | version 1, number 8, and for each run: first block 8, blocks 8 |

use braid_base::{BlockRange, InodeId, ShardId, limits};
use braid_objects::Key;
use braid_wire::{DirectoryEntry, FileAttributes, FileExtent, FileTime, FileType, Owner, SpecialType};
use bytes::{Buf, BufMut, Bytes, BytesMut, TryGetError};
use serde::{Deserialize, Serialize};

const VERSION: u8 = 1;

/// A value that can't be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged;

impl From<TryGetError> for Damaged {
    fn from(_: TryGetError) -> Damaged {
        Damaged
    }
}

/// What is decided about a file system when it is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameters {
    /// The blocks of the volume that holds the bytes of files.
    pub blocks: u64,
    /// The blocks of a stripe of this volume: reservations are preferably multiples, at multiples.
    pub stripe_blocks: u64,
    /// The key of the hash of names. It is random and not known to users, so that they can't make names with the same hash.
    pub hash_key: [u8; 16],
    /// The bits of the hash of names, at most [`Parameters::HASH_BITS_MAX`]. Tests use fewer.
    pub hash_bits: u8,
    pub shards: Shards,
}

/// The shards of a file system, as one of them sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shards {
    pub own: ShardId,
    /// How many there are, at most [`limits::SHARDS_MAX`].
    pub count: u8,
    pub placement: Placement,
}

/// The chunks in which the blocks from a power of two to the next one are given to the shards of a file system that grows.
const CHUNKS_PER_DOUBLING: u64 = 32;

/// Where new inodes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Placement {
    /// In the shard of their directory; directories in any shard.
    #[default]
    Parent,
    /// In another shard than their directory.
    Spread,
}

impl Shards {
    /// The only shard of a file system.
    pub const ONE: Shards = Shards { own: ShardId::FIRST, count: 1, placement: Placement::Parent };

    /// The part of the blocks of the volume that this shard has at first. `blocks` is the size at the creation of the file system, for all
    /// shards: a file system grows only when each shard serves its present size, and so has been formatted.
    pub fn share(&self, blocks: u64) -> BlockRange {
        let (own, count) = (u64::from(self.own.0), u64::from(self.count));
        BlockRange::between(blocks * own / count, blocks * (own + 1) / count)
    }

    /// The parts of added blocks that this shard has. Who has a block follows from its number and the count of shards alone: shards may miss
    /// some steps of a growth. Chunks go round the shards; they are larger behind, so that a growth by much has few runs.
    pub fn added(&self, blocks: BlockRange) -> Vec<BlockRange> {
        let mut runs: Vec<BlockRange> = Vec::new();
        let mut at = blocks.start;
        while at < blocks.end() {
            let chunk = ((1 << at.max(1).ilog2()) / CHUNKS_PER_DOUBLING).max(1);
            let number = at / chunk;
            let run = BlockRange::between(at, blocks.end().min((number + 1).saturating_mul(chunk)));
            at = run.end();
            if number % u64::from(self.count) != u64::from(self.own.0) {
                continue;
            }
            match runs.last_mut().filter(|last| last.end() == run.start) {
                Some(last) => last.count += run.count,
                None => runs.push(run),
            }
        }
        runs
    }

    fn is_sound(&self) -> bool {
        (1..=limits::SHARDS_MAX).contains(&usize::from(self.count)) && self.own.0 < self.count
    }
}

/// The version of parameters with shards.
const SHARDED: u8 = 2;

impl Parameters {
    /// The usual number of bits of the hash of names.
    pub const HASH_BITS_MAX: u8 = 55;

    pub fn encode(&self) -> Bytes {
        let mut to = BytesMut::new();
        // A file system with one shard can be read by earlier builds.
        to.put_u8(if self.shards == Shards::ONE { VERSION } else { SHARDED });
        to.put_u64(self.blocks);
        to.put_u64(self.stripe_blocks);
        to.put_slice(&self.hash_key);
        to.put_u8(self.hash_bits);
        if self.shards != Shards::ONE {
            to.put_u8(self.shards.own.0);
            to.put_u8(self.shards.count);
            to.put_u8(match self.shards.placement {
                Placement::Parent => 1,
                Placement::Spread => 2,
            });
        }
        to.freeze()
    }

    pub fn decode(value: &Bytes) -> Result<Parameters, Damaged> {
        let mut from = value.clone();
        let version = from.try_get_u8()?;
        let (blocks, stripe_blocks) = (from.try_get_u64()?, from.try_get_u64()?);
        let mut hash_key = [0; 16];
        from.try_copy_to_slice(&mut hash_key)?;
        let hash_bits = from.try_get_u8()?;
        let shards = match version {
            VERSION => Shards::ONE,
            SHARDED => Shards {
                own: ShardId(from.try_get_u8()?),
                count: from.try_get_u8()?,
                placement: match from.try_get_u8()? {
                    1 => Placement::Parent,
                    2 => Placement::Spread,
                    _ => return Err(Damaged),
                },
            },
            _ => return Err(Damaged),
        };
        let is_sound = blocks > 0 && stripe_blocks > 0 && hash_bits <= Parameters::HASH_BITS_MAX && shards.is_sound();
        end(from, is_sound, Parameters { blocks, stripe_blocks, hash_key, hash_bits, shards })
    }
}

/// The counters of a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// The highest number of an inode that was ever created.
    pub last_inode: u64,
    pub inodes: u64,
    /// Free blocks.
    pub free: u64,
    /// Blocks in allotments.
    pub allotted: u64,
    /// The block at which the next reservation begins its search.
    pub next_block: u64,
}

impl Counters {
    pub fn encode(&self) -> Bytes {
        encode_numbers(&[self.last_inode, self.inodes, self.free, self.allotted, self.next_block])
    }

    pub fn decode(value: &Bytes) -> Result<Counters, Damaged> {
        let [last_inode, inodes, free, allotted, next_block] = decode_numbers(value)?;
        Ok(Counters { last_inode, inodes, free, allotted, next_block })
    }
}

/// The counters of several shards together, as one would have them; `None` if there are none, or some are damaged.
pub fn sum_of_counters(values: &[Bytes]) -> Option<Bytes> {
    let all = values.iter().map(Counters::decode).collect::<Result<Vec<_>, _>>().ok()?;
    let sum = all.into_iter().reduce(|sum, one| Counters {
        last_inode: sum.last_inode.max(one.last_inode),
        inodes: sum.inodes + one.inodes,
        free: sum.free + one.free,
        allotted: sum.allotted + one.allotted,
        next_block: 0,
    });
    sum.map(|sum| sum.encode())
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    pub attributes: FileAttributes,
    /// The target of a symbolic link; empty for other types.
    pub target: Bytes,
}

impl Inode {
    pub fn encode(&self) -> Bytes {
        let attributes = &self.attributes;
        let mut to = begin();
        to.put_u8(type_byte(attributes.file_type));
        to.put_u16(attributes.mode);
        to.put_u32(attributes.owner.uid);
        to.put_u32(attributes.owner.gid);
        to.put_u32(attributes.links);
        to.put_u64(attributes.size);
        to.put_u64(attributes.blocks);
        for time in [attributes.atime, attributes.mtime, attributes.ctime] {
            to.put_i64(time.0);
        }
        to.put_u64(attributes.parent.map_or(0, |parent| parent.0));
        to.put_slice(&self.target);
        if let FileType::Special(_) = attributes.file_type {
            to.put_u32(attributes.device);
        }
        to.freeze()
    }

    pub fn decode(inode: InodeId, value: &Bytes) -> Result<Inode, Damaged> {
        let mut from = version(value)?;
        let mut attributes = FileAttributes {
            inode,
            file_type: file_type(from.try_get_u8()?)?,
            mode: from.try_get_u16()?,
            owner: Owner { uid: from.try_get_u32()?, gid: from.try_get_u32()? },
            links: from.try_get_u32()?,
            size: from.try_get_u64()?,
            blocks: from.try_get_u64()?,
            atime: FileTime(from.try_get_i64()?),
            mtime: FileTime(from.try_get_i64()?),
            ctime: FileTime(from.try_get_i64()?),
            parent: Some(InodeId(from.try_get_u64()?)).filter(|parent| parent.0 > 0),
            device: 0,
        };
        if let FileType::Special(_) = attributes.file_type {
            attributes.device = from.try_get_u32()?;
        }
        let is_sound = match attributes.file_type {
            FileType::Regular => from.is_empty() && attributes.parent.is_none(),
            FileType::Directory => from.is_empty() && attributes.parent.is_some(),
            FileType::SymbolicLink => from.len() as u64 == attributes.size && attributes.parent.is_none(),
            FileType::Special(special) => {
                let may_have_number = special.is_device() || attributes.device == 0;
                from.is_empty() && attributes.parent.is_none() && attributes.size == 0 && may_have_number
            }
        };
        end(Bytes::new(), is_sound, Inode { attributes, target: from })
    }
}

/// The value of an entry; its cookie is in its key.
pub fn encode_entry(entry: &DirectoryEntry) -> Bytes {
    let mut to = begin();
    to.put_u8(type_byte(entry.file_type));
    to.put_u64(entry.inode.0);
    to.put_slice(&entry.name);
    to.freeze()
}

pub fn decode_entry(key: Key, value: &Bytes) -> Result<DirectoryEntry, Damaged> {
    let mut from = version(value)?;
    let (file_type, inode) = (file_type(from.try_get_u8()?)?, InodeId(from.try_get_u64()?));
    Ok(DirectoryEntry { cookie: key.index, inode, file_type, name: from })
}

/// The value of an extent; its last block in the file is in its key.
pub fn encode_extent(extent: FileExtent) -> Bytes {
    encode_numbers(&[extent.blocks.start, extent.blocks.count])
}

pub fn decode_extent(key: Key, value: &Bytes) -> Result<FileExtent, Damaged> {
    let [start, count] = decode_numbers(value)?;
    start.checked_add(count).ok_or(Damaged)?;
    Ok(FileExtent { at: first_block(key, count)?, blocks: BlockRange::new(start, count) })
}

/// The value of a run; its last block is in its key.
pub fn encode_run(run: BlockRange) -> Bytes {
    encode_number(run.count)
}

pub fn decode_run(key: Key, value: &Bytes) -> Result<BlockRange, Damaged> {
    let count = decode_number(value)?;
    Ok(BlockRange::new(first_block(key, count)?, count))
}

/// The first of so many blocks, of which the last is in the key.
fn first_block(key: Key, count: u64) -> Result<u64, Damaged> {
    key.index.checked_add(1).and_then(|end| end.checked_sub(count)).filter(|_| count > 0).ok_or(Damaged)
}

/// The value of a number.
pub fn encode_number(number: u64) -> Bytes {
    encode_numbers(&[number])
}

pub fn decode_number(value: &Bytes) -> Result<u64, Damaged> {
    decode_numbers(value).map(|[number]| number)
}

/// The blocks that one shard gives to another one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transfer {
    /// Transfers from one shard to another are numbered from 1 on.
    pub number: u64,
    pub runs: Vec<BlockRange>,
}

/// The value of a transfer of free blocks.
pub fn encode_transfer(transfer: &Transfer) -> Bytes {
    let runs = transfer.runs.iter().flat_map(|run| [run.start, run.count]);
    encode_numbers(&[transfer.number].into_iter().chain(runs).collect::<Vec<_>>())
}

pub fn decode_transfer(value: &Bytes) -> Result<Transfer, Damaged> {
    let mut from = version(value)?;
    let number = from.try_get_u64()?;
    let mut runs = Vec::new();
    while from.has_remaining() {
        let (start, count) = (from.try_get_u64()?, from.try_get_u64()?);
        start.checked_add(count).filter(|_| count > 0).ok_or(Damaged)?;
        runs.push(BlockRange::new(start, count));
    }
    end(from, true, Transfer { number, runs })
}

/// The value of a mark for reclaim.
pub fn mark() -> Bytes {
    encode_numbers(&[])
}

/// A value of numbers alone.
fn encode_numbers(numbers: &[u64]) -> Bytes {
    let mut to = begin();
    numbers.iter().for_each(|number| to.put_u64(*number));
    to.freeze()
}

fn decode_numbers<const COUNT: usize>(value: &Bytes) -> Result<[u64; COUNT], Damaged> {
    let (mut from, mut numbers) = (version(value)?, [0; COUNT]);
    for number in &mut numbers {
        *number = from.try_get_u64()?;
    }
    end(from, true, numbers)
}

fn begin() -> BytesMut {
    let mut to = BytesMut::new();
    to.put_u8(VERSION);
    to
}

/// What follows the version.
fn version(value: &Bytes) -> Result<Bytes, Damaged> {
    let mut from = value.clone();
    if from.try_get_u8()? == VERSION { Ok(from) } else { Err(Damaged) }
}

fn end<T>(rest: Bytes, is_sound: bool, decoded: T) -> Result<T, Damaged> {
    if rest.is_empty() && is_sound { Ok(decoded) } else { Err(Damaged) }
}

fn type_byte(file_type: FileType) -> u8 {
    match file_type {
        FileType::Regular => 1,
        FileType::Directory => 2,
        FileType::SymbolicLink => 3,
        FileType::Special(SpecialType::Fifo) => 4,
        FileType::Special(SpecialType::Socket) => 5,
        FileType::Special(SpecialType::CharacterDevice) => 6,
        FileType::Special(SpecialType::BlockDevice) => 7,
    }
}

fn file_type(byte: u8) -> Result<FileType, Damaged> {
    match byte {
        1 => Ok(FileType::Regular),
        2 => Ok(FileType::Directory),
        3 => Ok(FileType::SymbolicLink),
        4 => Ok(FileType::Special(SpecialType::Fifo)),
        5 => Ok(FileType::Special(SpecialType::Socket)),
        6 => Ok(FileType::Special(SpecialType::CharacterDevice)),
        7 => Ok(FileType::Special(SpecialType::BlockDevice)),
        _ => Err(Damaged),
    }
}
