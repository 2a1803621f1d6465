//! Runs in which hosts are silent for longer than they may be.

use super::SilenceOptions;
use super::reordering_and_migration::NOT_PLAIN;
use crate::activity::{Activity, Draw, Feature, Options, Run, pick};
use crate::prelude::*;

impl Feature for SilenceOptions {
    const NAME: &'static str = "silent-hosts";
    const ONE_IN: u64 = 10;
    const KINDS: &'static [&'static str] = &["silent-hosts", "store-outage"];
    const NOT_WITH: &'static [&'static str] = NOT_PLAIN;
    const EXCUSES: fn(&HostError) -> bool = |error| matches!(error, HostError::Fenced);

    fn draw(options: &mut Options, draw: &mut Draw) -> Option<SilenceOptions> {
        let outage = "store-outage";
        let outages = if draw.choices.names(outage) && draw.choices.may(outage) { 4 } else { 0 };
        draw.acts_every([300, 1_000, 3_000]);
        let rng = &mut draw.rng;
        let silences = SilenceOptions {
            leases: rng.between(1, 2) as u32,
            sweep: Duration::from_millis([200, 2_000][rng.below(2) as usize]),
            deaths: [0, 5, 30][rng.below(3) as usize],
            pauses: [0, 5, 30][rng.below(3) as usize],
            store_faults: [0, 10, 50][rng.below(3) as usize],
            outages,
        };
        options.with_control(3);
        Some(silences)
    }
}
impl Activity for SilenceOptions {
    fn act(&mut self, run: &mut Run, rng: &mut Rng) {
        let staying = run.staying_slots();
        if let Some(slot) = pick(rng, &staying) {
            let own = run.cluster.generation(slot);
            run.cluster.with_control(|control, cx| control.silence(cx, own));
        }
    }
}
