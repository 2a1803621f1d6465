//! What keepers are told and report: the parameters of daemons, and what became of each.

use braid_admin::failure::Failure;
use braid_base::NodeId;
use braid_control::event_texts::Crash;
use braid_control::{ControlPlane, RunningDaemon};
use braid_session::addressing;
use braid_shell::Address;
use std::fmt;
use std::time::Duration;

/// How long a daemon may take to end.
pub(super) const STOP_WAIT: Duration = Duration::from_secs(10);

/// Non-default parameters of daemons.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tuning {
    /// How long a device must be out before a spare fills its slot.
    pub spare_after: Option<Duration>,
    /// Bytes of memory in which each device caches objects' content.
    pub object_memory: Option<u64>,
    /// Daemons listen on loopback TCP ports, and not on sockets in the array's folder.
    pub tcp: bool,
}

/// What a keeper keeps running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    Daemon(NodeId),
    /// A process with some of the devices, a host and an NBD server, by its number on this machine.
    Node(u16),
}

/// A report of a keeper on what it keeps running.
#[derive(Clone, Debug)]
pub struct Report {
    pub of: Kept,
    /// Where it runs, or why it does not run.
    pub state: Result<Running, Failure>,
    /// How it crashed, if it did.
    pub crash: Option<Box<Crash>>,
    /// The process that runs although it does not serve: a node whose port is taken.
    pub runs: Option<u32>,
}

/// A daemon that serves.
#[derive(Clone, Debug)]
pub struct Running {
    pub address: Address,
    pub pid: u32,
}

impl Kept {
    /// Its number among those of its kind.
    pub fn number(self) -> u16 {
        match self {
            Kept::Node(number) => number,
            Kept::Daemon(NodeId::Monitor) => 0,
            Kept::Daemon(NodeId::Device(id)) => id.0,
            Kept::Daemon(NodeId::LockServer(id)) => id.0,
            Kept::Daemon(NodeId::MetadataServer(id)) => id.0,
            Kept::Daemon(NodeId::Host(_)) => unreachable!("hosts are not supervised"),
        }
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kept::Node(number) => write!(f, "node {number}"),
            Kept::Daemon(NodeId::Monitor) => f.write_str("the monitor"),
            Kept::Daemon(NodeId::Device(id)) => write!(f, "device {id}"),
            Kept::Daemon(NodeId::LockServer(id)) => write!(f, "lock server {id}"),
            Kept::Daemon(NodeId::MetadataServer(id)) => write!(f, "metadata server {id}"),
            Kept::Daemon(NodeId::Host(generation)) => write!(f, "host {generation}"),
        }
    }
}

impl Report {
    /// The entry that is published for this daemon.
    pub fn entry(&self, control: &ControlPlane, before: Option<&RunningDaemon>) -> RunningDaemon {
        let restarts = before.map_or(0, |before| before.restarts);
        match &self.state {
            Ok(running) => RunningDaemon {
                id: self.of.number(),
                address: addressing::published(control, &running.address),
                pid: Some(running.pid),
                restarts,
                down: None,
            },
            Err(failure) => RunningDaemon {
                id: self.of.number(),
                address: before.map(|before| before.address.clone()).unwrap_or_default(),
                pid: self.runs,
                restarts: restarts + u64::from(self.runs.is_none()),
                down: Some(failure.message.clone()),
            },
        }
    }
}
