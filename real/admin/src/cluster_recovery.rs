//! What is left of an array on several machines when etcd has lost its keys: a *backup* of these, and an *export* of each machine, which has
//! what its devices know. From them follows what etcd is to have (`docs/three-machines.md`). Nothing that the lost keys had promised is
//! believed: devices say who is up to date, all hosts are fenced, and numbers continue far above all that are known.
//!
//! A file of either kind is JSON with a schema, its kind, and a checksum of the content.

use crate::copies::{self, FolderCopy};
use crate::device_file::DeviceFile;
use crate::failure::Failure;
use crate::state_from_devices::{NUMBERS_LEFT_OUT, explain, lived_by, require_views};
use braid_base::checksum::crc32c;
use braid_base::{ArrayId, DeviceId, DiskId, Generation, Level, Member, MemberState, Membership, ObjectId};
use braid_control::{
    ArrayDescription, ClusterFile, DeviceEntry, LocalFolder, MachineEntry, private_file, unix_millis_now,
};
use braid_leadership::{CandidateId, Head, Nonce};
use braid_membership::record_recovery::{self, DeviceTestimony, Evidence, RecordSummary, RecoveredRecord};
use braid_ordering::Ordering;
use braid_registrar::{Content, Keys, LeaseEntry, Machines, image};
use braid_store::JournalView;
use braid_wire::ObjectDescription;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

const SCHEMA: u64 = 1;
/// A file has so many bytes at most: the keys of a large array are 0.6 MB, and each device has a copy of the description.
const BYTES_MAX: u64 = 256 << 20;
/// An export that is older may be from before the machine served last.
const EXPORT_MILLIS_MAX: u64 = 600_000;
/// What a machine's monitor has seen of the history.
const MARK: &str = "candidate.json";
/// The keys of the copies of the monitor's record.
const COPIES: [&str; 2] = ["record/0", "record/1"];

/// What etcd has of an array.
#[derive(Clone, Debug, Default)]
pub struct Found {
    pub head: Option<Head>,
    pub keys: Keys,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sealed<T> {
    schema: u64,
    kind: String,
    array: ArrayId,
    /// CRC32C of the content in its shortest form, in hexadecimal digits.
    checksum: String,
    content: T,
}

/// All that etcd had of an array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backup {
    pub term: u64,
    pub last_generation: u32,
    pub leases: BTreeMap<u32, LeaseEntry>,
    pub description: ArrayDescription,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    machines: BTreeMap<String, MachineEntry>,
    /// The copies of the monitor's record, in hexadecimal digits.
    record: [String; 2],
}

/// What a machine knows of its array by its devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Export {
    pub machine: String,
    /// Those that it knows.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    machines: BTreeMap<String, MachineEntry>,
    made_unix_millis: u64,
    /// The last term that its monitor has seen, and the last write of that.
    seen: (u64, u64),
    pub devices: Vec<ExportedDevice>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportedDevice {
    pub device: DeviceId,
    disk: DiskId,
    level: Level,
    membership: Option<Membership>,
    generation: Generation,
    /// Its objects, with their first block, their length in blocks, and their ordering.
    objects: Vec<(ObjectId, u64, u64, Ordering)>,
    copy: Option<FolderCopy>,
}

/// What etcd is to have.
#[derive(Debug)]
pub struct Recovered {
    pub term: u64,
    pub content: Content,
    pub record: RecoveredRecord,
    /// The revision of the description that it was made from.
    pub revision: u64,
}

/// Writes a new file of this kind: a `backup` or an `export`.
pub fn write<T: Serialize>(path: &Path, kind: &str, array: ArrayId, content: &T) -> Result<(), Failure> {
    let checksum = checksum_of(content).map_err(|error| Failure::failed("bad-path", error.to_string()))?;
    let sealed = Sealed { schema: SCHEMA, kind: kind.to_string(), array, checksum, content };
    let bytes = serde_json::to_vec_pretty(&sealed).expect("its content has a JSON form");
    let failed = |error| Failure::from(error).of(path.display());
    // It never overwrites one, and leaves nothing of one that can't be written.
    let new = path.with_added_extension(uuid::Uuid::new_v4().simple().to_string());
    let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    let write = || {
        let mut file = private_file().create_new(true).write(true).open(&new)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        std::fs::hard_link(&new, path)
    };
    let written = write();
    let _ = std::fs::remove_file(&new);
    written.and_then(|()| File::open(folder)?.sync_all()).map_err(failed)
}

