//! The monitor's data on each device: its reports, and its lease.

use crate::flapping::Outages;
use braid_base::limits::{self, Settings};
use braid_base::{DeviceId, DiskId, Epoch, FenceTable, Generation, Level, Time};
use braid_wire::{HealingProgress, Holder, JoinRefused};
use std::collections::BTreeMap;
use std::time::Duration;

/// A lease runs longer at the monitor than at the device by its length divided by this: the clock rates of different machines differ by
/// less than that.
pub const LEASE_MARGIN: u32 = 10;

/// The state of a device, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceLease {
    pub device: DeviceId,
    /// When it was last heard; none if not since the monitor's start.
    pub heard: Option<Time>,
    /// Its epoch, as it last reported; zero if it has not.
    pub epoch: Epoch,
    /// When its lease expires, by the monitor's clock; none if it has no lease.
    pub runs_until: Option<Time>,
    /// Its disk has this epoch, but the device once had a later one: so the disk is an older copy, or an empty one if the epoch is zero. It
    /// is not let in.
    pub outdated: Option<Epoch>,
    /// It names this epoch, which the array has not had. It is not let in.
    pub ahead: Option<Epoch>,
    /// How many slots of its disk cannot be written.
    pub bad_slots: u32,
    /// The device reports that its disk is failing.
    pub failing: bool,
    /// How often it went out in a row, each time soon after its return; zero if it has not lately.
    pub outages: u32,
    /// Until then it has to stay out because of that; none if it may return.
    pub stays_out_until: Option<Time>,
}

/// The monitor's state of a device.
#[derive(Clone, Debug, Default)]
pub(crate) struct Device {
    pub last_report: LastReport,
    lease: Option<Lease>,
    /// The process that was last granted one, and until when that may run. A monitor that starts does not know the process.
    holder: Option<u64>,
    held_until: Time,
    /// At least half of the hosts report that they cannot reach it.
    pub suspected: bool,
    /// Its lease is not extended: it is to be marked out, since hosts cannot reach it or its disk is failing.
    pub refused: bool,
    outages: Outages,
    /// Why the disk that was last heard in its slot may not serve.
    pub join_refused: Option<JoinRefused>,
    /// The epoch that it last named, and when, if the record does not know that epoch.
    pub ahead: Option<(Epoch, Time)>,
    /// Its progress, as its recovery coordinator last reported it.
    pub progress: Option<HealingProgress>,
}

/// What a device has reported of itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastReport {
    /// When it last asked for a lease, by the monitor's clock.
    pub heard: Option<Time>,
    /// When it sent that request, by its own clock.
    sent: Time,
    /// The highest epoch that it reported. The device has it durably, so this never goes back.
    pub epoch: Epoch,
    /// Hosts fenced in that epoch of which it holds undecided intents.
    undecided: Vec<Generation>,
    /// Its last report named an earlier epoch than the record has for it: its disk is an older copy, or empty, and no device would
    /// resynchronise what it lacks.
    pub outdated: Option<Epoch>,
    /// It cannot serve: it does not receive the monitor's answers, or its disk commands fail.
    pub unable: bool,
    /// How many slots of its disk cannot be written, and whether it reports that the disk is about to fail. It continues to serve until the
    /// others can serve without it.
    bad_slots: u32,
    pub failing: bool,
    /// The highest level that its program knows.
    pub knows: Level,
}

/// A device's request for a lease, with its report.
#[derive(Clone, Debug)]
pub(crate) struct Renewal {
    pub epoch: Epoch,
    pub sent: Time,
    pub disk: DiskId,
    pub unable: bool,
    pub bad_slots: u32,
    pub failing: bool,
    pub undecided: Vec<Generation>,
    pub knows: Level,
    pub holder: Option<Holder>,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    /// The start of the uninterrupted series of leases.
    since: Time,
    until: Time,
}

impl Device {
    /// A device that has not been heard.
    pub fn new(started: Time, settings: &Settings) -> Device {
        Device { outages: Outages::none(started, settings), ..Device::default() }
    }

