//! A running host: its generation and lease, its state machine, and its connections to the monitor, devices and lock servers.

use crate::addressing::listed_for_host;
use crate::control_driver::{ControlDriver, Reports, ServiceReport};
use crate::corruption_events::CorruptionReporter;
use crate::error::{Loss, SessionError};
use crate::host_view::HostView;
use crate::metrics::Metrics;
use crate::mounts;
use crate::recording::{MOUNT_ROLE, SessionRecording};
use crate::registry::{self, VolumeRegistry};
use crate::space_events::{self, Full, SpaceReporter};
use braid_base::limits::Settings;
use braid_base::{DeviceId, FileSystemId, Generation, NodeId, VolumeId};
use braid_control::{ControlError, ControlPlane, Moment, MountReport};
use braid_control_protocol::{HoldingHost, HostControl, Version};
use braid_files::{FileClient, FileClientConfig, Unmounted};
use braid_host::{Host, HostConfig};
use braid_host_leases::Renewer;
use braid_layout::VolumeDescription;
use braid_machine::{ArrayRequest, HostOutcome, Machine, MountRequest, NoDisk};
use braid_recording::{Recorded, RecordingRequest};
use braid_shell::{Counters, HostClient, Listener, Node, Watched, run_host, run_service};
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::{AbortHandle, JoinHandle};

/// The role of a host that scrubs, as its lease states it.
pub const SCRUB: &str = "scrub";
/// How often the folder is read while no user waits for it.
pub const HEARTBEAT: Duration = Duration::from_millis(500);

/// How long the end of a host may take whose session was dropped, and a program that was interrupted waits for its hosts.
pub const DROPPED_END_WAIT: Duration = Duration::from_secs(1);

/// The number of hosts of this process that have not ended.
static HOSTS: LazyLock<watch::Sender<usize>> = LazyLock::new(|| watch::channel(0).0);

/// Counts a host for as long as it has not ended.
struct Counted;

/// The host of a session, which starts no operation on volumes that are on hold.
pub type SessionHost = Watched<HoldingHost<Host>>;

/// A running host. If it is dropped, because the work that it was started for failed or was interrupted, it ends within a second.
pub struct Session {
    control: ControlPlane,
    generation: Generation,
    client: HostClient,
    view: HostView,
    registry: VolumeRegistry,
    /// Tells the task that ends the host how long that may take.
    end: oneshot::Sender<Option<Duration>>,
    ender: JoinHandle<()>,
    /// The host's driver, and that of its control part.
    tasks: [AbortHandle; 2],
    lost: watch::Receiver<Option<Loss>>,
}

/// What a machine around a host serves to other hosts.
pub struct Service {
    /// The node that other hosts connect to.
    pub id: NodeId,
    /// The metadata servers that it speaks to.
    pub peers: Vec<FileSystemId>,
    pub listener: Listener,
    /// What the lease reports of it, asked with each renewal.
    pub report: Box<dyn Fn() -> ServiceReport>,
}

/// What a session has beside its host.
struct Surroundings {
    service: Option<Service>,
    /// The file system that is mounted.
    mounted: Option<FileSystemId>,
    /// Its metadata servers, or those that a service speaks to. Hosts connect to no others.
    servers: Vec<FileSystemId>,
    /// The directory in which it is mounted, if programs use it there.
    directory: Option<PathBuf>,
    recording: Option<SessionRecording>,
}

impl Session {
    /// Takes a generation for a host of this role, and starts a host that knows all volumes.
    pub async fn start(control: &ControlPlane, role: &str) -> Result<Session, SessionError> {
        Session::start_recorded(control, role, None).await
    }

    /// As [`Session::start`], with the host recorded if that is asked for.
    pub async fn start_recorded(
        control: &ControlPlane,
        role: &str,
        recording: Option<RecordingRequest>,
    ) -> Result<Session, SessionError> {
        let recording = recording.map(SessionRecording::of_host);
        Session::start_around(control, role, None, recording, |host, _| Unmounted(host)).await
    }

