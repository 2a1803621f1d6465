//! Devices and spares that come and go, for `device_operations.rs`: disks are prepared here, and additions and removals of devices are
//! operations of `braid_control_protocol` (`device_change.rs`), as the replacement of a disk is (`replacement.rs`). If a process dies in
//! between, [`keep_settled`] completes what it has begun.
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

use crate::device_file::{self, DeviceFile, Expected, UNASSIGNED};
use crate::disk_facts::{ANSWER_WAIT, DiskFacts, DiskIdentity, answer_of, file_of_array, folder_of_array};
use crate::failure::Failure;
use crate::volume_hold::{self, Ended, Judge, Questions, Subject};
use braid_base::units::format_size;
use braid_base::{ArrayId, DeviceId, DiskId, Generation, VolumeId};
use braid_control::{
    ArrayDescription, ControlError, ControlPlane, DeviceEntry, DeviceReport, DeviceState, DiskEntry, LocalFolder,
    MonitorReport, ReportedState, parse_disk, shell_word,
};
use braid_control_protocol::{DeviceChange, Done, Error, Tag, Timing};
use braid_layout::VolumeDescription;
use braid_machine::{ArrayRequest, HostError};
use braid_session::{HEARTBEAT, Session};
use braid_shell::HostClient;
use braid_store::{Geometry, StoreConfig};
use braid_wire::{AdminError, Administration};
use std::collections::BTreeMap;
use std::io::{Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the monitor may take to execute a request that requires no resynchronisation first.
pub const ACT_WAIT: Duration = Duration::from_secs(60);
/// How long devices that have just returned may take to count as in.
const STEADY_WAIT: Duration = Duration::from_secs(3);
/// How many numbers an addition tries while other devices are added.
const NUMBERS_TRIED: usize = 8;
/// The interval of checks while waiting.
const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// The parameters of a new disk.
#[derive(Clone, Debug)]
pub struct NewDisk {
    /// Its file; none for a new file in the array's folder.
    pub path: Option<PathBuf>,
    /// The name of that new file, without number and extension.
    pub stem: String,
    /// Its raw size; none for the size of the existing file or disk, or else `default_size`.
    pub size: Option<u64>,
    /// The size if nothing else determines it.
    pub default_size: u64,
    /// True if an existing file or disk may be overwritten.
    pub overwrite: bool,
}

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

/// The monitor's report on a device.
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
    let begun = Instant::now();
    loop {
        let report = report_of(control, id).await?;
        if wished(report.as_ref()) {
            return Ok(());
        }
        if let Some(limit) = limit.filter(|limit| begun.elapsed() > *limit) {
            return Err(not_yet(id, report.as_ref(), limit));
        }
        control.changed(LOOK_PAUSE).await;
    }
}

/// The failure if the monitor has recorded a request, but the device is not as requested after this time.
pub fn not_yet(id: u16, report: Option<&DeviceReport>, limit: Duration) -> Failure {
    let member_state = report.map_or("unknown to the monitor", |report| report.member_state.name());
    let message = format!("the request is recorded, but after {limit:?} device {id} is still {member_state}");
    Failure::unreachable("not-yet", message)
        .hint("it continues without this command; `braid status` shows what it waits for")
}

/// Creates a disk for any slot of the array. A disk that was created before and has never been served is used again.
pub fn prepare(folder: &LocalFolder, description: &ArrayDescription, wanted: &NewDisk) -> Result<DiskEntry, Failure> {
    let path = match &wanted.path {
        Some(path) => answer_of(path, ANSWER_WAIT, lasting)??,
        None => unused_file(&folder.absolute(), description, &wanted.stem),
    };
    if path.to_str().is_none() {
        return Err(
            Failure::usage("bad-path", format!("the path is not UTF-8: {}", shell_word(&path))).hint("rename it")
        );
    }
    if let Some(known) = known_at(folder, description, &path)? {
        return Ok(known);
    }
    let file = path.strip_prefix(folder.absolute()).map_or(path.clone(), Path::to_path_buf);
    if let Some(around) = folder_of_array(&path).filter(|_| wanted.overwrite || !path.is_file()) {
        let is_braid = || path.extension().is_some_and(|name| name == "braid");
        let is_disk = || is_braid() || DeviceFile::open_to_look(&path).is_ok();
        // Old disks of this array itself may be overwritten.
        if !(path.is_file() && around == folder.absolute() && is_disk()) {
            return Err(file_of_array(&path, &around));
        }
    }
    if path.exists() && !wanted.overwrite {
        let found = look_at(&path, description.array)?;
        let superblock = found.superblock();
        let (size, disk) = (superblock.geometry.size, superblock.disk);
        if let Some(asked) = wanted.size.filter(|asked| *asked != size) {
            let (size, asked) = (format_size(size), format_size(asked));
            let message = format!("{} was created with {size}, not with {asked}", path.display());
            return Err(Failure::usage("bad-size", message).hint("use --overwrite to create it again"));
        }
        return Ok(DiskEntry { file, size, disk });
    }
    let whole = || Ok::<_, Failure>(std::fs::File::open(&path)?.seek(SeekFrom::End(0))?);
    let size = match wanted.size {
        Some(size) => size,
        // A raw disk is used with its whole size.
        None if path.exists() && !path.is_file() => whole()?,
        None => wanted.default_size,
    };
    let disk = device_file::create(
        &path,
        &StoreConfig { array: description.array, device: UNASSIGNED, size },
        wanted.overwrite,
    )?;
    Ok(DiskEntry { file, size, disk })
}

