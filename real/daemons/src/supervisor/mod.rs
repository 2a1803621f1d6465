//! The supervisor keeps the monitor, the devices, the lock servers and the metadata servers of an array running. Each of these has a keeper: a task that starts
//! it, notices its end, and restarts it. A suspended process is not restarted, because it may continue at any moment. A device whose file is
//! missing is restarted when the file is there again.
//!
//! Each daemon runs in a process of its own, or in a task of this process ([`Placement`]). It listens on a Unix socket in the array's folder,
//! or on a port, which stays the same across restarts if it is still free.

mod process;
mod task;

use braid_admin::failure::Failure;
use braid_base::{ArrayId, Backoff, DeviceId, FileSystemId, LockServerId, NodeId};
use braid_control::event_texts::Crash;
use braid_control::{ArrayDescription, ControlPlane, FileSystemState, RunningDaemon};
use braid_session::addressing;
use braid_shell::Address;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// How long a daemon may take to open its store and listen.
const START_WAIT: Duration = Duration::from_secs(60);
/// How long a daemon may take to end.
const STOP_WAIT: Duration = Duration::from_secs(10);
/// The first back-off before a daemon is restarted; it doubles up to [`BACKOFF_MAX`].
const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// The code of the failure if the file of a device is missing.
pub const NO_FILE: &str = "no-such-file";
/// The wait before checking again whether the missing file of a device is there.
const FILE_PAUSE: Duration = Duration::from_secs(1);
/// A daemon that ran for so long resets the back-off. A metadata server that takes over from one that was killed needs a lease to serve: it
/// must not count as one that fails at its start.
const STEADY: Duration = Duration::from_secs(3);

/// A daemon that crashes in the same way at each start is recorded once in this time.
const CRASH_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// Where daemons run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// In a process each, so that one can be killed without the others.
    Process,
    /// In a task of this process, in the thread of the host: messages between them need no system calls.
    Task,
}

/// Non-default parameters of daemons.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tuning {
    /// How long a device must be out before a spare fills its slot.
    pub spare_after: Option<Duration>,
    /// Bytes of memory in which each device caches objects' content.
    pub object_memory: Option<u64>,
    /// Daemons listen on loopback TCP ports, and not on sockets in the array's folder.
    pub tcp: bool,
}

/// A report of a keeper on its daemon.
#[derive(Clone, Debug)]
pub struct Report {
    /// The daemon.
    pub node: NodeId,
    /// Where it runs, or why it does not run.
    pub state: Result<Running, Failure>,
    /// How it crashed, if it did.
    pub crash: Option<Box<Crash>>,
}

/// The end of a daemon that was not asked to end.
#[derive(Debug)]
struct Ended {
    failure: Failure,
    crash: Option<Box<Crash>>,
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Ended {
        Ended { failure, crash: None }
    }
}

/// A daemon that serves.
#[derive(Clone, Debug)]
pub struct Running {
    pub address: Address,
    /// Its process.
    pub pid: u32,
}

/// The daemon that a keeper keeps running.
#[derive(Clone, Debug)]
enum Assignment {
    Monitor {
        control: ControlPlane,
        spare_after: Option<Duration>,
    },
    Device {
        control: ControlPlane,
        array: ArrayId,
        id: DeviceId,
        file: PathBuf,
        object_memory: Option<u64>,
    },
    LockServer {
        control: ControlPlane,
        id: LockServerId,
    },
    /// `shard` is given if there are several.
    MetadataServer {
        control: ControlPlane,
        id: FileSystemId,
        name: String,
        shard: Option<usize>,
    },
}

/// A keeper's assignment; none tells the keeper to end.
type Wanted = Option<Assignment>;

/// The keepers of an array.
pub struct Supervised {
    control: ControlPlane,
    placement: Placement,
    tuning: Tuning,
    /// The file of each device, and the assignment of its keeper.
    devices: BTreeMap<DeviceId, (PathBuf, watch::Sender<Wanted>)>,
    lock_servers: Vec<watch::Sender<Wanted>>,
    tasks: JoinSet<()>,
    metadata_servers: BTreeMap<FileSystemId, watch::Sender<Wanted>>,
    /// Metadata servers end first: they release their file systems, for which they need devices and the monitor.
    metadata_tasks: JoinSet<()>,
    /// The monitor ends last: it would take out devices that ended while it runs.
    stop_monitor: watch::Sender<Wanted>,
    monitor: JoinSet<()>,
    reporter: mpsc::Sender<Report>,
    reports: mpsc::Receiver<Report>,
}

