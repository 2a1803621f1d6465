//! `braid lockd`, `monitord` and `mds`: the daemons that run beside the devices of an array. `braid nbd`: an additional NBD server.

use super::recording;
use crate::report;
use braid_admin::{Failure, parent_process};
use braid_base::{LockServerId, NodeId};
use braid_control::{ControlPlane, WhenUnavailable};
use braid_daemons::candidate;
use braid_daemons::front_end::{self, NbdFrontEnd};
use braid_daemons::lockd::LockDaemon;
use braid_daemons::mds::MetadataDaemon;
use braid_daemons::monitord::MonitorDaemon;
use braid_session::addressing;
use braid_shell::Address;
use braid_terminal::{Common, Signals};
use serde_json::json;
use std::process::ExitCode;
use std::time::Duration;

/// Serve locks to the hosts of an array
///
/// Volumes with ordering server-lock or callback-lock need a lock server: hosts request locks from it before they access the volume's
/// blocks. `braid up` starts it automatically, and restarts it if it dies; hosts find it by the array's folder. The file lockd0.state in
/// that folder lists the hosts that may hold locks. After a crash the lock server grants no new locks until each of these hosts has
/// reported its locks, or is fenced by the monitor.
///
/// Ends with Ctrl-C or SIGTERM. Every program that can reach the address can take locks: restrict it to trusted networks.
///
/// Example: `braid lockd --array /srv/a --listen 10.0.0.5:7100`
#[derive(clap::Args)]
pub struct LockServer {
    /// The number of the lock server; see `braid up --lock-servers`
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    id: u16,
    #[command(flatten)]
    daemon: Daemon,
}

/// Decide which devices are in the array
///
/// Every array has one monitor. Devices serve only while they have a lease from it, so that all nodes agree on which devices are up to
/// date. If the monitor is unavailable for longer than a few seconds, the devices stop serving. `braid up` starts the monitor
/// automatically, and restarts it if it dies; all nodes find it by the array's folder. Its state is the file monitor.state in that folder:
/// keep it with the array, and never restore an old copy.
///
/// Ends with Ctrl-C or SIGTERM. Every program that can reach the address can take part in the array: restrict it to trusted networks.
///
/// Example: `braid monitord --array /srv/a --listen 10.0.0.5:7200`
#[derive(clap::Args)]
pub struct Monitor {
    /// How long a device must be out before a spare fills its slot [default: 10m]
    #[arg(long, value_name = "TIME", value_parser = braid_terminal::arguments::span)]
    spare_after: Option<Duration>,
    #[command(flatten)]
    daemon: Daemon,
}

/// Serve the names, inodes and locks of a file system to the hosts of an array
///
/// `braid up` starts a metadata server for each file system, and restarts it if it dies; hosts find it by the array's folder. The metadata
/// lies in a volume of the array, so that any machine can run the metadata server. A new one takes over from the one before, which is
/// fenced; it serves when it has read its journal, and a lease has passed. A metadata server that was ended with Ctrl-C or SIGTERM leaves
/// no lease to wait for.
///
/// A file system that was created with `--servers N` has N shards. Each process serves one of them, which --shard names; the machines that
/// run them may be different ones. They find each other by the array's folder. A process takes over its own shard only: if the server of
/// another shard dies, another process has to be started for that shard, as `braid up` does.
///
/// Every program that can reach the address can use the file system: restrict it to trusted networks.
///
/// Examples: `braid mds home --array /srv/a --listen 10.0.0.5:7200`, `braid mds home --shard 1`
#[derive(clap::Args)]
pub struct MetadataServer {
    /// The name of the file system
    name: String,
    /// The number of the shard to serve, from 0 on, of a file system with several
    #[arg(long, value_name = "K")]
    shard: Option<usize>,
    #[command(flatten)]
    daemon: Daemon,
}

/// What all of them are told.
#[derive(clap::Args)]
struct Daemon {
    /// The address to listen on: HOST:PORT, with port 0 for any free port, or unix:PATH [default: a Unix socket in the array's folder]
    #[arg(long, value_name = "ADDR")]
    listen: Option<Address>,
    #[command(flatten)]
    recording: recording::Options,
    /// Die with this process, which must be the parent
    #[arg(long, hide = true)]
    child_of: Option<u32>,
}

impl Daemon {
    /// The signals that ask it to end, once it dies with its parent.
    fn begin(&self) -> Result<Signals, Failure> {
        parent_process::die_with(self.child_of)?;
        Ok(Signals::catch()?)
    }
}

/// Where a daemon listens: where it is told to, or on its socket in the array's folder.
pub fn listen_at(listen: Option<Address>, control: &ControlPlane, node: NodeId) -> Result<Address, Failure> {
    match listen {
        Some(address) => Ok(address),
        None => Ok(addressing::socket(control, node)?),
    }
}

