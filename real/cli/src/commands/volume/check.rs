//! `braid volume check`: compares parity with data, stripe by stripe.

use braid_admin::failure::{Exit, Failure};
use braid_admin::volumes;
use braid_base::DeviceId;
use braid_layout::VolumeDescription;
use braid_machine::{HostError, HostRequest, HostSuccess};
use braid_session::{Session, require_up};
use braid_shell::HostClient;
use braid_terminal::Common;
use braid_terminal::output;
use serde_json::json;
use std::collections::BTreeSet;
use std::process::ExitCode;
use tokio::task::JoinSet;

/// Compare the parity of every stripe with its data
///
/// Works while the volume is in use. Prints how many stripes were checked, how many are bad (parity and data differ), how many could
/// not be read because a block of them is damaged, and how many could not be checked because a device is out or has yet to catch
/// up: those are served, but there is nothing to compare. Ends with status 4 if any stripe is bad or unreadable. Of a volume that
/// moves, the stripes are checked where it lies, not yet where it moves to.
///
/// Example: `braid volume check vol0 --reconstruct`
#[derive(clap::Args)]
pub struct Arguments {
    /// Which
    name: String,
    /// Also rebuild each unit from the others of its stripe, and compare it with what is there
    #[arg(long)]
    reconstruct: bool,
}

/// Stripes that are checked at the same time.
const IN_FLIGHT: u64 = 32;
/// Bad stripes that are named.
const NAMED: usize = 16;
/// A unit that differs from what its stripe says may have been written in between the two looks.
const LOOKS: u32 = 5;

#[derive(Default)]
struct Findings {
    stripes: u64,
    bad: Vec<u64>,
    unreadable: Vec<u64>,
    unchecked: u64,
    /// For want of these.
    lacks: BTreeSet<DeviceId>,
}

#[derive(Clone, PartialEq, Eq)]
enum Finding {
    Good,
    Bad,
    Unreadable,
    /// These devices are out, or have yet to catch up.
    Unchecked(Vec<DeviceId>),
}

/// Checks all, and says what was found.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let folder = common.folder();
    let description = folder.describe()?;
    let volume = volumes::describe(volumes::find(&description, &arguments.name)?)?;
    if volume.layout.redundancy_units() == 0 {
        let message = format!("volume '{}' has no parity to check", arguments.name);
        return Err(Failure::usage("no-redundancy", message));
    }
    require_up(&folder)?;
    let session = Session::start(&folder, "volume check").await?;
    let outcome = check(&session, &arguments.name, arguments.reconstruct).await;
    session.end().await;
    let found = outcome?;
    let named = |stripes: &[u64]| stripes.iter().take(NAMED).copied().collect::<Vec<u64>>();
    output::print(
        common.json,
        || {
            json!({
                "schema": 1,
                "volume": arguments.name,
                "stripes": found.stripes,
                "bad": found.bad.len(),
                "unreadable": found.unreadable.len(),
                "unchecked": found.unchecked,
                "lacks": found.lacks.iter().map(|device| device.0).collect::<Vec<_>>(),
                "first_bad": named(&found.bad),
                "first_unreadable": named(&found.unreadable),
            })
        },
        || {
            let (bad, unreadable) = (found.bad.len(), found.unreadable.len());
            let checked = found.stripes - found.unchecked;
            let mut text = format!("{checked} stripes checked, {bad} bad, {unreadable} unreadable\n");
            if found.unchecked > 0 {
                let devices: Vec<String> = found.lacks.iter().map(|device| device.to_string()).collect();
                let devices = devices.join(", ");
                text += &format!("{} stripes not checked: {devices} must be in, and is not\n", found.unchecked);
            }
            if bad > 0 {
                text +=
                    &format!("bad stripes: {:?}{}\n", named(&found.bad), if bad > NAMED { " and more" } else { "" });
            }
            if unreadable > 0 {
                let more = if unreadable > NAMED { " and more" } else { "" };
                text += &format!("unreadable stripes: {:?}{more}\n", named(&found.unreadable));
            }
            text
        },
    );
    let sound = found.bad.is_empty() && found.unreadable.is_empty();
    Ok(if sound { ExitCode::SUCCESS } else { ExitCode::from(Exit::DataLost as u8) })
}

async fn check(session: &Session, name: &str, reconstruct: bool) -> Result<Findings, Failure> {
    let volume = session.take_in(name).await?;
    let stripes = volume.stripes();
    let progress = output::progress(stripes, "stripes");
    let mut found = Findings { stripes, ..Findings::default() };
    let mut running: JoinSet<(u64, Result<Finding, HostError>)> = JoinSet::new();
    for stripe in 0..stripes + IN_FLIGHT {
        if stripe < stripes {
            let (client, volume) = (session.client().clone(), volume.clone());
            running.spawn(async move { (stripe, check_stripe(&client, &volume, stripe, reconstruct).await) });
        }
        if stripe + 1 < IN_FLIGHT {
            continue;
        }
        let Some(done) = running.join_next().await else { break };
        let (stripe, finding) = done.map_err(|error| Failure::failed("internal", error.to_string()))?;
        match finding? {
            Finding::Good => {}
            Finding::Bad => found.bad.push(stripe),
            Finding::Unreadable => found.unreadable.push(stripe),
            Finding::Unchecked(devices) => {
                found.unchecked += 1;
                found.lacks.extend(devices);
            }
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    found.bad.sort_unstable();
    found.unreadable.sort_unstable();
    Ok(found)
}

async fn check_stripe(
    client: &HostClient,
    volume: &VolumeDescription,
    stripe: u64,
    reconstruct: bool,
) -> Result<Finding, HostError> {
    match client.call(HostRequest::Check { volume: volume.id, stripe }).await {
        Ok(HostSuccess::Checked { matches: true }) => {}
        Ok(_) => return Ok(Finding::Bad),
        Err(error) => return not_compared(error),
    }
    if !reconstruct {
        return Ok(Finding::Good);
    }
    let block = braid_base::BLOCK_BYTES as u64;
    let unit = volume.layout.unit_blocks() * block;
    let begin = stripe * volume.layout.stripe_blocks() * block;
    let end = (begin + volume.layout.stripe_blocks() * block).min(volume.bytes);
    for offset in (begin..end).step_by(unit as usize) {
        let length = unit.min(end - offset) as usize;
        let mut looks = 0;
        loop {
            let rebuilt = match client.call(HostRequest::Reconstruct { volume: volume.id, offset, length }).await {
                Ok(success) => content(success),
                Err(error) => return not_compared(error),
            };
            let there = match client.call(HostRequest::Read { volume: volume.id, offset, length }).await {
                Ok(success) => content(success),
                Err(error) => return not_compared(error),
            };
            if rebuilt == there {
                break;
            }
            looks += 1;
            if looks == LOOKS {
                return Ok(Finding::Bad);
            }
        }
    }
    Ok(Finding::Good)
}

fn not_compared(error: HostError) -> Result<Finding, HostError> {
    match error {
        HostError::Device { failure: braid_wire::Failure::Lost { .. }, .. } => Ok(Finding::Unreadable),
        HostError::Unavailable { devices } => Ok(Finding::Unchecked(devices)),
        other => Err(other),
    }
}

fn content(success: HostSuccess) -> Vec<u8> {
    match success {
        HostSuccess::Data(parts) => parts.concat(),
        _ => Vec::new(),
    }
}
