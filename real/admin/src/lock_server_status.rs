//! The status of lock servers.

use crate::operation_driver;
use crate::snapshot::ArraySnapshot;
use braid_base::LockServerId;
use braid_control::HostEntry;
use braid_session::addressing;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LockServerStatus {
    pub id: u16,
    pub address: Option<String>,
    pub pid: Option<u32>,
    /// Its state as text; `serving` if it serves.
    pub state: String,
    pub restarts: Option<u64>,
    pub counters: Option<BTreeMap<String, u64>>,
}

/// The state of a lock server that serves.
pub(crate) const SERVING: &str = "serving";

/// The lock servers that are needed or running, with the lease of the latest start of each.
pub(crate) fn lock_servers(look: &ArraySnapshot) -> Vec<LockServerStatus> {
    let needed = look.description.volumes.iter().any(operation_driver::needs_lock_server);
    let status = |id: LockServerId| {
        let serves = |host: &&HostEntry| host.report.lock_server.as_ref().is_some_and(|service| service.id == id.0);
        let lease = look.hosts.iter().rev().find(serves);
        let running = look.running.as_ref().and_then(|running| running.lock_server(id));
        let state = match (lease, running) {
            // It runs, under this supervisor or elsewhere. A killed one may still have a lease, so the process is checked.
            (Some(lease), _) if lease.is_alive() => SERVING.to_string(),
            (_, Some(running)) if running.pid.is_none() => {
                format!("down: {}", running.down.as_deref().unwrap_or("being restarted"))
            }
            (Some(_), _) | (None, Some(_)) => "silent: its lease has expired".to_string(),
            (None, None) => "not running".to_string(),
        };
        let address = lease.and_then(|lease| Some(lease.report.lock_server.as_ref()?.address.clone()));
        let status = LockServerStatus {
            id: id.0,
            address: address
                .or_else(|| running.map(|running| running.address.clone()))
                .map(|address| addressing::absolute(look.control.local(), &address)),
            pid: lease.map(|lease| lease.process.pid),
            state,
            restarts: running.map(|running| running.restarts),
            counters: lease.map(|lease| lease.report.counters.clone()),
        };
        (needed || lease.is_some() || running.is_some()).then_some(status)
    };
    look.description.lock_servers().filter_map(status).collect()
}
