//! Clients that lose their connections to a host, and repeat their requests at once.

use crate::activity::{Activity, Draw, Feature};
use crate::cluster::{HostSlot, requests};
use crate::options::Options;
use crate::prelude::*;
use crate::swarm::Run;

#[derive(Clone, Debug)]
pub(crate) struct Reconnects;

impl Feature for Reconnects {
    const NAME: &'static str = "reconnect";
    const ONE_IN: u64 = 4;
    const EVERY: Option<[u64; 3]> = Some([20, 200, 1_000]);
    // In calm runs every operation must succeed.
    const NOT_WITH: &'static [&'static str] = &["attribute-volumes", "calm"];
    const NEEDS_ATOMICITY: bool = false;

    fn draw(_: &mut Options, _: &mut Draw) -> Option<Reconnects> {
        Some(Reconnects)
    }
}

impl Activity for Reconnects {
    fn act(&mut self, run: &mut Run, rng: &mut Rng) {
        let up = |slot: &HostSlot| run.cluster.world.machine(run.cluster.node(*slot)).is_some();
        let slots: Vec<_> = run.cluster.slots().filter(up).collect();
        if slots.is_empty() {
            return;
        }
        let slot = slots[rng.below(slots.len() as u64) as usize];
        let (wishes, told) = requests::lose_connections(&mut run.cluster, slot);
        run.chores.insert(told);
        if !wishes.is_empty() {
            run.count_fault("reconnect");
        }
        for (client, operation) in wishes {
            run.cluster.operation(slot, client, operation);
        }
    }

    fn excuses(&self, error: &HostError) -> bool {
        matches!(error, HostError::Abandoned)
    }
}
