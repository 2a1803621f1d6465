//! Keeps the monitor, the devices and the lock servers of an array running: each has a keeper, which starts it, notices its end, and
//! starts it again. One that stands still has not ended, and is left alone: it may go on at any moment.
//!
//! Each runs in a process of its own, or in a task of this one ([`Placement`]). Its address stays the same from start
//! to start wherever the port can be had again.

mod process;
mod task;

use braid_admin::failure::Failure;
use braid_base::{ArrayId, DeviceId, LockServerId, NodeId};
use braid_control::{ArrayDescription, ArrayFolder, RunningDaemon};
use braid_shell::Address;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// How long one may take to open its store and listen.
const START_WAIT: Duration = Duration::from_secs(60);
/// How long one may take to end.
const STOP_WAIT: Duration = Duration::from_secs(10);
/// The first wait before one that ended is started again; doubles up to [`BACKOFF_MAX`].
const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// One that ran so long has shown that it can run.
const STEADY: Duration = Duration::from_secs(10);

/// Where they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// In a process of its own, that can be killed without the others.
    Process,
    /// In a task of this process, in the thread of the host: messages between them cost no system calls.
    Task,
}

/// How they run, where that is not the default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tuning {
    /// A spare takes the slot of a device that has been out for so long.
    pub spare_after: Option<Duration>,
    /// Bytes of memory in which each device keeps what its objects hold.
    pub object_memory: Option<u64>,
}

/// What a keeper says of its monitor, device or lock server.
#[derive(Clone, Debug)]
pub struct Report {
    /// Which one.
    pub node: NodeId,
    /// Where and how it runs, or why it does not.
    pub state: Result<Running, Failure>,
}

/// One that serves.
#[derive(Clone, Debug)]
pub struct Running {
    /// Where.
    pub address: Address,
    /// In which process.
    pub pid: u32,
}

/// What a keeper keeps running.
#[derive(Clone, Debug)]
enum Assignment {
    Monitor { folder: ArrayFolder, spare_after: Option<Duration> },
    Device { folder: ArrayFolder, array: ArrayId, id: DeviceId, file: PathBuf, object_memory: Option<u64> },
    LockServer { folder: ArrayFolder, id: LockServerId },
}

/// What a keeper is to keep running; none when it is to end.
type Wanted = Option<Assignment>;

/// The keepers of an array.
pub struct Supervised {
    folder: ArrayFolder,
    placement: Placement,
    tuning: Tuning,
    /// What each device's keeper is to keep running, and on which file.
    devices: BTreeMap<DeviceId, (PathBuf, watch::Sender<Wanted>)>,
    lock_servers: Vec<watch::Sender<Wanted>>,
    tasks: JoinSet<()>,
    /// Of the monitor, which ends last: devices that ended before it in its sight would be taken out.
    stop_monitor: watch::Sender<Wanted>,
    monitor: JoinSet<()>,
    reporter: mpsc::Sender<Report>,
    reports: mpsc::Receiver<Report>,
}

impl Supervised {
    /// Starts the monitor and every device of the array, but those that somebody else runs, at an address of their own. What becomes of them is told by [`Supervised::report`].
    pub fn start(
        folder: &ArrayFolder,
        description: &ArrayDescription,
        placement: Placement,
        tuning: Tuning,
    ) -> Supervised {
        let (reporter, reports) = mpsc::channel(description.devices.len() + 1);
        let monitor = Assignment::Monitor { folder: folder.clone(), spare_after: tuning.spare_after };
        let (stop_monitor, wanted) = watch::channel(Some(monitor));
        let mut supervised = Supervised {
            folder: folder.clone(),
            placement,
            tuning,
            devices: BTreeMap::new(),
            lock_servers: Vec::new(),
            tasks: JoinSet::new(),
            stop_monitor,
            monitor: JoinSet::new(),
            reporter,
            reports,
        };
        supervised.monitor.spawn_local(keep(NodeId::Monitor, wanted, placement, supervised.reporter.clone()));
        supervised.follow(description);
        supervised
    }

