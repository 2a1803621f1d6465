//! `braid device fail` and `braid device readmit`: an operator takes a device out, or lets it return.

use crate::report;
use braid_admin::{Array, Failure};
use braid_control::ReportedState;
use braid_terminal::Common;
use serde_json::json;
use std::process::ExitCode;

/// Take a device out, and keep it out
///
/// The other devices serve without it, and record the writes that it misses. The command is refused if they can't serve without it, because a
/// volume lacks another device already. If a volume has no redundancy, the command is refused without --yes. Data on the device is not touched: `braid device readmit` allows it to return, and it
/// is resynchronised.
#[derive(clap::Args)]
pub struct Arguments {
    /// The number of the device, such as 3 or d3
    #[arg(value_parser = braid_terminal::arguments::device)]
    device: u16,
    /// Accept that volumes without redundancy are unavailable until the device returns
    #[arg(long)]
    yes: bool,
}

/// Allow a device that was taken out to return
///
/// The device is resynchronised, and then it is in. If its disk was to be replaced, and the new disk has not been connected yet, the device
/// returns with its previous disk.
#[derive(clap::Args)]
pub struct ReadmitArguments {
    /// The number of the device, such as 3 or d3
    #[arg(value_parser = braid_terminal::arguments::device)]
    device: u16,
    /// Wait until it is resynchronised
    #[arg(long)]
    wait: bool,
}

/// Takes the device out.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let id = arguments.device;
    Array::of(common.control()).fail_device(id, arguments.yes).await?;
    say(
        common,
        id,
        ReportedState::Out,
        format!("device {id} is out: allow it to return with `braid device readmit {id}`\n"),
    );
    Ok(ExitCode::SUCCESS)
}

/// Allows the device to return.
pub async fn readmit(arguments: ReadmitArguments, common: &Common) -> Result<ExitCode, Failure> {
    let ReadmitArguments { device: id, wait } = arguments;
    let member_state = Array::of(common.control()).readmit_device(id, wait).await?;
    let text = match member_state {
        ReportedState::In => format!("device {id} is in\n"),
        _ => format!("device {id} is back, and is being resynchronised: `braid status` shows the progress\n"),
    };
    say(common, id, member_state, text);
    Ok(ExitCode::SUCCESS)
}

fn say(common: &Common, id: u16, member_state: ReportedState, text: String) {
    report::print(common.json, json!({"device": id, "member_state": member_state.name()}), || text);
}