pub async fn lockd(LockServer { id, daemon: options }: LockServer, common: &Common) -> Result<ExitCode, Failure> {
    let mut signals = options.begin()?;
    let (control, node) = (common.control(), LockServerId(id));
    let daemon = LockDaemon::open(&control, node).await?;
    let listen = listen_at(options.listen, &control, NodeId::LockServer(node))?;
    let serving = |address: &Address| {
        report::announce(common.json, &format!("lock server {id}"), address, json!({"id": id}));
    };
    daemon.serve(&listen, options.recording.request(), serving, signals.asked_to_end()).await?;
    Ok(ExitCode::SUCCESS)
}

/// Serves the array as its monitor until it is asked to end.
pub async fn monitord(Monitor { spare_after, daemon: options }: Monitor, common: &Common) -> Result<ExitCode, Failure> {
    let mut signals = options.begin()?;
    let control = common.control();
    let serving = |address: &Address| report::announce(common.json, "the monitor", address, json!({}));
    if control.cluster().is_some() {
        candidate::run(&control, spare_after, serving, signals.asked_to_end()).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let monitor = MonitorDaemon::open(&control, spare_after).await?;
    let listen = listen_at(options.listen, &control, NodeId::Monitor)?;
    monitor.serve(&listen, options.recording.request(), serving, signals.asked_to_end()).await?;
    Ok(ExitCode::SUCCESS)
}

/// Serves a shard of a file system until it is asked to end.
pub async fn mds(arguments: MetadataServer, common: &Common) -> Result<ExitCode, Failure> {
    let MetadataServer { name, shard, daemon: options } = arguments;
    let mut signals = options.begin()?;
    let control = common.control();
    let daemon = MetadataDaemon::open(&control, &name, shard).await?.recorded(options.recording.request());
    let called = daemon.called().to_string();
    let listen = listen_at(options.listen, &control, NodeId::MetadataServer(daemon.id()))?;
    let listening = |address: &Address| {
        let announced = match shard {
            None => json!({"file_system": name}),
            Some(shard) => json!({"file_system": name, "shard": shard}),
        };
        report::announce(common.json, &format!("the metadata server of {called}"), address, announced);
    };
    daemon.serve(&listen, listening, signals.asked_to_end()).await?;
    Ok(ExitCode::SUCCESS)
}

/// Serve volumes of a running array to NBD clients
///
/// The server is a host of its own: it talks to the devices directly, and any number of servers may serve the same volumes at the same
/// time. Without --volume, volumes that are created later are served as well. Ends with Ctrl-C or SIGTERM, after the requests in flight.
///
/// Examples: `braid nbd --listen 127.0.0.1:10810`, `braid nbd --volume vol0 --listen unix:/tmp/vol0.sock`
#[derive(clap::Args)]
pub struct NbdServer {
    /// Serve this volume only; may be given more than once [default: all]
    #[arg(long = "volume", value_name = "NAME")]
    volumes: Vec<String>,
    /// The address to listen on: HOST:PORT, with port 0 for any free port, or unix:PATH
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: Address,
    /// What requests do while devices are missing that they need: fail, wait, or wait for a time and then fail (60s, 5m) [default: what the
    /// volume says, which is 60s unless `braid volume set-unavailable` has changed it]
    #[arg(long, value_name = "fail|wait|TIME")]
    unavailable: Option<WhenUnavailable>,
    #[command(flatten)]
    recording: recording::Options,
    /// Die with this process, which must be the parent
    #[arg(long, hide = true, env = braid_bench::CHILD_OF)]
    child_of: Option<u32>,
}

pub async fn nbd(arguments: NbdServer, common: &Common) -> Result<ExitCode, Failure> {
    parent_process::die_with(arguments.child_of)?;
    let mut signals = Signals::catch()?;
    let control = common.control();
    let (volumes, recording) = (arguments.volumes.clone(), arguments.recording.request());
    let front = NbdFrontEnd::open(&control, &arguments.listen, volumes, arguments.unavailable, recording).await?;
    let exported = front_end::exported(&control.describe().await?, &arguments.volumes, front.address(), None);
    let volumes =
        exported.iter().map(|volume| json!({"name": volume.name, "size_bytes": volume.bytes, "nbd": volume.uri}));
    let json = json!({
        "ready": true,
        "address": front.address().to_string(),
        "generation": front.session().generation().0,
        "volumes": volumes.collect::<Vec<_>>(),
    });
    report::print(common.json, json, || {
        exported.iter().map(|volume| format!("{}\n", volume.uri)).collect::<String>() + "Stop with Ctrl-C.\n"
    });
    front.serve(signals.asked_to_end()).await?;
    Ok(ExitCode::SUCCESS)
}
