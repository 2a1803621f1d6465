//! `braid rebuild`: follows devices that are brought what they lack, and says how fast that is to go.

mod follow;

use crate::chronicle::pace_words;
use crate::commands::Common;
use crate::condition::{Condition, Healing};
use crate::failure::Failure;
use crate::look::{Look, Looker};
use crate::output;
use crate::session::{Session, require_up};
use braid_base::DeviceId;
use braid_control::{Moment, PaceReport};
use braid_machine::HostRequest;
use braid_wire::{Administration, Pace};
use serde_json::json;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Follow devices that are being rebuilt or catch up, or say how fast that is to go
///
/// Rebuilding begins by itself when a device has another disk (`braid device replace`, or a spare), and catching up when one comes
/// back; hosts do it, while users go on. This command shows how far it is until all devices are in, and then says what was
/// brought, how long it took, and what is lost, if anything is. Ending it does not end the rebuild. Status 4 if something is lost;
/// 1 (nothing-to-rebuild) if there is nothing to follow.
///
/// Examples: `braid rebuild`, `braid rebuild --rate 50MiB/s`, `braid rebuild pause`, `braid rebuild status --json`
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Follow this one only: its number
    #[arg(value_parser = device)]
    device: Option<DeviceId>,
    /// Don't follow, but have each device be brought this much at most, such as 50MiB/s; none: no limit
    #[arg(long, value_parser = super::rate, conflicts_with = "device")]
    rate: Option<u64>,
    /// Don't follow, but have healing take this much of the time while users are at work, 1 to 100 %; usual: what Braid takes by itself
    #[arg(long, value_parser = share, conflicts_with = "device")]
    share: Option<u8>,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Show how far it is, once
    Status,
    /// Have it wait; scrubs, too
    Pause,
    /// Have it go on
    Resume,
}

/// The monitor shows within half a second what is so.
const SHOWN_WITHIN: Duration = Duration::from_secs(3);

/// Does what was asked for.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let folder = common.folder();
    match (arguments.command, arguments.rate, arguments.share) {
        (Some(Command::Status), ..) => {
            let mut looker = Looker::new(folder, "rebuild status");
            let look = looker.look().await?;
            looker.leave();
            output::print(common.json, || json(&look), || text(&look));
            Ok(ExitCode::SUCCESS)
        }
        (Some(Command::Pause), ..) => set_pace(common, |pace| pace.paused = true).await,
        (Some(Command::Resume), ..) => set_pace(common, |pace| pace.paused = false).await,
        (None, None, None) => {
            require_up(&folder)?;
            follow::run(Looker::new(folder, "rebuild"), arguments.device, common.json).await
        }
        (None, rate, share) => {
            let change = |pace: &mut PaceReport| {
                pace.bytes_per_second = rate.unwrap_or(pace.bytes_per_second);
                pace.share = share.unwrap_or(pace.share);
            };
            set_pace(common, change).await
        }
    }
}

/// Changes the pace, from what it is.
async fn set_pace(common: &Common, change: impl FnOnce(&mut PaceReport)) -> Result<ExitCode, Failure> {
    let folder = common.folder();
    require_up(&folder)?;
    let Some(monitor) = folder.monitor(&Moment::now())? else {
        return Err(Failure::unreachable(
            "no-monitor",
            "the array's monitor is not running, which alone knows the pace",
        )
        .hint("`braid status` shows why; `braid up` starts it"));
    };
    let before = monitor.report.pace;
    let mut pace = before;
    change(&mut pace);
    let session = Session::start(&folder, "rebuild").await?;
    let request = Administration::Pace(wire(pace));
    let outcome = session.client().call(HostRequest::Administer { request }).await;
    session.leave();
    outcome?;
    // Whoever changes it next goes by what is shown.
    let begun = Instant::now();
    while begun.elapsed() < SHOWN_WITHIN
        && folder.monitor(&Moment::now())?.is_some_and(|monitor| monitor.report.pace != pace)
    {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    output::print(
        common.json,
        || json!({"schema": 1, "pace": pace, "before": before}),
        || format!("devices are brought what they lack, and volumes scrubbed: {}\n", pace_words(&pace)),
    );
    Ok(ExitCode::SUCCESS)
}

fn wire(pace: PaceReport) -> Pace {
    let PaceReport { bytes_per_second, share, paused } = pace;
    Pace { bytes_per_second, share, paused }
}

/// What there is to bring: each device that lacks something, and how it is.
fn lacking(look: &Look) -> impl Iterator<Item = (DeviceId, Condition)> {
    let all = look.description.devices.iter().map(|entry| (DeviceId(entry.id), look.condition(DeviceId(entry.id))));
    all.filter(|(_, condition)| !matches!(condition, Condition::Healthy | Condition::Silent | Condition::Unknown))
}

fn json(look: &Look) -> serde_json::Value {
    let devices = lacking(look).map(|(id, condition)| {
        json!({
            "id": id.0,
            "condition": condition.name(),
            "words": condition.words(),
            "healing": condition.healing().map(Healing::json),
        })
    });
    json!({"schema": 1, "up": look.running.is_some(), "pace": look.pace(), "devices": devices.collect::<Vec<_>>()})
}

fn text(look: &Look) -> String {
    let mut text: String =
        lacking(look).map(|(id, condition)| format!("device {id}: {}\n", condition.words())).collect();
    if text.is_empty() {
        text += "nothing to rebuild: no device lacks anything\n";
    }
    text + &format!("pace: {}\n", pace_words(&look.pace()))
}

fn share(text: &str) -> Result<u8, String> {
    if text == "usual" {
        return Ok(0);
    }
    let number = text.strip_suffix('%').unwrap_or(text).trim().parse();
    let wrong = || format!("'{text}' is no share: take 1 to 100 per cent, such as 30%, or 'usual'");
    number.ok().filter(|share| (1..=100).contains(share)).ok_or_else(wrong)
}

fn device(text: &str) -> Result<DeviceId, String> {
    let number = text.strip_prefix('d').unwrap_or(text);
    number.parse().map(DeviceId).map_err(|_| format!("'{text}' is not the number of a device, such as 2"))
}
