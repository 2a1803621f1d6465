//! `braid scrub`: goes through volumes, to find what has checksum errors before it is needed.

use braid_admin::device_condition::span;
use braid_admin::failure::{Exit, Failure};
use braid_admin::volumes;
use braid_base::units::format_size;
use braid_base::{BLOCK_BYTES, VolumeId};
use braid_control::{ByteRange, Event, EventKind, ScrubFindings, ScrubRecord, VolumeState, merged};
use braid_layout::VolumeDescription;
use braid_machine::{Found, HostRequest, HostSuccess, ScrubReport};
use braid_session::{SCRUB, Session, require_up};
use braid_terminal::Common;
use braid_terminal::Signals;
use braid_terminal::output;
use indicatif::ProgressBar;
use serde_json::json;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Go through volumes: are all blocks there, and does all redundancy match?
///
/// Reads every block of every device, while the volumes are in use. What has checksum errors is found by its checksum; with --repair it is worked
/// out from the rest of its stripe and written again. What can't be is named (volume, byte range), and stays readable around.
/// Redundancy that does not match its data is named, and with --recompute computed anew from the data: which of the two was wrong,
/// nobody can know. Without a volume: all that have redundancy, one after the other.
///
/// A scrub that was interrupted goes on where it was when it is asked for again with the same options; --again begins anew. It keeps to
/// the pace of `braid rebuild --rate`. Ends with status 4 if anything is amiss that was not repaired.
///
/// Examples: `braid scrub`, `braid scrub vol0 --repair`
#[derive(clap::Args)]
pub struct Arguments {
    /// Which volume; all of them if none is named
    volume: Option<String>,
    /// Write again what is lost
    #[arg(long)]
    repair: bool,
    /// Compute redundancy anew that does not match
    #[arg(long)]
    recompute: bool,
    /// Begin anew, though the last scrub was interrupted
    #[arg(long)]
    again: bool,
    /// Look at so much at most, such as 50MiB/s of the volume; besides what `braid rebuild --rate` says
    #[arg(long, value_parser = braid_terminal::arguments::rate)]
    rate: Option<u64>,
}

/// Bytes of a volume that are asked for at once. In between, the volume may be on hold, and it is remembered how far it is.
const AT_ONCE_BYTES: u64 = 8 << 20;
/// How often the bar moves.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often it is remembered how far it is.
const NOTE_EVERY: Duration = Duration::from_millis(500);
/// Ranges that are named to people.
const NAMED: usize = 16;

/// What became of one volume.
struct Scrubbed {
    name: String,
    volume: VolumeDescription,
    record: ScrubRecord,
    /// The first stripe that this command looked at.
    from: u64,
    took: Duration,
    interrupted: bool,
}

/// Goes through them, and says what was found.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let folder = common.folder();
    let description = folder.describe()?;
    let names: Vec<String> = match &arguments.volume {
        Some(name) => {
            let volume = volumes::describe(volumes::find(&description, name)?)?;
            if volume.layout.redundancy_units() == 0 {
                let message = format!("volume '{name}' has no redundancy that could be compared, or repair anything");
                return Err(Failure::usage("no-redundancy", message));
            }
            vec![name.clone()]
        }
        None => {
            let usable = description.volumes.iter().filter(|entry| entry.state == VolumeState::Ready);
            let redundant = usable
                .filter(|entry| volumes::describe(entry).is_ok_and(|volume| volume.layout.redundancy_units() > 0));
            redundant.map(|entry| entry.name.clone()).collect()
        }
    };
    if names.is_empty() {
        return Err(Failure::failed("nothing-to-scrub", "the array has no volume with redundancy")
            .hint("`braid volume create --help` tells of layouts"));
    }
    require_up(&folder)?;
    let mut signals = Signals::catch()?;
    let session = Session::start(&folder, SCRUB).await?;
    let mut scrubbed = Vec::new();
    let mut outcome = Ok(());
    for name in &names {
        match scrub(&session, name, &arguments, &mut signals).await {
            Ok(one) => scrubbed.push(one),
            Err(failure) => outcome = Err(failure.of(format!("volume {name}"))),
        }
        if outcome.is_err() || scrubbed.last().is_some_and(|one| one.interrupted) {
            break;
        }
    }
    session.end().await;
    if outcome.is_ok() || !common.json {
        output::print(
            common.json,
            || json!({"schema": 1, "volumes": scrubbed.iter().map(Scrubbed::json).collect::<Vec<_>>()}),
            || scrubbed.iter().map(Scrubbed::text).collect(),
        );
    }
    outcome?;
    let sound = scrubbed.iter().all(Scrubbed::is_sound);
    let through = scrubbed.iter().all(|one| !one.interrupted);
    Ok(ExitCode::from(match (sound, through) {
        (false, _) => Exit::DataLost as u8,
        (true, false) => Exit::Failed as u8,
        (true, true) => 0,
    }))
}

