//! A lock server: its state in the array's folder, its generation and lease, and serving it.

use crate::daemon::{self, MonitorAt, Stage};
use crate::failure::Failure;
use crate::observed::{ObservedServer, ServerView};
use braid_base::{ArrayId, Generation, LockServerId, NodeId};
use braid_control::{
    ArrayFolder, ControlError, LeaseReport, Leases, LockService as Published, Moment, lock_server_file,
};
use braid_locks::{DISK_BYTES, LockServer, LockServerConfig, LockService};
use braid_session::{Counts, blocking};
use braid_shell::{Address, Counters, Disk, EngineChoice, Node, run_server};
use std::sync::Arc;
use tokio::sync::watch;

/// A lock server of an array, which no other process can be at the same time.
pub struct LockDaemon {
    folder: ArrayFolder,
    array: ArrayId,
    id: LockServerId,
    disk: Disk,
}

impl LockDaemon {
    /// Opens and locks its state, which is made if there is none yet.
    pub fn open(folder: &ArrayFolder, id: LockServerId) -> Result<LockDaemon, Failure> {
        let description = folder.describe()?;
        let servers = description.creation.lock_servers;
        if id.0 >= servers {
            let message = format!("the array has no lock server {}: its lock servers are 0 to {}", id.0, servers - 1);
            return Err(Failure::usage("no-such-lock-server", message)
                .hint("`braid up --lock-servers` says at creation how many there are"));
        }
        let message = format!("lock server {} runs already, in another process", id.0);
        let in_use = Failure::failed("lock-server-in-use", message).hint("`braid status` shows which");
        let disk = daemon::open_state(folder, &lock_server_file(id), DISK_BYTES, in_use)?;
        Ok(LockDaemon { folder: folder.clone(), array: description.array, id, disk })
    }

    /// Serves at `listen` until `stop` ends. Calls `serving` with the address once it hears hosts. `own_process` says that this
    /// process does nothing else; otherwise hosts in it need no network to get here.
    pub async fn serve(
        self,
        listen: &Address,
        own_process: bool,
        serving: impl FnOnce(&Address),
        stop: impl Future<Output = ()>,
    ) -> Result<(), Failure> {
        let LockDaemon { folder, array, id, disk } = self;
        let listener = daemon::bind(listen, own_process).await?;
        let address = listener.address().clone();
        let path = disk.path().display().to_string();
        // After the disk is locked: of two processes only the one that has it may be the later start.
        let start = folder.take_generation(&format!("lock server {}", id.0), &Moment::now())?;
        let leases = folder.describe()?.leases();
        let settings = leases.settings();
        let server = LockServer::new(LockServerConfig { id, start, settings });
        let counters = Arc::new(Counters::default());
        let (machine, view, seen) = ObservedServer::new(server, counters.clone(), own_process);
        let us = Node { array, id: NodeId::LockServer(id) };
        // Hosts are fenced by way of the monitor.
        let monitor = MonitorAt::Folder(folder.clone());
        let (follow, nodes) = watch::channel(monitor.known());
        let (_, running) = run_server(machine, us, (disk, EngineChoice::Automatic), listener, nodes, counters, stop);
        let published = Published { id: id.0, address: address.to_string() };
        let keeping = async {
            tokio::select! {
                failure = keep(&folder, start, leases, &view, published) => failure,
                never = monitor.follow(follow) => never,
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
        if let Err(error) = folder.release(start) {
            tracing::warn!("lock server {}: {error}", id.0);
        }
        outcome
    }
}

/// Renews the lease, which tells where the server listens and what it has counted. Ends when the lease is lost.
async fn keep(
    folder: &ArrayFolder,
    start: Generation,
    leases: Leases,
    view: &ServerView<LockServer>,
    published: Published,
) -> Failure {
    let mut renewed = Moment::now();
    loop {
        let now = Moment::now();
        let counters: Counts = view.counters();
        let lock_server = Some(published.clone());
        let report = LeaseReport { counters: counters.into_map(), lock_server, ..LeaseReport::default() };
        let renew = move |folder: &ArrayFolder| folder.renew(start, &now, Some(report)).map(|()| now);
        match blocking(folder, renew).await {
            Ok(now) => renewed = now,
            Err(error @ ControlError::LeaseLost { .. }) => return error.into(),
            Err(error) if Moment::now().since(&renewed).is_none_or(|age| age > leases.host()) => {
                return Failure::from(error).of("the lock server's lease could not be renewed");
            }
            Err(error) => tracing::warn!("the lock server can't renew its lease: {error}"),
        }
        tokio::time::sleep(leases.heartbeat()).await;
    }
}