/// A path that names the same for every process, also later: the view of one process (`/proc/self/cwd`) is resolved. Stable names of disks are
/// links, and are kept. A word that names nothing is refused: it is rather an option, or a spare, than the name of a new file.
fn lasting(path: &Path) -> Result<PathBuf, Failure> {
    let is_word = path.components().eq([Component::Normal(path.as_os_str())]);
    if is_word && path.symlink_metadata().is_err() {
        let message = format!("there is no file or disk {0}: no file is created from a word alone", shell_word(path));
        let hint = format!(
            "write {} to create a file in the current folder; `device replace --with-spare` uses a spare",
            shell_word(Path::new(".").join(path))
        );
        return Err(Failure::unreachable("no-such-disk", message).hint(hint));
    }
    let path = std::path::absolute(path)?;
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(path) };
    match parent.canonicalize() {
        Ok(parent) if parent.starts_with("/proc") => Ok(path.canonicalize().unwrap_or_else(|_| parent.join(name))),
        Ok(parent) => Ok(parent.join(name)),
        Err(_) => Ok(path),
    }
}

/// The number of blocks that objects can have together on a disk of that size.
pub fn room(size: u64) -> Result<u64, Failure> {
    Ok(Geometry::room(size)?)
}

/// Adds a disk that was created as a device of its own, and waits until it is in. Returns its number.
pub async fn add(session: &Session, disk: DiskEntry, domain: Option<String>) -> Result<u16, Failure> {
    let (own, timing) = (session.generation(), Timing { device: ACT_WAIT, ..Timing::default() });
    for _ in 0..NUMBERS_TRIED {
        let entry = planned(&session.control().describe().await?, &disk, domain.as_deref())?;
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
    let Ended { result, reasons, .. } = volume_hold::run(operation.into(), &questions, None, |_| {}).await;
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
        error => volume_hold::explain(control, &format!("device {id}"), error, reasons).await?,
    })
}

fn gone(id: u16) -> Failure {
    let message = format!("another host has taken over the addition or removal of device {id}");
    Failure::failed("device-changing", message).hint("`braid device list` shows the devices")
}

