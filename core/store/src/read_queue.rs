//! Reads. A read returns the committed content as of the call. A block is taken from the dirty blocks in memory or from its slot, or it
//! is a hole. Blocks that lie side by side in slots are read by one command. If the disk can't read them, each block is read alone: so an
//! unreadable sector costs one block, which is lost, and not its neighbours.

use crate::StoreEvent;
use crate::block::{CHUNK_BLOCKS, STRIDE, holds, source};
use crate::ctx::Ctx;
use crate::disk_queue::Io;
use crate::state::State;
use braid_base::{BLOCK_BYTES, BlockRange, ObjectId};
use braid_blocks::{Content, Piece, Want};
use braid_wire::Failure;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// The most blocks that one command reads.
const RUN_MAX: u64 = 256;

/// The most corrupt blocks that are remembered. Further ones are counted at each read.
const CORRUPT_MAX: usize = 1 << 16;

/// Reads that wait for the disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadQueue {
    reads: BTreeMap<u64, ReadOperation>,
    corrupt: CorruptBlocks,
}

/// Blocks that were read, and whose checksum was wrong or that the disk could not read.
#[derive(Clone, Debug, Default)]
struct CorruptBlocks {
    /// One counts again when it was whole in between.
    count: u64,
    /// Those that were not seen whole since.
    known: BTreeSet<(ObjectId, u64)>,
}

#[derive(Clone, Debug)]
struct ReadOperation {
    ticket: u64,
    object: ObjectId,
    want: Want,
    parts: Vec<ReadPart>,
    outstanding: usize,
}

/// A part of a read's blocks.
#[derive(Clone, Debug)]
enum ReadPart {
    Ready(Piece),
    /// In a slot, at these places.
    Home {
        blocks: BlockRange,
        places: BlockRange,
    },
    /// In a slot from this place on; each block is read alone, because they could not be read together.
    Apart(u64, Vec<ReadPart>),
    Arrived(Vec<Piece>),
    Failed(Failure),
}

impl ReadQueue {
    /// How many blocks were found corrupt.
    pub fn blocks_corrupt(&self) -> u64 {
        self.corrupt.count
    }

    /// See [`Storage::read_as`](crate::Storage::read_as).
    pub fn read(&mut self, ticket: u64, object: ObjectId, extents: &[BlockRange], want: Want, ctx: &mut Ctx) {
        let parts = check(ctx.state, object, extents).and_then(|()| {
            let mut parts = Vec::with_capacity(extents.len());
            extents.iter().try_for_each(|extent| locate(ctx.state, object, *extent, want, &mut parts))?;
            Ok(parts)
        });
        let parts = match parts {
            Ok(parts) => parts,
            Err(failure) => return ctx.tell(StoreEvent::Read { ticket, result: Err(failure) }),
        };
        parts.iter().for_each(|part| self.corrupt.see(object, part));
        let homes = |part: &(usize, &ReadPart)| matches!(part.1, ReadPart::Home { .. });
        let outstanding = parts.iter().enumerate().filter(homes).count();
        let operation = ReadOperation { ticket, object, want, parts, outstanding };
        if outstanding == 0 {
            return ctx.tell(operation.finish());
        }
        let id = ctx.disk.id();
        for (part, found) in operation.parts.iter().enumerate() {
            if let ReadPart::Home { places, .. } = *found {
                ctx.disk.read_places(Io::Read { operation: id, part, places }, places, ctx.out);
            }
        }
        self.reads.insert(id, operation);
    }

    /// A part of a read has arrived from the disk, or can't be read.
    pub fn on_read(&mut self, operation: u64, part: usize, places: BlockRange, bytes: Option<Bytes>, ctx: &mut Ctx) {
        let reading = self.reads.get_mut(&operation).expect("a read lasts until its last part has come");
        let (object, want) = (reading.object, reading.want);
        let found = match &mut reading.parts[part] {
            ReadPart::Apart(first, blocks) => &mut blocks[(places.start - *first) as usize],
            whole => whole,
        };
        let ReadPart::Home { blocks, .. } = *found else { panic!("a part arrives once") };
        let bytes = bytes.filter(|bytes| bytes.len() == blocks.count as usize * STRIDE);
        *found = match bytes.map(|bytes| strip(&bytes, object, blocks, want)) {
            Some(Ok(pieces)) => ReadPart::Arrived(pieces),
            Some(Err(failure)) => ReadPart::Failed(failure),
            None if blocks.count == 1 && want == Want::Salvage => {
                ReadPart::Arrived(vec![Piece { range: blocks, content: Content::Lost }])
            }
            None if blocks.count == 1 => ReadPart::Failed(Failure::Lost { block: blocks.start }),
            None => ReadPart::Apart(places.start, one_by_one(blocks, places)),
        };
        self.corrupt.see(object, found);
        let is_apart = matches!(found, ReadPart::Apart(..));
        reading.outstanding -= 1;
        if is_apart {
            // Sent at once, before any other command may change these places.
            reading.outstanding += places.count as usize;
            for place in places.blocks() {
                let places = BlockRange::new(place, 1);
                ctx.disk.read_places(Io::Read { operation, part, places }, places, ctx.out);
            }
        } else if reading.outstanding == 0 {
            let reading = self.reads.remove(&operation).expect("it was there just now");
            ctx.tell(reading.finish());
        }
    }
}

impl CorruptBlocks {
    /// Some blocks were read.
    fn see(&mut self, object: ObjectId, part: &ReadPart) {
        match part {
            ReadPart::Failed(Failure::Lost { block }) => self.find(object, *block),
            // What was restored as lost is not corrupt.
            ReadPart::Ready(piece) if !matches!(piece.content, Content::Lost) => self.see_piece(object, piece),
            ReadPart::Arrived(pieces) => pieces.iter().for_each(|piece| self.see_piece(object, piece)),
            _ => {}
        }
    }

