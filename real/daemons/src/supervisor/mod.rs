//! The supervisor keeps the monitor, the devices, the lock servers and the metadata servers of an array running. Each of these has a keeper: a task that starts
//! it, notices its end, and restarts it. A suspended process is not restarted, because it may continue at any moment. A device whose file is
//! missing is restarted when the file is there again.
//!
//! Each daemon runs in a process of its own; in a node, devices are tasks. It listens on a Unix socket in the array's folder,
//! or on a port, which stays the same across restarts if it is still free.
//!
//! With nodes, each node is a process that runs some of the devices ([`crate::node`]). Its keeper passes on what it reports of them, and
//! reports all of them as down when it ends.

mod assignment;
mod contract;
mod keeper;
mod nodes;
mod process;
mod task;

pub use assignment::NO_FILE;
pub use contract::{Kept, Report, Running, Tuning};
pub use nodes::{Nodes, Share};
pub use process::{HOST_ENDED, say_not_serving, say_of_device};

use assignment::{Assignment, Wanted, What};
use braid_base::{DeviceId, FileSystemId, LockServerId};
use braid_control::{ArrayDescription, ControlPlane, FileSystemState, Live};
use braid_session::addressing;
use keeper::keep;
use nodes::AllHosts;
use std::collections::BTreeMap;
use std::path::PathBuf;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// Reports that wait to be read; keepers wait beyond that.
const REPORTS_MAX: usize = 64;

/// The keepers of an array.
pub struct Supervised {
    start: Start,
    share: Share,
    /// The file of each device of the share, and the assignment of its keeper; none if a node runs it.
    devices: BTreeMap<DeviceId, (PathBuf, Option<watch::Sender<Wanted>>)>,
    /// Nodes.
    others: Vec<watch::Sender<Wanted>>,
    lock_servers: BTreeMap<LockServerId, watch::Sender<Wanted>>,
    /// With nodes: tells them when they may end their devices.
    all_hosts: Option<AllHosts>,
    tasks: JoinSet<()>,
    metadata_servers: BTreeMap<FileSystemId, watch::Sender<Wanted>>,
    /// Metadata servers end first: they release their file systems, for which they need devices and the monitor.
    metadata_tasks: JoinSet<()>,
    /// The monitor ends last: it would take out devices that ended while it runs.
    stop_monitor: Option<watch::Sender<Wanted>>,
    monitor: JoinSet<()>,
    reports: mpsc::Receiver<Report>,
}

/// What the start of a keeper needs.
struct Start {
    control: ControlPlane,
    tuning: Tuning,
    /// In a node, devices are tasks of this process.
    in_tasks: bool,
    reporter: mpsc::Sender<Report>,
}

impl Start {
    fn assignment(&self, what: What) -> Assignment {
        Assignment { control: self.control.clone(), tuning: self.tuning, what }
    }

    /// Starts a keeper. It ends when it is told to by what is returned, or when that is dropped.
    fn keep(&self, what: What, tasks: &mut JoinSet<()>) -> watch::Sender<Wanted> {
        let (wanted, told) = watch::channel(Some(self.assignment(what)));
        tasks.spawn_local(keep(told, self.in_tasks, self.reporter.clone()));
        wanted
    }
}

impl Supervised {
    /// Starts the monitor. [`Supervised::report`] reports on all that is started.
    pub fn of_array(control: &ControlPlane, tuning: Tuning) -> Supervised {
        let mut supervised = Supervised::new(control, tuning, false, Share::all());
        supervised.stop_monitor = Some(supervised.start.keep(What::Monitor, &mut supervised.monitor));
        supervised
    }

    /// Starts every device of the array that this machine runs. If `nodes` are given, these run the devices.
    pub fn with(mut self, description: &ArrayDescription, nodes: Option<Nodes>) -> Supervised {
        if let Some(nodes) = nodes {
            let unavailable = nodes.unavailable;
            let (nodes, all_hosts) = nodes.begin();
            self.all_hosts = Some(all_hosts);
            for (share, listen, hosts_end) in nodes {
                self.add(What::Node { share, listen, unavailable, hosts_end });
            }
        }
        self.follow(description);
        self
    }

    /// Runs this share of the devices in tasks of this process.
    pub fn of_node(control: &ControlPlane, description: &ArrayDescription, share: Share, tuning: Tuning) -> Supervised {
        let mut supervised = Supervised::new(control, tuning, true, share);
        supervised.follow(description);
        supervised
    }

    fn new(control: &ControlPlane, tuning: Tuning, in_tasks: bool, share: Share) -> Supervised {
        let (reporter, reports) = mpsc::channel(REPORTS_MAX);
        Supervised {
            start: Start { control: control.clone(), tuning, in_tasks, reporter },
            share,
            devices: BTreeMap::new(),
            others: Vec::new(),
            lock_servers: BTreeMap::new(),
            all_hosts: None,
            tasks: JoinSet::new(),
            metadata_servers: BTreeMap::new(),
            metadata_tasks: JoinSet::new(),
            stop_monitor: None,
            monitor: JoinSet::new(),
            reports,
        }
    }

