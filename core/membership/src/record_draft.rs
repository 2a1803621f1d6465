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