    /// As [`Session::start`], with a machine that `around` makes of the host, and that is recorded if that is asked for. With a `service`,
    /// other hosts can connect to the machine.
    pub async fn start_around<M: Machine<Request = MountRequest, Outcome = HostOutcome, Disk = NoDisk> + 'static>(
        control: &ControlPlane,
        role: &str,
        service: Option<Service>,
        recording: Option<SessionRecording>,
        around: impl FnOnce(SessionHost, Generation) -> M,
    ) -> Result<Session, SessionError> {
        let servers = service.as_ref().map(|service| service.peers.clone()).unwrap_or_default();
        let surroundings = Surroundings { service, mounted: None, servers, directory: None, recording };
        Session::start_with(control, role, surroundings, around).await
    }

    /// As [`Session::start`], with a file system mounted. Returns the file system, too. The end of the session unmounts it. `directory` is
    /// where programs use it, for the lease.
    pub async fn mount(
        control: &ControlPlane,
        role: &str,
        name: &str,
        directory: Option<PathBuf>,
        recording: Option<RecordingRequest>,
    ) -> Result<(Session, FileSystemId), SessionError> {
        let (file_system, config) = mounts::describe(&control.describe().await?, name)?;
        let servers = config.shards.clone();
        let recording = recording.map(|request| SessionRecording::around(request, MOUNT_ROLE, &config));
        let surroundings = Surroundings { service: None, mounted: Some(file_system), servers, directory, recording };
        let mounted = Session::start_with(control, role, surroundings, |host, generation| {
            FileClient::new(host, FileClientConfig { host: generation, ..config })
        });
        Ok((mounted.await?, file_system))
    }

    async fn start_with<M: Machine<Request = MountRequest, Outcome = HostOutcome, Disk = NoDisk> + 'static>(
        control: &ControlPlane,
        role: &str,
        Surroundings { service, mounted, servers, directory, recording }: Surroundings,
        around: impl FnOnce(SessionHost, Generation) -> M,
    ) -> Result<Session, SessionError> {
        // In a copy of the folder, it would be another host of the same generation to devices that are started by hand.
        let has_addresses = control.describe().await?.devices.iter().any(|device| device.address.is_some());
        if let Some(original) = has_addresses.then(|| control.local().original()).flatten() {
            return Err(SessionError::OfCopy { dir: control.place().to_path_buf(), process: original.process });
        }
        // The order matters: a process that puts a volume on hold either sees this host and waits for it, or this host sees the hold.
        let taken = Moment::now();
        // In a task of its own: if the caller ends meanwhile, the lease is released all the same.
        let unused = tokio::spawn(Unused::take(control.clone(), role.to_string(), taken.clone()));
        let (unused, generation) = unused.await.expect("it does not panic")?;
        let read = control.overview().await?;
        let description = &read.description;
        let config = HostConfig {
            generation,
            membership: None,
            devices: description.devices.iter().map(|device| DeviceId(device.id)).collect(),
            lock_servers: description.lock_servers().collect(),
            acquisition: description.creation.lock_acquisition,
            volumes: registry::usable(description)?,
            held: registry::held(description),
            settings: Settings {
                range_division: description.creation.range_division,
                ..description.leases().settings()
            },
            seed: braid_shell::now().clock.0,
        };
        let us = Node { array: description.array, id: NodeId::Host(generation) };
        let (addresses, followed) = watch::channel(listed_for_host(control, &read, &servers));
        let (stop, stopped) = oneshot::channel();
        let counters = Arc::new(Counters::default());
        let recording = recording.map(|recording| recording.begin(&config, &counters));
        let recording = recording.transpose()?;
        let held = config.held.clone();
        let (host, view) = Watched::new(HoldingHost::new(Host::new(config), held));
        let view = HostView::new(view, counters.clone());
        let machine = Recorded::new(around(host, generation), recording);
        let stopped = async {
            let _ = stopped.await;
        };
        // A host stays on its thread.
        let (client, driver, report) = match service {
            None => {
                let (client, driver) = run_host(machine, us, followed, counters, stopped);
                (client, tokio::task::spawn_local(driver), None)
            }
            Some(Service { id, listener, report, .. }) => {
                let (client, driver) = run_service(machine, us, (id, listener), followed, counters, stopped);
                (client, tokio::task::spawn_local(driver), Some(report))
            }
        };
        let leases = description.leases();
        let (version, renewer) = (Version(description.revision), Renewer::new(taken.into(), leases.host()));
        let part = HostControl::new(version, &registry::records(description)?, renewer, leases.heartbeat());
        unused.forget();
        let (losing, lost) = watch::channel(None);
        let (applying, applied) = watch::channel(version);
        let look = Arc::new(Notify::new());
        let registry = VolumeRegistry::new(applied, look.clone());
        let driven = ControlDriver {
            control: control.clone(),
            generation,
            leases,
            part,
            client: client.clone(),
            view: view.clone(),
            reports: Reports {
                // A scrub reports its findings itself.
                corruption: (role != SCRUB).then(CorruptionReporter::default),
                space: SpaceReporter::default(),
                telling: None,
                service: report,
                mount: mounted.zip(directory).map(|(id, directory)| MountReport::of(id.0, &directory)),
            },
            servers,
            follow: addresses,
            applying,
            look,
            read: None,
        };
        let driven = tokio::task::spawn_local(driven.run(losing));
        let tasks = [driver.abort_handle(), driven.abort_handle()];
        let (end, asked) = oneshot::channel();
        let running = (stop, driver, driven, Counted::new());
        let ender = end_when_asked(asked, control.clone(), (generation, client.clone(), view.clone()), running);
        let (control, ender) = (control.clone(), tokio::task::spawn_local(ender));
        Ok(Session { control, generation, client, view, registry, end, ender, tasks, lost })
    }

    pub fn control(&self) -> &ControlPlane {
        &self.control
    }

    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The handle for requests to the host.
    pub fn client(&self) -> &HostClient {
        &self.client
    }

    /// The state of the host.
    pub fn view(&self) -> &HostView {
        &self.view
    }

    pub fn registry(&self) -> &VolumeRegistry {
        &self.registry
    }

    /// The current description of the volume of this name.
    pub async fn take_in(&self, name: &str) -> Result<VolumeDescription, SessionError> {
        self.registry.take_in(&self.control, name).await
    }

    /// The current metrics of the host; its lease contains those of the last renewal.
    pub fn counters(&self) -> Metrics {
        self.view.counters()
    }

    /// True if the array refuses this host from now on, or soon will.
    pub fn is_lost(&self) -> bool {
        self.lost.borrow().is_some()
    }

    /// The progress of this host's scrub of a volume: the first stripe that has not been started.
    pub fn scrubs(&self, volume: VolumeId) -> Option<u64> {
        self.view.scrubs(volume)
    }

    /// Returns when the lease is lost: from then on the array refuses this host, or soon will.
    pub async fn lost(&self) -> Loss {
        let mut lost = self.lost.clone();
        match lost.wait_for(Option::is_some).await {
            Ok(loss) => loss.clone().expect("it was waited for"),
            Err(_) => Loss::Unattended,
        }
    }

    /// Ends the operations under way, has devices and lock servers drop their state of this host, and releases the lease.
    pub async fn end(self) {
        self.ended(None).await;
    }

    /// As [`Session::end`], but if the array does not answer within `limit`, the host stops all the same. Then its lease is left to expire, so
    /// that it is fenced.
    pub async fn end_within(self, limit: Duration) {
        self.ended(Some(limit)).await;
    }

    async fn ended(self, limit: Option<Duration>) {
        let _ = self.end.send(limit);
        let _ = self.ender.await;
    }

    /// Releases the lease at once, even with requests unanswered. For a host that has written nothing.
    pub async fn leave(self) {
        let unused = self.unused();
        release(&self.control, self.generation).await;
        unused.forget();
    }

    /// The same, in the background.
    pub fn leave_soon(self) {
        drop(self.unused());
    }

    /// Ends the host at once. Its lease is released when what is returned is dropped.
    fn unused(&self) -> Unused {
        let unused = Unused { lease: Some((self.control.clone(), self.generation)), _counted: Counted::new() };
        self.ender.abort();
        self.tasks.iter().for_each(AbortHandle::abort);
        unused
    }
}

