//! Volumes: made and deleted with their components on the devices.

use crate::creation::{self, DEFAULT_VOLUME};
use crate::failure::Failure;
use crate::ordering;
use braid_base::units::format_size;
use braid_base::{BLOCK_BYTES, BlockRange, DeviceId};
use braid_control::{ArrayDescription, ArrayFolder, Moment, ReportedState, VolumeEntry, VolumeState};
use braid_layout::{Atomicity, Scheme, VolumeDescription, ring_of};
use braid_machine::{HostError, HostRequest, HostSuccess};
use braid_session::Session;
use braid_shell::HostClient;
use braid_wire::{Managed, Ordering, Task};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

pub use braid_session::{describe, describe_widest, find};

/// How long transactions of others may keep an object from being removed.
const IN_USE_WAIT: Duration = Duration::from_secs(10);
/// The wait before another try to remove it.
const IN_USE_PAUSE: Duration = Duration::from_millis(50);

/// How long the monitor may take to take note of a volume.
const MONITOR_WAIT: Duration = Duration::from_secs(10);
/// The wait before another look whether it has.
const MONITOR_PAUSE: Duration = Duration::from_millis(10);

/// The code of the failure of an array whose first volumes are more than its devices hold.
pub const NO_ROOM: &str = "no-room";
/// Of the room on a new array, this part is left to objects when nobody has said how large its volume is to be.
const FOR_OBJECTS: u64 = 16;
/// The code of the failure of what takes all devices, while one is not in.
pub const DEGRADED: &str = "volume-degraded";
/// Devices set space aside in pieces of so many blocks.
pub const CHUNK_BLOCKS: u64 = 16;
/// Which they tell by 32 bits.
const COMPONENT_BLOCKS_MAX: u64 = u32::MAX as u64 * CHUNK_BLOCKS;

/// What a volume is to be.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its name.
    pub name: String,
    /// Its usable size.
    pub bytes: u64,
    /// Its layout over all devices of the array.
    pub scheme: Scheme,
    /// Bytes of a stripe unit.
    pub unit: u64,
    /// How its requests are kept apart.
    pub ordering: Ordering,
    /// What a failure may leave of a write.
    pub atomicity: Atomicity,
    /// Whether it is to keep attributes, instead of blocks.
    pub attribute_volume: bool,
}

/// Refuses what every one of these devices has to do, if one is not in.
pub fn require_in(folder: &ArrayFolder, devices: &[DeviceId], what: &str) -> Result<(), Failure> {
    // Without a monitor devices have no leases, which whoever asks them finds out.
    let Some(monitor) = folder.monitor(&Moment::now())? else { return Ok(()) };
    let there = monitor.report.devices.iter().filter(|device| devices.contains(&DeviceId(device.id)));
    let missing = there.filter(|device| device.member_state != ReportedState::In);
    let missing: Vec<String> =
        missing.map(|device| format!("device {} is {}", device.id, device.member_state.name())).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let hint = "nothing has changed: try again when `braid status` shows all devices as in";
    Err(Failure::unreachable(DEGRADED, format!("{what} while {}", missing.join(" and "))).hint(hint))
}

/// Makes a volume: its entry, then its components, then it is ready. If the devices can't hold it, nothing of it stays.
pub async fn create(session: &Session, plan: &Plan) -> Result<VolumeEntry, Failure> {
    creation::check_name(&plan.name)?;
    creation::check_multiple("--size", plan.bytes)?;
    let unused = unused_number(session).await?;
    let (entry, revision) = session
        .folder()
        .update(|description| Ok::<_, Failure>((enter(description, plan, unused)?, description.revision + 1)))?;
    let volume = describe(&entry)?;
    let made = async {
        create_components(session.client(), &volume).await?;
        await_monitor(session.folder(), revision).await?;
        // Whoever runs the array starts them when it sees the entry.
        if volume.ordering.needs_lock_server() { ordering::await_lock_servers(session.folder()).await } else { Ok(()) }
    };
    if let Err(failure) = made.await {
        // What can't be removed now is removed by `volume delete`, which the entry then still allows. If another command, asked for the
        // same, has finished it meanwhile, it is that one's.
        if let Ok(true) = change_state(session.folder(), entry.id, is_being_made, VolumeState::Deleting) {
            let _ = remove(session, &entry).await;
        }
        return Err(failure.of(format!("volume {}", plan.name)));
    }
    let is_ready = |state: &VolumeState| is_being_made(state) || matches!(state, VolumeState::Ready);
    if !change_state(session.folder(), entry.id, is_ready, VolumeState::Ready)? {
        // Components that were made after the other command had removed them are of no volume: no other gets this number.
        let _ = remove(session, &entry).await;
        let message = format!("volume {} was given up by another command that was making it, or deleted", plan.name);
        return Err(Failure::failed("volume-gone", message).hint("create it again"));
    }
    Ok(VolumeEntry { state: VolumeState::Ready, ..entry })
}

