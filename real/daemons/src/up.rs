//! `braid up`: runs a whole array on this machine.

use crate::front_end::{self, ExportedVolume, NbdFrontEnd, REOPEN_PAUSE};
use crate::mounts;
use crate::supervisor::{self, Kept, Nodes, Report, Supervised, Tuning};
use braid_admin::array_creation::{self, CreateOptions};
use braid_admin::failure::Failure;
use braid_admin::silent_host_fencing::keep_fenced;
use braid_admin::{
    cluster, copies, device_lifecycle, file_systems, first_start, operation_driver, state_from_devices, volumes,
};
use braid_base::{DeviceId, FileSystemId, LockServerId, NodeId};
use braid_control::event_texts;
use braid_control::{
    AGENT, ArrayDescription, ControlPlane, DeviceReport, Endpoint, Event, Leases, Live, MonitorEntry, ReportedState,
    RunningSet, Supervision, WhenUnavailable, shell_word,
};
use braid_nbd::Server;
use braid_session::{HEARTBEAT, Session, addressing};
use braid_shell::Address;
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// How many nodes run the devices, unless another number is asked for: on two processors, two nodes are slower than one.
pub const NODES: u16 = 1;
/// How long all devices together may take until they serve.
const READY_WAIT: Duration = Duration::from_secs(120);
/// How long device files may be in use by another process at the start.
const IN_USE_WAIT: Duration = Duration::from_secs(3);
/// How many leases devices may take to get their first lease, before the array is declared ready without them.
const LEASES_AWAITED: u32 = 3;
/// The wait before checking again whether they have leases.
const LEASES_PAUSE: Duration = Duration::from_millis(10);

#[derive(Clone, Debug)]
pub struct Options {
    /// How many nodes run the devices and serve NBD clients, each at a port of its own; with none, this process serves them.
    pub nodes: u16,
    /// Non-default parameters of the daemons.
    pub tuning: Tuning,
    /// Continue without devices that can't be started, as far as the others can serve without them.
    pub degraded: bool,
    /// The address for NBD clients; further nodes use the ports that follow.
    pub listen: Address,
    /// What their requests do while devices are missing; none for the volumes' own settings.
    pub unavailable: Option<WhenUnavailable>,
    /// Write the log of this process and of those that it starts into the folder, and not to standard error.
    pub log_in_folder: bool,
}

/// An array that serves.
pub struct Ready<'a> {
    pub control: &'a ControlPlane,
    pub description: &'a ArrayDescription,
    /// The processes that run.
    pub running: &'a RunningSet,
    /// The address for NBD clients.
    pub address: &'a Address,
    /// True if this run has created it.
    pub is_new: bool,
    /// Where it logs, if that is in the folder.
    pub log: Option<&'a Path>,
}

impl Ready<'_> {
    /// The volumes that NBD clients can use.
    pub fn exported(&self) -> Vec<ExportedVolume> {
        let socket = addressing::served_nbd_socket(self.control.local());
        front_end::exported(self.description, &[], self.address, socket.as_ref())
    }
}

