//! Volumes: creating and deleting them with their components on the devices.

use crate::array_creation;
use crate::failure::{EXISTS, Failure};
use crate::operation_driver::{self, Ended, Judge, Questions, Subject, settle_volume};
use braid_base::units::format_size;
use braid_base::{BLOCK_BYTES, BlockRange, DeviceId, VolumeId};
use braid_control::{ArrayDescription, ControlPlane, ReportedState, VolumeEntry, VolumeState};
use braid_control_protocol::{Creation, Deletion, Error, Timing};
use braid_layout::{Atomicity, RaidLevel, SitePolicy, VolumeDescription, ring_of};
use braid_machine::{ArrayRequest, HostSuccess};
use braid_ordering::Ordering;
use braid_session::Session;
use braid_wire::{Managed, Task};
use std::collections::BTreeMap;

pub use crate::operation_driver::DEGRADED;
pub use braid_description::{describe, describe_widest, find};

/// So many numbers are tried for a new volume, if others are created at the same time.
const NUMBERS_TRIED: u32 = 10;
/// The failure code if the volumes of a new array or file system do not fit on its devices.
pub const NO_ROOM: &str = "no-room";
/// Devices allocate space in chunks of this many blocks.
pub const CHUNK_BLOCKS: u64 = 16;
/// Devices address chunks with 32 bits.
const COMPONENT_BLOCKS_MAX: u64 = u32::MAX as u64 * CHUNK_BLOCKS;

#[derive(Clone, Debug)]
pub struct NewVolume {
    /// Its name: up to 64 letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// Its usable size in bytes, a multiple of 4 KiB.
    pub bytes: u64,
    /// Its layout; none for that of the array's creation.
    pub scheme: Option<RaidLevel>,
    /// Bytes in a stripe unit, from 4 KiB to 1 MiB; none for that of the array's creation.
    pub unit: Option<u64>,
    pub ordering: Ordering,
    pub atomicity: Atomicity,
    /// Where its parity is computed; none for [`SitePolicy::OF_NEW_VOLUMES`], if devices can compute it.
    pub parity_site: Option<SitePolicy>,
    /// True for an attribute volume, which holds attributes of objects instead of blocks.
    pub attribute_volume: bool,
    /// The devices that it lies on; none for all devices of the array.
    pub devices: Option<Vec<u16>>,
}

impl NewVolume {
    /// A volume of blocks with the defaults: the array's layout, ordering `timestamp`, atomicity `implied`.
    pub fn new(name: impl Into<String>, bytes: u64) -> NewVolume {
        NewVolume {
            name: name.into(),
            bytes,
            scheme: None,
            unit: None,
            ordering: Ordering::Timestamp,
            atomicity: Atomicity::Implied,
            parity_site: None,
            attribute_volume: false,
            devices: None,
        }
    }

    /// Its layout and its stripe unit in this array.
    pub(crate) fn layout_in(&self, description: &ArrayDescription) -> Result<(RaidLevel, u64), Failure> {
        let scheme = match self.scheme {
            Some(scheme) => scheme,
            None => description.creation.layout.parse()?,
        };
        Ok((scheme, self.unit.unwrap_or(description.creation.unit)))
    }
}

/// Fails if one of the devices that an operation needs is not in, by the monitor's report: before anything is begun. The protocol asks the
/// monitor itself.
pub async fn require_in(control: &ControlPlane, devices: &[DeviceId], what: &str) -> Result<(), Failure> {
    // Without a monitor devices have no leases; the operation will fail.
    let Some(monitor) = control.monitor().await? else { return Ok(()) };
    let there = monitor.report.devices.iter().filter(|device| devices.contains(&DeviceId(device.id)));
    let missing = there.filter(|device| device.member_state != ReportedState::In);
    let missing: Vec<String> =
        missing.map(|device| format!("device {} is {}", device.id, device.member_state.name())).collect();
    if missing.is_empty() { Ok(()) } else { Err(operation_driver::degraded(what, &missing)) }
}

