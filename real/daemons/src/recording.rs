//! Recordings of daemons: what `--record` asks for, and what `braid replay` runs again.

use braid_admin::failure::Failure;
use braid_device::{Device, DeviceConfig};
use braid_host::{Host, HostConfig};
use braid_locks::{LockServer, LockServerConfig};
use braid_membership::{Monitor, MonitorConfig};
use braid_recording::{HeaderError, Opened, Recorder, RecordingRequest, Replayed, replay};
use braid_session::HOST_ROLE;
use braid_shell::Counters;
use braid_store::Medium;
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;

pub(crate) const DEVICE: &str = "device";
pub(crate) const LOCK_SERVER: &str = "lock-server";
pub(crate) const MONITOR: &str = "monitor";

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
            let config: HostConfig = opened.header.config().map_err(unusable)?;
            replay(opened, Host::new(config))
        }
        other => {
            let message = format!("this build knows no machine '{other}'");
            return Err(Failure::usage("no-recording", message).of(path.display()));
        }
    };
    Ok(ReplayedFile { role, build, replayed: replayed.map_err(failed)? })
}
