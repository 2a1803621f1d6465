//! Everything that the doctor's checks look at. The checks themselves read no files and ask nobody.

use super::device_files::{self, FileFault};
use super::finding::Subject;
use crate::failure::Failure;
use crate::file_systems::latest_server;
use crate::snapshot::ArraySnapshot;
use crate::state_from_devices::obstacles;
use braid_base::{DeviceId, FileSystemId, LockServerId};
use braid_control::{DeviceEntry, Event, EventKind, HostEntry, LockHolder, LooseMode, Original, RunningDaemon};
use braid_fuse::MountPoint;
use braid_shell::Address;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The state of an array, its files, and its processes.
#[derive(Clone)]
pub struct Examination<'a> {
    pub look: &'a ArraySnapshot,
    /// The processes of the array, as far as known.
    pub processes: Vec<Process>,
    /// The files and folders that other users can read or change; or why they can't be listed.
    pub loose: Result<Vec<LooseMode>, String>,
    /// The free space of each file system that holds files of the array.
    pub spaces: Vec<Space>,
    /// The stopped process that holds the folder's lock.
    pub lock_holder: Option<LockHolder>,
    /// The running array that the folder is a copy of.
    pub original: Option<Original>,
    /// The crashes of daemons in the last day, the latest last; or why the log of events can't be read.
    pub crashes: Result<Vec<Event>, String>,
    /// Requests that were refused for want of space in the last day, the latest last.
    pub refused_for_space: Vec<Event>,
    /// Why an array that is down can't be started.
    pub obstacles: Vec<Failure>,
    /// What is wrong with files and disks of devices.
    pub device_files: Vec<(DeviceId, FileFault)>,
    /// Daemons that run, and whose sockets are gone.
    pub missing_sockets: Vec<(Subject, PathBuf)>,
    /// Folders of this machine in which a file system is mounted that no process serves any more, with its name.
    pub dead_mounts: Vec<(PathBuf, String)>,
}

/// How long a crash of a daemon, and want of space, is reported.
const LATELY: Duration = Duration::from_secs(24 * 3600);

#[derive(Clone, Debug)]
pub struct Process {
    pub subject: Subject,
    pub pid: u32,
    /// True if it is suspended, and runs on this machine.
    pub is_suspended: bool,
    /// Its metrics; none if it does not report any.
    pub counters: Option<BTreeMap<String, u64>>,
    pub program: Program,
}

