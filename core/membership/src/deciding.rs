//! What the next epoch is to be. All changes that are due together make one; nothing is decided while one is being written.

use crate::dependence::Dependence;
use crate::draft::Draft;
use crate::monitor::Monitor;
use crate::record::Recorded;
use braid_base::{DeviceId, Epoch, MemberState, Membership, Now, Time};
use braid_machine::Effects;

impl Monitor {
    /// Looks for what is due, and begins to write it.
    pub(crate) fn decide(&mut self, now: Now, out: &mut Effects) {
        if self.record.writing().is_some() {
            return;
        }
        let findings = self.findings.take();
        let durable = self.membership().clone();
        let mut next = self.record.durable().clone();
        next.membership.epoch = durable.epoch.next();
        let has_heard_all = self.watch.has_heard_all(now.time);
        self.draft(now, &mut next).learn(&findings);
        if has_heard_all {
            self.administer(now, &mut next, out);
        }
        let mut draft = self.draft(now, &mut next);
        if has_heard_all {
            draft.give_up_returning();
        }
        draft.decide_caught_up(&findings);
        if has_heard_all {
            draft.take_out_absent();
        }
        draft.hand_over_left();
        draft.let_return();
        if has_heard_all {
            draft.use_spares();
        }
        self.counters.fences_refused += self.fences.decide(&durable, &mut next.membership);
        if has_heard_all {
            self.draft(now, &mut next).appoint_recovery_coordinators();
        }
        let membership = &mut next.membership;
        let changed = (&membership.members, &membership.fence) != (&durable.members, &durable.fence);
        if changed {
            if membership.fence != durable.fence {
                self.fences.change(membership.epoch);
            }
            self.counters.epochs += 1;
        } else {
            membership.epoch = durable.epoch;
        }
        // Which epochs devices live by is noted besides, and makes none.
        self.draft(now, &mut next).note_epochs();
        if !self.record.update(next, out) {
            self.on_administered(now, out);
        }
    }

    fn draft<'a>(&'a mut self, now: Now, next: &'a mut Recorded) -> Draft<'a> {
        Draft {
            now: now.time,
            settings: &self.config.settings,
            durable: self.record.durable(),
            next,
            devices: &mut self.devices,
            stripes: &self.stripes,
            hosts: &self.hosts,
            counters: &mut self.counters,
        }
    }

    /// Puts what was asked for into the next record, and answers what can't be.
    fn administer(&mut self, now: Now, next: &mut Recorded, out: &mut Effects) {
        for (name, request) in self.administrations.undecided() {
            match self.draft(now, next).change(request) {
                Ok(()) => self.administrations.decide(name),
                Err(admin_error) => self.answer_administered(now, name, Err(admin_error), out),
            }
        }
    }

    /// Which devices the others can do without.
    pub(crate) fn dependence(&self, now: Time) -> Dependence<'_> {
        Dependence { now, settings: &self.config.settings, devices: &self.devices, stripes: &self.stripes }
    }

    /// Both copies have the next epoch: it is told to everybody.
    pub(crate) fn on_epoch_durable(&mut self, now: Now, before: &Membership, out: &mut Effects) {
        let now_in = self.membership().devices(|member_state| member_state != MemberState::Out);
        let back = now_in
            .filter(|device| before.member(*device).is_some_and(|member| member.member_state == MemberState::Out));
        let back: Vec<_> = back.collect();
        for device in back {
            self.devices.get_mut(&device).expect("it is known").come_back(now.time, &self.config.settings);
        }
        self.tell_all(now, out);
    }

    /// Sees which devices hosts can't reach, and which have disks that fail. Of one that all can do without, the lease is not renewed
    /// while that lasts. So if it lasts for the length of a lease, the device is taken out; and if it does not, nobody notices.
    pub(crate) fn suspect(&mut self, now: Now) {
        let durable = self.membership().clone();
        let suspects = self.hosts.suspects(now.time, &durable.fence, &self.config.settings);
        for (id, device) in &mut self.devices {
            device.suspected = suspects.contains(id);
        }
        let devices: Vec<_> = self.devices.keys().copied().collect();
        for id in devices {
            let (known, slot) = (&self.devices[&id], self.slot(id));
            let refused = (known.suspected || known.said.failing || slot.is_to_leave())
                && self.dependence(now.time).is_better_out(id, slot, &durable);
            self.devices.get_mut(&id).expect("just listed").refused = refused;
        }
    }

    /// A recovery coordinator says that a device has what it missed. The device must have said that it lives by an epoch since its return, too: so
    /// one that is in has that on its disk, even if there was nothing to be brought to it.
    pub(crate) fn on_caught_up(&mut self, device: DeviceId, since: Epoch) -> bool {
        let member = self.membership().member(device);
        let is_news = member.is_some_and(|member| {
            member.since == since && matches!(member.member_state, MemberState::Returning { .. })
        }) && self.devices[&device].said.epoch >= since;
        if is_news {
            self.findings.catch_up(device);
        }
        is_news
    }
}
