//! Damage to records: a device's superblock, journal and chunk map, and the monitor's record. It happens while their machine is down,
//! so that the machine finds it at its start.
//!
//! A record with a second copy must be restored from that. Any other damage means that the device has lost its content: it must
//! report this instead of serving, and its operator gives it an empty disk. The redundancy of the volumes covers this loss, so no
//! user may notice it.

use crate::availability::Cause;
use crate::cluster::Cluster;
use crate::damage::{self, Record};
use crate::fault_events::FaultEvent;
use crate::options::{Choices, Options};
use crate::role::Role;
use crate::swarm::{FOR_EVER, Run};
use braid_base::{DeviceId, DiskId, MemberState, NodeId, Time};
use braid_device::Service;
use braid_machine::{ArrayRequest, DiskError, OpId};
use braid_ordering::Atomicity;
use braid_store::StoreError;
use braid_wire::Administration;
use braid_world::FaultKind;
use std::time::Duration;

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
pub(crate) struct Ruined {
    device: DeviceId,
    /// The replacement disk, if the device has reported that it lost its content.
    disk: Option<DiskId>,
    /// The last request for that disk.
    asked: Option<(OpId, Time)>,
}

impl Options {
    /// Adds damage of records to some seeds; if the choices name it, to all seeds in which it is possible.
    pub(crate) fn with_record_damage(mut self, choices: &Choices) -> Options {
        let kind = FaultKind::RecordDamage;
        // Objects on one device would be lost with it.
        let may = choices.kinds().contains(&kind)
            && self.atomicity == Atomicity::Implied
            && self.layout.redundancy_units() > 0
            && self.objects.is_none()
            && self.dying.is_empty()
            && self.more_volumes.is_empty()
            && self.damage_degraded.is_none()
            && !self.moves
            && !self.faults.has(FaultKind::Calm);
        let named = choices.only.contains(&kind) || choices.also.contains(&kind);
        let rng = &mut self.source("record-damage");
        if !may || !(rng.below(10) == 0 || named) {
            return self;
        }
        // Together with other losses, the damage would exceed the redundancy.
        let others = [
            FaultKind::Corruption,
            FaultKind::Unreadable,
            FaultKind::Replace,
            FaultKind::Misdirected,
            FaultKind::DiskError,
        ];
        self.faults.weights.retain(|kind, _| !others.contains(kind));
        let every = Duration::from_millis([200, 1_000, 3_000][rng.below(3) as usize]);
        Options { record_damage: Some(every), ..self }
    }
}

impl Run {
    /// Begins damage of records, if the run has it.
    pub(crate) fn begin_record_damage(&mut self) {
        if self.cluster.options.record_damage.is_some() {
            self.plan_disks();
        }
        self.plan_record_damage();
    }

    /// Schedules damage of records, if the run has it.
    pub(crate) fn plan_record_damage(&mut self) {
        if let Some(every) = self.cluster.options.record_damage {
            let pause = self.record_rng.below(2 * every.as_nanos() as u64) + 1;
            self.plan_fault(Duration::from_nanos(pause), FaultEvent::RecordDamage);
        }
    }

    pub(crate) fn damage_a_record_and_plan_next(&mut self) {
        let part = PARTS[self.record_rng.below(PARTS.len() as u64) as usize];
        let unavailable = Duration::from_millis([20, 500, 3_000][self.record_rng.below(3) as usize]);
        if part == Part::Monitor {
            self.damage_the_monitor(unavailable);
        } else if self.ruined.is_none() && !self.cluster.replacing && self.cluster.is_well() {
            self.damage_a_device(part, unavailable);
        }
        self.plan_record_damage();
    }

