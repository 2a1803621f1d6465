//! A lock server: its state in the array's folder, its generation and lease, and serving it.

use crate::counts::Counts;
use crate::device::{open_failure, open_once_free};
use crate::failure::Failure;
use crate::observed::{LockServerView, ObservedLockServer};
use crate::session::{HEARTBEAT, LEASE, addresses, blocking};
use braid_base::limits::Settings;
use braid_base::{ArrayId, DeviceId, Epoch, Generation, LockServerId, NodeId};
use braid_control::{ArrayFolder, ControlError, LeaseReport, LockService as Published, Moment, lock_server_file};
use braid_locks::{DISK_BYTES, LockServer, LockServerConfig, LockService};
use braid_shell::{Address, Addresses, Counters, Disk, DiskOptions, EngineChoice, Listener, Node, run_server};
use std::sync::Arc;
use tokio::sync::watch;

/// A lock server of an array, which no other process can be at the same time.
pub struct LockDaemon {
    folder: ArrayFolder,
    array: ArrayId,
    id: LockServerId,
    epoch: Epoch,
    devices: Vec<DeviceId>,
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
        let path = folder.dir().join(lock_server_file(id));
        if !path.exists() {
            let create = DiskOptions { create: Some(DISK_BYTES), ..DiskOptions::default() };
            Disk::open(&path, &create).map_err(open_failure)?;
        }
        Ok(LockDaemon {
            folder: folder.clone(),
            array: description.array,
            id,
            epoch: Epoch(description.epoch),
            devices: description.devices.iter().map(|device| DeviceId(device.id)).collect(),
            disk: open_once_free(&path).map_err(|failure| match failure.code.as_str() {
                "device-in-use" => {
                    let message = format!("lock server {} runs already, in another process", id.0);
                    Failure::failed("lock-server-in-use", message).hint("`braid status` shows which")
                }
                _ => failure,
            })?,
        })
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
        let LockDaemon { folder, array, id, epoch, devices, disk } = self;
        let mut listener = Listener::bind(listen)
            .await
            .map_err(|error| Failure::from(error).of(format!("can't listen on {listen}")))?;
        if !own_process {
            listener.open_to_this_process();
        }
        let address = listener.address().clone();
        let path = disk.path().display().to_string();
        // After the disk is locked: of two processes only the one that has it may be the later start.
        let start = folder.take_generation(&format!("lock server {}", id.0), &Moment::now())?;
        let settings = Settings { host_lease: LEASE, heartbeat: HEARTBEAT, ..Settings::default() };
        let server = LockServer::new(LockServerConfig { id, start, epoch, devices, settings });
        let counters = Arc::new(Counters::default());
        let (machine, view, mut service) = ObservedLockServer::new(server, counters.clone(), own_process);
        let us = Node { array, id: NodeId::LockServer(id) };
        let (follow, nodes) = watch::channel(devices_of(addresses(&folder)?));
        let running = run_server(machine, us, (disk, EngineChoice::Automatic), listener, nodes, counters, stop);
        let mut running = std::pin::pin!(running);
        let published = Published { id: id.0, address: address.to_string() };
        let mut keeping = std::pin::pin!(keep(&folder, start, &view, published, follow));
        let mut serving = Some(serving);
        let outcome = loop {
            tokio::select! {
                ended = &mut running => break ended.map_err(Failure::from),
                failure = &mut keeping => break Err(failure),
                Ok(()) = service.changed() => match *service.borrow_and_update() {
                    LockService::Recovering | LockService::Serving => {
                        if let Some(serving) = serving.take() { serving(&address) }
                    }
                    LockService::Unusable(error) => {
                        break Err(Failure::data_lost("lock-state-damaged", error.to_string()).of(path));
                    }
                    LockService::Off | LockService::Reading => {}
                },
            }
        };
        if let Err(error) = folder.release(start) {
            tracing::warn!("lock server {}: {error}", id.0);
        }
        outcome
    }
}

/// Renews the lease, which tells where the server listens and what it has counted, and follows the devices. Ends when the lease
/// is lost: the devices refuse this start from then on.
async fn keep(
    folder: &ArrayFolder,
    start: Generation,
    view: &LockServerView,
    published: Published,
    follow: watch::Sender<Addresses>,
) -> Failure {
    let mut renewed = Moment::now();
    loop {
        let now = Moment::now();
        let counters: Counts = view.counters();
        let report = LeaseReport { counters: counters.into_map(), revision: 0, lock_server: Some(published.clone()) };
        let renew = move |folder: &ArrayFolder| folder.renew(start, &now, Some(report)).map(|()| now);
        match blocking(folder, renew).await {
            Ok(now) => renewed = now,
            Err(error @ ControlError::LeaseLost { .. }) => return error.into(),
            Err(error) if Moment::now().since(&renewed).is_none_or(|age| age > LEASE) => {
                return Failure::from(error).of("the lock server's lease could not be renewed");
            }
            Err(error) => tracing::warn!("the lock server can't renew its lease: {error}"),
        }
        match blocking(folder, addresses).await {
            Ok(found) => {
                let found = devices_of(found);
                follow.send_if_modified(|known| {
                    let changed = *known != found;
                    *known = found;
                    changed
                });
            }
            Err(error) => tracing::warn!("can't look up where the devices are: {error}"),
        }
        tokio::time::sleep(HEARTBEAT).await;
    }
}

/// A lock server speaks to devices only.
fn devices_of(mut nodes: Addresses) -> Addresses {
    nodes.retain(|node, _| matches!(node, NodeId::Device(_)));
    nodes
}
