//! `braid volume set-ordering`.

use braid_admin::volume_operations::OrderingChange;
use braid_admin::{Array, Failure};
use braid_terminal::Common;
use braid_terminal::output;
use braid_wire::Ordering;
use serde_json::json;
use std::process::ExitCode;

/// Change how hosts that use a volume are kept apart, while they use it
///
/// All hosts end what they have begun, the devices are told, and the hosts go on: clients see a pause of about a second, and no
/// error. If this is cut short, `braid up` puts it right. What each ordering is good for: docs/orderings.md.
///
/// Example: `braid volume set-ordering vol0 device-lock`
#[derive(clap::Args)]
pub struct Arguments {
    /// Which volume
    name: String,
    /// How hosts are to be kept apart
    #[arg(value_parser = braid_terminal::arguments::ordering())]
    ordering: Ordering,
}

/// Changes it.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let Arguments { name, ordering } = arguments;
    let bar = output::waiting();
    let array = Array::of(common.folder());
    let outcome = array.set_ordering(&name, ordering, |what| bar.set_message(what.to_string())).await;
    bar.finish_and_clear();
    let OrderingChange { before, changed } = outcome?;
    output::print(
        common.json,
        || json!({"schema": 2, "volume": name, "ordering": ordering.name(), "before": before, "changed": changed}),
        || match changed {
            true => format!("volume {name}: {ordering} instead of {before}\n"),
            false => format!("volume {name} has the ordering {ordering} already\n"),
        },
    );
    Ok(ExitCode::SUCCESS)
}