/// Creates a volume: its entry, then its components; then it is ready. If the devices have too little space, nothing of it remains.
pub async fn create(session: &Session, plan: &NewVolume) -> Result<VolumeEntry, Failure> {
    array_creation::check_name(&plan.name)?;
    array_creation::check_multiple("--size", plan.bytes)?;
    for _ in 0..NUMBERS_TRIED {
        let unused = unused_number(session).await?;
        let entry = planned(&session.control().describe().await?, plan, unused)?;
        let what = "a volume can't be created".to_string();
        let questions = Questions::of(session, subject(&entry), what);
        let creation = Creation::of(session.generation(), describe(&entry)?, Timing::default());
        let Ended { result, reasons, .. } = operation_driver::run(creation.into(), &questions, None, |_| {}).await;
        return match result {
            Ok(_) => Ok(VolumeEntry { state: VolumeState::Ready, by: None, ..entry }),
            // Another volume was created since.
            Err(Error::NumberUsed) => continue,
            Err(Error::Lost) => {
                let message =
                    format!("volume {} was deleted, or its creation abandoned, by another command", plan.name);
                Err(Failure::failed("volume-gone", message).hint("create it again"))
            }
            Err(error) => {
                let failure = operation_driver::explain(session.control(), &plan.name, error, reasons).await?;
                let is_plain = [EXISTS, DEGRADED].contains(&failure.code.as_str());
                Err(if is_plain { failure } else { failure.of(format!("volume {}", plan.name)) })
            }
        };
    }
    operation_driver::explain(session.control(), &plan.name, Error::NumberUsed, BTreeMap::new()).await.and_then(Err)
}

fn subject(entry: &VolumeEntry) -> Subject {
    Subject::Volume(VolumeId(entry.id), Some(Box::new(entry.clone())))
}

/// Completes operations interrupted by a crash: creates half-created volumes, deletes half-deleted ones. What is left, and what is
/// interrupted later, is completed by [`crate::operation_driver::keep_settled`].
pub async fn settle(session: &Session) -> Result<(), Failure> {
    let (control, own, judge) = (session.control(), session.generation(), Judge::begin());
    let is_begun = |entry: &VolumeEntry| matches!(entry.state, VolumeState::Creating | VolumeState::Deleting);
    for entry in control.describe().await?.volumes.into_iter().filter(is_begun) {
        let settled = settle_volume(control, session.client(), own, &judge, Timing::default(), entry);
        if let Some((_, failure)) = settled.await? {
            return Err(failure);
        }
    }
    Ok(())
}

pub async fn delete(session: &Session, name: &str) -> Result<(), Failure> {
    let description = session.control().describe().await?;
    let entry = match description.volume(name) {
        Some(entry) => entry.clone(),
        // The error lists the volumes.
        None => find(&description, name)?.clone(),
    };
    delete_this(session, &entry).await
}

/// Deletes this volume, and no other one of its name.
pub(crate) async fn delete_this(session: &Session, entry: &VolumeEntry) -> Result<(), Failure> {
    let name = entry.name.as_str();
    let deletion = Deletion::of(session.generation(), Timing::default());
    let questions = Questions::of(session, subject(entry), format!("volume '{name}' can't be deleted"));
    let Ended { result, reasons, is_committed } =
        operation_driver::run(deletion.into(), &questions, None, |_| {}).await;
    let Err(error) = result else { return Ok(()) };
    if error == Error::NotUsable {
        return Err(Failure::unreachable("no-such-volume", format!("volume '{name}' was deleted meanwhile")));
    }
    let failure = operation_driver::explain(session.control(), name, error, reasons).await?;
    if !is_committed && failure.code == DEGRADED {
        return Err(failure);
    }
    let hint = "the volume is gone for hosts; `braid volume delete` again, or the next `braid up`, removes the rest";
    let failure = if is_committed { failure.hint(hint) } else { failure };
    Err(failure.of(format!("volume {name}")))
}

/// The chosen devices with their failure domains; all ready ones, if none are chosen.
pub(crate) fn chosen_domains(
    description: &ArrayDescription,
    chosen: Option<&[u16]>,
) -> Result<Vec<(DeviceId, String)>, Failure> {
    if let Some(stranger) =
        chosen.into_iter().flatten().find(|id| description.ready_devices().all(|device| device.id != **id))
    {
        return Err(Failure::unreachable("no-such-device", format!("the array has no device {stranger}")));
    }
    let is_chosen = |id: u16| chosen.is_none_or(|chosen| chosen.contains(&id));
    let devices = description.ready_devices().filter(|device| is_chosen(device.id));
    Ok(devices.map(|device| (DeviceId(device.id), device.domain.clone())).collect())
}

