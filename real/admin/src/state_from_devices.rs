//! The monitor's state and the array's folder as the devices know them (`docs/membership.md`): checks whether the monitor's state is
//! current, and recreates it. [`Array::recover`] is the operation.
//!
//! Devices are read without serving them, so the array is down, and no disk that was read has a lease of the lost monitor.

use crate::array::Array;
use crate::copies::{self, FolderCopy};
use crate::device_file::{DeviceFile, UNASSIGNED};
use crate::failure::{EXCHANGED, Failure};
use braid_base::{ArrayId, DeviceId, DiskId, Epoch, FenceTable, Generation, MemberState, Membership};
use braid_control::{
    ArrayDescription, ControlError, DeviceEntry, LocalFolder, MonitorEntry, require_kinds, shell_word,
};
use braid_control_protocol::{VolumeRecord, VolumeState};
use braid_layout::VolumeDescription;
use braid_membership::MonitorError;
use braid_membership::record_recovery::{
    DeviceTestimony, Evidence, RecordSummary, RecoveredRecord, RecoveryRefused, recover,
};
use braid_store::{JournalView, Superblock};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// If the counter of generations is lost, the new counter is this far above the highest generation known to any device. Hosts that only
/// read leave no trace on devices.
const GENERATION_MARGIN: u32 = 1 << 20;

/// Revisions, and numbers of volumes, that are skipped after a description was recreated from a copy.
pub(crate) const NUMBERS_LEFT_OUT: u64 = 1 << 20;

/// What was read from a disk.
pub struct DiskFacts {
    pub superblock: Superblock,
    /// What its journal says of the array.
    pub view: JournalView,
}

/// A device, and the result of reading its disk.
pub struct DeviceFacts {
    pub id: DeviceId,
    /// Its file or disk.
    pub path: PathBuf,
    /// What was read, or why it could not be read.
    pub facts: Result<DiskFacts, Failure>,
}

impl DeviceFacts {
    fn testimony(&self) -> Option<DeviceTestimony> {
        let facts = self.facts.as_ref().ok()?;
        let (disk, level) = (facts.superblock.disk, facts.superblock.level);
        Some(DeviceTestimony { device: self.id, disk, membership: facts.view.membership.clone(), level })
    }

    /// The epoch of the disk; none if it could not be read.
    pub fn lives_by(&self) -> Option<Epoch> {
        self.testimony().map(|testimony| testimony.epoch())
    }
}

/// What is to be recreated.
pub struct Plan {
    /// The monitor's state.
    pub record: RecoveredRecord,
    /// The last generation; all hosts up to it are fenced.
    pub last_generation: u32,
    /// True if the counter of generations is recreated, too.
    pub restores_generations: bool,
    pub devices: Vec<DeviceFacts>,
}

/// Reads the disks of all devices of the array concurrently.
pub fn read_devices(folder: &LocalFolder, description: &ArrayDescription) -> Vec<DeviceFacts> {
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

/// Reads a disk that must contain this device of this array.
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

/// The monitor's state, compared with what the devices say.
pub enum StateFile {
    /// It is current, as far as the devices that were read know.
    Good(RecordSummary),
    /// There is none, and no device has ever served: the monitor will create it.
    New,
    /// It must not be used.
    Bad(Failure),
}

/// Checks the monitor's state. Devices that can't be read are ignored.
pub fn look_at_state(
    folder: &LocalFolder,
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
        let what = format!("{what}, so it is unknown which devices are up to date");
        bad("monitor-state-lost", what)
    };
    Ok(match summary {
        None => lost("the monitor's state is missing"),
        Some(Ok(summary)) if summary.membership.epoch == Epoch(0) => lost("the monitor's state is empty"),
        Some(Ok(summary)) if summary.array != description.array => {
            bad("monitor-state-damaged", format!("it is the state of another array, {}", summary.array))
        }
        Some(Ok(summary)) if !summary.is_up_to_date(&heard) => {
            let newest = newest.expect("a newer epoch was found");
            let (device, theirs, ours) = (newest.device, newest.epoch(), summary.membership.epoch);
            let what = format!(
                "an old copy of the monitor's state: its epoch is {ours}, but that of device {device} is {theirs}"
            );
            bad("monitor-state-old", what)
        }
        Some(Ok(summary)) => match fenced_ahead(&summary.membership.fence, folder.known_generation()?) {
            Some(host) => {
                let what = format!(
                    "it fences hosts up to {host}, which were never started, so that new hosts would be refused"
                );
                bad("hosts-fenced-ahead", what)
            }
            None => StateFile::Good(summary),
        },
        Some(Err(error @ MonitorError::NewerFormat { .. })) => {
            return Err(Failure::failed("newer-format", error.to_string()).of(path.display()));
        }
        Some(Err(error @ MonitorError::OlderFormat { .. })) => {
            return Err(Failure::failed("older-format", error.to_string()).of(path.display()));
        }
        Some(Err(error)) => bad("monitor-state-damaged", error.to_string()),
    })
}

