//! The changes that operators request: applies operators' requests to the next record (`docs/healing.md`).

use crate::device_leases::Device;
use crate::hosts::Hosts;
use crate::monitor_record::Recorded;
use crate::record_draft::Draft;
use crate::slot_record::{CHANGES_MAX, Change};
use braid_base::{DeviceId, DiskId, Generation, Level, MemberState, Membership, Time, limits};
use braid_wire::{AdminError, Administration};
use std::collections::BTreeMap;

/// The programs that do not know a level. A device that is in or returns counts until it has said that it does. One that is out does not
/// count: if its program does not know the level when it is heard again, it gets no lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OlderPrograms {
    pub devices: Vec<DeviceId>,
    pub hosts: Vec<Generation>,
    /// How many lock servers.
    pub lock_servers: u16,
}

impl OlderPrograms {
    pub(crate) fn find(
        (level, now): (Level, Time),
        membership: &Membership,
        devices: &BTreeMap<DeviceId, Device>,
        hosts: &Hosts,
    ) -> OlderPrograms {
        let is_older = |device: &DeviceId| devices.get(device).is_none_or(|known| known.last_report.knows < level);
        let serving = membership.devices(|member_state| member_state != MemberState::Out);
        let (hosts, lock_servers) = hosts.older_than(level, now);
        OlderPrograms { devices: serving.filter(is_older).collect(), hosts, lock_servers }
    }
}

