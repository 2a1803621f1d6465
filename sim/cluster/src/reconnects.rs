//! Clients that lose their connections to a host, and repeat their requests at once.

use crate::activity::{Activity, Draw, Feature, Options, Run, pick};
use crate::cluster::requests;
use crate::leaks::living_slots;
use crate::prelude::*;

#[derive(Clone, Debug)]
pub(crate) struct Reconnects;

impl Feature for Reconnects {
    const NAME: &'static str = "reconnect";
    const ONE_IN: u64 = 4;
    const EVERY: Option<[u64; 3]> = Some([20, 200, 1_000]);
    // In calm runs every operation must succeed.
    const NOT_WITH: &'static [&'static str] = &["attribute-volumes", "calm"];
    const NEEDS_ATOMICITY: bool = false;
    const EXCUSES: fn(&HostError) -> bool = |error| matches!(error, HostError::Abandoned);

    fn draw(_: &mut Options, _: &mut Draw) -> Option<Reconnects> {
        Some(Reconnects)
    }
}

impl Activity for Reconnects {
    fn act(&mut self, run: &mut Run, rng: &mut Rng) {
        let Some(slot) = pick(rng, &living_slots(&run.cluster)) else { return };
        let (wishes, told) = requests::lose_connections(&mut run.cluster, slot);
        run.chores.insert(told);
        if !wishes.is_empty() {
            run.count_fault("reconnect");
        }
        for (client, operation) in wishes {
            run.cluster.operation(slot, client, operation);
        }
    }
}