/// The last host that a fence names although its generation was never given out.
fn fenced_ahead(fence: &FenceTable, last: Option<u32>) -> Option<Generation> {
    let below = fence.below.0.checked_sub(1).map(Generation);
    below.into_iter().chain(fence.also.last().copied()).max().filter(|host| last.is_some_and(|last| host.0 > last))
}

/// Refuses to start an array whose monitor could not serve, or whose monitor's state is not current.
fn require_state(folder: &LocalFolder, description: &ArrayDescription) -> Result<(), Failure> {
    match look_at_state(folder, description, &read_devices(folder, description))? {
        StateFile::Good(_) | StateFile::New => Ok(()),
        StateFile::Bad(failure) => Err(failure),
    }
}

/// Why the array in a folder can't be started: what `braid up` looks at before it starts anything. Changes nothing.
pub fn obstacles(folder: &LocalFolder, description: &ArrayDescription) -> Vec<Failure> {
    if let Err(error) = require_kinds(folder) {
        return vec![error.into()];
    }
    let looks = [
        copies::require_newest(folder, description),
        require_state(folder, description),
        folder.require_generations().map_err(Failure::from),
    ];
    let mut failures: Vec<_> = looks.into_iter().filter_map(Result::err).collect();
    failures.dedup();
    failures
}

/// The hint for a monitor's state that must not be used.
pub fn advice(folder: &LocalFolder) -> String {
    format!(
        "recreate it from the devices with `braid monitor recover --array {}`; --dry-run shows the result without changing anything",
        shell_word(folder.dir())
    )
}

/// Computes the monitor's new state; `shown` is its last report. With `anyway`, even if the state is current.
pub fn plan(
    (folder, shown): (&LocalFolder, Option<&MonitorEntry>),
    description: &ArrayDescription,
    devices: Vec<DeviceFacts>,
    copies: &[FolderCopy],
    without: BTreeSet<DeviceId>,
    anyway: bool,
) -> Result<Plan, Failure> {
    if let Some(stranger) = without.iter().find(|device| description.device(device.0).is_none()) {
        return Err(Failure::unreachable("no-such-device", format!("the array has no device {stranger}")));
    }
    match look_at_state(folder, description, &devices)? {
        StateFile::Bad(_) => {}
        StateFile::New => {
            let message = "no device has ever been served: there is nothing to recover";
            return Err(Failure::failed("nothing-to-recover", message).hint("start the array with `braid up`"));
        }
        StateFile::Good(summary) if folder.known_generation()?.is_some() && !anyway => {
            let message =
                format!("the monitor's state exists and is current: its epoch is {}", summary.membership.epoch);
            return Err(Failure::failed("nothing-to-recover", message).hint("start the array with `braid up`"));
        }
        StateFile::Good(_) => {}
    }
    let known_generation = folder.known_generation()?;
    // If the monitor's state was lost, an older folder may have been restored, which lacks hosts that were started since.
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
        lived_by: lived_by(folder, shown, description, copies)?,
        level: description.level,
        without,
        hosts_below: Generation(last_generation.saturating_add(1)),
    };
    let command = format!("braid monitor recover --array {}", folder.dir().display());
    let record = recover(&evidence).map_err(|refused| explain(&refused, &devices, &command))?;
    Ok(Plan { record, last_generation, restores_generations: known_generation.is_none(), devices })
}