    /// Makes a device lose power, and damages one of its records before it returns.
    fn damage_a_device(&mut self, part: Part, unavailable: Duration) {
        let devices = self.cluster.volume().devices.clone();
        let device = devices[self.record_rng.below(devices.len() as u64) as usize];
        let node = NodeId::Device(device);
        self.crash_plans.remove(&node);
        self.cluster.world.disk_mut(node).expect("devices have disks").spare();
        self.crash(node);
        self.availability.begin(self.cluster.world.now(), RUINED, Cause::Device(device), FOR_EVER);
        (self.ruined, self.cluster.replacing) = (Some(Ruined { device, disk: None, asked: None }), true);
        self.plan_fault(unavailable, FaultEvent::Return { node, reboot: false });
        let disk = self.cluster.world.disk_mut(node).expect("devices have disks");
        let records: Vec<Record> = match part {
            Part::Superblock => damage::superblocks(disk),
            Part::Map => damage::map_pages(disk),
            Part::Journal | Part::Monitor => damage::batches(disk).into_iter().map(|batch| vec![batch]).collect(),
        };
        if records.is_empty() {
            return;
        }
        let mut copies = records[self.record_rng.below(records.len() as u64) as usize].clone();
        // Both copies of a page may be damaged, since the redundancy covers a whole device.
        if self.record_rng.chance(1, 2) {
            copies.reverse();
        }
        if self.record_rng.chance(3, 4) {
            copies.truncate(1);
        }
        let unreadable = self.record_rng.chance(1, 4);
        let damage = |bytes| if unreadable { disk.lose(bytes) } else { disk.corrupt(bytes) };
        let damaged = copies.into_iter().filter_map(damage).count();
        let kind = match (part, damaged) {
            (_, 0) => return,
            (Part::Superblock, _) => "superblock damaged",
            (Part::Map, 1) => "map page damaged",
            (Part::Map, _) => "map page damaged twice",
            (Part::Journal | Part::Monitor, _) => "journal damaged",
        };
        self.count_fault(kind);
    }

    /// Makes the monitor lose power, and damages one copy of its record, if both copies are undamaged and equal.
    fn damage_the_monitor(&mut self, unavailable: Duration) {
        let node = NodeId::Monitor;
        if self.cluster.world.machine(node).is_none() || self.crash_plans.contains_key(&node) {
            return;
        }
        self.crash(node);
        self.availability.begin(self.cluster.world.now(), "monitor's record damaged", Cause::Monitor, unavailable);
        self.plan_fault(unavailable, FaultEvent::Return { node, reboot: false });
        let disk = self.cluster.world.disk_mut(node).expect("the monitor has a disk");
        let Some(copies) = damage::twice_recorded(disk, braid_membership::DISK_BYTES) else { return };
        let copy = copies[self.record_rng.below(2) as usize].clone();
        let unreadable = self.record_rng.chance(1, 4);
        let damaged = if unreadable { disk.lose(copy) } else { disk.corrupt(copy) };
        if damaged.is_some() {
            self.count_fault("monitor's record damaged");
        }
    }

    /// The operator checks whether a device with damaged records serves, or reports that it has lost its content.
    pub(crate) fn look_after_ruined(&mut self) {
        let Some(Ruined { device, disk, asked }) = self.ruined else { return };
        let now = self.cluster.world.now();
        let is_right = |disk: DiskId| self.cluster.disk_of(device) == disk;
        if self.cluster.serves_and_is_in(device) && disk.is_none_or(is_right) && !self.cluster.is_any_disk_changing() {
            (self.ruined, self.cluster.replacing) = (None, false);
            self.availability.end(now, RUINED);
            return;
        }
        let waits = asked
            .is_some_and(|(op, at)| now.since(at) < ASK_EVERY || self.cluster.asked().any(|waiting| waiting.op == op));
        if waits || !self.cluster.has_lost_records(device) || self.cluster.is_any_disk_changing() {
            return;
        }
        let up = |slot: &crate::cluster::HostSlot| self.cluster.world.machine(self.cluster.node(*slot)).is_some();
        let Some(host) = self.cluster.slots().find(up) else { return };
        if disk.is_none() {
            self.count_fault("device lost its records");
        }
        let disk = disk.unwrap_or_else(|| self.cluster.new_disk());
        let request = Administration::Replace { device, disk, blocks: self.cluster.disk_blocks(), lose: false };
        let op = self.cluster.ask(host, ArrayRequest::Administer { request });
        self.chores.insert(op);
        self.ruined = Some(Ruined { device, disk: Some(disk), asked: Some((op, now)) });
    }
}

impl Cluster {
    /// True if all devices are in, serve, and have leases that last longer than other nodes rely on.
    fn is_well(&self) -> bool {
        self.is_everybody_there() && self.are_all_in_who_live()
    }

    fn service_of(&self, device: DeviceId) -> Option<&Service> {
        match self.world.machine(NodeId::Device(device)) {
            Some(Role::Device(machine)) => Some(machine.service()),
            _ => None,
        }
    }

    fn serves_and_is_in(&self, device: DeviceId) -> bool {
        let member = self.membership().and_then(|membership| membership.member(device));
        let is_in = member.is_some_and(|member| member.member_state == MemberState::In);
        is_in && self.service_of(device) == Some(&Service::Serving)
    }

    /// True if a device reports that its records are damaged.
    fn has_lost_records(&self, device: DeviceId) -> bool {
        match self.service_of(device) {
            Some(Service::Unusable(error)) => *error != StoreError::Disk(DiskError::Failed),
            _ => false,
        }
    }
}
