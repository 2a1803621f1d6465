//! File systems: creating and deleting them, each with its volumes, and the configuration of their metadata servers.
//!
//! A file system NAME has the volumes NAME.meta and NAME.data; with several shards NAME.meta1, … and as many metadata servers, too (`shards`).
//! The protocols are `FileSystemCreation` and `FileSystemDeletion` of `braid_control_protocol`; this module drives them.
//!
//! Remains of an interrupted creation are removed by the next creation of that name, or by the deletion. An interrupted deletion is
//! completed by the next deletion, or by `braid up`.

use crate::array::await_until;
use crate::array_creation;
use crate::failure::{Failure, there_are};
use crate::operation_driver::{self, Ended, Questions, Subject, Work, Worker};
use crate::shards::{self, Grouping, Protocol, ShardChoice};
use crate::volumes::{self, CHUNK_BLOCKS, NO_ROOM, NewVolume, describe};
use braid_base::limits::Settings;
use braid_base::units::format_size;
use braid_base::{BLOCK_BYTES, FileSystemId, Generation, Time, VolumeId};
use braid_control::{
    ArrayDescription, ControlError, ControlPlane, FileSystemEntry, FileSystemState, HostEntry, Moment, ShardsEntry,
    VolumeEntry, WhenUnavailable,
};
use braid_control_protocol::{
    Answer, Error, FileSystemCreation, FileSystemDeletion, FileSystemTiming, Operation, Question, Tag,
};
use braid_layout::{Layout, RaidLevel};
use braid_machine::{Patience, VolumeRequest};
use braid_metadata::{MetadataServerConfig, VOLUME_BYTES_MIN};
use braid_namespace::Parameters;
use braid_session::Session;
use braid_wire::Owner;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;
use uuid::Uuid;

const METADATA_UNIT: u64 = 1 << 20;
/// A metadata volume has this fraction of the bytes of files,
const METADATA_FRACTION: u64 = 16;
/// or this one, up to so many bytes: small file systems have room for many small files, too,
const METADATA_FRACTION_MOST: u64 = 4;
const METADATA_BYTES_USUAL: u64 = 64 << 20;
/// and at most so many.
const METADATA_BYTES_MAX: u64 = 64 << 30;
/// The smallest volume for the bytes of files.
const DATA_BYTES_MIN: u64 = 16 << 20;
/// This fraction of the free space is left to objects if no size was given.
const FOR_OBJECTS: u64 = 16;
/// How many volumes a failure for lack of space names.
const LARGEST_NAMED: usize = 3;
/// How long the monitor's report may take to name no owner.
const REPORT_WAIT: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewFileSystem {
    /// Its name: up to 59 letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// Bytes for the content of files; none for the free space.
    pub bytes: Option<u64>,
    /// The layout of the content of files; none for that of the array's creation.
    pub scheme: Option<RaidLevel>,
    /// How many metadata servers it has, and how they work together.
    pub shards: ShardChoice,
}

/// The plans of the volumes of a file system.
struct Plans {
    /// One for each shard.
    metadata: Vec<NewVolume>,
    data: NewVolume,
}

impl Plans {
    fn of_volume(&self, number: usize) -> &NewVolume {
        self.metadata.get(number).unwrap_or(&self.data)
    }
}

/// The file system of this name, if it is ready.
pub fn find<'a>(description: &'a ArrayDescription, name: &str) -> Result<&'a FileSystemEntry, Failure> {
    let entry = any(description, name)?;
    match entry.state {
        FileSystemState::Ready => Ok(entry),
        FileSystemState::Creating => {
            let message = format!("file system '{name}' is not completely created");
            Err(Failure::failed("file-system-creating", message).hint(format!(
                "create it again with `braid fs create {name}`, or remove it with `braid fs delete {name} --yes`"
            )))
        }
        FileSystemState::Deleting => {
            let message = format!("file system '{name}' is being deleted");
            Err(Failure::failed("file-system-deleting", message)
                .hint(format!("`braid fs delete {name} --yes` completes the deletion")))
        }
    }
}

/// The file system of this name, in any state.
pub fn any<'a>(description: &'a ArrayDescription, name: &str) -> Result<&'a FileSystemEntry, Failure> {
    description.file_system(name).ok_or_else(|| {
        let names: Vec<String> = description.file_systems.iter().map(|entry| entry.name.clone()).collect();
        let hint = there_are(&names, &format!("create one with `braid fs create {name}`"));
        Failure::unreachable("no-such-file-system", format!("there is no file system '{name}'")).hint(hint)
    })
}

