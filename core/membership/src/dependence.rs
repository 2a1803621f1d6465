//! Which devices the others can do without, as things stand.

use crate::leases::Device;
use crate::slot::{Change, Slot};
use crate::stripes::Stripes;
use braid_base::limits::Settings;
use braid_base::{DeviceId, MemberState, Membership, Time};
use braid_wire::AdminError;
use std::collections::BTreeMap;

/// What lies where, and what is known of the devices.
pub(crate) struct Dependence<'a> {
    pub now: Time,
    pub settings: &'a Settings,
    pub devices: &'a BTreeMap<DeviceId, Device>,
    pub stripes: &'a Stripes,
}

impl Dependence<'_> {
    /// True if it helps to take `device` out.
    pub fn can_do_without(&self, device: DeviceId, membership: &Membership) -> bool {
        self.stripes.is_protected(device) && self.harms_nobody(device, membership)
    }

    /// True if no stripe lacks a unit besides, should `device` go.
    pub fn harms_nobody(&self, device: DeviceId, membership: &Membership) -> bool {
        self.can_leave(device, membership).is_ok()
    }

    /// Those whose absence keeps a device from leaving.
    pub fn can_leave(&self, device: DeviceId, membership: &Membership) -> Result<(), AdminError> {
        let others = self.stripes.needed_beside(device, |other| self.is_reliable(other, membership));
        if others.is_empty() { Ok(()) } else { Err(AdminError::NeedsOthers { others }) }
    }

    /// True if hosts could go on without a device that they can't reach.
    pub fn is_better_out(&self, device: DeviceId, slot: Slot, membership: &Membership) -> bool {
        match membership.member(device).expect("all devices are members").member_state {
            MemberState::Out => false,
            MemberState::Returning { .. } => true,
            MemberState::In => {
                let leaves = matches!(slot.change, Change::Leaving { .. });
                // Of two whose leases are not to be renewed, one stays until the other is out.
                let is_there = |other: DeviceId| {
                    let known = &self.devices[&other];
                    self.is_reliable(other, membership) && !known.suspected && !known.refused
                };
                (leaves || self.stripes.is_protected(device)) && self.stripes.needed_beside(device, is_there).is_empty()
            }
        }
    }

    /// True if others may go while this one stays.
    fn is_reliable(&self, device: DeviceId, membership: &Membership) -> bool {
        let is_in = membership.member(device).is_some_and(|member| member.member_state == MemberState::In);
        is_in && self.devices[&device].is_steady(self.now, self.settings)
    }
}
