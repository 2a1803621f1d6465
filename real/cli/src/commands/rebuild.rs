//! `braid rebuild`: follows the resynchronisation of devices, and sets the recovery throttle.

use crate::report;
use braid_admin::device_condition::{span, throttle_words, with_real_share};
use braid_admin::recovery_follower::{FollowedDevice, LostInVolume, RecoveryFollower, ThrottleChange, ThrottleReport};
use braid_admin::snapshot::{ArraySnapshot, SnapshotReader};
use braid_admin::status::HealingStatus;
use braid_admin::{Array, Exit, Failure};
use braid_base::DeviceId;
use braid_base::units::format_size;
use braid_terminal::{Common, output};
use indicatif::{MultiProgress, ProgressBar};
use serde_json::json;
use std::collections::BTreeMap;
use std::process::ExitCode;

/// Follow devices that are being rebuilt or resynchronised, or set the recovery throttle
///
/// A rebuild begins automatically when a device has another disk (`braid device replace`, or a spare). A resynchronisation begins when a
/// device returns. Hosts do the work while volumes stay in use. This command shows the progress until all devices are in. Then it shows the
/// restored bytes, the time, and lost ranges, if any. Interrupting the command does not interrupt the rebuild. Ends with status 4 if data is
/// lost, and with status 1 (nothing-to-rebuild) if a device is out and not being resynchronised.
///
/// Examples: `braid rebuild`, `braid rebuild --rate 50MiB/s`, `braid rebuild --share 10%`, `braid rebuild pause`, `braid rebuild status --json`
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Follow only the device of this number
    #[arg(value_parser = device)]
    device: Option<DeviceId>,
    /// Instead of following, limit the rate per device, such as 50MiB/s; none: no limit
    #[arg(long, value_parser = braid_terminal::arguments::rate, conflicts_with = "device")]
    rate: Option<u64>,
    /// Instead of following, set the share of the time for recovery while users are active, such as 30%; 100%: do not yield to users;
    /// usual: the default
    #[arg(long, value_parser = share, conflicts_with = "device")]
    share: Option<u8>,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Show the progress once
    Status,
    /// Pause recovery and scrubs
    Pause,
    /// Resume recovery and scrubs
    Resume,
}

pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let control = common.control();
    let limit = |throttle: &mut ThrottleReport| {
        throttle.bytes_per_second = arguments.rate.unwrap_or(throttle.bytes_per_second);
        throttle.share = arguments.share.unwrap_or(throttle.share);
    };
    let limits = arguments.rate.is_some() || arguments.share.is_some();
    match (arguments.command, limits) {
        (Some(Command::Status), _) => {
            let mut reader = SnapshotReader::new(control, "rebuild status");
            let look = reader.look().await?;
            reader.leave().await;
            if look.running.is_some() {
                look.require_monitor()?;
            }
            report::done(common.json, json(&look), || text(&look))
        }
        (Some(Command::Pause), _) => set_throttle(common, |throttle| throttle.paused = true).await,
        (Some(Command::Resume), _) => set_throttle(common, |throttle| throttle.paused = false).await,
        (None, true) => set_throttle(common, limit).await,
        (None, false) => follow(&Array::of(control), arguments.device, common.json).await,
    }
}

async fn set_throttle(common: &Common, change: impl FnOnce(&mut ThrottleReport)) -> Result<ExitCode, Failure> {
    let ThrottleChange { before, throttle } = Array::of(common.control()).set_throttle(change).await?;
    let json = json!({"throttle": with_real_share(throttle), "previous_throttle": with_real_share(before)});
    report::done(common.json, json, || format!("recovery throttle: {}\n", throttle_words(&throttle)))
}

fn json(look: &ArraySnapshot) -> serde_json::Value {
    let devices = look.lacking().map(|(id, condition)| {
        json!({
            "id": id.0,
            "condition": condition.name(),
            "text": condition.words(),
            "healing": condition.healing().map(HealingStatus::of),
        })
    });
    json!({"up": look.running.is_some(), "throttle": with_real_share(look.throttle()), "devices": devices.collect::<Vec<_>>()})
}

fn text(look: &ArraySnapshot) -> String {
    let mut text: String =
        look.lacking().map(|(id, condition)| format!("device {id}: {}\n", condition.words())).collect();
    if text.is_empty() {
        text += "nothing to rebuild: all devices are in\n";
    }
    text + &format!("recovery throttle: {}\n", throttle_words(&look.throttle()))
}

