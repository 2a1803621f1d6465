//! What the monitor knows of each device, and until when the device may serve.

use braid_base::limits::{self, Settings};
use braid_base::{DeviceId, DiskId, Epoch, FenceTable, Generation, Time};
use braid_wire::{HealingProgress, JoinRefused};
use std::collections::BTreeMap;
use std::time::Duration;

/// A lease runs this part of it longer at the monitor than at the device: clocks of different machines run at rates that differ by
/// less than that.
pub const LEASE_MARGIN: u32 = 10;

/// A device that is taken out again so soon after it came back has to wait longer the next time.
const STEADY: Duration = Duration::from_secs(60);

/// What the monitor knows of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceLease {
    /// Which device.
    pub device: DeviceId,
    /// When it was last heard; none if it never was since the monitor's start.
    pub heard: Option<Time>,
    /// The epoch that it lives by, as it last said; zero if it has not.
    pub epoch: Epoch,
    /// Until when its lease runs, by the monitor's clock; none if it has none.
    pub runs_until: Option<Time>,
    /// Its disk lives by this epoch, and this device has lived by a later one: so it is an older disk, or an empty one if that is
    /// zero. It is not let in.
    pub outdated: Option<Epoch>,
    /// How many slots of its disk can't be written, and whether it says that the disk is failing.
    pub bad_slots: u32,
    /// See there.
    pub failing: bool,
}

/// A device, as the monitor sees it.
#[derive(Clone, Debug)]
pub(crate) struct Device {
    pub said: Said,
    lease: Option<Lease>,
    /// Many hosts say that it does not answer them.
    pub suspected: bool,
    /// Its lease is not renewed: it is to be taken out, since hosts can't reach it.
    pub refused: bool,
    absence: Absence,
    /// Why what was last heard in its place may not serve.
    pub join_refused: Option<JoinRefused>,
    /// How far it is, as its recovery coordinator last said.
    pub progress: Option<HealingProgress>,
}

/// What a device has said of itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Said {
    /// When it last renewed.
    pub heard: Option<Time>,
    /// When it had sent that, by its own clock.
    sent: Time,
    /// The highest epoch that it said it lives by: durable there, so it never goes back.
    pub epoch: Epoch,
    /// Hosts kept out of that epoch of which it holds something undecided.
    undecided: Vec<Generation>,
    /// It lately said an earlier epoch than is on record: its disk is older, or empty. It lacks what nobody would bring it.
    pub outdated: Option<Epoch>,
    /// It is of no use: it hears nothing of what it is answered, or it fails.
    pub unable: bool,
    /// How many slots of its disk can't be written; and whether it says that the disk is about to fail. It serves on until the others can
    /// do without it.
    bad_slots: u32,
    pub failing: bool,
}

/// How long a device has to stay out.
#[derive(Clone, Copy, Debug)]
struct Absence {
    /// When it was taken out, and how long it has to stay out then.
    taken_out: Time,
    wait: Duration,
    /// When it last came back.
    came_back: Option<Time>,
}

/// What a device says of itself.
#[derive(Clone, Debug)]
pub(crate) struct Renewal {
    pub epoch: Epoch,
    pub sent: Time,
    pub disk: DiskId,
    pub unable: bool,
    pub bad_slots: u32,
    pub failing: bool,
    pub undecided: Vec<Generation>,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    /// It has run without interruption since then.
    since: Time,
    until: Time,
}

impl Device {
    /// One of which nothing is known.
    pub fn new(started: Time, settings: &Settings) -> Device {
        Device {
            said: Said::default(),
            lease: None,
            suspected: false,
            refused: false,
            absence: Absence { taken_out: started, wait: settings.readmission_min, came_back: None },
            join_refused: None,
            progress: None,
        }
    }

    /// True if this was sent before a renewal that has just been heard: the messages have overtaken each other. (After a machine's restart
    /// its clock begins anew, but a restart takes longer.)
    pub fn is_late(&self, now: Time, renewal: &Renewal, settings: &Settings) -> bool {
        renewal.sent < self.said.sent && self.was_heard_within(settings.heartbeat * 2, now)
    }

    /// It renews, by an epoch that may be earlier than it should be.
    pub fn hear(&mut self, now: Time, renewal: &Renewal, is_outdated: bool) {
        let said = &mut self.said;
        (said.sent, said.heard) = (renewal.sent, Some(now));
        (said.bad_slots, said.failing) = (renewal.bad_slots, renewal.failing);
        if renewal.epoch >= said.epoch {
            let most = renewal.undecided.len().min(limits::UNDECIDED_HOSTS_MAX);
            (said.epoch, said.undecided) = (renewal.epoch, renewal.undecided[..most].to_vec());
        }
        said.outdated = is_outdated.then_some(renewal.epoch);
    }

    /// True if it lives by `epoch` or a later one, and holds nothing undecided of those that are kept out by `fence`.
    pub fn has_done_with(&self, epoch: Epoch, fence: &FenceTable) -> bool {
        let all_are_named = self.said.undecided.len() < limits::UNDECIDED_HOSTS_MAX;
        self.said.epoch >= epoch && all_are_named && !self.said.undecided.iter().any(|host| fence.refuses(*host))
    }

    /// It may serve from now on for a lease's length, as far as it knows; counted longer here.
    pub fn grant(&mut self, now: Time, settings: &Settings) {
        let until = now.after(settings.device_lease + settings.device_lease / LEASE_MARGIN);
        let since = self.lease.filter(|lease| now < lease.until).map_or(now, |lease| lease.since);
        self.lease = Some(Lease { since, until });
    }

