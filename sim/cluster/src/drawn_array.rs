//! Draws the array of a run: its layout and the number of its devices, the length of the volume, the number of hosts and clients, and the
//! settings of the protocol. What activities need beside that, they add themselves.

use crate::options::{Choices, Options};
use crate::prelude::*;
use braid_world::{Budget, FaultOptions};

impl Options {
    /// The options of a seed with timestamp ordering: its array, its clients and its faults.
    pub(crate) fn by_timestamps(seed: u64, choices: &Choices) -> Options {
        let rng = &mut Rng::new(seed);
        // Units of sixteen blocks, because a store writes whole chunks directly to their place, past its journal.
        let unit_blocks = [1, 1, 2, 2, 4, 4, 16][rng.below(7) as usize];
        let layout = layout(rng, unit_blocks);
        let settings = settings(rng);
        let budget = budget(&settings, choices);
        let tight = [None, None, Some(rng.between(1, 8))][rng.below(3) as usize];
        let options = Options {
            seed,
            stripes: rng.between(1, if unit_blocks > 4 { 2 } else { 6 }),
            hosts: rng.between(1, 4) as usize,
            clients: rng.between(1, 4) as usize,
            think_max: Duration::from_micros([100, 2_000, 30_000][rng.below(3) as usize]),
            swarm: Duration::from_secs(rng.between(2, 20)),
            operations: rng.between(100, 700),
            journal_bytes: [None, Some(1 << 20), Some(2 << 20)][rng.below(3) as usize],
            faults: FaultOptions::draw(rng, &budget),
            settings,
            ..Options::calm_on(layout, 0)
        };
        // Space is reserved so far ahead that a disk that fills up later has hardly any effect.
        let chunks = tight.filter(|_| options.faults.has(FaultKind::FullDisk));
        Options { chunks, ..options }
    }
}

/// Draws a scheme and a ring: as many devices as a stripe has units, a few more, or groups.
fn layout(rng: &mut Rng, unit_blocks: u64) -> Layout {
    let scheme = match rng.below(10) {
        0 => format!("raid0:{}", rng.between(1, 4)),
        1..4 => format!("raid1:{}", rng.between(2, 3)),
        _ => format!("raid5:{}+1", rng.between(2, 5)),
    };
    let scheme: RaidLevel = scheme.parse().expect("a scheme that there is");
    let width = scheme.width() as u64;
    let devices = match rng.below(4) {
        0 => width + rng.between(1, 3),
        1 => 2 * width,
        _ => width,
    };
    Layout::new(scheme, devices as usize, unit_blocks).expect("a ring that is wide enough")
}

/// The budget of a swarm run. `docs/fault-model.md` gives the reasons.
fn budget(settings: &Settings, choices: &Choices) -> Budget {
    Budget {
        kinds: FaultKind::ALL.iter().copied().filter(|kind| choices.may(kind.name())).collect(),
        // Two clocks are at most as far apart as devices tolerate. Floors that were reserved ahead of the faster clock are even
        // further ahead of the slower clock, whose node learns of them.
        skew_max: settings.stamp_ahead_max.as_nanos() as u64 / 2,
        // The rates of two clocks differ by less than a tenth, as leases require.
        rate_ppm_max: 45_000,
        span_max: Duration::from_secs(9),
    }
}

/// Draws time-outs and leases of the protocol.
fn settings(rng: &mut Rng) -> Settings {
    let host_lease = Duration::from_millis([300, 1_000, 4_000][rng.below(3) as usize]);
    Settings {
        stamps_kept: Duration::from_millis([50, 1_000, 10_000][rng.below(3) as usize]),
        host_lease,
        device_lease: host_lease,
        readmission_min: host_lease / 8,
        readmission_max: 2 * host_lease,
        heartbeat: host_lease / 8,
        commit_linger: Duration::from_micros([500, 2_000, 20_000][rng.below(3) as usize]),
        resend_min: Duration::from_millis([5, 50, 500][rng.below(3) as usize]),
        resend_max: Duration::from_millis(rng.between(500, 4_000)),
        request_timeout: Duration::from_secs(rng.between(1, 30)),
        reader_patience: rng.between(1, 4) as u32,
        ..Settings::default()
    }
}
