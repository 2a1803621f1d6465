//! The common parts of an array's daemons: the locked state file, the disk and the listener, the present addresses of other nodes, and the
//! end of a daemon that can't continue.

use crate::published_metrics::{Server, ServerView};
use braid_admin::device_file::{open_disk, open_once_free};
use braid_admin::failure::Failure;
use braid_base::NodeId;
use braid_control::{ControlPlane, LocalFolder};
use braid_machine::{Abandon, Machine, OneDisk};
use braid_recording::Recorder;
use braid_session::{HEARTBEAT, addresses, tell};
use braid_shell::{
    Address, Addresses, ClientOf, Counters, Disk, DiskOptions, EngineChoice, Listener, Node, run_server,
};
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::io;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How long the address of a task that has ended may be in use, and how often that is looked at.
const CLOSE_WAIT: Duration = Duration::from_secs(1);
const CLOSE_PAUSE: Duration = Duration::from_millis(1);

fn is_in_use(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrInUse
}

/// Opens and locks the state file of a lock server or monitor: a file in the array's folder, which is created if it is missing. If another
/// process has locked it, the failure `in_use` is returned.
pub fn open_state(folder: &LocalFolder, file: &Path, bytes: u64, in_use: Failure) -> Result<Disk, Failure> {
    let path = folder.dir().join(file);
    if !path.exists() {
        open_disk(&path, DiskOptions { create: Some(bytes), ..DiskOptions::default() })?;
    }
    open_once_free(&path).map_err(|failure| if failure.code == "device-in-use" { in_use } else { failure })
}

/// The failure to listen there.
pub fn cannot_listen(address: &Address) -> impl FnOnce(io::Error) -> Failure {
    move |error| Failure::from(error).of(format!("can't listen on {address}"))
}

/// What a daemon runs its machine on: a disk, and a listener for other nodes.
pub struct Platform {
    disk: Disk,
    listener: Listener,
}

impl Platform {
    /// Binds the listener. If the host of a node shares this process (`own_process` is false), its connections bypass the network.
    pub async fn bind(disk: Disk, listen: &Address, own_process: bool) -> Result<Platform, Failure> {
        let begun = Instant::now();
        let bound = loop {
            match Listener::bind(listen).await {
                // The listener of the task before is closed by the runtime, soon after that task has ended.
                Err(error) if !own_process && is_in_use(&error) && begun.elapsed() < CLOSE_WAIT => {
                    tokio::time::sleep(CLOSE_PAUSE).await;
                }
                bound => break bound,
            }
        };
        let mut listener = bound.map_err(cannot_listen(listen))?;
        if !own_process {
            listener.open_to_this_process();
        }
        Ok(Platform { disk, listener })
    }

    pub fn address(&self) -> Address {
        self.listener.address().clone()
    }

    pub fn disk_path(&self) -> String {
        self.disk.path().display().to_string()
    }

    /// Runs a machine as the node `us` until `stop` completes. It connects to `nodes`.
    pub fn run<M: Machine<Request: Abandon, Disk = OneDisk>>(
        self,
        machine: M,
        us: Node,
        nodes: watch::Receiver<Addresses>,
        counters: Arc<Counters>,
        stop: impl Future<Output = ()>,
    ) -> (ClientOf<M>, impl Future<Output = io::Result<()>>) {
        run_server(machine, us, (self.disk, EngineChoice::Automatic), self.listener, nodes, counters, stop)
    }

    /// Runs a server whose state and metrics are published.
    pub fn serve<S: Server>(
        self,
        server: S,
        (recorder, counters): (Option<Recorder>, Arc<Counters>),
        us: Node,
        nodes: watch::Receiver<Addresses>,
        stop: impl Future<Output = ()>,
    ) -> (ServerView<S>, watch::Receiver<S::Service>, ClientOf<S>, impl Future<Output = io::Result<()>>) {
        let (machine, view, seen) = ServerView::new(server, recorder, counters.clone());
        let (client, running) = self.run(machine, us, nodes, counters, stop);
        (view, seen, client, running)
    }
}

/// How far a daemon has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    Starting,
    Serving,
    /// It can't serve.
    Unusable(Failure),
}

/// Runs a daemon until it ends: `running` is the machine, and `keeping` a task beside it that returns only if the daemon must end. Calls
/// `serving` once `stage` says that the service observed through `seen` is serving.
pub async fn run<S>(
    running: impl Future<Output = io::Result<()>>,
    keeping: impl Future<Output = Failure>,
    mut seen: watch::Receiver<S>,
    stage: impl Fn(&S) -> Stage,
    serving: impl FnOnce(),
) -> Result<(), Failure> {
    let mut serving = Some(serving);
    let watching = async {
        loop {
            if seen.changed().await.is_err() {
                return std::future::pending().await;
            }
            match stage(&seen.borrow_and_update()) {
                Stage::Starting => {}
                Stage::Serving => serving.take().into_iter().for_each(|serving| serving()),
                Stage::Unusable(failure) => return failure,
            }
        }
    };
    // The machine is woken for every message; these are polled only when they were woken themselves.
    let beside: [Pin<&mut dyn Future<Output = Failure>>; 2] = [pin!(keeping), pin!(watching)];
    let mut beside = FuturesUnordered::from_iter(beside);
    tokio::select! {
        biased;
        ended = running => ended.map_err(Failure::from),
        Some(failure) = beside.next() => Err(failure),
    }
}

/// How a device or lock server finds the array's monitor, and a device other devices.
#[derive(Clone, Debug)]
pub enum MonitorAt {
    /// By the addresses in the control plane, which may change.
    Control(ControlPlane),
    Addresses(Addresses),
}

impl MonitorAt {
    /// The addresses that the node `us` needs, as far as known: that of the monitor, and for a device those of the other devices.
    pub async fn known(&self, us: NodeId) -> Addresses {
        match self {
            MonitorAt::Addresses(addresses) => addresses.clone(),
            MonitorAt::Control(control) => look_up(control, us).await.unwrap_or_default(),
        }
    }

    /// Keeps `follow` up to date. Never returns.
    pub async fn follow(self, us: NodeId, follow: watch::Sender<Addresses>) -> Failure {
        let MonitorAt::Control(control) = self else { return std::future::pending().await };
        loop {
            match look_up(&control, us).await {
                Ok(found) => tell(&follow, found),
                Err(error) => tracing::warn!("can't look up the monitor's address: {error}"),
            }
            control.replaced(HEARTBEAT).await;
        }
    }
}

async fn look_up(control: &ControlPlane, us: NodeId) -> Result<Addresses, braid_control::ControlError> {
    let mut found = addresses(control).await?;
    let is_device = |node| matches!(node, NodeId::Device(_));
    found.retain(|node, _| *node == NodeId::Monitor || (is_device(us) && is_device(*node) && *node != us));
    Ok(found)
}