/// The usable bytes that another volume of this plan can have.
pub async fn free(session: &Session, plan: &NewVolume) -> Result<u64, Failure> {
    let description = session.control().describe().await?;
    let (scheme, unit) = plan.layout_in(&description)?;
    let devices = chosen_domains(&description, plan.devices.as_deref())?;
    let layout = array_creation::layout(scheme, devices.len(), unit)?;
    let least = least_room(session, devices.into_iter().map(|(device, _)| device)).await?;
    Ok(layout.usable_blocks(least) * BLOCK_BYTES as u64)
}

/// The number of blocks that another object can have on every device of the array.
pub async fn room(session: &Session) -> Result<u64, Failure> {
    let description = session.control().describe().await?;
    least_room(session, description.ready_devices().map(|device| DeviceId(device.id))).await
}

/// The number of blocks that another object can have on each of some devices.
pub async fn least_room(session: &Session, devices: impl IntoIterator<Item = DeviceId>) -> Result<u64, Failure> {
    let mut least = u64::MAX;
    for device in devices {
        least = least.min(room_on(session, device).await?);
    }
    Ok(least)
}

/// The number of blocks that objects can have on a device in addition to the existing ones.
pub async fn room_on(session: &Session, device: DeviceId) -> Result<u64, Failure> {
    let inspect = ArrayRequest::Manage { device, task: Task::Inspect };
    let HostSuccess::Managed(Managed::Inspected(inspection)) = session.client().call(inspect).await? else {
        return Err(Failure::failed("internal", "a device gave an unexpected answer"));
    };
    let unclaimed = inspection.counters.iter().find(|(name, _)| name == "blocks_unclaimed");
    Ok(unclaimed.map_or(0, |(_, blocks)| *blocks))
}

/// The first device that has too little space for a volume after a change: how many blocks it needs in addition, and how many it has.
pub(crate) async fn lacking(
    session: &Session,
    before: &VolumeDescription,
    after: &VolumeDescription,
) -> Result<Option<(DeviceId, u64, u64)>, Failure> {
    for device in after.holders() {
        let blocks = |volume: &VolumeDescription| {
            volume.object_on(device).map_or(0, |range| range.count.next_multiple_of(CHUNK_BLOCKS))
        };
        let (needed, room) = (blocks(after).saturating_sub(blocks(before)), room_on(session, device).await?);
        if needed > room {
            return Ok(Some((device, needed, room)));
        }
    }
    Ok(None)
}

/// A number above those of all objects on the devices of a new volume. The description counts volumes, too, but it may be an older copy
/// that was restored, and lack volumes that were created since. With the number of such a volume, the new volume would have its content,
/// because devices consider an existing object to be the result of an earlier attempt.
async fn unused_number(session: &Session) -> Result<u64, Failure> {
    let mut highest = 0;
    for device in session.control().describe().await?.ready_devices() {
        let list = ArrayRequest::Manage { device: DeviceId(device.id), task: Task::ListObjects };
        let HostSuccess::Managed(Managed::Objects(objects)) = session.client().call(list).await? else {
            return Err(Failure::failed("internal", "a device gave an unexpected answer"));
        };
        highest = objects.into_iter().map(|held| held.object.0).fold(highest, u64::max);
    }
    highest.checked_add(1).ok_or_else(|| Failure::failed("no-number", "all numbers of volumes have been used"))
}

/// Refuses a volume whose components have more blocks than a device can address.
pub(crate) fn check_size(volume: &VolumeDescription) -> Result<(), Failure> {
    let BlockRange { start, count } = volume.component();
    if start.checked_add(count).is_some_and(|end| end <= COMPONENT_BLOCKS_MAX) {
        return Ok(());
    }
    let most = volume.layout.usable_blocks(COMPONENT_BLOCKS_MAX).saturating_mul(BLOCK_BYTES as u64);
    let (size, most) = (format_size(volume.bytes), format_size(most));
    let message = format!("a volume of {size} is too large: on these devices it has at most {most}");
    Err(Failure::usage("too-large", message).hint("choose a smaller size, or create several volumes"))
}

/// The entry of a volume, to change a setting that hosts follow by themselves. Errors: `no-such-volume`, `volume-reordering`.
pub(crate) fn changeable<'a>(
    description: &'a mut ArrayDescription,
    name: &str,
) -> Result<&'a mut VolumeEntry, Failure> {
    find(description, name)?;
    let entry = description.volume_mut(name).expect("the volume exists");
    if entry.state.is_on_hold() {
        // The process that ends the hold writes the entry as it was when the hold began.
        let message = format!("volume '{name}' is on hold for another change");
        return Err(Failure::failed("volume-reordering", message).hint("try again in a few seconds"));
    }
    Ok(entry)
}

