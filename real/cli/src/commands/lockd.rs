//! `braid lockd`: the daemon of one lock server.

use crate::report;
use braid_admin::failure::Failure;
use braid_base::LockServerId;
use braid_daemons::lockd::LockDaemon;
use braid_shell::Address;
use braid_terminal::Common;
use braid_terminal::Signals;
use serde_json::json;
use std::process::ExitCode;

/// Serve locks to the hosts of an array
///
/// Volumes with the ordering server-lock or callback-lock need it: hosts ask it before they use a volume's blocks. `braid up` starts
/// it by itself, and again when it dies; hosts find it by the array's folder. Its state, the file lockd0.state in that folder, is
/// small: which hosts may hold locks. After it died, it waits for those to say what they hold, or has the monitor shut them out, and
/// only then grants new locks.
///
/// Ends with Ctrl-C or SIGTERM. Whoever can reach the address can take locks: keep it to networks that you trust.
///
/// Example: `braid lockd --array /srv/a --listen 10.0.0.5:7100`
#[derive(clap::Args)]
pub struct Arguments {
    /// Which of the array's lock servers; see `braid up --lock-servers`
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    id: u16,
    /// Where to listen: HOST:PORT, port 0 for any free one, or unix:PATH
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: Address,
    /// Die with this process, which must be the parent
    #[arg(long, hide = true)]
    child_of: Option<u32>,
}

/// Serves until it is asked to end.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    if let Some(parent) = arguments.child_of {
        report::die_with(parent)?;
    }
    let mut signals = Signals::catch()?;
    let daemon = LockDaemon::open(&common.folder(), LockServerId(arguments.id))?;
    let serving = |address: &Address| {
        let id = arguments.id;
        report::announce(common.json, &format!("lock server {id}"), address, json!({"id": id}));
    };
    daemon.serve(&arguments.listen, true, serving, signals.asked_to_end()).await?;
    Ok(ExitCode::SUCCESS)
}
