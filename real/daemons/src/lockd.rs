//! The lock server daemon: its state in the array's folder, its generation and lease, and serving it.

use crate::daemon::{self, MonitorAt, Platform, Stage};
use crate::published_metrics::ServerView;
use crate::recording;
use braid_admin::failure::Failure;
use braid_base::limits::{self, Settings};
use braid_base::{ArrayId, Generation, LockServerId, NodeId};
use braid_control::{ControlPlane, HostEntry, LeaseReport, Leases, LockService as Published, Moment, lock_server_file};
use braid_host_leases::{Renewer, RenewerInput, RenewerStep, StopReason};
use braid_locks::{DISK_BYTES, LockServer, LockServerConfig, LockService, empty_list, is_list_lost};
use braid_recording::RecordingRequest;
use braid_session::{Metrics, addressing, renewal_input};
use braid_shell::{Address, Budget, Counters, Disk, Node};
use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::watch;

/// A lock server. The lock on its state file keeps other processes from running the same lock server.
pub struct LockDaemon {
    control: ControlPlane,
    array: ArrayId,
    id: LockServerId,
    disk: Disk,
    /// True if the state file was never written: the array is new, or the file was lost.
    is_blank: bool,
}

/// Heartbeats to wait for hosts to show that they hold nothing, before the list of hosts is rebuilt.
const HEARTBEATS: u32 = 3;

impl LockDaemon {
    /// Opens and locks the state file, which is created if it is missing.
    pub async fn open(control: &ControlPlane, id: LockServerId) -> Result<LockDaemon, Failure> {
        let description = control.describe().await?;
        let servers = description.creation.lock_servers;
        if id.0 >= servers {
            let message = format!("the array has no lock server {}: its lock servers are 0 to {}", id.0, servers - 1);
            return Err(Failure::unreachable("no-such-lock-server", message)
                .hint("their number was set at creation by `braid up --lock-servers`"));
        }
        if !control.deals_here(id.0, None) {
            // Its list of hosts, and the lock on that, are there: here it would grant what that one has granted.
            let message = format!("lock server {} is one of another machine", id.0);
            return Err(Failure::usage("other-machine", message).hint("`braid agent` runs it there"));
        }
        let message = format!("lock server {} is already running, in another process", id.0);
        let in_use = Failure::failed("lock-server-in-use", message).hint("`braid status` shows which process it is");
        let file = lock_server_file(id);
        let disk = daemon::open_state(control.local(), &file, DISK_BYTES, in_use)?;
        // A file that was created but not written before a crash counts as missing.
        let content = std::fs::read(control.local().dir().join(&file))
            .map_err(|error| Failure::from(error).of(control.local().dir().join(&file).display()))?;
        let is_blank = is_list_lost(&content);
        Ok(LockDaemon { control: control.clone(), array: description.array, id, disk, is_blank })
    }

    /// Serves at `listen` until `stop` completes. Calls `serving` with the address once it accepts requests of hosts.
    pub async fn serve(
        self,
        listen: &Address,
        recording: Option<RecordingRequest>,
        serving: impl FnOnce(&Address),
        stop: impl Future<Output = ()>,
    ) -> Result<(), Failure> {
        let LockDaemon { control, array, id, disk, is_blank } = self;
        let platform = Platform::bind(disk, listen, true).await?;
        let (address, path) = (platform.address(), platform.disk_path());
        // Taken after the state file is locked: otherwise another process could take a later generation without holding the file.
        let taken = Moment::now();
        let start = control.leases().take_generation(format!("lock server {}", id.0), taken.clone()).await?;
        let description = control.describe().await?;
        let leases = description.leases();
        let renewer = Renewer::new(taken.into(), leases.host());
        let callbacks = description.creation.callbacks;
        let settings = limited(Settings { callbacks, ..leases.settings() });
        let unlisted = if is_blank { may_hold(&control, start, leases).await? } else { BTreeSet::new() };
        if is_blank && unlisted.is_empty() {
            // Whoever finds the file blank again takes it for lost, and hosts for holders of locks.
            let file = control.local().dir().join(lock_server_file(id));
            let write = move |file: &Path| {
                let file = OpenOptions::new().write(true).open(file)?;
                file.write_all_at(&empty_list(), 0)?;
                file.sync_data()
            };
            let written = tokio::task::spawn_blocking(move || write(&file).map_err(|error| (error, file))).await;
            let written = written.expect("it does not panic");
            written.map_err(|(error, file)| Failure::from(error).of(file.display()))?;
        }
        let config = LockServerConfig::of_volumes(id, start, unlisted, settings);
        let counters = Arc::new(Counters::default());
        let recorder = recording::begin(recording.as_ref(), recording::LOCK_SERVER, &config, &counters)?;
        let server = LockServer::new(config);
        let us = Node { array, id: NodeId::LockServer(id) };
        // The lock server has hosts fenced by the monitor.
        let monitor = MonitorAt::Control(control.clone());
        let (follow, nodes) = watch::channel(monitor.known(us.id).await);
        let (view, seen, _, running) = platform.serve(server, (recorder, counters), us, nodes, stop);
        let published = Published { id: id.0, address: addressing::published(&control, &address) };
        let keeping = async {
            tokio::select! {
                failure = keep(&control, start, leases, renewer, &view, published) => failure,
                never = monitor.follow(us.id, follow) => never,
            }
        };
        let stage = |service: &LockService| match service {
            LockService::Off | LockService::Reading => Stage::Starting,
            LockService::Recovering | LockService::Serving => Stage::Serving,
            LockService::Unusable(error) => {
                Stage::Unusable(Failure::data_lost("lock-state-damaged", error.to_string()).of(&path))
            }
        };
        let outcome = daemon::run(running, keeping, seen, stage, || serving(&address)).await;
        if let Err(error) = control.leases().release(start).await {
            tracing::warn!("lock server {}: {error}", id.0);
        }
        outcome
    }
}

