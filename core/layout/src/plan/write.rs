//! The plan of a hostwrite.

use super::band::{Band, Method, Methods, Touched};
use super::old::Old;
use super::parity::{Source, push_old, xor};
use super::stripe::{Pieces, Stripe, at_row};
use super::{Share, Shares, Span};
use crate::{Absence, Layout, Unavailable};
use braid_base::{AlignedBuffer, BLOCK_BYTES, BlockRange};
use braid_blocks::{Content, Piece, Want};
use bytes::Bytes;
use std::ops::Range;

/// What to read before a range of a volume is written, what to write, and how it is computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WritePlan {
    pub(super) layout: Layout,
    pub(super) absence: Absence,
    pub(super) span: Span,
    shares: Vec<Share>,
    methods: Methods,
}

/// The new content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum New {
    /// Bytes, as many as the plan is for.
    Data(Bytes),
    /// Zeros. Whole blocks become holes.
    Zeros,
    /// Data and holes, in whole blocks of the volume, that cover the range of the plan in order.
    Pieces(Vec<Piece>),
}

/// Rows of a stripe in which a write updates the same data units, so that one method applies to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedBand {
    pub stripe: u64,
    /// The rows of the stripe.
    pub rows: BlockRange,
    /// The data units that are updated.
    pub units: Range<usize>,
    pub method: Method,
}

/// New content of some rows of a data unit.
pub(super) struct NewPiece {
    pub unit: usize,
    pub piece: Piece,
}

impl WritePlan {
    /// A write of `length` bytes at `offset`. The range must be within the volume.
    ///
    /// A stripe with more unavailable units than redundancy units is not written, even if the write concerns other rows or units:
    /// otherwise the unavailable content could not be reconstructed any more. In RAID 0 only the units that are written matter.
    pub fn new(layout: &Layout, absence: &Absence, offset: u64, length: u64) -> Result<WritePlan, Unavailable> {
        let span = Span::new(offset, length);
        let mut shares = Shares::default();
        let mut methods = Methods::default();
        for touched in Touched::stripes(layout, span.blocks()) {
            let stripe = Stripe { layout, absence, number: touched.stripe };
            if !absence.is_none() {
                check_available(&stripe, span, &touched)?;
            }
            for unit in touched.units() {
                let (rows, place) = (touched.rows(unit), layout.data_unit(stripe.number, unit));
                if !absence.is_lost(place.position) {
                    shares.prewrite(at_row(place, rows.start), rows.count);
                }
            }
            for band in touched.bands() {
                methods.count(plan_band(&stripe, span, &band, &mut shares)?);
            }
        }
        Ok(WritePlan { layout: *layout, absence: absence.clone(), span, shares: shares.0, methods })
    }

    /// The work of each device. A device that only reads has no pre-writes.
    pub fn shares(&self) -> &[Share] {
        &self.shares
    }

    /// The volume's blocks that the write touches.
    pub fn blocks(&self) -> BlockRange {
        self.span.blocks()
    }

    /// How many bands use each method.
    pub fn methods(&self) -> Methods {
        self.methods
    }

