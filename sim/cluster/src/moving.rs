//! Changes of a volume by the control plane, as operations of scenarios; and the end of the last migration of a run.

use crate::cluster::{Cluster, Failed, HostSlot};
use crate::control::Subject;
use crate::role::Role;
use crate::swarm::Run;
use braid_base::DeviceId;
use braid_control_protocol::{Administrator, Change, Creation, Error, Migration, Timing};
use braid_layout::{Layout, Placement, VolumeDescription};
use braid_machine::{JobRequest, OpId};
use braid_ordering::Ordering;
use std::time::Duration;

/// The longest time until a migration has ended on a healthy array.
const END_MAX: Duration = Duration::from_secs(120);

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
        let own = self.generation(by);
        let administrator = Administrator::changing(own, Change::Ordering(ordering), Timing::default());
        self.begin_operation(by, administrator.into());
    }

    /// Begins to create another volume. The array has a control plane from then on, in which other hosts complete what this one leaves.
    pub fn begin_creation(&mut self, by: HostSlot, volume: VolumeDescription) {
        if self.control.is_none() {
            self.begin_control(None);
        }
        let (own, subject) = (self.generation(by), Subject::Volume(volume.id));
        self.begin_operation_on(by, subject, Creation::of(own, volume, Timing::default()).into());
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

    /// Continues a migration to its end: copies the remaining blocks. Afterwards the volume has only its new layout.
    pub fn end_move(&mut self, by: HostSlot) -> Result<(), Error> {
        let own = self.generation(by);
        self.operate(by, Migration::continuing(own, Timing::default()))
    }

    /// Cancels a migration: the volume keeps only its old layout.
    pub fn give_up_move(&mut self, by: HostSlot) -> Result<(), Error> {
        self.change(by, Change::GiveUpMove)
    }

    fn change(&mut self, by: HostSlot, change: Change) -> Result<(), Error> {
        let own = self.generation(by);
        self.operate(by, Administrator::changing(own, change, Timing::default()))
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
    /// After the faults, ends the migration that the run has left, in half of the seeds.
    pub(crate) fn end_last_move(&mut self) -> Result<(), Failed> {
        if self.cluster.volume.moving.is_none() || !self.change_rng.chance(1, 2) {
            return Ok(());
        }
        let by = HostSlot(0);
        let own = self.cluster.generation(by);
        self.count_fault("last migration ended");
        self.cluster.begin_operation(by, Migration::continuing(own, Timing::default()).into());
        let until = self.cluster.world.now().after(END_MAX);
        while self.cluster.administers(by)
            && let Some(event) = self.cluster.world.next(until)
        {
            self.on_world_event(event)?;
        }
        match &self.cluster.volume.moving {
            Some(target) => Err(Failed { check: "left-moving", details: format!("to {target:?}") }),
            None => self.come_to_rest(),
        }
    }
}
