//! The RAIDmap of a write: for each device one column, with everything that the device does (the parallel-RAID paper, sections 3.2 and
//! 3.5). The parity of each band is computed at one of three sites:
//!
//! | site | small band | large band | full band |
//! | --- | --- | --- | --- |
//! | originator | reads all, sends new data and new parity | the same | sends new data and new parity |
//! | at parity | updated units send the change of their content; base: old parity | updated units send their new content, the others their old; base: zeros | as at the originator |
//! | parity node | updated units send their old content; the originator sends the sum of their new content as well; base: old parity | the other units send their old content; the originator sends the sum of the new content; base: zeros | as at the originator |
//!
//! *Parity node* is what the paper calls solely-parity. The host always sends more than with *at parity*; devices send less in large bands. It is here for comparison. Deviation:
//! full bands are always computed at the originator, because that takes the fewest messages and bytes where a host has a processor.
//!
//! With a device unavailable, the method of each band is that of the plan (Table III). Content of a unit that is lost goes from the
//! originator to the parity directly.

use super::band::{Band, Method, Touched};
use super::old::Old;
use super::parity::{Source, xor};
use super::stripe::{Stripe, at_row};
use super::write::{New, NewPiece, WritePlan, band_method};
use crate::{SitePolicy, UnitAddress};
use braid_base::{BlockRange, DeviceId};
use braid_blocks::{Base, Column, Content, ParityRows, Piece, Sending, Sent};
use std::collections::BTreeMap;

/// Where parity is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParitySite {
    /// At the host that writes.
    Originator,
    /// At the device that holds the parity, from what the other devices have computed.
    AtParity,
    /// At the device that holds the parity, from content.
    ParityNode,
}

/// The rows of a large band that is still computed at the parity: 16 KiB.
const LARGE_ROWS_MAX: u64 = 4;

impl SitePolicy {
    /// The site for a write; `None` if the host computes its parity.
    pub fn site_of(self, plan: &WritePlan) -> Option<ParitySite> {
        let methods = plan.methods();
        match self {
            _ if methods.small + methods.large == 0 => None,
            SitePolicy::Originator => None,
            SitePolicy::AtParity => Some(ParitySite::AtParity),
            SitePolicy::Adaptive => (largest_large_band(plan) <= LARGE_ROWS_MAX).then_some(ParitySite::AtParity),
            SitePolicy::ParityNode => Some(ParitySite::ParityNode),
        }
    }
}

/// The rows of the largest band that is written by the large method.
fn largest_large_band(plan: &WritePlan) -> u64 {
    if plan.methods().large == 0 {
        return 0;
    }
    plan.bands().filter(|band| band.method == Method::Large).map(|band| band.rows.count).max().unwrap_or(0)
}

/// One column for each device that has something to do, by its position on the ring.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RaidMap {
    pub columns: BTreeMap<usize, Column>,
}

impl RaidMap {
    /// The map for a write of `new`. `None` if the devices can't execute it together: blocks are written in part, the redundancy is not
    /// one unit of parity, or the originator would have to read. `device_at` says which device is at a position of the ring.
    pub fn new(
        plan: &WritePlan,
        new: &New,
        site: ParitySite,
        device_at: impl Fn(usize) -> DeviceId,
    ) -> Option<RaidMap> {
        let is_parity = plan.layout.redundancy_units() == 1 && plan.layout.data_units() > 1;
        let reads = plan.shares().iter().any(|share| !share.reads.is_empty());
        if !is_parity || plan.span.edges().next().is_some() || (site == ParitySite::Originator && reads) {
            return None;
        }
        let mut map = MapBuilder { columns: BTreeMap::new(), plan, site, device_at };
        for touched in Touched::stripes(&plan.layout, plan.span.blocks()) {
            map.push_stripe(&touched, new);
        }
        let mut columns = map.columns;
        columns.values_mut().for_each(|column| column.pieces.sort_by_key(|piece| piece.range.start));
        Some(RaidMap { columns })
    }
}

