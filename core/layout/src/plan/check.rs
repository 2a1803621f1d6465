//! A check compares a stripe's redundancy with its data.

use super::old::Old;
use super::parity::{Source, push_old, xor};
use super::parity_resync::StripeRows;
use super::stripe::{Stripe, at_row};
use super::{Share, Shares};
use crate::{Absence, Layout, Unavailable, UnitAddress};
use braid_base::BlockRange;
use braid_blocks::Content;

/// The plan of a check: it reads every unit of a stripe, or some rows of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckPlan {
    layout: Layout,
    rows: StripeRows,
    shares: Vec<Share>,
}

impl CheckPlan {
    /// A check of one stripe of the volume. It fails if one of the units can't be read.
    pub fn new(layout: &Layout, absence: &Absence, stripe: u64) -> Result<CheckPlan, Unavailable> {
        let rows = BlockRange::new(0, layout.unit_blocks());
        CheckPlan::of_rows(layout, absence, StripeRows { stripe, rows })
    }

    /// A check of some rows.
    pub fn of_rows(layout: &Layout, absence: &Absence, rows: StripeRows) -> Result<CheckPlan, Unavailable> {
        let positions = Stripe { layout, absence, number: rows.stripe }.unavailable();
        if !positions.is_empty() {
            return Err(Unavailable { positions });
        }
        let mut plan = CheckPlan { layout: *layout, rows, shares: Vec::new() };
        let mut shares = Shares::default();
        for place in plan.data().chain(plan.redundancy()) {
            shares.read(at_row(place, rows.rows.start), rows.rows.count);
        }
        plan.shares = shares.0;
        Ok(plan)
    }

    /// The work of each device.
    pub fn shares(&self) -> &[Share] {
        &self.shares
    }

    /// True if every redundancy unit is the XOR of the data units. Always true without redundancy.
    pub fn matches(&self, old: &Old) -> bool {
        let rows = self.rows.rows;
        self.redundancy().all(|redundancy| {
            let mut sources: Vec<Source> = Vec::new();
            for place in self.data().chain([redundancy]) {
                push_old(&mut sources, old, place, rows);
            }
            xor(rows, sources).iter().all(|piece| match &piece.content {
                Content::Data(sum) => sum.iter().fold(0, |any, byte| any | byte) == 0,
                _ => true,
            })
        })
    }

    fn data(&self) -> impl Iterator<Item = UnitAddress> {
        (0..self.layout.data_units()).map(|unit| self.layout.data_unit(self.rows.stripe, unit))
    }

    fn redundancy(&self) -> impl Iterator<Item = UnitAddress> {
        (0..self.layout.redundancy_units()).map(|unit| self.layout.redundancy_unit(self.rows.stripe, unit))
    }
}
