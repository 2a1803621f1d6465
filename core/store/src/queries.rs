//! Queries that the store answers at once, without the disk: allocated blocks, absent blocks, and what other devices have missed.

use crate::block::{CHUNK_BLOCKS, chunks};
use crate::journal_format::IntentRecord;
use crate::missed::{extent_of, merged};
use crate::state::State;
use braid_base::{BlockRange, DeviceId, ObjectId, limits};
use braid_blocks::{Content, Piece};

impl State {
    /// See [`Storage::missed`](crate::Storage::missed). Intents that are still being written into the journal may be decided after this
    /// answer, so they count as well.
    pub fn missed_by<'a>(
        &'a self,
        device: DeviceId,
        object: ObjectId,
        from: u64,
        on_their_way: impl Iterator<Item = &'a IntentRecord>,
    ) -> (Vec<BlockRange>, Option<u64>) {
        let Some(membership) = &self.presence.membership else { return (Vec::new(), None) };
        let is_redundant = self.objects.get(object).is_some_and(|record| record.description.redundant);
        let undecided = self.transactions.intents().chain(on_their_way);
        let unheard = |intent: &&IntentRecord| {
            is_redundant && intent.object == object && !membership.has_been_in_since(device, intent.by.epoch)
        };
        // Of the recorded extents, no more than one answer can carry. The answer ends where the next one begins.
        let mut extents: Vec<BlockRange> = self.missed.of(device, object, from).take(limits::EXTENTS_MAX + 1).collect();
        let end = extents.get(limits::EXTENTS_MAX).map(|extent| extent.start);
        extents.truncate(limits::EXTENTS_MAX);
        let answered = BlockRange::between(from, end.unwrap_or(u64::MAX));
        extents.extend(undecided.filter(unheard).map(|intent| extent_of(intent.by.linkage).intersection(answered)));
        let mut extents = merged(extents);
        let next = extents.get(limits::EXTENTS_MAX).map(|extent| extent.start).or(end);
        extents.truncate(limits::EXTENTS_MAX);
        (extents, next)
    }

    /// See [`Storage::absent`](crate::Storage::absent).
    pub fn absent_of(&self, object: ObjectId, from: u64) -> (Vec<BlockRange>, Option<u64>) {
        some_of(self.absent.of(object, from))
    }

    /// See [`Storage::allocated`](crate::Storage::allocated).
    pub fn allocated(&self, object: ObjectId, range: BlockRange) -> (Vec<BlockRange>, Option<u64>) {
        let Some(record) = self.objects.get(object) else { return (Vec::new(), None) };
        let range = range.intersection(record.description.range());
        let mut chunks = chunks(range).map(|(chunk, _)| chunk).peekable();
        // Neighbouring chunks are joined.
        let runs = std::iter::from_fn(|| {
            let holds = |chunk: &u32| self.chunk(object, *chunk).blocks != 0;
            let first = chunks.find(holds)?;
            let mut end = first + 1;
            while chunks.next_if(|chunk| *chunk == end && holds(chunk)).is_some() {
                end += 1;
            }
            let (first, end) = (u64::from(first) * CHUNK_BLOCKS, u64::from(end) * CHUNK_BLOCKS);
            Some(BlockRange::between(first, end).intersection(range))
        });
        some_of(runs)
    }

    /// See [`Storage::allocation`](crate::Storage::allocation).
    pub fn allocation(&self, object: ObjectId, extents: &[BlockRange]) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        for extent in extents {
            let first = pieces.len();
            let mut push = |start: u64, count: u64, there: bool| {
                let content = if there { Content::Present } else { Content::Hole };
                match pieces[first..].last_mut() {
                    Some(last) if last.content == content => last.range.count += count,
                    _ => pieces.push(Piece { range: BlockRange::new(start, count), content }),
                }
            };
            for (chunk, mask) in chunks(*extent) {
                let there = self.chunk(object, chunk).blocks & mask;
                let start = u64::from(chunk) * CHUNK_BLOCKS;
                if there == 0 || there == mask {
                    let part = BlockRange::new(start, CHUNK_BLOCKS).intersection(*extent);
                    push(part.start, part.count, there != 0);
                    continue;
                }
                for at in (0..CHUNK_BLOCKS).filter(|at| mask >> at & 1 == 1) {
                    push(start + at, 1, there >> at & 1 == 1);
                }
            }
        }
        pieces
    }
}

/// As many extents as one answer may carry, and the block from which to ask next.
fn some_of(mut extents: impl Iterator<Item = BlockRange>) -> (Vec<BlockRange>, Option<u64>) {
    let some = extents.by_ref().take(limits::EXTENTS_MAX).collect();
    (some, extents.next().map(|extent| extent.start))
}