struct MapBuilder<'a, F> {
    columns: BTreeMap<usize, Column>,
    plan: &'a WritePlan,
    site: ParitySite,
    device_at: F,
}

impl<F: Fn(usize) -> DeviceId> MapBuilder<'_, F> {
    fn push_stripe(&mut self, touched: &Touched, new: &New) {
        let WritePlan { layout, absence, .. } = self.plan;
        let stripe = Stripe { layout, absence, number: touched.stripe };
        let mut updates: Vec<NewPiece> = Vec::new();
        for unit in touched.units() {
            self.plan.push_updates(&mut updates, touched, unit, new, &[]);
        }
        for NewPiece { unit, piece } in &updates {
            if !stripe.is_lost(*unit) {
                self.push_piece(stripe.place(*unit), piece.clone());
            }
        }
        let parity = stripe.redundancy().start;
        if stripe.is_lost(parity) {
            return;
        }
        for band in touched.bands() {
            match band_method(&stripe, self.plan.span, &band) {
                Method::Full => {
                    for piece in self.plan.parity(&stripe, &band, &updates, &Old::new()) {
                        self.push_piece(stripe.place(parity), piece);
                    }
                }
                method => self.push_band(&stripe, &band, method, &updates),
            }
        }
    }

    /// Adds a band whose parity needs old content.
    fn push_band(&mut self, stripe: &Stripe, band: &Band, method: Method, updates: &[NewPiece]) {
        let rows = band.rows;
        let parity = at_row(stripe.place(stripe.redundancy().start), rows.start);
        let base = if method == Method::Small { Base::Old } else { Base::Zeros };
        let blocks = BlockRange::new(parity.block, rows.count);
        let mut computed = ParityRows { blocks, base, from: Vec::new(), own: Vec::new() };
        let mut own: Vec<Source> = Vec::new();
        for unit in stripe.data() {
            let is_updated = band.units.contains(&unit);
            let what = match (method, is_updated, self.site) {
                (Method::Small, false, _) => continue,
                (Method::Small, true, ParitySite::AtParity) => Some(Sent::Change),
                (Method::Small, true, _) | (_, false, _) => Some(Sent::Old),
                (_, true, ParitySite::AtParity) => Some(Sent::New),
                (_, true, _) => None,
            };
            let is_lost = stripe.is_lost(unit);
            if is_updated && (is_lost || self.site == ParitySite::ParityNode) {
                let of_unit = updates.iter().filter(|update| update.unit == unit);
                let of_band = of_unit.filter(|update| update.piece.range.overlaps(rows));
                own.extend(of_band.filter_map(|update| source(update.piece.clip(rows))));
            }
            if let Some(what) = what.filter(|_| !is_lost) {
                let place = at_row(stripe.place(unit), rows.start);
                computed.from.push((self.device_at)(place.position));
                let to = (self.device_at)(parity.position);
                let sending = Sending { blocks: BlockRange::new(place.block, rows.count), to, at: blocks.start, what };
                self.column(place.position).sends.push(sending);
            }
        }
        if !own.is_empty() {
            computed.own = xor(rows, own).into_iter().map(|piece| shifted(piece, blocks.start - rows.start)).collect();
        }
        self.column(parity.position).parity.push(computed);
    }

    /// Adds a piece of the unit that begins at `unit`, with row numbers as blocks.
    fn push_piece(&mut self, unit: UnitAddress, piece: Piece) {
        self.column(unit.position).pieces.push(shifted(piece, unit.block));
    }

    fn column(&mut self, position: usize) -> &mut Column {
        self.columns.entry(position).or_default()
    }
}

fn source(piece: Piece) -> Option<Source> {
    if let Content::Data(data) = piece.content { Some((piece.range, data)) } else { None }
}

fn shifted(mut piece: Piece, by: u64) -> Piece {
    piece.range.start += by;
    piece
}
