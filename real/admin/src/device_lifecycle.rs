//! Devices and spares that come and go, for `device_operations.rs`: disks are prepared by `new_disk.rs`, and additions and removals of
//! devices are operations of `braid_control_protocol` (`device_change.rs`), as the replacement of a disk is (`replacement.rs`). If a process
//! dies in between, [`keep_settled`] completes what it has begun.
//!
//! ```text
//!   add       create disk ─► entry, Adding ─► monitor: AddDevice    ─► Ready ─► `braid up` runs it ─► it is in
//!   remove    entry, Removing              ─► monitor: RemoveDevice ─► no entry: `braid up` stops it
//!   replace   create disk ─► among the entry's others ─► monitor: Replace ─► out ─► the membership contains the disk:
//!             `braid up` starts the device on it
//!   spare     create disk ─► entry among the spares ─► monitor: AddSpare
//! ```
//!
//! A disk is created for any slot, and gets the number of its slot when it is first served. The description contains the disk before the
//! monitor is told of it: therefore the file of every disk that the membership names is known.

use crate::array::await_until;
use crate::cluster;
use crate::device_file::UNASSIGNED;
use crate::failure::Failure;
use crate::new_disk::room;
use crate::operation_driver::{self, Ended, Judge, Questions, Subject};
use braid_base::{DeviceId, DiskId, Generation, VolumeId};
use braid_control::{
    ArrayDescription, ControlError, ControlPlane, DeviceEntry, DeviceReport, DeviceState, DiskEntry, MonitorReport,
    ReportedState, parse_disk,
};
use braid_control_protocol::{DeviceChange, Done, Error, Tag, Timing};
use braid_machine::{ArrayRequest, HostError};
use braid_session::Session;
use braid_shell::HostClient;
use braid_wire::{AdminError, Administration};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long the monitor may take to execute a request that requires no resynchronisation first.
pub const ACT_WAIT: Duration = Duration::from_secs(60);
/// How long devices that have just returned may take to count as in.
const STEADY_WAIT: Duration = Duration::from_secs(3);
/// How many numbers an addition tries while other devices are added.
const NUMBERS_TRIED: usize = 8;
/// The interval of checks while waiting.
const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// Like [`administer`], for requests that need other devices: these must have been in for a moment, so it retries for a while.
pub async fn administer_soon(session: &Session, request: Administration) -> Result<(), HostError> {
    let begun = Instant::now();
    loop {
        let asked = administer(session.client(), request).await;
        let Err(HostError::AdminError(AdminError::NeedsOthers { others })) = &asked else { return asked };
        let monitor = session.control().monitor().await.ok().flatten();
        let reports = monitor.iter().flat_map(|monitor| &monitor.report.devices);
        let is_in = |device: &DeviceId| {
            reports.clone().any(|report| report.id == device.0 && report.member_state == ReportedState::In)
        };
        if begun.elapsed() > STEADY_WAIT || !others.iter().all(is_in) {
            return asked;
        }
        session.control().changed(LOOK_PAUSE).await;
    }
}

/// The failure for an error of the monitor, with the names of volumes, and what to do first.
pub async fn explain(control: &ControlPlane, error: HostError) -> Failure {
    let failure = Failure::from(error.clone());
    let HostError::AdminError(admin_error) = error else { return failure };
    let name = async |volume: VolumeId| {
        let description = control.describe().await.ok()?;
        description.volumes.into_iter().find(|entry| entry.id == volume.0).map(|entry| entry.name)
    };
    match admin_error {
        AdminError::NeedsOthers { others } => {
            readmit_first(control, &others).await.into_iter().fold(failure, Failure::hint)
        }
        AdminError::WouldLose { volume } | AdminError::HoldsVolume { volume } => match name(volume).await {
            Some(name) => {
                let message = failure.message.replacen(&format!("volume {}", volume.0), &format!("volume '{name}'"), 1);
                Failure { message, ..failure }
            }
            None => failure,
        },
        _ => failure,
    }
}

/// What to do first if an operator has taken out one of these devices.
pub async fn readmit_first(control: &ControlPlane, devices: &[DeviceId]) -> Option<String> {
    let reports = control.monitor().await.ok()??.report.devices;
    let is_held = |device: &&DeviceId| reports.iter().any(|report| report.id == device.0 && report.kept_out);
    let held = devices.iter().find(is_held)?;
    Some(format!(
        "device {0} was taken out by an operator: allow it to return with `braid device readmit {0}`; try again when `braid status` shows it as in",
        held.0
    ))
}

/// Sends the monitor a request, through this host.
pub async fn administer(client: &HostClient, request: Administration) -> Result<(), HostError> {
    client.call(ArrayRequest::Administer { request }).await.map(drop)
}

