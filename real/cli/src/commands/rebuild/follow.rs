//! Follows the resynchronisation of devices until they are in.

use braid_admin::device_condition::{DeviceCondition, Healing, span};
use braid_admin::failure::{Exit, Failure};
use braid_admin::snapshot::{ArraySnapshot, SnapshotReader};
use braid_base::DeviceId;
use braid_base::units::format_size;
use braid_control::{ByteRange, merged};
use braid_terminal::Signals;
use braid_terminal::output;
use indicatif::{MultiProgress, ProgressBar};
use serde_json::json;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The interval of snapshots.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long a followed device may be out before it is given up.
const OUT_MAX: Duration = Duration::from_secs(60);
/// Ranges that are listed in text output.
const NAMED: usize = 16;

/// A device that is followed.
struct Followed {
    bar: ProgressBar,
    begun: Instant,
    /// True if its disk is new.
    rebuild: bool,
    /// Its progress when it was first known.
    first: Option<Healing>,
    last: Healing,
    /// Since when it is out, so that it is not being resynchronised.
    out: Option<Instant>,
    /// When it was in.
    ended: Option<Instant>,
    /// Lost ranges by volume.
    lost: BTreeMap<u64, Vec<ByteRange>>,
}

/// Follows one device, or all that are being resynchronised.
pub async fn run(mut reader: SnapshotReader, only: Option<DeviceId>, as_json: bool) -> Result<ExitCode, Failure> {
    let mut signals = Signals::catch()?;
    let bars = MultiProgress::new();
    let mut followed: BTreeMap<DeviceId, Followed> = BTreeMap::new();
    let look = reader.look().await?;
    begin(&look, only, &mut followed, &bars)?;
    let mut look = look;
    let outcome = loop {
        for (id, one) in &mut followed {
            one.take(*id, &look);
        }
        if let Some(id) = followed.iter().find(|(_, one)| one.has_gone()).map(|(id, _)| *id) {
            let message = format!("device {id} went out, and did not return within {}", span(OUT_MAX));
            break Err(Failure::unreachable("device-out", message)
                .hint("its progress is kept; `braid status` shows why it is out"));
        }
        if followed.values().all(|one| one.ended.is_some()) {
            break Ok(());
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = signals.asked_to_end() => {
                let message = "interrupted: the rebuild continues without this command";
                break Err(Failure::failed("interrupted", message).hint("follow it again with `braid rebuild`"));
            }
        }
        look = reader.look().await?;
        if only.is_none() {
            // Other devices may have returned meanwhile.
            for (id, condition) in look.lacking().filter(|(_, condition)| condition.healing().is_some()) {
                let rebuild = matches!(condition, DeviceCondition::Rebuilding(_));
                followed.entry(id).or_insert_with(|| Followed::new(&bars, rebuild)).ended = None;
            }
        }
    };
    reader.leave();
    followed.values().for_each(|one| one.bar.finish_and_clear());
    outcome?;
    let names: BTreeMap<u64, &str> =
        look.description.volumes.iter().map(|volume| (volume.id, volume.name.as_str())).collect();
    output::print(
        as_json,
        || json!({"schema": 2, "devices": followed.iter().map(|(id, one)| one.json(*id, &names)).collect::<Vec<_>>()}),
        || followed.iter().map(|(id, one)| one.text(*id, &names)).collect(),
    );
    let lost = followed.values().any(|one| one.last.lost > 0);
    Ok(if lost { ExitCode::from(Exit::DataLost as u8) } else { ExitCode::SUCCESS })
}

/// Determines the devices to follow; fails if there are none.
fn begin(
    look: &ArraySnapshot,
    only: Option<DeviceId>,
    followed: &mut BTreeMap<DeviceId, Followed>,
    bars: &MultiProgress,
) -> Result<(), Failure> {
    if let Some(id) = only.filter(|id| !look.description.devices.iter().any(|entry| entry.id == id.0)) {
        return Err(Failure::unreachable("no-such-device", format!("the array has no device {id}")));
    }
    look.require_monitor()?;
    let mut idle = Vec::new();
    for (id, condition) in look.lacking().filter(|(id, _)| only.is_none_or(|only| only == *id)) {
        match condition {
            DeviceCondition::CatchingUp(_)
            | DeviceCondition::Rebuilding(_)
            | DeviceCondition::AwaitingDisk { .. }
            | DeviceCondition::Leaving => {
                let rebuild = !matches!(condition, DeviceCondition::CatchingUp(_));
                followed.insert(id, Followed::new(bars, rebuild));
            }
            other => idle.push(format!("device {id} is {}", other.words())),
        }
    }
    if !followed.is_empty() {
        return Ok(());
    }
    let nothing = |message: String| Failure::failed("nothing-to-rebuild", message);
    Err(match (only, idle.is_empty()) {
        (Some(id), true) => nothing(format!("nothing to rebuild: device {id} is up to date")),
        (None, true) => nothing("nothing to rebuild: all devices are up to date".to_string()),
        (_, false) => nothing(format!("nothing to rebuild now: {}", idle.join("; "))).hint(
            "a device that is out is resynchronised when it returns; `braid device replace` gives it another disk",
        ),
    })
}