/// Makes the volumes that the array was created for, when it comes up for the first time.
pub async fn create_initial(session: &Session) -> Result<(), Failure> {
    let description = session.folder().describe()?;
    if description.populated {
        return Ok(());
    }
    let creation = &description.creation;
    let plan = |name: &str, bytes: u64| {
        let (name, unit) = (name.to_string(), creation.unit);
        let (scheme, ordering) = (creation.layout.parse()?, Ordering::Timestamp);
        let (atomicity, attribute_volume) = (Atomicity::Implied, false);
        Ok::<_, Failure>(Plan { name, bytes, scheme, unit, ordering, atomicity, attribute_volume })
    };
    let mut plans = Vec::new();
    for (name, bytes) in &creation.volumes {
        plans.push(plan(name, *bytes)?);
    }
    let layout = creation::layout(creation.layout.parse()?, creation.devices.into(), creation.unit)?;
    let room = room(session).await?;
    let usable = layout.usable_blocks(room) * BLOCK_BYTES as u64;
    if plans.is_empty() {
        let most = layout.usable_blocks(room - room / FOR_OBJECTS) * BLOCK_BYTES as u64;
        plans.push(plan(DEFAULT_VOLUME, most)?);
    } else if description.volumes.is_empty() {
        // All or none: an array with some of its volumes is not what was asked for.
        let component = |plan: &Plan| layout.component_blocks(plan.bytes / BLOCK_BYTES as u64);
        let needed = plans.iter().map(|plan| component(plan).next_multiple_of(CHUNK_BLOCKS));
        if needed.fold(0, u64::saturating_add) > room {
            let asked = plans.iter().map(|plan| plan.bytes).fold(0, u64::saturating_add);
            let (asked, free) = (format_size(asked), format_size(usable));
            return Err(Failure::usage(NO_ROOM, format!("volumes of {asked} asked for, {free} free"))
                .hint("ask for smaller volumes, or for more or larger devices with --devices and --size"));
        }
    }
    for plan in plans {
        // One may have been made before the first start was cut short.
        if description.volume(&plan.name).is_none() {
            create(session, &plan).await?;
        }
    }
    session.folder().update(|description| {
        description.populated = true;
        Ok(())
    })
}

/// Ends what a crash cut short: half-made volumes are made, half-deleted ones deleted. For those whose ordering was being
/// changed see [`crate::ordering::keep_settled`].
pub async fn settle(session: &Session) -> Result<(), Failure> {
    for entry in session.folder().describe()?.volumes {
        match entry.state {
            VolumeState::Ready | VolumeState::Draining { .. } | VolumeState::Reordering { .. } => {}
            VolumeState::Deleting => remove(session, &entry).await?,
            VolumeState::Creating => {
                let volume = describe(&entry)?;
                create_components(session.client(), &volume).await?;
                await_monitor(session.folder(), session.folder().describe()?.revision).await?;
                // If not, whoever was making it has ended that.
                change_state(session.folder(), entry.id, is_being_made, VolumeState::Ready)?;
            }
        }
    }
    Ok(())
}

/// Removes a volume and all it holds.
pub async fn delete(session: &Session, name: &str) -> Result<(), Failure> {
    let description = session.folder().describe()?;
    let entry = match description.volume(name) {
        Some(entry) => entry.clone(),
        // This says which there are.
        None => find(&description, name)?.clone(),
    };
    if !change_state(session.folder(), entry.id, |_| true, VolumeState::Deleting)? {
        return Err(Failure::unreachable("no-such-volume", format!("volume '{name}' was deleted meanwhile")));
    }
    remove(session, &entry).await.map_err(|failure| failure.of(format!("volume {name}")))
}

/// The usable bytes that one more volume of this kind can have.
pub async fn free(session: &Session, scheme: Scheme, unit: u64) -> Result<u64, Failure> {
    let devices = session.folder().describe()?.ready_devices().count();
    let layout = creation::layout(scheme, devices, unit)?;
    Ok(layout.usable_blocks(room(session).await?) * BLOCK_BYTES as u64)
}

/// Blocks that one more object can have on every device of the array.
async fn room(session: &Session) -> Result<u64, Failure> {
    let mut least = u64::MAX;
    for device in session.folder().describe()?.ready_devices() {
        least = least.min(room_on(session, DeviceId(device.id)).await?);
    }
    Ok(least)
}

