//! `braid scrub`: reads whole volumes, to find checksum errors before a block is needed.

use crate::report;
use braid_admin::device_condition::span;
use braid_admin::scrub::{ScrubOptions, ScrubProgress, Scrubbed};
use braid_admin::{Array, Exit, Failure};
use braid_base::BLOCK_BYTES;
use braid_base::units::format_size;
use braid_control::ByteRange;
use braid_terminal::{Common, Signals, output};
use indicatif::ProgressBar;
use serde_json::json;
use std::cell::RefCell;
use std::process::ExitCode;

/// Scrub volumes: read all blocks, and check checksums and redundancy
///
/// Reads every block of every device, while the volumes are in use. With --repair, blocks with checksum errors are reconstructed from the
/// rest of their stripe and rewritten. Blocks that can't be reconstructed are listed (volume, byte range); blocks around them stay
/// readable. Redundancy that does not match its data is listed. It is unknown which of the two is wrong: --recompute computes the
/// redundancy again from the data. Without a volume, all redundant volumes are scrubbed, one after the other.
///
/// If an interrupted scrub is started again with the same options, it continues where it stopped; --again starts from the beginning. A
/// scrub obeys the throttle of `braid rebuild --rate`. Ends with status 4 if an error was found and not repaired.
///
/// Examples: `braid scrub`, `braid scrub vol0 --repair`
#[derive(clap::Args)]
pub struct Arguments {
    /// The volume [default: all redundant volumes]
    volume: Option<String>,
    /// Repair blocks with checksum errors
    #[arg(long)]
    repair: bool,
    /// Compute redundancy again from the data where it does not match
    #[arg(long)]
    recompute: bool,
    /// Start from the beginning, even if the last scrub was interrupted
    #[arg(long)]
    again: bool,
    /// The maximal rate, such as 50MiB/s of the volume; the limit of `braid rebuild --rate` applies, too
    #[arg(long, value_parser = braid_terminal::arguments::rate)]
    rate: Option<u64>,
}

/// Ranges that are listed in text output.
const NAMED: usize = 16;

pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let Arguments { volume, repair, recompute, again, rate: bytes_per_second } = arguments;
    let options = ScrubOptions { repair, recompute, again, bytes_per_second };
    let mut signals = Signals::catch()?;
    let bars = Bars::default();
    let array = Array::of(common.control());
    let outcome = array.scrub(volume.as_deref(), options, |progress| bars.show(progress), signals.asked_to_end()).await;
    drop(bars);
    let (scrubbed, outcome) = outcome?;
    if outcome.is_ok() || !common.json {
        report::print(common.json, json!({"volumes": scrubbed.iter().map(json).collect::<Vec<_>>()}), || {
            scrubbed.iter().map(text).collect()
        });
    }
    outcome?;
    let sound = scrubbed.iter().all(Scrubbed::is_sound);
    let through = scrubbed.iter().all(|one| !one.interrupted);
    Ok(ExitCode::from(match (sound, through) {
        (false, _) => Exit::DataLost as u8,
        (true, false) => Exit::Interrupted as u8,
        (true, true) => 0,
    }))
}

/// Shows a progress bar for each volume, one after the other.
#[derive(Default)]
struct Bars(RefCell<Option<(String, ProgressBar)>>);

impl Bars {
    fn show(&self, progress: ScrubProgress) {
        let mut shown = self.0.borrow_mut();
        if let Some((_, bar)) = shown.as_ref().filter(|(name, _)| name == progress.volume) {
            return bar.set_position(progress.done);
        }
        let bar = output::bytes(progress.total, "scrubbed");
        bar.set_position(progress.done);
        bar.reset_eta();
        *shown = Some((progress.volume.to_string(), bar));
    }
}

fn json(one: &Scrubbed) -> serde_json::Value {
    json!({
        "volume": one.name,
        "stripes": one.record.stripes,
        "from_stripe": one.from,
        "next_stripe": one.record.next_stripe,
        "interrupted": one.interrupted,
        "sound": one.is_sound(),
        "seconds": one.took.as_secs_f64(),
        "found": one.record.found,
        "lost": one.record.lost,
    })
}

fn text(one: &Scrubbed) -> String {
    let Scrubbed { name, record, .. } = one;
    let found = &record.found;
    let bytes = (record.next_stripe - one.from) * one.volume.layout.stripe_blocks() * BLOCK_BYTES as u64;
    let rate = format_size((bytes as f64 / one.took.as_secs_f64().max(0.001)) as u64);
    let took = span(one.took);
    let from = if one.from > 0 { format!(", from stripe {} on", one.from) } else { String::new() };
    let mut text = format!("{name}: {} read in {took} ({rate}/s){from}: ", format_size(bytes));
    text += &format!("{}\n", one.words());
    let line = |range: &ByteRange| format!("  bytes {} to {}\n", range.offset, range.offset + range.length - 1);
    let ranges = |ranges: &[ByteRange]| {
        let named = ranges.iter().take(NAMED).map(line);
        let more = ranges.len().saturating_sub(NAMED);
        named.collect::<String>() + &if more > 0 { format!("  and {more} more\n") } else { String::new() }
    };
    if !record.lost.is_empty() {
        text += &format!("{name}: lost for good, until they are overwritten:\n{}", ranges(&record.lost));
    }
    if !found.mismatches.is_empty() {
        text += &format!(
            "{name}: redundancy does not match (use --recompute to compute it anew from the data):\n{}",
            ranges(&found.mismatches)
        );
    }
    if found.lost > found.repaired && !record.repair {
        text += &format!("{name}: run `braid scrub {name} --repair` to repair the blocks that can be reconstructed\n");
    }
    if one.interrupted {
        text += &format!(
            "{name}: interrupted after stripe {} of {}; the same command continues from there\n",
            record.next_stripe, record.stripes
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::{DeviceId, VolumeId};
    use braid_control::{ScrubFindings, ScrubRecord};
    use braid_layout::{Layout, RaidLevel, VolumeDescription};
    use std::time::Duration;

    fn scrubbed(record: ScrubRecord, interrupted: bool) -> Scrubbed {
        let layout = Layout::new(RaidLevel::Raid5 { data: 2 }, 3, 16).unwrap();
        let bytes = 10 * 2 * 16 * BLOCK_BYTES as u64;
        let volume = VolumeDescription::new(VolumeId(1), bytes, layout, (0..3).map(DeviceId).collect());
        Scrubbed { name: "vol0".into(), volume, record, from: 0, took: Duration::from_secs(2), interrupted }
    }

    #[test]
    fn a_report_names_what_is_amiss_and_what_to_do() {
        let record = ScrubRecord { next_stripe: 10, stripes: 10, ..ScrubRecord::default() };
        let sound = scrubbed(record.clone(), false);
        assert!(sound.is_sound());
        assert_eq!(text(&sound), "vol0: 1.2 MiB read in 2 s (640 KiB/s): no problems found\n");
        let range = |offset| ByteRange { offset, length: 4096 };
        let found = ScrubFindings { lost: 2, mismatched: 1, mismatches: vec![range(0)], ..record.found.clone() };
        let amiss = scrubbed(ScrubRecord { lost: vec![range(4096)], found, ..record }, true);
        let text = super::text(&amiss);
        assert!(!amiss.is_sound());
        for words in
            ["2 blocks had checksum errors", "bytes 4096 to 8191", "--repair", "--recompute", "continues from there"]
        {
            assert!(text.contains(words), "{words}: {text}");
        }
    }
}