pub fn find(description: &ArrayDescription, id: u16) -> Result<&DeviceEntry, Failure> {
    description.device(id).ok_or_else(|| {
        let all: Vec<String> = description.devices.iter().map(|device| device.id.to_string()).collect();
        Failure::unreachable("no-such-device", format!("the array has no device {id}"))
            .hint(format!("there are: {}", all.join(", ")))
    })
}

pub async fn report_of(control: &ControlPlane, id: u16) -> Result<Option<DeviceReport>, Failure> {
    let monitor = control.monitor().await?;
    Ok(monitor.and_then(|monitor| monitor.report.devices.into_iter().find(|device| device.id == id)))
}

/// True if an operation on a device was begun that the array completes by itself.
pub async fn changes_under_way(control: &ControlPlane) -> bool {
    let monitor = control.monitor().await.ok().flatten();
    let is_begun = |device: &DeviceEntry| {
        let report = monitor.iter().flat_map(|it| &it.report.devices).find(|report| report.id == device.id);
        device.state != DeviceState::Ready
            || report
                .is_some_and(|it| it.next_disk.is_some() || it.blank || it.member_state == ReportedState::Returning)
    };
    control.describe().await.is_ok_and(|description| description.devices.iter().any(is_begun))
}

/// Waits until the monitor's report on a device is as wished; there is none for a device unknown to the monitor.
pub async fn await_report(
    control: &ControlPlane,
    id: u16,
    limit: Option<Duration>,
    wished: impl Fn(Option<&DeviceReport>) -> bool,
) -> Result<(), Failure> {
    let limit = limit.unwrap_or(Duration::MAX);
    let is_so = async || Ok(wished(report_of(control, id).await?.as_ref()));
    if await_until(control, limit, is_so).await? {
        return Ok(());
    }
    Err(not_yet(id, report_of(control, id).await?.as_ref(), limit))
}

/// The failure if the monitor has recorded a request, but the device is not as requested after this time.
pub fn not_yet(id: u16, report: Option<&DeviceReport>, limit: Duration) -> Failure {
    let member_state = report.map_or("unknown to the monitor", |report| report.member_state.name());
    let message = format!("the request is recorded, but after {limit:?} device {id} is still {member_state}");
    Failure::unreachable("not-yet", message)
        .hint("it continues without this command; `braid status` shows what it waits for")
}

/// Adds a disk that was created as a device of its own, and waits until it is in. Returns its number.
pub async fn add(session: &Session, disk: DiskEntry, domain: Option<String>) -> Result<u16, Failure> {
    let (own, timing) = (session.generation(), Timing { device: ACT_WAIT, ..Timing::default() });
    for _ in 0..NUMBERS_TRIED {
        let mut entry = planned(&session.control().describe().await?, &disk, domain.as_deref())?;
        cluster::place(session.control(), &mut entry)?;
        let id = entry.id;
        let operation = DeviceChange::adding(own, DeviceId(id), disk.disk, timing);
        let subject = Subject::NewDevice(Box::new(entry));
        match change(session.control(), session.client(), subject, operation, &Judge::begin()).await {
            Ok(_) => return Ok(id),
            // Another device was added since.
            Err((Error::NumberUsed, _)) => {}
            Err((error, reasons)) => return Err(why_not(session.control(), id, error, reasons).await?),
        }
    }
    let message = "other devices were added at the same time";
    Err(Failure::failed("no-number", message).hint("try again"))
}

/// The entry of a new device, or of an addition of this disk that has begun.
fn planned(description: &ArrayDescription, disk: &DiskEntry, domain: Option<&str>) -> Result<DeviceEntry, Failure> {
    if let Some(device) = description.devices.iter().find(|device| device.disk == Some(disk.disk)) {
        return Ok(device.clone());
    }
    let id = description.unused_device();
    // The highest number means that none was assigned.
    if id == UNASSIGNED.0 {
        return Err(Failure::failed("no-number", "all numbers of devices have been used"));
    }
    let mut entry = DeviceEntry::new(id, disk.size);
    (entry.file, entry.disk, entry.state) = (disk.file.clone(), Some(disk.disk), DeviceState::Adding);
    if let Some(domain) = domain {
        entry.domain = domain.to_string();
    }
    Ok(entry)
}

/// Removes a device from the array. No volume may lie on it.
pub async fn remove(session: &Session, id: u16) -> Result<(), Failure> {
    let operation = DeviceChange::removing(session.generation(), DeviceId(id), Timing::default());
    let subject = Subject::Device(DeviceId(id), None);
    match change(session.control(), session.client(), subject, operation, &Judge::begin()).await {
        Ok(_) => Ok(()),
        Err((error, reasons)) => Err(why_not(session.control(), id, error, reasons).await?),
    }
}