    fn see_piece(&mut self, object: ObjectId, Piece { range, content }: &Piece) {
        if let Content::Lost = content {
            range.blocks().for_each(|block| self.find(object, block));
        } else if !self.known.is_empty() {
            self.known.extract_if((object, range.start)..(object, range.end()), |_| true).for_each(drop);
        }
    }

    fn find(&mut self, object: ObjectId, block: u64) {
        let key = (object, block);
        let is_new = if self.known.len() < CORRUPT_MAX { self.known.insert(key) } else { !self.known.contains(&key) };
        self.count += u64::from(is_new);
    }
}

fn check(state: &State, object: ObjectId, extents: &[BlockRange]) -> Result<(), Failure> {
    let within = |extent: &BlockRange| state.objects.contains(object, *extent);
    match state.objects.get(object) {
        None => Err(Failure::NoSuchObject),
        Some(_) if !extents.iter().all(within) => Err(Failure::OutOfRange),
        Some(_) if extents.iter().any(|extent| state.absent.has_any_of(object, *extent)) => Err(Failure::Absent),
        Some(_) => Ok(()),
    }
}

/// Appends to `parts` where the blocks of `extent` are.
fn locate(
    state: &State,
    object: ObjectId,
    extent: BlockRange,
    want: Want,
    parts: &mut Vec<ReadPart>,
) -> Result<(), Failure> {
    if extent.is_empty() {
        return Ok(());
    }
    let own = parts.len();
    let mut dirty_blocks = state.dirty.range((object, extent.start)..(object, extent.end())).peekable();
    let mut entry = Default::default();
    for block in extent.blocks() {
        if block == extent.start || block.is_multiple_of(CHUNK_BLOCKS) {
            entry = state.chunk(object, (block / CHUNK_BLOCKS) as u32);
        }
        let dirty = dirty_blocks.next_if(|((_, at), _)| *at == block).map(|(_, dirty)| dirty);
        let last = parts[own..].last_mut();
        if let Some(dirty) = dirty {
            let by = &dirty.by;
            let content = match (want, dirty.data.clone()) {
                (Want::Salvage, None) => Content::Lost,
                (_, None) => return Err(Failure::Lost { block }),
                (Want::Linkage, Some(_)) => Content::Header { transaction: by.transaction, linkage: by.linkage },
                (_, Some(data)) => Content::Data(data),
            };
            parts.push(ReadPart::Ready(Piece { range: BlockRange::new(block, 1), content }));
        } else if entry.blocks >> (block % CHUNK_BLOCKS) & 1 == 0 {
            match last {
                Some(ReadPart::Ready(Piece { range, content: Content::Hole })) => range.count += 1,
                _ => {
                    let range = BlockRange::new(block, 1);
                    parts.push(ReadPart::Ready(Piece { range, content: Content::Hole }));
                }
            }
        } else {
            let slot = entry.slot.expect("recovery and commits give a slot to every chunk that has content");
            let place = u64::from(slot) * CHUNK_BLOCKS + block % CHUNK_BLOCKS;
            match last {
                Some(ReadPart::Home { blocks, places }) if places.end() == place && places.count < RUN_MAX => {
                    blocks.count += 1;
                    places.count += 1;
                }
                _ => {
                    parts.push(ReadPart::Home { blocks: BlockRange::new(block, 1), places: BlockRange::new(place, 1) })
                }
            }
        }
    }
    Ok(())
}

impl ReadOperation {
    fn finish(self) -> StoreEvent {
        let mut pieces = Vec::with_capacity(self.parts.len());
        let result = self.parts.into_iter().try_for_each(|part| part.finish(&mut pieces));
        StoreEvent::Read { ticket: self.ticket, result: result.map(|()| pieces) }
    }
}

impl ReadPart {
    fn finish(self, pieces: &mut Vec<Piece>) -> Result<(), Failure> {
        match self {
            ReadPart::Ready(piece) => pieces.push(piece),
            ReadPart::Arrived(arrived) => pieces.extend(arrived),
            ReadPart::Apart(_, parts) => return parts.into_iter().try_for_each(|part| part.finish(pieces)),
            ReadPart::Failed(failure) => return Err(failure),
            ReadPart::Home { .. } => panic!("a read ends when all its parts have come"),
        }
        Ok(())
    }
}

fn one_by_one(blocks: BlockRange, places: BlockRange) -> Vec<ReadPart> {
    let one = |(block, place)| ReadPart::Home { blocks: BlockRange::new(block, 1), places: BlockRange::new(place, 1) };
    blocks.blocks().zip(places.blocks()).map(one).collect()
}

/// The data of `blocks` without their headers, or the headers' linkage without the data. Each block is verified.
fn strip(bytes: &Bytes, object: ObjectId, blocks: BlockRange, want: Want) -> Result<Vec<Piece>, Failure> {
    let one = |(block, at): (u64, usize)| {
        let range = BlockRange::new(block, 1);
        if !holds(&bytes[at..at + STRIDE], object, block) {
            return match want {
                Want::Salvage => Ok(Piece { range, content: Content::Lost }),
                _ => Err(Failure::Lost { block }),
            };
        }
        let content = match want {
            Want::Linkage => {
                let (transaction, linkage) = source(&bytes[at..at + STRIDE]);
                Content::Header { transaction, linkage }
            }
            _ => Content::Data(bytes.slice(at..at + BLOCK_BYTES)),
        };
        Ok(Piece { range, content })
    };
    blocks.blocks().zip((0..).step_by(STRIDE)).map(one).collect()
}
