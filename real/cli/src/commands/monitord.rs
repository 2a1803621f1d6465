//! `braid monitord`: the daemon of the array's monitor.

use crate::report;
use braid_admin::{Failure, parent_process};
use braid_base::NodeId;
use braid_daemons::monitord::MonitorDaemon;
use braid_shell::Address;
use braid_terminal::{Common, Signals};
use serde_json::json;
use std::process::ExitCode;
use std::time::Duration;

/// Decide which devices are in the array
///
/// Every array has one monitor. Devices serve only while they have a lease from it, so that all nodes agree on which devices are up to
/// date. If the monitor is unavailable for longer than a few seconds, the devices stop serving. `braid up` starts the monitor
/// automatically, and restarts it if it dies; all nodes find it by the array's folder. Its state is the file monitor.state in that folder:
/// keep it with the array, and never restore an old copy.
///
/// Ends with Ctrl-C or SIGTERM. Every program that can reach the address can take part in the array: restrict it to trusted networks.
///
/// Example: `braid monitord --array /srv/a --listen 10.0.0.5:7200`
#[derive(clap::Args)]
pub struct Arguments {
    /// The address to listen on: HOST:PORT, with port 0 for any free port, or unix:PATH [default: a Unix socket in the array's folder]
    #[arg(long, value_name = "ADDR")]
    listen: Option<Address>,
    /// How long a device must be out before a spare fills its slot [default: 10m]
    #[arg(long, value_name = "TIME", value_parser = braid_terminal::arguments::span)]
    spare_after: Option<Duration>,
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
    let control = common.control();
    let monitor = MonitorDaemon::open(&control, arguments.spare_after).await?;
    let listen = super::listen_at(arguments.listen, control.local(), NodeId::Monitor)?;
    let serving = |address: &Address| report::announce(common.json, "the monitor", address, json!({}));
    monitor.serve(&listen, true, arguments.recording.request(), serving, signals.asked_to_end()).await?;
    Ok(ExitCode::SUCCESS)
}
