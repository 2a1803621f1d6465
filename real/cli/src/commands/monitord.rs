//! `braid monitord`: the daemon of the array's monitor.

use crate::report;
use braid_admin::failure::Failure;
use braid_daemons::monitord::MonitorDaemon;
use braid_shell::Address;
use braid_terminal::Common;
use braid_terminal::Signals;
use serde_json::json;
use std::process::ExitCode;
use std::time::Duration;

/// Decide which devices are in the array
///
/// Every array has one monitor. Devices serve only while it says that they may, so that all agree on which of them have everything
/// that was written. It may be unavailable for some seconds and nobody notices; then the devices stop. `braid up` starts it by itself,
/// and again when it dies; all others find it by the array's folder. Its state is the file monitor.state in that folder: keep it
/// with the array, and never bring back an old copy.
///
/// Ends with Ctrl-C or SIGTERM. Whoever can reach the address can take part in the array: keep it to networks that you trust.
///
/// Example: `braid monitord --array /srv/a --listen 10.0.0.5:7200`
#[derive(clap::Args)]
pub struct Arguments {
    /// Where to listen: HOST:PORT, port 0 for any free one, or unix:PATH
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: Address,
    /// How long a device stays out until a spare takes its place [default: 10m]
    #[arg(long, value_name = "TIME", value_parser = braid_terminal::arguments::span)]
    spare_after: Option<Duration>,
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
    let monitor = MonitorDaemon::open(&common.folder(), arguments.spare_after)?;
    let serving = |address: &Address| report::announce(common.json, "the monitor", address, json!({}));
    monitor.serve(&arguments.listen, true, serving, signals.asked_to_end()).await?;
    Ok(ExitCode::SUCCESS)
}