/// The configuration of the metadata server of a shard, and its volume. The generation of its host is not set.
pub fn server_config(
    description: &ArrayDescription,
    name: &str,
    shard: usize,
) -> Result<(VolumeId, MetadataServerConfig), Failure> {
    let entry = find(description, name)?;
    let metadata = describe(volumes::find(description, &entry.metadata_volume(shard))?)?;
    let data = describe(volumes::find(description, &entry.data_volume())?)?;
    let config = MetadataServerConfig {
        array: description.array,
        file_system: shards::server(entry, shard)?,
        generation: Generation(0),
        start: Generation(0),
        volume_bytes: metadata.bytes,
        peers: entry.servers(),
        commit_protocol: shards::protocol(entry)?,
        // Only a new file system takes them, but for the blocks: it grows with its volume.
        parameters: Parameters {
            blocks: data.bytes / BLOCK_BYTES as u64,
            stripe_blocks: data.layout.stripe_blocks(),
            hash_key: shards::names_key(entry)?,
            hash_bits: Parameters::HASH_BITS_MAX,
            shards: shards::of(entry, shard)?,
        },
        // Whoever runs the array may use its file systems.
        root: Owner { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() },
        serve_from: Time(0),
        grouping: shards::grouping(entry)?,
        settings: Settings { lock_eviction: entry.evict_after(), ..description.leases().settings() },
    };
    Ok((metadata.id, config))
}

/// Creates a file system. If that fails, nothing of it remains.
pub async fn create(session: &Session, new: &NewFileSystem) -> Result<FileSystemEntry, Failure> {
    array_creation::check_file_system_name(&new.name)?;
    new.shards.check()?;
    let (control, name) = (session.control(), &new.name);
    let subject = Subject::NewFileSystem(Box::new(FileSystemEntry::new(name.clone(), new.shards.entry(0))));
    let operation = FileSystemCreation::of(session.generation(), FileSystemTiming::default());
    let Ended { result, reasons, .. } = perform(session, subject, name, operation, Some(new)).await;
    match result {
        Ok(_) => Ok(find(&control.describe().await?, name)?.clone()),
        Err(Error::FileSystemExists) => {
            Err(Failure::failed("file-system-exists", format!("there is already a file system '{name}'"))
                .hint("choose another name; `braid fs status` lists the file systems"))
        }
        Err(Error::BeingDeleted) => match find(&control.describe().await?, name) {
            Err(failure) => Err(failure),
            Ok(_) => {
                let message = format!("file system '{name}' was being deleted");
                Err(Failure::failed("file-system-gone", message).hint("create it again"))
            }
        },
        Err(Error::Lost) => {
            let message = format!("file system {name} was created or deleted by another command");
            Err(Failure::failed("file-system-gone", message).hint("`braid fs status` lists the file systems"))
        }
        Err(error) => Err(why_not(control, name, error, reasons).await?),
    }
}

pub async fn delete(session: &Session, name: &str) -> Result<(), Failure> {
    let entry = any(&session.control().describe().await?, name)?.clone();
    let deletion = FileSystemDeletion::of(session.generation(), FileSystemTiming::default());
    remove(session, &entry, deletion).await.map_err(|failure| failure.of(format!("file system {name}")))
}

/// Sets how operations on several shards of a file system are committed, as far as that is given. Transactions that are under way end as
/// they began. Returns what counts now.
pub async fn set_commitment(
    control: &ControlPlane,
    name: &str,
    protocol: Option<Protocol>,
    grouping: Option<Grouping>,
) -> Result<ShardsEntry, Failure> {
    let change = |entry: &mut FileSystemEntry| {
        let shards = entry.shards.as_mut().ok_or_else(|| {
            let message = format!("one metadata server serves file system '{name}': it commits everything by itself");
            let hint = "the number of servers is chosen when a file system is created: `braid fs create --servers`";
            Failure::usage("one-server", message).hint(hint)
        })?;
        if let Some(protocol) = protocol {
            shards.commit_protocol = protocol.name().to_string();
        }
        if let Some(grouping) = grouping {
            shards.grouping = grouping.name().to_string();
        }
        Ok(shards.clone())
    };
    set(control, name, change).await
}

/// Sets how long hosts may keep locks of a file system that others wait for, in seconds; 0: for ever. Its metadata server follows soon.
pub async fn set_eviction(control: &ControlPlane, name: &str, seconds: u64) -> Result<(), Failure> {
    set(control, name, |entry| {
        entry.evict_after_seconds = Some(seconds);
        Ok(())
    })
    .await
}

