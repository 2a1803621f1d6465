//! What the next epoch is to be. All changes that are due together make one; nothing is decided while one is being written.

use crate::monitor::Monitor;
use crate::record::Recorded;
use crate::slots::Change;
use braid_base::{DeviceId, Epoch, Membership, Now, Standing, Time};
use braid_machine::Effects;

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
        if !self.record.update(record, out) {
            self.on_administered(now, out);
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
            let member = next.member_mut(device).expect("only devices of the array are noted");
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

    fn take_out(&mut self, now: Now, device: DeviceId, next: &mut Membership) {
        let since = next.epoch;
        let member = next.member_mut(device).expect("it is one of its devices");
        (member.standing, member.since) = (Standing::Out, since);
        self.devices.get_mut(&device).expect("it is known").take_out(now.time, &self.config.settings);
        self.counters.taken_out += 1;
    }

    /// Devices that are out, and have been heard of: for long enough, if they come and go.
    fn let_return(&mut self, now: Now, durable: &Recorded, record: &mut Recorded) {
        for device in durable.membership.devices(|standing| standing == Standing::Out) {
            let slot = record.slot(device);
            // Whose disk is being changed has not been heard of.
            let may_return = !slot.held && slot.disk == durable.slot(device).disk;
            if may_return && self.devices[&device].may_return(now.time, &self.config.settings) {
                if let Change::Awaited { .. } = record.slot(device).change {
                    record.slot_mut(device).change = Change::Settled;
                }
                let next = &mut record.membership;
                let since = next.epoch;
                let member = next.member_mut(device).expect("it is one of its devices");
                (member.standing, member.since) = (Standing::Returning { helper: None }, since);
                self.counters.readmitted += 1;
            }
        }
    }

    /// Sees to it that each returning device has a helper that is there.
    fn appoint_helpers(&mut self, now: Now, next: &mut Membership) {
        let settings = &self.config.settings;
        let Membership { members, fence, .. } = next;
        for member in members {
            if let Standing::Returning { helper } = &mut member.standing
                && !helper.is_some_and(|helper| self.hosts.can_help(now.time, helper, fence, settings))
            {
                *helper = self.hosts.helper(now.time, fence, settings);
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

    /// Sees which devices hosts can't reach. Of one that nobody has reached for a lease, and that all can do without, the lease is
    /// renewed no more; so it will run out.
    pub(crate) fn suspect(&mut self, now: Now) {
        let durable = self.membership().clone();
        let suspects = self.hosts.suspects(&durable.fence);
        let lease = self.config.settings.device_lease;
        for (id, device) in &mut self.devices {
            let standing = durable.member(*id).expect("all devices are members").standing;
            let suspected = suspects.contains(id) && standing != Standing::Out;
            device.suspected = suspected.then(|| device.suspected.unwrap_or(now.time));
        }
        let devices: Vec<_> = self.devices.keys().copied().collect();
        for id in devices {
            let for_long = self.devices[&id].suspected.is_some_and(|since| now.time.since(since) >= lease);
            let refused = (for_long || self.slot(id).is_to_leave()) && self.is_better_out(now, id, &durable);
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
                let is_there = |other: DeviceId| {
                    self.devices[&other].suspected.is_none() && self.is_reliable(now.time, other, durable)
                };
                (leaves || self.stripes.is_protected(device)) && self.stripes.needed_beside(device, is_there).is_empty()
            }
        }
    }

    /// A helper says that a device has what it missed.
    pub(crate) fn on_caught_up(&mut self, device: DeviceId, since: Epoch) -> bool {
        let member = self.membership().member(device);
        let is_news =
            member.is_some_and(|member| member.since == since && matches!(member.standing, Standing::Returning { .. }));
        if is_news {
            self.caught_up.insert(device);
            self.decide_now = true;
        }
        is_news
    }
}
