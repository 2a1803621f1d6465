//! Parity sites: where each host has the parity of its writes computed. Sites mix freely on one volume, so hosts differ in them.

use crate::activity::{Activity, Draw, Feature};
use crate::options::{Choices, Options};
use crate::prelude::*;

/// All parity sites, also the one that no command offers.
const SITES: [SitePolicy; 4] =
    [SitePolicy::Originator, SitePolicy::AtParity, SitePolicy::Adaptive, SitePolicy::ParityNode];

impl Choices {
    /// The ordering of a run, unless it is drawn. Other orderings than timestamps compute parity at hosts only.
    pub(crate) fn ordering(&self) -> Option<Ordering> {
        self.ordering.or(self.names(ParallelRaid::NAME).then_some(Ordering::Timestamp))
    }

    /// The atomicity of a run, unless it is drawn.
    pub(crate) fn atomicity(&self) -> Option<Atomicity> {
        self.atomicity.or(self.names(ParallelRaid::NAME).then_some(Atomicity::Implied))
    }
}

/// Hosts take parity sites in turn.
#[derive(Clone, Debug)]
pub(crate) struct ParallelRaid;

impl Activity for ParallelRaid {}

impl Feature for ParallelRaid {
    const NAME: &'static str = "parallel-raid";
    const NEEDS_ATOMICITY: bool = false;

    /// In three of four seeds. If the choices name this, runs have a small volume with parity, and pairs of nodes are often cut from each
    /// other.
    fn draw(options: &mut Options, draw: &mut Draw) -> Option<ParallelRaid> {
        if !draw.may || !(draw.rng.below(4) > 0 || draw.is_named) {
            return None;
        }
        let rng = &mut draw.rng;
        options.sites = (0..rng.between(1, 4)).map(|_| SITES[rng.below(4) as usize]).collect();
        if draw.is_named {
            if options.sites.iter().all(|site| *site == SitePolicy::Originator) {
                options.sites = vec![SitePolicy::AtParity];
            }
            if !matches!(options.layout.scheme(), RaidLevel::Raid5 { .. }) {
                options.set_redundant_layout(rng.between(2, 4) as usize);
            }
            options.stripes = options.stripes.min(rng.between(1, 3));
            if draw.choices.may(FaultKind::Cut.name()) {
                options.faults.weights.insert(FaultKind::Cut, rng.between(5, 30));
            }
        }
        Some(ParallelRaid)
    }
}
