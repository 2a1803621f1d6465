//! Parity sites: where each host has the parity of its writes computed. Sites mix freely on one volume, so hosts differ in them.

use crate::cluster::Cluster;
use crate::options::{Choices, Options};
use braid_base::NodeId;
use braid_layout::{Layout, RaidLevel, SitePolicy, VolumeDescription};
use braid_ordering::{Atomicity, Ordering};
use braid_world::FaultKind;

/// All parity sites, also the one that no command offers.
const SITES: [SitePolicy; 4] =
    [SitePolicy::Originator, SitePolicy::AtParity, SitePolicy::Adaptive, SitePolicy::ParityNode];

impl Choices {
    /// True if all runs are to have parallel RAID.
    fn names_parallel_raid(&self) -> bool {
        [&self.only, &self.also].into_iter().any(|kinds| kinds.contains(&FaultKind::ParallelRaid))
    }

    /// The ordering of a run, unless it is drawn. Other orderings than timestamps compute parity at hosts only.
    pub(crate) fn ordering(&self) -> Option<Ordering> {
        self.ordering.or(self.names_parallel_raid().then_some(Ordering::Timestamp))
    }

    /// The atomicity of a run, unless it is drawn.
    pub(crate) fn atomicity(&self) -> Option<Atomicity> {
        self.atomicity.or(self.names_parallel_raid().then_some(Atomicity::Implied))
    }
}

impl Options {
    /// In three of four seeds, draws parity sites. If the choices name this, in all seeds; these have a small volume with parity, and pairs
    /// of nodes are often cut from each other.
    pub(crate) fn with_sites(mut self, choices: &Choices) -> Options {
        // A random source of its own, so that all other seeds are unchanged.
        let rng = &mut self.source("parallel-raid");
        let named = choices.names_parallel_raid();
        if !choices.kinds().contains(&FaultKind::ParallelRaid) || !(rng.below(4) > 0 || named) {
            return self;
        }
        self.sites = (0..rng.between(1, 4)).map(|_| SITES[rng.below(4) as usize]).collect();
        if named {
            if self.sites.iter().all(|site| *site == SitePolicy::Originator) {
                self.sites = vec![SitePolicy::AtParity];
            }
            if !matches!(self.layout.scheme(), RaidLevel::Raid5 { .. }) {
                let (data, unit) = (rng.between(2, 4) as usize, self.layout.unit_blocks());
                let scheme = RaidLevel::Raid5 { data };
                self.layout = Layout::new(scheme, scheme.width(), unit).expect("a ring that is wide enough");
            }
            self.stripes = self.stripes.min(rng.between(1, 3));
            if choices.kinds().contains(&FaultKind::Cut) {
                self.faults.weights.insert(FaultKind::Cut, rng.between(5, 30));
            }
        }
        self
    }
}

impl Cluster {
    /// A volume as this host knows it, with a parity site of its own.
    pub(crate) fn as_on(&self, host: NodeId, mut volume: VolumeDescription) -> VolumeDescription {
        let sites = &self.options.sites;
        if let NodeId::Host(generation) = host
            && !sites.is_empty()
        {
            volume.parity_site = sites[(generation.0 as usize + volume.id.0 as usize) % sites.len()];
        }
        volume
    }
}