    /// True if this request was sent before one that was received shortly ago: the messages were reordered. (A device's clock restarts with
    /// its machine, but that takes longer.)
    pub fn is_late(&self, now: Time, renewal: &Renewal, settings: &Settings) -> bool {
        renewal.sent < self.last_report.sent && self.was_heard_within(settings.heartbeat * 2, now)
    }

    /// Notes a request for a lease. `is_outdated`: its epoch is earlier than the record allows.
    pub fn hear(&mut self, now: Time, renewal: &Renewal, is_outdated: bool) {
        self.ahead = None;
        let last_report = &mut self.last_report;
        (last_report.sent, last_report.heard) = (renewal.sent, Some(now));
        (last_report.bad_slots, last_report.failing) = (renewal.bad_slots, renewal.failing);
        last_report.knows = renewal.knows;
        if renewal.epoch >= last_report.epoch {
            let most = renewal.undecided.len().min(limits::UNDECIDED_HOSTS_MAX);
            (last_report.epoch, last_report.undecided) = (renewal.epoch, renewal.undecided[..most].to_vec());
        }
        last_report.outdated = is_outdated.then_some(renewal.epoch);
    }

    /// True if the device has `epoch` or a later one, and holds no undecided intents of hosts that `fence` refuses.
    pub fn has_done_with(&self, epoch: Epoch, fence: &FenceTable) -> bool {
        let all_are_named = self.last_report.undecided.len() < limits::UNDECIDED_HOSTS_MAX;
        self.last_report.epoch >= epoch
            && all_are_named
            && !self.last_report.undecided.iter().any(|host| fence.refuses(*host))
    }

    /// True if another process may have a lease that runs, such as one that serves a copy of the disk on another machine. Where the monitor does
    /// not know the process, the one that has the lease says so. The device is not taken out while this one waits.
    pub fn waits_for_another(&mut self, now: Time, holder: Option<Holder>, settings: &Settings) -> bool {
        let is_another = |of: Holder| self.holder.map_or(!of.has_lease, |number| number != of.number);
        let waits = now < self.held_until && holder.is_some_and(is_another);
        let asks_again = now.after(settings.heartbeat * 2);
        if let Some(lease) = self.lease.as_mut().filter(|_| waits) {
            lease.until = lease.until.max(asks_again);
        }
        waits
    }

    /// Grants a lease. It expires later here than at the device.
    pub fn grant(&mut self, now: Time, settings: &Settings) {
        self.lend(now, Device::span(settings));
    }

    /// How long a lease runs here.
    pub fn span(settings: &Settings) -> Duration {
        settings.device_lease + settings.device_lease / LEASE_MARGIN
    }

    /// True if it is known which process had the last lease.
    pub fn is_held(&self) -> bool {
        self.holder.is_some()
    }

    /// The lease is that of this process, or of one that is not known, and may run until then.
    pub fn hold(&mut self, holder: Option<u64>, until: Time) {
        self.holder = holder;
        self.held_until = self.held_until.max(until);
    }

    /// Takes it for leased for so long.
    pub fn lend(&mut self, now: Time, span: Duration) {
        // A former leader may have granted it for longer.
        let until = self.lease.map_or(Time(0), |lease| lease.until).max(now.after(span));
        let since = self.lease.filter(|lease| now < lease.until).map_or(now, |lease| lease.since);
        self.lease = Some(Lease { since, until });
    }

    /// True if the device may be serving: its lease has not expired.
    pub fn may_serve(&self, now: Time) -> bool {
        self.lease.is_some_and(|lease| now < lease.until)
    }

    /// True if it has been serving for a while, so that others may rely on it. The delay is for a monitor that was cut off from the
    /// network: when that ends, it hears one device after the other.
    pub fn is_steady(&self, now: Time, settings: &Settings) -> bool {
        let for_long = |lease: Lease| now.since(lease.since) >= settings.heartbeat * 2;
        let heard = self.is_able() && self.was_heard_within(settings.heartbeat * 4, now);
        heard && self.may_serve(now) && self.lease.is_some_and(for_long)
    }

    /// True if its last report allows it to be let in.
    fn is_able(&self) -> bool {
        self.last_report.outdated.is_none() && !self.last_report.unable
    }