    /// True if it may be serving.
    pub fn may_serve(&self, now: Time) -> bool {
        self.lease.is_some_and(|lease| now < lease.until)
    }

    /// True if it is there, and has been for a while: others may rely on it. A monitor that has been cut off hears of one device
    /// after the other when that is over.
    pub fn is_steady(&self, now: Time, settings: &Settings) -> bool {
        let for_long = |lease: Lease| now.since(lease.since) >= settings.heartbeat * 2;
        let heard = self.is_able() && self.was_heard_within(settings.heartbeat * 4, now);
        heard && self.may_serve(now) && self.lease.is_some_and(for_long)
    }

    /// True if it can be let in, by what it has last said.
    fn is_able(&self) -> bool {
        self.said.outdated.is_none() && !self.said.unable
    }

    /// True if it renewed no longer ago.
    pub fn was_heard_within(&self, span: Duration, now: Time) -> bool {
        self.said.heard.is_some_and(|heard| now.since(heard) <= span)
    }

    /// When its lease runs out.
    pub fn lease_ends(&self) -> Option<Time> {
        self.lease.map(|lease| lease.until)
    }

    /// It has no lease (any longer), and gets none.
    pub fn take_out(&mut self, now: Time, settings: &Settings) {
        let absence = &mut self.absence;
        let soon = absence.came_back.is_some_and(|back| now.since(back) < STEADY);
        absence.wait = if soon { (absence.wait * 2).min(settings.readmission_max) } else { settings.readmission_min };
        absence.taken_out = now;
        self.lease = None;
        self.refused = false;
    }

    /// Another disk fills its slot from now on.
    pub fn forget_disk(&mut self) {
        self.said = Said { unable: self.said.unable, ..Said::default() };
        self.join_refused = None;
    }

    /// True if it has been out for so long, without a word or with a disk that fails, that a spare may take its slot.
    pub fn stays_out(&self, now: Time, settings: &Settings) -> bool {
        let is_gone = self.said.failing || !self.was_heard_within(settings.heartbeat * 4, now);
        now.since(self.absence.taken_out) >= settings.spare_after && is_gone
    }

    /// True if it may come back: that hosts reach it counts as much as that it is heard.
    pub fn may_return(&self, now: Time, settings: &Settings) -> bool {
        let heard = self.is_able()
            && !self.suspected
            && !self.said.failing
            && self.was_heard_within(settings.heartbeat * 2, now);
        heard && now >= self.absence.taken_out.after(self.absence.wait)
    }

    /// It is back. It has no lease yet, but the time to ask for one.
    pub fn come_back(&mut self, now: Time, settings: &Settings) {
        (self.absence.came_back, self.progress) = (Some(now), None);
        self.grant(now, settings);
    }

    /// True if it has, or may get, a lease.
    pub fn has_lease(&self) -> bool {
        self.lease.is_some()
    }
}

/// What is shown of them.
pub(crate) fn shown(devices: &BTreeMap<DeviceId, Device>, now: Time) -> impl Iterator<Item = DeviceLease> + '_ {
    devices.iter().map(move |(device, known)| DeviceLease {
        device: *device,
        heard: known.said.heard,
        epoch: known.said.epoch,
        runs_until: known.lease.map(|lease| lease.until).filter(|until| now < *until),
        outdated: known.said.outdated,
        bad_slots: known.said.bad_slots,
        failing: known.said.failing,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time(millis * 1_000_000)
    }

    #[test]
    fn a_lease_runs_a_tenth_longer_than_the_device_knows() {
        let settings = Settings::default();
        let mut device = Device::new(at(0), &settings);
        device.grant(at(1_000), &settings);
        assert!(device.may_serve(at(5_399)) && !device.may_serve(at(5_400)));
    }

    #[test]
    fn others_rely_on_a_device_that_has_been_heard_for_a_while_and_lately() {
        let settings = Settings::default();
        let mut device = Device::new(at(0), &settings);
        device.grant(at(0), &settings);
        assert!(!device.is_steady(at(1_000), &settings), "it was never heard");
        device.said.heard = Some(at(900));
        assert!(device.is_steady(at(1_000), &settings) && !device.is_steady(at(999), &settings));
        assert!(device.is_steady(at(2_900), &settings) && !device.is_steady(at(2_901), &settings));
        device.said.heard = Some(at(4_500));
        device.grant(at(4_500), &settings);
        assert!(!device.is_steady(at(4_600), &settings), "its lease had run out");
    }

    #[test]
    fn one_that_comes_and_goes_waits_longer_each_time() {
        let settings = Settings::default();
        let mut device = Device::new(at(0), &settings);
        let mut now = at(1_000_000);
        let mut waits = Vec::new();
        for _ in 0..9 {
            device.take_out(now, &settings);
            let taken_out = now;
            while !device.may_return(now, &settings) {
                now = now.after(Duration::from_millis(500));
                device.said.heard = Some(now);
            }
            waits.push(now.since(taken_out).as_secs());
            device.come_back(now, &settings);
            now = now.after(STEADY - Duration::from_secs(1));
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        now = now.after(Duration::from_secs(1));
        device.take_out(now, &settings);
        device.said.heard = Some(now.after(Duration::from_secs(1)));
        assert!(device.may_return(now.after(Duration::from_secs(1)), &settings), "it had stayed");
    }
}
