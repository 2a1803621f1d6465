//! A stripe, some of whose units may be unavailable: the units from which another unit can be reconstructed, and the result.
//!
//! In this module units have consecutive numbers: the k data units, then the m redundancy units. Each redundancy unit is the XOR of all
//! data units. Therefore a data unit is the XOR of the other data units and any redundancy unit, and a redundancy unit is the XOR of the
//! data units, or a copy of another redundancy unit.

use super::old::Old;
use super::parity::{any, push_lost, push_old, push_present, xor};
use super::{Share, Shares};
use crate::{Absence, Layout, Unavailable, UnitAddress};
use braid_base::BlockRange;
use braid_blocks::{Content, Piece, Want};
use std::collections::BTreeSet;

/// A stripe of a volume, with the devices that are unavailable.
#[derive(Clone, Copy)]
pub(super) struct Stripe<'a> {
    pub layout: &'a Layout,
    pub absence: &'a Absence,
    pub number: u64,
}

impl Stripe<'_> {
    /// The stripe of a block of the volume, the block's data unit, and its row.
    pub fn of<'a>(layout: &'a Layout, absence: &'a Absence, block: u64) -> (Stripe<'a>, usize, u64) {
        let within = block % layout.stripe_blocks();
        let stripe = Stripe { layout, absence, number: block / layout.stripe_blocks() };
        (stripe, (within / layout.unit_blocks()) as usize, within % layout.unit_blocks())
    }

    pub fn data(&self) -> std::ops::Range<usize> {
        0..self.layout.data_units()
    }

    pub fn redundancy(&self) -> std::ops::Range<usize> {
        self.layout.data_units()..self.layout.scheme().width()
    }

    pub fn place(&self, unit: usize) -> UnitAddress {
        match unit.checked_sub(self.layout.data_units()) {
            None => self.layout.data_unit(self.number, unit),
            Some(unit) => self.layout.redundancy_unit(self.number, unit),
        }
    }

    /// The unit at a position of the ring, if the stripe has one there.
    pub fn unit_at(&self, position: usize) -> Option<usize> {
        (0..self.layout.scheme().width()).find(|unit| self.place(*unit).position == position)
    }

    pub fn is_lost(&self, unit: usize) -> bool {
        !self.absence.is_none() && self.absence.is_lost(self.place(unit).position)
    }

    pub fn is_readable(&self, unit: usize) -> bool {
        self.absence.is_none() || !self.absence.is_unreadable(self.place(unit).position)
    }

    /// The positions of all units that can't be read, ascending.
    pub fn unavailable(&self) -> Vec<usize> {
        if self.absence.is_none() {
            return Vec::new();
        }
        self.positions((0..self.layout.scheme().width()).filter(|unit| !self.is_readable(*unit)))
    }

    /// The positions of units, ascending.
    pub fn positions(&self, units: impl Iterator<Item = usize>) -> Vec<usize> {
        let mut positions: Vec<usize> = units.map(|unit| self.place(unit).position).collect();
        positions.sort_unstable();
        positions
    }

    /// Readable units whose XOR is the content of `unit`, excluding itself.
    pub fn sources(&self, unit: usize) -> Result<Vec<usize>, Unavailable> {
        let other_data = self.data().filter(|other| *other != unit);
        let all_readable = other_data.clone().all(|other| self.is_readable(other));
        let spare = self.redundancy().find(|other| *other != unit && self.is_readable(*other));
        match (self.data().contains(&unit), spare) {
            (true, Some(spare)) if all_readable => Ok(other_data.chain([spare]).collect()),
            (false, _) if all_readable => Ok(other_data.collect()),
            (false, Some(spare)) => Ok(vec![spare]),
            _ if self.redundancy().is_empty() => Err(Unavailable { positions: self.positions([unit].into_iter()) }),
            _ => Err(Unavailable { positions: self.unavailable() }),
        }
    }

    /// Adds the reads from which these rows of a unit can be reconstructed.
    #[cold]
    pub fn read_sources(&self, unit: usize, rows: BlockRange, shares: &mut Shares) -> Result<(), Unavailable> {
        for source in self.sources(unit)? {
            shares.read(at_row(self.place(source), rows.start), rows.count);
        }
        Ok(())
    }

    /// The content of these rows of a unit, reconstructed from the answers of its sources: pieces that cover the rows in order, with row
    /// numbers as blocks. For [`Want::Allocation`], a row has content if any source has: the unit itself may have a hole there. For
    /// [`Want::Salvage`], a row is lost if it is lost in any source.
    pub fn worked_out(&self, unit: usize, rows: BlockRange, old: &Old, want: Want) -> Vec<Piece> {
        let places = self.sources(unit).expect("the sources were available when the plan was made").into_iter();
        let places = places.map(|source| self.place(source));
        match want {
            Want::Linkage => unreachable!("headers can't be reconstructed"),
            Want::Data => {
                let mut sources = Vec::new();
                places.for_each(|place| push_old(&mut sources, old, place, rows));
                xor(rows, sources)
            }
            Want::Salvage => {
                let (mut sources, mut lost) = (Vec::new(), BTreeSet::new());
                places.for_each(|place| {
                    push_old(&mut sources, old, place, rows);
                    push_lost(&mut lost, old, place, rows);
                });
                without(xor(rows, sources), &lost)
            }
            Want::Allocation => {
                let mut sources = Vec::new();
                places.for_each(|place| push_present(&mut sources, old, place, rows));
                any(rows, sources)
            }
        }
    }
}

/// The pieces, with these rows replaced by lost ones.
fn without(pieces: Vec<Piece>, lost: &BTreeSet<u64>) -> Vec<Piece> {
    if lost.is_empty() {
        return pieces;
    }
    let row_by_row = pieces.iter().flat_map(|piece| piece.range.blocks().map(move |row| (piece, row)));
    let cut = |(piece, row): (&Piece, u64)| {
        let range = BlockRange::new(row, 1);
        if lost.contains(&row) { Piece { range, content: Content::Lost } } else { piece.clip(range) }
    };
    row_by_row.map(cut).collect()
}

/// The address of a row of the unit that begins at `unit`.
pub(super) fn at_row(unit: UnitAddress, row: u64) -> UnitAddress {
    UnitAddress { block: unit.block + row, ..unit }
}

/// The pieces for the [`Share`]s that write, under construction.
pub(super) struct Pieces(Vec<(usize, Vec<Piece>)>);

impl Pieces {
    pub fn of(shares: &[Share]) -> Pieces {
        let writing = shares.iter().filter(|share| !share.prewrites.is_empty());
        Pieces(writing.map(|share| (share.position, Vec::new())).collect())
    }

    /// Adds a piece of the unit that begins at `unit`, with row numbers as blocks.
    pub fn push(&mut self, unit: UnitAddress, mut piece: Piece) {
        piece.range.start += unit.block;
        let index = self.0.binary_search_by_key(&unit.position, |(position, _)| *position);
        self.0[index.expect("what is computed was pre-written")].1.push(piece);
    }

    pub fn done(self) -> Vec<(usize, Vec<Piece>)> {
        self.0
    }
}