impl Followed {
    fn new(bars: &MultiProgress, rebuild: bool) -> Followed {
        Followed {
            bar: bars.add(output::healing()),
            begun: Instant::now(),
            rebuild,
            first: None,
            last: Healing::default(),
            out: None,
            ended: None,
            lost: BTreeMap::new(),
        }
    }

    /// Takes the device's state from a snapshot.
    fn take(&mut self, id: DeviceId, look: &ArraySnapshot) {
        let condition = look.condition(id);
        for help in look
            .hosts
            .iter()
            .filter_map(|host| host.report.coordinates_recovery.as_ref())
            .filter(|help| help.device == id.0)
        {
            for (volume, ranges) in &help.lost {
                let known = self.lost.remove(volume).unwrap_or_default();
                self.lost.insert(*volume, merged(known.into_iter().chain(ranges.iter().copied())));
            }
        }
        self.rebuild |= matches!(condition, DeviceCondition::Rebuilding(_));
        if let Some(healing) = condition.healing() {
            if let Some(left) = healing.left {
                self.first.get_or_insert_with(|| healing.clone());
                self.bar.set_length(healing.done + left);
                self.bar.set_position(healing.done);
            }
            let lost = self.last.lost.max(healing.lost);
            self.last = Healing { lost, ..healing.clone() };
        }
        self.bar.set_message(format!("device {id}: {}", condition.words()));
        match condition {
            DeviceCondition::Healthy | DeviceCondition::DiskErrors { .. } | DeviceCondition::Silent => {
                self.ended.get_or_insert_with(Instant::now);
                if self.first.is_none() {
                    // It was in before its progress was known.
                    let healed = look.member_state(id).and_then(|report| report.healing.as_ref());
                    let done = healed.map_or(0, |healed| healed.done);
                    self.first = Some(Healing { left: Some(done), ..Healing::default() });
                }
                self.out = None;
            }
            DeviceCondition::Out { .. } | DeviceCondition::Refused(_) | DeviceCondition::Unavailable => {
                self.out.get_or_insert_with(Instant::now);
            }
            _ => self.out = None,
        }
    }

    fn has_gone(&self) -> bool {
        self.out.is_some_and(|since| since.elapsed() > OUT_MAX)
    }

    /// Bytes restored while it was followed.
    fn brought(&self) -> u64 {
        self.first.as_ref().and_then(|first| first.left).unwrap_or(0)
    }

    fn took(&self) -> Duration {
        self.ended.map_or(self.begun.elapsed(), |ended| ended - self.begun)
    }

    fn json(&self, id: DeviceId, names: &BTreeMap<u64, &str>) -> serde_json::Value {
        let lost = self.lost.iter().flat_map(|(volume, ranges)| {
            let name = names.get(volume);
            ranges.iter().map(move |range| json!({"volume": name, "offset": range.offset, "length": range.length}))
        });
        json!({
            "id": id.0,
            "rebuild": self.rebuild,
            "brought": self.brought(),
            "seconds": self.took().as_secs_f64(),
            "bytes_per_second": (self.brought() as f64 / self.took().as_secs_f64().max(0.001)) as u64,
            "lost_blocks": self.last.lost,
            "lost": lost.collect::<Vec<_>>(),
        })
    }

    fn text(&self, id: DeviceId, names: &BTreeMap<u64, &str>) -> String {
        let rate = (self.brought() as f64 / self.took().as_secs_f64().max(0.001)) as u64;
        let what = if self.rebuild { "is rebuilt, and in" } else { "is resynchronised, and in" };
        let (brought, took, rate) = (format_size(self.brought()), span(self.took()), format_size(rate));
        let mut text = format!("device {id} {what}: {brought} in {took} while it was followed ({rate}/s)\n");
        if self.last.lost > 0 {
            text += &format!(
                "{} blocks could not be reconstructed, because other blocks of their rows had checksum errors:\n",
                self.last.lost
            );
            for (volume, ranges) in &self.lost {
                let name = names.get(volume).unwrap_or(&"a volume that was deleted");
                for range in ranges.iter().take(NAMED) {
                    text += &format!("  {name}: bytes {} to {}\n", range.offset, range.offset + range.length - 1);
                }
            }
            text += "they can't be read until they are overwritten; all other blocks can\n";
        }
        text
    }
}
