//! The array's folder made whole from what its devices know (`docs/membership.md`): whether the monitor's state is the right one, and
//! making it anew.
//!
//! The devices are read and not served: so the array is down, and no lease of the lost monitor's runs on any disk that was read.

use crate::copies::{self, FolderCopy};
use crate::device_file::{DeviceFile, UNASSIGNED};
use crate::failure::{EXCHANGED, Failure};
use crate::volumes;
use braid_base::{ArrayId, DeviceId, DiskId, Epoch, Generation, MemberState};
use braid_control::{ArrayDescription, ArrayFolder, DeviceEntry, Moment, VolumeEntry, VolumeState};
use braid_membership::MonitorError;
use braid_membership::recovery::{DeviceTestimony, Evidence, RecordSummary, RecoveredRecord, RecoveryRefused, recover};
use braid_store::{JournalView, Superblock};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Where the file that counts generations is lost, the next one is so far above the highest that any device knows of. Hosts that only
/// read leave no trace there.
const GENERATION_MARGIN: u32 = 1 << 20;

/// Revisions, and numbers of volumes, that are not used again after a description was made anew from a copy.
const NUMBERS_LEFT_OUT: u64 = 1 << 20;

/// What one disk says.
pub struct DiskFacts {
    /// Its superblock.
    pub superblock: Superblock,
    /// What its journal says of the array.
    pub view: JournalView,
}

/// A device's disk, read or not.
pub struct DeviceFacts {
    /// The device.
    pub id: DeviceId,
    /// Its file or disk.
    pub path: PathBuf,
    /// What it says, or why it can't be read.
    pub facts: Result<DiskFacts, Failure>,
}

impl DeviceFacts {
    fn testimony(&self) -> Option<DeviceTestimony> {
        let facts = self.facts.as_ref().ok()?;
        Some(DeviceTestimony {
            device: self.id,
            disk: facts.superblock.disk,
            membership: facts.view.membership.clone(),
        })
    }

    /// The epoch that it lives by; none if it could not be read.
    pub fn lives_by(&self) -> Option<Epoch> {
        self.testimony().map(|testimony| testimony.epoch())
    }
}

/// What is to be made anew.
pub struct Plan {
    /// The monitor's state.
    pub record: RecoveredRecord,
    /// The last generation; all hosts up to it are fenced.
    pub last_generation: u32,
    /// The file that counts generations is made anew, too.
    pub restores_generations: bool,
    /// What each device said.
    pub devices: Vec<DeviceFacts>,
}

/// Reads the disks of all devices of the array, side by side.
pub fn read_devices(folder: &ArrayFolder, description: &ArrayDescription) -> Vec<DeviceFacts> {
    std::thread::scope(|scope| {
        let read = |entry: &DeviceEntry| {
            let (id, path, array) = (DeviceId(entry.id), entry.path(folder.dir()), description.array);
            scope.spawn(move || {
                let facts = read_disk(&path, array, id);
                DeviceFacts { id, path, facts }
            })
        };
        let readers: Vec<_> = description.devices.iter().map(read).collect();
        readers.into_iter().map(|reader| reader.join().expect("a reader does not panic")).collect()
    })
}

/// Reads a disk that is to be this device of this array.
fn read_disk(path: &Path, array: ArrayId, id: DeviceId) -> Result<DiskFacts, Failure> {
    let device = DeviceFile::open_to_look(path)?;
    let superblock = *device.superblock();
    if superblock.array != array {
        let message = format!("{} belongs to array {}", path.display(), superblock.array);
        return Err(Failure::failed("wrong-array", message));
    }
    if superblock.device != id && superblock.device != UNASSIGNED {
        let message = format!("{} is device {}, not {id}", path.display(), superblock.device);
        return Err(Failure::failed("wrong-device", message).hint(EXCHANGED));
    }
    Ok(DiskFacts { superblock, view: device.look()? })
}

/// How the monitor's state is, compared with what the devices say.
pub enum StateFile {
    /// It is the right one, as far as the devices that were read know.
    Good(RecordSummary),
    /// There is none, and no device has ever lived by any: the monitor makes it.
    New,
    /// It is not to be used.
    Bad(Failure),
}

