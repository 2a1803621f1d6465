//! The chunk map: the slot of each chunk of each object, and which of the chunk's blocks have content. An entry is eight bytes for 64 KiB.
//! The whole map is in memory; on the disk it is stored in pages, two copies of each.
//!
//! A checkpoint writes the pages as they were when it began ([`ChunkMap::freeze`]), because only earlier decisions are certain to be in the
//! journal. A page that changes meanwhile is copied first.
//!
//! The copies are written one after the other, with a sync between. So whichever copy is damaged (torn or corrupt), the other one is at least
//! as new as the last checkpoint. If the copies were written in turn, corruption in the newer one would bring back the older one undetected.

use crate::superblock::PAGE;
use braid_base::AlignedBuffer;
use braid_base::checksum::crc32c;
use bytes::{Buf, BufMut};
use std::collections::{BTreeMap, BTreeSet};

const MAGIC: u32 = u32::from_le_bytes(*b"BrMp");
const HEADER: usize = 32;
/// Entries of a page, one for each chunk.
pub(crate) const ENTRIES_PER_PAGE: usize = (PAGE - HEADER) / 8;

/// The entry of a chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The slot, if the chunk has one.
    pub slot: Option<u32>,
    /// The mask of the chunk's blocks that have content.
    pub blocks: u16,
}

impl Entry {
    fn unpack(packed: u64) -> Entry {
        Entry { slot: (packed as u32).checked_sub(1), blocks: (packed >> 32) as u16 }
    }

    fn pack(self) -> u64 {
        let slot = self.slot.map_or(0, |slot| slot + 1);
        u64::from(slot) | u64::from(self.blocks) << 32
    }
}

/// The map in memory. Entries are packed into numbers that are zero at first, so that those never touched cost no memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChunkMap {
    entries: Vec<u64>,
    mapped: u32,
    dirty: BTreeSet<u32>,
    /// Pages that the checkpoint under way has yet to write; with their old content if they have changed since.
    frozen: BTreeMap<u32, Option<Box<[u64]>>>,
}

impl ChunkMap {
    /// A map of so many pages. No chunk has a slot.
    pub fn new(pages: u32) -> ChunkMap {
        ChunkMap { entries: vec![0; pages as usize * ENTRIES_PER_PAGE], ..ChunkMap::default() }
    }

    pub fn get(&self, index: usize) -> Entry {
        Entry::unpack(self.entries[index])
    }

    pub fn set(&mut self, index: usize, entry: Entry) {
        let (old, new) = (self.entries[index], entry.pack());
        if old == new {
            return;
        }
        self.touch((index / ENTRIES_PER_PAGE) as u32);
        self.mapped -= u32::from(Entry::unpack(old).slot.is_some());
        self.mapped += u32::from(entry.slot.is_some());
        self.entries[index] = new;
    }

    /// Marks a page to be written by the next checkpoint. If a checkpoint is under way, the page's content is kept for it.
    pub fn touch(&mut self, page: u32) {
        if let Some(kept @ None) = self.frozen.get_mut(&page) {
            *kept = Some(self.entries[span(page)].into());
        }
        self.dirty.insert(page);
    }

    /// The number of chunks that have a slot.
    pub fn mapped(&self) -> u32 {
        self.mapped
    }

    /// Hands the changed pages to a checkpoint. Later changes are not part of it.
    pub fn freeze(&mut self) {
        assert!(self.frozen.is_empty(), "one checkpoint at a time");
        self.frozen = std::mem::take(&mut self.dirty).into_iter().map(|page| (page, None)).collect();
    }

    /// Ends the checkpoint: all frozen pages are written.
    pub fn thaw(&mut self) {
        self.frozen.clear();
    }

    /// The next run of neighbouring frozen pages from `from` on, at most `max` of them: the first page, and how many.
    pub fn frozen_run(&self, from: u32, max: u32) -> Option<(u32, u32)> {
        let mut pages = self.frozen.range(from..).map(|(page, _)| *page);
        let first = pages.next()?;
        let more = pages.zip(first + 1..).take(max as usize - 1).take_while(|(page, next)| page == next).count();
        Some((first, 1 + more as u32))
    }

