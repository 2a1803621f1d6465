//! What all servers of an array have in common: a file that no other process has open, a place to listen at, others whose
//! addresses they follow, and an end when they can't go on.

use braid_admin::device_file::{open_failure, open_once_free};
use braid_admin::failure::Failure;
use braid_base::NodeId;
use braid_control::ArrayFolder;
use braid_session::{HEARTBEAT, addresses, blocking, tell};
use braid_shell::{Address, Addresses, Disk, DiskOptions, Listener};
use std::io;
use std::path::Path;
use std::pin::pin;
use tokio::sync::watch;

/// Opens and locks the small disk of a server that is not a device: a file in the array's folder, which is made if there is
/// none yet. If another process has it, that is the failure `in_use`.
pub fn open_state(folder: &ArrayFolder, file: &Path, bytes: u64, in_use: Failure) -> Result<Disk, Failure> {
    let path = folder.dir().join(file);
    if !path.exists() {
        let create = DiskOptions { create: Some(bytes), ..DiskOptions::default() };
        Disk::open(&path, &create).map_err(open_failure)?;
    }
    open_once_free(&path).map_err(|failure| if failure.code == "device-in-use" { in_use } else { failure })
}

/// Listens. If this process is not the server's own, others in it need no network to get here.
pub async fn bind(listen: &Address, own_process: bool) -> Result<Listener, Failure> {
    let bound = Listener::bind(listen).await;
    let mut listener = bound.map_err(|error| Failure::from(error).of(format!("can't listen on {listen}")))?;
    if !own_process {
        listener.open_to_this_process();
    }
    Ok(listener)
}

/// How far a server has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It will serve.
    Starting,
    /// It serves.
    Serving,
    /// It can't.
    Unusable(Failure),
}

/// Runs a server to its end: `running` is the machine, `keeping` what goes on beside it and ends only when the server must end,
/// too. Calls `serving` once the service that `seen` shows is one that `stage` takes for serving.
pub async fn run<S>(
    running: impl Future<Output = io::Result<()>>,
    keeping: impl Future<Output = Failure>,
    mut seen: watch::Receiver<S>,
    stage: impl Fn(&S) -> Stage,
    serving: impl FnOnce(),
) -> Result<(), Failure> {
    let (mut running, mut keeping) = (pin!(running), pin!(keeping));
    let mut serving = Some(serving);
    loop {
        tokio::select! {
            ended = &mut running => return ended.map_err(Failure::from),
            failure = &mut keeping => return Err(failure),
            Ok(()) = seen.changed() => match stage(&seen.borrow_and_update()) {
                Stage::Starting => {}
                Stage::Serving => if let Some(serving) = serving.take() { serving() },
                Stage::Unusable(failure) => return Err(failure),
            },
        }
    }
}

/// Where a device or lock server finds the array's monitor.
#[derive(Clone, Debug)]
pub enum MonitorAt {
    /// Where the array's folder says, from moment to moment.
    Folder(ArrayFolder),
    /// There, always.
    Address(Address),
}

impl MonitorAt {
    /// Where it is now, as far as is known.
    pub fn known(&self) -> Addresses {
        match self {
            MonitorAt::Address(address) => [(NodeId::Monitor, address.clone())].into(),
            MonitorAt::Folder(folder) => look_up(folder).unwrap_or_default(),
        }
    }

    /// Keeps `follow` up to date. Never ends.
    pub async fn follow(self, follow: watch::Sender<Addresses>) -> Failure {
        let MonitorAt::Folder(folder) = self else { return std::future::pending().await };
        loop {
            match blocking(&folder, look_up).await {
                Ok(found) => tell(&follow, found),
                Err(error) => tracing::warn!("can't look up where the monitor is: {error}"),
            }
            tokio::time::sleep(HEARTBEAT).await;
        }
    }
}

fn look_up(folder: &ArrayFolder) -> Result<Addresses, braid_control::ControlError> {
    let mut found = addresses(folder)?;
    found.retain(|node, _| *node == NodeId::Monitor);
    Ok(found)
}