/// Reads an intact file of this kind, about this array.
pub fn read<T: Serialize + DeserializeOwned>(path: &Path, kind: &str, array: ArrayId) -> Result<T, Failure> {
    let refused = |why: String| {
        let message = format!("{} is no intact {kind} of array {array}: {why}", path.display());
        Failure::data_lost(&format!("damaged-{kind}"), message).hint(format!("name another {kind}"))
    };
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(BYTES_MAX).read_to_end(&mut bytes));
    read.map_err(|error| Failure::from(error).of(path.display()))?;
    let value = serde_json::from_slice::<serde_json::Value>(&bytes).map_err(|error| refused(error.to_string()))?;
    if let Some(newer) = value["schema"].as_u64().filter(|schema| *schema > SCHEMA) {
        return Err(refused(format!("it has schema {newer}, which needs a newer release")));
    }
    let sealed = serde_json::from_value::<Sealed<T>>(value).map_err(|error| refused(error.to_string()))?;
    match () {
        () if sealed.kind != kind => Err(refused(format!("its kind is '{}'", sealed.kind))),
        () if sealed.array != array => Err(refused("it is that of another array".into())),
        () if checksum_of(&sealed.content).is_ok_and(|found| found == sealed.checksum) => Ok(sealed.content),
        () => Err(refused("its checksum is that of another content".into())),
    }
}

fn checksum_of<T: Serialize>(content: &T) -> Result<String, serde_json::Error> {
    serde_json::to_vec(content).map(|bytes| format!("{:08x}", crc32c(&bytes)))
}

impl Backup {
    pub fn of(found: &Found) -> Result<Backup, Failure> {
        let Some(head) = &found.head else {
            return Err(Failure::unreachable("not-in-etcd", "etcd does not have this array").hint(RECOVER));
        };
        let damaged = |error: String| Failure::data_lost("registry-damaged", error).hint(RECOVER);
        if head.candidates.is_empty() {
            return Err(damaged("a recovery or an adoption was interrupted: repeat it".into()));
        }
        let Content { description, last, leases, machines } =
            Content::of(&found.keys).map_err(|error| damaged(error.to_string()))?;
        let digits = |key| Some(found.keys.get(key)?.iter().map(|byte| format!("{byte:02x}")).collect());
        let [Some(one), Some(other)] = COPIES.map(digits) else { return Err(damaged("a record is missing".into())) };
        let leases = leases.into_iter().map(|(host, lease)| (host.0, lease)).collect();
        let (machines, record) = (machines.machines, [one, other]);
        Ok(Backup { term: head.term, last_generation: last.0, leases, description, machines, record })
    }

    fn record(&self) -> Option<RecordSummary> {
        let byte = |digits: &[u8]| u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok();
        let bytes = |digits: &String| digits.as_bytes().chunks(2).map(byte).collect::<Option<Vec<_>>>();
        let keys = COPIES.iter().zip(&self.record);
        let keys = keys.map(|(key, digits)| Some((key.to_string(), bytes(digits)?.into()))).collect::<Option<_>>()?;
        RecordSummary::read(&image(&keys)).ok()
    }
}

/// What to do if etcd does not have the array.
const RECOVER: &str =
    "if its data is lost, end all agents, and see `braid cluster recover --help`; otherwise bring back its members";

/// What this machine knows, and what of it can't be read. No process of the array runs here. `named` names devices that have no copies.
pub fn export(
    folder: &LocalFolder,
    file: &ClusterFile,
    named: Option<&ArrayDescription>,
) -> Result<(Export, Vec<Failure>), Failure> {
    let dir = folder.absolute();
    let is_braid = |path: &PathBuf| path.extension().is_some_and(|name| name == "braid");
    let files = std::fs::read_dir(&dir)?.filter_map(|entry| Some(entry.ok()?.path()));
    let mut paths: BTreeSet<_> = files.filter(is_braid).collect();
    let copied = paths.iter().filter_map(|path| Some(copies::read(path).ok()?.copy?.description));
    let newest = copied.filter(|description| description.array == file.array).max_by_key(|copy| copy.revision);
    let entries = newest.iter().chain(named).flat_map(|description| &description.devices);
    paths.extend(entries.filter(|entry| entry.domain == file.machine).map(|entry| entry.path(&dir)));
    let (mut devices, mut unread) = (Vec::new(), Vec::new());
    for path in &paths {
        match exported(path, file.array) {
            Ok(device) => devices.push(device),
            Err(failure) => unread.push(failure.of(path.display())),
        }
    }
    let mark = std::fs::read(dir.join(MARK)).ok().and_then(|mark| serde_json::from_slice(&mark).ok());
    let number =
        |name: &str| mark.as_ref().map_or(0, |mark: &serde_json::Value| mark["mark"][name].as_u64().unwrap_or(0));
    let (machine, made_unix_millis) = (file.machine.clone(), unix_millis_now());
    let machines = file.machines.clone();
    Ok((Export { machine, machines, made_unix_millis, seen: (number("term"), number("seq")), devices }, unread))
}