/// Looks at the monitor's state. Devices that can't be read have no say.
pub fn look_at_state(
    folder: &ArrayFolder,
    description: &ArrayDescription,
    devices: &[DeviceFacts],
) -> Result<StateFile, Failure> {
    let heard: Vec<DeviceTestimony> = devices.iter().filter_map(DeviceFacts::testimony).collect();
    let newest = heard.iter().max_by_key(|testimony| testimony.epoch());
    let path = folder.dir().join(braid_control::monitor_file());
    let summary = folder.monitor_state()?.map(|bytes| RecordSummary::read(&bytes));
    let bad = |code: &str, what: String| {
        let failure = Failure::data_lost(code, format!("{}: {what}", path.display()));
        StateFile::Bad(failure.hint(advice(folder)))
    };
    let lost = |what: &str| {
        let lived = newest.filter(|testimony| testimony.epoch() > Epoch(0));
        if lived.is_none() && !description.populated {
            return StateFile::New;
        }
        let what = format!("{what}, so it is not known which devices have everything that was written");
        bad("monitor-state-lost", what)
    };
    Ok(match summary {
        None => lost("the monitor's state is missing"),
        Some(Ok(summary)) if summary.membership.epoch == Epoch(0) => lost("the monitor's state is empty"),
        Some(Ok(summary)) if summary.array != description.array => {
            bad("monitor-state-damaged", format!("it is the state of array {}", summary.array))
        }
        Some(Ok(summary)) if !summary.is_up_to_date(&heard) => {
            let newest = newest.expect("one is newer");
            let (device, theirs, ours) = (newest.device, newest.epoch(), summary.membership.epoch);
            let what = format!(
                "an old copy of the monitor's state: it ends with epoch {ours}, and device {device} lives by epoch {theirs}"
            );
            bad("monitor-state-old", what)
        }
        Some(Ok(summary)) => StateFile::Good(summary),
        Some(Err(error @ MonitorError::NewerFormat { .. })) => {
            return Err(Failure::failed("newer-format", error.to_string()).of(path.display()));
        }
        Some(Err(error)) => bad("monitor-state-damaged", error.to_string()),
    })
}

/// Refuses to start an array whose monitor could not serve, or would not know who is in.
pub fn require_state(folder: &ArrayFolder, description: &ArrayDescription) -> Result<(), Failure> {
    match look_at_state(folder, description, &read_devices(folder, description))? {
        StateFile::Good(_) | StateFile::New => Ok(()),
        StateFile::Bad(failure) => Err(failure),
    }
}

/// What to do about a monitor's state that is not the right one.
pub fn advice(folder: &ArrayFolder) -> String {
    format!(
        "`braid monitor recover --array {}` makes it anew from what the devices know; --dry-run shows what that comes to",
        folder.dir().display()
    )
}

/// Finds out what the monitor's state is to be. With `anyway`, even if it is the right one.
pub fn plan(
    folder: &ArrayFolder,
    description: &ArrayDescription,
    devices: Vec<DeviceFacts>,
    copies: &[FolderCopy],
    without: BTreeSet<DeviceId>,
    anyway: bool,
) -> Result<Plan, Failure> {
    if let Some(stranger) = without.iter().find(|device| description.device(device.0).is_none()) {
        return Err(Failure::usage("no-such-device", format!("the array has no device {stranger}")));
    }
    match look_at_state(folder, description, &devices)? {
        StateFile::Bad(_) => {}
        StateFile::New => {
            return Err(Failure::failed(
                "nothing-to-recover",
                "no device has ever been served: there is nothing to recover",
            )
            .hint("`braid up` starts the array"));
        }
        StateFile::Good(summary) if folder.known_generation()?.is_some() && !anyway => {
            let message =
                format!("the monitor's state is there and right: it ends with epoch {}", summary.membership.epoch);
            return Err(Failure::failed("nothing-to-recover", message).hint("`braid up` starts the array"));
        }
        StateFile::Good(_) => {}
    }
    let known_generation = folder.known_generation()?;
    // Whoever has lost the record may have brought back an older folder: then hosts were started of which it says nothing.
    let seen = devices.iter().filter_map(|device| device.facts.as_ref().ok()).map(|facts| facts.view.generation);
    let copied = copies.iter().map(|copy| Generation(copy.generation));
    let highest = seen.chain(copied).chain(known_generation.map(Generation)).max().unwrap_or_default();
    let last_generation = highest
        .0
        .checked_add(GENERATION_MARGIN)
        .ok_or_else(|| Failure::failed("no-generation", "all host generations of this array have been used"))?;
    let evidence = Evidence {
        array: description.array,
        devices: description.devices.iter().map(|entry| (DeviceId(entry.id), entry.disk)).collect(),
        heard: devices.iter().filter_map(DeviceFacts::testimony).collect(),
        lived_by: lived_by(folder, description, copies)?,
        without,
        hosts_below: Generation(last_generation.saturating_add(1)),
    };
    let record = recover(&evidence).map_err(|refused| explain(&refused, &devices, folder))?;
    Ok(Plan { record, last_generation, restores_generations: known_generation.is_none(), devices })
}

