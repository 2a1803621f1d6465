//! One stripe, some of whose units may be unavailable: what can stand in for a unit, and its content by that way.
//!
//! Units are counted through here: the k data units, then the m redundancy units. Each redundancy unit is the XOR of
//! all data units. So a data unit is the XOR of the others and of any redundancy unit, and a redundancy unit is the XOR
//! of the data units, or the same as another redundancy unit.

use super::old::{Old, clip};
use super::parity::{any, push_lost, push_old, push_present, xor};
use super::{Share, Shares};
use crate::{Absence, Layout, Unavailable, UnitAddress};
use braid_base::BlockRange;
use braid_wire::{Content, Piece, Want};
use std::collections::BTreeSet;

/// A stripe of a volume, as it stands with some devices unavailable.
#[derive(Clone, Copy)]
pub(super) struct Stripe<'a> {
    pub layout: &'a Layout,
    pub absence: &'a Absence,
    pub number: u64,
}

impl Stripe<'_> {
    /// The stripe that a block of the volume lies in, its data unit there, and its row.
    pub fn of<'a>(layout: &'a Layout, absence: &'a Absence, block: u64) -> (Stripe<'a>, usize, u64) {
        let within = block % layout.stripe_blocks();
        let stripe = Stripe { layout, absence, number: block / layout.stripe_blocks() };
        (stripe, (within / layout.unit_blocks()) as usize, within % layout.unit_blocks())
    }

    /// Its data units.
    pub fn data(&self) -> std::ops::Range<usize> {
        0..self.layout.data_units()
    }

    /// Its redundancy units.
    pub fn redundancy(&self) -> std::ops::Range<usize> {
        self.layout.data_units()..self.layout.scheme().width()
    }

    /// Where a unit begins.
    pub fn place(&self, unit: usize) -> UnitAddress {
        match unit.checked_sub(self.layout.data_units()) {
            None => self.layout.data_unit(self.number, unit),
            Some(unit) => self.layout.redundancy_unit(self.number, unit),
        }
    }

    /// The unit that lies at a position of the ring, if any of this stripe's does.
    pub fn unit_at(&self, position: usize) -> Option<usize> {
        (0..self.layout.scheme().width()).find(|unit| self.place(*unit).position == position)
    }

    pub fn is_lost(&self, unit: usize) -> bool {
        !self.absence.is_none() && self.absence.is_lost(self.place(unit).position)
    }

    pub fn is_readable(&self, unit: usize) -> bool {
        self.absence.is_none() || !self.absence.is_unreadable(self.place(unit).position)
    }

    /// The positions of all its units that can't be read, ascending.
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

    /// The units whose XOR is what a unit holds, all of them readable, and without it itself.
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

    /// Adds the reads from which these rows of a unit can be worked out.
    #[cold]
    pub fn read_sources(&self, unit: usize, rows: BlockRange, shares: &mut Shares) -> Result<(), Unavailable> {
        for source in self.sources(unit)? {
            shares.read(at_row(self.place(source), rows.start), rows.count);
        }
        Ok(())
    }

    /// What these rows of a unit hold by what its sources answered, as pieces that cover them in order; their blocks
    /// are rows. For [`Want::Allocation`] there is something wherever a source has something: the unit itself may have
    /// a hole there. For [`Want::Salvage`] a row is lost in which a source is.
    pub fn worked_out(&self, unit: usize, rows: BlockRange, old: &Old, want: Want) -> Vec<Piece> {
        let places = self.sources(unit).expect("it was there when the plan was made").into_iter();
        let places = places.map(|source| self.place(source));
        match want {
            Want::Linkage => unreachable!("who wrote a block can't be worked out"),
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

/// These pieces, in which these rows are lost.
fn without(pieces: Vec<Piece>, lost: &BTreeSet<u64>) -> Vec<Piece> {
    if lost.is_empty() {
        return pieces;
    }
    let row_by_row = pieces.iter().flat_map(|piece| piece.range.blocks().map(move |row| (piece, row)));
    let cut = |(piece, row): (&Piece, u64)| {
        let range = BlockRange::new(row, 1);
        if lost.contains(&row) { Piece { range, content: Content::Lost } } else { clip(piece, range) }
    };
    row_by_row.map(cut).collect()
}

/// The place of a row of the unit that begins at `unit`.
pub(super) fn at_row(unit: UnitAddress, row: u64) -> UnitAddress {
    UnitAddress { block: unit.block + row, ..unit }
}

/// For [`Share`]s that write: where the pieces go that are worked out for them.
pub(super) struct Pieces(Vec<(usize, Vec<Piece>)>);

impl Pieces {
    pub fn of(shares: &[Share]) -> Pieces {
        let writing = shares.iter().filter(|share| !share.prewrites.is_empty());
        Pieces(writing.map(|share| (share.position, Vec::new())).collect())
    }

    /// Adds a piece of the unit that begins at `unit`; its blocks are rows.
    pub fn push(&mut self, unit: UnitAddress, mut piece: Piece) {
        piece.range.start += unit.block;
        let index = self.0.binary_search_by_key(&unit.position, |(position, _)| *position);
        self.0[index.expect("what is computed was pre-written")].1.push(piece);
    }

    pub fn done(self) -> Vec<(usize, Vec<Piece>)> {
        self.0
    }
}
