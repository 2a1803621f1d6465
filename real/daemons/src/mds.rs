//! The metadata server daemon: a host of the array that owns a file system, and serves its names, inodes and locks to other hosts.
//!
//! It keeps nothing in the array's folder but its lease, which publishes its address while it owns the file system. When it ends cleanly, it
//! releases the file system, so that the next one serves at once. It also releases it for a check (`braid fs check`), and waits for its end.

use crate::daemon::cannot_listen;
use crate::recording::METADATA_SERVER;
use braid_admin::failure::Failure;
use braid_admin::shards::{self, Grouping};
use braid_admin::{file_system_check, file_system_status, file_systems};
use braid_base::{BLOCK_BYTES, Epoch, FileSystemId, Generation};
use braid_control::{
    ArrayDescription, ControlPlane, DeviceReport, Event, FileSystemState, LockCounts, MetadataService as Published,
    Moment, ReportedState, event_texts,
};
use braid_locks::{FenceCause, FenceDecision};
use braid_machine::{ArrayRequest, HostError, MountRequest, ServerRequest};
use braid_metadata::{
    EntryState, LifecycleInput, LifecycleStep, MetadataLifecycle, MetadataNode, MetadataServer, MetadataService,
    NodeState, Observation, Pause, RELEASE_WAIT,
};
use braid_recording::RecordingRequest;
use braid_session::{HEARTBEAT, Metrics, Service, ServiceReport, Session, SessionHost, SessionRecording, addressing};
use braid_shell::{Address, Listener, View, Watched};
use braid_wire::OwnershipRequest;
use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::pin::{Pin, pin};
use std::rc::Rc;

/// The most hosts that a lease lists.
const HOSTS_SHOWN_MAX: usize = 256;

/// The most hosts whose roles are remembered, for events.
const ROLES_MAX: usize = 1024;

/// The metadata server of one file system, or of one shard of it.
pub struct MetadataDaemon {
    control: ControlPlane,
    /// The name of the file system.
    name: String,
    shard: usize,
    id: FileSystemId,
    /// All metadata servers of the file system.
    servers: Vec<FileSystemId>,
    called: String,
    /// Taken when the process serves first.
    recording: RefCell<Option<RecordingRequest>>,
    /// Decides when it takes over, releases and begins anew.
    process: RefCell<MetadataLifecycle>,
}

/// What the process does, as far as others must know.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Progress {
    TakesOver,
    Owns,
    Unusable(String),
    Ended(HostError),
}

/// The machine, which the lease and this daemon read while it runs.
type Node = MetadataNode<SessionHost>;

impl MetadataDaemon {
    /// The metadata server of a file system that is ready. If it has several, `shard` names one.
    pub async fn open(control: &ControlPlane, name: &str, shard: Option<usize>) -> Result<MetadataDaemon, Failure> {
        let description = control.describe().await?;
        let entry = file_systems::find(&description, name)?;
        let shard = match shard {
            Some(shard) => shard,
            None if entry.shards.is_none() => 0,
            None => {
                let count = entry.servers().len();
                let message = format!("file system {name} has {count} metadata servers, each in a process of its own");
                let commands: Vec<String> =
                    (0..count).map(|shard| format!("`braid mds {name} --shard {shard}`")).collect();
                return Err(Failure::usage("no-shard", message).hint(format!("start each: {}", commands.join(", "))));
            }
        };
        Ok(MetadataDaemon {
            control: control.clone(),
            name: name.to_string(),
            shard,
            id: shards::server(entry, shard)?,
            servers: entry.servers(),
            called: entry.server_name(shard),
            recording: RefCell::default(),
            process: RefCell::default(),
        })
    }

    /// The same, recorded with its host until it stops serving.
    pub fn recorded(self, recording: Option<RecordingRequest>) -> MetadataDaemon {
        MetadataDaemon { recording: RefCell::new(recording), ..self }
    }

    /// What it is called: by its file system, and by its shard if there are several.
    pub fn called(&self) -> &str {
        &self.called
    }

    /// Its name at the monitor.
    pub fn id(&self) -> FileSystemId {
        self.id
    }

