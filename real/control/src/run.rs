//! What one run of `braid up` has started, for `status`, `down`, and for hosts that look for devices whose addresses
//! change from start to start. Lock servers are found by their leases.

use braid_base::{DeviceId, LockServerId};
use serde::{Deserialize, Serialize};

/// The processes and addresses of one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunningSet {
    schema: u64,
    /// The process that keeps the others running.
    pub supervisor: u32,
    /// True once everything was started and served.
    pub ready: bool,
    /// The monitor that runs.
    #[serde(default)]
    pub monitor: Option<RunningDaemon>,
    /// The devices that run.
    pub devices: Vec<RunningDaemon>,
    /// The lock servers that run.
    pub lock_servers: Vec<RunningDaemon>,
    /// Where the supervisor's own NBD server listens.
    pub nbd: Option<Endpoint>,
}

/// The monitor, a device or a lock server of this run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunningDaemon {
    /// Its number among its kind.
    pub id: u16,
    /// `HOST:PORT` or `unix:PATH`.
    pub address: String,
    /// Its process; the supervisor's own if it runs inside it. None while it is down.
    pub pid: Option<u32>,
    /// How often it had to be started again.
    pub restarts: u64,
    /// Why it is down, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down: Option<String>,
}

/// Where something listens: `HOST:PORT` or `unix:PATH`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint(pub String);

impl RunningSet {
    /// A run that has begun and started nothing yet.
    pub fn begun(supervisor: u32) -> RunningSet {
        RunningSet {
            schema: crate::file::SCHEMA,
            supervisor,
            ready: false,
            monitor: None,
            devices: Vec::new(),
            lock_servers: Vec::new(),
            nbd: None,
        }
    }

    /// A device of this run.
    pub fn device(&self, id: DeviceId) -> Option<&RunningDaemon> {
        self.devices.iter().find(|device| device.id == id.0)
    }

    /// A lock server of this run.
    pub fn lock_server(&self, id: LockServerId) -> Option<&RunningDaemon> {
        self.lock_servers.iter().find(|server| server.id == id.0)
    }
}
