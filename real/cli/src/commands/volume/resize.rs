//! `braid volume resize`: grows a volume while it is used.

use crate::commands::growth;
use braid_admin::{Array, Failure};
use braid_terminal::Common;
use std::process::ExitCode;

/// Grow a volume, while hosts use it
///
/// All hosts end their operations, the devices reserve the space, and the hosts continue with the new size: clients see a pause of about half a
/// second, and no error. What is added reads as zeros. NBD clients see the new size when they connect again. A volume does not shrink. If
/// the command is interrupted, `braid up` completes or reverts the change. `braid status` shows the free space of each device.
///
/// Example: `braid volume resize vol0 40GiB`
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    growth: growth::Growth,
}

/// Grows it.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let array = Array::of(common.control());
    growth::run("volume", arguments.growth, common, async |name, size, tell| array.grow_volume(name, size, tell).await)
        .await
}
