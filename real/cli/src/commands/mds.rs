//! `braid mds`: the daemon of one metadata server.

use crate::report;
use braid_admin::{Failure, parent_process};
use braid_base::NodeId;
use braid_daemons::mds::MetadataDaemon;
use braid_shell::Address;
use braid_terminal::{Common, Signals};
use serde_json::json;
use std::process::ExitCode;

/// Serve the names, inodes and locks of a file system to the hosts of an array
///
/// `braid up` starts a metadata server for each file system, and restarts it if it dies; hosts find it by the array's folder. The metadata
/// lies in a volume of the array, so that any machine can run the metadata server. A new one takes over from the one before, which is
/// fenced; it serves when it has read its journal, and a lease has passed. A metadata server that was ended with Ctrl-C or SIGTERM leaves
/// no lease to wait for.
///
/// A file system that was created with `--servers N` has N shards. Each process serves one of them, which --shard names; the machines that
/// run them may be different ones. They find each other by the array's folder. A process takes over its own shard only: if the server of
/// another shard dies, another process has to be started for that shard, as `braid up` does.
///
/// Every program that can reach the address can use the file system: restrict it to trusted networks.
///
/// Examples: `braid mds home --array /srv/a --listen 10.0.0.5:7200`, `braid mds home --shard 1`
#[derive(clap::Args)]
pub struct Arguments {
    /// The name of the file system
    name: String,
    /// The number of the shard to serve, from 0 on, of a file system with several
    #[arg(long, value_name = "K")]
    shard: Option<usize>,
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
    let name = &arguments.name;
    let control = common.control();
    let daemon = MetadataDaemon::open(&control, name, arguments.shard).await?.recorded(arguments.recording.request());
    let called = daemon.called().to_string();
    let listen = super::listen_at(arguments.listen, control.local(), NodeId::MetadataServer(daemon.id()))?;
    let listening = |address: &Address| {
        let announced = match arguments.shard {
            None => json!({"file_system": name}),
            Some(shard) => json!({"file_system": name, "shard": shard}),
        };
        report::announce(common.json, &format!("the metadata server of {called}"), address, announced);
    };
    daemon.serve(&listen, true, listening, signals.asked_to_end()).await?;
    Ok(ExitCode::SUCCESS)
}