/// Blocks that objects can have on a device, besides those that they have.
pub async fn room_on(session: &Session, device: DeviceId) -> Result<u64, Failure> {
    let inspect = HostRequest::Manage { device, task: Task::Inspect };
    let HostSuccess::Managed(Managed::Inspected(inspection)) = session.client().call(inspect).await? else {
        return Err(Failure::failed("internal", "a device answered something else than what was asked"));
    };
    let unclaimed = inspection.counters.iter().find(|(name, _)| name == "blocks_unclaimed");
    Ok(unclaimed.map_or(0, |(_, blocks)| *blocks))
}

/// A number above those of all objects that the devices of a new volume hold. The description counts volumes, too; but it may be an older
/// copy that was brought back, which knows nothing of volumes that were made since. With a number of theirs, the new volume would have their
/// content: devices take an object that is there already for one that an earlier try has made.
async fn unused_number(session: &Session) -> Result<u64, Failure> {
    let mut highest = 0;
    for device in session.folder().describe()?.ready_devices() {
        let list = HostRequest::Manage { device: DeviceId(device.id), task: Task::ListObjects };
        let HostSuccess::Managed(Managed::Objects(objects)) = session.client().call(list).await? else {
            return Err(Failure::failed("internal", "a device answered something else than what was asked"));
        };
        highest = objects.into_iter().map(|held| held.object.0).fold(highest, u64::max);
    }
    highest.checked_add(1).ok_or_else(|| Failure::failed("no-number", "all numbers of volumes have been used"))
}

/// Refuses a volume whose components have more blocks than a device can count.
fn check_size(volume: &VolumeDescription) -> Result<(), Failure> {
    let BlockRange { start, count } = volume.component();
    if start.checked_add(count).is_some_and(|end| end <= COMPONENT_BLOCKS_MAX) {
        return Ok(());
    }
    let most = volume.layout.usable_blocks(COMPONENT_BLOCKS_MAX).saturating_mul(BLOCK_BYTES as u64);
    let (size, most) = (format_size(volume.bytes), format_size(most));
    let message = format!("a volume of {size} is too large: on these devices it has at most {most}");
    Err(Failure::usage("too-large", message).hint("make it smaller, or make several volumes"))
}

/// Puts a new volume into the description; or finds the one of a creation that was cut short. A new one has the number `unused`, or a
/// higher one.
fn enter(description: &mut ArrayDescription, plan: &Plan, unused: u64) -> Result<VolumeEntry, Failure> {
    let domains: Vec<(u16, String)> = description.ready_devices().map(|d| (d.id, d.domain.clone())).collect();
    let devices = ring(&domains, plan.scheme)?;
    let layout = creation::layout(plan.scheme, devices.len(), plan.unit)?;
    let entry = VolumeEntry {
        name: plan.name.clone(),
        id: description.next_volume.max(unused),
        bytes: plan.bytes,
        layout: layout.scheme().to_string(),
        unit: plan.unit,
        devices,
        ordering: plan.ordering.name().to_string(),
        atomicity: plan.atomicity.to_string(),
        attribute_volume: plan.attribute_volume,
        first_block: 0,
        moving: None,
        state: VolumeState::Creating,
    };
    match description.volume(&plan.name) {
        None => {}
        Some(begun)
            if begun.state == VolumeState::Creating && *begun == (VolumeEntry { id: begun.id, ..entry.clone() }) =>
        {
            return Ok(begun.clone());
        }
        Some(_) => {
            return Err(Failure::failed("volume-exists", format!("there is a volume '{}' already", plan.name)));
        }
    }
    check_size(&describe(&entry)?)?;
    description.next_volume = entry.id + 1;
    description.volumes.push(entry.clone());
    Ok(entry)
}

/// The devices in an order in which no stripe has two units in one failure domain.
pub fn ring(domains: &[(u16, String)], scheme: Scheme) -> Result<Vec<u16>, Failure> {
    let devices: Vec<(DeviceId, String)> = domains.iter().map(|(id, domain)| (DeviceId(*id), domain.clone())).collect();
    Ok(ring_of(&devices, scheme.width())?.into_iter().map(|id| id.0).collect())
}

async fn remove(session: &Session, entry: &VolumeEntry) -> Result<(), Failure> {
    let volume = describe(entry)?;
    let object = volume.id.object();
    on_devices(session.client(), &volume.holders(), |_| Some(Task::RemoveObject { object })).await?;
    session.folder().update(|description| {
        description.volumes.retain(|other| other.id != entry.id);
        Ok(())
    })
}

/// Changes the state of a volume, if it is still there and in a state to be changed from; else nothing, and false. A volume is named by
/// its number: another may have its name by now.
fn change_state(
    folder: &ArrayFolder,
    id: u64,
    from: impl Fn(&VolumeState) -> bool,
    to: VolumeState,
) -> Result<bool, Failure> {
    folder.update(|description| {
        let entry = description.volumes.iter_mut().find(|entry| entry.id == id && from(&entry.state));
        let found = entry.map(|entry| entry.state = to.clone());
        Ok(found.is_some())
    })
}

