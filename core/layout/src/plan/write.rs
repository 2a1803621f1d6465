//! The plan of a hostwrite.

use super::band::{Band, Method, Methods, Touched};
use super::old::{Old, clip};
use super::parity::{Source, push_old, xor};
use super::{Share, Shares, Span};
use crate::{Layout, Place};
use braid_base::{AlignedBuffer, BLOCK_BYTES, BlockRange};
use braid_wire::{Content, Piece};
use bytes::Bytes;

/// What to read before some bytes of a volume are written, what to write where, and how it is worked out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WritePlan {
    layout: Layout,
    span: Span,
    shares: Vec<Share>,
    methods: Methods,
}

/// What a hostwrite brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum New {
    /// These bytes, as many as the plan is for.
    Data(Bytes),
    /// Zeros; whole blocks of them become holes.
    Zeros,
}

/// New content of some rows of a data unit.
struct NewPiece {
    unit: usize,
    piece: Piece,
}

impl WritePlan {
    /// A write of `length` bytes at `offset`. The range must be within the volume.
    pub fn new(layout: &Layout, offset: u64, length: u64) -> WritePlan {
        let span = Span::new(offset, length);
        let mut shares = Shares::default();
        let mut methods = Methods::default();
        for touched in Touched::stripes(layout, span.blocks()) {
            for unit in touched.units() {
                let rows = touched.rows(unit);
                shares.prewrite(at_row(layout.data_unit(touched.stripe, unit), rows.start), rows.count);
            }
            for band in touched.bands() {
                methods.count(plan_band(layout, span, &touched, &band, &mut shares));
            }
        }
        WritePlan { layout: *layout, span, shares: shares.0, methods }
    }

    /// What each device does. One that only reads has no pre-writes.
    pub fn shares(&self) -> &[Share] {
        &self.shares
    }

    /// The volume's blocks that it touches.
    pub fn blocks(&self) -> BlockRange {
        self.span.blocks()
    }

    /// How many bands of its stripes take which method.
    pub fn methods(&self) -> Methods {
        self.methods
    }

    /// What each device that writes is to write: data and redundancy, ascending by position, covering exactly its
    /// pre-writes. The user's bytes are shared, not copied, but for blocks written in part.
    pub fn compute(&self, new: &New, old: &Old) -> Vec<(usize, Vec<Piece>)> {
        if let New::Data(data) = new {
            assert_eq!(data.len() as u64, self.span.length, "the bytes are those that the plan is for");
        }
        let writing = self.shares.iter().filter(|share| !share.prewrites.is_empty());
        let mut pieces: Vec<(usize, Vec<Piece>)> = writing.map(|share| (share.position, Vec::new())).collect();
        let mut push = |unit: Place, mut piece: Piece| {
            piece.range.start += unit.block;
            let index = pieces.binary_search_by_key(&unit.position, |(position, _)| *position);
            pieces[index.expect("what is computed was pre-written")].1.push(piece);
        };
        let mut edges: Vec<(u64, Content)> = Vec::new();
        edges.extend(self.span.edges().map(|block| (block, self.patched(block, new, old))));
        let mut updates: Vec<NewPiece> = Vec::new();
        for touched in Touched::stripes(&self.layout, self.span.blocks()) {
            updates.clear();
            for unit in touched.units() {
                self.push_updates(&mut updates, &touched, unit, new, &edges);
            }
            for update in &updates {
                push(self.layout.data_unit(touched.stripe, update.unit), update.piece.clone());
            }
            if self.layout.redundancy_units() == 0 {
                continue;
            }
            for band in touched.bands() {
                let parity = self.parity(&touched, &band, &updates, old);
                for unit in 0..self.layout.redundancy_units() {
                    let place = self.layout.redundancy_unit(touched.stripe, unit);
                    parity.iter().for_each(|piece| push(place, piece.clone()));
                }
            }
        }
        pieces
    }

    /// The new parity of a band. (Of RAID 1, whose bands are all full, the copies.)
    fn parity(&self, touched: &Touched, band: &Band, updates: &[NewPiece], old: &Old) -> Vec<Piece> {
        let mut sources: Vec<Source> = Vec::new();
        for NewPiece { piece, .. } in updates.iter().filter(|update| update.piece.range.overlaps(band.rows)) {
            let Piece { range, content } = clip(piece, band.rows);
            if let Content::Data(data) = content {
                sources.push((range, data));
            }
        }
        let stripe = touched.stripe;
        match band_method(&self.layout, self.span, touched, band) {
            Method::Full => {}
            Method::Large => {
                for unit in (0..self.layout.data_units()).filter(|unit| !band.units.contains(unit)) {
                    push_old(&mut sources, old, self.layout.data_unit(stripe, unit), band.rows);
                }
            }
            Method::Small => {
                for unit in band.units.clone() {
                    push_old(&mut sources, old, self.layout.data_unit(stripe, unit), band.rows);
                }
                push_old(&mut sources, old, self.layout.redundancy_unit(stripe, 0), band.rows);
            }
        }
        xor(band.rows, sources)
    }

