//! Damage to records: a device's superblock, journal and chunk map, and the monitor's record. It happens while their machine is down,
//! so that the machine finds it at its start.
//!
//! A record with a second copy must be restored from that. Any other damage means that the device has lost its content: it must
//! report this instead of serving, and its operator gives it an empty disk. The redundancy of the volumes covers this loss, so no
//! user may notice it.

use crate::activity::{Activity, Draw, Feature, Options};
use crate::availability::Cause;
use crate::cluster::{Cluster, device_notes, state_of};
use crate::damage_places::{self, LOSSES, Record};
use crate::leaks::living_slots;
use crate::permanent_failures;
use crate::prelude::*;
use crate::role::can_serve;
use crate::swarm::{FOR_EVER, Run};
use braid_machine::DiskError;
use braid_store::StoreError;

/// The name of the fault in summaries, which lasts from the damage until the device is complete again.
const RUINED: &str = "record damaged";
/// How often the operator asks for an empty disk.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// The parts of which one is drawn. Records with two copies are drawn more often than the journal, which has one copy.
const PARTS: [Part; 5] = [Part::Journal, Part::Journal, Part::Superblock, Part::Map, Part::Monitor];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Journal,
    Superblock,
    Map,
    Monitor,
}

/// A device whose records were damaged, until it is in again and serves.
#[derive(Clone, Copy, Debug)]
struct Ruined {
    device: DeviceId,
    /// The replacement disk, if the device has reported that it lost its content.
    disk: Option<DiskId>,
    /// The last request for that disk.
    asked: Option<(OpId, Time)>,
}

#[derive(Clone, Debug)]
pub(crate) struct RecordDamage {
    ruined: Option<Ruined>,
}

impl Feature for RecordDamage {
    const NAME: &'static str = "record-damage";
    const ONE_IN: u64 = 10;
    const EVERY: Option<[u64; 3]> = Some([200, 1_000, 3_000]);
    // Objects on one device would be lost with it.
    const NOT_WITH: &'static [&'static str] = &["objects", "dead", "volumes", "damage-degraded", "migrate", "calm"];

    fn draw(options: &mut Options, _: &mut Draw) -> Option<RecordDamage> {
        if options.layout.redundancy_units() == 0 {
            return None;
        }
        // Together with other losses, the damage would exceed the redundancy.
        options.without_faults(&LOSSES);
        Some(RecordDamage { ruined: None })
    }
}

impl Activity for RecordDamage {
    fn start(&mut self, run: &mut Run, _rng: &mut Rng) {
        run.look_after_disks();
    }

    fn act(&mut self, run: &mut Run, rng: &mut Rng) {
        let part = PARTS[rng.below(PARTS.len() as u64) as usize];
        let unavailable = Duration::from_millis([20, 500, 3_000][rng.below(3) as usize]);
        if part == Part::Monitor {
            damage_the_monitor(run, rng, unavailable);
        } else if self.ruined.is_none() && !run.cluster.device_notes.replacing && is_well(&run.cluster) {
            self.damage_a_device(run, rng, part, unavailable);
        }
    }

    /// The operator checks whether a device with damaged records serves, or reports that it has lost its content.
    fn supervise(&mut self, run: &mut Run) {
        let Some(Ruined { device, disk, asked }) = self.ruined else { return };
        let now = run.cluster.world.now();
        let is_right = |disk: DiskId| run.cluster.device_notes.disk_of(device) == disk;
        if serves_and_is_in(&run.cluster, device)
            && disk.is_none_or(is_right)
            && !device_notes::is_any_disk_changing(&run.cluster)
        {
            (self.ruined, run.cluster.device_notes.replacing) = (None, false);
            run.availability.end(now, RUINED);
            return;
        }
        let waits = asked.is_some_and(|(op, at)| now.since(at) < ASK_EVERY || run.cluster.requests.is_open(op));
        if waits || !has_lost_records(&run.cluster, device) || device_notes::is_any_disk_changing(&run.cluster) {
            return;
        }
        let Some(host) = living_slots(&run.cluster).first().copied() else { return };
        if disk.is_none() {
            run.count_fault("device lost its records");
        }
        let disk = disk.unwrap_or_else(|| run.cluster.device_notes.new_disk());
        let request = Administration::Replace { device, disk, blocks: run.cluster.options.disk_blocks(), lose: false };
        let op = run.begin_chore(host, ArrayRequest::Administer { request });
        self.ruined = Some(Ruined { device, disk: Some(disk), asked: Some((op, now)) });
    }
}