/// Goes through one volume, from where it was left.
async fn scrub(
    session: &Session,
    name: &str,
    arguments: &Arguments,
    signals: &mut Signals,
) -> Result<Scrubbed, Failure> {
    let volume = session.take_in(name).await?;
    let (folder, id, stripes) = (session.folder(), volume.id, volume.stripes());
    let last = folder.scrub(id.0)?;
    let Arguments { repair, recompute, again, .. } = *arguments;
    let goes_on = |last: &&ScrubRecord| {
        let same = (last.stripes, last.repair, last.recompute) == (stripes, repair, recompute);
        same && !again && last.ended.is_none() && last.next_stripe > 0
    };
    let begun = Event::now(EventKind::Other, "").unix_millis;
    let lost = last.as_ref().map(|last| last.lost.clone()).unwrap_or_default();
    let mut record = match last.as_ref().filter(goes_on) {
        Some(last) => last.clone(),
        None => ScrubRecord { stripes, begun, repair, recompute, lost, ..ScrubRecord::default() },
    };
    let from = record.next_stripe;
    let event = |kind, words: String| Event::now(kind, words).of_volume(name);
    let words = match from {
        0 => "a scrub begins".to_string(),
        from => format!("a scrub goes on with stripe {from} of {stripes}"),
    };
    note(folder.record_event(&event(EventKind::ScrubBegun, words)));
    let stripe_bytes = volume.layout.stripe_blocks() * BLOCK_BYTES as u64;
    let bar = output::bytes(stripes * stripe_bytes, "scrubbed");
    bar.set_position(from * stripe_bytes);
    bar.reset_eta();
    let rate = arguments.rate.filter(|rate| *rate > 0);
    let at_once = rate.map_or(AT_ONCE_BYTES, |rate| AT_ONCE_BYTES.min(rate / 4)).div_ceil(stripe_bytes).max(1);
    let started = Instant::now();
    let (mut interrupted, mut noted) = (false, started);
    while record.next_stripe < stripes && !interrupted {
        let some = record.next_stripe..stripes.min(record.next_stripe + at_once);
        let asked = HostRequest::Scrub { volume: id, stripes: some.clone(), repair, recompute };
        let answer = tokio::select! {
            answer = session.client().call(asked) => answer,
            loss = session.lost() => return Err(loss.into()),
            () = show(session, id, stripe_bytes, &bar) => unreachable!("it never ends"),
            () = signals.asked_to_end() => {
                interrupted = true;
                continue;
            }
        };
        match answer {
            Ok(HostSuccess::Scrubbed(report)) => take(&mut record, &volume, some.clone(), report),
            Ok(_) => return Err(Failure::failed("internal", "the host answered something else")),
            Err(error) => {
                note(folder.note_scrub(id.0, &record));
                return Err(Failure::from(error).hint("what was found so far is remembered: ask again to go on"));
            }
        }
        record.next_stripe = some.end;
        bar.set_position(record.next_stripe * stripe_bytes);
        if noted.elapsed() >= NOTE_EVERY {
            folder.note_scrub(id.0, &record)?;
            noted = Instant::now();
        }
        if let Some(rate) = rate {
            let looked_at = (record.next_stripe - from) * stripe_bytes;
            let due = started + Duration::from_secs_f64(looked_at as f64 / rate as f64);
            tokio::select! {
                () = tokio::time::sleep_until(due.into()) => {}
                () = signals.asked_to_end() => interrupted = record.next_stripe < stripes,
            }
        }
    }
    bar.finish_and_clear();
    let now = session.take_in(name).await?;
    if (now.layout, &now.devices) != (volume.layout, &volume.devices) {
        // Its stripes are others now.
        note(folder.note_scrub(id.0, &ScrubRecord { next_stripe: 0, ..record }));
        return Err(Failure::failed("volume-moved", "the volume was moved meanwhile").hint("scrub it again"));
    }
    let ended = event(EventKind::ScrubEnded, String::new());
    if !interrupted {
        record.ended = Some(ended.unix_millis);
    }
    folder.note_scrub(id.0, &record)?;
    let took = started.elapsed();
    let scrubbed = Scrubbed { name: name.to_string(), volume, record, from, took, interrupted };
    scrubbed.tell(|event| note(folder.record_event(&event)));
    Ok(scrubbed)
}

/// Moves the bar on. Never ends.
async fn show(session: &Session, volume: VolumeId, stripe_bytes: u64, bar: &ProgressBar) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if let Some(next) = session.scrubs(volume) {
            bar.set_position((next * stripe_bytes).min(bar.length().unwrap_or(u64::MAX)));
        }
    }
}

