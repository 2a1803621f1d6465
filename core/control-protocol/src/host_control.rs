//! The control part of a host: it follows the records of volumes, confirms their versions, and renews the host's lease with that. Whoever
//! drives it does one thing at a time, and then says how that went.
//!
//! ```text
//!   Wake ──► Read ──► Perform … ──► Renew ──► Wait ──► Wake        Stop: at a wake-up, or after a renewal
//! ```
//!
//! The lease is renewed in each round, whatever has failed before that.

use crate::follower::{Follower, HostStep};
use crate::record::{Version, VolumeRecord};
use braid_base::VolumeId;
use braid_host_leases::{LeaseTime, Renewer, RenewerInput, RenewerStep, StopReason};
use std::time::Duration;

/// The pause between rounds while users wait for a volume that is on hold.
const HOLD_HEARTBEAT: Duration = Duration::from_millis(25);

/// The control part of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostControl {
    follower: Follower,
    renewer: Renewer,
    /// The pause between other rounds.
    heartbeat: Duration,
    /// The last version that could be confirmed.
    confirmed: Version,
}

/// What its driver says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostEvent {
    /// The first round begins, or the pause is over. It may be shorter than was asked for.
    Wake,
    /// The pause is over, and a device or the monitor has told the host that it is fenced.
    Fenced,
    /// This version of the records was read. Those of volumes that hosts do not use may be missing.
    Read { version: Version, records: Vec<VolumeRecord> },
    /// The records could not be read.
    Unread,
    /// The host has performed the step.
    Did,
    /// The host has not answered: it may have performed the step, may do so before the next one, or never.
    Lost,
    /// How the renewal ended.
    Renewal(RenewerInput),
}

/// What its driver is to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostAction {
    /// Read the records.
    Read,
    /// Have the host perform this step, after all before it.
    Perform(HostStep),
    /// Renew the lease, made out at the time of this step, and confirm this version.
    Renew { confirmed: Version },
    /// Wake it after this pause.
    Wait(Duration),
    /// Stop the host: the array refuses it, or soon will.
    Stop(StopReason),
}

impl HostControl {
    /// The control part of a host that was started with the usable volumes of these records, which were read after its lease was taken.
    pub fn new(version: Version, records: &[VolumeRecord], renewer: Renewer, heartbeat: Duration) -> HostControl {
        HostControl { follower: Follower::new(version, records), renewer, heartbeat, confirmed: Version(0) }
    }

    /// The last version that was read, if the host has applied it.
    pub fn applied(&self) -> Option<Version> {
        self.follower.applied()
    }

    /// Takes what has happened. `is_idle` says whether the host has no operation under way on a volume.
    pub fn step(&mut self, now: &LeaseTime, event: HostEvent, is_idle: impl Fn(VolumeId) -> bool) -> HostAction {
        let step = match event {
            HostEvent::Wake => return HostAction::Read,
            HostEvent::Fenced => return self.keep(now, RenewerInput::Wake { is_fenced: true }),
            HostEvent::Renewal(end) => return self.keep(now, end),
            HostEvent::Read { version, records } => self.follower.follow(version, &records),
            HostEvent::Did => self.follower.did(),
            HostEvent::Unread => None,
            HostEvent::Lost => {
                self.follower.lost();
                None
            }
        };
        if let Some(step) = step {
            return HostAction::Perform(step);
        }
        self.confirmed = self.follower.confirmable(is_idle).unwrap_or(self.confirmed);
        self.keep(now, RenewerInput::Wake { is_fenced: false })
    }

    fn keep(&mut self, now: &LeaseTime, input: RenewerInput) -> HostAction {
        match self.renewer.step(now, input) {
            RenewerStep::Renew => HostAction::Renew { confirmed: self.confirmed },
            RenewerStep::Wait if self.follower.holds_any() => HostAction::Wait(HOLD_HEARTBEAT),
            RenewerStep::Wait => HostAction::Wait(self.heartbeat),
            RenewerStep::Stop(reason) => HostAction::Stop(reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Change, VolumeState};
    use braid_base::{DeviceId, Generation};
    use braid_layout::{Layout, RaidLevel, VolumeDescription};
    use braid_ordering::Ordering;

    const HEARTBEAT: Duration = Duration::from_millis(500);

    fn record(id: u64, is_held: bool) -> VolumeRecord {
        let layout = Layout::new(RaidLevel::Raid0 { data: 1 }, 1, 16).unwrap();
        let volume = VolumeDescription::new(VolumeId(id), 1 << 20, layout, vec![DeviceId(0)]);
        let to = Change::Ordering(Ordering::DeviceLock);
        let state = if is_held { VolumeState::Draining { to, by: Generation(9) } } else { VolumeState::Ready };
        VolumeRecord { volume, state, copied: None }
    }

    fn read(version: u64, records: &[VolumeRecord]) -> HostEvent {
        HostEvent::Read { version: Version(version), records: records.to_vec() }
    }

    #[test]
    fn a_lease_is_renewed_in_each_round_and_a_version_confirmed_when_all_of_its_steps_are_done() {
        let now = LeaseTime::default();
        let renewer = Renewer::new(now.clone(), HEARTBEAT);
        let mut control = HostControl::new(Version(1), &[record(1, false)], renewer, HEARTBEAT);
        let held = [record(1, true), record(2, true)];
        let holds = |id| HostAction::Perform(HostStep::Hold(VolumeId(id)));
        let renews = |version| HostAction::Renew { confirmed: Version(version) };
        let renewed = || HostEvent::Renewal(RenewerInput::Renewed);
        let waits = |millis| HostAction::Wait(Duration::from_millis(millis));
        let adopts = |id| HostAction::Perform(HostStep::Adopt(record(id, false).volume));
        let course = [
            (HostEvent::Wake, HostAction::Read),
            (HostEvent::Unread, renews(1)),
            (renewed(), waits(500)),
            (read(3, &held), holds(1)),
            (HostEvent::Did, holds(2)),
            (HostEvent::Lost, renews(1)),
            (renewed(), waits(25)),
            // Read before, and seen late: the hold of this version is not surely there.
            (read(2, &held), renews(1)),
            (renewed(), waits(25)),
            (read(3, &held), holds(1)),
            (HostEvent::Did, holds(2)),
            (HostEvent::Did, renews(3)),
            (renewed(), waits(25)),
            (read(4, &[record(1, false), record(2, false)]), adopts(1)),
            (HostEvent::Did, adopts(2)),
            (HostEvent::Lost, renews(3)),
            (renewed(), waits(25)),
            (read(5, &[record(1, false)]), HostAction::Perform(HostStep::Drop(VolumeId(2)))),
            (HostEvent::Did, renews(5)),
            (renewed(), waits(500)),
            (HostEvent::Fenced, HostAction::Stop(StopReason::Fenced)),
        ];
        for (event, action) in course {
            assert_eq!(control.step(&now, event.clone(), |_| true), action, "{event:?}");
        }
    }
}