/// Adds a disk that was created as a spare.
pub async fn add_spare(session: &Session, disk: DiskEntry) -> Result<(), Failure> {
    let (name, blocks) = (disk.disk, room(disk.size)?);
    session
        .control()
        .update(|description| {
            if !description.spares.iter().any(|spare| spare.disk == name) {
                description.spares.push(disk.clone());
            }
            Ok::<_, Failure>(())
        })
        .await?;
    let asked = administer(session.client(), Administration::AddSpare { disk: name, blocks }).await;
    if asked.as_ref().is_err_and(is_refused) {
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
    control
        .update(|description| {
            filled(description);
            Ok::<_, ControlError>(())
        })
        .await?;
    control.describe().await
}

/// Runs until dropped, with the host `own`: completes operations on devices and spares whose process has died.
pub async fn keep_settled(control: ControlPlane, client: HostClient, own: Generation) {
    let judge = Judge::begin();
    loop {
        control.changed(HEARTBEAT).await;
        if let Err(failure) = settle(&control, &client, own, &judge).await {
            tracing::warn!("can't complete an operation on a device; trying again: {failure}");
        }
    }
}

async fn settle(control: &ControlPlane, client: &HostClient, own: Generation, judge: &Judge) -> Result<(), Failure> {
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
            Err((error, reasons)) => return Err(why_not(control, device.id, error, reasons).await?),
        }
    }
    let Some(monitor) = monitor else { return Ok(()) };
    for request in spares_to_settle(&description, &monitor.report)? {
        match administer(client, request).await {
            // The monitor's report may be half a second old.
            Ok(()) | Err(HostError::AdminError(AdminError::DiskInUse { .. } | AdminError::NoSuchSpare)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
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

/// The location of a volume's block: its device, and the blocks from which it can be reconstructed, or that are copies of it.
pub fn devices_of_block(volume: &VolumeDescription, block: u64) -> (DeviceId, u64, Vec<(DeviceId, u64, &'static str)>) {
    let layout = &volume.layout;
    let place = layout.locate(block);
    let (stripe, within) = (block / layout.stripe_blocks(), place.block % layout.unit_blocks());
    let data = (0..layout.data_units()).map(|unit| (layout.data_unit(stripe, unit), "data"));
    let kind = if layout.data_units() == 1 { "copy" } else { "parity" };
    let redundancy = (0..layout.redundancy_units()).map(|unit| (layout.redundancy_unit(stripe, unit), kind));
    let others = data.chain(redundancy).filter(|(other, _)| other.position != place.position);
    let others = others.filter(|_| layout.redundancy_units() > 0);
    let first = layout.first_block();
    let others = others.map(|(other, kind)| (volume.device_at(other.position), first + other.block + within, kind));
    (volume.device_at(place.position), first + place.block, others.collect())
}

/// True if the monitor has refused the request, so that retrying is useless.
fn is_refused(error: &HostError) -> bool {
    matches!(error, HostError::AdminError(_))
}

async fn forget_spare(control: &ControlPlane, disk: DiskId) -> Result<(), Failure> {
    control
        .update(|description| {
            description.spares.retain(|spare| spare.disk != disk);
            Ok(())
        })
        .await
}

/// The disk at `path`, if it is a spare, or is being added. The disk of a device is refused.
fn known_at(folder: &LocalFolder, description: &ArrayDescription, path: &Path) -> Result<Option<DiskEntry>, Failure> {
    let identity = DiskIdentity::of(path);
    let same = |other: PathBuf| {
        let canonical = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        let overlaps = identity.zip(DiskIdentity::of(&other)).is_some_and(|(one, other)| one.overlaps(&other));
        overlaps || canonical(&other) == canonical(path)
    };
    let absolute = folder.absolute();
    if let Some(spare) = description.spares.iter().find(|spare| same(spare.path(&absolute))) {
        if identity == DiskIdentity::of(&spare.path(&absolute)) {
            return Ok(Some(spare.clone()));
        }
        let message = format!("{} is a part of a spare, or contains it", path.display());
        return Err(Failure::failed("disk-in-use", message).hint("choose a file or disk that is not in use"));
    }
    match description.devices.iter().find(|device| same(device.path(&absolute))) {
        None => Ok(None),
        Some(DeviceEntry { state: DeviceState::Adding, file, size, disk: Some(disk), .. }) => {
            Ok(Some(DiskEntry { file: file.clone(), size: *size, disk: *disk }))
        }
        Some(device) => {
            let message = format!("{} is the disk of device {}", path.display(), device.id);
            Err(Failure::failed("disk-in-use", message).hint("choose a file or disk that is not in use"))
        }
    }
}

/// Opens a disk of this array that has never been served; anything else is refused.
fn look_at(path: &Path, array: ArrayId) -> Result<DeviceFile, Failure> {
    let may_go = "use --overwrite to create it again if its content is not needed; or choose another file";
    let found = match DeviceFile::open(path, Expected::default()) {
        Err(failure) if failure.code == "not-a-device" => {
            let message = match DiskFacts::of(path) {
                Ok(facts) => format!("{facts}; it is not a disk of an array"),
                Err(_) => format!("{} already exists, and is not a disk of an array", path.display()),
            };
            return Err(Failure::failed("file-exists", message).hint(may_go));
        }
        found => found?,
    };
    let superblock = found.superblock();
    if superblock.array != array {
        let message = format!("{} is a disk of another array, {}", path.display(), superblock.array);
        return Err(Failure::failed("wrong-array", message).hint(may_go));
    }
    if !found.is_unassigned() {
        let message = format!("{} has been in use, as the disk of device {}", path.display(), superblock.device.0);
        return Err(Failure::failed("disk-used", message).hint(may_go));
    }
    Ok(found)
}

/// A file of the folder that does not exist, or that was created and never used.
fn unused_file(folder: &Path, description: &ArrayDescription, stem: &str) -> PathBuf {
    let is_unused = |path: &PathBuf| {
        let relative = path.strip_prefix(folder).unwrap_or(path);
        let spares = description.spares.iter().map(|spare| &spare.file);
        let others = description.devices.iter().flat_map(|device| device.others.iter().map(|other| &other.file));
        let mut files = description.devices.iter().map(|device| &device.file).chain(spares).chain(others);
        !files.any(|file| file == relative) && (!path.exists() || look_at(path, description.array).is_ok())
    };
    let names = (0..).map(|number| match number {
        0 => folder.join(format!("{stem}.braid")),
        number => folder.join(format!("{stem}.{number}.braid")),
    });
    names.into_iter().find(is_unused).expect("some number is unused")
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::VolumeId;
    use braid_control::SpareReport;
    use std::os::fd::AsRawFd;

    fn folder(name: &str) -> (PathBuf, LocalFolder) {
        let dir = std::env::temp_dir().join(format!("braid-slots-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("array.json"), "{}").unwrap();
        (dir.clone(), LocalFolder::at(&dir))
    }

    fn description(devices: u16) -> ArrayDescription {
        let creation =
            crate::creation::CreateOptions { devices: Some(devices), ..Default::default() }.creation().unwrap();
        ArrayDescription::new(braid_control::new_array_id(), crate::creation::device_entries(&creation), creation)
    }

    fn new_disk(path: Option<PathBuf>) -> NewDisk {
        NewDisk { path, stem: "device-9".into(), size: None, default_size: 16 << 20, overwrite: false }
    }

    #[test]
    fn a_disk_is_made_once_and_what_has_a_past_or_is_something_else_is_refused() {
        let (dir, folder) = folder("made");
        let array = description(3);
        let code = |wanted: &NewDisk| prepare(&folder, &array, wanted).unwrap_err().code;
        let made = prepare(&folder, &array, &new_disk(None)).unwrap();
        assert_eq!((made.file.as_path(), made.size), (Path::new("device-9.braid"), 16 << 20));
        assert_eq!(prepare(&folder, &array, &new_disk(None)).unwrap(), made, "an interrupted command is continued");
        let path = dir.join("device-9.braid");
        assert_eq!(code(&NewDisk { size: Some(32 << 20), ..new_disk(Some(path.clone())) }), "bad-size");
        // It is served as device 9.
        let expected = Expected { array: Some(array.array), id: Some(DeviceId(9)) };
        let opened = DeviceFile::open(&path, expected).unwrap();
        assert_eq!((opened.superblock().device, opened.superblock().disk), (DeviceId(9), made.disk));
        assert_eq!(code(&new_disk(Some(path.clone()))), "device-in-use");
        drop(opened);
        assert_eq!(DeviceFile::open(&path, Expected::default()).unwrap().superblock().disk, made.disk);
        assert_eq!(code(&new_disk(Some(path.clone()))), "disk-used");
        assert_eq!(prepare(&folder, &array, &new_disk(None)).unwrap().file, Path::new("device-9.1.braid"));
        let anew = prepare(&folder, &array, &NewDisk { overwrite: true, ..new_disk(Some(path.clone())) }).unwrap();
        assert_ne!(anew.disk, made.disk);
        let other = description(3);
        let stranger = prepare(&folder, &other, &new_disk(Some(path))).unwrap_err();
        assert!(stranger.code == "wrong-array" && stranger.message.contains(&array.array.to_string()));
        std::fs::write(dir.join("notes"), "something").unwrap();
        assert_eq!(code(&new_disk(Some(dir.join("notes")))), "file-exists");
        std::fs::write(dir.join("device-1.braid"), "").unwrap();
        let overwrite = NewDisk { overwrite: true, ..new_disk(Some(dir.join("./device-1.braid"))) };
        assert_eq!(code(&overwrite), "disk-in-use");
        std::fs::hard_link(dir.join("device-1.braid"), dir.join("other.braid")).unwrap();
        assert_eq!(code(&NewDisk { overwrite: true, ..new_disk(Some(dir.join("other.braid"))) }), "disk-in-use");
        let notes = NewDisk { overwrite: true, ..new_disk(Some(dir.join("notes"))) };
        assert_eq!(code(&notes), "file-of-array");
        assert_eq!(std::fs::read(dir.join("notes")).unwrap(), b"something");
        assert_eq!(code(&NewDisk { size: Some(1 << 20), ..new_disk(Some(dir.join("small"))) }), "device-too-small");
        assert_eq!(code(&new_disk(Some("spare".into()))), "no-such-disk");
        let by_link =
            std::fs::File::open(&dir).map(|open| (format!("/proc/self/fd/{}", open.as_raw_fd()), open)).unwrap();
        let named = prepare(&folder, &array, &new_disk(Some(Path::new(&by_link.0).join("device-9.2.braid")))).unwrap();
        assert_eq!(named.file, Path::new("device-9.2.braid"), "not as it was written");
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn files_of_any_array_are_refused_even_behind_a_loop_device() {
        let ((dir, folder), (other, _)) = (folder("own"), folder("other"));
        let elsewhere = dir.with_extension("disk");
        std::fs::create_dir(other.join("inner")).unwrap();
        let [old, foreign, inner] = [dir.join("old.braid"), other.join("device-1.braid"), other.join("inner/some")];
        for file in [&old, &foreign, &inner, &elsewhere] {
            std::fs::File::create(file).unwrap().set_len(16 << 20).unwrap();
        }
        let link = dir.join("link.braid");
        std::os::unix::fs::symlink(&foreign, &link).unwrap();
        let array = description(3);
        let code = |path: &Path, overwrite| {
            let disk = NewDisk { overwrite, ..new_disk(Some(path.to_path_buf())) };
            prepare(&folder, &array, &disk).err().map(|failure| failure.code)
        };
        let of_array = Some("file-of-array".to_string());
        for (path, refused) in
            [(&foreign, &of_array), (&inner, &of_array), (&link, &of_array), (&old, &None), (&elsewhere, &None)]
        {
            assert_eq!(code(path, true), *refused, "{path:?}");
        }
        std::os::unix::fs::symlink("gone/away", dir.join("dangling")).unwrap();
        for overwrite in [false, true] {
            assert_eq!(code(&dir.join("dangling"), overwrite).as_deref(), Some("no-such-disk"));
            assert!(!dir.join("gone").exists());
        }
        let locked = DeviceFile::open(&elsewhere, Expected::default()).unwrap();
        let losetup = |words: &[&str]| {
            let said = std::process::Command::new("losetup").args(words).output();
            said.ok().filter(|said| said.status.success()).map(|said| String::from_utf8(said.stdout).unwrap())
        };
        let in_use = Some("device-in-use".to_string());
        for (file, refused) in [(&foreign, &of_array), (&old, &of_array), (&elsewhere, &in_use)] {
            let Some(said) = losetup(&["--find", "--show", file.to_str().unwrap()]) else {
                eprintln!("skipped: only root can make loop devices");
                break;
            };
            let codes = [false, true].map(|overwrite| code(Path::new(said.trim()), overwrite));
            losetup(&["--detach", said.trim()]).unwrap();
            assert_eq!(codes, [refused.clone(), refused.clone()], "{file:?}");
        }
        drop(locked);
        std::fs::remove_dir_all(dir).and_then(|()| std::fs::remove_dir_all(other)).unwrap();
        std::fs::remove_file(elsewhere).unwrap();
    }

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

    #[test]
    fn the_place_of_a_block_is_reported() {
        let volume = |scheme: &str, devices: u16| {
            let volume = crate::health::tests::volume(scheme.parse().unwrap(), devices);
            VolumeDescription { devices: (10..10 + devices).map(DeviceId).collect(), ..volume }
        };
        let mirrored = volume("raid1:2", 2);
        assert_eq!(mirrored.id, VolumeId(1));
        let (device, block, others) = devices_of_block(&mirrored, 21);
        assert_eq!((block, others.len(), others[0].1, others[0].2), (21, 1, 21, "copy"));
        assert_ne!(device, others[0].0);
        let (device, block, others) = devices_of_block(&volume("raid5:4+1", 5), 64 + 3);
        assert_eq!((block, others.len()), (16 + 3, 4));
        assert!(others.iter().all(|(other, block, _)| *other != device && *block == 19));
        let count = |kind: &str| others.iter().filter(|(_, _, of)| *of == kind).count();
        assert_eq!((count("parity"), count("data")), (1, 3));
        assert!(devices_of_block(&volume("raid0:5", 5), 3).2.is_empty());
    }
}
