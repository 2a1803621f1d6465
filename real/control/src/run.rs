//! The processes and addresses of one run of `braid up`. Used by `status`, by `down`, and by hosts to find devices, whose addresses
//! change from run to run. Lock servers and metadata servers are found by their leases.

use crate::file;
use crate::{Origin, Process};
use braid_base::{DeviceId, FileSystemId, LockServerId};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The processes and addresses of one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunningSet {
    schema: u64,
    /// The process that supervises the others.
    pub supervisor: u32,
    /// Which process that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) origin: Option<Origin>,
    /// True once all daemons have been started and serve.
    pub ready: bool,
    #[serde(default)]
    pub monitor: Option<RunningDaemon>,
    pub devices: Vec<RunningDaemon>,
    pub lock_servers: Vec<RunningDaemon>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metadata_servers: Vec<RunningDaemon>,
    /// The nodes: processes with some of the devices, a host and an NBD server, whose address is the node's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<RunningDaemon>,
    /// The address of the NBD server of the supervisor, or of the first node.
    pub nbd: Option<Endpoint>,
}

/// A monitor, device, lock server or metadata server of this run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunningDaemon {
    /// Its number among daemons of its kind.
    pub id: u16,
    /// Its address: `HOST:PORT` or `unix:PATH`.
    pub address: String,
    /// Its process; none while it is down.
    pub pid: Option<u32>,
    pub restarts: u64,
    /// Why it is down; none while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down: Option<String>,
}

/// An address: `HOST:PORT` or `unix:PATH`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint(pub String);

impl RunningSet {
    /// A run that has begun but started nothing.
    pub fn begun(supervisor: u32) -> RunningSet {
        RunningSet {
            schema: crate::file::SCHEMA,
            supervisor,
            origin: Origin::own().filter(|_| supervisor == std::process::id()),
            ready: false,
            monitor: None,
            devices: Vec::new(),
            lock_servers: Vec::new(),
            metadata_servers: Vec::new(),
            nodes: Vec::new(),
            nbd: None,
        }
    }

    /// With the origin of the supervisor, recorded in this folder.
    pub(crate) fn recorded_in(&self, folder: &Path) -> RunningSet {
        RunningSet { origin: self.origin.clone().map(|origin| origin.recorded_in(folder)), ..self.clone() }
    }

    /// As it was found in this folder; none if it was copied with the folder, and is about another array.
    pub(crate) fn found_in(self, folder: &Path) -> Option<RunningSet> {
        let process = Process::found_in(folder, self.supervisor, self.origin.clone());
        (!process.is_of_original()).then(|| RunningSet { origin: process.origin().cloned(), ..self })
    }

    /// With the origin of the supervisor. An earlier release recorded none: then it is the process of that number here if that has the
    /// file of the supervision lock open.
    pub(crate) fn identified(mut self, supervision: &Path) -> RunningSet {
        if self.origin.is_none() {
            let holds = |process: &Process| file::has_open(process, supervision) == Some(true);
            self.origin = Process::here(self.supervisor).filter(holds).and_then(|process| process.origin().cloned());
        }
        self
    }

    pub fn supervisor(&self) -> Process {
        Process::new(self.supervisor, self.origin.clone())
    }

    pub fn process(&self, pid: u32) -> Process {
        self.supervisor().sibling(pid)
    }

    pub fn device(&self, id: DeviceId) -> Option<&RunningDaemon> {
        self.devices.iter().find(|device| device.id == id.0)
    }

    pub fn metadata_server(&self, id: FileSystemId) -> Option<&RunningDaemon> {
        self.metadata_servers.iter().find(|server| server.id == id.0)
    }

    pub fn lock_server(&self, id: LockServerId) -> Option<&RunningDaemon> {
        self.lock_servers.iter().find(|server| server.id == id.0)
    }
}
