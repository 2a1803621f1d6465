//! The names of files in the array's folder.

use braid_base::LockServerId;
use std::path::{Path, PathBuf};

pub(crate) const DESCRIPTION: &str = "array.json";
/// In the folder of a machine, if the array is on several.
pub const CLUSTER: &str = "cluster.json";
pub(crate) const GENERATIONS: &str = "generations";
pub(crate) const LOCK: &str = "lock";
pub(crate) const SUPERVISION: &str = "up.lock";
pub(crate) const RUN: &str = "run.json";
pub(crate) const RESERVE: &str = "reserve";
pub(crate) const ROLES: &str = "roles.json";
pub(crate) const MONITOR: &str = "monitor.json";
pub(crate) const MONITOR_STATE: &str = "monitor.state";
pub(crate) const EVENTS: &str = "events.jsonl";
pub(crate) const EVENTS_BEFORE: &str = "events.1.jsonl";
pub const SOCKETS: &str = "run";
pub(crate) const HOSTS: &str = "hosts";
pub(crate) const SCRUBS: &str = "scrubs";
pub(crate) const LOGS: &str = "logs";
/// Files of the folder, but for those of lock servers, of events and of devices.
pub(crate) const FOLDER_FILES: [&str; 10] =
    [DESCRIPTION, CLUSTER, GENERATIONS, LOCK, SUPERVISION, RUN, RESERVE, ROLES, MONITOR, MONITOR_STATE];

/// The folder of the array, if any, in which a file lies: of several, the innermost.
pub fn folder_around(file: &Path) -> Option<&Path> {
    let is_of_array = |folder: &&Path| [DESCRIPTION, MONITOR_STATE].iter().any(|name| folder.join(name).exists());
    file.ancestors().skip(1).find(is_of_array)
}

/// The file, relative to the array's folder, that holds a lock server's durable state.
pub fn lock_server_file(server: LockServerId) -> PathBuf {
    format!("lockd{}.state", server.0).into()
}
