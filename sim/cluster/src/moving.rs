//! Changes of a volume by the control plane, as operations of scenarios; and the runs in which the volume moves.

use crate::activity::{Activity, Draw, Feature};
use crate::cluster::{Cluster, HostSlot};
use crate::control::store::volume_entry;
use crate::options::Options;
use crate::role::Role;
use braid_base::DeviceId;
use braid_control_protocol::{Administrator, Change, Creation, Error, Migration, Timing};
use braid_description::Subject;
use braid_layout::{Layout, Placement, VolumeDescription};
use braid_machine::{JobRequest, OpId};
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
        let own = self.generation(by);
        let administrator = Administrator::changing(own, Change::Ordering(ordering), Timing::default());
        self.begin_operation(by, administrator.into());
    }

    /// Begins to create another volume. The array has a control plane from then on, in which other hosts complete what this one leaves.
    pub fn begin_creation(&mut self, by: HostSlot, volume: VolumeDescription) {
        if self.control.is_none() {
            self.begin_control(None);
        }
        let entry = Box::new(volume_entry(&volume));
        let (own, subject) = (self.generation(by), Subject::Volume(volume.id, Some(entry)));
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
            Some(Role::Host(host)) => host.host().is_idle_for(self.volume.id),
            _ => true,
        };
        self.slots().all(idle)
    }
}

/// The volume moves during the run: its changes are drawn and made by [`crate::control::ChangeOptions`].
#[derive(Clone, Debug)]
pub(crate) struct Migrate;

impl Activity for Migrate {}

impl Feature for Migrate {
    const NAME: &'static str = "migrate";
    const ONE_IN: u64 = 12;

    fn draw(options: &mut Options, draw: &mut Draw) -> Option<Migrate> {
        if options.ordering == Ordering::None {
            return None;
        }
        // During a migration twice as much is written, so space must not be short. Several lock servers divide the locks by the place
        // of stripes, and then volumes are not migrated.
        options.lock_servers = options.lock_servers.min(1);
        // The blocks written to both layouts must fit into a batch of the journal.
        (options.chunks, options.journal_bytes) = (None, None);
        options.other_devices = draw.rng.below(4) as u16;
        Some(Migrate)
    }
}