    /// Adds the new content of a data unit's touched rows.
    fn push_updates(
        &self,
        updates: &mut Vec<NewPiece>,
        touched: &Touched,
        unit: usize,
        new: &New,
        edges: &[(u64, Content)],
    ) {
        let rows = touched.rows(unit);
        let first_block = unit_block(&self.layout, touched.stripe, unit);
        let mut push = |blocks: BlockRange, content: Content| {
            let range = BlockRange::new(blocks.start - first_block, blocks.count);
            updates.push(NewPiece { unit, piece: Piece { range, content } });
        };
        let mut whole = BlockRange::new(first_block + rows.start, rows.count);
        let edge = |block: u64| edges.iter().find(|(at, _)| *at == block).map(|(_, content)| content.clone());
        // Only the first and the last block of the whole write can be edges: at this run's ends, if here at all.
        if let Some(content) = edge(whole.start) {
            push(BlockRange::new(whole.start, 1), content);
            whole = BlockRange::between(whole.start + 1, whole.end());
        }
        let last = whole.blocks().next_back().and_then(|block| Some((block, edge(block)?)));
        if let Some((block, _)) = last {
            whole = BlockRange::between(whole.start, block);
        }
        if !whole.is_empty() {
            push(whole, self.new_content(whole, new));
        }
        if let Some((block, content)) = last {
            push(BlockRange::new(block, 1), content);
        }
    }

    /// The new content of blocks of the volume that are written whole.
    fn new_content(&self, blocks: BlockRange, new: &New) -> Content {
        match new {
            New::Zeros => Content::Hole,
            New::Data(data) => {
                let start = (blocks.start * BLOCK_BYTES as u64 - self.span.offset) as usize;
                Content::Data(data.slice(start..start + blocks.count as usize * BLOCK_BYTES))
            }
        }
    }

    /// The new content of a block of the volume that is written in part.
    fn patched(&self, block: u64, new: &New, old: &Old) -> Content {
        let before = old.content(self.layout.locate(block), 1).next().expect("one block is one piece").content;
        let mut buffer = AlignedBuffer::recycled(BLOCK_BYTES);
        match (before, new) {
            (Content::Hole, New::Zeros) => return Content::Hole,
            (Content::Data(data), _) => buffer.copy_from_slice(&data),
            _ => buffer.fill(0),
        }
        let start = block * BLOCK_BYTES as u64;
        let from = self.span.offset.max(start);
        let to = self.span.end().min(start + BLOCK_BYTES as u64);
        let patch = &mut buffer[(from - start) as usize..(to - start) as usize];
        match new {
            New::Zeros => patch.fill(0),
            New::Data(data) => {
                patch.copy_from_slice(&data[(from - self.span.offset) as usize..(to - self.span.offset) as usize]);
            }
        }
        Content::Data(buffer.freeze())
    }
}

/// Adds a band's reads, and the pre-writes of its redundancy. Returns its method.
fn plan_band(layout: &Layout, span: Span, touched: &Touched, band: &Band, shares: &mut Shares) -> Method {
    let (stripe, rows) = (touched.stripe, band.rows);
    let method = band_method(layout, span, touched, band);
    for unit in 0..layout.data_units() {
        let place = layout.data_unit(stripe, unit);
        match (method, band.units.contains(&unit)) {
            (Method::Small, true) | (Method::Large, false) => shares.read(at_row(place, rows.start), rows.count),
            (Method::Full | Method::Large, true) => {
                for row in edge_rows(layout, span, stripe, unit, rows) {
                    shares.read(at_row(place, row), 1);
                }
            }
            (Method::Small | Method::Full, false) => {}
        }
    }
    for unit in 0..layout.redundancy_units() {
        let place = at_row(layout.redundancy_unit(stripe, unit), rows.start);
        if method == Method::Small {
            shares.read(place, rows.count);
        }
        shares.prewrite(place, rows.count);
    }
    method
}

fn band_method(layout: &Layout, span: Span, touched: &Touched, band: &Band) -> Method {
    let edges = |unit| edge_rows(layout, span, touched.stripe, unit, band.rows).count() as u64;
    band.method(layout, band.units.clone().map(edges).sum())
}

/// The rows, of these rows of a data unit, whose block is written only in part.
fn edge_rows(layout: &Layout, span: Span, stripe: u64, unit: usize, rows: BlockRange) -> impl Iterator<Item = u64> {
    let first = unit_block(layout, stripe, unit);
    let blocks = BlockRange::new(first + rows.start, rows.count);
    span.edges().filter(move |edge| blocks.blocks().contains(edge)).map(move |edge| edge - first)
}

/// The volume's first block in a data unit.
fn unit_block(layout: &Layout, stripe: u64, unit: usize) -> u64 {
    stripe * layout.stripe_blocks() + unit as u64 * layout.unit_blocks()
}

fn at_row(unit: Place, row: u64) -> Place {
    Place { block: unit.block + row, ..unit }
}