/// How a change of a device ended; with the reasons why questions failed.
type Changed = Result<Done, (Error, BTreeMap<Tag, Failure>)>;

/// Performs an addition or a removal, or the rest of it.
async fn change(
    control: &ControlPlane,
    client: &HostClient,
    subject: Subject,
    operation: DeviceChange,
    judge: &Judge,
) -> Changed {
    let (control, client, judge) = (control.clone(), Some(client.clone()), judge.clone());
    let what = "the devices of the array can't change".to_string();
    let questions = Questions { control, client, subject, what, judge };
    let Ended { result, reasons, .. } = operation_driver::run(operation.into(), &questions, None, |_| {}).await;
    result.map_err(|error| (error, reasons))
}

/// The failure of an addition or a removal.
async fn why_not(
    control: &ControlPlane,
    id: u16,
    error: Error,
    reasons: BTreeMap<Tag, Failure>,
) -> Result<Failure, Failure> {
    Ok(match error {
        Error::NoDevice => find(&control.describe().await?, id).err().unwrap_or_else(|| gone(id)),
        Error::Lost => gone(id),
        Error::Held(by) => {
            let message = format!("host {by} is adding or removing device {id}");
            Failure::failed("device-changing", message).hint("try again when it is done")
        }
        Error::HoldsVolumes(volumes) => {
            let description = control.describe().await?;
            let name = |volume: &VolumeId| match description.volumes.iter().find(|entry| entry.id == volume.0) {
                Some(entry) => format!("'{}'", entry.name),
                None => volume.0.to_string(),
            };
            let held: Vec<String> = volumes.iter().map(name).collect();
            let (noun, verb) = if held.len() == 1 { ("volume", "lies") } else { ("volumes", "lie") };
            let message = format!("{noun} {} {verb} on device {id}", held.join(", "));
            Failure::failed("holds-volumes", message)
                .hint("migrate them to other devices with `braid volume migrate`; to give the device another disk, use `braid device replace`")
        }
        error => operation_driver::explain(control, &format!("device {id}"), error, reasons).await?,
    })
}

fn gone(id: u16) -> Failure {
    let message = format!("another host has taken over the addition or removal of device {id}");
    Failure::failed("device-changing", message).hint("`braid device list` shows the devices")
}

/// Adds a disk that was created as a spare.
pub async fn add_spare(session: &Session, disk: DiskEntry) -> Result<(), Failure> {
    let (name, blocks) = (disk.disk, room(disk.size)?);
    let add = |description: &mut ArrayDescription| {
        if !description.spares.iter().any(|spare| spare.disk == name) {
            description.spares.push(disk.clone());
        }
        Ok::<_, Failure>(())
    };
    session.control().update(add).await?;
    let asked = administer(session.client(), Administration::AddSpare { disk: name, blocks }).await;
    // If the monitor refuses it, retrying is useless.
    if matches!(asked, Err(HostError::AdminError(_))) {
        forget_spare(session.control(), name).await?;
    }
    Ok(asked?)
}

/// Removes a spare: the description knows its file until the monitor can't give it a slot any more.
pub async fn remove_spare(session: &Session, spare: &DiskEntry) -> Result<(), Failure> {
    let (control, name) = (session.control(), spare.disk.to_string());
    let ask = async || match administer(session.client(), Administration::RemoveSpare { disk: spare.disk }).await {
        // The monitor may never have been told of it.
        Err(HostError::AdminError(AdminError::NoSuchSpare)) => Ok(()),
        asked => asked,
    };
    ask().await?;
    let reports = control.monitor().await?.map(|monitor| monitor.report.devices).unwrap_or_default();
    let is_to_use = |device: &&DeviceReport| {
        [&device.disk, &device.next_disk, &device.awaited_disk].into_iter().flatten().any(|disk| *disk == name)
    };
    if let Some(device) = reports.iter().find(is_to_use) {
        let message = format!("device {} uses this disk now", device.id);
        return Err(Failure::failed("spare-in-use", message).hint("`braid device list` shows the disk of each device"));
    }
    forget_spare(control, spare.disk).await?;
    // `braid up` may have told the monitor of it again before it was forgotten.
    Ok(ask().await?)
}

/// Updates the description with the disks that fill slots according to the monitor. Returns the new description.
pub async fn fill(control: &ControlPlane, description: ArrayDescription) -> Result<ArrayDescription, ControlError> {
    let Some(monitor) = control.monitor().await? else { return Ok(description) };
    let filled = |description: &mut ArrayDescription| {
        let mut changed = false;
        for report in &monitor.report.devices {
            let Some(disk) = report.disk.as_deref().and_then(parse_disk) else { continue };
            if description.device(report.id).is_some_and(|device| device.disk != Some(disk)) {
                changed |= description.fill_slot(report.id, disk);
            }
        }
        changed
    };
    if !filled(&mut description.clone()) {
        return Ok(description);
    }
    let fill = |description: &mut ArrayDescription| {
        filled(description);
        Ok::<_, ControlError>(())
    };
    control.update(fill).await?;
    control.describe().await
}

