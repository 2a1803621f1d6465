//! `braid device fail` and `braid device readmit`.

use braid_admin::{Array, Failure};
use braid_control::ReportedState;
use braid_terminal::{Common, output};
use serde_json::json;
use std::process::ExitCode;

/// Take a device out, and keep it out
///
/// The others do without it, and remember what it misses. Refused if they can't: while a volume lacks another device already, or has no redundancy.
/// Nothing that lies on it is touched: `braid device readmit` lets it come back, and it is resynchronised.
#[derive(clap::Args)]
pub struct Arguments {
    /// Its number
    device: u16,
}

/// Let a device come back that was taken out
///
/// It is resynchronised, and is in again then. If its disk was to be replaced, and the other one has not come yet, it comes back with the
/// disk that it had.
#[derive(clap::Args)]
pub struct ReadmitArguments {
    /// Its number
    device: u16,
    /// Wait until it has everything
    #[arg(long)]
    wait: bool,
}

/// Takes it out.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let id = arguments.device;
    Array::of(common.folder()).fail_device(id).await?;
    say(common, id, ReportedState::Out, format!("device {id} is out: `braid device readmit {id}` lets it come back\n"));
    Ok(ExitCode::SUCCESS)
}

/// Lets it come back.
pub async fn readmit(arguments: ReadmitArguments, common: &Common) -> Result<ExitCode, Failure> {
    let ReadmitArguments { device: id, wait } = arguments;
    let member_state = Array::of(common.folder()).readmit_device(id, wait).await?;
    let text = match member_state {
        ReportedState::In => format!("device {id} is in\n"),
        _ => format!("device {id} is back, and is being resynchronised: `braid status` shows how far\n"),
    };
    say(common, id, member_state, text);
    Ok(ExitCode::SUCCESS)
}

fn say(common: &Common, id: u16, member_state: ReportedState, text: String) {
    output::print(common.json, || json!({"schema": 2, "device": id, "member_state": member_state.name()}), || text);
}
