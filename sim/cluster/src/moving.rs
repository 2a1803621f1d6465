//! A volume that moves: what the control plane of a real array does, in the words of scenarios.

use crate::cluster::{Cluster, HostSlot};
use crate::role::Role;
use braid_base::{BlockRange, DeviceId};
use braid_layout::{Layout, Placement, VolumeDescription};
use braid_machine::{HostError, HostOutcome, HostRequest, OpId};
use braid_wire::Task;

impl Cluster {
    /// Has the volume lie at another place as well, from now on: its devices make room, then everybody is told. Nothing may be under way.
    pub fn begin_move(&mut self, by: HostSlot, layout: Layout, devices: Vec<DeviceId>) -> Result<(), HostError> {
        let layout = layout.beginning_at(self.volume.place_for(&layout));
        let moving = Some(Box::new(Placement { layout, devices }));
        self.change_volume(by, VolumeDescription { moving, ..self.volume.clone() })
    }

    /// Begins to copy, from this block on.
    pub fn copy_all(&mut self, by: HostSlot, from: u64) -> OpId {
        self.ask(by, HostRequest::Migrate { volume: self.volume.id, from, bytes_per_second: 0 })
    }

    /// Has the volume lie only where it moved to. All must have been copied, and nothing may be under way.
    pub fn end_move(&mut self, by: HostSlot) -> Result<(), HostError> {
        let target = self.volume.target().expect("it moves");
        self.change_volume(by, target)
    }

    /// Has the volume lie only where it was. Nothing may be under way.
    pub fn give_up_move(&mut self, by: HostSlot) -> Result<(), HostError> {
        self.change_volume(by, VolumeDescription { moving: None, ..self.volume.clone() })
    }

    /// True if no host has anything under way on the volume.
    pub fn is_volume_idle(&self) -> bool {
        let idle = |slot: HostSlot| match self.world.machine(self.node(slot)) {
            Some(Role::Host(host)) => host.is_idle_for(self.volume.id),
            _ => true,
        };
        self.slots().all(idle)
    }

    /// Devices have what the volume is to have there, then the monitor and hosts hear of it. Where it is given up, they hear first: no
    /// one is to write what is no more.
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
                (Some(before), Some(range)) if before != range => {
                    Task::ResizeObject { object, range, absent: BlockRange::new(0, 0) }
                }
                _ => continue,
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
                adopted.expect("a host takes any volume whose devices it knows");
            }
        }
        Ok(())
    }
}