/// The copies of the folder in the devices' files; files that can't be read are skipped.
pub fn read_copies(devices: &[DeviceFacts]) -> Vec<FolderCopy> {
    devices.iter().filter_map(|facts| copies::read(&facts.path).ok()?.copy).collect()
}

/// The description of an array whose folder has none: from the newest copy in these devices' files, with the files' current
/// paths.
pub fn description_from(folder: &LocalFolder, files: &[PathBuf]) -> Result<ArrayDescription, Failure> {
    let mut sources = Vec::new();
    for file in files {
        sources.push((std::path::absolute(file)?, copies::read(file)?));
    }
    if let Some((file, _)) = sources.iter().find(|(_, source)| source.array != sources[0].1.array) {
        let message = format!("{} belongs to another array than {}", file.display(), sources[0].0.display());
        return Err(Failure::usage("wrong-array", message).hint("name the files of one array"));
    }
    let copies = sources.iter().filter_map(|(_, source)| source.copy.as_ref());
    let newest = copies.max_by_key(|copy| copy.description.revision).ok_or_else(|| {
        Failure::data_lost("no-copy", "none of these files has a copy of the array's folder")
            .hint("`braid up` writes copies while it runs: name all files of the array's devices")
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
            let disk = format!("{} is disk {} of device {}", path.display(), source.disk, source.device);
            let revision = description.revision;
            let message = format!("{disk}, which is unknown to the newest copy of array.json (revision {revision})");
            return Err(Failure::failed("unknown-disk", message).hint("omit it if it was removed from the array"));
        }
    }
    // Numbers used after that copy must not be used again, neither for volumes nor for revisions.
    description.next_volume += NUMBERS_LEFT_OUT;
    description.revision += NUMBERS_LEFT_OUT;
    Ok(description)
}

/// Refuses a description from a copy if the devices hold other volumes than it describes: then it is older than a change.
pub fn require_current(description: &ArrayDescription, plan: &Plan) -> Result<(), Failure> {
    let views = plan.devices.iter().filter_map(|facts| Some((facts.id, &facts.facts.as_ref().ok()?.view)));
    require_views(description, description.revision - NUMBERS_LEFT_OUT, plan.record.membership(), views)
}

/// The same for devices of which this was read. `revision`: that of the copy.
pub(crate) fn require_views<'a>(
    description: &ArrayDescription,
    revision: u64,
    membership: &Membership,
    views: impl Iterator<Item = (DeviceId, &'a JournalView)>,
) -> Result<(), Failure> {
    let is_in =
        |device: DeviceId| membership.member(device).is_some_and(|member| member.member_state == MemberState::In);
    for (device, view) in views.filter(|(device, _)| is_in(*device)) {
        if let Some(what) = difference(description, device, view)? {
            let message = format!("the newest copy of the description (revision {revision}) is outdated: {what}");
            return Err(Failure::data_lost("copy-outdated", message)
                .hint("restore array.json itself, or name a device's file that has a newer copy"));
        }
    }
    Ok(())
}

