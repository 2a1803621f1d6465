//! Scrubbing volumes: reading every block, to find checksum errors before a block is needed.

use crate::array::Array;
use crate::failure::Failure;
use crate::volumes;
use braid_base::{BLOCK_BYTES, VolumeId};
use braid_control::{ByteRange, Event, EventKind, ScrubFindings, ScrubRecord, VolumeState, merged};
use braid_layout::VolumeDescription;
use braid_machine::{Found, HostRequest, HostSuccess, ScrubReport};
use braid_session::{SCRUB, Session, require_up};
use std::pin::{Pin, pin};
use std::time::{Duration, Instant};

/// How to scrub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubOptions {
    /// Write again what is lost, where the rest of its stripe has it.
    pub repair: bool,
    /// Compute redundancy anew that does not match its data.
    pub recompute: bool,
    /// Begin anew, though the last scrub was interrupted.
    pub again: bool,
    /// Look at so many bytes of the volume a second at most, besides the throttle of the array; none or zero: no limit.
    pub bytes_per_second: Option<u64>,
}

/// How far a scrub is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubProgress<'a> {
    /// The volume.
    pub volume: &'a str,
    /// Bytes of it that were looked at, from its beginning on.
    pub done: u64,
    /// All of its bytes.
    pub total: u64,
}

/// Being asked to stop.
struct Stop<'a> {
    future: Pin<&'a mut dyn Future<Output = ()>>,
    asked: bool,
}

impl Stop<'_> {
    /// Ends when it is, or was.
    async fn asked(&mut self) {
        if !self.asked {
            (&mut self.future).await;
            self.asked = true;
        }
    }
}

/// Bytes of a volume that are asked for at once. In between, the volume may be on hold, and it is remembered how far it is.
const AT_ONCE_BYTES: u64 = 8 << 20;
/// How often progress is told.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often it is remembered how far it is.
const NOTE_EVERY: Duration = Duration::from_millis(500);
/// Ranges that are put on the log.
const NAMED: usize = 16;

/// What became of one volume.
#[derive(Clone, Debug)]
pub struct Scrubbed {
    /// Its name.
    pub name: String,
    /// The volume.
    pub volume: VolumeDescription,
    /// What is known of it now.
    pub record: ScrubRecord,
    /// The first stripe that was looked at.
    pub from: u64,
    /// How long it took.
    pub took: Duration,
    /// It was asked to stop before the end.
    pub interrupted: bool,
}

impl Array {
    /// Scrubs a volume, or all that have redundancy, one after the other, each from where its last scrub was interrupted. Ends early when
    /// `stop` does. `progress` is told how far it is. What became of each volume, and why the one after these failed, if one did. Errors
    /// before anything was looked at: `no-such-volume`, `no-redundancy`, `nothing-to-scrub`, `not-up`.
    pub async fn scrub(
        &self,
        volume: Option<&str>,
        options: ScrubOptions,
        progress: impl Fn(ScrubProgress),
        stop: impl Future<Output = ()>,
    ) -> Result<(Vec<Scrubbed>, Result<(), Failure>), Failure> {
        let names = self.to_scrub(volume)?;
        require_up(self.folder())?;
        let mut stop = Stop { future: pin!(stop), asked: false };
        let session = Session::start(self.folder(), SCRUB).await?;
        let mut scrubbed = Vec::new();
        let mut outcome = Ok(());
        for name in &names {
            match scrub(&session, name, options, &progress, &mut stop).await {
                Ok(one) => scrubbed.push(one),
                Err(failure) => outcome = Err(failure.of(format!("volume {name}"))),
            }
            if outcome.is_err() || scrubbed.last().is_some_and(|one| one.interrupted) {
                break;
            }
        }
        session.end().await;
        Ok((scrubbed, outcome))
    }

    fn to_scrub(&self, volume: Option<&str>) -> Result<Vec<String>, Failure> {
        let description = self.folder().describe()?;
        let names: Vec<String> = match volume {
            Some(name) => {
                let volume = volumes::describe(volumes::find(&description, name)?)?;
                if volume.layout.redundancy_units() == 0 {
                    let message =
                        format!("volume '{name}' has no redundancy that could be compared, or repair anything");
                    return Err(Failure::usage("no-redundancy", message));
                }
                vec![name.to_string()]
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
        Ok(names)
    }
}

/// Goes through one volume, from where it was left.
async fn scrub(
    session: &Session,
    name: &str,
    options: ScrubOptions,
    progress: &impl Fn(ScrubProgress),
    stop: &mut Stop<'_>,
) -> Result<Scrubbed, Failure> {
    let volume = session.take_in(name).await?;
    let (folder, id, stripes) = (session.folder(), volume.id, volume.stripes());
    let last = folder.scrub(id.0)?;
    let ScrubOptions { repair, recompute, again, bytes_per_second } = options;
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
    let total = stripes * stripe_bytes;
    let told = |stripe: u64| progress(ScrubProgress { volume: name, done: (stripe * stripe_bytes).min(total), total });
    told(from);
    let rate = bytes_per_second.filter(|rate| *rate > 0);
    let at_once = rate.map_or(AT_ONCE_BYTES, |rate| AT_ONCE_BYTES.min(rate / 4)).div_ceil(stripe_bytes).max(1);
    let started = Instant::now();
    let (mut interrupted, mut noted) = (false, started);
    while record.next_stripe < stripes && !interrupted {
        let some = record.next_stripe..stripes.min(record.next_stripe + at_once);
        let asked = HostRequest::Scrub { volume: id, stripes: some.clone(), repair, recompute };
        let answer = tokio::select! {
            answer = session.client().call(asked) => answer,
            loss = session.lost() => return Err(loss.into()),
            () = tell_progress(session, id, &told) => unreachable!("it never ends"),
            () = stop.asked() => {
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
        told(record.next_stripe);
        if noted.elapsed() >= NOTE_EVERY {
            folder.note_scrub(id.0, &record)?;
            noted = Instant::now();
        }
        if let Some(rate) = rate {
            let looked_at = (record.next_stripe - from) * stripe_bytes;
            let due = started + Duration::from_secs_f64(looked_at as f64 / rate as f64);
            tokio::select! {
                () = tokio::time::sleep_until(due.into()) => {}
                () = stop.asked() => interrupted = record.next_stripe < stripes,
            }
        }
    }
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

/// Tells how far the host is. Never ends.
async fn tell_progress(session: &Session, volume: VolumeId, told: &impl Fn(u64)) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if let Some(next) = session.scrubs(volume) {
            told(next);
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
    pub fn is_sound(&self) -> bool {
        let ScrubFindings { lost, repaired, mismatched, recomputed, .. } = self.record.found;
        lost == repaired && mismatched == recomputed && self.record.lost.is_empty()
    }

    /// What was found, in words.
    pub fn words(&self) -> String {
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
}
