//! The status of file systems: whether they are served, by whom, and who uses them.

use crate::file_systems::latest_server;
use crate::health::FileSystemHealth;
use crate::metadata_room::MetadataRoom;
use crate::operation_driver;
use crate::snapshot::ArraySnapshot;
use braid_base::FileSystemId;
use braid_control::{EventKind, FileSystemEntry, FileSystemState, HostEntry, MetadataService, Process};
use braid_session::addressing;
use serde::{Serialize, Serializer};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FileSystemStatus {
    pub id: u16,
    /// None if it was deleted, and the monitor still knows its owner.
    pub name: Option<String>,
    /// The name that it had then.
    #[serde(skip)]
    pub former_name: Option<String>,
    /// How it is served. The health is that of the worst shard, and what else is said of a server is said of the first one.
    #[serde(flatten)]
    pub service: FileSystemService,
    /// The size of the volume with the bytes of files.
    pub size_bytes: Option<u64>,
    /// The generations of the hosts that use it.
    pub hosts: Vec<u32>,
    pub clients: Vec<ClientStatus>,
    /// Bytes in use of the room for names and inodes in its metadata volumes.
    pub metadata_room_used_bytes: Option<u64>,
    /// That room. When it is used up, nothing can be created.
    pub metadata_room_bytes: Option<u64>,
    /// After how many seconds a host is fenced that keeps locks which others wait for; none: never.
    pub evict_after_seconds: Option<u64>,
    /// Its metadata servers, one for each shard.
    pub servers: Vec<ServerStatus>,
    /// How operations on several shards are committed; none with one metadata server.
    pub commit_protocol: Option<String>,
    /// What operations that are committed at the same time share; none with one metadata server.
    pub grouping: Option<String>,
    /// Where new inodes are; none with one metadata server.
    pub placement: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServerStatus {
    pub shard: usize,
    /// The number by which the monitor knows its owner.
    pub id: u16,
    #[serde(flatten)]
    pub service: FileSystemService,
}

/// How a file system, or a shard of it, is served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FileSystemService {
    #[serde(rename = "state", serialize_with = "health_name")]
    pub health: FileSystemHealth,
    /// The health as text.
    pub text: String,
    /// The generation of the host that owns it, according to the monitor.
    pub owner: Option<u32>,
    /// The epoch in which that began.
    pub since: Option<u32>,
    /// The address of its metadata server.
    pub address: Option<String>,
    pub pid: Option<u32>,
    pub restarts: Option<u64>,
    /// Bytes in use of the server's journal.
    pub journal_used_bytes: Option<u64>,
    pub journal_bytes: Option<u64>,
}

/// A host that uses a file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClientStatus {
    /// Its generation.
    pub host: u32,
    pub pid: u32,
    /// True if the number of the process is one of another machine or container.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub elsewhere: bool,
    pub role: String,
    /// The directory in which it has mounted the file system; none if it is another program.
    pub directory: Option<String>,
    /// All its bytes in hexadecimal digits, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory_bytes: Option<String>,
    pub locks_held: u64,
    pub locks_awaited: u64,
}

/// The role of hosts that ask what a file system contains.
pub(crate) const ASKS: &str = "fs status";

pub fn file_systems(look: &ArraySnapshot) -> Vec<FileSystemStatus> {
    let description = &look.description;
    let listed = description.file_systems.iter().map(|entry| FileSystemStatus::of(look, entry));
    let reports = look.monitor.iter().flat_map(|monitor| &monitor.report.file_systems);
    let is_gone = |id: u16| !description.file_systems.iter().any(|entry| entry.servers().contains(&FileSystemId(id)));
    let gone = reports.filter(|report| is_gone(report.id)).map(|report| FileSystemStatus {
        id: report.id,
        former_name: look.removed(EventKind::FileSystemDeleted, report.id.into()),
        service: FileSystemService {
            health: FileSystemHealth::Deleting,
            text: "deleted, but it still has an owner".to_string(),
            owner: Some(report.owner),
            since: Some(report.since),
            ..FileSystemService::default()
        },
        ..FileSystemStatus::default()
    });
    listed.chain(gone).collect()
}

impl FileSystemStatus {
    /// What people call it: by its name, by the one that it had, or by its number.
    pub fn called(&self) -> String {
        let former = || self.former_name.clone().unwrap_or_else(|| FileSystemId(self.id).to_string());
        self.name.clone().unwrap_or_else(former)
    }

