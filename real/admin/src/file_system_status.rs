//! The status of file systems: whether they are served, by whom, and who uses them.

use crate::file_system_check;
use crate::file_system_operations::mounted_on;
use crate::file_systems::latest_server;
use crate::health::{FileSystemHealth, is_there};
use crate::snapshot::ArraySnapshot;
use braid_base::FileSystemId;
use braid_control::{ArrayDescription, FileSystemEntry, FileSystemState, HostEntry, MetadataService, RunningSet};
use braid_session::addressing;
use serde::{Serialize, Serializer};

/// The status of a file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileSystemStatus {
    pub id: u16,
    /// None if it was deleted, and the monitor still knows its owner.
    pub name: Option<String>,
    #[serde(rename = "state", serialize_with = "health_name")]
    pub health: FileSystemHealth,
    /// Its health as text.
    pub text: String,
    /// The generation of the host that owns it, according to the monitor.
    pub owner: Option<u32>,
    /// The epoch in which that began.
    pub since: Option<u32>,
    /// The address of its metadata server.
    pub address: Option<String>,
    /// The process of its metadata server.
    pub pid: Option<u32>,
    /// How often it was restarted.
    pub restarts: Option<u64>,
    /// The size of the volume with the bytes of files.
    pub size_bytes: Option<u64>,
    /// The generations of the hosts that use it.
    pub hosts: Vec<u32>,
    /// These hosts.
    pub clients: Vec<ClientStatus>,
    /// Bytes in use of its metadata server's journal.
    pub journal_used_bytes: Option<u64>,
    /// The size of the journal.
    pub journal_bytes: Option<u64>,
    /// After how many seconds a host is fenced that keeps locks which others wait for; none: never.
    pub evict_after_seconds: Option<u64>,
}

/// A host that uses a file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClientStatus {
    /// Its generation.
    pub host: u32,
    pub pid: u32,
    /// Its role.
    pub role: String,
    /// The directory in which it has mounted the file system; none if it is another program.
    pub directory: Option<String>,
    /// The locks that it holds.
    pub locks_held: u64,
    /// The locks that it waits for.
    pub locks_awaited: u64,
}

/// The status of all file systems.
pub fn file_systems(look: &ArraySnapshot) -> Vec<FileSystemStatus> {
    let description = &look.description;
    let listed = description.file_systems.iter().map(|entry| FileSystemStatus::of(look, entry));
    let reports = look.monitor.iter().flat_map(|monitor| &monitor.report.file_systems);
    let is_gone = |id: u16| description.file_systems.iter().all(|entry| entry.id != id);
    let gone = reports.filter(|report| is_gone(report.id)).map(|report| FileSystemStatus {
        id: report.id,
        name: None,
        health: FileSystemHealth::Deleting,
        text: "deleted, but it still has an owner".to_string(),
        owner: Some(report.owner),
        since: Some(report.since),
        address: None,
        pid: None,
        restarts: None,
        size_bytes: None,
        hosts: Vec::new(),
        clients: Vec::new(),
        journal_used_bytes: None,
        journal_bytes: None,
        evict_after_seconds: None,
    });
    listed.chain(gone).collect()
}

impl FileSystemStatus {
    fn of(look: &ArraySnapshot, entry: &FileSystemEntry) -> FileSystemStatus {
        let reports = look.monitor.iter().flat_map(|monitor| &monitor.report.file_systems);
        let report = reports.into_iter().find(|report| report.id == entry.id);
        let running = look.running.as_ref().and_then(|running| running.metadata_server(entry.id()));
        let lease = latest_server(&look.hosts, entry.id());
        let server = lease.and_then(|host| host.report.metadata_server.as_ref());
        let health = health(&look.description, &look.hosts, look.running.as_ref(), entry);
        FileSystemStatus {
            id: entry.id,
            name: Some(entry.name.clone()),
            text: health.words(),
            health,
            owner: report.map(|report| report.owner),
            since: report.map(|report| report.since),
            address: server.map(|server| addressing::absolute(&look.folder, &server.address)),
            pid: lease.map(|host| host.pid).or(running.and_then(|running| running.pid)),
            restarts: running.map(|running| running.restarts),
            size_bytes: look.description.volume(&entry.data_volume()).map(|volume| volume.bytes),
            hosts: mounted_on(&look.hosts, entry.id()).iter().map(|host| host.generation.0).collect(),
            clients: mounted_on(&look.hosts, entry.id()).into_iter().map(|host| client(host, server)).collect(),
            journal_used_bytes: lease.and_then(|host| host.report.counters.get("metadata_journal_bytes_used").copied()),
            journal_bytes: lease.and_then(|host| host.report.counters.get("metadata_journal_capacity").copied()),
            evict_after_seconds: entry.evict_after().map(|limit| limit.as_secs()),
        }
    }
}

fn client(host: &HostEntry, server: Option<&MetadataService>) -> ClientStatus {
    let place = server.and_then(|server| server.hosts.iter().position(|known| *known == host.generation.0));
    let locks = server.zip(place).and_then(|(server, place)| server.locks.get(place)).copied().unwrap_or_default();
    ClientStatus {
        host: host.generation.0,
        pid: host.pid,
        role: host.role.clone(),
        directory: host.report.mount.as_ref().map(|mount| mount.directory.clone()),
        locks_held: locks.held,
        locks_awaited: locks.waiting,
    }
}

/// The health of a file system. A killed metadata server may still have a lease, so processes are checked.
fn health(
    description: &ArrayDescription,
    hosts: &[HostEntry],
    running: Option<&RunningSet>,
    entry: &FileSystemEntry,
) -> FileSystemHealth {
    match entry.state {
        FileSystemState::Creating => return FileSystemHealth::Creating,
        FileSystemState::Deleting => return FileSystemHealth::Deleting,
        FileSystemState::Ready => {}
    }
    let is_alive = |host: &&HostEntry| host.live && is_there(host.pid);
    let serves = |host: &HostEntry| host.report.metadata_server.as_ref().is_some_and(|server| server.serves);
    if latest_server(hosts, entry.id()).filter(is_alive).is_some_and(serves) {
        return FileSystemHealth::Serving;
    }
    let has_role = |role: &str| hosts.iter().filter(is_alive).any(|host| host.role == role);
    let supervised = running.and_then(|running| running.metadata_server(FileSystemId(entry.id)));
    let elsewhere = description.devices.iter().any(|device| device.address.is_some());
    if has_role(&file_system_check::role(&entry.name)) {
        FileSystemHealth::Checked
    } else if has_role(&server_role(&entry.name)) {
        FileSystemHealth::TakingOver
    } else if running.is_none() && !elsewhere {
        FileSystemHealth::NotUp
    } else {
        let silent =
            |pid: u32| format!("process {pid} does not respond; resume it if it is suspended, otherwise end it");
        let unresponsive = || supervised?.pid.filter(|pid| is_there(*pid)).map(silent);
        FileSystemHealth::Down(supervised.and_then(|supervised| supervised.down.clone()).or_else(unresponsive))
    }
}

/// The role of the host of a metadata server, as its lease states it.
pub fn server_role(name: &str) -> String {
    format!("mds {name}")
}

fn health_name<S: Serializer>(health: &FileSystemHealth, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(health.name())
}
