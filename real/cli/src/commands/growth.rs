//! What `braid volume resize` and `braid fs resize` share: the new size on the command line, and the output.

use crate::report;
use braid_admin::Failure;
use braid_admin::growth::Grown;
use braid_base::units::format_size;
use braid_terminal::arguments::size;
use braid_terminal::{Common, output};
use serde_json::json;
use std::process::ExitCode;

/// What is to grow, and its new size. The size may also be given as `create` takes it.
#[derive(clap::Args)]
pub struct Growth {
    /// Its name
    name: String,
    /// Its new size, a multiple of 4 KiB: 512MiB, 10G
    #[arg(value_name = "SIZE", value_parser = size, required_unless_present = "size")]
    new_size: Option<u64>,
    /// The same as SIZE
    #[arg(long, value_parser = size, conflicts_with = "new_size")]
    size: Option<u64>,
}

/// Grows a `file system` or a `volume` by `grow`, which is told where to say what it waits for.
pub async fn run(
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
    report::done(
        common.json,
        json!({what.replace(' ', "_"): name, "size_bytes": bytes, "previous_size_bytes": before}),
        || match bytes == before {
            true => format!("{what} {name} already has {}\n", format_size(bytes)),
            false => format!("{what} {name}: {} instead of {}\n", format_size(bytes), format_size(before)),
        },
    )
}
