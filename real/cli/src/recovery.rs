//! The array's folder made whole from what its devices know (`docs/membership.md`): whether the monitor's state is the right one, and
//! making it anew.
//!
//! The devices are read and not served: so the array is down, and no lease of the lost monitor's runs on any disk that was read.

use crate::device::{DeviceFile, UNASSIGNED};
use crate::failure::Failure;
use braid_base::{ArrayId, DeviceId, DiskId, Epoch, Generation};
use braid_control::{ArrayDescription, ArrayFolder, DeviceEntry, Moment};
use braid_membership::MonitorError;
use braid_membership::recovery::{DeviceTestimony, Evidence, RecordSummary, RecoveredRecord, RecoveryRefused, recover};
use braid_store::{JournalView, Superblock};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Where the file that counts generations is lost, the next one is so far above the highest that any device knows of. Hosts that only
/// read leave no trace there.
const GENERATION_MARGIN: u32 = 1 << 20;

/// What one disk says.
pub struct DiskFacts {
    pub superblock: Superblock,
    pub view: JournalView,
}

/// A device's disk, read or not.
pub struct DeviceFacts {
    pub id: DeviceId,
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
    pub record: RecoveredRecord,
    /// The last generation; all hosts up to it are fenced.
    pub last_generation: u32,
    /// The file that counts generations is made anew, too.
    pub restores_generations: bool,
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
        return Err(Failure::failed("wrong-device", message));
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

/// Finds out what the monitor's state is to be.
pub fn plan(
    folder: &ArrayFolder,
    description: &ArrayDescription,
    devices: Vec<DeviceFacts>,
    without: BTreeSet<DeviceId>,
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
        StateFile::Good(summary) if folder.known_generation()?.is_some() => {
            let message =
                format!("the monitor's state is there and right: it ends with epoch {}", summary.membership.epoch);
            return Err(Failure::failed("nothing-to-recover", message).hint("`braid up` starts the array"));
        }
        StateFile::Good(_) => {}
    }
    let known_generation = folder.known_generation()?;
    let last_generation = match known_generation {
        Some(last) => last,
        None => {
            let seen =
                devices.iter().filter_map(|device| device.facts.as_ref().ok()).map(|facts| facts.view.generation);
            let highest = seen.max().unwrap_or_default();
            highest
                .0
                .checked_add(GENERATION_MARGIN)
                .ok_or_else(|| Failure::failed("no-generation", "all host generations of this array have been used"))?
        }
    };
    let evidence = Evidence {
        array: description.array,
        devices: description.devices.iter().map(|entry| (DeviceId(entry.id), entry.disk)).collect(),
        heard: devices.iter().filter_map(DeviceFacts::testimony).collect(),
        lived_by: lived_by(folder, description)?,
        without,
        hosts_below: Generation(last_generation.saturating_add(1)),
    };
    let record = recover(&evidence).map_err(|refused| explain(&refused, &devices, folder))?;
    Ok(Plan { record, last_generation, restores_generations: known_generation.is_none(), devices })
}

/// What devices were once heard to live by, as far as that is still known: an older copy of the monitor's state, and what the monitor
/// showed last, say nothing that was not so.
fn lived_by(folder: &ArrayFolder, description: &ArrayDescription) -> Result<BTreeMap<DeviceId, Epoch>, Failure> {
    let mut lived_by: BTreeMap<DeviceId, Epoch> = BTreeMap::new();
    let older = folder.monitor_state()?.and_then(|bytes| RecordSummary::read(&bytes).ok());
    let older = older.filter(|summary| summary.array == description.array).into_iter().flat_map(|older| older.lived_by);
    let shown = folder.monitor(&Moment::now())?.into_iter().flat_map(|entry| entry.report.devices);
    // Of another disk than the one that is there it says nothing.
    let shown = shown.filter(|report| {
        let entry = description.device(report.id);
        entry.is_some_and(|entry| entry.disk.map(|disk: DiskId| disk.to_string()) == report.disk)
    });
    let shown = shown.filter_map(|report| Some((DeviceId(report.id), Epoch(report.lives_by?))));
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