/// The part of the memory budget that a table of locks may take, one in so many, and how many bytes an extent takes there.
const TABLE_SHARE: u64 = 3;
const EXTENT_BYTES: u64 = 80;

/// These settings, with a table of locks that fits into the memory budget of this process.
pub fn limited(settings: Settings) -> Settings {
    let room = Budget::process().limit() / TABLE_SHARE / EXTENT_BYTES;
    Settings { lock_extents_max: settings.lock_extents_max.min(room as usize), ..settings }
}

/// The hosts that may hold locks of a lock server whose state was lost: all hosts with leases, except those that have renewed them since,
/// and reported that they had never sent a lock server a request. No locks are granted meanwhile, because this process has locked the
/// state file.
async fn may_hold(control: &ControlPlane, start: Generation, leases: Leases) -> Result<BTreeSet<Generation>, Failure> {
    let begun = Moment::now();
    loop {
        let waited = Moment::now().since(&begun).unwrap_or_default();
        let hosts = control.leases().hosts(Moment::now(), leases.host()).await?;
        let holds_nothing = |host: &HostEntry| {
            let waited = Moment::now().since(&begun).unwrap_or_default();
            let is_news = host.silent.is_some_and(|silent| silent < waited);
            let asked = host.report.counters.get("lock_requests");
            host.generation >= start || host.report.lock_server.is_some() || (is_news && asked == Some(&0))
        };
        let left = hosts.iter().filter(|host| !holds_nothing(host)).map(|host| host.generation);
        let left: BTreeSet<_> = left.collect();
        if left.is_empty() || waited > leases.heartbeat() * HEARTBEATS {
            if left.len() > limits::HOSTS_MAX {
                let message =
                    format!("the lock server has lost its list of hosts, and {} hosts may hold locks", left.len());
                return Err(
                    Failure::failed("lock-state-lost", message).hint("end some of the hosts, then start it again")
                );
            }
            if !left.is_empty() {
                tracing::warn!(
                    "the lock server has no list of hosts, because it is new or its file was lost: {} hosts may hold locks",
                    left.len()
                );
            }
            return Ok(left);
        }
        control.changed(leases.heartbeat() / 10).await;
    }
}

/// Renews the lease, with the lock server's address and metrics. Returns when the lease is lost.
async fn keep(
    control: &ControlPlane,
    start: Generation,
    leases: Leases,
    mut renewer: Renewer,
    view: &ServerView<LockServer>,
    published: Published,
) -> Failure {
    loop {
        let now = Moment::now();
        renewer.step(&now, RenewerInput::Wake { is_fenced: false });
        let counters: Metrics = view.counters();
        let lock_server = Some(published.clone());
        let report = LeaseReport { counters: counters.into_map(), lock_server, ..LeaseReport::default() };
        let renewal = control.leases().renew(start, now, report).await;
        let step = renewer.step(&Moment::now(), renewal_input(&renewal));
        if let Err(error) = renewal {
            match step {
                RenewerStep::Stop(StopReason::LeaseLost) => return error.into(),
                RenewerStep::Stop(_) => {
                    return Failure::from(error).of("the lock server's lease could not be renewed");
                }
                RenewerStep::Renew | RenewerStep::Wait => {
                    tracing::warn!("the lock server can't renew its lease: {error}");
                }
            }
        }
        tokio::time::sleep(leases.heartbeat()).await;
    }
}