impl Supervised {
    /// Starts the monitor and every device of the array, except devices with an address, which are started elsewhere.
    /// [`Supervised::report`] reports on them.
    pub fn start(
        control: &ControlPlane,
        description: &ArrayDescription,
        placement: Placement,
        tuning: Tuning,
    ) -> Supervised {
        let (reporter, reports) = mpsc::channel(description.devices.len() + 1);
        let monitor = Assignment::Monitor { control: control.clone(), spare_after: tuning.spare_after };
        let (stop_monitor, wanted) = watch::channel(Some(monitor));
        let mut supervised = Supervised {
            control: control.clone(),
            placement,
            tuning,
            devices: BTreeMap::new(),
            lock_servers: Vec::new(),
            tasks: JoinSet::new(),
            metadata_servers: BTreeMap::new(),
            metadata_tasks: JoinSet::new(),
            stop_monitor,
            monitor: JoinSet::new(),
            reporter,
            reports,
        };
        supervised.monitor.spawn_local(keep(
            NodeId::Monitor,
            wanted,
            (placement, tuning.tcp),
            supervised.reporter.clone(),
        ));
        supervised.follow(description);
        supervised
    }

    /// Starts devices that were added to the array, stops devices that were removed, and restarts those whose slot another disk fills now.
    pub fn follow(&mut self, description: &ArrayDescription) {
        let ours = description.devices.iter().filter(|device| device.address.is_none());
        let ours: BTreeMap<_, _> =
            ours.map(|device| (DeviceId(device.id), device.path(self.control.local().dir()))).collect();
        self.devices.retain(|id, (_, wanted)| {
            let stays = ours.contains_key(id);
            if !stays {
                wanted.send_replace(None);
            }
            stays
        });
        for (id, file) in ours {
            let assignment = || {
                let (control, array, file) = (self.control.clone(), description.array, file.clone());
                Some(Assignment::Device { control, array, id, file, object_memory: self.tuning.object_memory })
            };
            match self.devices.get_mut(&id) {
                Some((kept, _)) if *kept == file => {}
                Some((kept, wanted)) => {
                    wanted.send_replace(assignment());
                    *kept = file;
                }
                None => {
                    let wanted = watch::channel(assignment()).0;
                    self.add(NodeId::Device(id), &wanted);
                    self.devices.insert(id, (file, wanted));
                }
            }
        }
        while self.tasks.try_join_next().is_some() {}
    }

    /// True if it keeps this device running.
    pub fn keeps(&self, device: DeviceId) -> bool {
        self.devices.contains_key(&device)
    }

    /// Starts every lock server of the array.
    pub fn start_lock_servers(&mut self, description: &ArrayDescription) {
        for id in description.lock_servers() {
            let wanted = watch::channel(Some(Assignment::LockServer { control: self.control.clone(), id })).0;
            self.add(NodeId::LockServer(id), &wanted);
            self.lock_servers.push(wanted);
        }
    }

    /// Starts the metadata servers of file systems that are ready, and stops those of file systems that are being deleted.
    pub fn follow_file_systems(&mut self, description: &ArrayDescription) {
        let ready = description.file_systems.iter().filter(|entry| entry.state == FileSystemState::Ready);
        let servers = ready.flat_map(|entry| {
            let of = |shard| (entry.name.clone(), entry.shards.as_ref().map(|_| shard));
            entry.servers().into_iter().enumerate().map(move |(shard, id)| (id, of(shard))).collect::<Vec<_>>()
        });
        let ready: BTreeMap<_, _> = servers.collect();
        self.metadata_servers.retain(|id, wanted| {
            let stays = ready.contains_key(id);
            if !stays {
                wanted.send_replace(None);
            }
            stays
        });
        for (id, (name, shard)) in ready {
            if let Entry::Vacant(entry) = self.metadata_servers.entry(id) {
                let assignment = Assignment::MetadataServer { control: self.control.clone(), id, name, shard };
                let wanted = entry.insert(watch::channel(Some(assignment)).0).subscribe();
                let keeper =
                    keep(NodeId::MetadataServer(id), wanted, (self.placement, self.tuning.tcp), self.reporter.clone());
                self.metadata_tasks.spawn_local(keeper);
            }
        }
        while self.metadata_tasks.try_join_next().is_some() {}
    }

    /// True if it keeps the metadata server of this file system, or shard, running.
    pub fn keeps_metadata_server(&self, id: FileSystemId) -> bool {
        self.metadata_servers.contains_key(&id)
    }

    /// Ends all metadata servers.
    pub async fn stop_metadata_servers(&mut self) {
        self.metadata_servers.values().for_each(|wanted| drop(wanted.send_replace(None)));
        // Keepers that report meanwhile must not wait for a reader.
        while !self.metadata_tasks.is_empty() {
            tokio::select! {
                _ = self.metadata_tasks.join_next() => {}
                _ = self.reports.recv() => {}
            }
        }
    }