/// Ends a host when its session is ended, within the limit that is given with that, or when it is dropped.
async fn end_when_asked(
    asked: oneshot::Receiver<Option<Duration>>,
    control: ControlPlane,
    (generation, client, view): (Generation, HostClient, HostView),
    (stop, driver, driven, _counted): (oneshot::Sender<()>, JoinHandle<std::io::Result<()>>, JoinHandle<()>, Counted),
) {
    let limit = asked.await.unwrap_or(Some(DROPPED_END_WAIT));
    // A command may end before its first report.
    let short = view.refused_for_space().into_iter().map(|(short, count)| (Full::Of(short), count)).collect::<Vec<_>>();
    if !short.is_empty() {
        let told = space_events::tell(&control, short).await;
        told.unwrap_or_else(|error| tracing::warn!("can't record events of host {generation}: {error}"));
    }
    // Disconnect has its own time limits. State on nodes that it could not reach is dropped with the next fence of hosts that ended.
    let disconnected =
        tokio::time::timeout(limit.unwrap_or(Duration::MAX), client.call(ArrayRequest::Disconnect)).await;
    // Until here, the host had to know where servers are: another metadata server may have just taken over. From here on, the control part
    // would take the host's end for a failure.
    driven.abort();
    if disconnected.is_err() {
        tracing::warn!("host {generation} could not disconnect within {limit:?}");
        return driver.abort();
    }
    let _ = stop.send(());
    let ended = driver.await;
    if let Ok(Err(error)) = ended {
        tracing::warn!("host {generation}: {error}");
    }
    release(&control, generation).await;
}