    fn of(look: &ArraySnapshot, entry: &FileSystemEntry) -> FileSystemStatus {
        let ids = entry.servers().into_iter().enumerate();
        let servers: Vec<ServerStatus> = ids.map(|(shard, id)| ServerStatus::of(look, entry, shard, id)).collect();
        // One shard that is not served holds up whoever needs it.
        let is_held_up = |server: &&ServerStatus| server.service.health != FileSystemHealth::Serving;
        let ServerStatus { shard, service: worst, .. } = servers.iter().find(is_held_up).unwrap_or(&servers[0]);
        let is_of_shard = servers.len() > 1 && entry.state == FileSystemState::Ready;
        let text = match is_of_shard && worst.health != FileSystemHealth::Serving {
            true => format!("shard {shard}: {}", worst.text),
            false => worst.text.clone(),
        };
        let service = FileSystemService { health: worst.health.clone(), text, ..servers[0].service.clone() };
        let room = MetadataRoom::of(&look.hosts, entry);
        FileSystemStatus {
            id: entry.id,
            name: Some(entry.name.clone()),
            former_name: None,
            service,
            size_bytes: look.description.volume(&entry.data_volume()).map(|volume| volume.bytes),
            hosts: mounted_on(&look.hosts, entry).iter().map(|host| host.generation.0).collect(),
            clients: mounted_on(&look.hosts, entry).into_iter().map(|host| client(look, entry, host)).collect(),
            metadata_room_used_bytes: room.map(|room| room.used_bytes),
            metadata_room_bytes: room.map(|room| room.bytes),
            evict_after_seconds: entry.evict_after().map(|limit| limit.as_secs()),
            servers,
            commit_protocol: entry.shards.as_ref().map(|shards| shards.commit_protocol.clone()),
            grouping: entry.shards.as_ref().map(|shards| shards.grouping.clone()),
            placement: entry.shards.as_ref().map(|shards| shards.placement.clone()),
        }
    }
}

impl ServerStatus {
    fn of(look: &ArraySnapshot, entry: &FileSystemEntry, shard: usize, id: FileSystemId) -> ServerStatus {
        let reports = look.monitor.iter().flat_map(|monitor| &monitor.report.file_systems);
        let report = reports.into_iter().find(|report| report.id == id.0);
        let running = look.running.as_ref().and_then(|running| running.metadata_server(id));
        let lease = latest_server(&look.hosts, id);
        let server = lease.and_then(|host| host.report.metadata_server.as_ref());
        let counter = |name: &str| lease.and_then(|host| host.report.counters.get(name).copied());
        let health = health(look, entry, shard);
        let service = FileSystemService {
            text: health.words(),
            health,
            owner: report.map(|report| report.owner),
            since: report.map(|report| report.since),
            address: server.map(|server| addressing::absolute(look.control.local(), &server.address)),
            // The process that owned it last may be dead.
            pid: lease
                .filter(|host| !host.process.has_ended())
                .map(|host| host.process.pid)
                .or(running.and_then(|running| running.pid)),
            restarts: running.map(|running| running.restarts),
            journal_used_bytes: counter("metadata_journal_bytes_used"),
            journal_bytes: counter("metadata_journal_capacity"),
        };
        ServerStatus { shard, id: id.0, service }
    }
}

/// A host that uses the file system. Its locks are those at all metadata servers.
fn client(look: &ArraySnapshot, entry: &FileSystemEntry, host: &HostEntry) -> ClientStatus {
    let of_host = |server: &MetadataService| {
        let place = server.hosts.iter().position(|known| *known == host.generation.0);
        place.and_then(|place| server.locks.get(place)).copied().unwrap_or_default()
    };
    let (held, waiting) =
        servers(&look.hosts, entry).map(of_host).fold((0, 0), |sum, of| (sum.0 + of.held, sum.1 + of.waiting));
    ClientStatus {
        host: host.generation.0,
        pid: host.process.pid,
        elsewhere: host.is_elsewhere(),
        role: host.role.clone(),
        directory: host.report.mount.as_ref().map(|mount| mount.directory.clone()),
        directory_bytes: host.report.mount.as_ref().and_then(|mount| mount.directory_bytes.clone()),
        locks_held: held,
        locks_awaited: waiting,
    }
}

