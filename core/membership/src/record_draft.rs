//! The draft of the next record: marks devices out, lets them return, and assigns disks to slots. It uses neither messages nor the disk.

use crate::MonitorCounters;
use crate::dependence::Dependence;
use crate::device_leases::Device;
use crate::hosts::Hosts;
use crate::monitor_record::Recorded;
use crate::new_reports::NewReports;
use crate::slot_record::{CHANGES_MAX, Change, Slot};
use crate::stripes::Stripes;
use braid_base::limits::Settings;
use braid_base::{DeviceId, DiskId, MemberState, Membership, Time};
use std::collections::{BTreeMap, BTreeSet};

/// The next record, and what its decisions are based on.
pub(crate) struct Draft<'a> {
    pub now: Time,
    pub settings: &'a Settings,
    pub durable: &'a Recorded,
    pub next: &'a mut Recorded,
    pub devices: &'a mut BTreeMap<DeviceId, Device>,
    pub stripes: &'a Stripes,
    pub hosts: &'a Hosts,
    pub counters: &'a mut MonitorCounters,
}

impl Draft<'_> {
    /// Which devices can be marked out at present.
    pub fn dependence(&self) -> Dependence<'_> {
        Dependence { now: self.now, settings: self.settings, devices: self.devices, stripes: self.stripes }
    }

    /// Records disks that were heard in slots without a recorded disk.
    pub fn learn(&mut self, new_reports: &NewReports) {
        for (device, disk) in new_reports.learned() {
            let slot = self.next.slot_mut(device);
            slot.disk = slot.disk.or(Some(disk));
        }
    }

    /// Marks out returning devices whose leases have expired. No other device depends on them.
    pub fn give_up_returning(&mut self) {
        for device in self.members(|member_state| matches!(member_state, MemberState::Returning { .. })) {
            if !self.devices[&device].may_serve(self.now) {
                self.take_out(device);
            }
        }
    }

    /// Marks in the devices that are completely resynchronised.
    pub fn decide_resynchronised(&mut self, new_reports: &NewReports) {
        for device in new_reports.resynchronised() {
            // The same draft may have removed it.
            let Some(member) = self.next.membership.member_mut(device) else { continue };
            if matches!(member.member_state, MemberState::Returning { .. }) {
                member.member_state = MemberState::In;
                self.counters.resynchronised += 1;
            }
        }
    }

    /// Marks out devices whose leases have expired, if the remaining devices can serve without them. A device that is to get another disk
    /// is marked out even if no redundant volume gains by that.
    pub fn take_out_absent(&mut self) {
        for device in self.members(|member_state| member_state == MemberState::In) {
            let leaves = matches!(self.durable.slot(device).change, Change::Leaving { .. });
            let (dependence, next) = (self.dependence(), &self.next.membership);
            let goes = dependence.can_do_without(device, next) || (leaves && dependence.breaks_no_stripe(device, next));
            if !self.devices[&device].may_serve(self.now) && goes {
                self.take_out(device);
            }
        }
    }

    pub fn take_out(&mut self, device: DeviceId) {
        let (since, is_wished) = (self.next.membership.epoch, self.next.slot(device).is_to_leave());
        let member = self.next.membership.member_mut(device).expect("it is one of its devices");
        (member.member_state, member.since) = (MemberState::Out, since);
        let known = self.devices.get_mut(&device).expect("a device that the draft has just added is out already");
        known.take_out(self.now, self.settings, is_wished);
        self.counters.taken_out += 1;
    }

    /// Assigns the new disk to slots that were to get one and are out now.
    pub fn hand_over_left(&mut self) {
        for device in self.members(|member_state| member_state == MemberState::Out) {
            if let Change::Leaving { to } = self.next.slot(device).change {
                self.hand_over(device, to);
            }
        }
    }

    pub fn hand_over(&mut self, device: DeviceId, to: DiskId) {
        self.next.slot_mut(device).hand_over(to);
        self.counters.handed_over += 1;
    }

    /// Lets devices return that are out and are heard again; a device that goes out often has to wait for longer.
    pub fn let_return(&mut self) {
        let out = self.durable.membership.devices(|member_state| member_state == MemberState::Out);
        for device in out.filter(|device| self.next.membership.member(*device).is_some()).collect::<Vec<_>>() {
            let slot = self.next.slot(device);
            // If this draft changes the disk of the slot, the new disk has not been heard yet.
            let may_return = !slot.kept_out && slot.disk == self.durable.slot(device).disk;
            if may_return && self.devices[&device].may_return(self.now, self.settings) {
                if let Change::Awaited { .. } = slot.change {
                    *self.next.slot_mut(device) = Slot { disk: slot.disk, ..Slot::default() };
                }
                let next = &mut self.next.membership;
                let since = next.epoch;
                let member = next.member_mut(device).expect("it is one of its devices");
                (member.member_state, member.since) = (MemberState::Returning { recovery_coordinator: None }, since);
                self.counters.readmitted += 1;
            }
        }
    }

    /// Assigns spares to the slots of devices that stay out.
    pub fn use_spares(&mut self) {
        if self.next.spares.is_empty() {
            return;
        }
        for device in self.members(|member_state| member_state == MemberState::Out) {
            let slot = self.next.slot(device);
            let waits = slot.change == Change::None && !slot.kept_out && self.stripes.unprotected_on(device).is_none();
            if !waits || !self.devices[&device].stays_out(self.now, self.settings) {
                continue;
            }
            let needed = self.stripes.blocks_on(device);
            let fits = self.next.spares.iter().filter(|(_, blocks)| **blocks >= needed);
            let Some(disk) = fits.min_by_key(|(_, blocks)| **blocks).map(|(disk, _)| *disk) else { continue };
            if self.next.changes() < CHANGES_MAX {
                self.next.spares.remove(&disk);
                self.hand_over(device, disk);
            }
        }
    }

    /// Gives each returning device a recovery coordinator that is alive and reaches the devices that have a lease. No host reaches the
    /// others, so their silence says nothing about a host.
    pub fn appoint_recovery_coordinators(&mut self) {
        let serves = |device: &DeviceId| self.devices.get(device).is_some_and(|known| known.may_serve(self.now));
        let members = self.members(|member_state| member_state != MemberState::Out).into_iter();
        let there: BTreeSet<_> = members.filter(serves).collect();
        let Membership { members, fence, .. } = &mut self.next.membership;
        for member in members {
            if let MemberState::Returning { recovery_coordinator } = &mut member.member_state {
                *recovery_coordinator =
                    self.hosts.recovery_coordinator(self.now, *recovery_coordinator, &there, fence, self.settings);
            }
        }
    }

    /// Records the latest epoch that each device has reported.
    pub fn note_epochs(&mut self) {
        for device in self.members(|_| true) {
            // A device that is just being added has not been heard.
            let Some(known) = self.devices.get(&device) else { continue };
            let slot = self.next.slot_mut(device);
            slot.lived_by = slot.lived_by.max(known.last_report.epoch);
        }
    }

    fn members(&self, which: impl Fn(MemberState) -> bool) -> Vec<DeviceId> {
        self.next.membership.devices(which).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device_leases::Renewal;
    use braid_base::{ArrayId, Epoch, Level, VolumeId};
    use braid_layout::{Layout, RaidLevel, VolumeDescription};
    use braid_wire::{AdminError, Administration};
    use std::time::Duration;

    const FIRST: DeviceId = DeviceId(0);
    const SECOND: DeviceId = DeviceId(1);

    /// Two devices with a volume of two copies.
    struct Bench {
        settings: Settings,
        durable: Recorded,
        devices: BTreeMap<DeviceId, Device>,
        stripes: Stripes,
        now: Time,
    }

    impl Bench {
        fn new() -> Bench {
            let settings = Settings::default();
            let mut stripes = Stripes::default();
            stripes.adopt(VolumeDescription::new(
                VolumeId(1),
                1 << 20,
                Layout::new(RaidLevel::Raid1 { copies: 2 }, 2, 16).expect("it can be laid so"),
                vec![FIRST, SECOND],
            ));
            let devices = [FIRST, SECOND].map(|device| (device, Device::new(Time(0), &settings)));
            let durable = Recorded::of(ArrayId([7; 16]), Membership::first([FIRST, SECOND]));
            let mut bench = Bench { settings, durable, devices: devices.into(), stripes, now: Time(0) };
            bench.pass(Duration::from_secs(2), &[FIRST, SECOND]);
            bench
        }

        /// Lets time pass, in which these devices ask for leases.
        fn pass(&mut self, span: Duration, renewing: &[DeviceId]) {
            let end = self.now.after(span);
            while self.now < end {
                self.now = self.now.after(Duration::from_millis(500));
                for device in renewing {
                    let (sent, disk) = (self.now, DiskId(1));
                    let (epoch, undecided) = (Epoch(1), Vec::new());
                    let renewal = Renewal {
                        epoch,
                        sent,
                        disk,
                        unable: false,
                        bad_slots: 0,
                        failing: false,
                        undecided,
                        knows: Level::FIRST,
                    };
                    let known = self.devices.get_mut(device).expect("there are two");
                    known.hear(self.now, &renewal, false);
                    known.grant(self.now, &self.settings);
                }
            }
        }

        /// The next record after these decisions.
        fn decide<T>(&mut self, decide: impl FnOnce(&mut Draft) -> T) -> (Recorded, T) {
            let mut next = self.durable.clone();
            next.membership.epoch = next.membership.epoch.next();
            let decided = decide(&mut Draft {
                now: self.now,
                settings: &self.settings,
                durable: &self.durable,
                next: &mut next,
                devices: &mut self.devices,
                stripes: &self.stripes,
                hosts: &Hosts::default(),
                counters: &mut MonitorCounters::default(),
            });
            (next, decided)
        }

        /// The devices that are marked out because they are absent.
        fn taken_out(&mut self) -> Vec<DeviceId> {
            let (next, ()) = self.decide(|draft| draft.take_out_absent());
            next.membership.devices(|member_state| member_state == MemberState::Out).collect()
        }
    }

    #[test]
    fn a_device_goes_out_when_its_lease_has_run_out_and_the_other_copy_is_there() {
        let mut bench = Bench::new();
        bench.pass(bench.settings.device_lease, &[SECOND]);
        assert_eq!(bench.taken_out(), [], "at the monitor a lease runs longer");
        bench.pass(bench.settings.device_lease / 2, &[SECOND]);
        assert_eq!(bench.taken_out(), [FIRST]);
        assert!(!bench.devices[&FIRST].has_lease());
    }

    #[test]
    fn of_two_copies_none_goes_out_when_both_are_silent() {
        let mut bench = Bench::new();
        bench.pass(bench.settings.device_lease * 2, &[]);
        assert_eq!(bench.taken_out(), []);
    }

    #[test]
    fn a_disk_is_replaced_while_the_other_copy_is_there_or_its_operator_accepts_the_loss_of_a_dead_one() {
        let mut bench = Bench::new();
        let replace = |lose| Administration::Replace { device: FIRST, disk: DiskId(9), blocks: 1 << 20, lose };
        let (next, result) = bench.decide(|draft| draft.change(replace(false)));
        assert_eq!(result, Ok(()));
        assert_eq!(next.slot(FIRST).change, Change::Leaving { to: DiskId(9) }, "it goes out first");
        bench.pass(bench.settings.device_lease * 2, &[]);
        let others = vec![SECOND];
        assert_eq!(bench.decide(|draft| draft.change(replace(false))).1, Err(AdminError::NeedsOthers { others }));
        let (next, result) = bench.decide(|draft| draft.change(replace(true)));
        assert_eq!(result, Ok(()));
        assert_eq!((next.slot(FIRST).disk, next.slot(SECOND).kept_out), (Some(DiskId(9)), false));
        assert_eq!(
            next.membership.devices(|member_state| member_state == MemberState::Out).collect::<Vec<_>>(),
            [FIRST]
        );
    }
}