/// Opens the array in `folder`, which is created as `asked` if it does not exist, and runs it until `stop` completes. Calls `ready` once
/// its volumes are served. Must be awaited in a `LocalSet`. Invalid requests, and an array that is already running, are refused before
/// anything is created.
pub async fn run(
    control: ControlPlane,
    asked: &CreateOptions,
    options: Options,
    ready: impl FnOnce(&Ready),
    stop: impl Future<Output = ()>,
) -> Result<(), Failure> {
    // An array that can't be created leaves nothing behind.
    if control.cluster().is_none() && !control.local().dir().join("array.json").exists() {
        asked.creation()?;
    }
    let new_folder = !control.local().dir().exists();
    // Then every file that a failed start leaves there is its own.
    let was_empty = std::fs::read_dir(control.local().dir()).map_or(new_folder, |mut entries| entries.next().is_none());
    let supervision = control.local().supervise()?;
    let mut servers = match bind_all(&options).await {
        Ok(servers) => servers,
        Err(failure) => {
            if new_folder {
                supervision.leave_no_trace()?;
            }
            return Err(failure);
        }
    };
    let (mut stop, tuning) = (pin!(stop), options.tuning);
    // On several machines, the description is where a monitor leads, which may be the one of this machine.
    let monitor = control.cluster().map(|_| Supervised::of_array(&control, tuning));
    let opened = match &monitor {
        None => array_creation::open_or_create(&control, asked).await,
        Some(_) => tokio::select! {
            opened = open_alone(&control) => opened,
            () = &mut stop => return Ok(()),
        },
    };
    let description = match opened {
        Ok(description) => description,
        Err(failure) => {
            if was_empty {
                supervision.discard(new_folder)?;
            }
            return Err(failure);
        }
    };
    if usize::from(options.nodes) > description.devices.len() {
        tracing::warn!(
            "{} nodes for {} devices: some have a host and no device",
            options.nodes,
            description.devices.len()
        );
    }
    let log = if options.log_in_folder { Some(log_into(&control).await?) } else { None };
    if monitor.is_none() {
        state_from_devices::obstacles(control.local(), &description).into_iter().next().map_or(Ok(()), Err)?;
    }
    let (server, nodes) = if options.nodes == 0 {
        front_end::also_bind_in_folder(&mut servers[0], &control).await?;
        (servers.pop(), None)
    } else {
        // The nodes bind these addresses again.
        let listen = servers.drain(..).map(|server| server.address().clone()).collect();
        (None, Some(Nodes { listen, unavailable: options.unavailable }))
    };

    let mut array = Array {
        supervised: monitor.unwrap_or_else(|| Supervised::of_array(&control, tuning)).with(&description, nodes),
        nodes: options.nodes,
        running: RunningSet::begun(std::process::id()),
        lock_servers_started: false,
        may_be_degraded: options.degraded,
        unavailable: options.unavailable,
        log,
        supervision,
        control,
    };
    let outcome = array.run(&description, server, ready, stop).await;
    // Whatever happened, no daemon stays behind.
    array.supervised.stop().await;
    let has_volumes = array.control.cluster().is_some()
        || array.control.describe().await.map_or(true, |now| now.populated || !now.volumes.is_empty());
    if outcome.as_ref().is_err_and(|failure| !has_volumes && (was_empty || failure.code == volumes::NO_ROOM)) {
        array.supervision.discard(new_folder)?;
    }
    outcome
}

/// So many renewals of a lease are seen before its agent counts as alive: a change of the leader looks like one.
const RENEWALS_OF_ONE_THAT_LIVES: u32 = 3;

/// The description of an array on several machines, when no other process runs what this machine has: the agent of a copied machine would run
/// the same devices. An agent that was killed has ended when its devices have no leases any more. One whose lease is renewed lives.
async fn open_alone(control: &ControlPlane) -> Result<ArrayDescription, Failure> {
    let description = cluster::open(control).await?;
    let (lease, mut last, mut renewals) = (description.leases().lease(), None, 0);
    while let Some(own) = control.cluster() {
        let agents = own.own_agents(lease).await;
        // A new leader takes all leases for renewed, once.
        let renewed = |(is_known, silent): &(bool, Duration)| {
            Instant::now().checked_sub(*silent).filter(|_| *is_known && !silent.is_zero())
        };
        if let Some(at) = agents.as_ref().ok().and_then(|agents| agents.iter().filter_map(renewed).max())
            && last.is_none_or(|last| at > last + HEARTBEAT / 2)
        {
            renewals += 1;
            last = Some(at);
        }
        match agents {
            Ok(_) if renewals > RENEWALS_OF_ONE_THAT_LIVES => {
                let message = "another process runs this machine's devices";
                let hint = "end it; if this is a copy of that machine, or of its folder, it can't run beside it";
                return Err(Failure::failed("machine-twice", message).hint(hint));
            }
            Ok(agents) if agents.iter().all(|(_, silent)| *silent > lease + lease / 10) => break,
            Ok(_) => tokio::time::sleep(HEARTBEAT).await,
            Err(error) => {
                tracing::warn!("can't read whether another agent of this machine lives: {error}");
                tokio::time::sleep(HEARTBEAT).await;
            }
        }
    }
    Ok(description)
}

/// The running daemons, and their state.
struct Array {
    control: ControlPlane,
    supervised: Supervised,
    /// How many nodes there are.
    nodes: u16,
    running: RunningSet,
    lock_servers_started: bool,
    /// Continue without devices that can't be started.
    may_be_degraded: bool,
    /// What requests of NBD clients do while devices are missing.
    unavailable: Option<WhenUnavailable>,
    log: Option<PathBuf>,
    /// Released last: from then on another process may run the array.
    supervision: Supervision,
}