impl Counted {
    fn new() -> Counted {
        HOSTS.send_modify(|hosts| *hosts += 1);
        Counted
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        HOSTS.send_modify(|hosts| *hosts -= 1);
    }
}

/// Returns when this process has a host: from then on, its end has to be waited for.
pub async fn has_host() {
    let _ = HOSTS.subscribe().wait_for(|hosts| *hosts > 0).await;
}

/// Returns when each host of this process has ended, after its session was ended or dropped; or after a little longer than that may take.
pub async fn hosts_ended() {
    let _ = tokio::time::timeout(2 * DROPPED_END_WAIT, HOSTS.subscribe().wait_for(|hosts| *hosts == 0)).await;
}

/// Fails if the array's devices are not running, before anything waits for them. An array that is starting is accepted.
pub async fn require_up(control: &ControlPlane) -> Result<(), SessionError> {
    let elsewhere = control.describe().await?.devices.iter().any(|device| device.address.is_some());
    if elsewhere || control.running().await?.is_some() {
        return Ok(());
    }
    Err(SessionError::NotUp { dir: control.place().to_path_buf() })
}

async fn release(control: &ControlPlane, generation: Generation) {
    if let Err(error) = control.leases().release(generation).await {
        tracing::warn!("host {generation}: {error}");
    }
}

/// The lease of a host that has not begun. If it is dropped, because the host can't be started, the lease is released.
struct Unused {
    lease: Option<(ControlPlane, Generation)>,
    _counted: Counted,
}

impl Unused {
    async fn take(control: ControlPlane, role: String, now: Moment) -> Result<(Unused, Generation), ControlError> {
        let counted = Counted::new();
        let generation = control.leases().take_generation(role, now).await?;
        Ok((Unused { lease: Some((control, generation)), _counted: counted }, generation))
    }

    /// The host has begun, or its lease is released.
    fn forget(mut self) {
        self.lease = None;
    }
}

impl Drop for Unused {
    fn drop(&mut self) {
        let (Some((control, generation)), Ok(runtime)) = (self.lease.take(), Handle::try_current()) else { return };
        let counted = Counted::new();
        runtime.spawn(async move {
            release(&control, generation).await;
            drop(counted);
        });
    }
}
