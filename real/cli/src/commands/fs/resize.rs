//! `braid fs resize`: grows a file system while it is used.

use crate::commands::growth;
use braid_admin::{Array, Failure};
use braid_terminal::Common;
use std::process::ExitCode;

/// Grow a file system, while programs use it
///
/// The volume with the bytes of files grows, and the metadata servers take it over anew: programs pause for some seconds, and see no error.
/// The room for names stays as it is. A file system does not shrink. `braid status` shows the free space of each device.
///
/// Example: `braid fs resize home 10GiB`
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    growth: growth::Growth,
}

/// Grows it.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let array = Array::of(common.control());
    growth::run("file system", arguments.growth, common, async |name, size, tell| {
        array.grow_file_system(name, size, tell).await
    })
    .await
}
