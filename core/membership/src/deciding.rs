//! What the next epoch is to be. All changes that are due together make one; nothing is decided while one is being written.

use crate::monitor::Monitor;
use crate::record::Recorded;
use crate::slots::{Change, Slot};
use braid_base::{DeviceId, Epoch, Membership, Now, Standing, Time};
use braid_machine::Effects;
use std::collections::BTreeSet;

impl Monitor {
    /// Looks for what is due, and begins to write it.
    pub(crate) fn decide(&mut self, now: Now, out: &mut Effects) {
        if self.record.writing().is_some() {
            return;
        }
        self.decide_now = false;
        let recorded = self.record.durable().clone();
        let durable = &recorded.membership;
        let mut record = recorded.clone();
        record.membership.epoch = durable.epoch.next();
        let heard_all = now.time >= self.unsure_until;
        self.learn(&mut record);
        if heard_all {
            self.administer(now, &mut record, out);
        }
        let next = &mut record.membership;
        if heard_all {
            self.give_up_returning(now, next);
        }
        self.decide_caught_up(next);
        if heard_all {
            self.take_out_absent(now, &recorded, next);
        }
        self.hand_over_left(&mut record);
        self.let_return(now, &recorded, &mut record);
        if heard_all {
            self.use_spares(now, &mut record);
        }
        let next = &mut record.membership;
        self.decide_fences(durable, next);
        if heard_all {
            self.appoint_helpers(now, next);
        }
        let changed = (&next.members, &next.fence) != (&durable.members, &durable.fence);
        if changed {
            if next.fence != durable.fence {
                self.fenced_since = next.epoch;
            }
            self.counters.epochs += 1;
        } else {
            next.epoch = durable.epoch;
        }
        // Which epochs devices live by is noted besides, and makes none.
        self.note_epochs(&mut record);
        if !self.record.update(record, out) {
            self.on_administered(now, out);
        }
    }

    /// Notes of each device the latest epoch that it was heard to live by.
    fn note_epochs(&self, record: &mut Recorded) {
        for member in record.membership.members.clone() {
            // One that is just being added has said nothing.
            let Some(known) = self.devices.get(&member.device) else { continue };
            let slot = record.slot_mut(member.device);
            slot.lived_by = slot.lived_by.max(known.epoch);
        }
    }

    /// Devices that were on their way back, and are gone again: nobody needed them.
    fn give_up_returning(&mut self, now: Now, next: &mut Membership) {
        let returning: Vec<_> = next.devices(|standing| matches!(standing, Standing::Returning { .. })).collect();
        for device in returning {
            if !self.devices[&device].may_serve(now.time) {
                self.take_out(now, device, next);
            }
        }
    }

    /// Devices that have what they missed.
    fn decide_caught_up(&mut self, next: &mut Membership) {
        for device in std::mem::take(&mut self.caught_up) {
            // It may just be going to be removed.
            let Some(member) = next.member_mut(device) else { continue };
            if matches!(member.standing, Standing::Returning { .. }) {
                member.standing = Standing::In;
                self.counters.caught_up += 1;
            }
        }
    }

    /// Devices whose leases have run out, and that all others can do without; where another disk is to come, it is enough that nobody
    /// is harmed.
    fn take_out_absent(&mut self, now: Now, recorded: &Recorded, next: &mut Membership) {
        let present: Vec<_> = next.devices(|standing| standing == Standing::In).collect();
        for device in present {
            let leaves = matches!(recorded.slot(device).change, Change::Leaving { .. });
            let goes =
                self.can_do_without(now.time, device, next) || (leaves && self.harms_nobody(now.time, device, next));
            if !self.devices[&device].may_serve(now.time) && goes {
                self.take_out(now, device, next);
            }
        }
    }

    /// True if it helps to take `device` out.
    pub(crate) fn can_do_without(&self, now: Time, device: DeviceId, next: &Membership) -> bool {
        self.stripes.is_protected(device) && self.harms_nobody(now, device, next)
    }

    /// True if no stripe lacks a unit besides, should `device` go.
    fn harms_nobody(&self, now: Time, device: DeviceId, next: &Membership) -> bool {
        self.stripes.needed_beside(device, |other| self.is_reliable(now, other, next)).is_empty()
    }

    /// True if others may go while this one stays.
    pub(crate) fn is_reliable(&self, now: Time, device: DeviceId, next: &Membership) -> bool {
        let is_in = next.member(device).is_some_and(|member| member.standing == Standing::In);
        is_in && self.devices[&device].is_steady(now, &self.config.settings)
    }

