//! `braid volume resize` and `braid fs resize`: grow a volume or a file system while it is used.

use crate::report;
use braid_admin::volume_operations::Grown;
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
pub struct VolumeArgs {
    #[command(flatten)]
    growth: Growth,
}

/// Grow a file system, while programs use it
///
/// The volume with the bytes of files grows, and the metadata servers take it over anew: programs pause for some seconds, and see no error.
/// The room for names stays as it is. A file system does not shrink. `braid status` shows the free space of each device.
///
/// Example: `braid fs resize home 10GiB`
#[derive(clap::Args)]
pub struct FileSystemArgs {
    #[command(flatten)]
    growth: Growth,
}

/// What is to grow, and its new size. The size may also be given as `create` takes it.
#[derive(clap::Args)]
struct Growth {
    /// Its name
    name: String,
    /// Its new size, a multiple of 4 KiB: 512MiB, 10G
    #[arg(value_name = "SIZE", value_parser = size, required_unless_present = "size")]
    new_size: Option<u64>,
    /// The same as SIZE
    #[arg(long, value_parser = size, conflicts_with = "new_size")]
    size: Option<u64>,
}

pub async fn of_volume(arguments: VolumeArgs, common: &Common) -> Result<ExitCode, Failure> {
    let array = Array::of(common.control());
    let grow = async |name: &str, size, tell: &dyn Fn(&str)| array.grow_volume(name, size, tell).await;
    run("volume", arguments.growth, common, grow).await
}

pub async fn of_file_system(arguments: FileSystemArgs, common: &Common) -> Result<ExitCode, Failure> {
    let array = Array::of(common.control());
    let grow = async |name: &str, size, tell: &dyn Fn(&str)| array.grow_file_system(name, size, tell).await;
    run("file system", arguments.growth, common, grow).await
}

/// Grows a `file system` or a `volume` by `grow`, which is told where to say what it waits for.
async fn run(
    what: &str,
    growth: Growth,
    common: &Common,
    grow: impl AsyncFnOnce(&str, u64, &dyn Fn(&str)) -> Result<Grown, Failure>,
) -> Result<ExitCode, Failure> {
    let Growth { name, new_size, size } = growth;
    let size = new_size.or(size).expect("one of them is required");
    let bar = output::waiting();
    let Grown { before, bytes } = grow(&name, size, &|state| bar.set_message(state.to_string())).await?;
    drop(bar);
    let json = json!({what.replace(' ', "_"): name, "size_bytes": bytes, "previous_size_bytes": before});
    report::done(common.json, json, || match bytes == before {
        true => format!("{what} {name} already has {}\n", format_size(bytes)),
        false => format!("{what} {name}: {} instead of {}\n", format_size(bytes), format_size(before)),
    })
}
