//! Changes of a volume by the control plane, as operations of scenarios; and migrations of swarm runs.

use crate::cluster::{Cluster, Failed, HostSlot};
use crate::role::Role;
use crate::swarm::{AFTERMATH, Run};
use braid_base::DeviceId;
use braid_control_protocol::{Change, Error};
use braid_layout::{Layout, Placement, RaidLevel};
use braid_machine::{HostSuccess, JobRequest, OpId};
use braid_ordering::Ordering;

impl Cluster {
    /// Changes the ordering of the volume. Operations may be in progress: they end, and later ones wait.
    pub fn set_ordering(&mut self, by: HostSlot, ordering: Ordering) -> Result<(), Error> {
        self.change(by, Change::Ordering(ordering))
    }

    /// Begins to change the ordering. The array has a control plane from then on, in which other hosts complete the change if this one dies.
    pub fn begin_set_ordering(&mut self, by: HostSlot, ordering: Ordering) {
        if self.control.is_none() {
            self.begin_control(None);
        }
        self.begin_change(by, Change::Ordering(ordering));
    }

    /// Begins a migration: devices make room for the second layout, then all nodes learn of it.
    pub fn begin_move(&mut self, by: HostSlot, layout: Layout, devices: Vec<DeviceId>) -> Result<(), Error> {
        let layout = layout.beginning_at(self.volume.place_for(&layout));
        self.change(by, Change::Move(Placement { layout, devices }))
    }

    /// Starts to copy, from this block on.
    pub fn copy_all(&mut self, by: HostSlot, from: u64) -> OpId {
        self.ask(by, JobRequest::Migrate { volume: self.volume.id, from, bytes_per_second: 0 })
    }

    /// Ends a migration: the volume keeps only its new layout. All blocks must have been copied.
    pub fn end_move(&mut self, by: HostSlot) -> Result<(), Error> {
        self.change(by, Change::EndMove)
    }

    /// Cancels a migration: the volume keeps only its old layout.
    pub fn give_up_move(&mut self, by: HostSlot) -> Result<(), Error> {
        self.change(by, Change::GiveUpMove)
    }

    /// True if no host has an operation on the volume in progress.
    pub fn is_volume_idle(&self) -> bool {
        let idle = |slot: HostSlot| match self.world.machine(self.node(slot)) {
            Some(Role::Host(host)) => host.is_idle_for(self.volume.id),
            _ => true,
        };
        self.slots().all(idle)
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

fn refused(error: &Error) -> Failed {
    Failed { check: "move-refused", details: format!("{error:?}") }
}