    /// The frozen pages `first` to `first + count`, encoded for the disk.
    pub fn encode(&self, first: u32, count: u32, checkpoint: u64) -> AlignedBuffer {
        let mut buffer = AlignedBuffer::zeroed(count as usize * PAGE);
        for (page, bytes) in (first..).zip(buffer.chunks_exact_mut(PAGE)) {
            match self.frozen.get(&page) {
                Some(Some(kept)) => encode_page(bytes, page, checkpoint, kept),
                _ => encode_page(bytes, page, checkpoint, &self.entries[span(page)]),
            }
        }
        buffer
    }

    /// Replaces a page by what was read from the disk.
    pub fn load(&mut self, page: &Page) {
        let entries = &mut self.entries[span(page.number)];
        self.mapped -= mapped_in(entries);
        entries.copy_from_slice(&page.entries);
        self.mapped += mapped_in(entries);
    }
}

/// A page as read from the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    pub number: u32,
    /// The checkpoint that wrote it.
    pub checkpoint: u64,
    entries: Vec<u64>,
}

impl Page {
    /// Decodes page `number`, whose entries may name slots below `slots`. Returns `None` if it is damaged.
    pub fn decode(bytes: &[u8], number: u32, slots: u32) -> Option<Page> {
        let mut from = bytes;
        let whole = from.get_u32_le() == MAGIC && from.get_u32_le() == crc32c(&bytes[8..]);
        if !whole || from.get_u64_le() != u64::from(number) {
            return None;
        }
        let checkpoint = from.get_u64_le();
        from.advance(8);
        let entries: Vec<u64> = (0..ENTRIES_PER_PAGE).map(|_| from.get_u64_le()).collect();
        let known = entries.iter().all(|entry| Entry::unpack(*entry).slot.is_none_or(|slot| slot < slots));
        known.then_some(Page { number, checkpoint, entries })
    }
}

fn encode_page(mut to: &mut [u8], page: u32, checkpoint: u64, entries: &[u64]) {
    let (checksum, rest) = to.split_at_mut(8);
    let mut fields = &mut rest[..];
    fields.put_u64_le(u64::from(page));
    fields.put_u64_le(checkpoint);
    fields.put_u64_le(0);
    for entry in entries {
        fields.put_u64_le(*entry);
    }
    to = checksum;
    to.put_u32_le(MAGIC);
    to.put_u32_le(crc32c(rest));
}

fn span(page: u32) -> std::ops::Range<usize> {
    let start = page as usize * ENTRIES_PER_PAGE;
    start..start + ENTRIES_PER_PAGE
}

fn mapped_in(entries: &[u64]) -> u32 {
    entries.iter().filter(|entry| Entry::unpack(**entry).slot.is_some()).count() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_sees_pages_as_they_were_when_it_began() {
        let mut map = ChunkMap::new(2);
        let before = Entry { slot: Some(4), blocks: 0x00f0 };
        map.set(3, before);
        map.freeze();
        map.set(3, Entry { slot: Some(5), blocks: 1 });
        map.set(ENTRIES_PER_PAGE, before);
        assert_eq!(map.frozen_run(0, 9), Some((0, 1)));
        let page = Page::decode(&map.encode(0, 1, 7), 0, 100).expect("it is whole");
        assert_eq!(page.checkpoint, 7);
        assert_eq!(Entry::unpack(page.entries[3]), before);
        map.thaw();
        map.freeze();
        assert_eq!(map.frozen_run(0, 9), Some((0, 2)), "later changes belong to the next checkpoint");
        assert_eq!(map.mapped(), 2);
    }

    #[test]
    fn a_damaged_or_foreign_page_is_none() {
        let mut map = ChunkMap::new(1);
        map.set(0, Entry { slot: Some(99), blocks: 1 });
        map.freeze();
        let mut bytes = map.encode(0, 1, 7);
        assert!(Page::decode(&bytes, 0, 100).is_some());
        assert!(Page::decode(&bytes, 1, 100).is_none(), "it is another page");
        assert!(Page::decode(&bytes, 0, 99).is_none(), "a slot that does not exist");
        bytes[4000] ^= 4;
        assert!(Page::decode(&bytes, 0, 100).is_none());
    }
}