/// The health of a shard of a file system. A killed metadata server may still have a lease, so processes are checked.
fn health(look: &ArraySnapshot, entry: &FileSystemEntry, shard: usize) -> FileSystemHealth {
    let (hosts, running) = (&look.hosts, look.running.as_ref());
    match entry.state {
        FileSystemState::Creating => return FileSystemHealth::Creating,
        FileSystemState::Deleting => return FileSystemHealth::Deleting,
        FileSystemState::Ready => {}
    }
    let id = entry.servers()[shard];
    let is_alive = |host: &&HostEntry| host.is_alive();
    let serves = |host: &HostEntry| host.report.metadata_server.as_ref().is_some_and(|server| server.serves);
    if latest_server(hosts, id).filter(is_alive).is_some_and(serves) {
        return FileSystemHealth::Serving;
    }
    let has_role = |role: &str| hosts.iter().filter(is_alive).any(|host| host.role == role);
    let supervised = running.and_then(|running| running.metadata_server(id));
    let elsewhere = look.description.devices.iter().any(|device| device.address.is_some());
    if has_role(&operation_driver::role(&entry.name)) {
        FileSystemHealth::Checked
    } else if has_role(&server_role(&entry.server_name(shard))) {
        FileSystemHealth::TakingOver
    } else if running.is_none() && !elsewhere {
        FileSystemHealth::NotUp
    } else if !elsewhere && supervised.is_none_or(|server| server.pid.is_none() && server.down.is_none()) {
        // `braid up` has just begun, and starts it next.
        FileSystemHealth::TakingOver
    } else {
        let silent = |process: Process| match process.is_suspended() {
            true => format!("{process} is suspended: `kill -CONT {}` resumes it", process.pid),
            false => format!("{process} does not respond: end it, and it is started again"),
        };
        let unresponsive = || {
            let pid = supervised?.pid?;
            running.filter(|running| !running.process(pid).has_ended()).map(|running| silent(running.process(pid)))
        };
        FileSystemHealth::Down(supervised.and_then(|supervised| supervised.down.clone()).or_else(unresponsive))
    }
}

/// The role of the host of the metadata server that is called so, as its lease states it.
pub fn server_role(name: &str) -> String {
    format!("mds {name}")
}

fn health_name<S: Serializer>(health: &FileSystemHealth, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(health.name())
}

/// The hosts that have a file system mounted, as its metadata servers say; if these are too many to list, those that say so themselves.
/// A host that can't renew its lease goes on, and counts.
pub fn mounted_on<'a>(hosts: &'a [HostEntry], entry: &FileSystemEntry) -> Vec<&'a HostEntry> {
    let known: Vec<u32> = servers(hosts, entry).flat_map(|server| server.hosts.clone()).collect();
    let is_cut = servers(hosts, entry).any(|server| server.hosts_cut);
    let says_so = |host: &HostEntry| host.report.mount.as_ref().is_some_and(|mount| mount.file_system == entry.id);
    let is_named = |host: &HostEntry| known.contains(&host.generation.0) || (is_cut && says_so(host));
    hosts.iter().filter(|host| host.goes_on() && host.role != ASKS && is_named(host)).collect()
}

/// What the metadata servers of a file system have published last.
pub(crate) fn servers<'a>(
    hosts: &'a [HostEntry],
    entry: &FileSystemEntry,
) -> impl Iterator<Item = &'a MetadataService> {
    let latest = entry.servers().into_iter().filter_map(|id| latest_server(hosts, id));
    latest.filter_map(|host| host.report.metadata_server.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::Generation;
    use braid_control::{LeaseReport, MountReport};
    use std::time::Duration;

    fn host(generation: u32, process: Process, report: LeaseReport) -> HostEntry {
        let (role, silent) = ("mount".to_string(), Some(Duration::from_secs(30)));
        let generation = Generation(generation);
        HostEntry { generation, process, role, live: false, is_over: false, is_renewed: true, silent, report }
    }

    #[test]
    fn a_host_has_a_file_system_mounted_until_its_lease_is_over() {
        let text = r#"{"id": 1, "name": "fs", "state": "ready"}"#;
        let entry: FileSystemEntry = serde_json::from_str(text).unwrap();
        let own = Process::own();
        let server = |hosts: &[u32], hosts_cut| MetadataService {
            file_system: 1,
            address: "unix:mds".into(),
            serves: true,
            settled: false,
            hosts: hosts.to_vec(),
            hosts_cut,
            locks: Vec::new(),
        };
        let mount = MountReport::of(1, std::path::Path::new("/mnt"));
        let mounts = || LeaseReport { mount: Some(mount.clone()), ..LeaseReport::default() };
        let serves = |server| LeaseReport { metadata_server: Some(server), ..LeaseReport::default() };
        let over = HostEntry { is_over: true, ..host(4, own.clone(), mounts()) };
        let before = HostEntry { silent: None, ..host(5, own.clone(), mounts()) };
        let others = [host(2, own.clone(), mounts()), over, before, host(6, own.clone(), LeaseReport::default())];
        for (listed, is_cut) in [(&[2, 3, 4, 5][..], false), (&[], true)] {
            let hosts = [&[host(1, own.clone(), serves(server(listed, is_cut)))], &others[..]].concat();
            let mounted: Vec<u32> = mounted_on(&hosts, &entry).iter().map(|host| host.generation.0).collect();
            assert_eq!(mounted, [2], "none has renewed its lease lately");
            assert_eq!(servers(&hosts, &entry).any(|server| server.hosts_cut), is_cut);
        }
    }
}