    /// Serves at `listen` until `stop` completes. Calls `listening` with the address before it takes over the file system.
    pub async fn serve(
        self,
        listen: &Address,
        listening: impl FnOnce(&Address),
        stop: impl Future<Output = ()>,
    ) -> Result<(), Failure> {
        let mut stop = pin!(stop);
        let mut listener = Listener::bind(listen).await.map_err(cannot_listen(listen))?;
        let address = listener.address().clone();
        listening(&address);
        loop {
            tokio::select! {
                () = &mut stop => return Ok(()),
                waited = self.await_begin() => waited?,
            }
            match self.own_and_serve(listener, stop.as_mut()).await? {
                Pause::Stop => return Ok(()),
                Pause::Deleted => {
                    let message = format!("file system {} is deleted", self.name);
                    return Err(Failure::unreachable("no-such-file-system", message));
                }
                Pause::Settings => tracing::info!("file system {} has other settings now", self.called),
                Pause::Check => tracing::info!("file system {} is checked, and served again after that", self.name),
            }
            listener = Listener::bind(&address).await.map_err(cannot_listen(&address))?;
        }
    }

    /// Takes over the file system, and serves it until it is stopped, or is to be checked.
    async fn own_and_serve(
        &self,
        listener: Listener,
        mut stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<Pause, Failure> {
        let description = self.control.describe().await?;
        let (volume, config) = file_systems::server_config(&description, &self.name, self.shard)?;
        let begun = (config.grouping, config.parameters.blocks);
        let node = Rc::new(OnceCell::<View<Node>>::new());
        let report = {
            let (node, id) = (node.clone(), self.id);
            let address = addressing::published(&self.control, listener.address());
            move || node.get().map(|view| view.look(|node| report(node, id, &address))).unwrap_or_default()
        };
        let peers = self.servers.iter().copied().filter(|id| *id != self.id).collect();
        let id = braid_base::NodeId::MetadataServer(self.id);
        let service = Service { id, peers, listener, report: Box::new(report) };
        let request = self.recording.borrow_mut().take();
        let recording = request.map(|request| SessionRecording::around(request, METADATA_SERVER, &(volume, &config)));
        let mut progress = None;
        let around = |host, generation| {
            let settings = crate::lockd::limited(config.settings.clone());
            let config = braid_metadata::MetadataServerConfig { generation, settings, ..config };
            let (machine, view, seen) = Watched::publishing(MetadataNode::new(host, volume, config), Progress::of);
            let is_first = node.set(view).is_ok();
            assert!(is_first, "a session has one machine");
            progress = Some(seen);
            machine
        };
        let role = file_system_status::server_role(&self.called);
        let session = Session::start_around(&self.control, &role, Some(service), recording, around).await?;
        let node = node.get().expect("the session has a machine");
        let mut seeing = progress.expect("the session has a machine");
        let ended = async {
            loop {
                if let Some(failure) = self.failure(&seeing.borrow_and_update()) {
                    return failure;
                }
                if seeing.changed().await.is_err() {
                    return Failure::failed("internal", "the metadata server's machine has ended");
                }
            }
        };
        let mut step = tokio::select! {
            () = &mut stop => Ok(self.step(Some(node), LifecycleInput::Stop)),
            failure = ended => Err(failure),
            loss = session.lost() => Err(Failure::from(loss)),
            step = self.watch(&session, node, begun) => step,
        };
        if let Ok(LifecycleStep::Release { since }) = step {
            self.release(&session, since).await;
            step = Ok(self.step(Some(node), LifecycleInput::Released));
        }
        session.end().await;
        match step? {
            LifecycleStep::End(pause) => Ok(pause),
            other => unreachable!("a process that has released ends: {other:?}"),
        }
    }

    fn step(&self, node: Option<&View<Node>>, input: LifecycleInput) -> LifecycleStep {
        let owns_since = node.and_then(|node| node.look(MetadataNode::owns_since));
        self.process.borrow_mut().step(braid_shell::now().time, owns_since, input)
    }

    /// Gives up the file system.
    async fn release(&self, session: &Session, since: Epoch) {
        let request = OwnershipRequest::Release { since };
        let released = session.client().call(ArrayRequest::Ownership { file_system: self.id, request });
        match tokio::time::timeout(RELEASE_WAIT, released).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!("file system {} is not released: {error}", self.called),
            Err(_) => tracing::warn!("file system {} is not released within {RELEASE_WAIT:?}", self.called),
        }
    }

