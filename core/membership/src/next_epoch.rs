//! Decides the next epoch. All changes that are due together make one epoch; nothing is decided while a record is being written.

use crate::answered_requests::AnsweredRequest;
use crate::dependence::Dependence;
use crate::monitor::Monitor;
use crate::monitor_record::Recorded;
use crate::record_draft::Draft;
use braid_base::{DeviceId, Epoch, Generation, MemberState, Membership, Now, Time};
use braid_machine::MonitorEffects;

impl Monitor {
    /// Decides what is due, and begins to write the record.
    pub(crate) fn decide(&mut self, now: Now, out: &mut MonitorEffects) {
        if self.record.writing().is_some() {
            return;
        }
        let new_reports = self.new_reports.take();
        let durable = self.membership().clone();
        let mut next = self.record.durable().clone();
        next.membership.epoch = durable.epoch.next();
        let has_heard_all = self.watch.has_heard_all(now.time);
        self.draft(now, &mut next).learn(&new_reports);
        if has_heard_all {
            self.administer(now, &mut next);
        }
        let mut draft = self.draft(now, &mut next);
        if has_heard_all {
            draft.give_up_returning();
        }
        draft.decide_resynchronised(&new_reports);
        if has_heard_all {
            draft.take_out_absent();
        }
        draft.hand_over_left();
        draft.let_return();
        if has_heard_all {
            draft.use_spares();
        }
        self.counters.fences_refused += self.requests.fences.decide(&durable, &mut next.membership);
        let (refused, dropped) = self.requests.ownership.decide(self.record.durable(), &mut next);
        self.counters.fences_refused += dropped;
        if has_heard_all {
            self.draft(now, &mut next).appoint_recovery_coordinators();
        }
        let recorded = self.record.durable();
        // Devices adopt the epoch in which the level rose: so a record from before is known to be old.
        let is_same_table = (&next.owners, next.level) == (&recorded.owners, recorded.level);
        let membership = &mut next.membership;
        let changed = !is_same_table || (&membership.members, &membership.fence) != (&durable.members, &durable.fence);
        if changed {
            if membership.fence != durable.fence {
                self.requests.fences.change(membership.epoch);
            }
            self.counters.epochs += 1;
        } else {
            membership.epoch = durable.epoch;
        }
        // The epochs of the devices are recorded along with a change, but do not cause a new epoch.
        self.draft(now, &mut next).note_epochs();
        self.answer_ownership(now, refused, out);
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

    /// Applies operators' requests to the next record, which also says which of them are refused. Those of fenced hosts are dropped: the
    /// fence was answered, or will be, and then they must have no effect.
    fn administer(&mut self, now: Now, next: &mut Recorded) {
        let fence = self.record.durable().membership.fence.clone();
        self.requests.administrations.retain(|sender| !fence.refuses(sender));
        for (name, request) in self.requests.administrations.undecided() {
            let answer = self.draft(now, next).change(request);
            let answered = AnsweredRequest { host: name.0, ticket: name.1, is_refused: answer.is_err() };
            next.answered.note(answered, |host| fence.refuses(host));
            self.requests.administrations.decide(name, answer);
        }
    }

    /// Which devices can be marked out at present.
    pub(crate) fn dependence(&self, now: Time) -> Dependence<'_> {
        Dependence { now, settings: &self.config.settings, devices: &self.devices, stripes: &self.stripes }
    }

    /// Both copies of the record have the next epoch: all nodes are told of it.
    pub(crate) fn on_epoch_durable(&mut self, now: Now, before: &Membership, out: &mut MonitorEffects) {
        let now_in = self.membership().devices(|member_state| member_state != MemberState::Out);
        let back = now_in
            .filter(|device| before.member(*device).is_some_and(|member| member.member_state == MemberState::Out));
        let back: Vec<_> = back.collect();
        for device in back {
            self.devices.get_mut(&device).expect("it is known").come_back(now.time, &self.config.settings);
        }
        self.tell_all(now, out);
    }

    /// Finds the devices that hosts cannot reach, and those whose disks are failing. While that lasts, the lease of such a device is not
    /// extended, if the others can serve without it. If it lasts for the length of a lease, the device is marked out; if it is shorter, there
    /// is no effect.
    pub(crate) fn suspect(&mut self, now: Now) {
        let durable = self.membership().clone();
        let suspects = self.hosts.suspects(now.time, &durable.fence, &self.config.settings);
        for (id, device) in &mut self.devices {
            device.suspected = suspects.contains(id);
        }
        let devices: Vec<_> = self.devices.keys().copied().collect();
        for id in devices {
            let (known, slot) = (&self.devices[&id], self.slot(id));
            let refused = (known.suspected || known.last_report.failing || slot.is_to_leave())
                && self.dependence(now.time).may_be_marked_out(id, slot, &durable);
            self.devices.get_mut(&id).expect("just listed").refused = refused;
        }
    }

    /// A host reports that a device is completely resynchronised. Only the device's recovery coordinator knows that. The device must also
    /// have reported an epoch since its return: so a device that is in has that epoch on its disk, even if there was nothing to resynchronise.
    pub(crate) fn on_resynchronised(&mut self, host: Generation, device: DeviceId, since: Epoch) -> bool {
        let coordinated = MemberState::Returning { recovery_coordinator: Some(host) };
        let member = self.membership().member(device);
        let is_news = member.is_some_and(|member| (member.since, member.member_state) == (since, coordinated))
            && self.devices[&device].last_report.epoch >= since;
        if is_news {
            self.new_reports.note_resynchronised(device);
        }
        is_news
    }
}