/// How the objects on a device differ from those that it should have; none if they do not.
fn difference(description: &ArrayDescription, device: DeviceId, view: &JournalView) -> Result<Option<String>, Failure> {
    let mut strangers = view.objects.clone();
    for entry in &description.volumes {
        let VolumeRecord { volume, state, .. } = braid_description::record(entry)?;
        let as_described = |volume: &VolumeDescription| volume.object_on(device).map(|range| (range, volume.ordering));
        let is = as_described(&volume);
        // A change under way is completed or reverted at the next start.
        let also = match &state {
            VolumeState::Ready | VolumeState::Draining { .. } => is,
            VolumeState::Reordering { to, .. } => as_described(&to.applied_to(&volume)),
            VolumeState::Creating { .. } | VolumeState::Deleting { .. } => None,
        };
        let there = strangers.remove(&volume.id.object()).map(|object| (object.range(), object.ordering));
        if there != is && there != also {
            return Ok(Some(format!("device {device} has another placement of volume '{}'", entry.name)));
        }
    }
    let stranger = strangers.keys().next();
    Ok(stranger.map(|object| format!("device {device} has object {object}, which belongs to no volume")))
}

/// The epochs once reported by devices, as far as known: older states of the monitor, its last report, and copies on devices contain only
/// epochs that were reported.
pub(crate) fn lived_by(
    folder: &LocalFolder,
    shown: Option<&MonitorEntry>,
    description: &ArrayDescription,
    copies: &[FolderCopy],
) -> Result<BTreeMap<DeviceId, Epoch>, Failure> {
    let mut lived_by: BTreeMap<DeviceId, Epoch> = BTreeMap::new();
    let older = folder.monitor_state()?.and_then(|bytes| RecordSummary::read(&bytes).ok());
    let older = older.filter(|summary| summary.array == description.array).into_iter().flat_map(|older| older.lived_by);
    let shown = shown.into_iter().flat_map(|entry| &entry.report.devices);
    let shown = shown.filter_map(|report| Some((report.id, report.lives_by?, report.disk.clone())));
    let copied = copies.iter().flat_map(|copy| &copy.lived_by);
    let copied = copied.map(|(device, (epoch, disk))| (*device, *epoch, disk.clone()));
    // Reports of other disks than the connected ones say nothing.
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

/// The failure if there is no plan, with what the operator can do.
pub(crate) fn explain(refused: &RecoveryRefused, devices: &[DeviceFacts], command: &str) -> Failure {
    let message = refused.to_string();
    match refused {
        RecoveryRefused::Missing { devices: missing } => {
            let why = |device: &DeviceId| {
                let failure = devices.iter().find(|facts| facts.id == *device).and_then(|facts| facts.facts.as_ref().err());
                failure.map_or(format!("device {device} was not read"), |failure| format!("device {device}: {failure}"))
            };
            let why: Vec<String> = missing.iter().map(why).collect();
            let flags: Vec<String> = missing.iter().map(|device| format!("--without {device}")).collect();
            Failure::unreachable("devices-missing", format!("{message} ({})", why.join("; "))).hint(format!(
                "reconnect their disks and try again. If they are lost: `{command} {}`; data that they alone hold is lost then, and their \
                 disks are refused later and must be replaced",
                flags.join(" ")
            ))
        }
        RecoveryRefused::Outdated { device, .. } => Failure::data_lost("device-outdated", message).hint(format!(
            "reconnect the right disk of device {device}; or leave the device out with `{command} --without {device}`, and replace it afterwards"
        )),
        RecoveryRefused::OtherDisk { device, .. } => Failure::failed("other-disk", message).hint(format!(
            "reconnect that disk; or leave the device out with `{command} --without {device}`"
        )),
        RecoveryRefused::Disagreement { .. } => Failure::data_lost("devices-disagree", message)
            .hint("one of these disks was served separately from the others: find out which, and name it with --without"),
        RecoveryRefused::NoEpochs { .. } => Failure::data_lost("cannot-recover", message).hint(
            "no array has had so many epochs: find the device whose disk names that one, and leave it out with --without",
        ),
        RecoveryRefused::NothingAdopted | RecoveryRefused::Twice { .. } => {
            Failure::data_lost("cannot-recover", message)
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct RecoverOptions {
    /// Only determine what would be done, without changing anything.
    pub dry_run: bool,
    /// Devices whose disks are lost: data that they alone hold is lost, too.
    pub without: BTreeSet<DeviceId>,
    /// The files of all devices, if `array.json` is lost, too: it is recreated from their newest copy.
    pub description_from: Vec<PathBuf>,
}

/// What was found, and done unless it was a dry run.
pub struct Recovery {
    pub description: ArrayDescription,
    /// What each device said, and the resulting state.
    pub plan: Plan,
    /// True if `array.json` was lost, and is recreated.
    pub restores_description: bool,
}

/// A monitor whose last report is more recent may still be running.
const MONITOR_ALIVE: Duration = Duration::from_secs(10);

impl Array {
    /// Recreates the monitor's state from the devices, and the folder's description and generations if they are lost. The array must be
    /// down, and every device is read. Errors: `nothing-to-recover`, `devices-missing`, `device-outdated`, `devices-disagree`,
    /// `other-disk`, `copy-outdated`, `monitor-in-use`, `already-up`, `array-exists`.
    pub async fn recover(&self, options: &RecoverOptions) -> Result<Recovery, Failure> {
        let (control, from) = (self.control(), &options.description_from);
        if control.cluster().is_some() {
            return Err(Failure::usage("on-machines", "the record of this array is in etcd")
                .hint("see `braid cluster recover --help`"));
        }
        let folder = control.local();
        let described = match control.describe().await {
            Err(ControlError::NoArray { .. }) if !from.is_empty() => None,
            Ok(_) if !from.is_empty() => {
                let message = format!("{} has an array.json", folder.dir().display());
                let hint = "omit --from: the existing file describes the array";
                return Err(Failure::usage("array-exists", message).hint(hint));
            }
            described => Some(described?),
        };
        let supervision = folder.supervise()?;
        let restores_description = described.is_none();
        let description = match described {
            Some(description) => description,
            None => description_from(folder, from)?,
        };
        let monitor = control.monitor().await?;
        refuse_running_monitor(monitor.as_ref())?;
        let devices = read_devices(folder, &description);
        let copies = read_copies(&devices);
        let without = options.without.clone();
        let plan = plan((folder, monitor.as_ref()), &description, devices, &copies, without, restores_description)?;
        if restores_description {
            require_current(&description, &plan)?;
        }
        if !options.dry_run {
            if restores_description {
                supervision.restore_description(&description)?;
            }
            supervision.restore_generations(plan.last_generation)?;
            // Written last, because the array can be started as soon as it exists.
            supervision.restore_monitor_state(&plan.record.disk_image())?;
        }
        Ok(Recovery { description, plan, restores_description })
    }
}

/// A monitor that runs separately has its state file open, even if the file was removed.
fn refuse_running_monitor(monitor: Option<&MonitorEntry>) -> Result<(), Failure> {
    let alive =
        monitor.filter(|monitor| monitor.age.is_some_and(|age| age < MONITOR_ALIVE) && !monitor.process.has_ended());
    match alive {
        None => Ok(()),
        Some(monitor) => {
            let message = format!("the array's monitor is running ({})", monitor.process);
            Err(Failure::failed("monitor-in-use", message).hint("stop it first"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_beyond_the_last_host_is_noticed() {
        let fence = |below, also: &[u32]| FenceTable {
            below: Generation(below),
            except: Default::default(),
            also: also.iter().copied().map(Generation).collect(),
        };
        assert_eq!(fenced_ahead(&fence(0, &[]), Some(0)), None);
        assert_eq!(fenced_ahead(&fence(8, &[]), Some(7)), None, "all that have ended");
        assert_eq!(fenced_ahead(&fence(9, &[]), Some(7)), Some(Generation(8)));
        assert_eq!(
            fenced_ahead(&fence(u32::MAX, &[]), Some(7)),
            Some(Generation(u32::MAX - 1)),
            "as forged frames ask for"
        );
        assert_eq!(fenced_ahead(&fence(3, &[5, 8]), Some(7)), Some(Generation(8)));
        assert_eq!(fenced_ahead(&fence(9, &[]), None), None, "it is unknown which hosts there were");
    }
}
