//! Scrubbing volumes: a scrub reads every block, to find checksum errors before the block is needed.
//! Checking a volume compares the parity of each stripe with its data, and repairs nothing.

use crate::array::Array;
use crate::failure::Failure;
use crate::volumes;
use braid_base::{BLOCK_BYTES, DeviceId, VolumeId};
use braid_control::{ByteRange, Event, ScrubFindings, ScrubRecord, VolumeState, event_texts, merged, unix_millis_now};
use braid_layout::VolumeDescription;
use braid_machine::{Found, HostError, HostSuccess, JobRequest, Patience, ScrubReport, VolumeRequest};
use braid_session::{SCRUB, Session, require_up};
use braid_shell::HostClient;
use futures_util::{FutureExt, StreamExt, stream};
use std::collections::BTreeSet;
use std::pin::pin;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubOptions {
    /// Repair blocks with checksum errors from the rest of their stripe.
    pub repair: bool,
    /// Compute redundancy anew where it does not match its data.
    pub recompute: bool,
    /// Start from the beginning, even if the last scrub was interrupted.
    pub again: bool,
    /// The most bytes of the volume to examine a second, in addition to the array's throttle; none or zero for no limit.
    pub bytes_per_second: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubProgress<'a> {
    pub volume: &'a str,
    /// Bytes examined so far, from the beginning of the volume.
    pub done: u64,
    /// Bytes of the volume.
    pub total: u64,
}

/// Bytes of a volume per request. Between two requests the volume may be put on hold, and the progress is recorded.
const AT_ONCE_BYTES: u64 = 8 << 20;
/// The interval at which progress is reported.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The interval at which progress is recorded.
const NOTE_EVERY: Duration = Duration::from_millis(500);
/// Ranges for which an event is recorded.
const NAMED: usize = 16;

/// The result for one volume.
#[derive(Clone, Debug)]
pub struct Scrubbed {
    pub name: String,
    pub volume: VolumeDescription,
    pub record: ScrubRecord,
    /// The first stripe that was examined.
    pub from: u64,
    pub took: Duration,
    /// True if it was stopped before the end.
    pub interrupted: bool,
}

