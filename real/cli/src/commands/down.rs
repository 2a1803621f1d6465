//! `braid down`: stops what `braid up` runs.

use braid_admin::{Array, Failure};
use braid_terminal::Common;
use braid_terminal::output;
use serde_json::json;
use std::process::ExitCode;
use std::time::Duration;

/// Stop the array that `braid up` runs: its servers, then its devices
///
/// All acknowledged writes are durable on the devices already; `braid up` starts the array again.
#[derive(clap::Args)]
pub struct Arguments {
    /// The longest time to wait until the array has ended, in seconds
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    wait: u64,
}

/// Asks the supervisor to end, and waits until it has.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let array = Array::of(common.folder());
    let id = array.down(Duration::from_secs(arguments.wait)).await?;
    output::print(
        common.json,
        || json!({"schema": 2, "array": id.to_string(), "down": true}),
        || format!("the array in {} is down\n", array.folder().dir().display()),
    );
    Ok(ExitCode::SUCCESS)
}
