//! The extents and the size of an inode, as far as they are known. They are valid while the host holds the inode's data lock.
//!
//! Extents come in pages from the metadata server, and from the host's own changes. A page may be older than a change that was answered
//! meanwhile, so a page tells nothing about blocks that are known already.

use braid_base::{BLOCK_BYTES, BlockRange, Extents, limits};
use braid_wire::FileExtent;
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default)]
pub struct BlockMap {
    /// By the first block in the file: the blocks of the volume.
    extents: BTreeMap<u64, BlockRange>,
    /// Blocks of the file of which it is known where they are. Those in no extent are holes.
    known: Extents,
    size: Option<u64>,
}

/// A run of blocks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Blocks of the file.
    pub at: BlockRange,
    /// The first block of the volume; none for a hole.
    pub place: Option<u64>,
}

impl Segment {
    /// The segment in pieces that one transaction reads or writes.
    pub fn pieces(self) -> impl Iterator<Item = Segment> {
        let most = (limits::TRANSACTION_BYTES_MAX / BLOCK_BYTES) as u64;
        let starts = (self.at.start..self.at.end()).step_by(most as usize);
        starts.map(move |start| Segment {
            at: BlockRange::new(start, most.min(self.at.end() - start)),
            place: self.place.map(|place| place + (start - self.at.start)),
        })
    }
}

impl BlockMap {
    /// The size in bytes, if it is known.
    pub fn size(&self) -> Option<u64> {
        self.size
    }

    /// A server may name any size.
    pub fn set_size(&mut self, size: u64) {
        self.size = Some(size.min(limits::FILE_BYTES_MAX));
    }

    pub fn len(&self) -> usize {
        self.extents.len()
    }

    /// Where the blocks of a range are, in order. Fails with the first block of which that is not known.
    pub fn find(&self, range: BlockRange) -> Result<Vec<Segment>, u64> {
        let known_to = self.known_to(range);
        if known_to < range.end() {
            return Err(known_to);
        }
        let mut segments = Vec::new();
        let mut reached = range.start;
        for (at, blocks) in self.overlapping(range) {
            let part = at.intersection(range);
            if reached < part.start {
                segments.push(Segment { at: BlockRange::between(reached, part.start), place: None });
            }
            segments.push(Segment { at: part, place: Some(blocks.start + (part.start - at.start)) });
            reached = part.end();
        }
        if reached < range.end() {
            segments.push(Segment { at: BlockRange::between(reached, range.end()), place: None });
        }
        Ok(segments)
    }

    /// The first blocks of a range that are in no hole, up to the next one, and the block up to which that is known. Fails with the first
    /// block if not even that one is known.
    pub fn next_run(&self, range: BlockRange) -> Result<(Option<BlockRange>, u64), u64> {
        let known_to = self.known_to(range);
        if known_to == range.start {
            return Err(known_to);
        }
        let known = BlockRange::between(range.start, known_to);
        let mut run: Option<BlockRange> = None;
        for part in self.overlapping(known).map(|(at, _)| at.intersection(known)) {
            match &mut run {
                None => run = Some(part),
                Some(run) if run.end() == part.start => run.count += part.count,
                Some(_) => break,
            }
        }
        Ok((run, known_to))
    }

    /// The end of the known blocks at the beginning of a range.
    fn known_to(&self, range: BlockRange) -> u64 {
        let known = self.known.from(range.start).next().filter(|known| known.start == range.start);
        known.map_or(range.start, BlockRange::end).min(range.end())
    }

    /// Takes in a page: the extents from a block on. Returns false if it makes no sense.
    pub fn take_page(&mut self, from: u64, extents: &[FileExtent], more: bool, size: u64) -> bool {
        let mut end = 0;
        for extent in extents {
            let behind = extent.at.checked_add(extent.blocks.count);
            let is_sound = extent.blocks.count > 0 && extent.blocks.start.checked_add(extent.blocks.count).is_some();
            let Some(behind) = behind.filter(|_| is_sound && extent.at >= end) else { return false };
            end = behind;
        }
        let end = if more { end } else { u64::MAX };
        if end <= from || size > limits::FILE_BYTES_MAX {
            return false;
        }
        self.size.get_or_insert(size);
        for unknown in self.unknown(BlockRange::between(from, end)) {
            for extent in extents {
                let part = BlockRange::new(extent.at, extent.blocks.count).intersection(unknown);
                if !part.is_empty() {
                    let start = extent.blocks.start + (part.start - extent.at);
                    self.insert(part.start, BlockRange::new(start, part.count));
                }
            }
        }
        self.known.insert(BlockRange::between(from, end));
        true
    }

    /// These blocks of the file are in these blocks of the volume now.
    pub fn set(&mut self, extent: FileExtent) {
        let range = BlockRange::new(extent.at, extent.blocks.count);
        self.remove(range);
        self.insert(extent.at, extent.blocks);
        self.known.insert(range);
    }

    /// The file has no extents from this block on.
    pub fn cut(&mut self, from: u64) {
        let range = BlockRange::between(from, u64::MAX);
        self.remove(range);
        self.known.insert(range);
    }

    pub fn clear(&mut self) {
        *self = BlockMap::default();
    }

    /// Forgets the extents, but not the size.
    pub fn clear_extents(&mut self) {
        *self = BlockMap { size: self.size, ..BlockMap::default() };
    }