/// The program that a process runs, compared with the one that this process runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    Same,
    /// Its file was removed or replaced since the process began.
    Replaced,
    Other(PathBuf),
    /// It could not be found out, for this reason.
    Unknown(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Space {
    /// The file or folder of the array that lies there.
    pub path: PathBuf,
    pub size_bytes: u64,
    pub free_bytes: u64,
    /// The files that it has room for, and that can still be made; zero if it has no such limit.
    pub files: u64,
    pub free_files: u64,
}

impl<'a> Examination<'a> {
    /// Examines the array. Reads the array's folder and the processes of this machine.
    pub fn of(look: &'a ArraySnapshot) -> Examination<'a> {
        let processes = processes(look);
        let fault = |entry: &DeviceEntry| Some((DeviceId(entry.id), device_files::fault_of(look, entry)?));
        let folder = look.control.local();
        let loose = folder.loose_modes().map_err(|error| error.to_string());
        Examination {
            look,
            processes,
            loose,
            spaces: spaces(look),
            lock_holder: folder.lock_holder(),
            original: folder.original(),
            crashes: lately(look, EventKind::DaemonCrashed),
            refused_for_space: lately(look, EventKind::SpaceRefused).unwrap_or_default(),
            obstacles: if look.running.is_some() { Vec::new() } else { obstacles(folder, &look.description) },
            device_files: look.description.devices.iter().filter_map(fault).collect(),
            missing_sockets: missing_sockets(look),
            dead_mounts: dead_mounts(look),
        }
    }

    /// True if the process of this part of the array is suspended.
    pub fn is_suspended(&self, subject: &Subject) -> bool {
        self.processes.iter().any(|process| process.is_suspended && process.subject == *subject)
    }
}

fn missing_sockets(look: &ArraySnapshot) -> Vec<(Subject, PathBuf)> {
    let Some(running) = &look.running else { return Vec::new() };
    let monitor = running.monitor.iter().map(|daemon| (Subject::Monitor, daemon));
    let devices = running.devices.iter().map(|daemon| (Subject::Device(DeviceId(daemon.id)), daemon));
    let locks = running.lock_servers.iter().map(|daemon| (Subject::LockServer(LockServerId(daemon.id)), daemon));
    let called = |daemon: &RunningDaemon| {
        let mut servers = look.description.file_systems.iter().flat_map(|entry| entry.named_servers());
        let named = servers.find(|(id, _)| id.0 == daemon.id);
        Subject::MetadataServer(named.map_or_else(|| daemon.id.to_string(), |(_, called)| called))
    };
    let metadata = running.metadata_servers.iter().map(|daemon| (called(daemon), daemon));
    // Paths in the folder are relative to it.
    let folder = look.control.local().absolute();
    let missing = |(subject, daemon): (Subject, &RunningDaemon)| match daemon.address.parse() {
        Ok(Address::Unix(path)) => {
            let path = folder.join(path);
            (daemon.pid.is_some() && !path.exists()).then_some((subject, path))
        }
        _ => None,
    };
    monitor.chain(devices).chain(locks).chain(metadata).filter_map(missing).collect()
}

/// A mount whose process lives is not asked: it may be suspended.
fn dead_mounts(look: &ArraySnapshot) -> Vec<(PathBuf, String)> {
    let serves = |host: &HostEntry, directory: &Path| {
        let mount = host.report.mount.as_ref().filter(|_| host.process.is_here() && !host.process.has_ended());
        mount.is_some_and(|mount| mount.directory == directory.to_string_lossy())
    };
    let mounts = MountPoint::of_array(look.description.array).unwrap_or_default().into_iter();
    let dead: BTreeMap<_, _> = mounts
        .filter(|found| !look.hosts.iter().any(|host| serves(host, &found.directory)) && found.is_dead())
        .filter_map(|found| Some((found.directory.clone(), found.name()?.split('@').next()?.to_string())))
        .collect();
    dead.into_iter().collect()
}

fn lately(look: &ArraySnapshot, kind: EventKind) -> Result<Vec<Event>, String> {
    let mut events = look.events.clone()?;
    let since = look.now.saturating_sub(LATELY.as_millis() as u64);
    events.retain(|event| event.kind == kind && event.unix_millis >= since);
    Ok(events)
}

/// The daemons and the hosts. Several of them may run in one process.
fn processes(look: &ArraySnapshot) -> Vec<Process> {
    let mut found = Vec::new();
    let mut programs = BTreeMap::new();
    let mut add = |subject, process: braid_control::Process, counters| {
        let program = programs.entry(process.clone()).or_insert_with(|| program_of(&process)).clone();
        let is_suspended = process.is_suspended();
        found.push(Process { subject, pid: process.pid, is_suspended, counters, program });
    };
    let Some(running) = look.running.as_ref() else { return found };
    if let Some(monitor) = look.monitor.as_ref() {
        add(Subject::Monitor, monitor.process.clone(), Some(monitor.report.counters.clone()));
    }
    let told = |counters: BTreeMap<String, u64>| Some(counters).filter(|counters| !counters.is_empty());
    for (device, pid) in running.devices.iter().filter_map(|device| Some((DeviceId(device.id), device.pid?))) {
        let counters = look.states.get(&device).and_then(|state| told(state.counters.iter().cloned().collect()));
        add(Subject::Device(device), running.process(pid), counters);
    }
    for host in &look.hosts {
        add(subject_of(look, host), host.process.clone(), told(host.report.counters.clone()));
    }
    found
}

/// A host, lock server or metadata server.
pub fn subject_of(look: &ArraySnapshot, host: &HostEntry) -> Subject {
    if let Some(server) = &host.report.lock_server {
        return Subject::LockServer(LockServerId(server.id));
    }
    let serves =
        |id: FileSystemId| latest_server(&look.hosts, id).is_some_and(|server| server.generation == host.generation);
    let mut servers = look.description.file_systems.iter().flat_map(|entry| entry.named_servers());
    match servers.find(|(id, _)| serves(*id)) {
        Some((_, called)) => Subject::MetadataServer(called),
        None => Subject::Host(host.generation, host.role.clone()),
    }
}

fn program_of(process: &braid_control::Process) -> Program {
    let Some(link) = process.in_proc().map(|folder| folder.join("exe")) else {
        return Program::Unknown(format!("its program can't be read: it is {process}, or has ended"));
    };
    let identity = |found: Metadata| (found.dev(), found.ino());
    let file = |link: &Path| std::fs::metadata(link).map(identity);
    let (theirs, ours) = match (file(&link), file(Path::new("/proc/self/exe"))) {
        (Ok(theirs), Ok(ours)) => (theirs, ours),
        (Err(error), _) | (_, Err(error)) => return Program::Unknown(format!("its program can't be read: {error}")),
    };
    let path = std::fs::read_link(&link).unwrap_or_default();
    // The system marks the name of a file that is gone.
    if path.to_string_lossy().ends_with(" (deleted)") {
        Program::Replaced
    } else if theirs == ours {
        Program::Same
    } else {
        Program::Other(path)
    }
}

/// The file systems of the folder and of the devices' files, each once.
fn spaces(look: &ArraySnapshot) -> Vec<Space> {
    let folder = look.control.local().absolute();
    let files = look.description.devices.iter().map(|device| device.path(&folder));
    let paths = std::iter::once(folder.clone()).chain(files.filter(|path| path.is_file()));
    let mut seen = BTreeSet::new();
    let space = |path: PathBuf| {
        let device = path.metadata().ok()?.dev();
        let found = rustix::fs::statvfs(&path).ok().filter(|_| seen.insert(device))?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Some(Space {
            path,
            size_bytes: bytes(found.f_blocks),
            free_bytes: bytes(found.f_bavail),
            files: found.f_files,
            free_files: found.f_favail,
        })
    };
    paths.filter_map(space).collect()
}
