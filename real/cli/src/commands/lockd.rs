//! `braid lockd`: the daemon of one lock server.

use crate::report;
use braid_admin::{Failure, parent_process};
use braid_base::{LockServerId, NodeId};
use braid_daemons::lockd::LockDaemon;
use braid_shell::Address;
use braid_terminal::{Common, Signals};
use serde_json::json;
use std::process::ExitCode;

/// Serve locks to the hosts of an array
///
/// Volumes with ordering server-lock or callback-lock need a lock server: hosts request locks from it before they access the volume's
/// blocks. `braid up` starts it automatically, and restarts it if it dies; hosts find it by the array's folder. The file lockd0.state in
/// that folder lists the hosts that may hold locks. After a crash the lock server grants no new locks until each of these hosts has
/// reported its locks, or is fenced by the monitor.
///
/// Ends with Ctrl-C or SIGTERM. Every program that can reach the address can take locks: restrict it to trusted networks.
///
/// Example: `braid lockd --array /srv/a --listen 10.0.0.5:7100`
#[derive(clap::Args)]
pub struct Arguments {
    /// The number of the lock server; see `braid up --lock-servers`
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    id: u16,
    /// The address to listen on: HOST:PORT, with port 0 for any free port, or unix:PATH [default: a Unix socket in the array's folder]
    #[arg(long, value_name = "ADDR")]
    listen: Option<Address>,
    #[command(flatten)]
    recording: super::recording::Options,
    /// Die with this process, which must be the parent
    #[arg(long, hide = true)]
    child_of: Option<u32>,
}

/// Serves until it is asked to end.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    parent_process::die_with(arguments.child_of)?;
    let mut signals = Signals::catch()?;
    let (control, id) = (common.control(), LockServerId(arguments.id));
    let daemon = LockDaemon::open(&control, id).await?;
    let listen = super::listen_at(arguments.listen, control.local(), NodeId::LockServer(id))?;
    let serving = |address: &Address| {
        let id = arguments.id;
        report::announce(common.json, &format!("lock server {id}"), address, json!({"id": id}));
    };
    daemon.serve(&listen, true, arguments.recording.request(), serving, signals.asked_to_end()).await?;
    Ok(ExitCode::SUCCESS)
}
