//! A band is a set of rows of a stripe in which a write updates the same data units.
//!
//! A write is a contiguous run of the volume. Therefore in a stripe it covers the first unit from some row on, whole units in the middle,
//! and the last unit up to some row. Divided at these rows, a stripe has at most three bands. The parity of each band is computed by the
//! method that suits it.
//!
//! ```text
//!              unit 0   unit 1   unit 2   unit 3
//!   row 0..1     .        x        x        x       large
//!   row 1..3     .        x        x        .       large
//!   row 3..4     x        x        x        .       large
//! ```

use crate::Layout;
use braid_base::BlockRange;
use std::ops::Range;

/// How the parity of a band is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// All data units are updated, or there is no redundancy: nothing is read.
    Full,
    /// The units that are *not* updated are read.
    Large,
    /// The old data of the updated units and the old parity are read.
    Small,
}

/// How many bands of a write use each method.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Methods {
    pub full: u64,
    pub large: u64,
    pub small: u64,
}

impl Methods {
    pub(super) fn count(&mut self, method: Method) {
        match method {
            Method::Full => self.full += 1,
            Method::Large => self.large += 1,
            Method::Small => self.small += 1,
        }
    }
}

/// Rows of a stripe in which the same data units are updated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Band {
    pub rows: BlockRange,
    /// The data units that are updated; at least one.
    pub units: Range<usize>,
}

impl Band {
    /// The method that reads fewer blocks, or the small one if both read the same number, since it involves fewer devices.
    ///
    /// With u of k data units updated, the large method reads k-u blocks a row and the small one u+1. Therefore half or more is large and
    /// less is small, as in the papers. Blocks that are updated in part (`edges`, in this band) can change this: the large method must
    /// read their old content in addition, the small one reads it anyway.
    pub fn method(&self, layout: &Layout, edges: u64) -> Method {
        let updated = self.units.len() as u64;
        let others = layout.data_units() as u64 - updated;
        let redundancy = layout.redundancy_units() as u64;
        if others == 0 || redundancy == 0 {
            Method::Full
        } else if others * self.rows.count + edges < (updated + redundancy) * self.rows.count {
            Method::Large
        } else {
            Method::Small
        }
    }
}

/// The part of a write in one stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Touched {
    pub stripe: u64,
    /// The blocks, counted from the start of the stripe's data.
    blocks: BlockRange,
    unit_blocks: u64,
}

impl Touched {
    /// The stripes that a run of blocks touches, in order.
    pub fn stripes(layout: &Layout, blocks: BlockRange) -> impl Iterator<Item = Touched> + use<> {
        let (stripe_blocks, unit_blocks) = (layout.stripe_blocks(), layout.unit_blocks());
        let stripes =
            if blocks.is_empty() { 0..0 } else { blocks.start / stripe_blocks..blocks.end().div_ceil(stripe_blocks) };
        stripes.map(move |stripe| {
            let whole = BlockRange::new(stripe * stripe_blocks, stripe_blocks);
            let mut blocks = blocks.intersection(whole);
            blocks.start -= whole.start;
            Touched { stripe, blocks, unit_blocks }
        })
    }

    /// The data units that the write touches.
    pub fn units(&self) -> Range<usize> {
        (self.blocks.start / self.unit_blocks) as usize..self.blocks.end().div_ceil(self.unit_blocks) as usize
    }

    /// The rows of a data unit that the write touches.
    pub fn rows(&self, unit: usize) -> BlockRange {
        let start = unit as u64 * self.unit_blocks;
        let mut rows = self.blocks.intersection(BlockRange::new(start, self.unit_blocks));
        rows.start = rows.start.saturating_sub(start);
        rows
    }

    /// The bands, by row.
    pub fn bands(&self) -> impl Iterator<Item = Band> + use<> {
        let units = self.units();
        let first_from = self.rows(units.start).start;
        let last_until = self.rows(units.end - 1).end();
        let cuts = [0, first_from.min(last_until), first_from.max(last_until), self.unit_blocks];
        (0..3).filter_map(move |index| {
            let rows = BlockRange::between(cuts[index], cuts[index + 1]);
            let start = if rows.start < first_from { units.start + 1 } else { units.start };
            let end = if rows.start < last_until { units.end } else { units.end - 1 };
            (!rows.is_empty() && start < end).then_some(Band { rows, units: start..end })
        })
    }
}
