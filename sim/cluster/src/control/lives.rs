//! Volumes that are created and deleted during a run, beside the first one, while clients use them.

use super::{ControlPlane, Subject};
use crate::cluster::{Cluster, Failed, HostSlot};
use crate::fault_events::FaultEvent;
use crate::graceful_disconnect::pick;
use crate::role::Role;
use crate::swarm::Run;
use crate::volumes::MoreVolume;
use crate::workload::Workload;
use braid_base::{BLOCK_BYTES, DeviceId, NodeId, VolumeId};
use braid_control_protocol::{Creation, Deletion, Operation, Timing, VolumeRecord, VolumeState};
use braid_layout::VolumeDescription;
use braid_machine::Patience;
use braid_wire::Task;
use std::time::Duration;

/// There are at most so many volumes beside the first one.
const VOLUMES_MAX: usize = 3;

impl Cluster {
    /// Keeps the volumes of the run as the store has them: those that hosts may use, and those that were deleted.
    pub(super) fn note_record(&mut self, volume: VolumeId, record: Option<&VolumeRecord>) {
        if volume == self.volume.id {
            return;
        }
        let place = self.others.iter().position(|other| other.id == volume);
        match (record.filter(|record| record.is_usable()), place) {
            (Some(record), Some(place)) => self.others[place] = record.volume.clone(),
            (Some(record), None) => self.others.push(record.volume.clone()),
            (None, Some(place)) => self.removed.push(self.others.remove(place)),
            (None, None) => {}
        }
    }

    /// An administrator is about to remove a part of a volume: no host that is served may have anything under way there.
    pub(super) fn assert_unused(&self, control: &ControlPlane, volume: VolumeId, task: &Task) {
        let is_deleting = |record: &VolumeRecord| matches!(record.state, VolumeState::Deleting { .. });
        let is_removed = matches!(task, Task::RemoveObject { .. });
        if !is_removed || !control.store.record(volume).is_some_and(is_deleting) {
            return;
        }
        for node in self.hosts.iter().copied() {
            let NodeId::Host(generation) = node else { continue };
            let Some(host) = self.world.machine(node).and_then(Role::host) else { continue };
            let is_served = control.store.leases.has_lease(generation) && !host.is_fenced();
            assert!(!is_served || host.is_idle_for(volume), "{node} still uses {volume:?}, which is being removed");
        }
    }

    /// Checks that devices hold parts of exactly the volumes that there are.
    pub(crate) fn check_parts(&self) -> Result<(), Failed> {
        let Some(control) = &self.control else { return Ok(()) };
        for number in 1..control.store.next_volume().0 {
            let volume = VolumeId(number);
            let record = control.store.record(volume);
            for device in self.devices().into_iter().filter(|device| !self.dead.contains(device)) {
                let Some(Role::Device(machine)) = self.world.machine(NodeId::Device(device)) else { continue };
                let has_part = machine.store().object(volume.object()).is_some();
                let should = record.is_some_and(|record| record.volume.object_on(device).is_some());
                if has_part != should {
                    let details = format!("{device} has a part of {volume:?}: {has_part}; the record: {record:?}");
                    return Err(Failed { check: "part-of-a-volume", details });
                }
            }
        }
        Ok(())
    }

    fn describe(&self, id: VolumeId, more: &MoreVolume) -> VolumeDescription {
        let MoreVolume { layout, first, ordering, stripes } = *more;
        let all = self.devices().len() as u16;
        VolumeDescription {
            id,
            bytes: stripes * layout.stripe_blocks() * BLOCK_BYTES as u64,
            layout,
            devices: (0..layout.devices() as u16).map(|number| DeviceId((first + number) % all)).collect(),
            ordering,
            atomicity: self.volume.atomicity,
            parity_site: Default::default(),
            moving: None,
        }
    }
}

impl Run {
    /// Schedules the next creation or deletion, if the run has them.
    pub(crate) fn plan_life(&mut self) {
        let changes = self.cluster.options.changes.as_ref();
        if let Some(every) = changes.and_then(|changes| changes.lives) {
            let pause = Duration::from_nanos(self.life_rng.below(2 * every.as_nanos() as u64) + 1);
            self.plan_fault(pause, FaultEvent::Life);
        }
    }

    /// Has a host create or delete a volume.
    pub(crate) fn create_or_delete_and_plan_next(&mut self) {
        let staying = self.staying_slots().into_iter();
        // A host performs one operation on a volume at a time, and may be settling what another one has begun.
        let idle: Vec<HostSlot> = staying.filter(|slot| !self.cluster.has_administrators(*slot)).collect();
        if let Some(by) = pick(&mut self.life_rng, &idle) {
            let (volume, operation) = self.draw_life(by);
            self.cluster.begin_operation_on(by, Subject::Volume(volume), operation);
        }
        self.plan_life();
    }

    fn draw_life(&mut self, by: HostSlot) -> (VolumeId, Operation) {
        let (own, timing) = (self.cluster.generation(by), Timing::default());
        let first = self.cluster.volume.id;
        let store = &self.cluster.control.as_ref().expect("the run has a control plane").store;
        let there: Vec<VolumeId> =
            store.records().iter().map(|record| record.volume.id).filter(|volume| *volume != first).collect();
        let unused = store.next_volume();
        let rng = &mut self.life_rng;
        if there.len() == VOLUMES_MAX || (!there.is_empty() && rng.chance(2, 5)) {
            // Also a volume that is being created or deleted.
            let volume = there[rng.below(there.len() as u64) as usize];
            self.count_fault("deletion of a volume");
            return (volume, Deletion::of(own, timing).into());
        }
        let lock_servers = self.cluster.options.lock_servers > 0;
        let all = self.cluster.devices().len();
        let mut drawn = MoreVolume::draw(rng, all, true);
        if drawn.ordering.needs_lock_server() && !lock_servers {
            drawn.ordering = braid_ordering::Ordering::Timestamp;
        }
        // Sometimes with a number that was used.
        let id = if rng.chance(1, 20) { VolumeId(unused.0.saturating_sub(1).max(2)) } else { unused };
        self.count_fault("creation of a volume");
        (id, Creation::of(own, self.cluster.describe(id, &drawn), timing).into())
    }

    /// A client issues an operation on a volume that was created during the run, if there is one. Returns false if not.
    pub(crate) fn wish_of_a_created_volume(&mut self, slot: HostSlot, client: usize) -> bool {
        let has_lives = self.cluster.options.changes.as_ref().is_some_and(|changes| changes.lives.is_some());
        let count = self.cluster.others.len() as u64;
        if !has_lives || count == 0 || !self.life_rng.chance(1, 2) {
            return false;
        }
        let number = self.life_rng.below(count) as usize;
        let volume = &self.cluster.others[number];
        let operation = Workload::new(&volume.layout, volume.stripes(), self.life_rng.fork()).operation();
        self.cluster.on_volume(number, |cluster| cluster.operation_with(slot, client, operation, Patience::Host));
        true
    }
}
