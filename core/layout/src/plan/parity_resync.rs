//! A parity resync repairs the stripes of an interrupted write, where devwrites take effect on arrival (shared-array paper, section 5).
//! It consists of the cross-check of linkage records, which transfers no data, and the recomputation of parity from the data.
//!
//! Both are about rows of one stripe. Each device has at most one unit of a stripe, so that a device whose parity is written is not read.

use super::band::Touched;
use super::old::Old;
use super::parity::{Source, push_old, xor};
use super::stripe::{Pieces, Stripe, at_row};
use super::{Share, Shares};
use crate::{Absence, Layout, Unavailable};
use braid_base::{BlockRange, TransactionId};
use braid_blocks::{Content, Linkage, Piece};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StripeRows {
    pub stripe: u64,
    /// Rows of the stripe's units.
    pub rows: BlockRange,
}

impl StripeRows {
    /// The rows that a hostwrite of these blocks of the volume touches.
    pub fn of_volume(layout: &Layout, blocks: BlockRange) -> Vec<StripeRows> {
        let mut all: Vec<StripeRows> = Vec::new();
        for touched in Touched::stripes(layout, blocks) {
            for band in touched.bands() {
                match all.last_mut() {
                    Some(last) if last.stripe == touched.stripe && last.rows.end() == band.rows.start => {
                        last.rows.count += band.rows.count;
                    }
                    _ => all.push(StripeRows { stripe: touched.stripe, rows: band.rows }),
                }
            }
        }
        all
    }

    /// The rows that contain these blocks of the object at a position.
    pub fn of_component(layout: &Layout, position: usize, blocks: BlockRange) -> Vec<StripeRows> {
        let unit = layout.unit_blocks();
        let (devices, width) = (layout.devices() as u64, layout.scheme().width() as u64);
        let component = BlockRange::between(layout.first_block(), u64::MAX);
        let mut blocks = blocks.intersection(component);
        blocks.start -= component.start;
        let units = blocks.start / unit..blocks.end().div_ceil(unit);
        let rows_of = |index: u64| {
            let mut rows = blocks.intersection(BlockRange::new(index * unit, unit));
            rows.start -= index * unit;
            StripeRows { stripe: (index * devices + position as u64) / width, rows }
        };
        units.map(rows_of).collect()
    }

    /// Blocks of the volume whose hostwrite touches exactly these rows.
    fn blocks(&self, layout: &Layout) -> BlockRange {
        BlockRange::new(self.stripe * layout.stripe_blocks() + self.rows.start, self.rows.count)
    }

    fn within<'a>(&self, layout: &'a Layout, absence: &'a Absence) -> Stripe<'a> {
        Stripe { layout, absence, number: self.stripe }
    }
}

/// The plan of a cross-check: it reads the headers of the blocks of some rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrossCheckPlan {
    layout: Layout,
    rows: StripeRows,
    shares: Vec<Share>,
}

impl CrossCheckPlan {
    /// A cross-check of these rows. It fails if a unit of the stripe can't be read.
    pub fn new(layout: &Layout, absence: &Absence, rows: StripeRows) -> Result<CrossCheckPlan, Unavailable> {
        let stripe = rows.within(layout, absence);
        let positions = stripe.unavailable();
        if !positions.is_empty() {
            return Err(Unavailable { positions });
        }
        let mut shares = Shares::default();
        for unit in stripe.data().chain(stripe.redundancy()) {
            shares.read(at_row(stripe.place(unit), rows.rows.start), rows.rows.count);
        }
        Ok(CrossCheckPlan { layout: *layout, rows, shares: shares.0 })
    }

    /// The work of each device.
    pub fn shares(&self) -> &[Share] {
        &self.shares
    }

    /// True if the transaction took effect in these rows as a whole, or, unless it is `known` to have written here, not at all. To be
    /// found whole, it must be the last that wrote each block of its linkage record and of the redundancy: after a later write nothing
    /// can be concluded.
    pub fn is_whole(&self, old: &Old, transaction: TransactionId, known: bool) -> bool {
        let absence = Absence::none();
        let stripe = self.rows.within(&self.layout, &absence);
        let first = self.rows.stripe * self.layout.stripe_blocks();
        self.rows.rows.blocks().all(|row| {
            let carries = |unit: usize| -> Option<Linkage> {
                match old.content(at_row(stripe.place(unit), row), 1).next()?.content {
                    Content::Header { transaction: by, linkage } if by == transaction => Some(linkage),
                    _ => None,
                }
            };
            let Some(linkage) = stripe.data().chain(stripe.redundancy()).find_map(carries) else { return !known };
            let written = |unit: &usize| {
                let block = first + *unit as u64 * self.layout.unit_blocks() + row;
                (linkage.first..=linkage.last).contains(&block)
            };
            stripe.data().filter(written).chain(stripe.redundancy()).all(|unit| carries(unit).is_some())
        })
    }
}

