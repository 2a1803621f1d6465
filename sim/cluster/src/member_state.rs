//! Checks of the membership at every step of the monitor: the rules of `docs/membership.md` that are visible at a single moment.

use crate::cluster::{Cluster, Failed};
use braid_base::{DeviceId, Epoch, Member, MemberState, Membership, NodeId, Time};
use braid_layout::VolumeDescription;
use std::collections::BTreeMap;

/// What the checks have observed so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Every membership that any node was known to use.
    memberships: BTreeMap<Epoch, Membership>,
}

/// Times in which some device was unavailable, or in which not all nodes used the same membership with all devices in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Absences {
    spans: Vec<(Time, Time)>,
    now: bool,
}

impl Absences {
    /// True if one of them overlaps the time between two moments.
    pub fn overlap(&self, begun: Time, done: Time) -> bool {
        let first = self.spans.partition_point(|(_, end)| *end < begun);
        self.spans.get(first).is_some_and(|(start, _)| *start <= done)
    }
}

impl Cluster {
    pub(crate) fn note_absence(&mut self) {
        let (now, whole) = (self.world.now(), self.is_whole());
        match self.missed.spans.last_mut() {
            // Until a check finds that it is over.
            Some((_, end)) if self.missed.now => *end = now,
            _ if !whole => self.missed.spans.push((now, now)),
            _ => {}
        }
        self.missed.now = !whole;
    }

    /// Observes whether the array waits for a device that it needs.
    pub(crate) fn note_unavailable(&mut self) {
        if self.monitor().is_some_and(|monitor| !monitor.unavailable().is_empty()) {
            self.last_unavailable = Some(self.world.now());
        }
    }

    /// True if all devices are in and available, and no effect of an earlier absence remains: no write that began then, and no
    /// suspect transaction.
    pub(crate) fn is_calm(&self) -> bool {
        let last = self.missed.spans.last().map_or(Time(0), |(_, end)| *end);
        let suspects = |device: DeviceId| self.device(device).map_or(0, |machine| machine.suspects());
        self.is_whole()
            && self.asked().all(|asked| asked.since > last)
            && self.devices().into_iter().all(|device| suspects(device) == 0)
    }

    fn is_whole(&self) -> bool {
        let Some(decided) = self.membership() else { return false };
        decided.members.iter().all(|member| {
            let serving = self.device(member.device).filter(|_| self.can_serve(member.device));
            let lives_by = serving.and_then(|machine| machine.membership());
            member.member_state == MemberState::In
                && lives_by.is_some_and(|membership| membership.epoch == decided.epoch)
        })
    }

    /// Checks that no epoch has two memberships, that each membership follows from the one before, that no node uses a membership
    /// that the monitor has not made durable, that no stripe lacks more devices than its redundancy covers, and that a device that is
    /// out has no lease.
    pub(crate) fn check_membership(&mut self) -> Result<(), Failed> {
        let mut seen = std::mem::take(&mut self.seen);
        let outcome = self.check_membership_against(&mut seen);
        self.seen = seen;
        outcome.map_err(|details| Failed { check: "membership", details })
    }

    fn check_membership_against(&self, seen: &mut Seen) -> Result<(), String> {
        // While the monitor starts, its record is being read.
        let decided = self.membership().filter(|membership| membership.epoch > Epoch(0));
        let mut lives_by = Vec::new();
        for device in self.devices() {
            let membership = self.device(device).and_then(|machine| machine.membership());
            lives_by.extend(membership.map(|membership| (device, membership)));
        }
        for membership in decided.into_iter().chain(lives_by.iter().map(|(_, membership)| *membership)) {
            seen.learn(membership)?;
            if let Some(forgotten) = self.devices().iter().find(|device| membership.member(**device).is_none()) {
                return Err(format!("{forgotten} was removed although the volume uses it: {membership:?}"));
            }
        }
        let Some(decided) = decided else { return Ok(()) };
        if let Some((device, ahead)) = lives_by.iter().find(|(_, membership)| membership.epoch > decided.epoch) {
            return Err(format!("{device} uses {:?}, the monitor has decided up to {:?}", ahead.epoch, decided.epoch));
        }
        self.check_stripes(decided)?;
        for Member { device, .. } in decided.members.iter().filter(|member| member.member_state == MemberState::Out) {
            let now = self.world.local(NodeId::Device(*device)).expect("the node is in the world").time;
            if let Some(machine) = self.device(*device)
                && self.can_serve(*device)
                && machine.has_lease(now)
            {
                return Err(format!("{device} is out in {:?} and serves by {:?}", decided.epoch, machine.membership()));
            }
        }
        Ok(())
    }

    /// Checks that no stripe lacks more devices than its redundancy covers.
    fn check_stripes(&self, decided: &Membership) -> Result<(), String> {
        if self.gives_up {
            return Ok(());
        }
        let volumes = self.volumes();
        let is_in = |device| decided.member(device).is_some_and(|member| member.member_state == MemberState::In);
        // A device is taken out as soon as one volume can serve without it, even if another volume has no redundancy for it.
        let alone = volumes.len() == 1;
        let placements = volumes.iter().flat_map(VolumeDescription::placements);
        for (layout, devices) in placements.filter(|(layout, _)| alone || layout.redundancy_units() > 0) {
            for stripe in layout.stripes_of_the_ring() {
                let missing: Vec<usize> = stripe.filter(|position| !is_in(devices[*position])).collect();
                if missing.len() > layout.redundancy_units() {
                    return Err(format!("positions {missing:?} of a stripe are not in: {decided:?}"));
                }
            }
        }
        Ok(())
    }
}

impl Seen {
    fn learn(&mut self, membership: &Membership) -> Result<(), String> {
        match self.memberships.get(&membership.epoch) {
            Some(known) if known == membership => return Ok(()),
            Some(known) => return Err(format!("one epoch, two memberships: {known:?} and {membership:?}")),
            None => {}
        }
        if let Some((_, before)) = self.memberships.range(..membership.epoch).next_back() {
            follows(before, membership)?;
        }
        if let Some((_, after)) = self.memberships.range(membership.epoch..).next() {
            follows(membership, after)?;
        }
        self.memberships.insert(membership.epoch, membership.clone());
        Ok(())
    }
}

/// Fenced hosts stay fenced, and no device has an earlier begin of its presence than before.
fn follows(before: &Membership, after: &Membership) -> Result<(), String> {
    let wrong = |what: &str| Err(format!("{what}: {before:?} and then {after:?}"));
    let kept_out = before.fence.also.iter().any(|host| !after.fence.refuses(*host));
    if kept_out || after.fence.below < before.fence.below {
        return wrong("a fenced host is admitted again");
    }
    for member in &before.members {
        match after.member(member.device) {
            // It was removed.
            None => {}
            Some(later) if later.since < member.since => {
                return wrong("the presence of a device begins earlier than before");
            }
            Some(later)
                if member.member_state == MemberState::Out
                    && later.member_state == MemberState::In
                    && later.since <= before.epoch =>
            {
                return wrong("a device is in that was out, and has not returned");
            }
            Some(_) => {}
        }
    }
    Ok(())
}
