//! Recordings of daemons: what `--record` asks for, and what `braid replay` runs again. Of a process with a host, the host is recorded
//! together with the machine around it: the metadata server, or the client of a file system.

use braid_admin::failure::Failure;
use braid_base::VolumeId;
use braid_control_protocol::HoldingHost;
use braid_device::{Device, DeviceConfig};
use braid_files::{FileClient, FileClientConfig, Unmounted};
use braid_host::{Host, HostConfig};
use braid_locks::{LeasedLockServer, LockServerConfig};
use braid_membership::{Monitor, MonitorConfig};
use braid_metadata::{MetadataNode, MetadataServerConfig};
use braid_recording::{HeaderError, Opened, Recorder, RecordingRequest, Replayed, decode, replay};
use braid_session::{HOST_ROLE, MOUNT_ROLE};
use braid_shell::Counters;
use braid_store::Medium;
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;

pub(crate) const DEVICE: &str = "device";
pub(crate) const LOCK_SERVER: &str = "lock-server";
pub(crate) const LEASED_LOCK_SERVER: &str = "leased-lock-server";
pub(crate) const MONITOR: &str = "monitor";
pub(crate) const METADATA_SERVER: &str = "metadata-server";

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
            replay(opened, LeasedLockServer::endless(config))
        }
        LEASED_LOCK_SERVER => {
            let config: LockServerConfig = opened.header.config().map_err(unusable)?;
            replay(opened, LeasedLockServer::new(config))
        }
        MONITOR => {
            let config: MonitorConfig = opened.header.config().map_err(unusable)?;
            replay(opened, Monitor::new(config))
        }
        HOST_ROLE => {
            let (config, _) = host_config(&opened).map_err(unusable)?;
            replay(opened, Unmounted(host(config)))
        }
        MOUNT_ROLE => {
            let (config, around) = host_config(&opened).map_err(unusable)?;
            let client: FileClientConfig = decode(&around).map_err(unusable)?;
            let client = FileClientConfig { host: config.generation, ..client };
            replay(opened, FileClient::new(host(config), client))
        }
        METADATA_SERVER => {
            let (config, around) = host_config(&opened).map_err(unusable)?;
            let (volume, server): (VolumeId, MetadataServerConfig) = decode(&around).map_err(unusable)?;
            let server = MetadataServerConfig { generation: config.generation, ..server };
            replay(opened, MetadataNode::new(host(config), volume, server))
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

/// A host that is run again, inside the machine around it.
fn host(config: HostConfig) -> HoldingHost<Host> {
    let held = config.held.clone();
    HoldingHost::new(Host::new(config), held)
}