/// Sets what requests for bytes do on mounts, for those that are made afterwards, while devices are missing that they need. Returns the setting
/// before. The array need not be up.
pub async fn set_unavailable(
    control: &ControlPlane,
    name: &str,
    to: WhenUnavailable,
) -> Result<WhenUnavailable, Failure> {
    set(control, name, |entry| {
        let before = entry.unavailable();
        entry.unavailable = Some(to).filter(|to| *to != WhenUnavailable::Wait);
        Ok(before)
    })
    .await
}

/// Changes a setting in the entry of a file system that is ready.
async fn set<T>(
    control: &ControlPlane,
    name: &str,
    mut change: impl FnMut(&mut FileSystemEntry) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let set = |description: &mut ArrayDescription| {
        find(description, name)?;
        change(description.file_system_mut(name).expect("just found"))
    };
    control.update(set).await
}

/// Completes deletions that were interrupted. One that can't be completed now keeps no other waiting.
pub async fn settle(session: &Session) -> Result<(), Failure> {
    let entries = session.control().describe().await?.file_systems;
    for entry in entries.iter().filter(|entry| entry.state == FileSystemState::Deleting) {
        let rest = FileSystemDeletion::continuing(session.generation(), FileSystemTiming::default());
        if let Err(failure) = remove(session, entry, rest).await {
            tracing::warn!("file system {} can't be deleted completely now: {failure}", entry.name);
        }
    }
    Ok(())
}

/// The lease of the metadata server that owns a file system, if it is alive.
pub async fn server_of(control: &ControlPlane, id: FileSystemId) -> Result<Option<HostEntry>, ControlError> {
    let hosts = control.leases().hosts(Moment::now(), control.describe().await?.leases().lease()).await?;
    Ok(latest_server(&hosts, id).filter(|host| host.is_alive()).cloned())
}

/// The lease of the process that owned a file system last, among leases in the order of their generations.
pub fn latest_server(hosts: &[HostEntry], id: FileSystemId) -> Option<&HostEntry> {
    let is_of =
        |host: &&HostEntry| host.report.metadata_server.as_ref().is_some_and(|server| server.file_system == id.0);
    hosts.iter().rev().find(is_of)
}

/// Waits until metadata servers serve all shards of a new file system. False if that is not so within `limit`.
pub async fn await_served(control: &ControlPlane, entry: &FileSystemEntry, limit: Duration) -> Result<bool, Failure> {
    let serves = |host: HostEntry| host.report.metadata_server.is_some_and(|server| server.serves);
    let is_served = async || {
        for id in entry.servers() {
            if !server_of(control, id).await?.is_some_and(serves) {
                return Ok(false);
            }
        }
        Ok(true)
    };
    await_until(control, limit, is_served).await
}

/// The volumes of a new file system, if there is room for all.
async fn plans(session: &Session, new: &NewFileSystem, entry: &FileSystemEntry) -> Result<Plans, Failure> {
    let servers = u64::from(new.shards.servers);
    let description = session.control().describe().await?;
    let devices = description.ready_devices().count();
    let scheme = match new.scheme {
        Some(scheme) => scheme,
        None => description.creation.layout.parse()?,
    };
    let copies = scheme.redundancy_units().max(1) + 1;
    let scheme_of_metadata = match devices.min(copies) {
        0 | 1 => RaidLevel::Raid0 { data: 1 },
        copies => RaidLevel::Raid1 { copies },
    };
    let unit = description.creation.unit;
    let (of_metadata, of_data) = (
        array_creation::layout(scheme_of_metadata, devices, METADATA_UNIT)?,
        array_creation::layout(scheme, devices, unit)?,
    );
    let room = volumes::room(session).await?;
    let bytes = match new.bytes {
        Some(bytes) => {
            array_creation::check_multiple("--size", bytes)?;
            bytes
        }
        None => free_bytes(room - room / FOR_OBJECTS, servers, &of_metadata, &of_data),
    };
    let of_servers = servers.saturating_mul(component(&of_metadata, metadata_bytes(bytes / servers)));
    if of_servers.saturating_add(component(&of_data, bytes)) > room || bytes < DATA_BYTES_MIN {
        let most = free_bytes(room, servers, &of_metadata, &of_data);
        return Err(no_room(&description, new, most));
    }
    let of_shard = |shard| {
        let metadata = NewVolume::new(entry.metadata_volume(shard), metadata_bytes(bytes / servers));
        NewVolume { scheme: Some(scheme_of_metadata), unit: Some(METADATA_UNIT), ..metadata }
    };
    Ok(Plans {
        metadata: (0..usize::from(new.shards.servers)).map(of_shard).collect(),
        data: NewVolume { scheme: Some(scheme), ..NewVolume::new(entry.data_volume(), bytes) },
    })
}