impl Array {
    /// Scrubs a volume, or all redundant volumes one after the other, each from where its last scrub was interrupted. Ends early when
    /// `stop` completes. `progress` is called repeatedly. Returns the result for each volume, and the failure after these, if there was
    /// one. Errors before anything was examined: `no-such-volume`, `no-redundancy`, `nothing-to-scrub`, `not-up`.
    pub async fn scrub(
        &self,
        volume: Option<&str>,
        options: ScrubOptions,
        progress: impl Fn(ScrubProgress),
        stop: impl Future<Output = ()>,
    ) -> Result<(Vec<Scrubbed>, Result<(), Failure>), Failure> {
        let names = self.to_scrub(volume).await?;
        require_up(self.control()).await?;
        let stop = stop.shared();
        let session = Session::start(self.control(), SCRUB).await?;
        let mut scrubbed = Vec::new();
        let mut outcome = Ok(());
        for name in &names {
            match scrub(&session, name, options, &progress, &stop).await {
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

    async fn to_scrub(&self, volume: Option<&str>) -> Result<Vec<String>, Failure> {
        let description = self.control().describe().await?;
        let names: Vec<String> = match volume {
            Some(name) => {
                let volume = volumes::describe(volumes::find(&description, name)?)?;
                if volume.layout.redundancy_units() == 0 {
                    let message = format!("volume '{name}' has no redundancy to check or to repair from");
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
                .hint("`braid volume create --help` lists layouts"));
        }
        Ok(names)
    }
}

/// Scrubs one volume, from where the last scrub was interrupted.
async fn scrub(
    session: &Session,
    name: &str,
    options: ScrubOptions,
    progress: &impl Fn(ScrubProgress),
    stop: &(impl Future<Output = ()> + Clone),
) -> Result<Scrubbed, Failure> {
    let volume = session.take_in(name).await?;
    let (control, id, stripes) = (session.control(), volume.id, volume.stripes());
    let last = control.scrub(id.0).await?;
    let ScrubOptions { repair, recompute, again, bytes_per_second } = options;
    let goes_on = |last: &&ScrubRecord| {
        let same = (last.stripes, last.repair, last.recompute) == (stripes, repair, recompute);
        same && !again && last.ended.is_none() && last.next_stripe > 0
    };
    let begun = unix_millis_now();
    let lost = last.as_ref().map(|last| last.lost.clone()).unwrap_or_default();
    let mut record = match last.as_ref().filter(goes_on) {
        Some(last) => last.clone(),
        None => ScrubRecord { stripes, begun, repair, recompute, lost, ..ScrubRecord::default() },
    };
    let from = record.next_stripe;
    note(control.record(vec![event_texts::scrub_begun(name, from, stripes)]).await);
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
        let asked = JobRequest::Scrub { volume: id, stripes: some.clone(), repair, recompute };
        let answer = tokio::select! {
            answer = session.client().call(asked) => answer,
            loss = session.lost() => return Err(loss.into()),
            () = tell_progress(session, id, &told) => unreachable!("it never returns"),
            () = stop.clone() => {
                interrupted = true;
                continue;
            }
        };
        match answer {
            Ok(HostSuccess::Scrubbed(report)) => take(&mut record, &volume, some.clone(), report),
            Ok(_) => return Err(Failure::failed("internal", "the host gave an unexpected answer")),
            Err(error) => {
                note(control.note_scrub(id.0, record.clone()).await);
                return Err(Failure::from(error).hint("the findings so far are recorded: run it again to continue"));
            }
        }
        record.next_stripe = some.end;
        told(record.next_stripe);
        if noted.elapsed() >= NOTE_EVERY {
            control.note_scrub(id.0, record.clone()).await?;
            noted = Instant::now();
        }
        if let Some(rate) = rate {
            let looked_at = (record.next_stripe - from) * stripe_bytes;
            let due = started + Duration::from_secs_f64(looked_at as f64 / rate as f64);
            tokio::select! {
                () = tokio::time::sleep_until(due.into()) => {}
                () = stop.clone() => interrupted = record.next_stripe < stripes,
            }
        }
    }
    let now = session.take_in(name).await?;
    if (now.layout, &now.devices) != (volume.layout, &volume.devices) {
        // The volume has other stripes now.
        note(control.note_scrub(id.0, ScrubRecord { next_stripe: 0, ..record }).await);
        return Err(Failure::failed("volume-moved", "the volume was migrated meanwhile").hint("scrub it again"));
    }
    if !interrupted {
        record.ended = Some(unix_millis_now());
    }
    control.note_scrub(id.0, record.clone()).await?;
    let took = started.elapsed();
    let scrubbed = Scrubbed { name: name.to_string(), volume, record, from, took, interrupted };
    note(control.record(scrubbed.events()).await);
    Ok(scrubbed)
}

/// Reports the host's progress. Never returns.
async fn tell_progress(session: &Session, volume: VolumeId, told: &impl Fn(u64)) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if let Some(next) = session.scrubs(volume) {
            told(next);
        }
    }
}

/// Adds the findings in some stripes to the record. Ranges known to be lost there are replaced by the new findings.
fn take(record: &mut ScrubRecord, volume: &VolumeDescription, stripes: std::ops::Range<u64>, report: ScrubReport) {
    let found = &mut record.found;
    found.rows += report.rows;
    found.lost += report.lost;
    for (device, lost) in report.lost_of {
        *found.lost_of_device.entry(device.0).or_default() += lost;
    }
    found.repaired += report.repaired;
    found.unrepairable += report.unrepairable;
    found.mismatched += report.mismatched;
    found.recomputed += report.recomputed;
    found.skipped += report.skipped;
    let bytes = volume.layout.stripe_blocks() * BLOCK_BYTES as u64;
    let (first, end) = (stripes.start * bytes, stripes.end * bytes);
    let elsewhere = |range: &ByteRange| range.offset + range.length <= first || range.offset >= end;
    // Blocks that were skipped, or not to be repaired, may still be lost.
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

/// Logs a failure to write the record, which is no reason to stop.
fn note(written: Result<(), braid_control::ControlError>) {
    if let Err(error) = written {
        tracing::warn!("can't record the scrub's progress: {error}");
    }
}

impl Scrubbed {
    /// True if no problem is left in the part that was scrubbed.
    pub fn is_sound(&self) -> bool {
        let ScrubFindings { lost, repaired, mismatched, recomputed, .. } = self.record.found;
        lost == repaired && mismatched == recomputed && self.record.lost.is_empty()
    }

    pub fn words(&self) -> String {
        let found = &self.record.found;
        let mut parts = Vec::new();
        if found.lost > 0 {
            let of =
                found.lost_of_device.iter().map(|(device, lost)| format!("{lost} of device {}", DeviceId(*device)));
            let of = of.collect::<Vec<_>>().join(", ");
            let of = if of.is_empty() { of } else { format!(" ({of})") };
            parts.push(format!("{} blocks{of} had checksum errors, {} of them repaired", found.lost, found.repaired));
        }
        if found.mismatched > 0 {
            let (mismatched, recomputed) = (found.mismatched, found.recomputed);
            parts.push(format!("redundancy did not match {mismatched} times, and was recomputed {recomputed} times"));
        }
        if found.skipped > 0 {
            parts.push(format!("{} parts could not be checked, because devices are not in", found.skipped));
        }
        if parts.is_empty() { "no problems found".to_string() } else { parts.join("; ") }
    }

    fn events(&self) -> Vec<Event> {
        let (found, mut events) = (&self.record.found, Vec::new());
        for (device, lost) in &found.lost_of_device {
            events.push(event_texts::scrub_found_checksum_errors(&self.name, *device, *lost));
        }
        if found.repaired > 0 {
            events.push(event_texts::scrub_repaired_checksum_errors(&self.name, found.repaired));
        }
        for range in self.record.lost.iter().take(NAMED) {
            events.push(event_texts::scrub_found_lost_range(&self.name, *range));
        }
        let interrupted_after = self.interrupted.then_some(self.record.next_stripe);
        let seconds = self.took.as_secs();
        events.push(event_texts::scrub_ended(&self.name, interrupted_after, &self.words(), found, seconds));
        events
    }
}

/// Stripes checked concurrently.
const IN_FLIGHT: usize = 32;
/// Attempts per unit: a unit that differs from its stripe may have been written between the two reads.
const LOOKS: u32 = 5;

/// The result of checking a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    pub stripes: u64,
    /// Stripes whose parity and data differ.
    pub bad: Vec<u64>,
    /// Stripes with a damaged block, and the devices of those blocks.
    pub unreadable: Vec<u64>,
    pub damaged: BTreeSet<DeviceId>,
    /// The number of stripes that could not be checked because a device is not in.
    pub unchecked: u64,
    /// The devices that were missing for them.
    pub lacks: BTreeSet<DeviceId>,
}

impl Findings {
    /// True if every stripe that was checked is correct.
    pub fn is_sound(&self) -> bool {
        self.bad.is_empty() && self.unreadable.is_empty()
    }
}

impl Array {
    /// Compares the parity of every stripe of a volume with its data, while the volume is in use. With `reconstruct`, each unit is also
    /// reconstructed from the others of its stripe, and compared. `progress` is called with the number of stripes checked and their total.
    /// Errors: `no-such-volume`, `no-redundancy`, `not-up`.
    pub async fn check_volume(
        &self,
        name: &str,
        reconstruct: bool,
        progress: impl Fn(u64, u64),
    ) -> Result<Findings, Failure> {
        let description = self.control().describe().await?;
        let volume = volumes::describe(volumes::find(&description, name)?)?;
        if volume.layout.redundancy_units() == 0 {
            return Err(Failure::usage("no-redundancy", format!("volume '{name}' has no parity to check")));
        }
        self.with_host("volume check", async |session| check(session, name, reconstruct, progress).await).await
    }
}

#[derive(Clone, PartialEq, Eq)]
enum Finding {
    Good,
    Bad,
    Unreadable(DeviceId),
    /// These devices are out, or being resynchronised.
    Unchecked(Vec<DeviceId>),
}

async fn check(
    session: &Session,
    name: &str,
    reconstruct: bool,
    progress: impl Fn(u64, u64),
) -> Result<Findings, Failure> {
    let volume = session.take_in(name).await?;
    let stripes = volume.stripes();
    let mut found = Findings { stripes, ..Findings::default() };
    let look = |stripe| check_stripe(session.client(), &volume, stripe, reconstruct);
    let mut findings = pin!(stream::iter(0..stripes).map(look).buffered(IN_FLIGHT).zip(stream::iter(0..stripes)));
    while let Some((finding, stripe)) = findings.next().await {
        match finding? {
            Finding::Good => {}
            Finding::Bad => found.bad.push(stripe),
            Finding::Unreadable(device) => {
                found.unreadable.push(stripe);
                found.damaged.insert(device);
            }
            Finding::Unchecked(devices) => {
                found.unchecked += 1;
                found.lacks.extend(devices);
            }
        }
        progress(stripe + 1, stripes);
    }
    Ok(found)
}

async fn check_stripe(
    client: &HostClient,
    volume: &VolumeDescription,
    stripe: u64,
    reconstruct: bool,
) -> Result<Finding, HostError> {
    match is_consistent(client, volume, stripe, reconstruct).await {
        Ok(is_consistent) => Ok(if is_consistent { Finding::Good } else { Finding::Bad }),
        Err(HostError::Device { failure: braid_wire::Failure::Lost { .. }, device }) => Ok(Finding::Unreadable(device)),
        Err(HostError::Unavailable { devices }) => Ok(Finding::Unchecked(devices)),
        Err(other) => Err(other),
    }
}

async fn is_consistent(
    client: &HostClient,
    volume: &VolumeDescription,
    stripe: u64,
    reconstruct: bool,
) -> Result<bool, HostError> {
    let checked = client.call(JobRequest::Check { volume: volume.id, stripe }).await?;
    let matches = matches!(checked, HostSuccess::Checked { matches: true });
    if !matches || !reconstruct {
        return Ok(matches);
    }
    let block = BLOCK_BYTES as u64;
    let unit = volume.layout.unit_blocks() * block;
    let begin = stripe * volume.layout.stripe_blocks() * block;
    let end = (begin + volume.layout.stripe_blocks() * block).min(volume.bytes);
    for offset in (begin..end).step_by(unit as usize) {
        let (volume, length, patience) = (volume.id, unit.min(end - offset) as usize, Patience::Host);
        let mut looks = 0;
        loop {
            let rebuilt = content(client.call(JobRequest::Reconstruct { volume, offset, length }).await?);
            let there = content(client.call(VolumeRequest::Read { volume, offset, length, patience }).await?);
            if rebuilt == there {
                break;
            }
            looks += 1;
            if looks == LOOKS {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

fn content(success: HostSuccess) -> Vec<u8> {
    match success {
        HostSuccess::Data(parts) => parts.concat(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::DeviceId;
    use braid_layout::RaidLevel;
    use braid_machine::Finding;

    const STRIPE: u64 = 2 * 16 * BLOCK_BYTES as u64;

    fn volume() -> VolumeDescription {
        VolumeDescription { bytes: 10 * STRIPE, ..crate::health::tests::volume(RaidLevel::Raid5 { data: 2 }, 3) }
    }

    fn finding(found: Found, offset: u64) -> Finding {
        Finding { found, offset, length: 4096 }
    }

    #[test]
    fn losses_are_known_anew_where_a_scrub_looked_and_as_before_elsewhere() {
        let range = |offset| ByteRange { offset, length: 4096 };
        let before = vec![range(0), range(STRIPE + 8192), range(5 * STRIPE)];
        let mut record = ScrubRecord { repair: true, lost: before.clone(), ..ScrubRecord::default() };
        let found = vec![finding(Found::Lost, STRIPE), finding(Found::Mismatch, 2 * STRIPE)];
        let lost_of = [(DeviceId(1), 1), (DeviceId(2), 2)].into();
        let report =
            ScrubReport { lost: 3, lost_of, repaired: 1, unrepairable: 1, findings: found, ..Default::default() };
        take(&mut record, &volume(), 1..3, report.clone());
        assert_eq!(record.found.lost_of_device, [(1, 1), (2, 2)].into());
        assert_eq!(record.lost, [range(0), range(STRIPE), range(5 * STRIPE)]);
        assert_eq!((record.found.lost, record.found.mismatches.len()), (3, 1));
        take(&mut record, &volume(), 1..3, ScrubReport { skipped: 1, ..ScrubReport::default() });
        assert_eq!(record.lost.len(), 3, "blocks that were skipped may still be lost");
        let mut looking = ScrubRecord { lost: before, ..ScrubRecord::default() };
        take(&mut looking, &volume(), 0..10, ScrubReport::default());
        assert_eq!(looking.lost.len(), 3, "without repairing it can't tell whether they can be reconstructed");
    }
}