/// The plan of a recomputation of the redundancy of some rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecomputePlan {
    layout: Layout,
    absence: Absence,
    rows: StripeRows,
    shares: Vec<Share>,
}

impl RecomputePlan {
    /// Recomputes the redundancy of these rows from their data, all of which must be readable; `None` if there is no redundancy to write.
    pub fn new(layout: &Layout, absence: &Absence, rows: StripeRows) -> Result<Option<RecomputePlan>, Unavailable> {
        let stripe = rows.within(layout, absence);
        if stripe.redundancy().all(|unit| stripe.is_lost(unit)) {
            return Ok(None);
        }
        let missing: Vec<usize> = stripe.data().filter(|unit| !stripe.is_readable(*unit)).collect();
        if !missing.is_empty() {
            return Err(Unavailable { positions: stripe.positions(missing.into_iter()) });
        }
        let mut shares = Shares::default();
        for unit in stripe.data() {
            shares.read(at_row(stripe.place(unit), rows.rows.start), rows.rows.count);
        }
        for unit in stripe.redundancy().filter(|unit| !stripe.is_lost(*unit)) {
            shares.prewrite(at_row(stripe.place(unit), rows.rows.start), rows.rows.count);
        }
        Ok(Some(RecomputePlan { layout: *layout, absence: absence.clone(), rows, shares: shares.0 }))
    }

    /// The work of each device. No device both reads and writes.
    pub fn shares(&self) -> &[Share] {
        &self.shares
    }

    /// Blocks of the volume for the linkage records of the headers.
    pub fn blocks(&self) -> BlockRange {
        self.rows.blocks(&self.layout)
    }

