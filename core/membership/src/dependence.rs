//! Decides which devices can be marked out at present.

use crate::device_leases::Device;
use crate::slot_record::{Change, Slot};
use crate::stripes::Stripes;
use braid_base::limits::Settings;
use braid_base::{DeviceId, MemberState, Membership, Time};
use braid_wire::AdminError;
use std::collections::BTreeMap;

/// The volumes, and the state of the devices.
pub(crate) struct Dependence<'a> {
    pub now: Time,
    pub settings: &'a Settings,
    pub devices: &'a BTreeMap<DeviceId, Device>,
    pub stripes: &'a Stripes,
}

impl Dependence<'_> {
    /// True if the array gains by marking `device` out: it holds units of redundant volumes, and all stripes can serve without it.
    pub fn can_do_without(&self, device: DeviceId, membership: &Membership) -> bool {
        self.stripes.is_protected(device) && self.breaks_no_stripe(device, membership)
    }

    /// True if no stripe lacks too many units when `device` is marked out.
    pub fn breaks_no_stripe(&self, device: DeviceId, membership: &Membership) -> bool {
        self.can_leave(device, membership).is_ok()
    }

    /// An error that names the devices because of which `device` cannot be marked out.
    pub fn can_leave(&self, device: DeviceId, membership: &Membership) -> Result<(), AdminError> {
        let others = self.stripes.needed_beside(device, |other| self.is_reliable(other, membership));
        if others.is_empty() { Ok(()) } else { Err(AdminError::NeedsOthers { others }) }
    }

    /// True if hosts could continue without a device that they cannot reach.
    pub fn may_be_marked_out(&self, device: DeviceId, slot: Slot, membership: &Membership) -> bool {
        match membership.member(device).expect("all devices are members").member_state {
            MemberState::Out => false,
            MemberState::Returning { .. } => true,
            MemberState::In => {
                let leaves = matches!(slot.change, Change::Leaving { .. });
                // If two devices are suspected or refused, one stays until the other is out. A volume may name a device that is no member.
                let is_asked = |known: &Device| !known.suspected && !known.refused;
                let is_there = |other: DeviceId| {
                    self.is_reliable(other, membership) && self.devices.get(&other).is_some_and(is_asked)
                };
                (leaves || self.stripes.is_protected(device)) && self.stripes.needed_beside(device, is_there).is_empty()
            }
        }
    }

    /// True if others may be marked out because this device stays.
    fn is_reliable(&self, device: DeviceId, membership: &Membership) -> bool {
        let is_in = membership.member(device).is_some_and(|member| member.member_state == MemberState::In);
        is_in && self.devices[&device].is_steady(self.now, self.settings)
    }
}
