//! Recordings of daemons: what `--record` asks for, and what `braid replay` runs again. Of a process with a host, the host is recorded
//! together with the machine around it: the metadata server, or the client of a file system.

use braid_admin::failure::Failure;
use braid_base::{NodeId, VolumeId};
use braid_control_protocol::HoldingHost;
use braid_device::{Device, DeviceConfig};
use braid_files::{FileClient, FileClientConfig, Unmounted};
use braid_host::{Host, HostConfig};
use braid_locks::{LockServer, LockServerConfig};
use braid_machine::{ArrayRequest, HostOutcome, Machine, MountRequest, NoDisk};
use braid_membership::{Monitor, MonitorConfig};
use braid_metadata::{MetadataNode, MetadataServerConfig};
use braid_recording::{HeaderError, Opened, Recorder, RecordingRequest, Replayed, decode, replay, replay_adjusted};
use braid_session::{HOST_ROLE, MOUNT_ROLE};
use braid_shell::Counters;
use braid_store::Medium;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;

pub(crate) const DEVICE: &str = "device";
pub(crate) const LOCK_SERVER: &str = "lock-server";
pub(crate) const MONITOR: &str = "monitor";
pub(crate) const METADATA_SERVER: &str = "metadata-server";

/// A change of a host, or of the machine around it, in recordings of format 2.
#[derive(Deserialize)]
enum Adjustment {
    Hold(VolumeId),
    EndHold(VolumeId),
    Around(Vec<u8>),
}

/// What an adjustment is asked by now.
fn request(adjustment: &[u8]) -> Option<MountRequest> {
    Some(match decode(adjustment).ok()? {
        Adjustment::Hold(volume) => ArrayRequest::HoldVolume { volume }.into(),
        Adjustment::EndHold(volume) => ArrayRequest::DropVolume { volume }.into(),
        Adjustment::Around(bytes) => MountRequest::Server(decode(&bytes).ok()?),
    })
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
            replay_around(opened, config, None, Unmounted)
        }
        MOUNT_ROLE => {
            let (config, around) = host_config(&opened).map_err(unusable)?;
            let client: FileClientConfig = decode(&around).map_err(unusable)?;
            let client = FileClientConfig { host: config.generation, ..client };
            replay_around(opened, config, None, |host| FileClient::new(host, client))
        }
        METADATA_SERVER => {
            let (config, around) = host_config(&opened).map_err(unusable)?;
            let (volume, server): (VolumeId, MetadataServerConfig) = decode(&around).map_err(unusable)?;
            let server = MetadataServerConfig { generation: config.generation, ..server };
            let serves_as = Some(NodeId::MetadataServer(server.file_system));
            replay_around(opened, config, serves_as, |host| MetadataNode::new(host, volume, server))
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

/// Runs a host again, with a machine around it.
fn replay_around<M>(
    opened: Opened,
    config: HostConfig,
    serves_as: Option<NodeId>,
    around: impl FnOnce(HoldingHost<Host>) -> M,
) -> std::io::Result<Replayed>
where
    M: Machine<Request = MountRequest, Outcome = HostOutcome, Disk = NoDisk>,
{
    let held = config.held.clone();
    replay_adjusted(opened, around(HoldingHost::new(Host::new(config), held)), request, serves_as)
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_machine::ServerRequest;
    use braid_metadata::Protocol;

    #[test]
    fn adjustments_of_format_2_are_requests_now() {
        let (volume, protocol) = (VolumeId(7), Protocol::PresumeCommit);
        let follow = ServerRequest::Follow { evict_after: None, protocol, quiesces: true };
        let expected: [(&[u8], Option<MountRequest>); 5] = [
            (&[0, 7], Some(ArrayRequest::HoldVolume { volume }.into())),
            (&[1, 7], Some(ArrayRequest::DropVolume { volume }.into())),
            (&[2, 4, 0, 0, 1, 1], Some(MountRequest::Server(follow))),
            (&[2, 1, 1], Some(MountRequest::Server(ServerRequest::RestartEvictionTimers))),
            // The daemon has taken decisions, to log them.
            (&[2, 1, 2], None),
        ];
        expected.into_iter().for_each(|(bytes, asked)| assert_eq!(request(bytes), asked));
    }
}
