//! `braid down`: stops what `braid up` runs.

use crate::report;
use braid_admin::{Array, Failure};
use braid_control::shell_word;
use braid_daemons::mounts;
use braid_terminal::Common;
use serde_json::json;
use std::process::ExitCode;
use std::time::Duration;

/// Stop the array that `braid up` runs: its servers, then its devices
///
/// All acknowledged writes are durable on the devices already; `braid up` starts the array again. The array's mounts end first, also those in
/// containers and on other machines. To restart an array and keep its mounts, end `braid up` by Ctrl-C or SIGTERM: programs wait meanwhile.
///
/// Of an array with `braid agent` on several machines, this stops what runs on this one, and ends the mounts here.
#[derive(clap::Args)]
pub struct Arguments {
    /// The longest time to wait until the array has ended, in seconds
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    wait: u64,
}

/// Asks the supervisor to end, and waits until it has.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let array = Array::of(common.control());
    let can_end = array.control().running().await?.is_some_and(|running| running.supervisor().is_here());
    // Programs must not wait for files of an array that is down.
    let stay = if can_end { mounts::end_all(array.control()).await? } else { Vec::new() };
    for mount in &stay {
        let directory = &mount.directory;
        braid_terminal::tell!(
            "the mount on {directory} ({}) has not ended: programs there wait until the array is up; `braid fs unmount --force {}` ends it there",
            mount.process,
            shell_word(directory)
        );
    }
    let id = array.down(Duration::from_secs(arguments.wait)).await?;
    report::done(common.json, json!({"array": id.to_string(), "down": true}), || {
        format!("the array in {} is down\n", array.control().place().display())
    })
}