    /// Starts the devices that have come to the array, stops those that are gone from it, and moves those that have another disk now.
    pub fn follow(&mut self, description: &ArrayDescription) {
        let ours = description.devices.iter().filter(|device| device.address.is_none());
        let ours: BTreeMap<_, _> = ours.map(|device| (DeviceId(device.id), device.path(self.folder.dir()))).collect();
        self.devices.retain(|id, (_, wanted)| {
            let stays = ours.contains_key(id);
            if !stays {
                wanted.send_replace(None);
            }
            stays
        });
        for (id, file) in ours {
            let assignment = || {
                let (folder, array, file) = (self.folder.clone(), description.array, file.clone());
                Some(Assignment::Device { folder, array, id, file, object_memory: self.tuning.object_memory })
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
            let wanted = watch::channel(Some(Assignment::LockServer { folder: self.folder.clone(), id })).0;
            self.add(NodeId::LockServer(id), &wanted);
            self.lock_servers.push(wanted);
        }
    }

    fn add(&mut self, node: NodeId, wanted: &watch::Sender<Wanted>) {
        self.tasks.spawn_local(keep(node, wanted.subscribe(), self.placement, self.reporter.clone()));
    }

    /// The next thing that happens to one of them.
    pub async fn report(&mut self) -> Report {
        self.reports.recv().await.expect("keepers report until they are stopped")
    }

    /// Ends all, and returns when they have ended.
    pub async fn stop(mut self) {
        self.reports.close();
        let senders = self.devices.values().map(|(_, wanted)| wanted).chain(&self.lock_servers);
        senders.for_each(|wanted| drop(wanted.send_replace(None)));
        while self.tasks.join_next().await.is_some() {}
        self.stop_monitor.send_replace(None);
        while self.monitor.join_next().await.is_some() {}
    }
}

/// One start of one of them, wherever it runs.
enum Started {
    Process(Box<process::ServerProcess>),
    Task(task::ServerTask),
}

impl Started {
    async fn start(
        assignment: &Assignment,
        placement: Placement,
        listen: &Address,
    ) -> Result<(Self, Running), Failure> {
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

    /// Ends when what was started does, which it is not expected to.
    async fn ended(&mut self) -> Failure {
        match self {
            Started::Process(process) => process.ended().await,
            Started::Task(task) => task.ended().await,
        }
    }

    async fn stop(self) {
        match self {
            Started::Process(process) => process.stop().await,
            Started::Task(task) => task.stop().await,
        }
    }
}

async fn keep(node: NodeId, mut wanted: watch::Receiver<Wanted>, placement: Placement, reporter: mpsc::Sender<Report>) {
    let any = Address::loopback(0);
    let mut listen = any.clone();
    let mut backoff = BACKOFF_MIN;
    loop {
        // The sender's end is an end, too.
        let is_over = wanted.has_changed().is_err();
        let Some(assignment) = wanted.borrow_and_update().clone().filter(|_| !is_over) else { return };
        let begun = Instant::now();
        let starting = tokio::time::timeout(START_WAIT, Started::start(&assignment, placement, &listen));
        let started = tokio::select! {
            started = starting => started.unwrap_or_else(|_| {
                let message = format!("{} did not begin to serve within {START_WAIT:?}", assignment.name());
                Err(Failure::unreachable("device-slow", message))
            }),
            // A start that is cut short takes its process or task with it.
            _ = wanted.changed() => continue,
        };
        let failure = match started {
            Ok((mut server, running)) => {
                listen = running.address.clone();
                let _ = reporter.send(Report { node, state: Ok(running) }).await;
                let failure = tokio::select! {
                    failure = server.ended() => failure,
                    _ = wanted.changed() => {
                        server.stop().await;
                        continue;
                    }
                };
                if begun.elapsed() > STEADY {
                    backoff = BACKOFF_MIN;
                }
                failure
            }
            Err(failure) => {
                // If it was the port, another will do: hosts look up where everybody is.
                listen = any.clone();
                failure
            }
        };
        let _ = reporter.send(Report { node, state: Err(failure) }).await;
        tokio::select! {
            () = tokio::time::sleep(backoff) => {}
            _ = wanted.changed() => continue,
        }
        backoff = (backoff * 2).min(BACKOFF_MAX);
    }
}

impl Assignment {
    fn node(&self) -> NodeId {
        match self {
            Assignment::Monitor { .. } => NodeId::Monitor,
            Assignment::Device { id, .. } => NodeId::Device(*id),
            Assignment::LockServer { id, .. } => NodeId::LockServer(*id),
        }
    }

    fn folder(&self) -> &ArrayFolder {
        match self {
            Assignment::Monitor { folder, .. }
            | Assignment::Device { folder, .. }
            | Assignment::LockServer { folder, .. } => folder,
        }
    }

    /// As people know it.
    fn name(&self) -> String {
        name(self.node())
    }
}

/// As people know it.
pub fn name(node: NodeId) -> String {
    match node {
        NodeId::Monitor => "the monitor".to_string(),
        NodeId::Device(id) => format!("device {id}"),
        NodeId::LockServer(id) => format!("lock server {id}"),
        NodeId::Host(generation) => format!("host {generation}"),
    }
}

/// Its number among its kind.
pub fn number(node: NodeId) -> u16 {
    match node {
        NodeId::Monitor => 0,
        NodeId::Device(id) => id.0,
        NodeId::LockServer(id) => id.0,
        NodeId::Host(_) => unreachable!("hosts are not kept running"),
    }
}

impl Report {
    /// As others are told of it.
    pub fn entry(&self, before: Option<&RunningDaemon>) -> RunningDaemon {
        let restarts = before.map_or(0, |before| before.restarts);
        match &self.state {
            Ok(running) => RunningDaemon {
                id: number(self.node),
                address: running.address.to_string(),
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
