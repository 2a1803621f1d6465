//! `braid volume set-ordering`: changes the ordering of a volume while hosts use it.

use crate::report;
use braid_admin::volume_operations::OrderingChange;
use braid_admin::{Array, Failure};
use braid_ordering::Ordering;
use braid_terminal::{Common, output};
use serde_json::json;
use std::process::ExitCode;

/// Change the ordering of a volume, while hosts use it
///
/// The ordering serializes the requests of concurrent hosts. All hosts end their operations, the devices get the new ordering, and the hosts
/// continue: clients see a pause of about half a second, and no error. If the command is interrupted, `braid up` completes or reverts the
/// change. docs/orderings.md compares the orderings.
///
/// Example: `braid volume set-ordering vol0 device-lock`
#[derive(clap::Args)]
pub struct Arguments {
    /// The name of the volume
    name: String,
    /// The new ordering
    #[arg(value_parser = braid_terminal::arguments::ordering())]
    ordering: Ordering,
}

/// Changes the ordering.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let Arguments { name, ordering } = arguments;
    let bar = output::waiting();
    let array = Array::of(common.control());
    let OrderingChange { before, changed } =
        array.set_ordering(&name, ordering, |what| bar.set_message(what.to_string())).await?;
    drop(bar);
    report::done(
        common.json,
        json!({"volume": name, "ordering": ordering.name(), "previous_ordering": before, "changed": changed}),
        || match changed {
            true => format!("volume {name}: {ordering} instead of {before}\n"),
            false => format!("volume {name} already has the ordering {ordering}\n"),
        },
    )
}