    /// Starts devices that were added to the array, stops devices that were removed, and restarts those whose slot another disk fills now.
    pub fn follow(&mut self, description: &ArrayDescription) {
        let ours = description.devices.iter().filter(|entry| self.share.has(&self.start.control, entry));
        let ours: BTreeMap<_, _> = ours.map(|entry| (DeviceId(entry.id), entry)).collect();
        self.devices.retain(|id, (_, wanted)| {
            let stays = ours.contains_key(id);
            if !stays && let Some(wanted) = wanted {
                wanted.send_replace(None);
            }
            stays
        });
        for (id, entry) in ours {
            let file = entry.path(self.start.control.local().dir());
            let listen = entry.address.as_ref().and_then(|text| addressing::located(self.start.control.local(), text));
            let what = What::Device { array: description.array, id, file: file.clone(), listen };
            let wanted = match self.devices.remove(&id) {
                Some((kept, Some(wanted))) => {
                    if kept != file {
                        wanted.send_replace(Some(self.start.assignment(what)));
                    }
                    Some(wanted)
                }
                Some((_, None)) => None,
                None => self.all_hosts.is_none().then(|| self.start.keep(what, &mut self.tasks)),
            };
            self.devices.insert(id, (file, wanted));
        }
        while self.tasks.try_join_next().is_some() {}
    }

    pub fn keeps(&self, device: DeviceId) -> bool {
        self.devices.contains_key(&device)
    }

    /// Starts the lock servers. If the array is on several machines, each stays where it runs as long as it lives there.
    pub fn follow_lock_servers(&mut self, description: &ArrayDescription, live: Option<&Live>) {
        for id in description.lock_servers() {
            let is_elsewhere = live.is_some_and(|live| live.locks_elsewhere.contains(&id.0));
            let is_kept = self.keeps_lock_server(id);
            if is_elsewhere && let Some(wanted) = self.lock_servers.remove(&id) {
                wanted.send_replace(None);
            } else if !is_elsewhere && !is_kept && self.start.control.deals_here(id.0, live) {
                let wanted = self.start.keep(What::LockServer(id), &mut self.tasks);
                self.lock_servers.insert(id, wanted);
            }
        }
    }

    pub fn keeps_lock_server(&self, id: LockServerId) -> bool {
        self.lock_servers.contains_key(&id)
    }

    /// Starts the metadata servers of file systems that are ready, and stops those of file systems that are being deleted. If the array is on
    /// several machines, each stays where it runs as long as it lives there.
    pub fn follow_file_systems(&mut self, description: &ArrayDescription, live: Option<&Live>) {
        let control = self.start.control.clone();
        let ready = description.file_systems.iter().filter(|entry| entry.state == FileSystemState::Ready);
        let servers = ready.flat_map(|entry| {
            let of = |shard| (entry.name.clone(), entry.shards.as_ref().map(|_| shard));
            entry.servers().into_iter().enumerate().map(move |(shard, id)| (id, of(shard))).collect::<Vec<_>>()
        });
        let is_elsewhere = |id| live.is_some_and(|live| live.served_elsewhere.contains(&id));
        let is_here = |id| self.keeps_metadata_server(FileSystemId(id)) || control.deals_here(id, live);
        let ready: BTreeMap<_, _> = servers.filter(|(id, _)| is_here(id.0) && !is_elsewhere(id.0)).collect();
        self.metadata_servers.retain(|id, wanted| {
            let stays = ready.contains_key(id);
            if !stays {
                wanted.send_replace(None);
            }
            stays
        });
        for (id, (name, shard)) in ready {
            if !self.keeps_metadata_server(id) {
                let wanted = self.start.keep(What::MetadataServer { id, name, shard }, &mut self.metadata_tasks);
                self.metadata_servers.insert(id, wanted);
            }
        }
        while self.metadata_tasks.try_join_next().is_some() {}
    }

    /// True if it keeps the metadata server of this file system, or shard, running.
    pub fn keeps_metadata_server(&self, id: FileSystemId) -> bool {
        self.metadata_servers.contains_key(&id)
    }

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

    /// Starts the keeper of a node.
    fn add(&mut self, what: What) {
        self.others.push(self.start.keep(what, &mut self.tasks));
    }

    /// The next report of a keeper.
    pub async fn report(&mut self) -> Report {
        self.reports.recv().await.expect("keepers report until they are stopped")
    }

    /// Ends all daemons, and returns when they have ended.
    pub async fn stop(mut self) {
        self.stop_metadata_servers().await;
        self.reports.close();
        let devices = self.devices.values().filter_map(|(_, wanted)| wanted.as_ref());
        devices
            .chain(&self.others)
            .chain(self.lock_servers.values())
            .for_each(|wanted| drop(wanted.send_replace(None)));
        if let Some(all) = self.all_hosts {
            self.others.clear();
            all.let_devices_end().await;
        }
        while self.tasks.join_next().await.is_some() {}
        drop(self.stop_monitor);
        while self.monitor.join_next().await.is_some() {}
    }
}