    fn add(&mut self, node: NodeId, wanted: &watch::Sender<Wanted>) {
        self.tasks.spawn_local(keep(
            node,
            wanted.subscribe(),
            (self.placement, self.tuning.tcp),
            self.reporter.clone(),
        ));
    }

    /// The next report of a keeper.
    pub async fn report(&mut self) -> Report {
        self.reports.recv().await.expect("keepers report until they are stopped")
    }

    /// Ends all daemons, and returns when they have ended.
    pub async fn stop(mut self) {
        self.stop_metadata_servers().await;
        self.reports.close();
        let senders = self.devices.values().map(|(_, wanted)| wanted).chain(&self.lock_servers);
        senders.for_each(|wanted| drop(wanted.send_replace(None)));
        while self.tasks.join_next().await.is_some() {}
        self.stop_monitor.send_replace(None);
        while self.monitor.join_next().await.is_some() {}
    }
}

/// A started daemon, in a process or a task.
enum Started {
    Process(Box<process::ServerProcess>),
    Task(task::ServerTask),
}

impl Started {
    async fn start(assignment: &Assignment, placement: Placement, listen: &Address) -> Result<(Self, Running), Ended> {
        match placement {
            Placement::Process => {
                let (process, running) = process::ServerProcess::start(assignment, listen).await?;
                Ok((Started::Process(Box::new(process)), running))
            }
            Placement::Task => {
                let (task, running) = task::ServerTask::start(assignment, listen).await?;
                Ok((Started::Task(task), running))
            }
        }
    }

    /// Returns when the daemon ends, which is not expected, with the reason.
    async fn ended(&mut self) -> Ended {
        match self {
            Started::Process(process) => process.ended().await,
            Started::Task(task) => task.ended().await.into(),
        }
    }

    async fn stop(self) {
        match self {
            Started::Process(process) => process.stop().await,
            Started::Task(task) => task.stop().await,
        }
    }
}

async fn keep(
    node: NodeId,
    mut wanted: watch::Receiver<Wanted>,
    (placement, tcp): (Placement, bool),
    reporter: mpsc::Sender<Report>,
) {
    // The port of an earlier start.
    let mut port = Address::loopback(0);
    let mut backoff = Backoff::new(BACKOFF_MIN, BACKOFF_MAX);
    let mut recorded: Option<(Instant, String)> = None;
    loop {
        // A dropped sender is an instruction to end, too.
        let is_over = wanted.has_changed().is_err();
        let Some(assignment) = wanted.borrow_and_update().clone().filter(|_| !is_over) else { return };
        let begun = Instant::now();
        let starting = async {
            let listen = if tcp {
                port.clone()
            } else {
                addressing::socket(assignment.control().local(), node).map_err(Failure::from)?
            };
            Started::start(&assignment, placement, &listen).await
        };
        let starting = tokio::time::timeout(START_WAIT, starting);
        let started = tokio::select! {
            started = starting => started.unwrap_or_else(|_| {
                let message = format!("{} did not serve within {START_WAIT:?}", assignment.name());
                Err(Failure::unreachable("device-slow", message).into())
            }),
            // Dropping an unfinished start kills its process or task.
            _ = wanted.changed() => continue,
        };
        let Ended { failure, crash } = match started {
            Ok((mut server, running)) => {
                port = running.address.clone();
                let _ = reporter.send(Report { node, state: Ok(running), crash: None }).await;
                let ended = tokio::select! {
                    ended = server.ended() => ended,
                    _ = wanted.changed() => {
                        server.stop().await;
                        continue;
                    }
                };
                if begun.elapsed() > STEADY {
                    backoff.reset();
                }
                ended
            }
            Err(ended) => {
                // If the port was the problem, another one will do: hosts look up addresses.
                port = Address::loopback(0);
                ended
            }
        };
        let is_same = |crash: &Crash| recorded.as_ref().is_some_and(|(_, how)| *how == crash.how);
        let lately = || recorded.as_ref().is_some_and(|(at, _)| at.elapsed() < CRASH_AGAIN_AFTER);
        let crash = crash.filter(|crash| begun.elapsed() > STEADY || !is_same(crash) || !lately());
        if let Some(crash) = &crash {
            recorded = Some((Instant::now(), crash.how.clone()));
        }
        let failure = assignment.explain(failure);
        let _ = reporter.send(Report { node, state: Err(failure), crash }).await;
        if assignment.lacks_file().is_some() {
            // Every attempt would fail in the same way.
            tokio::select! {
                () = assignment.await_file() => {}
                _ = wanted.changed() => {}
            }
            continue;
        }
        let mut longer = backoff;
        tokio::select! {
            () = tokio::time::sleep(longer.next_wait()) => backoff = longer,
            _ = wanted.changed() => {}
        }
    }
}