    /// The bands, ascending by stripe and row.
    pub fn bands(&self) -> impl Iterator<Item = PlannedBand> + '_ {
        Touched::stripes(&self.layout, self.span.blocks()).flat_map(move |touched| {
            let stripe = Stripe { layout: &self.layout, absence: &self.absence, number: touched.stripe };
            touched.bands().map(move |band| {
                let method = band_method(&stripe, self.span, &band);
                PlannedBand { stripe: touched.stripe, rows: band.rows, units: band.units, method }
            })
        })
    }

    /// The pieces that each device writes, data and redundancy, ascending by position, and covering exactly its pre-writes. The user's
    /// bytes are shared, not copied, except in blocks that are written in part.
    pub fn compute(&self, new: &New, old: &Old) -> Vec<(usize, Vec<Piece>)> {
        if let New::Data(data) = new {
            assert_eq!(data.len() as u64, self.span.length, "a plan is given as many bytes as it was made for");
        }
        let mut pieces = Pieces::of(&self.shares);
        let mut edges: Vec<(u64, Content)> = Vec::new();
        edges.extend(self.span.edges().map(|block| (block, self.patched(block, new, old))));
        let mut updates: Vec<NewPiece> = Vec::new();
        for touched in Touched::stripes(&self.layout, self.span.blocks()) {
            let stripe = Stripe { layout: &self.layout, absence: &self.absence, number: touched.stripe };
            updates.clear();
            for unit in touched.units() {
                self.push_updates(&mut updates, &touched, unit, new, &edges);
            }
            for update in &updates {
                let place = stripe.place(update.unit);
                if !self.absence.is_lost(place.position) {
                    pieces.push(place, update.piece.clone());
                }
            }
            if stripe.redundancy().all(|unit| stripe.is_lost(unit)) {
                continue;
            }
            for band in touched.bands() {
                let parity = self.parity(&stripe, &band, &updates, old);
                for place in stripe.redundancy().map(|unit| stripe.place(unit)) {
                    if !self.absence.is_lost(place.position) {
                        parity.iter().for_each(|piece| pieces.push(place, piece.clone()));
                    }
                }
            }
        }
        pieces.done()
    }

    /// The new content of the volume's blocks that the write touches, as pieces that cover them in order.
    pub fn content(&self, new: &New, old: &Old) -> Vec<Piece> {
        let mut whole = self.blocks();
        let mut pieces: Vec<Piece> = Vec::new();
        let mut last = None;
        for block in self.span.edges() {
            let piece = Piece { range: BlockRange::new(block, 1), content: self.patched(block, new, old) };
            if block == whole.start {
                whole = BlockRange::between(block + 1, whole.end());
                pieces.push(piece);
            } else {
                whole.count -= 1;
                last = Some(piece);
            }
        }
        self.push_whole(whole, new, |range, content| pieces.push(Piece { range, content }));
        pieces.extend(last);
        pieces
    }

    /// The new parity of a band. (In RAID 1 all bands are full, and this is the copy.)
    pub(super) fn parity(&self, stripe: &Stripe, band: &Band, updates: &[NewPiece], old: &Old) -> Vec<Piece> {
        let mut sources: Vec<Source> = Vec::new();
        for NewPiece { piece, .. } in updates.iter().filter(|update| update.piece.range.overlaps(band.rows)) {
            let Piece { range, content } = piece.clip(band.rows);
            if let Content::Data(data) = content {
                sources.push((range, data));
            }
        }
        match band_method(stripe, self.span, band) {
            Method::Full => {}
            Method::Large => {
                for unit in stripe.data().filter(|unit| !band.units.contains(unit)) {
                    push_old(&mut sources, old, stripe.place(unit), band.rows);
                }
            }
            Method::Small => {
                for unit in band.units.clone() {
                    push_old(&mut sources, old, stripe.place(unit), band.rows);
                }
                push_old(&mut sources, old, stripe.place(stripe.redundancy().start), band.rows);
            }
        }
        xor(band.rows, sources)
    }

    /// Adds the new content of the rows of a data unit that the write touches.
    pub(super) fn push_updates(
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
        // Only the first and the last block of the whole write can be edges: at the ends of this run, if in it at all.
        if let Some(content) = edge(whole.start) {
            push(BlockRange::new(whole.start, 1), content);
            whole = BlockRange::between(whole.start + 1, whole.end());
        }
        let last = whole.blocks().next_back().and_then(|block| Some((block, edge(block)?)));
        if let Some((block, _)) = last {
            whole = BlockRange::between(whole.start, block);
        }
        self.push_whole(whole, new, &mut push);
        if let Some((block, content)) = last {
            push(BlockRange::new(block, 1), content);
        }
    }

    /// Adds the new content of blocks of the volume that are written as a whole.
    fn push_whole(&self, blocks: BlockRange, new: &New, mut push: impl FnMut(BlockRange, Content)) {
        if blocks.is_empty() {
            return;
        }
        match new {
            New::Zeros => push(blocks, Content::Hole),
            New::Data(data) => {
                let start = (blocks.start * BLOCK_BYTES as u64 - self.span.offset) as usize;
                push(blocks, Content::Data(data.slice(start..start + blocks.count as usize * BLOCK_BYTES)));
            }
            New::Pieces(pieces) => {
                let first = pieces.partition_point(|piece| piece.range.end() <= blocks.start);
                for piece in pieces[first..].iter().take_while(|piece| piece.range.start < blocks.end()) {
                    let Piece { range, content } = piece.clip(blocks);
                    push(range, content);
                }
            }
        }
    }

    /// The old content of a block of the volume that is written in part.
    fn before(&self, block: u64, old: &Old) -> Content {
        let place = self.layout.locate(block);
        let piece = if self.absence.is_unreadable(place.position) {
            let (stripe, unit, row) = Stripe::of(&self.layout, &self.absence, block);
            stripe.worked_out(unit, BlockRange::new(row, 1), old, Want::Data).into_iter().next()
        } else {
            old.content(place, 1).next()
        };
        piece.expect("one block is one piece").content
    }

    /// The new content of a block of the volume that is written in part.
    fn patched(&self, block: u64, new: &New, old: &Old) -> Content {
        let before = self.before(block, old);
        let mut buffer = AlignedBuffer::with_capacity(BLOCK_BYTES);
        match (before, new) {
            (Content::Hole, New::Zeros) => return Content::Hole,
            (Content::Data(data), _) => buffer.append(&data),
            _ => _ = buffer.append_zeros(BLOCK_BYTES),
        }
        let start = block * BLOCK_BYTES as u64;
        let from = self.span.offset.max(start);
        let to = self.span.end().min(start + BLOCK_BYTES as u64);
        let patch = &mut buffer[(from - start) as usize..(to - start) as usize];
        match new {
            New::Zeros => patch.fill(0),
            New::Pieces(_) => unreachable!("pieces are of whole blocks"),
            New::Data(data) => {
                patch.copy_from_slice(&data[(from - self.span.offset) as usize..(to - self.span.offset) as usize]);
            }
        }
        Content::Data(buffer.freeze())
    }
}

