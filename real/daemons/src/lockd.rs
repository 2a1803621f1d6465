//! The lock server daemon: its state in the array's folder, its generation and lease, and serving it.
//!
//! In an array on several machines it may run on any of them, and finds out from the leading monitor who may hold locks
//! ([`braid_locks::leased`]). The file there only keeps a second process of this machine apart.

use crate::daemon::{self, MonitorAt, Platform, Stage};
use crate::published_metrics::{Server, ServerView};
use crate::recording;
use braid_admin::failure::Failure;
use braid_base::limits::{self, Settings};
use braid_base::{ArrayId, Generation, LockServerId, NodeId};
use braid_control::{
    ArrayDescription, ControlError, ControlPlane, HostEntry, LeaseReport, Leases, LockService as Published, Moment,
    lock_server_file,
};
use braid_host_leases::{LOCK_SERVER_ROLE, LeaseEnd, Renewer, RenewerInput, RenewerStep, StopReason};
use braid_locks::leased::{Kind, LeasedLockServer, Renewed, Seen, earlier, holders, idle};
use braid_locks::{DISK_BYTES, LockServerConfig, LockService, empty_list, is_list_lost};
use braid_recording::RecordingRequest;
use braid_session::{Metrics, addressing, renewal_input};
use braid_shell::{Address, Budget, ClientOf, Counters, Disk, Node};
use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
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
        let mut stop = pin!(stop);
        let platform = Platform::bind(disk, listen, true).await?;
        // Taken after the state file is locked: otherwise another process could take a later generation without holding the file.
        let taken = Moment::now();
        let start = control.leases().take_generation(format!("{LOCK_SERVER_ROLE}{}", id.0), taken.clone()).await?;
        let description = control.describe().await?;
        let leases = description.leases();
        let renewer = Renewer::new(taken.into(), leases.host());
        let callbacks = description.creation.callbacks;
        let settings = limited(Settings { callbacks, ..leases.settings() });
        let is_leased = control.cluster().is_some();
        let found = tokio::select! {
            () = &mut stop => Ok(None),
            succeeded = succeed(&control, (id, start), leases), if is_leased => succeeded.map(Some),
            held = may_hold(&control, start, leases), if !is_leased && is_blank => held.map(|held| Some((held, 0))),
            () = std::future::ready(()), if !is_leased && !is_blank => Ok(Some((BTreeSet::new(), 0))),
        };
        let Some((unlisted, since)) = found.as_ref().ok().cloned().flatten() else {
            control.leases().release(start).await?;
            return found.map(drop);
        };
        if is_leased || (is_blank && unlisted.is_empty()) {
            // Whoever finds the file blank again takes it for lost, and hosts for holders of locks. On several machines it may be an old one.
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
        let us = Node { array, id: NodeId::LockServer(id) };
        let (address, path) = (platform.address(), platform.disk_path());
        let counters = Arc::new(Counters::default());
        let role = if is_leased { recording::LEASED_LOCK_SERVER } else { recording::LOCK_SERVER };
        let recorder = recording::begin(recording.as_ref(), role, &config, &counters)?;
        let server = if is_leased { LeasedLockServer::new(config) } else { LeasedLockServer::endless(config) };
        // The lock server has hosts fenced by the monitor.
        let monitor = MonitorAt::Control(control.clone());
        let (follow, nodes) = watch::channel(monitor.known(us.id).await);
        let (view, seen, client, running) = platform.serve(server, (recorder, counters), us, nodes, stop);
        let published = Published { id: id.0, address: addressing::published(&control, &address) };
        let leased = is_leased.then_some((client, since));
        let keeping = async {
            tokio::select! {
                failure = keep(&control, start, leases, renewer, &view, (published, leased)) => failure,
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

/// A machine that is to be told of its lease, and the revision from when on hosts say that they hold nothing.
type Leased = (ClientOf<LeasedLockServer>, u64);

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
            return within_bounds(left);
        }
        control.changed(leases.heartbeat() / 10).await;
    }
}

