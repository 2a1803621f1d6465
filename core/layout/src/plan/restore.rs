//! A restore resynchronises a device: it recomputes the device's blocks of a hostwrite that the device missed.

use super::band::Touched;
use super::old::Old;
use super::stripe::{Pieces, Stripe, at_row};
use super::{Share, Shares};
use crate::{Absence, Layout, Unavailable};
use braid_base::BlockRange;
use braid_blocks::{Content, Piece, Want};

/// The plan of a restore: it reads the rest of the rows that the hostwrite touched, and writes the blocks of one device that follow from
/// them.
///
/// It writes the present content of the stripes, including that of later hostwrites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestorePlan {
    layout: Layout,
    absence: Absence,
    position: usize,
    blocks: BlockRange,
    want: Want,
    shares: Vec<Share>,
}

impl RestorePlan {
    /// Restores, at `position`, its part of a hostwrite of these blocks of the volume: the data blocks there, and the redundancy of the
    /// rows that the hostwrite touches. `None` if it has no part.
    ///
    /// The device at `position` must be writable. It is not read, whatever its state in `absence`.
    pub fn new(
        layout: &Layout,
        absence: &Absence,
        position: usize,
        blocks: BlockRange,
    ) -> Result<Option<RestorePlan>, Unavailable> {
        RestorePlan::wanting(Want::Data, layout, absence, position, blocks)
    }

    /// Like [`RestorePlan::new`] for [`Want::Data`]. For [`Want::Salvage`], a row of which too much is lost or unreadable is restored as
    /// lost. To be used only when that is known.
    pub fn wanting(
        want: Want,
        layout: &Layout,
        absence: &Absence,
        position: usize,
        blocks: BlockRange,
    ) -> Result<Option<RestorePlan>, Unavailable> {
        let mut shares = Shares::default();
        for (stripe, unit, rows) in missed(layout, absence, position, blocks) {
            if absence.is_lost(position) {
                return Err(Unavailable { positions: vec![position] });
            }
            match stripe.read_sources(unit, rows, &mut shares) {
                Err(unavailable) if want == Want::Data => return Err(unavailable),
                _ => shares.prewrite(at_row(stripe.place(unit), rows.start), rows.count),
            }
        }
        let (shares, absence) = (shares.0, absence.clone());
        let plan = RestorePlan { layout: *layout, absence, position, blocks, want, shares };
        Ok((!plan.shares.is_empty()).then_some(plan))
    }

    /// What its reads must return.
    pub fn want(&self) -> Want {
        self.want
    }

    /// The work of each device. Only the device that is restored has pre-writes, and it has no reads.
    pub fn shares(&self) -> &[Share] {
        &self.shares
    }

    /// The volume's blocks of the hostwrite.
    pub fn blocks(&self) -> BlockRange {
        self.blocks
    }

    /// The pieces that the restored device writes, ascending, and covering exactly its pre-writes.
    pub fn compute(&self, old: &Old) -> Vec<(usize, Vec<Piece>)> {
        let mut pieces = Pieces::of(&self.shares);
        for (stripe, unit, rows) in missed(&self.layout, &self.absence, self.position, self.blocks) {
            if self.want == Want::Salvage && stripe.sources(unit).is_err() {
                pieces.push(stripe.place(unit), Piece { range: rows, content: Content::Lost });
                continue;
            }
            for piece in stripe.worked_out(unit, rows, old, self.want) {
                pieces.push(stripe.place(unit), piece);
            }
        }
        pieces.done()
    }
}

/// The rows of units at `position` that a write of these blocks changes, in order.
fn missed<'a>(
    layout: &'a Layout,
    absence: &'a Absence,
    position: usize,
    blocks: BlockRange,
) -> impl Iterator<Item = (Stripe<'a>, usize, BlockRange)> {
    Touched::stripes(layout, blocks).flat_map(move |touched| {
        let stripe = Stripe { layout, absence, number: touched.stripe };
        let unit = stripe.unit_at(position);
        let all_bands = unit.is_some_and(|unit| stripe.redundancy().contains(&unit));
        let bands =
            touched.bands().filter(move |band| all_bands || unit.is_some_and(|unit| band.units.contains(&unit)));
        bands.filter_map(move |band| Some((stripe, unit?, band.rows)))
    })
}