/// Bytes of metadata of one server for so many bytes of files.
fn metadata_bytes(bytes: u64) -> u64 {
    let least = METADATA_BYTES_USUAL.min(bytes / METADATA_FRACTION_MOST);
    let wanted = (bytes / METADATA_FRACTION).max(least).next_multiple_of(METADATA_UNIT);
    wanted.clamp(VOLUME_BYTES_MIN.next_multiple_of(METADATA_UNIT), METADATA_BYTES_MAX)
}

/// Blocks that a volume takes on each device.
fn component(layout: &Layout, bytes: u64) -> u64 {
    layout.component_blocks(bytes / BLOCK_BYTES as u64).next_multiple_of(CHUNK_BLOCKS)
}

/// The most bytes of files for which `room` blocks on each device suffice, together with their metadata.
fn free_bytes(room: u64, servers: u64, of_metadata: &Layout, of_data: &Layout) -> u64 {
    let usable = |chunks: u64| of_data.usable_blocks(chunks * CHUNK_BLOCKS) * BLOCK_BYTES as u64;
    let of_servers = |chunks: u64| servers * component(of_metadata, metadata_bytes(usable(chunks) / servers));
    let has_room = |chunks: u64| chunks * CHUNK_BLOCKS + of_servers(chunks) <= room;
    let (mut fits, mut too_many) = (0, room / CHUNK_BLOCKS + 1);
    while too_many - fits > 1 {
        let middle = fits.midpoint(too_many);
        if has_room(middle) { fits = middle } else { too_many = middle }
    }
    usable(fits)
}

fn no_room(description: &ArrayDescription, new: &NewFileSystem, most: u64) -> Failure {
    let least = format_size(DATA_BYTES_MIN);
    let message = match new.bytes {
        Some(bytes) if bytes < DATA_BYTES_MIN => {
            return Failure::usage("bad-size", format!("--size: a file system has at least {least}"));
        }
        Some(bytes) => {
            let (name, bytes, most) = (&new.name, format_size(bytes), format_size(most));
            format!("file system {name}: {bytes} asked for, but only {most} free beside the existing volumes")
        }
        None => format!("file system {}: only {} free, and it needs at least {least}", new.name, format_size(most)),
    };
    let mut largest: Vec<&VolumeEntry> =
        description.volumes.iter().filter(|volume| description.file_system_of(volume).is_none()).collect();
    largest.sort_by_key(|volume| std::cmp::Reverse(volume.bytes));
    let largest = largest.iter().take(LARGEST_NAMED);
    let named: Vec<String> = largest.map(|volume| format!("{} ({})", volume.name, format_size(volume.bytes))).collect();
    let hint = match named.as_slice() {
        [] => "choose a smaller --size".to_string(),
        named => format!(
            "choose a smaller --size, or delete a volume that is not needed with `braid volume delete`; the largest: {}",
            named.join(", ")
        ),
    };
    Failure::usage(NO_ROOM, message).hint(hint)
}

/// Makes a metadata volume that of an empty file system, or of a shard of one.
async fn format(session: &Session, id: FileSystemId, metadata: &VolumeEntry) -> Result<(), Failure> {
    let array = session.control().describe().await?.array;
    let volume = session.take_in(&metadata.name).await?;
    let (nonce, _) = Uuid::new_v4().as_u64_pair();
    let writes = braid_metadata::format(array, id, metadata.bytes, nonce)?;
    for (offset, data) in writes {
        let write = VolumeRequest::Write { volume: volume.id, offset, data, patience: Patience::Host };
        session.client().call(write).await?;
    }
    Ok(())
}

/// Performs a deletion, or the rest of one.
async fn remove(session: &Session, entry: &FileSystemEntry, deletion: FileSystemDeletion) -> Result<(), Failure> {
    let control = session.control();
    let subject = Subject::FileSystem(entry.id);
    let Ended { result, reasons, .. } = perform(session, subject, &entry.name, deletion, None).await;
    match result {
        Ok(_) => await_unreported(control, entry).await,
        // Another process has deleted it meanwhile.
        Err(Error::NoFileSystem) => Ok(()),
        Err(error) => Err(why_not(control, &entry.name, error, reasons).await?),
    }
}