/// Waits until no earlier start of this lock server may serve. Returns the hosts that may hold locks, and the revision from when on hosts say
/// that they hold nothing.
async fn succeed(
    control: &ControlPlane,
    us: (LockServerId, Generation),
    leases: Leases,
) -> Result<(BTreeSet<Generation>, u64), Failure> {
    loop {
        match try_to_succeed(control, us, leases).await {
            Ok(Some((holders, since))) => return Ok((within_bounds(holders)?, since)),
            Ok(None) => {}
            Err(error @ ControlError::LeaseLost { .. }) => return Err(error.into()),
            Err(error) => tracing::warn!("lock server {} can't find out whether it may serve: {error}", us.0.0),
        }
        tokio::time::sleep(leases.heartbeat() / 2).await;
    }
}

/// None if an earlier start lives.
async fn try_to_succeed(
    control: &ControlPlane,
    (id, start): (LockServerId, Generation),
    leases: Leases,
) -> Result<Option<(BTreeSet<Generation>, u64)>, ControlError> {
    // While it waits, it is no start that has died.
    control.leases().renew(start, Moment::now(), LeaseReport::default()).await?;
    let mut all = seen(control, id, leases).await?;
    while let Some(before) = earlier(start, &all) {
        if control.leases().expire_one(before, Moment::now(), Duration::ZERO).await? == LeaseEnd::Lives {
            return Ok(None);
        }
        all = seen(control, id, leases).await?;
    }
    let next = |before: &ArrayDescription| {
        let ((), next) = before.changed(|_| Ok::<_, ControlError>(()))?;
        Ok::<_, ControlError>((next.revision, Some(next)))
    };
    Ok(Some((holders(&all), control.replace_description(next).await?)))
}

/// These hosts, if a lock server has room for them.
fn within_bounds(holders: BTreeSet<Generation>) -> Result<BTreeSet<Generation>, Failure> {
    let count = holders.len();
    if count > limits::HOSTS_MAX {
        let message = format!("the lock server has lost its list of hosts, and {count} hosts may hold locks");
        return Err(Failure::failed("lock-state-lost", message).hint("end some of the hosts, then start it again"));
    }
    if count > 0 {
        tracing::warn!(
            "the lock server is new, is on another machine or has lost its file: {count} hosts may hold locks"
        );
    }
    Ok(holders)
}

/// What the leader has of all that have leases.
async fn seen(control: &ControlPlane, id: LockServerId, leases: Leases) -> Result<Vec<Seen>, ControlError> {
    let hosts = control.leases().hosts(Moment::now(), leases.host()).await?;
    let seen = |HostEntry { generation: host, role, is_over, report, .. }: HostEntry| {
        let kind = match role.strip_prefix(LOCK_SERVER_ROLE) {
            Some(number) if number == id.0.to_string() => Kind::Start,
            Some(_) => Kind::OtherLockServer,
            None => Kind::Host,
        };
        let requests = report.counters.get("lock_requests").copied();
        Seen { host, kind, is_over, revision: report.revision, requests }
    };
    Ok(hosts.into_iter().map(seen).collect())
}

/// Renews the lease, with the lock server's address and metrics. Returns when the lease is lost.
async fn keep(
    control: &ControlPlane,
    start: Generation,
    leases: Leases,
    mut renewer: Renewer,
    view: &ServerView<LeasedLockServer>,
    (published, leased): (Published, Option<Leased>),
) -> Failure {
    loop {
        let (now, sent) = (Moment::now(), braid_shell::now().time);
        renewer.step(&now, RenewerInput::Wake { is_fenced: false });
        let counters: Metrics = view.counters();
        let lock_server = Some(published.clone());
        let report = LeaseReport { counters: counters.into_map(), lock_server, ..LeaseReport::default() };
        let renewal = control.leases().renew(start, now, report).await;
        let step = renewer.step(&Moment::now(), renewal_input(&renewal));
        if let Some((client, since)) = leased.as_ref().filter(|_| renewal.is_ok()) {
            let heard = seen(control, LockServerId(published.id), leases);
            let idle = match view.look(Server::service) == LockService::Serving {
                true => Vec::new(),
                false => match tokio::time::timeout(leases.heartbeat(), heard).await {
                    Ok(Ok(seen)) => idle(*since, &seen),
                    Ok(Err(_)) | Err(_) => Vec::new(),
                },
            };
            // A machine that has ended needs no lease.
            let _ = client.ask(Renewed { until: sent.after(leases.lease()), idle }).await;
        }
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