/// The copies that the files of devices have of what the folder says; those that can't be read have none.
pub fn read_copies(devices: &[DeviceFacts]) -> Vec<FolderCopy> {
    devices.iter().filter_map(|facts| copies::read(&facts.path).ok()?.copy).collect()
}

/// The description of an array whose folder has none, by the newest copy that these files of devices have; and with the files where
/// they are now.
pub fn description_from(folder: &ArrayFolder, files: &[PathBuf]) -> Result<ArrayDescription, Failure> {
    let mut sources = Vec::new();
    for file in files {
        sources.push((std::path::absolute(file)?, copies::read(file)?));
    }
    if let Some((file, _)) = sources.iter().find(|(_, source)| source.array != sources[0].1.array) {
        let message = format!("{} is of another array than {}", file.display(), sources[0].0.display());
        return Err(Failure::usage("wrong-array", message).hint("name the files of one array"));
    }
    let copies = sources.iter().filter_map(|(_, source)| source.copy.as_ref());
    let newest = copies.max_by_key(|copy| copy.description.revision).ok_or_else(|| {
        Failure::data_lost("no-copy", "none of these files has a copy of what the array's folder said")
            .hint("`braid up` puts copies there while it runs: name all files of the array's devices")
    })?;
    let mut description = newest.description.clone();
    for (path, source) in &sources {
        let file = path.strip_prefix(folder.absolute()).map_or(path.clone(), Path::to_path_buf);
        let devices = description.devices.iter_mut();
        let own = devices
            .map(|entry| (entry.disk.is_none_or(|disk| disk == source.disk) && entry.id == source.device.0, entry));
        let mut known = false;
        for (is_own, entry) in own {
            if is_own {
                (entry.file, known) = (file.clone(), true);
            }
            for other in entry.others.iter_mut().filter(|other| other.disk == source.disk) {
                (other.file, known) = (file.clone(), true);
            }
        }
        for spare in description.spares.iter_mut().filter(|spare| spare.disk == source.disk) {
            (spare.file, known) = (file.clone(), true);
        }
        if !known {
            let message = format!(
                "{} is disk {} of device {}, which the newest copy of array.json (revision {}) does not know",
                path.display(),
                source.disk,
                source.device,
                description.revision
            );
            return Err(Failure::failed("unknown-disk", message).hint("leave it out if it was removed from the array"));
        }
    }
    // What came after that copy must not be taken for this: neither numbers of volumes, nor copies of the time.
    description.next_volume += NUMBERS_LEFT_OUT;
    description.revision += NUMBERS_LEFT_OUT;
    Ok(description)
}

/// Refuses a description by a copy if the devices that are in have other volumes than it says: then it is from before a change.
pub fn require_current(description: &ArrayDescription, plan: &Plan) -> Result<(), Failure> {
    let membership = plan.record.membership();
    let is_in =
        |device: DeviceId| membership.member(device).is_some_and(|member| member.member_state == MemberState::In);
    for facts in plan.devices.iter().filter(|facts| is_in(facts.id)) {
        let Ok(there) = &facts.facts else { continue };
        if let Some(what) = difference(description, facts.id, &there.view)? {
            let revision = description.revision - NUMBERS_LEFT_OUT;
            let message = format!("the newest copy of array.json (revision {revision}) is not the last one: {what}");
            return Err(Failure::data_lost("copy-outdated", message)
                .hint("bring array.json itself back, or name a device's file that has a newer copy"));
        }
    }
    Ok(())
}