    /// The pieces that each device with redundancy writes.
    pub fn compute(&self, old: &Old) -> Vec<(usize, Vec<Piece>)> {
        let stripe = self.rows.within(&self.layout, &self.absence);
        let mut sources: Vec<Source> = Vec::new();
        for unit in stripe.data() {
            push_old(&mut sources, old, stripe.place(unit), self.rows.rows);
        }
        let parity = xor(self.rows.rows, sources);
        let mut pieces = Pieces::of(&self.shares);
        for unit in stripe.redundancy().filter(|unit| !stripe.is_lost(*unit)) {
            parity.iter().for_each(|piece| pieces.push(stripe.place(unit), piece.clone()));
        }
        pieces.done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::Generation;

    fn layout() -> Layout {
        Layout::new("raid5:3+1".parse().unwrap(), 5, 4).unwrap().beginning_at(32)
    }

    fn id(sequence: u64) -> TransactionId {
        TransactionId { host: Generation(7), sequence }
    }

    #[test]
    fn rows_are_found_from_either_side() {
        let layout = layout();
        for block in 0..20 * layout.stripe_blocks() {
            let place = layout.locate(block);
            let expected = StripeRows {
                stripe: block / layout.stripe_blocks(),
                rows: BlockRange::new(block % layout.unit_blocks(), 1),
            };
            assert_eq!(StripeRows::of_volume(&layout, BlockRange::new(block, 1)), [expected]);
            let found = StripeRows::of_component(&layout, place.position, BlockRange::new(place.block, 1));
            assert_eq!(found, [expected]);
            assert_eq!(StripeRows::of_volume(&layout, expected.blocks(&layout)), [expected]);
        }
        let rows = |stripe, start, count| StripeRows { stripe, rows: BlockRange::new(start, count) };
        // From the last row of one unit to the first row of the next: the rows between are not touched.
        let around = StripeRows::of_volume(&layout, BlockRange::new(12 + 3, 2));
        assert_eq!(around, [rows(1, 0, 1), rows(1, 3, 1)]);
        assert_eq!(StripeRows::of_volume(&layout, BlockRange::new(10, 4)), [rows(0, 2, 2), rows(1, 0, 2)]);
    }

    /// Headers of rows 1 and 2 of the third stripe, by unit.
    fn answers(by: impl Fn(usize, u64) -> Option<(TransactionId, Linkage)>) -> (CrossCheckPlan, Old) {
        let (layout, absence) = (layout(), Absence::none());
        let rows = StripeRows { stripe: 2, rows: BlockRange::new(1, 2) };
        let plan = CrossCheckPlan::new(&layout, &absence, rows).unwrap();
        assert_eq!(plan.shares().len(), 4);
        let stripe = rows.within(&layout, &absence);
        let mut old = Old::new();
        for unit in 0..4 {
            for row in rows.rows.blocks() {
                let place = at_row(stripe.place(unit), row);
                let content = by(unit, row)
                    .map_or(Content::Hole, |(transaction, linkage)| Content::Header { transaction, linkage });
                old.insert(place.position, vec![Piece { range: BlockRange::new(place.block, 1), content }]);
            }
        }
        (plan, old)
    }

    #[test]
    fn a_hostwrite_is_whole_if_all_that_it_was_to_write_carries_it() {
        // Unit 1, rows 1 and 2, of stripe 2: blocks 29 and 30.
        let linkage = Linkage { first: 29, last: 30 };
        let whole = |unit, _| [1, 3].contains(&unit).then_some((id(5), linkage));
        let (plan, old) = answers(whole);
        assert!(plan.is_whole(&old, id(5), true) && plan.is_whole(&old, id(5), false));
        let missing_parity = |unit, row| if (unit, row) == (3, 2) { None } else { whole(unit, row) };
        let (plan, old) = answers(missing_parity);
        assert!(!plan.is_whole(&old, id(5), true) && !plan.is_whole(&old, id(5), false));
        let missing_data = |unit, row| if (unit, row) == (1, 1) { Some((id(4), linkage)) } else { whole(unit, row) };
        let (plan, old) = answers(missing_data);
        assert!(!plan.is_whole(&old, id(5), true) && !plan.is_whole(&old, id(5), false));
        // No block was written: that is consistent only if the transaction is not known to have written here.
        assert!(!plan.is_whole(&old, id(6), true) && plan.is_whole(&old, id(6), false));
        // A later write of the parity hides what was there before.
        let later = |unit, row| if unit == 3 { Some((id(9), linkage)) } else { whole(unit, row) };
        let (plan, old) = answers(later);
        assert!(!plan.is_whole(&old, id(5), true));
    }

    #[test]
    fn redundancy_is_computed_from_data_alone() {
        for scheme in ["raid5:3+1", "raid1:3"] {
            let layout = Layout::new(scheme.parse().unwrap(), 5, 4).unwrap();
            let rows = StripeRows { stripe: 3, rows: BlockRange::new(1, 2) };
            let absence = Absence::none();
            let stripe = rows.within(&layout, &absence);
            let plan = RecomputePlan::new(&layout, &absence, rows).unwrap().unwrap();
            let mut old = Old::new();
            let mut sum = vec![0u8; 2 * braid_base::BLOCK_BYTES];
            for unit in stripe.data() {
                let place = at_row(stripe.place(unit), 1);
                let bytes = vec![1u8 << unit; sum.len()];
                sum.iter_mut().zip(&bytes).for_each(|(sum, byte)| *sum ^= byte);
                let content = Content::Data(bytes.into());
                old.insert(place.position, vec![Piece { range: BlockRange::new(place.block, 2), content }]);
            }
            let written = plan.compute(&old);
            assert_eq!(written.len(), layout.redundancy_units());
            for (position, pieces) in written {
                let share = plan.shares().iter().find(|share| share.position == position).unwrap();
                assert!(share.reads.is_empty(), "a device that writes is not read");
                let bytes = pieces.iter().flat_map(|piece| match &piece.content {
                    Content::Data(data) => data.to_vec(),
                    other => panic!("{other:?}"),
                });
                assert_eq!(bytes.collect::<Vec<u8>>(), sum);
            }
        }
    }

    #[test]
    fn without_all_data_there_is_nothing_to_compute_and_without_redundancy_nothing_to_write() {
        let layout = layout();
        let rows = StripeRows { stripe: 0, rows: BlockRange::new(0, 1) };
        let unavailable = |unit| {
            let mut absence = Absence::none();
            absence.lose(rows.within(&layout, &Absence::none()).place(unit).position);
            absence
        };
        assert!(RecomputePlan::new(&layout, &unavailable(1), rows).is_err());
        assert_eq!(RecomputePlan::new(&layout, &unavailable(3), rows), Ok(None));
        assert!(CrossCheckPlan::new(&layout, &unavailable(3), rows).is_err());
        let mut absence = Absence::none();
        absence.stale(rows.within(&layout, &Absence::none()).place(3).position);
        assert!(RecomputePlan::new(&layout, &absence, rows).unwrap().is_some(), "a stale device is written");
    }
}
