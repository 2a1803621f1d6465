//! A host in this process: its generation and lease, the machine and its connections to the devices.

use crate::counts::Counts;
use crate::failure::Failure;
use crate::observed::{HostView, ObservedHost};
use braid_base::limits::Settings;
use braid_base::{DeviceId, Epoch, Generation, NodeId};
use braid_control::{ArrayFolder, ControlError, Moment};
use braid_host::{Host, HostConfig};
use braid_shell::{Counters, DeviceAddresses, HostClient, Node, run_host};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

/// How long a host lives without renewing its lease.
pub const LEASE: Duration = Duration::from_secs(4);
/// How often leases are renewed, and addresses looked up.
pub const HEARTBEAT: Duration = Duration::from_millis(500);

/// A running host.
pub struct Session {
    folder: ArrayFolder,
    generation: Generation,
    client: HostClient,
    view: HostView,
    stop: oneshot::Sender<()>,
    driver: JoinHandle<std::io::Result<()>>,
    keeper: JoinHandle<()>,
    lost: watch::Receiver<Option<Failure>>,
}

impl Session {
    /// Takes a generation for `what`, and starts a host that knows no volumes yet.
    pub async fn start(folder: &ArrayFolder, what: &str) -> Result<Session, Failure> {
        let description = folder.describe()?;
        let generation = folder.take_generation(what, &Moment::now())?;
        let settings = Settings { host_lease: LEASE, heartbeat: HEARTBEAT, ..Settings::default() };
        let host = Host::new(HostConfig {
            generation,
            epoch: Epoch(description.epoch),
            devices: description.devices.iter().map(|device| DeviceId(device.id)).collect(),
            lock_servers: Vec::new(),
            acquisition: Default::default(),
            volumes: Vec::new(),
            settings,
            seed: braid_shell::now().clock.0,
        });
        let us = Node { array: description.array, id: NodeId::Host(generation) };
        let (addresses, followed) = watch::channel(addresses(folder)?);
        let (stop, stopped) = oneshot::channel();
        let counters = Arc::new(Counters::default());
        let (host, view) = ObservedHost::new(host, counters.clone());
        let (client, driver) = run_host(host, us, followed, counters, async {
            let _ = stopped.await;
        });
        let (losing, lost) = watch::channel(None);
        let keeper = tokio::task::spawn_local(keep(folder.clone(), generation, view.clone(), addresses, losing));
        Ok(Session {
            folder: folder.clone(),
            generation,
            client,
            view,
            stop,
            // A host stays on its thread.
            driver: tokio::task::spawn_local(driver),
            keeper,
            lost,
        })
    }

    /// The folder of its array.
    pub fn folder(&self) -> &ArrayFolder {
        &self.folder
    }

    /// As which host it speaks.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The way to ask the host.
    pub fn client(&self) -> &HostClient {
        &self.client
    }

    /// What the host has counted; as others see it in its lease, but of this moment.
    pub fn counters(&self) -> Counts {
        self.view.counters()
    }

    /// Ends when the lease is lost: the devices refuse this host from then on, or soon will.
    pub async fn lost(&self) -> Failure {
        let mut lost = self.lost.clone();
        match lost.wait_for(Option::is_some).await {
            Ok(failure) => failure.clone().expect("it was waited for"),
            Err(_) => Failure::failed("internal", "nobody looks after the host's lease any more"),
        }
    }

    /// Finishes what is under way, and gives the lease back.
    pub async fn end(self) {
        let Session { folder, generation, stop, driver, keeper, .. } = self;
        let _ = stop.send(());
        let ended = driver.await;
        keeper.abort();
        if let Ok(Err(error)) = ended {
            tracing::warn!("host {generation}: {error}");
        }
        release(&folder, generation);
    }

    /// For a host that has written nothing: gives the lease back, whatever is still unanswered.
    pub fn leave(self) {
        self.driver.abort();
        self.keeper.abort();
        release(&self.folder, self.generation);
    }
}

/// Refuses an array whose devices nobody runs, before anything waits for them. One that is just being started will do.
pub fn require_up(folder: &ArrayFolder) -> Result<(), Failure> {
    let elsewhere = folder.describe()?.devices.iter().any(|device| device.address.is_some());
    if elsewhere || folder.running()?.is_some() {
        return Ok(());
    }
    Err(Failure::not_up(folder).hint(format!("start it with `braid up --dir {}`", folder.dir().display())))
}

fn release(folder: &ArrayFolder, generation: Generation) {
    if let Err(error) = folder.release(generation) {
        tracing::warn!("host {generation}: {error}");
    }
}

/// Renews the lease, which also shows what the host has counted, and follows the devices to where they listen.
async fn keep(
    folder: ArrayFolder,
    generation: Generation,
    view: HostView,
    follow: watch::Sender<DeviceAddresses>,
    losing: watch::Sender<Option<Failure>>,
) {
    // By the clock that leases are measured with, which also counts while the machine sleeps.
    let mut renewed = Moment::now();
    let mut ticks = tokio::time::interval(HEARTBEAT);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let now = Moment::now();
        let counters = view.counters().into_map();
        let renew = move |folder: &ArrayFolder| folder.renew(generation, &now, Some(counters)).map(|()| now);
        match blocking(&folder, renew).await {
            Ok(now) => renewed = now,
            Err(error @ ControlError::LeaseLost { .. }) => {
                losing.send_replace(Some(error.into()));
                return;
            }
            Err(error) => {
                tracing::warn!("host {generation} can't renew its lease: {error}");
                if Moment::now().since(&renewed).is_none_or(|age| age > LEASE) {
                    losing.send_replace(Some(Failure::from(error).of("the host's lease could not be renewed")));
                    return;
                }
            }
        }
        match blocking(&folder, addresses).await {
            Ok(found) => {
                follow.send_if_modified(|known| {
                    let changed = *known != found;
                    *known = found;
                    changed
                });
            }
            Err(error) => tracing::warn!("can't look up where the devices are: {error}"),
        }
    }
}

/// Where each device listens, as far as is known.
fn addresses(folder: &ArrayFolder) -> Result<DeviceAddresses, ControlError> {
    let description = folder.describe()?;
    let running = folder.running()?;
    let found = description.devices.iter().filter_map(|device| {
        let id = DeviceId(device.id);
        let started = running.as_ref().and_then(|running| running.device(id)).map(|device| device.address.clone());
        Some((id, started.or_else(|| device.address.clone())?.parse().ok()?))
    });
    Ok(found.collect())
}

/// Does something with the folder where it may wait for the disk.
pub async fn blocking<T: Send + 'static>(
    folder: &ArrayFolder,
    work: impl FnOnce(&ArrayFolder) -> Result<T, ControlError> + Send + 'static,
) -> Result<T, ControlError> {
    let folder = folder.clone();
    tokio::task::spawn_blocking(move || work(&folder)).await.expect("it does not panic")
}
