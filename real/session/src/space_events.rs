//! A space reporter records in the event log that requests were refused for want of space: for each volume, device or file system once a minute
//! at most. The text of the event is in `real/control/src/event_texts.rs`.

use braid_base::FileSystemId;
use braid_control::{ControlError, ControlPlane, Event, EventKind, event_texts, unix_millis_now};
use braid_host::Short;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The interval of reports on the same part of the array; what is refused in between is reported together.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// A part of the array that has no space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Full {
    Of(Short),
    FileSystem(FileSystemId),
}

/// What has been reported so far.
#[derive(Debug, Default)]
pub struct SpaceReporter {
    told: BTreeMap<Full, (u64, Instant)>,
}

impl SpaceReporter {
    /// What is to be reported now: the parts of the array that refused requests, with the number of these since the last report.
    pub fn take(&mut self, refused: impl IntoIterator<Item = (Full, u64)>, now: Instant) -> Vec<(Full, u64)> {
        let mut diff = Vec::new();
        for (full, count) in refused {
            let told = self.told.get(&full);
            let (before, waits) = told.map_or((0, false), |(count, at)| (*count, now.duration_since(*at) < TELL_EVERY));
            if count > before && !waits {
                diff.push((full, count - before));
                self.told.insert(full, (count, now));
            }
        }
        diff
    }
}

/// Appends the events to the log, unless another host has done that within the interval.
pub async fn tell(control: &ControlPlane, diff: Vec<(Full, u64)>) -> Result<(), ControlError> {
    let description = control.describe().await?;
    let since = unix_millis_now().saturating_sub(TELL_EVERY.as_millis() as u64);
    let mut lately = control.latest_events().await?;
    lately.retain(|event| event.kind == EventKind::SpaceRefused && event.unix_millis >= since);
    let mut events = Vec::new();
    for (full, requests) in diff {
        let event = match full {
            Full::Of(Short::Device(device)) => event_texts::device_full(device.0, requests),
            Full::Of(Short::Volume(volume)) => {
                let Some(entry) = description.volumes.iter().find(|entry| entry.id == volume.0) else { continue };
                event_texts::volume_full(&entry.name, entry.attribute_volume, requests)
            }
            Full::FileSystem(id) => {
                let is_served_by = |entry: &&braid_control::FileSystemEntry| entry.servers().contains(&id);
                let Some(entry) = description.file_systems.iter().find(is_served_by) else { continue };
                event_texts::file_system_full(&entry.name, requests)
            }
        };
        let is_same =
            |other: &Event| (&other.volume, other.device, &other.text) == (&event.volume, event.device, &event.text);
        if !lately.iter().any(is_same) {
            events.push(event);
        }
    }
    control.record(events).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::{DeviceId, VolumeId};

    #[test]
    fn want_of_space_is_reported_once_a_minute_for_each_volume() {
        let (mut reporter, begun) = (SpaceReporter::default(), Instant::now());
        let [one, two] = [Short::Volume(VolumeId(1)), Short::Device(DeviceId(2))].map(Full::Of);
        let mut take = |refused: &[(Full, u64)], seconds| {
            reporter.take(refused.iter().copied(), begun + Duration::from_secs(seconds))
        };
        assert_eq!(take(&[], 0), []);
        assert_eq!(take(&[(one, 3)], 1), [(one, 3)]);
        assert_eq!(take(&[(one, 9), (two, 1)], 50), [(two, 1)], "the minute of the first one is not over");
        assert_eq!(take(&[(one, 9), (two, 1)], 61), [(one, 6)]);
        assert_eq!(take(&[(one, 9), (two, 1)], 200), []);
    }
}