/// Runs until dropped, with the host `own`: completes operations on devices and spares whose process has died.
pub async fn keep_settled(control: ControlPlane, client: HostClient, own: Generation) {
    let (mut judge, mut settled) = (Judge::begin(), Ok(true));
    loop {
        judge = judge.after_pause(&control, settled.unwrap_or(false)).await;
        settled = settle(&control, &client, own, &judge).await.inspect_err(|failure| {
            tracing::warn!("can't complete an operation on a device; trying again: {failure}");
        });
    }
}

/// True if there was nothing to do.
async fn settle(control: &ControlPlane, client: &HostClient, own: Generation, judge: &Judge) -> Result<bool, Failure> {
    let (description, monitor) = (control.describe().await?, control.monitor().await?);
    judge.look(description.leases().lease());
    for device in description.devices.iter().filter(|device| device.state != DeviceState::Ready) {
        let id = DeviceId(device.id);
        // An administrator that lives is not waited for: it is looked at again soon.
        let timing = Timing { turn: Duration::ZERO, ..Timing::default() };
        let operation = DeviceChange::continuing(own, id, timing);
        match change(control, client, Subject::Device(id, None), operation, judge).await {
            // Another host has taken it over, or the monitor has refused it, and it is as before.
            Ok(_) | Err((Error::Lost | Error::Refused(_), _)) => {}
            // Others do not wait for it.
            Err((error, reasons)) => {
                let failure = why_not(control, device.id, error, reasons).await?;
                tracing::warn!("can't complete an operation on a device; trying again: {failure}");
            }
        }
    }
    let Some(monitor) = monitor else { return Ok(false) };
    let spares = spares_to_settle(&description, &monitor.report)?;
    let is_settled = spares.is_empty() && description.devices.iter().all(|device| device.state == DeviceState::Ready);
    for request in spares {
        match administer(client, request).await {
            // The monitor's report may be half a second old.
            Ok(()) | Err(HostError::AdminError(AdminError::DiskInUse { .. } | AdminError::NoSuchSpare)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(is_settled)
}

/// The requests that make the monitor's spares equal to those of the description.
fn spares_to_settle(description: &ArrayDescription, report: &MonitorReport) -> Result<Vec<Administration>, Failure> {
    let mut requests = Vec::new();
    let names = |device: &DeviceReport| [device.disk.clone(), device.next_disk.clone(), device.awaited_disk.clone()];
    let fill_slots: Vec<String> = report.devices.iter().flat_map(names).flatten().collect();
    for spare in &description.spares {
        let name = spare.disk.to_string();
        if !fill_slots.contains(&name) && !report.spares.iter().any(|known| known.disk == name) {
            requests.push(Administration::AddSpare { disk: spare.disk, blocks: room(spare.size)? });
        }
    }
    for known in report.spares.iter().filter_map(|known| parse_disk(&known.disk)) {
        if !description.spares.iter().any(|spare| spare.disk == known) {
            requests.push(Administration::RemoveSpare { disk: known });
        }
    }
    Ok(requests)
}

async fn forget_spare(control: &ControlPlane, disk: DiskId) -> Result<(), Failure> {
    let forget = |description: &mut ArrayDescription| {
        description.spares.retain(|spare| spare.disk != disk);
        Ok(())
    };
    control.update(forget).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array_creation::tests::description;
    use braid_control::SpareReport;

    #[test]
    fn the_monitor_gets_to_know_the_spares_of_the_description_and_no_others() {
        let mut array = description(3);
        let spare = |number: u64| DiskEntry { file: format!("s{number}").into(), size: 1 << 30, disk: DiskId(number) };
        array.spares = vec![spare(1), spare(2), spare(3)];
        let known = |number: u64| SpareReport { disk: DiskId(number).to_string(), size_bytes: 5 };
        let next = DeviceReport { next_disk: Some(DiskId(3).to_string()), ..DeviceReport::default() };
        let report =
            MonitorReport { devices: vec![next], spares: vec![known(2), known(7)], ..MonitorReport::default() };
        let blocks = room(1 << 30).unwrap();
        let expected =
            [Administration::AddSpare { disk: DiskId(1), blocks }, Administration::RemoveSpare { disk: DiskId(7) }];
        assert_eq!(spares_to_settle(&array, &report).unwrap(), expected);
    }
}
