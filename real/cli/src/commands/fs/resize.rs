//! `braid fs resize`: grows a file system while it is used.

use braid_admin::growth::Grown;
use braid_admin::{Array, Failure};
use braid_base::units::format_size;
use braid_terminal::arguments::size;
use braid_terminal::{Common, output};
use serde_json::json;
use std::process::ExitCode;

/// Grow a file system, while programs use it
///
/// The volume with the bytes of files grows, and the metadata servers take it over anew: programs pause for some seconds, and see no error.
/// The room for names stays as it is. A file system does not shrink. `braid status` shows the free space of each device.
///
/// Example: `braid fs resize home 10GiB`
#[derive(clap::Args)]
pub struct Arguments {
    /// The name of the file system
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
    let outcome = array.grow_file_system(&name, size, |what| bar.set_message(what.to_string())).await;
    bar.finish_and_clear();
    let Grown { before, bytes } = outcome?;
    output::print(
        common.json,
        || json!({"schema": 2, "file_system": name, "size_bytes": bytes, "previous_size_bytes": before}),
        || match bytes == before {
            true => format!("file system {name} already has {}\n", format_size(bytes)),
            false => format!("file system {name}: {} instead of {}\n", format_size(bytes), format_size(before)),
        },
    );
    Ok(ExitCode::SUCCESS)
}