/// Adds what was found in some stripes. What was known to be lost there before is known anew now.
fn take(record: &mut ScrubRecord, volume: &VolumeDescription, stripes: std::ops::Range<u64>, report: ScrubReport) {
    let found = &mut record.found;
    found.rows += report.rows;
    found.lost += report.lost;
    found.repaired += report.repaired;
    found.unrepairable += report.unrepairable;
    found.mismatched += report.mismatched;
    found.recomputed += report.recomputed;
    found.skipped += report.skipped;
    let bytes = volume.layout.stripe_blocks() * BLOCK_BYTES as u64;
    let (first, end) = (stripes.start * bytes, stripes.end * bytes);
    let elsewhere = |range: &ByteRange| range.offset + range.length <= first || range.offset >= end;
    // What could not be looked at, or was not to be repaired, may still be lost.
    let is_sure = record.repair && report.skipped == 0;
    let before = std::mem::take(&mut record.lost);
    let (mut lost, mut mismatches) = (Vec::new(), std::mem::take(&mut found.mismatches));
    for finding in report.findings {
        let range = ByteRange { offset: finding.offset, length: finding.length };
        match finding.found {
            Found::Lost => lost.push(range),
            Found::Mismatch if record.recompute => {}
            Found::Mismatch => mismatches.push(range),
        }
    }
    let kept = before.into_iter().filter(|range| !is_sure || elsewhere(range));
    record.lost = merged(kept.chain(lost));
    record.found.mismatches = merged(mismatches.into_iter());
}

/// What can't be written down is no reason to stop.
fn note(written: Result<(), braid_control::ControlError>) {
    if let Err(error) = written {
        tracing::warn!("can't remember it: {error}");
    }
}

