//! An operator of the array at a host: the operations of the control plane that scenarios consist of, and that activities begin.

use super::Cluster;
use crate::control::administrator_state::{Administrator, Name};
use crate::control::store::volume_entry;
use crate::prelude::*;
use crate::role::HostSlot;
use braid_control_protocol::{Change, Creation, Error, Migration, Operation, Timing, VolumeChange};
use braid_layout::Placement;

/// The longest time that a scenario waits for a change.
const CHANGE_MAX: Duration = Duration::from_secs(120);

/// An operator at a host.
pub struct Operator<'a> {
    cluster: &'a mut Cluster,
    by: HostSlot,
}

impl Cluster {
    /// The operator at this host.
    pub fn operator(&mut self, by: HostSlot) -> Operator<'_> {
        Operator { cluster: self, by }
    }
}

impl Operator<'_> {
    fn own(&self) -> Generation {
        self.cluster.generation(self.by)
    }

    /// Changes the ordering of the volume. Operations may be in progress: they end, and later ones wait.
    pub fn set_ordering(&mut self, ordering: Ordering) -> Result<(), Error> {
        self.change(Change::Ordering(ordering))
    }

    /// Begins to change the ordering of a volume. Other hosts complete the change if this one dies.
    pub fn begin_set_ordering(&mut self, volume: VolumeId, ordering: Ordering) {
        let change = VolumeChange::new(self.own(), Change::Ordering(ordering), Timing::default());
        self.begin_on(Subject::Volume(volume, None), change.into());
    }

    /// Begins to create another volume. Other hosts complete what this one leaves.
    pub fn begin_creation(&mut self, volume: VolumeDescription) {
        let subject = Subject::Volume(volume.id, Some(Box::new(volume_entry(&volume))));
        self.begin_on(subject, Creation::of(self.own(), volume, Timing::default()).into());
    }

    /// Begins a migration: devices make room for the second layout, then all nodes learn of it.
    pub fn begin_move(&mut self, layout: Layout, devices: Vec<DeviceId>) -> Result<(), Error> {
        let layout = layout.beginning_at(self.cluster.volume.place_for(&layout));
        self.change(Change::Move(Placement { layout, devices }))
    }

    /// Starts to copy, from this block on.
    pub fn copy_all(&mut self, from: u64) -> OpId {
        let volume = self.cluster.volume.id;
        self.cluster.ask(self.by, JobRequest::Migrate { volume, from, bytes_per_second: 0 })
    }

    /// Continues a migration to its end: copies the remaining blocks. Afterwards the volume has only its new layout.
    pub fn end_move(&mut self) -> Result<(), Error> {
        self.operate(Migration::continuing(self.own(), Timing::default()).into())
    }

    /// Cancels a migration: the volume keeps only its old layout.
    pub fn give_up_move(&mut self) -> Result<(), Error> {
        self.change(Change::GiveUpMove)
    }

    fn change(&mut self, change: Change) -> Result<(), Error> {
        self.operate(VolumeChange::new(self.own(), change, Timing::default()).into())
    }

    /// Performs an operation on the volume, until all hosts know of it. Unless a run has a control plane, there is one for this operation
    /// only.
    fn operate(&mut self, operation: Operation) -> Result<(), Error> {
        let is_for_this = self.cluster.control.is_none();
        let until = self.cluster.world.now().after(CHANGE_MAX);
        while self.cluster.administers(self.by) && self.cluster.pass(until) {}
        let own = self.begin(operation);
        let cluster = &mut *self.cluster;
        let result = |cluster: &Cluster| cluster.control.as_ref().and_then(|control| control.result_of(own));
        while result(cluster).is_none() && cluster.pass(until) {}
        let result = result(cluster).unwrap_or_else(|| panic!("an operation did not end within {CHANGE_MAX:?}"));
        let is_up = |cluster: &Cluster, host| cluster.slot_of(host).is_some();
        let is_followed = |cluster: &Cluster| {
            cluster.control.as_ref().is_none_or(|control| control.is_followed(|host| is_up(cluster, host)))
        };
        while !is_followed(cluster) && cluster.pass(until) {}
        if is_for_this {
            cluster.control = None;
        }
        result.map(drop)
    }

    /// Begins an operation on the volume.
    pub(crate) fn begin(&mut self, operation: Operation) -> Name {
        self.begin_on(Subject::Volume(self.cluster.volume.id, None), operation)
    }

    /// The same for any volume, device or file system. The array has a control plane from then on.
    pub(crate) fn begin_on(&mut self, subject: Subject, operation: Operation) -> Name {
        if self.cluster.control.is_none() {
            self.cluster.begin_control(None);
        }
        let (own, process) = (self.own(), Administrator::of_its_own(subject, operation));
        let begun = self.cluster.with_control(|control, cx| control.begin_administrator(cx, own, process));
        begun.expect("there is a control plane")
    }
}
