//! Damage while the array is degraded: blocks are corrupted or become unreadable while a device is out or returning. So a row may
//! lose more than its redundancy covers. Then reads must report the loss and never return other content, the rest must heal, and
//! writes must restore the lost blocks.

use crate::activity::{Activity, Draw, Feature, Options};
use crate::at_rest::outcome_at_rest;
use crate::availability::Cause;
use crate::cluster::{Cluster, Failed, failed, state_of};
use crate::damage_places::{self, Row};
use crate::prelude::*;
use crate::swarm::{FOR_EVER, Run};
use braid_wire::Failure;

/// The largest number of blocks damaged in a run.
const BLOCKS_MAX: u32 = 12;

#[derive(Clone, Debug)]
pub(crate) struct DegradedDamage {
    /// How many blocks of each row were damaged.
    damaged: BTreeMap<Row, u32>,
}

impl Feature for DegradedDamage {
    const NAME: &'static str = "damage-degraded";
    const ONE_IN: u64 = 10;
    const EVERY: Option<[u64; 3]> = Some([10, 50, 300]);
    // An attribute volume, or an object on one device, would lose data; and an array must serve without its dead devices at no loss.
    const NOT_WITH: &'static [&'static str] = &["attribute-volumes", "dead", "volumes", "migrate", "calm"];
    const EXCUSES: fn(&HostError) -> bool =
        |error| matches!(error, HostError::Device { failure: Failure::Lost { .. }, .. });

    fn draw(options: &mut Options, draw: &mut Draw) -> Option<DegradedDamage> {
        if options.layout.redundancy_units() == 0 {
            return None;
        }
        // Other damage would have to be distinguished from this.
        options.without_faults(&[FaultKind::Corruption, FaultKind::Unreadable, FaultKind::Misdirected]);
        if draw.choices.may(FaultKind::DeviceCrash.name()) {
            options.faults.weights.insert(FaultKind::DeviceCrash, 10);
        }
        // One more host restores the lost blocks.
        if options.activities.has("disconnect") {
            options.settings.hosts_max += 1;
        }
        Some(DegradedDamage { damaged: BTreeMap::new() })
    }
}

impl Activity for DegradedDamage {
    fn act(&mut self, run: &mut Run, rng: &mut Rng) {
        if self.damaged.values().sum::<u32>() < BLOCKS_MAX && is_degraded(&run.cluster) {
            self.damage_a_block(run, rng);
        }
    }

    fn at_rest(&mut self, run: &mut Run, _rng: &mut Rng, _is_last: bool) -> Result<(), Failed> {
        if self.damaged.is_empty() {
            return Ok(());
        }
        self.make_whole(run)?;
        run.come_to_rest()
    }
}

impl DegradedDamage {
    fn damage_a_block(&mut self, run: &mut Run, rng: &mut Rng) {
        let places = damage_places::places(&run.cluster);
        if places.is_empty() {
            return;
        }
        let (row, place) = places[rng.below(places.len() as u64) as usize].clone();
        let disk = run.cluster.world.disk_mut(place.node).expect("devices have disks");
        let rots = rng.chance(1, 2);
        let damaged = if rots { disk.corrupt(place.bytes) } else { disk.lose(place.bytes) };
        if damaged.is_some() {
            run.count_fault("block damaged while degraded");
            // Operations that need the block wait for the device that is unavailable, or fail.
            run.availability.begin(run.cluster.world.now(), "block damaged while degraded", Cause::Other, FOR_EVER);
            *self.damaged.entry(row).or_default() += 1;
        }
    }

    /// All devices have returned: blocks that redundancy covers must be repaired, and only blocks of damaged rows may be lost. Writes
    /// restore the lost blocks.
    fn make_whole(&mut self, run: &mut Run) -> Result<(), Failed> {
        let host = run.cluster.add_host();
        let volume = run.cluster.volume().clone();
        let rows = damage_places::rows(&run.cluster);
        let scrub = JobRequest::Scrub { volume: volume.id, stripes: 0..u64::MAX, repair: true, recompute: false };
        let scrubbed = outcome_at_rest(&mut run.cluster, |array| array.ask(host, scrub.clone()))?;
        if !matches!(scrubbed, Ok(HostSuccess::Scrubbed(_))) {
            return failed("not-scrubbed", format!("{scrubbed:?}"));
        }
        let (block_bytes, stripe_bytes) = (BLOCK_BYTES as u64, volume.layout.stripe_blocks() * BLOCK_BYTES as u64);
        for stripe in 0..volume.stripes() {
            let bytes = stripe * stripe_bytes..volume.bytes.min((stripe + 1) * stripe_bytes);
            let mut lost = 0;
            for offset in bytes.clone().step_by(BLOCK_BYTES) {
                let outcome = outcome_at_rest(&mut run.cluster, |array| array.read(host, offset, block_bytes))?;
                let row = rows[&volume.layout.locate(offset / block_bytes)];
                match outcome {
                    Ok(_) => {}
                    Err(HostError::Device { failure: Failure::Lost { .. }, .. }) if self.damaged.contains_key(&row) => {
                        run.count_fault("block lost while degraded");
                        lost += 1;
                    }
                    Err(error) => {
                        let details = format!("block {} of row {row:?}: {error}", offset / block_bytes);
                        return failed("lost-undamaged", details);
                    }
                }
            }
            if lost > 0 {
                let length = bytes.end - bytes.start;
                let written = outcome_at_rest(&mut run.cluster, |array| array.write(host, bytes.start, length))?;
                if let Err(error) = written {
                    let details = format!("stripe {stripe}, of which {lost} blocks are lost: {error}");
                    return failed("not-made-whole", details);
                }
            }
        }
        Ok(())
    }
}

/// True if a device of the volume is out or returning.
fn is_degraded(cluster: &Cluster) -> bool {
    let is_unavailable =
        |device: &DeviceId| state_of(cluster, *device).is_some_and(|member_state| member_state != MemberState::In);
    cluster.volume().devices.iter().any(is_unavailable)
}