/// How what a device has differs from what it should have, if it does.
fn difference(description: &ArrayDescription, device: DeviceId, view: &JournalView) -> Result<Option<String>, Failure> {
    let mut strangers = view.objects.clone();
    for entry in &description.volumes {
        let as_described = |entry: &VolumeEntry| {
            let volume = volumes::describe(entry)?;
            Ok::<_, Failure>((volume.id.object(), volume.object_on(device).map(|range| (range, volume.ordering))))
        };
        let (object, is) = as_described(entry)?;
        // What was under way is ended, or taken back, at the next start.
        let also = match &entry.state {
            VolumeState::Ready | VolumeState::Draining { .. } => is,
            VolumeState::Reordering { to, .. } => as_described(&entry.changed(to))?.1,
            VolumeState::Creating | VolumeState::Deleting => None,
        };
        let there = strangers.remove(&object).map(|object| (object.range(), object.ordering));
        if there != is && there != also {
            return Ok(Some(format!("device {device} has volume '{}' otherwise", entry.name)));
        }
    }
    let stranger = strangers.keys().next();
    Ok(stranger.map(|object| format!("device {device} has object {object}, which is of no volume")))
}

/// What devices were once heard to live by, as far as that is still known: an older copy of the monitor's state, what the monitor
/// showed last, and the copies on devices say nothing that was not so.
fn lived_by(
    folder: &ArrayFolder,
    description: &ArrayDescription,
    copies: &[FolderCopy],
) -> Result<BTreeMap<DeviceId, Epoch>, Failure> {
    let mut lived_by: BTreeMap<DeviceId, Epoch> = BTreeMap::new();
    let older = folder.monitor_state()?.and_then(|bytes| RecordSummary::read(&bytes).ok());
    let older = older.filter(|summary| summary.array == description.array).into_iter().flat_map(|older| older.lived_by);
    let shown = folder.monitor(&Moment::now())?.into_iter().flat_map(|entry| entry.report.devices);
    let shown = shown.filter_map(|report| Some((report.id, report.lives_by?, report.disk)));
    let copied = copies.iter().flat_map(|copy| &copy.lived_by);
    let copied = copied.map(|(device, (epoch, disk))| (*device, *epoch, disk.clone()));
    // Of another disk than the one that is there they say nothing.
    let shown = shown.chain(copied).filter(|(device, _, disk)| {
        let entry = description.device(*device);
        entry.is_some_and(|entry| entry.disk.map(|disk: DiskId| disk.to_string()) == *disk)
    });
    let shown = shown.map(|(device, epoch, _)| (DeviceId(device), Epoch(epoch)));
    for (device, epoch) in older.chain(shown) {
        let known = lived_by.entry(device).or_default();
        *known = epoch.max(*known);
    }
    Ok(lived_by)
}

/// Why there is no plan, and what the operator can do.
fn explain(refused: &RecoveryRefused, devices: &[DeviceFacts], folder: &ArrayFolder) -> Failure {
    let message = refused.to_string();
    let command = format!("braid monitor recover --array {}", folder.dir().display());
    match refused {
        RecoveryRefused::Missing { devices: missing } => {
            let why = |device: &DeviceId| {
                let failure = devices.iter().find(|facts| facts.id == *device).and_then(|facts| facts.facts.as_ref().err());
                failure.map_or(format!("device {device} was not read"), |failure| format!("device {device}: {failure}"))
            };
            let why: Vec<String> = missing.iter().map(why).collect();
            let flags: Vec<String> = missing.iter().map(|device| format!("--without {device}")).collect();
            Failure::unreachable("devices-missing", format!("{message} ({})", why.join("; "))).hint(format!(
                "bring their disks back and try again. If they are lost: `{command} {}`; what they alone held is lost then, and their \
                 disks are not let in again, but have to be replaced",
                flags.join(" ")
            ))
        }
        RecoveryRefused::Outdated { device, .. } => Failure::data_lost("device-outdated", message).hint(format!(
            "bring the right disk of device {device} back; or do without it: `{command} --without {device}`, and replace it afterwards"
        )),
        RecoveryRefused::OtherDisk { device, .. } => Failure::failed("other-disk", message).hint(format!(
            "bring that disk back; or do without the device: `{command} --without {device}`"
        )),
        RecoveryRefused::Disagreement { .. } => Failure::data_lost("devices-disagree", message)
            .hint("one of these disks was served apart from the others: find out which, and name it with --without"),
        RecoveryRefused::NothingAdopted | RecoveryRefused::Twice { .. } | RecoveryRefused::NoEpochs { .. } => {
            Failure::data_lost("cannot-recover", message)
        }
    }
}
