//! Recordings of daemons: what `--record` asks for, and what `braid replay` runs again. Of a process with a host, the host is recorded
//! together with the machine around it: the metadata server, or the client of a file system.

use braid_admin::failure::Failure;
use braid_base::VolumeId;
use braid_device::{Device, DeviceConfig};
use braid_files::{FileClient, FileClientConfig, Unmounted};
use braid_host::{Host, HostConfig};
use braid_locks::{LockServer, LockServerConfig};
use braid_machine::{HostOutcome, Machine, MountRequest, NoDisk};
use braid_membership::{Monitor, MonitorConfig};
use braid_metadata::{MetadataNode, MetadataServer, MetadataServerConfig, Protocol};
use braid_recording::{HeaderError, Opened, Recorder, RecordingRequest, Replayed, decode, replay, replay_adjusted};
use braid_session::{Adjustment, HOST_ROLE, MOUNT_ROLE, ObservedHost};
use braid_shell::Counters;
use braid_store::Medium;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const DEVICE: &str = "device";
pub(crate) const LOCK_SERVER: &str = "lock-server";
pub(crate) const MONITOR: &str = "monitor";
pub(crate) const METADATA_SERVER: &str = "metadata-server";

/// A change of a metadata server that is not an input of its machine: its daemon follows settings, and looks at other parts of the array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ServerAdjustment {
    Settings {
        evict_after: Option<Duration>,
        protocol: Protocol,
        settles: bool,
    },
    /// Devices are unavailable, so hosts have more time to give back locks.
    Pardon,
    /// The daemon has taken the decisions to fence hosts, to log them.
    TakeFenceDecisions,
}

impl ServerAdjustment {
    pub fn apply(&self, server: &mut MetadataServer) {
        match *self {
            ServerAdjustment::Settings { evict_after, protocol, settles } => {
                server.set_lock_eviction(evict_after);
                server.follow_shard_settings(protocol, settles);
            }
            ServerAdjustment::Pardon => server.pardon(),
            ServerAdjustment::TakeFenceDecisions => drop(server.take_fence_decisions()),
        }
    }
}

/// Begins the recording of a machine of this role, if one is asked for.
pub(crate) fn begin(
    request: Option<&RecordingRequest>,
    role: &str,
    config: &impl Serialize,
    counters: &Arc<Counters>,
) -> Result<Option<Recorder>, Failure> {
    let Some(request) = request else { return Ok(None) };
    let recorder = Recorder::create(request, env!("CARGO_PKG_VERSION"), role, config, counters.clone());
    recorder.map(Some).map_err(|error| Failure::from(error).of(request.file.display()))
}

/// A recording, run again.
pub struct ReplayedFile {
    /// The kind of machine.
    pub role: String,
    /// The build that recorded.
    pub build: String,
    pub replayed: Replayed,
}

/// Runs the machine of a recording again.
pub fn replay_file(path: &Path) -> Result<ReplayedFile, Failure> {
    let failed = |error: std::io::Error| Failure::from(error).of(path.display());
    let unusable = |error: HeaderError| Failure::usage("no-recording", error.to_string()).of(path.display());
    let opened = Opened::open(path).map_err(failed)?.map_err(unusable)?;
    let (role, build) = (opened.header.role.clone(), opened.header.build.clone());
    let replayed = match role.as_str() {
        DEVICE => {
            let (medium, config): (Medium, DeviceConfig) = opened.header.config().map_err(unusable)?;
            replay(opened, Device::on(medium, config))
        }
        LOCK_SERVER => {
            let config: LockServerConfig = opened.header.config().map_err(unusable)?;
            replay(opened, LockServer::new(config))
        }
        MONITOR => {
            let config: MonitorConfig = opened.header.config().map_err(unusable)?;
            replay(opened, Monitor::new(config))
        }
        HOST_ROLE => {
            let (config, _) = host_config(&opened).map_err(unusable)?;
            replay_around(opened, config, Unmounted, |_, _| {})
        }
        MOUNT_ROLE => {
            let (config, around) = host_config(&opened).map_err(unusable)?;
            let client: FileClientConfig = decode(&around).map_err(unusable)?;
            let client = FileClientConfig { host: config.generation, ..client };
            replay_around(opened, config, |host| FileClient::new(host, client), |_, _| {})
        }
        METADATA_SERVER => {
            let (config, around) = host_config(&opened).map_err(unusable)?;
            let (volume, server): (VolumeId, MetadataServerConfig) = decode(&around).map_err(unusable)?;
            let server = MetadataServerConfig { generation: config.generation, ..server };
            let around = |host| Unmounted(MetadataNode::new(host, volume, server));
            replay_around(opened, config, around, |Unmounted(node), adjustment| {
                let adjustment: Result<ServerAdjustment, HeaderError> = decode(adjustment);
                if let (Ok(adjustment), Some(server)) = (adjustment, node.server_mut()) {
                    adjustment.apply(server);
                }
            })
        }
        other => {
            let message = format!("this build knows no machine '{other}'");
            return Err(Failure::usage("no-recording", message).of(path.display()));
        }
    };
    Ok(ReplayedFile { role, build, replayed: replayed.map_err(failed)? })
}

/// The configurations of a host, and of the machine around it.
fn host_config(opened: &Opened) -> Result<(HostConfig, Vec<u8>), HeaderError> {
    opened.header.config()
}

/// Runs a host again, with a machine around it that `adjust` changes.
fn replay_around<M>(
    opened: Opened,
    config: HostConfig,
    around: impl FnOnce(ObservedHost) -> M,
    adjust: impl Fn(&mut M, &[u8]),
) -> std::io::Result<Replayed>
where
    M: Machine<Request = MountRequest, Outcome = HostOutcome, Disk = NoDisk>,
{
    let (host, view) = ObservedHost::new(Host::new(config), None, Arc::default());
    replay_adjusted(opened, around(host), |machine, adjustment| match &adjustment {
        Adjustment::Around(bytes) => adjust(machine, bytes),
        Adjustment::Hold(_) | Adjustment::EndHold(_) => view.holds().adjust(&adjustment),
    })
}
