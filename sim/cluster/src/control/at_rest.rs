//! What must be true of the control plane when the array is at rest.

use super::ControlPlane;
use super::store::{LAST_FILE_SYSTEM, Store};
use crate::cluster::{Cluster, Failed, failed};
use crate::prelude::*;
use braid_description::FileSystemState;

/// Checks that no hold is left: at rest, every change is complete or reverted, all hosts know it, and no administrator is at work.
pub(crate) fn check_hold(cluster: &Cluster) -> Result<(), Failed> {
    let Some(ControlPlane { store, processes, .. }) = cluster.control.as_deref() else { return Ok(()) };
    if store.unsettled().next().is_some() {
        let records = store.records();
        return failed("left-hold", format!("a volume is still on hold, or half created or deleted: {records:?}"));
    }
    if store.unsettled_devices().next().is_some() {
        let devices: Vec<_> = store.devices().collect();
        return failed("left-hold", format!("a device is half added or removed: {devices:?}"));
    }
    if let Some(own) = processes.working.keys().find(|own| cluster.slot_of(own.host).is_some()) {
        return failed("left-administrator", format!("{own:?} is still at work"));
    }
    check_file_systems(store, cluster.monitor())?;
    check_devices(cluster, store)?;
    check_parts(cluster, store)
}

/// Checks that nothing is half done at rest: each file system is ready, and only those that there are have volumes, owners or announcements.
fn check_file_systems(store: &Store, monitor: Option<&Monitor>) -> Result<(), Failed> {
    let description = store.description();
    let (entries, volumes) = (&description.file_systems, &description.volumes);
    let of_none =
        |name: &str| name.contains('.') && !entries.iter().any(|entry| entry.volumes().contains(&name.into()));
    if let Some(entry) = entries.iter().find(|entry| entry.state != FileSystemState::Ready) {
        return failed("left-hold", format!("a file system is half created or deleted: {entry:?}"));
    }
    if let Some(volume) = volumes.iter().find(|volume| of_none(&volume.name)) {
        return failed("left-volume", format!("it belongs to no file system: {volume:?}"));
    }
    let is_there =
        |id: FileSystemId| id.0 <= LAST_FILE_SYSTEM || entries.iter().any(|entry| entry.servers().contains(&id));
    let mut owned = monitor.into_iter().flat_map(Monitor::owners).filter(|(_, ownership)| ownership.owner.is_some());
    match owned.find(|(id, _)| !is_there(*id)) {
        Some(left) => failed("left-owner", format!("there is no such file system: {left:?}")),
        None => Ok(()),
    }
}

/// Checks that the monitor has exactly the devices that the store has.
fn check_devices(cluster: &Cluster, store: &Store) -> Result<(), Failed> {
    let Some(membership) = cluster.membership() else { return Ok(()) };
    let has: Vec<DeviceId> = membership.members.iter().map(|member| member.device).collect();
    let should: Vec<DeviceId> = store.devices().map(|(device, _)| device).collect();
    if has == should {
        return Ok(());
    }
    let details = format!("the monitor has {has:?}, the store {:?}", store.devices().collect::<Vec<_>>());
    failed("device-without-record", details)
}

/// Checks that devices hold parts of exactly the volumes that there are.
fn check_parts(cluster: &Cluster, store: &Store) -> Result<(), Failed> {
    for number in 1..store.next_volume().0 {
        let volume = VolumeId(number);
        let record = store.record(volume);
        for device in cluster.devices().into_iter().filter(|device| !cluster.device_notes.dead.contains(device)) {
            let Some(machine) = cluster.device(device) else { continue };
            let has_part = machine.store().object(volume.object()).is_some();
            let should = record.is_some_and(|record| record.volume.object_on(device).is_some());
            if has_part != should {
                let details = format!("{device} has a part of {volume:?}: {has_part}; the record: {record:?}");
                return failed("part-of-a-volume", details);
            }
        }
    }
    Ok(())
}