impl Scrubbed {
    /// True if nothing is amiss any more, as far as it has come.
    fn is_sound(&self) -> bool {
        let ScrubFindings { lost, repaired, mismatched, recomputed, .. } = self.record.found;
        lost == repaired && mismatched == recomputed && self.record.lost.is_empty()
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "volume": self.name,
            "stripes": self.record.stripes,
            "from_stripe": self.from,
            "next_stripe": self.record.next_stripe,
            "interrupted": self.interrupted,
            "sound": self.is_sound(),
            "seconds": self.took.as_secs_f64(),
            "found": self.record.found,
            "lost": self.record.lost,
        })
    }

    fn text(&self) -> String {
        let Scrubbed { name, record, .. } = self;
        let found = &record.found;
        let bytes = (record.next_stripe - self.from) * self.volume.layout.stripe_blocks() * BLOCK_BYTES as u64;
        let rate = format_size((bytes as f64 / self.took.as_secs_f64().max(0.001)) as u64);
        let took = span(self.took);
        let from = if self.from > 0 { format!(", from stripe {} on", self.from) } else { String::new() };
        let mut text = format!("{name}: {} looked at in {took} ({rate}/s){from}: ", format_size(bytes));
        text += &format!("{}\n", self.words());
        let ranges = |ranges: &[ByteRange]| {
            let named = ranges
                .iter()
                .take(NAMED)
                .map(|range| format!("  bytes {} to {}\n", range.offset, range.offset + range.length - 1));
            let more = ranges.len().saturating_sub(NAMED);
            named.collect::<String>() + &if more > 0 { format!("  and {more} more\n") } else { String::new() }
        };
        if !record.lost.is_empty() {
            text += &format!("{name}: lost for good, until they are written anew:\n{}", ranges(&record.lost));
        }
        if !found.mismatches.is_empty() {
            text += &format!(
                "{name}: redundancy does not match (--recompute computes it anew from the data):\n{}",
                ranges(&found.mismatches)
            );
        }
        if found.lost > found.repaired && !record.repair {
            text += &format!("{name}: `braid scrub {name} --repair` writes again what can be worked out\n");
        }
        if self.interrupted {
            text += &format!(
                "{name}: interrupted after stripe {} of {}; the same command goes on from there\n",
                record.next_stripe, record.stripes
            );
        }
        text
    }

    /// What was found, in words.
    fn words(&self) -> String {
        let found = &self.record.found;
        let mut parts = Vec::new();
        if found.lost > 0 {
            parts.push(format!("{} blocks had checksum errors, {} of them repaired", found.lost, found.repaired));
        }
        if found.mismatched > 0 {
            let (mismatched, recomputed) = (found.mismatched, found.recomputed);
            parts
                .push(format!("redundancy did not match {mismatched} times, and was computed anew {recomputed} times"));
        }
        if found.skipped > 0 {
            parts.push(format!("{} parts could not be checked, since devices are not in", found.skipped));
        }
        if parts.is_empty() { "nothing amiss".to_string() } else { parts.join("; ") }
    }

    /// Puts it on the log.
    fn tell(&self, mut record: impl FnMut(Event)) {
        let found = &self.record.found;
        let event = |kind, words: String| Event::now(kind, words).of_volume(&self.name);
        if found.lost > 0 {
            let words = format!("a scrub found {} blocks with checksum errors", found.lost);
            record(event(EventKind::ChecksumErrorFound, words).with("blocks", found.lost));
        }
        if found.repaired > 0 {
            let words = format!("a scrub wrote {} blocks again that had checksum errors", found.repaired);
            record(event(EventKind::ChecksumErrorRepaired, words).with("blocks", found.repaired));
        }
        for range in self.record.lost.iter().take(NAMED) {
            let words = format!("bytes {} to {} are lost", range.offset, range.offset + range.length - 1);
            let lost = event(EventKind::DataLost, words);
            record(lost.with("offset", range.offset).with("length", range.length));
        }
        let words = match self.interrupted {
            true => format!("a scrub was interrupted after stripe {}: {}", self.record.next_stripe, self.words()),
            false => format!("a scrub has ended: {}", self.words()),
        };
        let ended = event(EventKind::ScrubEnded, words).with("seconds", self.took.as_secs());
        record(
            ended.with("corrupted", found.lost).with("repaired", found.repaired).with("mismatched", found.mismatched),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::DeviceId;
    use braid_layout::{Atomicity, Layout, Scheme};
    use braid_machine::Finding;
    use braid_wire::Ordering;

    const STRIPE: u64 = 2 * 16 * BLOCK_BYTES as u64;

    fn volume() -> VolumeDescription {
        VolumeDescription {
            id: VolumeId(1),
            bytes: 10 * STRIPE,
            layout: Layout::new(Scheme::Raid5 { data: 2 }, 3, 16).unwrap(),
            devices: (0..3).map(DeviceId).collect(),
            ordering: Ordering::Timestamp,
            atomicity: Atomicity::Implied,
            moving: None,
        }
    }

    fn finding(found: Found, offset: u64) -> Finding {
        Finding { found, offset, length: 4096 }
    }

    #[test]
    fn what_a_scrub_looked_at_is_known_anew_and_the_rest_as_before() {
        let range = |offset| ByteRange { offset, length: 4096 };
        let before = vec![range(0), range(STRIPE + 8192), range(5 * STRIPE)];
        let mut record = ScrubRecord { repair: true, lost: before.clone(), ..ScrubRecord::default() };
        let found = vec![finding(Found::Lost, STRIPE), finding(Found::Mismatch, 2 * STRIPE)];
        let report = ScrubReport { lost: 3, repaired: 1, unrepairable: 1, findings: found, ..ScrubReport::default() };
        take(&mut record, &volume(), 1..3, report.clone());
        assert_eq!(record.lost, [range(0), range(STRIPE), range(5 * STRIPE)]);
        assert_eq!((record.found.lost, record.found.mismatches.len()), (3, 1));
        take(&mut record, &volume(), 1..3, ScrubReport { skipped: 1, ..ScrubReport::default() });
        assert_eq!(record.lost.len(), 3, "what could not be looked at may still be lost");
        let mut looking = ScrubRecord { lost: before, ..ScrubRecord::default() };
        take(&mut looking, &volume(), 0..10, ScrubReport::default());
        assert_eq!(looking.lost.len(), 3, "nor did it find out without repairing");
    }

    #[test]
    fn a_report_names_what_is_amiss_and_what_to_do() {
        let mut record = ScrubRecord { next_stripe: 10, stripes: 10, ..ScrubRecord::default() };
        let scrubbed = |record: &ScrubRecord, interrupted| Scrubbed {
            name: "vol0".into(),
            volume: volume(),
            record: record.clone(),
            from: 0,
            took: Duration::from_secs(2),
            interrupted,
        };
        let sound = scrubbed(&record, false);
        assert!(sound.is_sound());
        assert_eq!(sound.text(), "vol0: 1.2 MiB looked at in 2 s (640 KiB/s): nothing amiss\n");
        take(
            &mut record,
            &volume(),
            0..1,
            ScrubReport {
                lost: 2,
                mismatched: 1,
                findings: vec![finding(Found::Lost, 4096), finding(Found::Mismatch, 0)],
                ..ScrubReport::default()
            },
        );
        let amiss = scrubbed(&record, true);
        let text = amiss.text();
        assert!(!amiss.is_sound());
        for words in
            ["2 blocks had checksum errors", "bytes 4096 to 8191", "--repair", "--recompute", "goes on from there"]
        {
            assert!(text.contains(words), "{words}: {text}");
        }
    }
}