/// Whether enough of a stripe is available to write it.
#[cold]
fn check_available(stripe: &Stripe, span: Span, touched: &Touched) -> Result<(), Unavailable> {
    let positions = if stripe.redundancy().is_empty() {
        // A whole block of a stale unit can be written without reading.
        let partly = |unit| edge_rows(stripe, span, unit, touched.rows(unit)).next().is_some();
        let missing = |unit: &usize| stripe.is_lost(*unit) || (!stripe.is_readable(*unit) && partly(*unit));
        stripe.positions(touched.units().filter(missing))
    } else {
        let unavailable = stripe.unavailable();
        if unavailable.len() > stripe.redundancy().len() { unavailable } else { Vec::new() }
    };
    if positions.is_empty() { Ok(()) } else { Err(Unavailable { positions }) }
}

/// Adds the reads of a band, and the pre-writes of its redundancy. Returns its method.
fn plan_band(stripe: &Stripe, span: Span, band: &Band, shares: &mut Shares) -> Result<Method, Unavailable> {
    let rows = band.rows;
    let method = band_method(stripe, span, band);
    for unit in stripe.data() {
        let place = stripe.layout.data_unit(stripe.number, unit);
        match (method, band.units.contains(&unit)) {
            (Method::Small, true) | (Method::Large, false) => shares.read(at_row(place, rows.start), rows.count),
            (Method::Full | Method::Large, true) => {
                for row in edge_rows(stripe, span, unit, rows) {
                    if stripe.absence.is_unreadable(place.position) {
                        stripe.read_sources(unit, BlockRange::new(row, 1), shares)?;
                    } else {
                        shares.read(at_row(place, row), 1);
                    }
                }
            }
            (Method::Small | Method::Full, false) => {}
        }
    }
    for unit in 0..stripe.layout.redundancy_units() {
        let place = at_row(stripe.layout.redundancy_unit(stripe.number, unit), rows.start);
        if stripe.absence.is_lost(place.position) {
            continue;
        }
        if method == Method::Small {
            shares.read(place, rows.count);
        }
        shares.prewrite(place, rows.count);
    }
    Ok(method)
}

pub(super) fn band_method(stripe: &Stripe, span: Span, band: &Band) -> Method {
    if !stripe.absence.is_none()
        && let Some(method) = method_with_gaps(stripe, band)
    {
        return method;
    }
    let edges = |unit| edge_rows(stripe, span, unit, band.rows).count() as u64;
    band.method(stripe.layout, band.units.clone().map(edges).sum())
}

/// The method for a band if a unit of the stripe can't be read (see the table in the documentation of `plan`); `None` if all can be read.
#[cold]
fn method_with_gaps(stripe: &Stripe, band: &Band) -> Option<Method> {
    let without_old_parity = if band.units.len() == stripe.data().len() { Method::Full } else { Method::Large };
    if stripe.redundancy().all(|unit| stripe.is_lost(unit)) {
        return Some(Method::Full);
    }
    match stripe.data().find(|unit| !stripe.is_readable(*unit)) {
        Some(unit) if band.units.contains(&unit) => Some(without_old_parity),
        Some(_) => Some(Method::Small),
        None if stripe.redundancy().all(|unit| stripe.is_readable(unit)) => None,
        None => Some(without_old_parity),
    }
}

/// Those of these rows of a data unit whose block is written only in part.
fn edge_rows(stripe: &Stripe, span: Span, unit: usize, rows: BlockRange) -> impl Iterator<Item = u64> + use<> {
    let first = unit_block(stripe.layout, stripe.number, unit);
    let blocks = BlockRange::new(first + rows.start, rows.count);
    span.edges().filter(move |edge| blocks.blocks().contains(edge)).map(move |edge| edge - first)
}

/// The volume's first block in a data unit.
fn unit_block(layout: &Layout, stripe: u64, unit: usize) -> u64 {
    stripe * layout.stripe_blocks() + unit as u64 * layout.unit_blocks()
}
