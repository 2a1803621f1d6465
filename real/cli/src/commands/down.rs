//! `braid down`: ends what `braid up` runs.

use braid_admin::failure::Failure;
use braid_terminal::Common;
use braid_terminal::output;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// End the array that `braid up` runs: its servers, then its devices
///
/// Every write that was acknowledged is on the devices already; `braid up` opens the array again.
#[derive(clap::Args)]
pub struct Arguments {
    /// How many seconds to wait for it to end
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    wait: u64,
}

/// Asks the supervisor to end, and waits until it has.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let folder = common.folder();
    let description = folder.describe()?;
    let not_up = || Failure::not_up(&folder);
    let running = folder.running()?.ok_or_else(not_up)?;
    let pid = Pid::from_raw(running.supervisor as i32)
        .filter(|_| running.supervisor > 1)
        .ok_or_else(|| Failure::failed("starting", "the array is just being started").hint("try again in a moment"))?;
    // The process is named by a descriptor, and only then asked whether it is still the one: a number may be
    // given to another process in between.
    let process = pidfd_open(pid, PidfdFlags::empty()).map_err(|_| not_up())?;
    if folder.running()?.map(|running| running.supervisor) != Some(running.supervisor) {
        return Err(not_up());
    }
    pidfd_send_signal(&process, Signal::TERM).map_err(std::io::Error::from)?;

    let begun = Instant::now();
    while folder.running()?.is_some_and(|now| now.supervisor == running.supervisor) {
        if begun.elapsed() > Duration::from_secs(arguments.wait) {
            return Err(Failure::failed("still-up", format!("process {} has not ended yet", running.supervisor)).hint(
                format!("its devices are crash-safe: if it hangs, `kill -9 {}` loses nothing", running.supervisor),
            ));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    output::print(
        common.json,
        || serde_json::json!({"schema": 1, "array": description.array.to_string(), "down": true}),
        || format!("the array in {} is down\n", folder.dir().display()),
    );
    Ok(ExitCode::SUCCESS)
}
