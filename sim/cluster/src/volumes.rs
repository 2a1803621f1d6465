//! Several volumes on the same devices, each with its own layout and ordering. The seed determines them. They are created and removed as
//! the control plane of a real array does it.

use crate::cluster::{AFTERMATH, Cluster, HostSlot};
use crate::control::store::ready_entry;
use crate::drawn_volume::MoreVolume;
use crate::prelude::*;
use braid_description::ArrayDescription;
use braid_machine::ControlRequest;
use braid_wire::Failure;

impl Cluster {
    /// All volumes, the first one first.
    pub fn volumes(&self) -> Vec<VolumeDescription> {
        [&self.volume].into_iter().chain(&self.others).cloned().collect()
    }

    /// Executes `act` with another volume as the current one.
    pub(crate) fn on_volume<T>(&mut self, number: usize, act: impl FnOnce(&mut Cluster) -> T) -> T {
        std::mem::swap(&mut self.volume, &mut self.others[number]);
        let outcome = act(self);
        std::mem::swap(&mut self.volume, &mut self.others[number]);
        outcome
    }
}

/// Has the leading one of several monitors change the description in the registry.
pub(crate) fn change_description(cluster: &mut Cluster, change: impl FnMut(&mut ArrayDescription) + 'static) {
    let Some(candidates) = &mut cluster.candidates else { return };
    candidates.change(Box::new(change));
    let until = cluster.world.now().after(AFTERMATH);
    while cluster.candidates.as_ref().is_some_and(|candidates| candidates.is_changing()) && cluster.pass(until) {}
    assert!(cluster.world.now() < until, "the leader does not change the description within {AFTERMATH:?}");
}

/// Creates another volume: first at the devices, then at the monitor, then at the hosts.
pub(crate) fn make_volume(cluster: &mut Cluster, by: HostSlot, more: &MoreVolume) -> Result<(), HostError> {
    let highest = cluster.volumes().iter().chain(&cluster.removed).map(|volume| volume.id.0).max();
    let id = VolumeId(highest.expect("there is a volume") + 1);
    let volume = more.describe(id, cluster.devices().len());
    let VolumeDescription { layout, ordering, .. } = volume;
    let BlockRange { start: first, count: blocks } = volume.component();
    let (object, atomicity, redundant) = (volume.id.object(), volume.atomicity, layout.redundancy_units() > 0);
    for device in volume.devices.clone() {
        let task = Task::CreateObject { object, first, blocks, ordering, redundant, atomicity, absent: 0 };
        manage(cluster, by, device, task)?;
    }
    cluster.others.push(volume.clone());
    let entry = ready_entry(&volume);
    let enter = move |next: &mut ArrayDescription| {
        if next.volumes.iter().all(|other| other.id != entry.id) {
            next.next_volume = next.next_volume.max(entry.id + 1);
            next.volumes.push(entry.clone());
        }
    };
    change_description(cluster, enter);
    tell_monitor(cluster, ControlRequest::AdoptVolume { volume: volume.clone() });
    tell_hosts(cluster, &ArrayRequest::AdoptVolume { volume })
}

/// Removes a volume without users: first at the hosts, last at the monitor.
pub(crate) fn remove_volume(cluster: &mut Cluster, by: HostSlot, number: usize) -> Result<(), HostError> {
    let volume = cluster.others[number].clone();
    tell_hosts(cluster, &ArrayRequest::DropVolume { volume: volume.id })?;
    for device in &volume.devices {
        manage(cluster, by, *device, Task::RemoveObject { object: volume.id.object() })?;
    }
    let id = volume.id.0;
    change_description(cluster, move |next| next.volumes.retain(|entry| entry.id != id));
    tell_monitor(cluster, ControlRequest::DropVolume { volume: volume.id });
    cluster.removed.push(cluster.others.remove(number));
    Ok(())
}

pub(crate) fn tell_monitor_of_volume(cluster: &mut Cluster) {
    let stored = cluster.control.as_ref().map(|control| control.store.volumes_for_monitor());
    for volume in stored.unwrap_or_else(|| cluster.volumes()) {
        tell_monitor(cluster, ControlRequest::AdoptVolume { volume });
    }
}

/// Tells the one monitor. A leader has it from the registry.
pub(crate) fn tell_monitor(cluster: &mut Cluster, request: ControlRequest) {
    if cluster.candidates.is_none() {
        let op = cluster.requests.next_number();
        cluster.world.request(NodeId::Monitor, op, request);
    }
}

fn manage(cluster: &mut Cluster, by: HostSlot, device: DeviceId, task: Task) -> Result<(), HostError> {
    let until = cluster.world.now().after(AFTERMATH);
    loop {
        match cluster.perform(by, ArrayRequest::Manage { device, task: task.clone() }) {
            // The state of the last reads goes when devices have learned that the reads are answered.
            Err(HostError::Device { failure: Failure::InUse, .. }) if cluster.world.now() < until => {
                cluster.run_for(Duration::from_millis(100));
            }
            outcome => return outcome.map(drop),
        }
    }
}

fn tell_hosts(cluster: &mut Cluster, request: &ArrayRequest) -> Result<(), HostError> {
    for slot in cluster.slots().collect::<Vec<_>>() {
        if cluster.role(slot).is_some_and(|role| role.host().is_some()) {
            cluster.perform(slot, request.clone())?;
        }
    }
    Ok(())
}