async fn perform(
    session: &Session,
    subject: Subject,
    name: &str,
    operation: impl Into<Operation>,
    new: Option<&NewFileSystem>,
) -> Ended {
    let verb = if new.is_some() { "created" } else { "deleted" };
    let questions = Questions::of(session, subject, format!("file system '{name}' can't be {verb}"));
    let fences = |_: &str| tracing::warn!("the metadata server of file system {name} does not end, and is fenced");
    let worker = VolumeWorker { session, new, plans: RefCell::default(), made: RefCell::default() };
    operation_driver::run(operation.into(), &questions, Some(&worker), fences).await
}

async fn why_not(
    control: &ControlPlane,
    name: &str,
    error: Error,
    reasons: BTreeMap<Tag, Failure>,
) -> Result<Failure, Failure> {
    Ok(match error {
        Error::Held(by) => {
            let message = format!("host {by} is creating file system '{name}'");
            Failure::failed("file-system-creating", message).hint("try again when it is done")
        }
        Error::Contended => {
            Failure::failed("file-system-owned", "other processes take over the file system again and again")
                .hint("stop them: `braid fs status` shows the owner")
        }
        error => operation_driver::explain(control, name, error, reasons).await?,
    })
}

/// Creates and deletes the volumes of a file system.
struct VolumeWorker<'a> {
    session: &'a Session,
    /// The file system that is created, if one is.
    new: Option<&'a NewFileSystem>,
    plans: RefCell<Option<Plans>>,
    /// The volumes that are there.
    made: RefCell<Vec<VolumeEntry>>,
}

impl Worker for VolumeWorker<'_> {
    fn begin(&self, question: &Question) -> Option<Work<'_>> {
        match *question {
            Question::CreateVolume { number } => Work::doing(self.create(number)),
            Question::Format { file_system, number } => Work::doing(self.format(file_system, number)),
            Question::DeleteVolume { volume } => Work::doing(self.delete(volume)),
            _ => None,
        }
    }
}

impl VolumeWorker<'_> {
    async fn create(&self, number: usize) -> Result<Answer, Failure> {
        let new = self.new.expect("volumes are created for a new file system");
        if self.plans.borrow().is_none() {
            let description = self.session.control().describe().await?;
            let plans = plans(self.session, new, any(&description, &new.name)?).await?;
            self.plans.replace(Some(plans));
        }
        let plan = self.plans.borrow().as_ref().map(|plans| plans.of_volume(number).clone()).expect("just made");
        let volume = volumes::create(self.session, &plan).await?;
        self.made.borrow_mut().push(volume);
        Ok(Answer::Yes)
    }

    async fn format(&self, id: FileSystemId, number: usize) -> Result<Answer, Failure> {
        let metadata = self.made.borrow()[number].clone();
        format(self.session, id, &metadata).await.map(|()| Answer::Yes)
    }

    async fn delete(&self, volume: VolumeId) -> Result<Answer, Failure> {
        let description = self.session.control().describe().await?;
        let Some(entry) = description.volumes.iter().find(|entry| entry.id == volume.0) else { return Ok(Answer::Yes) };
        match volumes::delete_this(self.session, entry).await {
            Err(failure) if failure.code != "no-such-volume" => Err(failure),
            _ => Ok(Answer::Yes),
        }
    }
}

/// Waits until the monitor's report names no owner any more: status shows it, and the report is renewed now and then.
async fn await_unreported(control: &ControlPlane, entry: &FileSystemEntry) -> Result<(), Failure> {
    let ids = entry.servers();
    let is_unreported = async || {
        let monitor = control.monitor().await?;
        let mut reports = monitor.iter().flat_map(|monitor| &monitor.report.file_systems);
        Ok(!reports.any(|report| ids.contains(&FileSystemId(report.id))))
    };
    await_until(control, REPORT_WAIT, is_unreported).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_size_has_room_for_both_volumes() {
        let of_metadata = array_creation::layout(RaidLevel::Raid1 { copies: 2 }, 5, METADATA_UNIT).unwrap();
        let of_data = array_creation::layout(RaidLevel::Raid5 { data: 4 }, 5, 65_536).unwrap();
        for room in (0..200).map(|step| step * 7919) {
            for servers in [1, 2, 8] {
                let needed = |bytes: u64| {
                    servers * component(&of_metadata, metadata_bytes(bytes / servers)) + component(&of_data, bytes)
                };
                let bytes = free_bytes(room, servers, &of_metadata, &of_data);
                assert!(bytes == 0 || needed(bytes) <= room, "{room}: {bytes}");
                let more = bytes + bytes / 8 + (1 << 20);
                assert!(needed(more) > room, "{room}: {bytes} is less than what fits");
            }
        }
    }
}