impl Draft<'_> {
    /// Applies a request, or returns the reason why it is refused.
    pub fn change(&mut self, request: Administration) -> Result<(), AdminError> {
        match request {
            Administration::Fail { device } => {
                if self.member_state(device)? == MemberState::In {
                    self.dependence().can_leave(device, &self.next.membership)?;
                    if !self.stripes.is_protected(device) {
                        return Err(AdminError::NothingGained);
                    }
                }
                self.next.slot_mut(device).kept_out = true;
            }
            Administration::Readmit { device } => {
                self.member_state(device)?;
                let slot = self.next.slot_mut(device);
                slot.kept_out = false;
                (slot.disk, slot.change) = match slot.change {
                    Change::Awaited { before: Some(before) } => (Some(before), Change::None),
                    Change::Awaited { before: None } => (slot.disk, slot.change),
                    Change::None | Change::Leaving { .. } => (slot.disk, Change::None),
                };
            }
            Administration::Replace { device, disk, blocks, lose } => {
                let mut member_state = self.member_state(device)?;
                let slot = self.next.slot(device);
                if slot.disk == Some(disk) || slot.change == (Change::Leaving { to: disk }) {
                    return Ok(());
                }
                is_free(disk, self.next)?;
                let needed = self.stripes.blocks_on(device);
                if blocks < needed {
                    return Err(AdminError::TooSmall { blocks, needed });
                }
                if let Some(volume) = self.stripes.unprotected_on(device).filter(|_| !lose) {
                    return Err(AdminError::WouldLose { volume });
                }
                let harm = if member_state == MemberState::In {
                    self.dependence().can_leave(device, &self.next.membership)
                } else {
                    Ok(())
                };
                // If the device still serves, nothing is lost yet.
                // The same draft may have added it.
                let is_dead = self.devices.get(&device).is_none_or(|known| !known.may_serve(self.now));
                if !(lose && is_dead) {
                    harm.clone()?;
                }
                if self.next.changes() >= CHANGES_MAX {
                    return Err(AdminError::TooManyChanges);
                }
                if harm.is_err() {
                    // The operator gives up the stripes that need this device, so the array continues without it at once.
                    self.hold_its_wards(device)?;
                    self.take_out(device);
                    member_state = MemberState::Out;
                }
                self.next.spares.remove(&disk);
                match member_state {
                    MemberState::Out => self.hand_over(device, disk),
                    MemberState::In | MemberState::Returning { .. } => {
                        self.next.slot_mut(device).change = Change::Leaving { to: disk };
                    }
                }
            }
            Administration::AddSpare { disk, blocks } => {
                is_free(disk, self.next)?;
                if self.next.spares.len() >= limits::SPARES_MAX && !self.next.spares.contains_key(&disk) {
                    return Err(AdminError::TooManySpares);
                }
                self.next.spares.insert(disk, blocks);
            }
            Administration::RemoveSpare { disk } => {
                self.next.spares.remove(&disk).ok_or(AdminError::NoSuchSpare)?;
            }
            Administration::RaiseLevel { level } if level <= self.next.level => {}
            Administration::RaiseLevel { level } => {
                let older = OlderPrograms::find((level, self.now), &self.next.membership, self.devices, self.hosts);
                let is_next = level == self.next.level.next() && level <= Level::KNOWN;
                if !is_next || older != OlderPrograms::default() {
                    let OlderPrograms { devices, hosts, lock_servers } = older;
                    return Err(AdminError::LevelUnknown { devices, hosts, lock_servers });
                }
                self.next.level = level;
            }
            Administration::RecoveryThrottle(throttle) => self.next.throttle = throttle,
            Administration::AddDevice { device, disk } => {
                if self.member_state(device).is_ok() {
                    let is_this = self.next.slot(device).disk == Some(disk);
                    return if is_this { Ok(()) } else { Err(AdminError::DeviceExists { device }) };
                }
                is_free(disk, self.next)?;
                if self.next.membership.members.len() >= limits::DEVICES_MAX {
                    return Err(AdminError::TooManyDevices);
                }
                if self.next.changes() >= CHANGES_MAX {
                    return Err(AdminError::TooManyChanges);
                }
                self.next.spares.remove(&disk);
                self.next.membership.add(device);
                self.hand_over(device, disk);
            }
            Administration::RemoveDevice { device } => {
                // A repeated request finds the device removed already.
                if self.member_state(device).is_ok() {
                    if let Some(volume) = self.stripes.any_on(device) {
                        return Err(AdminError::HoldsVolume { volume });
                    }
                    self.next.remove(device);
                    // Its lease may run for a while longer, which is harmless: no volume has blocks there.
                    let known = self.devices.get_mut(&device);
                    known.into_iter().for_each(|known| known.take_out(self.now, self.settings, true));
                }
            }
        }
        Ok(())
    }

    /// A device whose stripes are given up may have been the only one that knew what other devices had missed. If one of those is out, it
    /// must not return with its old content as if that were complete: it is held out until the operator replaces its disk, or readmits it
    /// and so accepts the older content. If one of them is returning, the request is refused until the operator has taken it out.
    fn hold_its_wards(&mut self, device: DeviceId) -> Result<(), AdminError> {
        let member = |other: DeviceId| self.next.membership.member(other).map(|member| member.member_state);
        let wards = self.stripes.needed_beside(device, |other| member(other) == Some(MemberState::In));
        let returning = |other: &DeviceId| matches!(member(*other), Some(MemberState::Returning { .. }));
        let others: Vec<DeviceId> = wards.iter().copied().filter(returning).collect();
        if !others.is_empty() {
            return Err(AdminError::NeedsOthers { others });
        }
        for ward in wards {
            let slot = self.next.slot_mut(ward);
            slot.kept_out |= !matches!(slot.change, Change::Awaited { .. });
        }
        Ok(())
    }

    fn member_state(&self, device: DeviceId) -> Result<MemberState, AdminError> {
        self.next.membership.member(device).map(|member| member.member_state).ok_or(AdminError::NoSuchDevice)
    }
}

fn is_free(disk: DiskId, next: &Recorded) -> Result<(), AdminError> {
    let user = next.slots.iter().find(|(_, slot)| slot.involves(disk)).map(|(device, _)| *device);
    user.map_or(Ok(()), |device| Err(AdminError::DiskInUse { device }))
}
