//! What is recorded of a session: its host, with the machine around it. A replay constructs both again.

use crate::error::SessionError;
use braid_host::HostConfig;
use braid_recording::{Recorder, RecordingRequest, encode};
use braid_shell::Counters;
use serde::Serialize;
use std::sync::Arc;

/// The role of a host alone, in the header of its recording.
pub const HOST_ROLE: &str = "host";
/// The role of a host with a file system mounted.
pub const MOUNT_ROLE: &str = "mount";

/// A recording that is to begin with a session. Its header has the configuration of the host, and that of the machine around it.
#[derive(Clone, Debug)]
pub struct SessionRecording {
    request: RecordingRequest,
    role: &'static str,
    around: Vec<u8>,
}

impl SessionRecording {
    /// A host alone.
    pub fn of_host(request: RecordingRequest) -> SessionRecording {
        SessionRecording { request, role: HOST_ROLE, around: Vec::new() }
    }

    /// A host, and a machine of this role and configuration around it.
    pub fn around(request: RecordingRequest, role: &'static str, config: &impl Serialize) -> SessionRecording {
        SessionRecording { request, role, around: encode(config) }
    }

    /// Begins it, before the machine starts.
    pub(crate) fn begin(self, config: &HostConfig, counters: &Arc<Counters>) -> Result<Recorder, SessionError> {
        let SessionRecording { request, role, around } = self;
        let build = env!("CARGO_PKG_VERSION");
        Recorder::create(&request, build, role, &(config, around), counters.clone())
            .map_err(|error| SessionError::Recording { file: request.file, error: error.to_string() })
    }
}
