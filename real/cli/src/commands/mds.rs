//! `braid mds`: the daemon of one metadata server.

use crate::report;
use braid_admin::failure::Failure;
use braid_admin::parent_process;
use braid_base::NodeId;
use braid_daemons::mds::MetadataDaemon;
use braid_shell::Address;
use braid_terminal::Common;
use braid_terminal::Signals;
use serde_json::json;
use std::process::ExitCode;

/// Serve the names, inodes and locks of a file system to the hosts of an array
///
/// `braid up` starts a metadata server for each file system, and restarts it if it dies; hosts find it by the array's folder. The metadata
/// lies in a volume of the array, so that any machine can run the metadata server. A new one takes over from the one before, which is
/// fenced; it serves when it has read its journal, and a lease has passed. A metadata server that was ended with Ctrl-C or SIGTERM leaves
/// no lease to wait for.
///
/// Every program that can reach the address can use the file system: restrict it to trusted networks.
///
/// Example: `braid mds home --array /srv/a --listen 10.0.0.5:7200`
#[derive(clap::Args)]
pub struct Arguments {
    /// The name of the file system
    name: String,
    /// The address to listen on: HOST:PORT, with port 0 for any free port, or unix:PATH [default: a Unix socket in the array's folder]
    #[arg(long, value_name = "ADDR")]
    listen: Option<Address>,
    /// Die with this process, which must be the parent
    #[arg(long, hide = true)]
    child_of: Option<u32>,
}

/// Serves until it is asked to end.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    if let Some(parent) = arguments.child_of {
        parent_process::die_with(parent)?;
    }
    let mut signals = Signals::catch()?;
    let name = &arguments.name;
    let folder = common.folder();
    let daemon = MetadataDaemon::open(&folder, name)?;
    let listen = super::listen_at(arguments.listen, &folder, NodeId::MetadataServer(daemon.id()))?;
    let listening = |address: &Address| {
        report::announce(common.json, &format!("the metadata server of {name}"), address, json!({"file_system": name}));
    };
    daemon.serve(&listen, true, listening, signals.asked_to_end()).await?;
    Ok(ExitCode::SUCCESS)
}
