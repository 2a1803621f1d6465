//! `braid volume resize`: grows a volume while it is used.

use braid_admin::growth::Grown;
use braid_admin::{Array, Failure};
use braid_base::units::format_size;
use braid_terminal::arguments::size;
use braid_terminal::{Common, output};
use serde_json::json;
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
    /// The name of the volume
    name: String,
    /// Its new size, a multiple of 4 KiB: 512MiB, 10G
    #[arg(value_parser = size)]
    size: u64,
}

/// Grows it.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let Arguments { name, size } = arguments;
    let bar = output::waiting();
    let array = Array::of(common.folder());
    let outcome = array.grow_volume(&name, size, |what| bar.set_message(what.to_string())).await;
    bar.finish_and_clear();
    let Grown { before, bytes } = outcome?;
    output::print(
        common.json,
        || json!({"schema": 2, "volume": name, "size_bytes": bytes, "previous_size_bytes": before}),
        || match bytes == before {
            true => format!("volume {name} already has {}\n", format_size(bytes)),
            false => format!("volume {name}: {} instead of {}\n", format_size(bytes), format_size(before)),
        },
    );
    Ok(ExitCode::SUCCESS)
}