    /// Why the server has to end.
    fn failure(&self, progress: &Progress) -> Option<Failure> {
        let name = &self.called;
        match progress {
            Progress::TakesOver | Progress::Owns => None,
            Progress::Unusable(error) => {
                Some(Failure::data_lost("metadata-damaged", format!("file system {name}: {error}")))
            }
            Progress::Ended(HostError::Fenced) => {
                let message =
                    format!("this process does not own file system {name} any more: another one took it over");
                Some(Failure::failed("ownership-lost", message).hint("`braid fs status` shows the owner"))
            }
            Progress::Ended(error) => {
                let message = format!("this process can't own file system {name}: {error}");
                Some(Failure::failed("ownership-lost", message).hint("`braid fs status` shows the owner"))
            }
        }
    }

    /// Returns when the process has to give up the file system. Passes on changes of settings that a running server can follow, and records
    /// which hosts it has fenced.
    async fn watch(
        &self,
        session: &Session,
        node: &View<Node>,
        begun: (Grouping, u64),
    ) -> Result<LifecycleStep, Failure> {
        // A host that is fenced may have released its lease.
        let mut roles = BTreeMap::new();
        let (mut followed, mut told) = (None, 0);
        loop {
            self.look_up_roles(&mut roles).await;
            tokio::time::sleep(HEARTBEAT).await;
            self.record_fences(node, &mut told, &roles).await;
            self.pardon_if_devices_are_unavailable(session).await;
            let entry = match self.control.describe().await {
                Ok(description) => match self.look_up(begun, &description).await? {
                    Ok(settings) => {
                        // It is refused until the process owns the file system.
                        if followed.as_ref() != Some(&settings) && ask(session, settings.clone()).await.is_ok() {
                            followed = Some(settings);
                        }
                        EntryState::Ready
                    }
                    Err(state) => state,
                },
                Err(error) => {
                    tracing::warn!("can't look up file system {}: {error}", self.name);
                    EntryState::Ready
                }
            };
            let seen = Observation { entry, is_checked: self.is_checked().await? };
            match self.step(Some(node), LifecycleInput::Observed(seen)) {
                LifecycleStep::Nothing => {}
                step => return Ok(step),
            }
        }
    }

    /// The settings of the file system that a running server can follow, unless the process has to give it up: for another grouping than
    /// that with which it has begun, and for more blocks.
    async fn look_up(
        &self,
        (grouping, blocks): (Grouping, u64),
        description: &ArrayDescription,
    ) -> Result<Result<ServerRequest, EntryState>, Failure> {
        let is_ours = |entry: &&braid_control::FileSystemEntry| {
            entry.servers() == self.servers && entry.state == FileSystemState::Ready
        };
        let Some(entry) = description.file_system(&self.name).filter(is_ours) else { return Ok(Err(EntryState::Gone)) };
        let data = description.volume(&entry.data_volume());
        let has_grown = data.is_some_and(|data| data.bytes / BLOCK_BYTES as u64 > blocks);
        if shards::grouping(entry)? != grouping || has_grown {
            return Ok(Err(EntryState::Changed));
        }
        let protocol = shards::protocol(entry)?;
        let quiesces = file_system_check::quiesces(&self.control, &self.name).await?;
        Ok(Ok(ServerRequest::Follow { evict_after: entry.evict_after(), protocol, quiesces }))
    }

    async fn look_up_roles(&self, roles: &mut BTreeMap<Generation, String>) {
        let Ok(description) = self.control.describe().await else { return };
        let hosts = self.control.leases().hosts(Moment::now(), description.leases().host()).await.unwrap_or_default();
        roles.extend(hosts.into_iter().map(|host| (host.generation, host.role)));
        while roles.len() > ROLES_MAX {
            roles.pop_first();
        }
    }