fn exported(path: &Path, array: ArrayId) -> Result<ExportedDevice, Failure> {
    let device = DeviceFile::open_to_look(path)?;
    let superblock = *device.superblock();
    if superblock.array != array {
        return Err(Failure::failed("wrong-array", format!("it belongs to array {}", superblock.array)));
    }
    let JournalView { membership, generation, objects } = device.look()?;
    let objects = objects.into_values().map(|object| (object.object, object.first, object.blocks, object.ordering));
    let copy = copies::read(path).ok().and_then(|source| source.copy);
    let (disk, level, objects) = (superblock.disk, superblock.level, objects.collect());
    Ok(ExportedDevice { device: superblock.device, disk, level, membership, generation, objects, copy })
}

impl ExportedDevice {
    fn testimony(&self, device: DeviceId) -> DeviceTestimony {
        DeviceTestimony { device, disk: self.disk, membership: self.membership.clone(), level: self.level }
    }

    fn view(&self) -> JournalView {
        let object = |(object, first, blocks, ordering): &(ObjectId, u64, u64, Ordering)| {
            let (first, ordering) = (*first, *ordering);
            (*object, ObjectDescription { first, ordering, ..ObjectDescription::new(*object, *blocks) })
        };
        let (membership, generation) = (self.membership.clone(), self.generation);
        JournalView { membership, generation, objects: self.objects.iter().map(object).collect() }
    }
}

/// What etcd is to have, by the exports of all machines, and a backup if it has the newest description. `there`: what etcd has, which counts
/// only as far as its numbers are not used again.
pub fn recover(
    (folder, file): (&LocalFolder, &ClusterFile),
    exports: &[Export],
    backup: Option<&Backup>,
    there: &Found,
    without: BTreeSet<DeviceId>,
) -> Result<Recovered, Failure> {
    let is_old = |export: &&Export| unix_millis_now().abs_diff(export.made_unix_millis) > EXPORT_MILLIS_MAX;
    if let Some(Export { machine, .. }) = exports.iter().find(is_old) {
        let message =
            format!("the export of machine {machine} is not of the last ten minutes, by the clock of this machine");
        return Err(Failure::usage("export-old", message).hint("export there again, when all agents have ended"));
    }
    let devices: Vec<_> = exports.iter().flat_map(|export| &export.devices).collect();
    let copies: Vec<_> = devices.iter().filter_map(|device| device.copy.clone()).collect();
    let now = Content::of(&there.keys).ok();
    let described = devices.iter().filter(|device| !without.contains(&device.device));
    let described = described.filter_map(|device| Some(&device.copy.as_ref()?.description));
    let described = described.chain(backup.map(|backup| &backup.description));
    let described = described.chain(now.as_ref().map(|now| &now.description));
    let mut description = described.max_by_key(|description| description.revision).cloned().ok_or_else(|| {
        let message = "no device has a copy of the array's description";
        Failure::data_lost("no-copy", message).hint("name a backup with --from FILE: raw disks have no copies")
    })?;
    let strange = |why: String| Failure::data_lost("bad-description", format!("the newest description: {why}"));
    if description.array != file.array {
        return Err(strange("it is that of another array".into()));
    }
    if description.level > Level::KNOWN || description.schema != description.needed_schema() {
        return Err(strange("it needs another release".into()));
    }
    description.check().map_err(strange)?;
    let heard: Vec<_> = description
        .devices
        .iter()
        .flat_map(|entry| {
            let disk = entry.disk.filter(|disk| devices.iter().any(|device| device.disk == *disk));
            // If the right disk is missing, another one of that device is named.
            let is_its =
                move |device: &&&ExportedDevice| disk.map_or(device.device.0 == entry.id, |disk| device.disk == disk);
            devices.iter().filter(is_its).map(|device| (DeviceId(entry.id), *device))
        })
        .collect();
    let testimony: Vec<_> = heard.iter().map(|(id, device)| device.testimony(*id)).collect();
    require_described(&description, &testimony, &without)?;
    let seen = exports.iter().map(|export| export.seen).max().unwrap_or_default();
    if let (Some(head), Some(now)) = (&there.head, &now)
        && !head.candidates.is_empty()
        && (head.term, head.seq) >= seen
        && now.description.revision >= description.revision
        && RecordSummary::read(&image(&there.keys)).is_ok_and(|record| record.is_up_to_date(&testimony))
    {
        return Err(Failure::failed("nothing-to-recover", "etcd has this array, and no machine knows anything later")
            .hint("start `braid agent` on each machine"));
    }
    let revision = description.revision;
    let newest = now.as_ref().map_or(0, |now| now.description.revision).max(revision);
    let terms = [seen.0, backup.map_or(0, |backup| backup.term), there.head.as_ref().map_or(0, |head| head.term)];
    let term = above(terms.into_iter().max().unwrap_or_default())?;
    (description.revision, description.next_volume) = (above(newest)?, above(description.next_volume)?);
    let given = copies.iter().map(|copy| copy.generation).chain(devices.iter().map(|device| device.generation.0));
    let known = [&file.machines].into_iter().chain(exports.iter().map(|export| &export.machines));
    let known =
        known.chain(backup.map(|backup| &backup.machines)).chain(now.as_ref().map(|now| &now.machines.machines));
    let mut machines: Vec<_> = known.flatten().map(|(name, entry)| (name.clone(), entry.clone())).collect();
    // A machine that has joined anew has a higher number; one that is gone was known before that.
    machines.sort_by_key(|(_, entry)| (entry.candidate, entry.gone));
    let machines = Machines::new(machines.into_iter().collect());
    let given = given.chain(backup.map(|backup| backup.last_generation)).chain(now.map(|now| now.last.0));
    let last = given.max().unwrap_or_default().checked_add(NUMBERS_LEFT_OUT as u32).filter(|last| *last < u32::MAX - 1);
    let last =
        last.ok_or_else(|| Failure::failed("no-generation", "all host generations of this array have been used"))?;
    let mut known = lived_by(folder, None, &description, &copies)?;
    if let Some(backup) = backup {
        let record = backup.record().filter(|record| record.array == description.array);
        let lost = || Failure::data_lost("damaged-backup", "the monitor's record in the backup can't be read");
        // The epoch of another disk says nothing of the present one.
        let is_same = |id: u16| disk_of(&backup.description, id) == disk_of(&description, id);
        for (device, epoch) in record.ok_or_else(lost)?.lived_by.into_iter().filter(|(device, _)| is_same(device.0)) {
            let known = known.entry(device).or_default();
            *known = epoch.max(*known);
        }
    }
    let evidence = Evidence {
        array: description.array,
        devices: description.devices.iter().map(|entry| (DeviceId(entry.id), entry.disk)).collect(),
        heard: testimony,
        lived_by: known,
        level: description.level,
        without: without.clone(),
        hosts_below: Generation(last + 1),
    };
    let record = record_recovery::recover(&evidence).map_err(|refused| {
        let failure = explain(&refused, &[], "braid cluster recover …");
        let hint = failure.hint.clone().unwrap_or_default();
        failure.hint(format!("name the exports of all machines (`braid cluster recover --export FILE` there); {hint}"))
    })?;
    let views = heard.iter().filter(|(id, _)| !without.contains(id));
    let views: Vec<_> = views.map(|(id, device)| (*id, device.view())).collect();
    require_views(&description, revision, record.membership(), views.iter().map(|(id, view)| (*id, view)))
        .map_err(|failure| failure.hint("name a newer backup with --from FILE, or export from all machines again"))?;
    let content = Content { machines, ..Content::new(description, Generation(last)) };
    Ok(Recovered { term, content, record, revision })
}

