//! A node's view of the array: the membership that it has adopted, and the devices that it cannot use.

use braid_base::{DeviceId, Epoch, Generation, Member, MemberState, Membership, Time};
use braid_layout::{Absences, VolumeDescription};
use std::collections::BTreeSet;

#[derive(Clone, Debug, Default)]
pub struct MembershipView {
    membership: Option<Membership>,
    /// A fixed membership needs neither monitor nor lease.
    is_fixed: bool,
    /// Devices that are in, whose leases have expired, and that the array cannot serve without.
    unavailable: BTreeSet<DeviceId>,
    /// Counts the changes of the fields above.
    version: u64,
    /// When the first membership was adopted.
    began: Option<Time>,
    /// When the present membership was adopted.
    since: Time,
}

impl MembershipView {
    /// The view in an array with a `fixed` membership, or else in an array with a monitor.
    pub(super) fn new(fixed: Option<Membership>) -> MembershipView {
        MembershipView { is_fixed: fixed.is_some(), membership: fixed, version: 1, ..MembershipView::default() }
    }

    /// The membership; none before the first.
    pub fn membership(&self) -> Option<&Membership> {
        self.membership.as_ref()
    }

    /// True if it never changes: the array has no monitor.
    pub fn is_fixed(&self) -> bool {
        self.is_fixed
    }

    /// The node's current epoch; zero before the first.
    pub fn epoch(&self) -> Epoch {
        self.membership.as_ref().map_or(Epoch(0), |membership| membership.epoch)
    }

    /// The number of changes so far; none before the first membership.
    pub fn version(&self) -> Option<u64> {
        self.membership.is_some().then_some(self.version)
    }

    /// When the first membership was adopted; none before that, and none if it is fixed.
    pub fn began(&self) -> Option<Time> {
        self.began
    }

    /// When the present membership was adopted.
    pub fn since(&self) -> Time {
        self.since
    }

    /// Devices that are in, whose leases have expired, and that the array cannot serve without.
    pub fn unavailable(&self) -> &BTreeSet<DeviceId> {
        &self.unavailable
    }

    /// A member; none if the array does not have the device, as far as this node knows.
    pub fn member(&self, device: DeviceId) -> Option<&Member> {
        self.membership.as_ref()?.member(device)
    }

    /// A device's state; none if the array does not have the device, as far as this node knows.
    pub fn state(&self, device: DeviceId) -> Option<MemberState> {
        Some(self.member(device)?.member_state)
    }

    /// True if the device is in: it has everything that it should have.
    pub fn is_in(&self, device: DeviceId) -> bool {
        self.state(device) == Some(MemberState::In)
    }

    /// True if the device is out, or does not belong to this array.
    pub fn is_out(&self, device: DeviceId) -> bool {
        self.state(device).is_none_or(|state| state == MemberState::Out)
    }

    /// True if no operation has been done without the device since `epoch`: it has been a member without interruption, or the object is not
    /// `redundant`, so that all operations wait for the device.
    pub fn is_still_there(&self, device: DeviceId, epoch: Epoch, redundant: bool) -> bool {
        let has_been_in = |membership: &Membership| membership.has_been_in_since(device, epoch);
        !redundant || self.membership.as_ref().is_none_or(has_been_in)
    }

    /// True if `device` counts in deciding a transaction of that epoch: it has been a member since, or it is the only participant, so that
    /// no other device can have decided the transaction. Hosts and devices use only this rule to choose which devices to ask and to wait
    /// for.
    pub fn has_a_say<'a>(
        &self,
        device: DeviceId,
        participants: impl IntoIterator<Item = &'a DeviceId>,
        epoch: Epoch,
        redundant: bool,
    ) -> bool {
        participants.into_iter().eq([&device]) || self.is_still_there(device, epoch, redundant)
    }

    /// True if the host is fenced.
    pub fn refuses(&self, host: Generation) -> bool {
        self.membership.as_ref().is_some_and(|membership| membership.fence.refuses(host))
    }

    /// True if the host resynchronises a returning device.
    pub fn is_recovery_coordinator(&self, host: Generation) -> bool {
        let coordinates_recovery = |member_state| matches!(member_state, MemberState::Returning { recovery_coordinator } if recovery_coordinator == Some(host));
        self.membership
            .as_ref()
            .is_some_and(|membership| membership.members.iter().any(|member| coordinates_recovery(member.member_state)))
    }

    /// Which devices of a volume cannot be used. With `in_need`, unavailable devices are not used either. A volume without redundancy uses
    /// every device that is present.
    pub fn absences(&self, volume: &VolumeDescription, in_need: bool) -> Absences {
        let Some(membership) = &self.membership else { return Absences::default() };
        if self.unavailable.is_empty() && membership.members.iter().all(|member| member.member_state == MemberState::In)
        {
            return Absences::default();
        }
        let mut lost: BTreeSet<_> = membership.devices(|member_state| member_state == MemberState::Out).collect();
        if in_need {
            lost.extend(&self.unavailable);
        }
        let redundant = volume.layout.redundancy_units() > 0;
        let returning = |member_state| redundant && matches!(member_state, MemberState::Returning { .. });
        volume.absences(&lost, &membership.devices(returning).collect())
    }

    /// Adopts another membership. Returns the previous one.
    pub(super) fn adopt(&mut self, now: Time, membership: Membership) -> Option<Membership> {
        self.version += 1;
        self.began.get_or_insert(now);
        self.since = now;
        self.membership.replace(membership)
    }

    /// Takes over the membership that the node had recorded before it started.
    pub(super) fn recover(&mut self, recorded: Option<Membership>) {
        if !self.is_fixed {
            self.membership = recorded;
        }
    }

    /// Sets the unavailable devices. True if they have changed.
    pub(super) fn set_unavailable(&mut self, devices: BTreeSet<DeviceId>) -> bool {
        let changed = devices != self.unavailable;
        if changed {
            self.unavailable = devices;
            self.version += 1;
        }
        changed
    }
}