impl RecordDamage {
    /// Makes a device lose power, and damages one of its records before it returns.
    fn damage_a_device(&mut self, run: &mut Run, rng: &mut Rng, part: Part, unavailable: Duration) {
        let devices = run.cluster.volume().devices.clone();
        let device = devices[rng.below(devices.len() as u64) as usize];
        let node = NodeId::Device(device);
        run.crash_plans.remove(&node);
        run.cluster.world.disk_mut(node).expect("devices have disks").spare();
        run.crash(node);
        run.availability.begin(run.cluster.world.now(), RUINED, Cause::Device(device), FOR_EVER);
        (self.ruined, run.cluster.device_notes.replacing) = (Some(Ruined { device, disk: None, asked: None }), true);
        run.plan(unavailable, move |run| run.bring_back(node, false));
        let disk = run.cluster.world.disk_mut(node).expect("devices have disks");
        let records: Vec<Record> = match part {
            Part::Superblock => damage_places::superblocks(disk),
            Part::Map => damage_places::map_pages(disk),
            Part::Journal | Part::Monitor => {
                damage_places::batches(disk).into_iter().map(|batch| vec![batch]).collect()
            }
        };
        if records.is_empty() {
            return;
        }
        let mut copies = records[rng.below(records.len() as u64) as usize].clone();
        // Both copies of a page may be damaged, since the redundancy covers a whole device.
        if rng.chance(1, 2) {
            copies.reverse();
        }
        if rng.chance(3, 4) {
            copies.truncate(1);
        }
        let unreadable = rng.chance(1, 4);
        let damage = |bytes| if unreadable { disk.lose(bytes) } else { disk.corrupt(bytes) };
        let damaged = copies.into_iter().filter_map(damage).count();
        let kind = match (part, damaged) {
            (_, 0) => return,
            (Part::Superblock, _) => "superblock damaged",
            (Part::Map, 1) => "map page damaged",
            (Part::Map, _) => "map page damaged twice",
            (Part::Journal | Part::Monitor, _) => "journal damaged",
        };
        run.count_fault(kind);
    }
}

/// Makes the monitor lose power, and damages one copy of its record, if both copies are undamaged and equal.
fn damage_the_monitor(run: &mut Run, rng: &mut Rng, unavailable: Duration) {
    let node = NodeId::Monitor;
    if !run.cluster.world.is_up(node) || run.crash_plans.contains_key(&node) {
        return;
    }
    run.crash(node);
    run.availability.begin(run.cluster.world.now(), "monitor's record damaged", Cause::Monitor, unavailable);
    run.plan(unavailable, move |run| run.bring_back(node, false));
    let disk = run.cluster.world.disk_mut(node).expect("the monitor has a disk");
    let Some(copies) = damage_places::twice_recorded(disk, braid_membership::DISK_BYTES) else { return };
    let copy = copies[rng.below(2) as usize].clone();
    let unreadable = rng.chance(1, 4);
    let damaged = if unreadable { disk.lose(copy) } else { disk.corrupt(copy) };
    if damaged.is_some() {
        run.count_fault("monitor's record damaged");
    }
}

/// True if all devices are in, serve, and have leases that last longer than other nodes rely on.
fn is_well(cluster: &Cluster) -> bool {
    damage_places::is_everybody_there(cluster) && permanent_failures::are_all_in_who_live(cluster)
}

fn serves_and_is_in(cluster: &Cluster, device: DeviceId) -> bool {
    state_of(cluster, device) == Some(MemberState::In) && can_serve(&cluster.world, device)
}

/// True if a device reports that its records are damaged.
fn has_lost_records(cluster: &Cluster, device: DeviceId) -> bool {
    match cluster.device(device).map(|machine| machine.service()) {
        Some(Service::Unusable(error)) => *error != StoreError::Disk(DiskError::Failed),
        _ => false,
    }
}