impl Assignment {
    fn node(&self) -> NodeId {
        match self {
            Assignment::Monitor { .. } => NodeId::Monitor,
            Assignment::Device { id, .. } => NodeId::Device(*id),
            Assignment::LockServer { id, .. } => NodeId::LockServer(*id),
            Assignment::MetadataServer { id, .. } => NodeId::MetadataServer(*id),
        }
    }

    fn control(&self) -> &ControlPlane {
        match self {
            Assignment::Monitor { control, .. }
            | Assignment::Device { control, .. }
            | Assignment::LockServer { control, .. }
            | Assignment::MetadataServer { control, .. } => control,
        }
    }

    /// The file or disk of a device, if it does not exist.
    fn lacks_file(&self) -> Option<&Path> {
        match self {
            Assignment::Device { file, .. } if matches!(file.try_exists(), Ok(false)) => Some(file),
            _ => None,
        }
    }

    /// Why it is down. If its file is gone, nothing else matters: it may have been killed, but it can't be started again.
    fn explain(&self, failure: Failure) -> Failure {
        match self.lacks_file() {
            Some(file) => Failure::unreachable(NO_FILE, format!("its file {} is gone", file.display())),
            None => failure,
        }
    }

    /// Returns when the file exists.
    async fn await_file(&self) {
        while self.lacks_file().is_some() {
            tokio::time::sleep(FILE_PAUSE).await;
        }
    }

    /// The daemon's name for messages.
    fn name(&self) -> String {
        name(self.node())
    }
}

/// The name of a node for messages.
pub fn name(node: NodeId) -> String {
    match node {
        NodeId::Monitor => "the monitor".to_string(),
        NodeId::Device(id) => format!("device {id}"),
        NodeId::LockServer(id) => format!("lock server {id}"),
        NodeId::MetadataServer(id) => format!("metadata server {id}"),
        NodeId::Host(generation) => format!("host {generation}"),
    }
}

/// The number of a node among nodes of its kind.
pub fn number(node: NodeId) -> u16 {
    match node {
        NodeId::Monitor => 0,
        NodeId::Device(id) => id.0,
        NodeId::LockServer(id) => id.0,
        NodeId::MetadataServer(id) => id.0,
        NodeId::Host(_) => unreachable!("hosts are not supervised"),
    }
}

impl Report {
    /// The entry that is published for this daemon.
    pub fn entry(&self, control: &ControlPlane, before: Option<&RunningDaemon>) -> RunningDaemon {
        let restarts = before.map_or(0, |before| before.restarts);
        match &self.state {
            Ok(running) => RunningDaemon {
                id: number(self.node),
                address: addressing::published(control.local(), &running.address),
                pid: Some(running.pid),
                restarts,
                down: None,
            },
            Err(failure) => RunningDaemon {
                id: number(self.node),
                address: before.map(|before| before.address.clone()).unwrap_or_default(),
                pid: None,
                restarts: restarts + 1,
                down: Some(failure.message.clone()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_device_without_its_file_is_started_when_the_file_is_there() {
        let dir = std::env::temp_dir().join(format!("braid-supervisor-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (control, id, file) = (ControlPlane::at(&dir), DeviceId(2), dir.join("device-2.braid"));
        let assignment =
            Assignment::Device { control, array: ArrayId([7; 16]), id, file: file.clone(), object_memory: None };
        let killed = assignment.explain(Failure::failed("ended", "signal: 9 (SIGKILL)"));
        assert!(killed.code == NO_FILE && killed.message.ends_with("device-2.braid is gone"), "{killed}");
        let (_sender, wanted) = watch::channel(Some(assignment));
        let (reporter, mut reports) = mpsc::channel(10);
        let local = tokio::task::LocalSet::new();
        local.spawn_local(keep(NodeId::Device(id), wanted, (Placement::Task, false), reporter));
        let watched = async {
            let missing = reports.recv().await.unwrap().state.unwrap_err();
            assert_eq!(missing.code, NO_FILE);
            // Several back-offs would have passed.
            let again = tokio::time::timeout(BACKOFF_MIN * 10, reports.recv()).await;
            assert!(again.is_err(), "nothing is tried: {again:?}");
            std::fs::write(&file, b"something else").unwrap();
            let other = reports.recv().await.unwrap().state.unwrap_err();
            assert_ne!(other.code, NO_FILE);
        };
        local.run_until(watched).await;
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
