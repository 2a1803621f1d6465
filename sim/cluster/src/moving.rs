//! Migration of a volume: the steps of the control plane of a real array, as operations of scenarios.

use crate::cluster::{Cluster, Failed, HostSlot};
use crate::role::Role;
use crate::swarm::{AFTERMATH, Run};
use braid_base::{BlockRange, DeviceId};
use braid_layout::{Layout, Placement, RaidLevel, VolumeDescription};
use braid_machine::{HostError, HostOutcome, HostRequest, HostSuccess, OpId};
use braid_wire::Task;

impl Cluster {
    /// Begins a migration: devices make room for the second layout, then all nodes learn of it. No operation may be in progress.
    pub fn begin_move(&mut self, by: HostSlot, layout: Layout, devices: Vec<DeviceId>) -> Result<(), HostError> {
        let layout = layout.beginning_at(self.volume.place_for(&layout));
        let moving = Some(Box::new(Placement { layout, devices }));
        self.change_volume(by, VolumeDescription { moving, ..self.volume.clone() })
    }

    /// Starts to copy, from this block on.
    pub fn copy_all(&mut self, by: HostSlot, from: u64) -> OpId {
        self.ask(by, HostRequest::Migrate { volume: self.volume.id, from, bytes_per_second: 0 })
    }

    /// Ends a migration: the volume keeps only its new layout. All blocks must have been copied, and no operation may be in progress.
    pub fn end_move(&mut self, by: HostSlot) -> Result<(), HostError> {
        let target = self.volume.target().expect("the volume is being migrated");
        self.change_volume(by, target)
    }

    /// Cancels a migration: the volume keeps only its old layout. No operation may be in progress.
    pub fn give_up_move(&mut self, by: HostSlot) -> Result<(), HostError> {
        self.change_volume(by, VolumeDescription { moving: None, ..self.volume.clone() })
    }

    /// True if no host has an operation on the volume in progress.
    pub fn is_volume_idle(&self) -> bool {
        let idle = |slot: HostSlot| match self.world.machine(self.node(slot)) {
            Some(Role::Host(host)) => host.is_idle_for(self.volume.id),
            _ => true,
        };
        self.slots().all(idle)
    }

    /// First the devices get the objects of the new layout, then the monitor and the hosts learn of it. If the migration is
    /// cancelled, the hosts and the monitor learn of it first, so that no host writes to objects that no longer exist.
    fn change_volume(&mut self, by: HostSlot, to: VolumeDescription) -> Result<(), HostError> {
        for device in self.devices() {
            let object = to.id.object();
            let (before, after) = (self.volume.object_on(device), to.object_on(device));
            let task = match (before, after) {
                (None, Some(BlockRange { start: first, count: blocks })) => {
                    let (ordering, atomicity) = (to.ordering, to.atomicity);
                    let redundant = to.layout.redundancy_units() > 0;
                    Task::CreateObject { object, first, blocks, ordering, redundant, atomicity, absent: 0 }
                }
                (Some(_), None) => Task::RemoveObject { object },
                // Also where the object is unchanged: the device then says whether it has undecided transactions.
                (Some(_), Some(range)) => Task::ResizeObject { object, range, absent: BlockRange::new(0, 0) },
                (None, None) => continue,
            };
            let asked = self.ask(by, HostRequest::Manage { device, task });
            self.finish(asked)?;
        }
        self.volume = to;
        self.tell_monitor_of_volume();
        for slot in self.slots().collect::<Vec<_>>() {
            if self.world.machine(self.node(slot)).is_some() {
                let asked = self.ask(slot, HostRequest::AdoptVolume { volume: self.volume.clone() });
                let adopted: HostOutcome = self.finish(asked);
                adopted.expect("a host accepts any volume on known devices");
            }
        }
        Ok(())
    }
}

impl Run {
    /// Between two swarm runs, begins a migration to a random layout on random devices.
    pub(crate) fn begin_move(&mut self) -> Result<(), Failed> {
        let mut devices = self.cluster.devices();
        let redundant = self.cluster.volume.layout.redundancy_units() > 0;
        let schemes: Vec<RaidLevel> = match redundant {
            true => vec![RaidLevel::Raid1 { copies: 2 }, RaidLevel::Raid5 { data: 2 }, RaidLevel::Raid5 { data: 3 }],
            false => vec![RaidLevel::Raid0 { data: 1 }, RaidLevel::Raid0 { data: 2 }, RaidLevel::Raid0 { data: 3 }],
        };
        let fitting: Vec<RaidLevel> = schemes.into_iter().filter(|scheme| scheme.width() <= devices.len()).collect();
        let scheme = fitting[self.rng.below(fitting.len() as u64) as usize];
        while devices.len() as u64 > self.rng.between(scheme.width() as u64, devices.len() as u64) {
            devices.remove(self.rng.below(devices.len() as u64) as usize);
        }
        let by = self.rng.below(devices.len() as u64) as usize;
        devices.rotate_left(by);
        let unit = [1, 2, 4, 16][self.rng.below(4) as usize];
        let layout = Layout::new(scheme, devices.len(), unit).expect("a ring that is wide enough");
        // Messages of dead hosts have arrived after this time.
        self.cluster.run_for(AFTERMATH);
        self.cluster.begin_move(HostSlot(0), layout, devices).map_err(|error| refused(&error))
    }

    /// Makes sure that a host copies, if there is anything to copy.
    pub(crate) fn keep_copying(&mut self) {
        let is_asked = |op: OpId| self.cluster.asked().any(|asked| asked.op == op);
        if self.cluster.volume.moving.is_none() || self.copying.is_some_and(is_asked) {
            return;
        }
        self.copying = self.staying_slots().first().copied().map(|slot| self.cluster.copy_all(slot, 0));
    }

    /// Between two swarm runs, copies the rest and ends the migration, or sometimes cancels it.
    pub(crate) fn end_move(&mut self) -> Result<(), Failed> {
        let by = HostSlot(0);
        let copy = self.cluster.copy_all(by, 0);
        match self.cluster.finish(copy) {
            Ok(HostSuccess::Migrated(report)) if report.lost == 0 => {}
            other => return Err(Failed { check: "not-copied", details: format!("{other:?}") }),
        }
        self.cluster.run_for(AFTERMATH);
        let stays = self.rng.below(4) == 0;
        self.count_fault(if stays { "move given up" } else { "volume moved" });
        let ended = if stays { self.cluster.give_up_move(by) } else { self.cluster.end_move(by) };
        ended.map_err(|error| refused(&error))
    }
}

fn refused(error: &HostError) -> Failed {
    Failed { check: "move-refused", details: error.to_string() }
}