    /// True if it asked for a lease at most `span` ago.
    pub fn was_heard_within(&self, span: Duration, now: Time) -> bool {
        self.last_report.heard.is_some_and(|heard| now.since(heard) <= span)
    }

    /// When its lease expires.
    pub fn lease_ends(&self) -> Option<Time> {
        self.lease.map(|lease| lease.until)
    }

    /// Marks it out: it loses its lease, and gets no other until it returns. If an operator wished that, it did not go out by itself.
    pub fn take_out(&mut self, now: Time, settings: &Settings, is_wished: bool) {
        self.outages.begin(now, settings, is_wished);
        self.lease = None;
        self.refused = false;
    }

    /// Another disk fills its slot from now on.
    pub fn forget_disk(&mut self) {
        self.last_report = LastReport { unable: self.last_report.unable, ..LastReport::default() };
        (self.join_refused, self.ahead) = (None, None);
    }

    /// True if its first word to this monitor was that the record is old, and it said so at most `span` ago. A device that has named an
    /// epoch of the record before, and names a later one now without having been told of any, does not keep to the protocol.
    pub fn says_record_is_old(&self, span: Duration, now: Time) -> bool {
        self.last_report.heard.is_none() && self.ahead.is_some_and(|(_, at)| now.since(at) <= span)
    }

    /// True if it named an epoch of the record at most `span` ago.
    pub fn agrees_with_record(&self, span: Duration, now: Time) -> bool {
        self.ahead.is_none() && self.last_report.outdated.is_none() && self.was_heard_within(span, now)
    }

    /// True if it has been out for long enough, silent or with a failing disk, that a spare may take its slot.
    pub fn stays_out(&self, now: Time, settings: &Settings) -> bool {
        let is_gone = self.last_report.failing || !self.was_heard_within(settings.heartbeat * 4, now);
        self.outages.is_out_for(settings.spare_after, now) && is_gone
    }

    /// True if it may return. It must be heard by the monitor and reached by the hosts.
    pub fn may_return(&self, now: Time, settings: &Settings) -> bool {
        let heard = self.is_able()
            && !self.suspected
            && !self.last_report.failing
            && self.was_heard_within(settings.heartbeat * 2, now);
        heard && self.outages.may_end(now)
    }

    /// It is returning. It is granted the time to ask for a lease.
    pub fn come_back(&mut self, now: Time, settings: &Settings) {
        self.outages.end(now);
        self.progress = None;
        self.grant(now, settings);
    }

    /// True if it has a lease, or may get one.
    pub fn has_lease(&self) -> bool {
        self.lease.is_some()
    }
}

/// The state of all devices, for display.
pub(crate) fn shown(devices: &BTreeMap<DeviceId, Device>, now: Time) -> impl Iterator<Item = DeviceLease> + '_ {
    let shown = move |(device, known): (&DeviceId, &Device)| {
        let LastReport { heard, epoch, outdated, bad_slots, failing, .. } = known.last_report;
        let (outages, stays_out_until) = known.outages.flapping(now, known.has_lease());
        let runs_until = known.lease.map(|lease| lease.until).filter(|until| now < *until);
        let (device, ahead) = (*device, known.ahead.map(|(epoch, _)| epoch));
        DeviceLease { device, heard, epoch, runs_until, outdated, ahead, bad_slots, failing, outages, stays_out_until }
    };
    devices.iter().map(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time(millis * 1_000_000)
    }

    #[test]
    fn a_device_is_relied_on_once_heard_for_a_while_and_lately() {
        let settings = Settings::default();
        let mut device = Device::new(at(0), &settings);
        device.grant(at(0), &settings);
        assert!(!device.is_steady(at(1_000), &settings), "it was never heard");
        device.last_report.heard = Some(at(900));
        assert!(device.is_steady(at(1_000), &settings) && !device.is_steady(at(999), &settings));
        assert!(device.is_steady(at(2_900), &settings) && !device.is_steady(at(2_901), &settings));
        device.last_report.heard = Some(at(4_500));
        device.grant(at(4_500), &settings);
        assert!(!device.is_steady(at(4_600), &settings), "its lease had run out");
    }
}
