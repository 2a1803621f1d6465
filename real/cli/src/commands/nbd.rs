//! `braid nbd`: an additional NBD server for a running array.

use crate::report;
use braid_admin::{Failure, parent_process};
use braid_control::WhenUnavailable;
use braid_daemons::front_end::{self, NbdFrontEnd};
use braid_shell::Address;
use braid_terminal::{Common, Signals};
use serde_json::json;
use std::process::ExitCode;

/// Serve volumes of a running array to NBD clients
///
/// The server is a host of its own: it talks to the devices directly, and any number of servers may serve the same volumes at the same
/// time. Without --volume, volumes that are created later are served as well. Ends with Ctrl-C or SIGTERM, after the requests in flight.
///
/// Examples: `braid nbd --listen 127.0.0.1:10810`, `braid nbd --volume vol0 --listen unix:/tmp/vol0.sock`
#[derive(clap::Args)]
pub struct Arguments {
    /// Serve this volume only; may be given more than once [default: all]
    #[arg(long = "volume", value_name = "NAME")]
    volumes: Vec<String>,
    /// The address to listen on: HOST:PORT, with port 0 for any free port, or unix:PATH
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: Address,
    /// What requests do while devices are missing that they need: fail, wait, or wait for a time and then fail (60s, 5m) [default: what the
    /// volume says, which is 60s unless `braid volume set-unavailable` has changed it]
    #[arg(long, value_name = "fail|wait|TIME")]
    unavailable: Option<WhenUnavailable>,
    #[command(flatten)]
    recording: super::recording::Options,
    /// Die with this process, which must be the parent
    #[arg(long, hide = true, env = braid_bench::CHILD_OF)]
    child_of: Option<u32>,
}

/// Serves until it is asked to end.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    parent_process::die_with(arguments.child_of)?;
    let mut signals = Signals::catch()?;
    let control = common.control();
    let (volumes, recording) = (arguments.volumes.clone(), arguments.recording.request());
    let front = NbdFrontEnd::open(&control, &arguments.listen, volumes, arguments.unavailable, recording).await?;
    let exported = front_end::exported(&control.describe().await?, &arguments.volumes, front.address(), None);
    let volumes =
        exported.iter().map(|volume| json!({"name": volume.name, "size_bytes": volume.bytes, "nbd": volume.uri}));
    report::print(
        common.json,
        json!({
            "ready": true,
            "address": front.address().to_string(),
            "generation": front.session().generation().0,
            "volumes": volumes.collect::<Vec<_>>(),
        }),
        || exported.iter().map(|volume| format!("{}\n", volume.uri)).collect::<String>() + "Stop with Ctrl-C.\n",
    );
    front.serve(signals.asked_to_end()).await?;
    Ok(ExitCode::SUCCESS)
}