fn is_being_made(state: &VolumeState) -> bool {
    matches!(state, VolumeState::Creating)
}

/// Waits until the monitor knows the volumes of this revision: it must not take a device out that a new one can't do without.
pub async fn await_monitor(folder: &ArrayFolder, revision: u64) -> Result<(), Failure> {
    let begun = Instant::now();
    loop {
        let monitor = folder.monitor(&Moment::now())?;
        if monitor.is_some_and(|monitor| monitor.report.revision >= revision) {
            return Ok(());
        }
        if begun.elapsed() > MONITOR_WAIT {
            let message = format!("the array's monitor has not taken note of the volume within {MONITOR_WAIT:?}");
            return Err(Failure::unreachable("monitor-silent", message)
                .hint("`braid status` shows whether it runs; `braid up` starts it, and so does `braid monitord`"));
        }
        tokio::time::sleep(MONITOR_PAUSE).await;
    }
}

async fn create_components(client: &HostClient, volume: &VolumeDescription) -> Result<(), Failure> {
    let task = Task::CreateObject {
        object: volume.id.object(),
        first: volume.component().start,
        blocks: volume.component_blocks(),
        ordering: volume.ordering,
        redundant: volume.layout.redundancy_units() > 0,
        atomicity: volume.atomicity,
        absent: 0,
    };
    on_devices(client, &volume.devices, |_| Some(task.clone())).await
}

/// Gives each of these devices its task at once, if it has one. The first failure is the answer.
pub async fn on_devices(
    client: &HostClient,
    devices: &[DeviceId],
    task: impl Fn(DeviceId) -> Option<Task>,
) -> Result<(), Failure> {
    let mut tasks = JoinSet::new();
    for (device, task) in devices.iter().filter_map(|device| Some((*device, task(*device)?))) {
        let (client, request) = (client.clone(), HostRequest::Manage { device, task });
        tasks.spawn(async move {
            let begun = Instant::now();
            loop {
                let outcome = client.call(request.clone()).await;
                let in_use = matches!(outcome, Err(HostError::Device { failure: braid_wire::Failure::InUse, .. }));
                if !in_use || begun.elapsed() > IN_USE_WAIT {
                    return outcome;
                }
                tokio::time::sleep(IN_USE_PAUSE).await;
            }
        });
    }
    let mut outcome = Ok(());
    while let Some(done) = tasks.join_next().await {
        let done = done.map_err(|error| Failure::failed("internal", error.to_string()))?;
        // An object that is not there is removed already.
        let gone = matches!(done, Err(HostError::Device { failure: braid_wire::Failure::NoSuchObject, .. }));
        if let (Err(error), false, Ok(())) = (done, gone, &outcome) {
            outcome = Err(error.into());
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_command_has_finished_is_not_given_up_by_one_that_fails_late() {
        let dir = std::env::temp_dir().join(format!("braid-volumes-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let folder = ArrayFolder::at(&dir);
        let creation = creation::CreateOptions { devices: Some(5), ..Default::default() }.creation().unwrap();
        folder.create(&ArrayDescription::new(creation::device_entries(&creation), creation)).unwrap();
        let scheme = "raid5:4+1".parse().unwrap();
        let (ordering, atomicity) = (Ordering::Timestamp, Atomicity::Implied);
        let plan = Plan {
            name: "one".into(),
            bytes: 1 << 20,
            scheme,
            unit: 4096,
            ordering,
            atomicity,
            attribute_volume: false,
        };
        let entered = || folder.update(|description| enter(description, &plan, 7)).unwrap();
        let state = || folder.describe().unwrap().volume("one").map(|entry| entry.state.clone());
        // Two commands that are asked for the same make one volume.
        let (first, second) = (entered(), entered());
        assert_eq!((first.id, second.id), (7, 7), "devices hold objects up to 6");
        assert!(change_state(&folder, second.id, is_being_made, VolumeState::Ready).unwrap());
        assert!(!change_state(&folder, first.id, is_being_made, VolumeState::Deleting).unwrap());
        assert_eq!(state(), Some(VolumeState::Ready));
        // Nor is one of the same name that came later.
        let clear = |description: &mut ArrayDescription| {
            description.volumes.clear();
            Ok::<_, Failure>(())
        };
        folder.update(clear).unwrap();
        assert_eq!(entered().id, first.id + 1);
        assert!(!change_state(&folder, first.id, |_| true, VolumeState::Deleting).unwrap());
        assert_eq!(state(), Some(VolumeState::Creating));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
