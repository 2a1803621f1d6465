//! A corruption reporter records in the event log the checksum errors that a host found or repaired, and the ranges that it could not
//! restore. The texts of the events are in `real/control/src/event_texts.rs`.

use braid_base::DeviceId;
use braid_control::{ByteRange, ControlError, ControlPlane, Event, EventKind, RecoveryReport, event_texts};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The minimal interval between two reports; what is found in between is reported together.
const TELL_EVERY: Duration = Duration::from_secs(5);
/// Ranges for which an event of their own is recorded.
const RANGES_TOLD: usize = 16;

/// What has been reported so far.
#[derive(Debug, Default)]
pub struct CorruptionReporter {
    /// Requests that found corrupt blocks, by the device of these.
    found: BTreeMap<DeviceId, u64>,
    repaired: u64,
    told: Option<Instant>,
    /// Lost ranges by volume, of the device that this host resynchronises.
    lost: BTreeMap<u64, Vec<ByteRange>>,
    helped: Option<u16>,
}

/// What has not been reported yet.
#[derive(Debug, Default)]
pub struct StatusDiff {
    /// Events about checksum errors.
    events: Vec<Event>,
    /// Lost ranges, with their volume and the device that is resynchronised.
    lost: Vec<(u64, u16, Vec<ByteRange>)>,
}

impl CorruptionReporter {
    /// Compares what the host has found, by device, and repaired with what was reported, and returns the difference.
    pub fn take(
        &mut self,
        found: BTreeMap<DeviceId, u64>,
        repaired: u64,
        coordinates_recovery: Option<&RecoveryReport>,
        now: Instant,
    ) -> StatusDiff {
        let mut diff = StatusDiff::default();
        let waits = self.told.is_some_and(|told| now - told < TELL_EVERY);
        if !waits && (&found, repaired) != (&self.found, self.repaired) {
            for (device, found) in &found {
                let more = found.saturating_sub(self.found.get(device).copied().unwrap_or_default());
                if more > 0 {
                    diff.events.push(event_texts::checksum_errors_found(device.0, more));
                }
            }
            if repaired > self.repaired {
                diff.events.push(event_texts::checksum_errors_repaired(repaired - self.repaired));
            }
            (self.found, self.repaired, self.told) = (found, repaired, Some(now));
        }
        let helped = coordinates_recovery.map(|help| help.device);
        if self.helped != helped {
            (self.helped, self.lost) = (helped, BTreeMap::new());
        }
        if let Some(help) = coordinates_recovery {
            for (volume, ranges) in &help.lost {
                let told = self.lost.entry(*volume).or_default();
                let new: Vec<ByteRange> = ranges.iter().filter(|range| !told.contains(range)).copied().collect();
                if !new.is_empty() {
                    *told = ranges.clone();
                    diff.lost.push((*volume, help.device, new));
                }
            }
        }
        diff
    }
}

impl StatusDiff {
    pub fn is_empty(&self) -> bool {
        self.events.is_empty() && self.lost.is_empty()
    }

    /// Appends the events to the log, and records the lost ranges.
    pub async fn tell(self, control: &ControlPlane) -> Result<(), ControlError> {
        control.record(self.events).await?;
        let description = control.describe().await?;
        for (volume, device, ranges) in self.lost {
            let name = description.volumes.iter().find(|entry| entry.id == volume).map(|entry| entry.name.clone());
            let name = match name {
                None => control.removed(EventKind::VolumeDeleted, volume).await?,
                name => name,
            };
            let told = |range: &ByteRange| {
                event_texts::range_not_restored(device, name.as_deref().unwrap_or_default(), *range)
            };
            let events = ranges.iter().take(RANGES_TOLD).map(told).collect();
            control.note_lost(volume, ranges).await?;
            control.record(events).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_corruption_is_reported_once_and_at_a_limited_rate() {
        let (mut corruption_reporter, begun) = (CorruptionReporter::default(), Instant::now());
        let mut take = |damaged, repaired, help: Option<&RecoveryReport>, seconds| {
            let found = [(DeviceId(1), damaged), (DeviceId(2), 1)].into_iter().filter(|_| damaged > 0).collect();
            corruption_reporter.take(found, repaired, help, begun + Duration::from_secs(seconds))
        };
        assert!(take(0, 0, None, 0).is_empty());
        let devices: Vec<_> = take(3, 1, None, 1).events.iter().map(|event| event.device).collect();
        assert_eq!(devices, [Some(1), Some(2), None]);
        assert!(take(4, 1, None, 2).is_empty(), "the interval has not passed");
        let later = take(5, 1, None, 7).events;
        assert_eq!((later.len(), later[0].figures["requests"]), (1, 2));
        let range = |offset| ByteRange { offset, length: 4096 };
        let lost = |ranges: &[ByteRange]| RecoveryReport { device: 2, left: None, lost: [(1, ranges.to_vec())].into() };
        assert_eq!(take(5, 1, Some(&lost(&[range(0)])), 8).lost, [(1, 2, vec![range(0)])]);
        assert!(take(5, 1, Some(&lost(&[range(0)])), 9).is_empty());
        assert_eq!(take(5, 1, Some(&lost(&[range(0), range(8192)])), 10).lost, [(1, 2, vec![range(8192)])]);
    }
}