    pub(crate) fn take_out(&mut self, now: Now, device: DeviceId, next: &mut Membership) {
        let since = next.epoch;
        let member = next.member_mut(device).expect("it is one of its devices");
        (member.standing, member.since) = (Standing::Out, since);
        self.devices.get_mut(&device).expect("it is known").take_out(now.time, &self.config.settings);
        self.counters.taken_out += 1;
    }

    /// Devices that are out, and have been heard of: for long enough, if they come and go.
    fn let_return(&mut self, now: Now, durable: &Recorded, record: &mut Recorded) {
        let out = durable.membership.devices(|standing| standing == Standing::Out);
        for device in out.filter(|device| record.membership.member(*device).is_some()).collect::<Vec<_>>() {
            let slot = record.slot(device);
            // Whose disk is being changed has not been heard of.
            let may_return = !slot.held && slot.disk == durable.slot(device).disk;
            if may_return && self.devices[&device].may_return(now.time, &self.config.settings) {
                if let Change::Awaited { .. } = slot.change {
                    *record.slot_mut(device) = Slot { disk: slot.disk, ..Slot::default() };
                }
                let next = &mut record.membership;
                let since = next.epoch;
                let member = next.member_mut(device).expect("it is one of its devices");
                (member.standing, member.since) = (Standing::Returning { helper: None }, since);
                self.counters.readmitted += 1;
            }
        }
    }

    /// Sees to it that each returning device has a helper that is there, and that reaches the devices that it has to do with.
    fn appoint_helpers(&mut self, now: Now, next: &mut Membership) {
        let settings = &self.config.settings;
        let there: BTreeSet<_> = next.devices(|standing| standing != Standing::Out).collect();
        let Membership { members, fence, .. } = next;
        for member in members {
            if let Standing::Returning { helper } = &mut member.standing {
                *helper = self.hosts.helper(now.time, *helper, &there, fence, settings);
            }
        }
    }

    /// Both copies have the next epoch: it is told to everybody.
    pub(crate) fn on_epoch_durable(&mut self, now: Now, before: &Membership, out: &mut Effects) {
        let now_in = self.membership().devices(|standing| standing != Standing::Out);
        let back =
            now_in.filter(|device| before.member(*device).is_some_and(|member| member.standing == Standing::Out));
        let back: Vec<_> = back.collect();
        for device in back {
            self.devices.get_mut(&device).expect("it is known").come_back(now.time, &self.config.settings);
        }
        self.tell_all(now, out);
    }

    /// Sees which devices hosts can't reach, and which have disks that fail. Of one that all can do without, the lease is not renewed while that lasts. So if it lasts for the
    /// length of a lease, the device is taken out; and if it does not, nobody notices.
    pub(crate) fn suspect(&mut self, now: Now) {
        let durable = self.membership().clone();
        let suspects = self.hosts.suspects(now.time, &durable.fence, &self.config.settings);
        for (id, device) in &mut self.devices {
            device.suspected = suspects.contains(id);
        }
        let devices: Vec<_> = self.devices.keys().copied().collect();
        for id in devices {
            let refused = (self.devices[&id].suspected || self.devices[&id].failing || self.slot(id).is_to_leave())
                && self.is_better_out(now, id, &durable);
            self.devices.get_mut(&id).expect("just listed").refused = refused;
        }
    }

    /// True if hosts could go on without a device that they can't reach.
    fn is_better_out(&self, now: Now, device: DeviceId, durable: &Membership) -> bool {
        match durable.member(device).expect("all devices are members").standing {
            Standing::Out => false,
            Standing::Returning { .. } => true,
            Standing::In => {
                let leaves = matches!(self.slot(device).change, Change::Leaving { .. });
                // Of two whose leases are not to be renewed, one stays until the other is out.
                let is_there = |other: DeviceId| {
                    let known = &self.devices[&other];
                    self.is_reliable(now.time, other, durable) && !known.suspected && !known.refused
                };
                (leaves || self.stripes.is_protected(device)) && self.stripes.needed_beside(device, is_there).is_empty()
            }
        }
    }

    /// A helper says that a device has what it missed. The device must have said that it lives by an epoch since its return, too: so
    /// one that is in has that on its disk, even if there was nothing to be brought to it.
    pub(crate) fn on_caught_up(&mut self, device: DeviceId, since: Epoch) -> bool {
        let member = self.membership().member(device);
        let is_news = member
            .is_some_and(|member| member.since == since && matches!(member.standing, Standing::Returning { .. }))
            && self.devices[&device].epoch >= since;
        if is_news {
            self.caught_up.insert(device);
            self.decide_now = true;
        }
        is_news
    }
}
