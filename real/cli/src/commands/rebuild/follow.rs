//! The output of following the resynchronisation of devices.

use crate::report;
use braid_admin::device_condition::span;
use braid_admin::recovery_follower::{FollowedDevice, LostInVolume, RecoveryFollower};
use braid_admin::{Array, Exit, Failure};
use braid_base::DeviceId;
use braid_base::units::format_size;
use braid_terminal::output;
use indicatif::{MultiProgress, ProgressBar};
use serde_json::json;
use std::collections::BTreeMap;
use std::process::ExitCode;

/// Ranges that are listed in text output.
const NAMED: usize = 16;

/// Follows one device, or all that are being resynchronised.
pub async fn run(array: &Array, only: Option<DeviceId>, as_json: bool) -> Result<ExitCode, Failure> {
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

/// A progress bar for each device.
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

/// The result for one device.
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