    fn overlapping(&self, range: BlockRange) -> impl Iterator<Item = (BlockRange, BlockRange)> + '_ {
        let before = self.extents.range(..range.start).next_back();
        let rest = self.extents.range(range.start..range.end());
        let all = before.into_iter().chain(rest).map(|(at, blocks)| (BlockRange::new(*at, blocks.count), *blocks));
        all.filter(move |(at, _)| at.overlaps(range))
    }

    fn unknown(&self, range: BlockRange) -> Vec<BlockRange> {
        let mut unknown = Extents::default();
        unknown.insert(range);
        for known in self.known.from(range.start).take_while(|known| known.start < range.end()) {
            unknown.remove(known);
        }
        unknown.from(0).collect()
    }

    /// Adds an extent, joined with its neighbours where both continue.
    fn insert(&mut self, mut at: u64, mut blocks: BlockRange) {
        if let Some((before, run)) = self.extents.range(..at).next_back().map(|(before, run)| (*before, *run))
            && before + run.count == at
            && run.end() == blocks.start
        {
            (at, blocks) = (before, BlockRange::new(run.start, run.count + blocks.count));
        }
        if let Some(run) = self.extents.get(&(at + blocks.count)).copied()
            && run.start == blocks.end()
        {
            self.extents.remove(&(at + blocks.count));
            blocks.count += run.count;
        }
        self.extents.insert(at, blocks);
    }

    fn remove(&mut self, range: BlockRange) {
        let touched: Vec<_> = self.overlapping(range).collect();
        for (at, blocks) in touched {
            self.extents.remove(&at.start);
            if at.start < range.start {
                self.extents.insert(at.start, BlockRange::new(blocks.start, range.start - at.start));
            }
            if at.end() > range.end() {
                let cut = range.end() - at.start;
                self.extents.insert(range.end(), BlockRange::new(blocks.start + cut, blocks.count - cut));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::Rng;

    fn extent(at: u64, start: u64, count: u64) -> FileExtent {
        FileExtent { at, blocks: BlockRange::new(start, count) }
    }

    #[test]
    fn a_page_tells_nothing_about_what_is_known() {
        let mut map = BlockMap::default();
        map.set(extent(4, 100, 2));
        assert!(map.take_page(0, &[extent(2, 50, 3)], false, 4096 * 5));
        let at = |segment: &Segment| (segment.at.start, segment.at.count, segment.place);
        let found: Vec<_> = map.find(BlockRange::new(0, 8)).expect("all is known").iter().map(at).collect();
        assert_eq!(found, [(0, 2, None), (2, 2, Some(50)), (4, 2, Some(100)), (6, 2, None)]);
    }

    #[test]
    fn pages_that_make_no_sense_are_refused() {
        let pages: [&[FileExtent]; 5] = [
            &[],
            &[extent(3, 1, 0)],
            &[extent(5, 1, 2), extent(6, 9, 1)],
            &[extent(u64::MAX, 1, 2)],
            &[extent(0, u64::MAX, 2)],
        ];
        for page in pages {
            assert!(!BlockMap::default().take_page(0, page, true, 0), "{page:?}");
        }
        assert!(!BlockMap::default().take_page(9, &[extent(3, 1, 2)], true, 0), "it does not advance");
        assert!(!BlockMap::default().take_page(0, &[], false, u64::MAX), "no file is so long");
        let mut map = BlockMap::default();
        map.set_size(u64::MAX);
        assert_eq!(map.size(), Some(limits::FILE_BYTES_MAX));
    }

    /// Compares with a plain list of blocks.
    #[test]
    fn finds_what_a_plain_list_finds() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let (mut map, mut plain) = (BlockMap::default(), vec![None; 64]);
            let server: Vec<Option<u64>> = (0..64).map(|at| rng.chance(1, 2).then_some(1000 + at)).collect();
            for _ in 0..60 {
                let (at, count) = (rng.below(60), rng.between(1, 4));
                match rng.below(4) {
                    0 => {
                        let start = rng.between(2000, 3000);
                        map.set(extent(at, start, count));
                        (0..count).for_each(|n| plain[(at + n) as usize] = Some(Some(start + n)));
                    }
                    1 if rng.chance(1, 8) => {
                        map.cut(at);
                        plain[at as usize..].fill(Some(None));
                    }
                    2 => {
                        let page: Vec<_> = (at..64).filter_map(|n| Some(extent(n, server[n as usize]?, 1))).collect();
                        let page = &page[..page.len().min(6)];
                        let more = page.len() == 6;
                        if map.take_page(at, page, more, 0) {
                            let end = if more { page[5].end() } else { 64 };
                            (at..end).for_each(|n| {
                                plain[n as usize].get_or_insert(server[n as usize]);
                            });
                        }
                    }
                    _ => {}
                }
                match map.find(BlockRange::new(at, count)) {
                    Err(block) => assert_eq!(plain[block as usize], None, "seed {seed}"),
                    Ok(segments) => {
                        let places = segments.iter().flat_map(|segment| {
                            (0..segment.at.count).map(move |n| segment.place.map(|place| place + n))
                        });
                        let wanted: Vec<_> = (0..count).map(|n| plain[(at + n) as usize].expect("known")).collect();
                        assert_eq!(places.collect::<Vec<_>>(), wanted, "seed {seed}");
                    }
                }
            }
        }
    }
}