/// The entry of a new volume, or of an interrupted creation with the same parameters. A new volume has the number `unused` or a higher one.
fn planned(description: &ArrayDescription, plan: &NewVolume, unused: u64) -> Result<VolumeEntry, Failure> {
    let (scheme, unit) = plan.layout_in(description)?;
    let devices = ring(&chosen_domains(description, plan.devices.as_deref())?, scheme)?;
    let layout = array_creation::layout(scheme, devices.len(), unit)?;
    let mut entry = VolumeEntry {
        unavailable: None,
        name: plan.name.clone(),
        id: description.next_volume.max(unused),
        bytes: plan.bytes,
        layout: layout.scheme().to_string(),
        unit,
        devices,
        ordering: plan.ordering.name().to_string(),
        atomicity: plan.atomicity.to_string(),
        attribute_volume: plan.attribute_volume,
        first_block: 0,
        parity_site: plan.parity_site.unwrap_or(SitePolicy::OF_NEW_VOLUMES).to_string(),
        moving: None,
        state: VolumeState::Creating,
        by: None,
    };
    if plan.parity_site.is_none() && without_effect(&entry)?.is_some() {
        entry.parity_site = SitePolicy::Originator.to_string();
    }
    match description.volume(&plan.name) {
        None => {}
        Some(begun)
            if begun.state == VolumeState::Creating
                && *begun == (VolumeEntry { id: begun.id, by: begun.by, ..entry.clone() }) =>
        {
            return Ok(begun.clone());
        }
        Some(_) => {
            return Err(exists(&plan.name));
        }
    }
    check_size(&describe(&entry)?)?;
    Ok(entry)
}

/// Why the parity site of a volume has no effect; none if it has.
pub fn without_effect(entry: &VolumeEntry) -> Result<Option<&'static str>, Failure> {
    let volume = describe(entry)?;
    Ok(if entry.attribute_volume {
        Some("attributes are written by the host alone")
    } else {
        computed_at_host(&volume)
    })
}

/// Why the host computes all writes to such a volume; none if devices can execute them together.
pub fn computed_at_host(volume: &VolumeDescription) -> Option<&'static str> {
    if volume.layout.redundancy_units() == 0 || volume.layout.data_units() == 1 {
        Some("its layout has no parity")
    } else if !volume.ordering.policy().writes_at_once(volume.mode()) {
        Some("devices compute parity with ordering timestamp and atomicity implied only")
    } else if volume.moving.is_some() {
        Some("hosts compute all writes while a volume is migrated")
    } else {
        None
    }
}

pub(crate) fn exists(name: &str) -> Failure {
    Failure::failed(EXISTS, format!("there is already a volume '{name}'"))
}

/// The failure of what can't be done while a volume is migrated.
pub(crate) fn moving(name: &str, why: &str) -> Failure {
    Failure::failed("volume-moving", format!("volume '{name}' is being migrated{why}"))
        .hint(format!("complete the migration with `braid volume migrate {name}`"))
}

/// The devices in an order in which no stripe has two units in one failure domain.
pub fn ring(domains: &[(DeviceId, String)], scheme: RaidLevel) -> Result<Vec<u16>, Failure> {
    Ok(ring_of(domains, scheme.width())?.into_iter().map(|id| id.0).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_commands_with_the_same_parameters_create_one_volume() {
        let mut description = array_creation::tests::description(5);
        let plan = NewVolume { unit: Some(4096), ..NewVolume::new("one", 1 << 20) };
        let first = planned(&description, &plan, 7).unwrap();
        assert_eq!(first.id, 7, "devices have objects up to 6");
        let begun = VolumeEntry { by: Some(3), ..first.clone() };
        (description.next_volume, description.volumes) = (8, vec![begun.clone()]);
        assert_eq!(planned(&description, &plan, 9).unwrap(), begun, "it is continued");
        let wider = NewVolume { bytes: 2 << 20, ..plan.clone() };
        assert_eq!(planned(&description, &wider, 9).unwrap_err().code, EXISTS);
        description.volumes[0].state = VolumeState::Ready;
        assert_eq!(planned(&description, &plan, 9).unwrap_err().code, EXISTS);
        // A volume of the same name that is created later is not the same.
        description.volumes.clear();
        assert_eq!(planned(&description, &plan, 7).unwrap().id, 8);
    }
}