/// Parses a share in per cent; zero stands for the default.
fn share(text: &str) -> Result<u8, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim();
    match (text, number.parse()) {
        ("usual", _) => Ok(0),
        (_, Ok(share @ 1..=100)) => Ok(share),
        _ => Err(format!("'{text}' is not a share: write 1% to 100%, or usual")),
    }
}

fn device(text: &str) -> Result<DeviceId, String> {
    braid_terminal::arguments::device(text).map(DeviceId)
}

/// Ranges that are listed in text output.
const NAMED: usize = 16;

/// Follows one device, or all that are being resynchronised.
async fn follow(array: &Array, only: Option<DeviceId>, as_json: bool) -> Result<ExitCode, Failure> {
    let mut follower = array.follow_recovery(only).await?;
    let mut bars = Bars::default();
    loop {
        bars.show(&follower);
        if follower.is_complete() {
            break;
        }
        follower.advance().await?;
    }
    drop(bars);
    let reports: Vec<_> =
        follower.devices().map(|(id, device)| Report { id, device, lost: follower.lost(device) }).collect();
    report::print(as_json, json!({"devices": reports.iter().map(Report::json).collect::<Vec<_>>()}), || {
        match (reports.is_empty(), only) {
            (false, _) => reports.iter().map(Report::text).collect(),
            (true, Some(id)) => format!("nothing to rebuild: device {id} is in\n"),
            (true, None) => "nothing to rebuild: all devices are in\n".to_string(),
        }
    });
    let lost = reports.iter().any(|report| report.device.lost_blocks() > 0);
    Ok(if lost { ExitCode::from(Exit::DataLost as u8) } else { ExitCode::SUCCESS })
}

#[derive(Default)]
struct Bars {
    all: MultiProgress,
    bars: BTreeMap<DeviceId, ProgressBar>,
}

impl Bars {
    fn show(&mut self, follower: &RecoveryFollower) {
        for (id, device) in follower.devices() {
            let bar = self.bars.entry(id).or_insert_with(|| self.all.add(output::healing()));
            if let Some((healing, left)) = device.condition.healing().and_then(|it| Some((it, it.left?))) {
                bar.set_length(healing.done + left);
                bar.set_position(healing.done);
            }
            bar.set_message(format!("device {id}: {}", device.condition.words()));
        }
    }
}

struct Report<'a> {
    id: DeviceId,
    device: &'a FollowedDevice,
    lost: Vec<LostInVolume>,
}

impl Report<'_> {
    fn json(&self) -> serde_json::Value {
        let Report { id, device, lost } = self;
        let lost = lost.iter().flat_map(|LostInVolume { volume, ranges }| {
            ranges.iter().map(move |range| json!({"volume": volume, "offset": range.offset, "length": range.length}))
        });
        json!({
            "id": id.0,
            "rebuild": device.rebuild,
            "restored_bytes": device.restored(),
            "seconds": device.took().as_secs_f64(),
            "bytes_per_second": device.bytes_per_second(),
            "lost_blocks": device.lost_blocks(),
            "lost": lost.collect::<Vec<_>>(),
        })
    }

    fn text(&self) -> String {
        let Report { id, device, lost } = self;
        let what = if device.rebuild { "is rebuilt, and in" } else { "is resynchronised, and in" };
        let restored = format_size(device.restored());
        let rate = device.bytes_per_second().map(|rate| format!(" ({}/s)", format_size(rate))).unwrap_or_default();
        let took = span(device.took());
        let mut text = format!("device {id} {what}: {restored} in {took} while it was followed{rate}\n");
        if device.lost_blocks() > 0 {
            text += &format!(
                "{} blocks could not be reconstructed, because other blocks of their stripes had checksum errors:\n",
                device.lost_blocks()
            );
            for LostInVolume { volume, ranges } in lost {
                let name = volume.as_deref().unwrap_or("a volume that was deleted");
                for range in ranges.iter().take(NAMED) {
                    text += &format!("  {name}: bytes {} to {}\n", range.offset, range.offset + range.length - 1);
                }
            }
            text += "they can't be read until they are overwritten; all other blocks can\n";
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read() {
        assert_eq!((share("30%"), share("100"), share("usual")), (Ok(30), Ok(100), Ok(0)));
        assert!(share("0%").is_err() && share("101%").is_err() && share("half").is_err());
    }
}