    /// Records the decisions to fence hosts after the first `told`.
    async fn record_fences(&self, node: &View<Node>, told: &mut u64, roles: &BTreeMap<Generation, String>) {
        let decisions: Vec<FenceDecision> = node.look(|node| {
            let all = node.server().into_iter().flat_map(|server| server.locks().fence_decisions());
            all.filter(|decision| decision.number > *told).collect()
        });
        let Some(last) = decisions.last() else { return };
        *told = last.number;
        let event = |FenceDecision { host, cause, .. }| {
            let role = roles.get(&host).map(String::as_str).unwrap_or_default();
            event_texts::host_fenced(&self.called, host, role, words(cause))
        };
        let events: Vec<Event> = decisions.into_iter().map(event).collect();
        events.iter().for_each(|event| tracing::warn!("{}", event.text));
        if let Err(error) = self.control.record(events).await {
            tracing::warn!("can't record which hosts are fenced: {error}");
        }
    }

    /// A host that waits for devices can't give back locks.
    async fn pardon_if_devices_are_unavailable(&self, session: &Session) {
        let reported = self.control.monitor().await.ok().flatten();
        let devices = reported.iter().flat_map(|monitor| &monitor.report.devices);
        let is_unavailable = |device: &DeviceReport| device.member_state == ReportedState::Unavailable;
        if devices.into_iter().any(is_unavailable) {
            // A process that does not serve has no host that keeps locks.
            let _ = ask(session, ServerRequest::RestartEvictionTimers).await;
        }
    }

    /// Waits until the process may take over.
    async fn await_begin(&self) -> Result<(), Failure> {
        loop {
            let seen = Observation { entry: EntryState::Ready, is_checked: self.is_checked().await? };
            if self.step(None, LifecycleInput::Observed(seen)) == LifecycleStep::Begin {
                return Ok(());
            }
            tokio::time::sleep(HEARTBEAT).await;
        }
    }

    async fn is_checked(&self) -> Result<bool, Failure> {
        Ok(file_system_check::is_under_way(&self.control, &self.name).await?)
    }
}

async fn ask(session: &Session, request: ServerRequest) -> Result<(), HostError> {
    session.client().call(MountRequest::Server(request)).await.map(drop)
}

/// Why a host is fenced, for people.
fn words(cause: FenceCause) -> &'static str {
    match cause {
        FenceCause::Silent => "it was silent for too long",
        FenceCause::KeepsLocks => "it did not give back locks that others wait for",
        FenceCause::Conflict => "it believed that it held a lock that another host holds",
        FenceCause::Fenced => "devices refuse it already",
    }
}

/// What the lease reports: the address while the process owns the file system, and metrics.
fn report(node: &Node, id: FileSystemId, address: &str) -> ServiceReport {
    let Some(server) = node.server().filter(|_| node.state() == NodeState::Owns) else {
        return ServiceReport::default();
    };
    let of_hosts = server.locks().engine().lock_counts().take(HOSTS_SHOWN_MAX);
    let count = |(host, held, waiting): (Generation, usize, usize)| {
        (host.0, LockCounts { held: held as u64, waiting: waiting as u64 })
    };
    let (hosts, locks) = of_hosts.map(count).unzip();
    let room = server.room();
    let own = [
        ("sessions", server.locks().engine().hosts().count() as u64),
        ("lock_requests", server.locks().counters().locks),
        ("lock_recalls", server.locks().counters().recalls),
        ("orphans", server.unlinked_inodes() as u64),
        ("room_used_blocks", room.used),
        ("room_blocks", room.blocks),
    ];
    let counters = server.counters().list().into_iter().chain(server.store_counters()).chain(own);
    let counters: Metrics = counters.map(|(name, value)| (format!("metadata_{name}"), value)).collect();
    let (address, serves) = (address.to_string(), server.is_serving());
    let settled = server.is_quiescent();
    let published = Published { file_system: id.0, address, serves, settled, hosts, hosts_cut: false, locks };
    ServiceReport { metadata_server: Some(published), counters }
}

impl Progress {
    fn of(node: &Node) -> Progress {
        match (node.state(), node.server().map(MetadataServer::service)) {
            (NodeState::TakesOver, _) => Progress::TakesOver,
            (NodeState::Ended(error), _) => Progress::Ended(error),
            (NodeState::Owns, Some(MetadataService::Unusable(error))) => Progress::Unusable(error.to_string()),
            (NodeState::Owns, _) => Progress::Owns,
        }
    }
}
