//! Damage while the array is degraded: blocks are corrupted or become unreadable while a device is out or returning. So a row may
//! lose more than its redundancy covers. Then reads must report the loss and never return other content, the rest must heal, and
//! writes must restore the lost blocks.

use crate::availability::Cause;
use crate::cluster::{Cluster, Failed};
use crate::fault_events::FaultEvent;
use crate::options::{Choices, Options};
use crate::swarm::{FOR_EVER, Run};
use braid_base::{BLOCK_BYTES, DeviceId, MemberState};
use braid_machine::{HostError, HostOutcome, HostSuccess, JobRequest, OpId};
use braid_ordering::Atomicity;
use braid_wire::Failure;
use braid_world::FaultKind;
use std::time::Duration;

/// The largest number of blocks damaged in a run.
const BLOCKS_MAX: u32 = 12;

impl Options {
    /// Adds this damage to some seeds; if the choices name it, to all seeds in which it is possible.
    pub(crate) fn with_degraded_damage(mut self, choices: &Choices) -> Options {
        let kind = FaultKind::DamageDegraded;
        // An attribute volume, or an object on one device, would lose data; and an array must serve without its dead devices at no
        // loss.
        let may = choices.kinds().contains(&kind)
            && self.atomicity == Atomicity::Implied
            && self.layout.redundancy_units() > 0
            && self.attribute_volume.is_none()
            && self.dying.is_empty()
            && self.more_volumes.is_empty()
            && !self.moves
            && !self.faults.has(FaultKind::Calm);
        let named = choices.only.contains(&kind) || choices.also.contains(&kind);
        let rng = &mut self.source("damage-degraded");
        if !may || !(rng.below(10) == 0 || named) {
            return self;
        }
        // Other damage would have to be distinguished from this.
        let others = [FaultKind::Corruption, FaultKind::Unreadable, FaultKind::Misdirected];
        self.faults.weights.retain(|kind, _| !others.contains(kind));
        if choices.kinds().contains(&FaultKind::DeviceCrash) {
            self.faults.weights.insert(FaultKind::DeviceCrash, 10);
        }
        // One more host restores the lost blocks.
        if self.disconnects.is_some() {
            self.settings.hosts_max += 1;
        }
        let every = Duration::from_millis([10, 50, 300][rng.below(3) as usize]);
        Options { damage_degraded: Some(every), ..self }
    }
}

impl Run {
    /// Schedules the damage, if the run has it.
    pub(crate) fn plan_damage(&mut self) {
        if let Some(every) = self.cluster.options.damage_degraded {
            let pause = self.damage_rng.below(2 * every.as_nanos() as u64) + 1;
            self.plan_fault(Duration::from_nanos(pause), FaultEvent::DamageDegraded);
        }
    }

    pub(crate) fn damage_and_plan_next(&mut self) {
        if self.damaged.values().sum::<u32>() < BLOCKS_MAX && self.cluster.is_degraded() {
            self.damage_a_block();
        }
        self.plan_damage();
    }

    fn damage_a_block(&mut self) {
        let places = self.cluster.places();
        if places.is_empty() {
            return;
        }
        let (row, place) = places[self.damage_rng.below(places.len() as u64) as usize].clone();
        let disk = self.cluster.world.disk_mut(place.node).expect("devices have disks");
        let rots = self.damage_rng.chance(1, 2);
        let damaged = if rots { disk.corrupt(place.bytes) } else { disk.lose(place.bytes) };
        if damaged.is_some() {
            self.count_fault("block damaged while degraded");
            // Operations that need the block wait for the device that is unavailable, or fail.
            self.availability.begin(self.cluster.world.now(), "block damaged while degraded", Cause::Other, FOR_EVER);
            *self.damaged.entry(row).or_default() += 1;
        }
    }

    /// All devices have returned: blocks that redundancy covers must be repaired, and only blocks of damaged rows may be lost. Writes
    /// restore the lost blocks.
    pub(crate) fn make_whole(&mut self) -> Result<(), Failed> {
        if self.damaged.is_empty() {
            return Ok(());
        }
        let host = self.cluster.add_host();
        let volume = self.cluster.volume().clone();
        let rows = self.cluster.rows();
        let scrub = JobRequest::Scrub { volume: volume.id, stripes: 0..u64::MAX, repair: true, recompute: false };
        let scrubbed = self.cluster.outcome_at_rest(|array| array.ask(host, scrub.clone()))?;
        if !matches!(scrubbed, Ok(HostSuccess::Scrubbed(_))) {
            return Err(Failed { check: "not-scrubbed", details: format!("{scrubbed:?}") });
        }
        let (block_bytes, stripe_bytes) = (BLOCK_BYTES as u64, volume.layout.stripe_blocks() * BLOCK_BYTES as u64);
        for stripe in 0..volume.stripes() {
            let bytes = stripe * stripe_bytes..volume.bytes.min((stripe + 1) * stripe_bytes);
            let mut lost = 0;
            for offset in bytes.clone().step_by(BLOCK_BYTES) {
                let outcome = self.cluster.outcome_at_rest(|array| array.read(host, offset, block_bytes))?;
                let row = rows[&volume.layout.locate(offset / block_bytes)];
                match outcome {
                    Ok(_) => {}
                    Err(HostError::Device { failure: Failure::Lost { .. }, .. }) if self.damaged.contains_key(&row) => {
                        self.count_fault("block lost while degraded");
                        lost += 1;
                    }
                    Err(error) => {
                        let details = format!("block {} of row {row:?}: {error}", offset / block_bytes);
                        return Err(Failed { check: "lost-undamaged", details });
                    }
                }
            }
            if lost > 0 {
                let length = bytes.end - bytes.start;
                let written = self.cluster.outcome_at_rest(|array| array.write(host, bytes.start, length))?;
                if let Err(error) = written {
                    let details = format!("stripe {stripe}, of which {lost} blocks are lost: {error}");
                    return Err(Failed { check: "not-made-whole", details });
                }
            }
        }
        Ok(())
    }
}

impl Cluster {
    /// True if a device of the volume is out or returning.
    fn is_degraded(&self) -> bool {
        let is_unavailable = |device: &DeviceId| {
            let member = self.membership().and_then(|membership| membership.member(*device));
            member.is_some_and(|member| member.member_state != MemberState::In)
        };
        self.volume().devices.iter().any(is_unavailable)
    }

    /// The outcome of a request at rest, which only the locks of a dead host may delay.
    fn outcome_at_rest(&mut self, ask: impl Fn(&mut Cluster) -> OpId) -> Result<HostOutcome, Failed> {
        let patience = self.world.now().after(2 * self.options.settings.host_lease);
        loop {
            let op = ask(self);
            let outcome = self.outcome(op, "a host of an array at rest")?;
            let is_lost = matches!(outcome, Err(HostError::Device { failure: Failure::Lost { .. }, .. }));
            let may_wait = self.options.ordering.needs_lock_server() && self.world.now() < patience;
            if outcome.is_ok() || is_lost || !may_wait {
                return Ok(outcome);
            }
        }
    }
}