/// Refuses a description that lacks a device which is in, with the volumes there.
fn require_described(
    description: &ArrayDescription,
    testimony: &[DeviceTestimony],
    without: &BTreeSet<DeviceId>,
) -> Result<(), Failure> {
    let newest = testimony.iter().filter_map(|device| device.membership.as_ref()).max_by_key(|it| it.epoch);
    let is_lacking = |member: &&Member| {
        let is_known = description.device(member.device.0).is_some() || without.contains(&member.device);
        member.member_state != MemberState::Out && !is_known
    };
    match newest.into_iter().flat_map(|membership| &membership.members).find(is_lacking) {
        None => Ok(()),
        Some(Member { device, .. }) => {
            let message = format!("the newest description lacks device {}, which is in", device.0);
            Err(Failure::data_lost("copy-outdated", message).hint(format!(
                "name a newer backup with --from FILE; if the device was removed: --without {}",
                device.0
            )))
        }
    }
}

fn disk_of(description: &ArrayDescription, id: u16) -> Option<DiskId> {
    description.device(id).and_then(|entry: &DeviceEntry| entry.disk)
}

/// A head of this term, in which no candidate has led. It can't be that of another history.
pub fn head(machines: &Machines, term: u64) -> Head {
    let there = machines.machines.values().filter(|machine| !machine.gone);
    let candidates = there.map(|machine| CandidateId(machine.candidate)).collect();
    Head { term, nonce: Nonce(uuid::Uuid::new_v4().as_u128()), ..Head::first(candidates) }
}

/// A number that has not been used if this is the highest one that is known.
fn above(number: u64) -> Result<u64, Failure> {
    number.checked_add(NUMBERS_LEFT_OUT).filter(|next| *next < u64::MAX / 2).ok_or_else(|| {
        let message = format!("a number of these files is {number}, which no array has reached");
        Failure::data_lost("bad-number", message).hint("find the file that was changed, and name another one")
    })
}