/// The host of this process, with an NBD server if no node has one.
enum OwnHost {
    WithNbd(NbdFrontEnd),
    Alone(Session),
}

impl OwnHost {
    fn session(&self) -> &Session {
        match self {
            OwnHost::WithNbd(front) => front.session(),
            OwnHost::Alone(session) => session,
        }
    }

    async fn stop(self) {
        match self {
            OwnHost::WithNbd(front) => front.stop().await,
            OwnHost::Alone(session) => session.end().await,
        }
    }
}

impl Array {
    /// Starts the array, announces that it is ready, and runs it until it is asked to end.
    async fn run(
        &mut self,
        description: &ArrayDescription,
        server: Option<Server>,
        ready: impl FnOnce(&Ready),
        mut stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<(), Failure> {
        let session = tokio::select! {
            session = self.bring_up(description) => session?,
            () = &mut stop => return Ok(()),
        };
        let mut front = match server {
            Some(server) => OwnHost::WithNbd(NbdFrontEnd::start(session, server, Vec::new(), self.unavailable)),
            None => OwnHost::Alone(session),
        };
        let address = match &front {
            OwnHost::WithNbd(front) => front.address().clone(),
            OwnHost::Alone(_) => self.running.nodes[0].address.parse().expect("a node serves at an address"),
        };
        self.running.nbd = Some(Endpoint(address.to_string()));
        self.running.ready = true;
        self.supervision.publish(&self.running)?;
        ready(&Ready {
            control: &self.control,
            description: &self.control.describe().await?,
            running: &self.running,
            address: &address,
            is_new: !description.populated,
            log: self.log.as_deref(),
        });

        let mut watching = self.watching(&front, description.leases());
        let control = self.control.clone();
        let look = async |within| {
            control.changed_or_rests(within).await;
            control.describe().await
        };
        let mut looked = pin!(look(Duration::ZERO));
        loop {
            tokio::select! {
                () = &mut stop => break,
                report = self.supervised.report() => self.note(&report),
                read = &mut looked => {
                    match read {
                        // A request to end does not wait for a leader.
                        Ok(description) => tokio::select! {
                            () = self.follow(description) => {}
                            () = &mut stop => break,
                        },
                        Err(error) => tracing::warn!("can't read which daemons to run: {error}"),
                    }
                    looked.set(look(HEARTBEAT));
                }
                loss = front.session().lost() => {
                    tracing::warn!("the host was fenced, and starts again: {loss}");
                    watching.shutdown().await;
                    front.stop().await;
                    front = tokio::select! {
                        front = self.reopen(&address) => front,
                        () = &mut stop => return Ok(()),
                    };
                    watching = self.watching(&front, description.leases());
                }
            }
        }
        drop(watching);
        if let Some(cluster) = control.cluster() {
            cluster.hurry();
        }
        self.name_mounts().await;
        // While the host of this process is there, it coordinates what a release may need.
        self.supervised.stop_metadata_servers().await;
        front.stop().await;
        Ok(())
    }

    /// Keeps what belongs to this run in the folder, and runs the daemons of the description.
    async fn follow(&mut self, description: ArrayDescription) {
        if !self.supervision.is_published() {
            tracing::warn!("run.json is missing from the array's folder, and is written again");
            self.publish();
        }
        match self.supervision.keep_lock() {
            Ok(false) => {}
            Ok(true) => tracing::warn!("up.lock was removed from the array's folder, and is created again"),
            Err(error) => tracing::warn!("can't create up.lock again: {error}"),
        }
        self.follow_servers(&description).await;
        self.follow_devices(description).await;
    }

    /// A new host after the previous one was fenced, which serves at the same address.
    async fn reopen(&self, address: &Address) -> OwnHost {
        if self.nodes == 0 {
            let at = (address, true);
            let front = NbdFrontEnd::open_until_it_serves(&self.control, AGENT, at, self.unavailable, |_| {});
            return OwnHost::WithNbd(front.await);
        }
        loop {
            match Session::start(&self.control, AGENT).await {
                Ok(session) => return OwnHost::Alone(session),
                Err(error) => tracing::error!("can't start a host; trying again: {error}"),
            }
            tokio::time::sleep(REOPEN_PAUSE).await;
        }
    }

    /// Mounts outlive the array, which may be started again soon. What programs ask of them waits until then.
    async fn name_mounts(&self) {
        for mount in mounts::list(&self.control).await.unwrap_or_default() {
            let directory = &mount.directory;
            tracing::warn!(
                "programs in {directory} wait until the array is up again: `braid fs unmount --force {}` ends them",
                shell_word(directory)
            );
        }
    }

    /// Waits for the devices, and creates the volumes that are missing.
    async fn bring_up(&mut self, description: &ArrayDescription) -> Result<Session, Failure> {
        if let Some(live) = self.look_what_lives(description).await {
            self.follow_lock_servers(description, live.as_ref());
        }
        let ours = description.devices.iter().filter(|device| self.control.runs(device));
        let all_serve = self.all_serve(ours.count(), description.populated);
        tokio::time::timeout(READY_WAIT, all_serve).await.unwrap_or_else(|_| {
            Err(Failure::unreachable("device-slow", format!("some devices did not serve within {READY_WAIT:?}")))
        })?;
        let session = Session::start(&self.control, AGENT).await?;
        let volumes = async {
            // It is tried again while the array runs.
            if let Err(failure) = volumes::settle(&session).await {
                tracing::warn!("an unfinished volume operation can't be completed now: {failure}");
            }
            if let Err(failure) = file_systems::settle(&session).await {
                tracing::warn!("file systems can't be deleted completely now: {failure}");
            }
            match cluster::all_made(&self.control).await? {
                true => first_start::create_initial(&session).await,
                false => Ok(()),
            }
        };
        match volumes.await {
            Ok(()) => {
                self.await_leases(description.leases().lease()).await;
                Ok(session)
            }
            Err(failure) => {
                session.end().await;
                Err(failure)
            }
        }
    }

    /// Waits until every device that is in has a lease from the monitor. Otherwise the monitor would soon consider those without a lease
    /// unavailable, and requests that need them would fail. A device that was not started goes out, or is unavailable: until then the others
    /// wait for it. A device that gets no lease for some leases is left to the monitor.
    async fn await_leases(&self, lease: Duration) {
        let begun = Instant::now();
        // On several machines, another monitor than this one may lead.
        let own = self.running.monitor.as_ref().filter(|_| self.control.cluster().is_none());
        let pid = own.and_then(|monitor| monitor.pid);
        let is_down = |id: u16| self.running.device(DeviceId(id)).is_some_and(|device| device.pid.is_none());
        let lacks_lease = |device: &DeviceReport, epoch: u32| {
            let heard = device.heard_millis.is_some_and(|millis| Duration::from_millis(millis) < lease);
            let lives = heard && device.lives_by == Some(epoch);
            match device.member_state {
                ReportedState::In if is_down(device.id) => true,
                ReportedState::In => !lives && device.refusal().is_none(),
                ReportedState::Unavailable => device.refusal().is_none() && !is_down(device.id),
                ReportedState::Out | ReportedState::Returning => false,
            }
        };
        loop {
            let shown = self.control.monitor().await.ok().flatten();
            // A killed monitor has left its last report.
            let shown = shown.filter(|entry| pid.is_none_or(|pid| pid == entry.process.pid));
            let lacking = shown.map(|MonitorEntry { report, .. }| {
                let devices = report.devices.into_iter();
                devices.filter(|device| lacks_lease(device, report.epoch)).collect::<Vec<_>>()
            });
            if lacking.as_ref().is_some_and(Vec::is_empty) {
                return;
            }
            if begun.elapsed() > lease * LEASES_AWAITED {
                let ids: Vec<String> = lacking.iter().flatten().map(|device| device.id.to_string()).collect();
                return tracing::warn!("devices that have no lease yet: {}", ids.join(", "));
            }
            tokio::time::sleep(LEASES_PAUSE).await;
        }
    }

    /// Waits until the monitor and every device that this process runs serve.
    async fn all_serve(&mut self, devices: usize, populated: bool) -> Result<(), Failure> {
        let begun = Instant::now();
        let nodes = usize::from(self.nodes);
        while self.running.devices.len() < devices || self.running.monitor.is_none() || self.running.nodes.len() < nodes
        {
            let report = self.supervised.report().await;
            match &report.state {
                Ok(_) => self.note(&report),
                // A run that was just killed may not have released its files yet.
                Err(failure) if is_in_use(failure) && begun.elapsed() < IN_USE_WAIT => {}
                // A node that can't start has nobody in its place: without its NBD server the array is not ready.
                Err(failure) if matches!(report.of, Kept::Node(_)) => return Err(failure.clone()),
                // Only some volumes need a lock server, and requests for those wait.
                Err(_) if matches!(report.of, Kept::Daemon(NodeId::LockServer(_))) => self.note(&report),
                // Another process runs the monitor, which is just as good.
                Err(failure) if report.of == Kept::Daemon(NodeId::Monitor) && is_in_use(failure) => self.note(&report),
                // Until the initial volumes have been created, all devices are needed.
                Err(_) if self.may_be_degraded && populated => self.note(&report),
                Err(failure)
                    if populated && failure.hint.is_none() && matches!(report.of, Kept::Daemon(NodeId::Device(_))) =>
                {
                    let dir = shell_word(self.control.place());
                    let up = if self.control.cluster().is_some() { "agent --array" } else { "up --dir" };
                    let mut hint =
                        format!("`braid {up} {dir} --degraded` starts without it, if the others can serve without it");
                    if let Kept::Daemon(NodeId::Device(device)) = report.of {
                        let id = device.0;
                        hint += &format!(
                            "; if its disk is lost, `braid device replace {id} --array {dir}` then gives it another one"
                        );
                    }
                    return Err(failure.clone().hint(hint));
                }
                Err(failure) => return Err(failure.clone()),
            }
        }
        Ok(())
    }

    /// What lives of an array on several machines, which says who runs servers; none if that is not known.
    async fn look_what_lives(&self, description: &ArrayDescription) -> Option<Option<Live>> {
        let Some(cluster) = self.control.cluster() else { return Some(None) };
        match cluster.live(description.leases().lease()).await {
            // It is known soon.
            Ok(live) => live.map(Some),
            Err(error) => {
                tracing::warn!("can't read what lives: {error}");
                None
            }
        }
    }

    /// Once started, lock servers keep running whether or not they are still needed: they cost little.
    fn follow_lock_servers(&mut self, description: &ArrayDescription, live: Option<&Live>) {
        let volumes_do = || description.volumes.iter().any(operation_driver::needs_lock_server);
        self.lock_servers_started |= description.locks_ranges || volumes_do();
        if self.lock_servers_started {
            self.supervised.follow_lock_servers(description, live);
        }
    }

    /// Runs the lock servers, and a metadata server for each shard of each file system.
    async fn follow_servers(&mut self, description: &ArrayDescription) {
        let Some(live) = self.look_what_lives(description).await else { return };
        self.follow_lock_servers(description, live.as_ref());
        self.supervised.follow_file_systems(description, live.as_ref());
        let (supervised, running) = (&self.supervised, &mut self.running);
        let there = running.metadata_servers.len() + running.lock_servers.len();
        running.metadata_servers.retain(|running| supervised.keeps_metadata_server(FileSystemId(running.id)));
        running.lock_servers.retain(|running| supervised.keeps_lock_server(LockServerId(running.id)));
        if running.metadata_servers.len() + running.lock_servers.len() < there {
            self.publish();
        }
    }

    /// Runs the array's devices, each on the disk that fills its slot.
    async fn follow_devices(&mut self, description: ArrayDescription) {
        let description = match device_lifecycle::fill(&self.control, description).await {
            Ok(description) => description,
            Err(error) => return tracing::warn!("can't determine which disks fill the slots of devices: {error}"),
        };
        self.supervised.follow(&description);
        let there = self.running.devices.len();
        self.running.devices.retain(|running| description.device(running.id).is_some());
        if self.running.devices.len() < there {
            self.publish();
        }
    }

    /// Records and publishes a change of the monitor, a device, a lock server or a metadata server.
    fn note(&mut self, report: &Report) {
        if let Err(failure) = &report.state {
            let when = if failure.code == supervisor::NO_FILE { "when its file is there" } else { "soon" };
            tracing::warn!("{} is down, and is started again {when}: {failure}", report.of);
        }
        if let Some(crash) = &report.crash {
            let crash = crash.clone();
            self.record(report.of, move |called, device| event_texts::daemon_crashed(called, device, &crash));
        }
        let among = match report.of {
            // The device was removed from the array, or the file system was deleted.
            Kept::Daemon(NodeId::Device(device)) if !self.supervised.keeps(device) => return,
            Kept::Daemon(NodeId::MetadataServer(id)) if !self.supervised.keeps_metadata_server(id) => return,
            Kept::Daemon(NodeId::LockServer(id)) if !self.supervised.keeps_lock_server(id) => return,
            Kept::Daemon(NodeId::Monitor) => {
                self.running.monitor = Some(report.entry(&self.control, self.running.monitor.as_ref()));
                return self.publish();
            }
            Kept::Daemon(NodeId::LockServer(_)) => &mut self.running.lock_servers,
            Kept::Daemon(NodeId::MetadataServer(_)) => &mut self.running.metadata_servers,
            Kept::Daemon(_) => &mut self.running.devices,
            Kept::Node(_) => &mut self.running.nodes,
        };
        let before = among.iter().find(|other| other.id == report.of.number());
        let entry = report.entry(&self.control, before);
        let down = entry
            .down
            .clone()
            .filter(|why| report.crash.is_none() && before.is_none_or(|it| it.down.as_ref() != Some(why)));
        among.retain(|other| other.id != entry.id);
        among.push(entry);
        among.sort_by_key(|other| other.id);
        if let Some(why) = down {
            self.record(report.of, move |called, device| event_texts::daemon_down(called, device, &why));
        }
        self.publish();
    }

    /// Records an event of a daemon, beside other work: the folder may be busy.
    fn record(&self, of: Kept, event: impl FnOnce(&str, Option<u16>) -> Event + 'static) {
        let device = if let Kept::Daemon(NodeId::Device(id)) = of { Some(id.0) } else { None };
        let control = self.control.clone();
        tokio::task::spawn_local(async move {
            let description = control.describe().await.ok();
            let entries = description.iter().flat_map(|it| &it.file_systems);
            let mut servers = entries.flat_map(|entry| entry.named_servers());
            let served = servers.find(|(id, _)| of == Kept::Daemon(NodeId::MetadataServer(*id)));
            let called = served.map_or_else(|| of.to_string(), |(_, name)| format!("the metadata server of {name}"));
            if let Err(error) = control.record(vec![event(&called, device)]).await {
                tracing::warn!("can't record an event: {error}");
            }
        });
    }

    fn publish(&self) {
        if let Err(error) = self.supervision.publish(&self.running) {
            // Hosts that are already running continue; publishing is retried with the next report.
            tracing::warn!("can't publish the addresses of devices: {error}");
        }
    }

    /// The background tasks of the array, which use the front end's host.
    fn watching(&self, front: &OwnHost, leases: Leases) -> JoinSet<()> {
        let mut watching = JoinSet::new();
        let session = front.session();
        let client = session.client().clone();
        let view = session.view().clone();
        watching.spawn_local(keep_fenced(self.control.clone(), leases, session.generation(), client.clone(), view));
        watching.spawn_local(operation_driver::keep_settled(
            self.control.clone(),
            client.clone(),
            session.generation(),
        ));
        watching.spawn_local(device_lifecycle::keep_settled(self.control.clone(), client, session.generation()));
        watching.spawn(copies::keep_copied(self.control.clone()));
        watching
    }
}

/// From now on this process, and those that it starts, log into the folder.
async fn log_into(control: &ControlPlane) -> Result<PathBuf, Failure> {
    let (path, log) = mounts::open_log(control, "up").await?;
    rustix::stdio::dup2_stderr(log).map_err(std::io::Error::from)?;
    Ok(path)
}

/// True if another process has the file or disk open.
fn is_in_use(failure: &Failure) -> bool {
    ["device-in-use", "monitor-in-use"].contains(&failure.code.as_str())
}

/// Binds the addresses for NBD clients, so that one in use is reported before anything is created.
async fn bind_all(options: &Options) -> Result<Vec<Server>, Failure> {
    let mut servers = Vec::new();
    for number in 0..options.nodes.max(1) {
        let address = match &options.listen {
            Address::Tcp { host, port: first } if *first != 0 => {
                let port = first.checked_add(number).ok_or_else(|| {
                    let message =
                        format!("port {first} and those that follow are not enough for {} nodes", options.nodes);
                    Failure::usage("bad-port", message).hint("choose a lower --port, or port 0 for any that are free")
                })?;
                Address::Tcp { host: host.clone(), port }
            }
            other => other.clone(),
        };
        servers.push(front_end::bind(&address).await?);
    }
    Ok(servers)
}
