//! What operators ask for, made part of the next record (`docs/healing.md`).

use crate::draft::Draft;
use crate::record::Recorded;
use crate::slot::{CHANGES_MAX, Change};
use braid_base::{DeviceId, DiskId, Standing, limits};
use braid_wire::{Administration, Objection};

impl Draft<'_> {
    /// Makes what an operator asks for part of it, or says why that can't be.
    pub fn change(&mut self, request: Administration) -> Result<(), Objection> {
        match request {
            Administration::Fail { device } => {
                if self.standing(device)? == Standing::In {
                    self.dependence().can_leave(device, &self.next.membership)?;
                    if !self.stripes.is_protected(device) {
                        return Err(Objection::NothingGained);
                    }
                }
                self.next.slot_mut(device).held = true;
            }
            Administration::Readmit { device } => {
                self.standing(device)?;
                let slot = self.next.slot_mut(device);
                slot.held = false;
                (slot.disk, slot.change) = match slot.change {
                    Change::Awaited { before: Some(before) } => (Some(before), Change::Settled),
                    Change::Awaited { before: None } => (slot.disk, slot.change),
                    Change::Settled | Change::Leaving { .. } => (slot.disk, Change::Settled),
                };
            }
            Administration::Replace { device, disk, blocks, lose } => {
                let mut standing = self.standing(device)?;
                let slot = self.next.slot(device);
                if slot.disk == Some(disk) || slot.change == (Change::Leaving { to: disk }) {
                    return Ok(());
                }
                is_free(disk, self.next)?;
                let needed = self.stripes.blocks_on(device);
                if blocks < needed {
                    return Err(Objection::TooSmall { blocks, needed });
                }
                if let Some(volume) = self.stripes.unprotected_on(device).filter(|_| !lose) {
                    return Err(Objection::WouldLose { volume });
                }
                let harm = if standing == Standing::In {
                    self.dependence().can_leave(device, &self.next.membership)
                } else {
                    Ok(())
                };
                // Of one that still serves, nothing is lost yet.
                let is_dead = !self.devices[&device].may_serve(self.now);
                if !(lose && is_dead) {
                    harm.clone()?;
                }
                if self.next.changes() >= CHANGES_MAX {
                    return Err(Objection::TooManyChanges);
                }
                if harm.is_err() {
                    // Its operator gives up the stripes that can't do without it: so the others go on without it at once.
                    self.hold_its_wards(device)?;
                    self.take_out(device);
                    standing = Standing::Out;
                }
                self.next.spares.remove(&disk);
                match standing {
                    Standing::Out => self.hand_over(device, disk),
                    Standing::In | Standing::Returning { .. } => {
                        self.next.slot_mut(device).change = Change::Leaving { to: disk };
                    }
                }
            }
            Administration::AddSpare { disk, blocks } => {
                is_free(disk, self.next)?;
                if self.next.spares.len() >= limits::SPARES_MAX && !self.next.spares.contains_key(&disk) {
                    return Err(Objection::TooManySpares);
                }
                self.next.spares.insert(disk, blocks);
            }
            Administration::RemoveSpare { disk } => {
                self.next.spares.remove(&disk).ok_or(Objection::NoSuchSpare)?;
            }
            Administration::Pace(pace) => self.next.pace = pace,
            Administration::AddDevice { device, disk } => {
                if self.standing(device).is_ok() {
                    let is_this = self.next.slot(device).disk == Some(disk);
                    return if is_this { Ok(()) } else { Err(Objection::DeviceExists { device }) };
                }
                is_free(disk, self.next)?;
                if self.next.membership.members.len() >= limits::DEVICES_MAX {
                    return Err(Objection::TooManyDevices);
                }
                if self.next.changes() >= CHANGES_MAX {
                    return Err(Objection::TooManyChanges);
                }
                self.next.spares.remove(&disk);
                self.next.membership.add(device);
                self.hand_over(device, disk);
            }
            Administration::RemoveDevice { device } => {
                // Asked again, it is not there any more.
                if self.standing(device).is_ok() {
                    if let Some(volume) = self.stripes.any_on(device) {
                        return Err(Objection::HoldsVolume { volume });
                    }
                    self.next.remove(device);
                    // It may serve on for a while: nothing lies there.
                    let known = self.devices.get_mut(&device);
                    known.into_iter().for_each(|known| known.take_out(self.now, self.settings));
                }
            }
        }
        Ok(())
    }

    /// A device whose stripes are given up may have been the only one that knew what others had missed. Those of these that are out must not
    /// come back with what they have, as if that were all: they are held out, until the operator replaces their disks, or readmits
    /// them and so accepts older content. One that is returning must be held out first.
    fn hold_its_wards(&mut self, device: DeviceId) -> Result<(), Objection> {
        let member = |other: DeviceId| self.next.membership.member(other).map(|member| member.standing);
        let wards = self.stripes.needed_beside(device, |other| member(other) == Some(Standing::In));
        let returning = |other: &DeviceId| matches!(member(*other), Some(Standing::Returning { .. }));
        let others: Vec<DeviceId> = wards.iter().copied().filter(returning).collect();
        if !others.is_empty() {
            return Err(Objection::NeedsOthers { others });
        }
        for ward in wards {
            let slot = self.next.slot_mut(ward);
            slot.held |= !matches!(slot.change, Change::Awaited { .. });
        }
        Ok(())
    }

    fn standing(&self, device: DeviceId) -> Result<Standing, Objection> {
        self.next.membership.member(device).map(|member| member.standing).ok_or(Objection::NoSuchDevice)
    }
}

fn is_free(disk: DiskId, next: &Recorded) -> Result<(), Objection> {
    let user = next.slots.iter().find(|(_, slot)| slot.involves(disk)).map(|(device, _)| *device);
    user.map_or(Ok(()), |device| Err(Objection::DiskInUse { device }))
}
