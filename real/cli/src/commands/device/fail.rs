//! `braid device fail` and `braid device readmit`.

use super::with_session;
use braid_admin::failure::Failure;
use braid_admin::slots::{self, ACT_WAIT};
use braid_base::DeviceId;
use braid_control::{DeviceReport, ReportedState};
use braid_terminal::Common;
use braid_terminal::output;
use braid_wire::Administration;
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
    with_session(common, "device fail", async |session| {
        slots::find(&session.folder().describe()?, id)?;
        let asked = slots::administer_soon(session, Administration::Fail { device: DeviceId(id) }).await;
        asked.map_err(|error| slots::explain(session.folder(), error))?;
        let is_out =
            |device: Option<&DeviceReport>| device.is_some_and(|device| device.member_state == ReportedState::Out);
        slots::await_report(session.folder(), id, Some(ACT_WAIT), is_out).await
    })
    .await?;
    say(common, id, ReportedState::Out, format!("device {id} is out: `braid device readmit {id}` lets it come back\n"));
    Ok(ExitCode::SUCCESS)
}

/// Lets it come back.
pub async fn readmit(arguments: ReadmitArguments, common: &Common) -> Result<ExitCode, Failure> {
    let ReadmitArguments { device: id, wait } = arguments;
    let member_state = with_session(common, "device readmit", async |session| {
        let folder = session.folder();
        slots::find(&folder.describe()?, id)?;
        slots::administer(session.client(), Administration::Readmit { device: DeviceId(id) }).await?;
        let is_settled = |device: Option<&DeviceReport>| {
            let there =
                |member_state| member_state == ReportedState::In || (!wait && member_state == ReportedState::Returning);
            device.is_some_and(|device| !device.held && device.leaves_to.is_none() && there(device.member_state))
        };
        slots::await_report(folder, id, (!wait).then_some(ACT_WAIT), is_settled).await?;
        Ok(slots::report_of(folder, id)?.map_or(ReportedState::In, |device| device.member_state))
    })
    .await?;
    let text = match member_state {
        ReportedState::In => format!("device {id} is in\n"),
        _ => format!("device {id} is back, and is being resynchronised: `braid status` shows how far\n"),
    };
    say(common, id, member_state, text);
    Ok(ExitCode::SUCCESS)
}

fn say(common: &Common, id: u16, member_state: ReportedState, text: String) {
    output::print(common.json, || json!({"schema": 1, "device": id, "member_state": member_state.name()}), || text);
}
