//! Which disk fills each slot, and what operators ask for (`docs/healing.md`).
//!
//! ```text
//!              Replace, slot in              it is out                the disk renews
//!   Settled ───────────────────► Leaving ─────────────► Awaited ─────────────────────► Settled, returning
//!              Replace, slot out: at once ────────────► Awaited
//! ```
//!
//! A disk is put on record before its first lease. What is asked for is checked when the next record is made, and answered when that
//! is durable.

use crate::leases::Device;
use crate::monitor::Monitor;
use crate::record::Recorded;
use braid_base::{DeviceId, DiskId, Epoch, Membership, NodeId, Now, Standing, Time, limits};
use braid_machine::{Effects, Ignored};
use braid_wire::{Administration, HealingProgress, MonitorAnswer, MonitorReply, Objection, Pace, Unwelcome};

/// The most requests of operators that wait at a time. Others are dropped, and asked again.
pub(crate) const REQUESTS_MAX: usize = 64;
/// The most askers whose last refusal is remembered: the latest generations.
pub(crate) const ANSWERED_MAX: usize = 256;
/// The most slots that wait for another disk.
pub(crate) const CHANGES_MAX: usize = 64;

/// What is on record of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slot {
    /// The disk that fills it; none before the first one has been heard of.
    pub disk: Option<DiskId>,
    /// An operator has taken it out.
    pub held: bool,
    pub change: Change,
    /// The latest epoch that the disk was heard to live by; while another one is awaited, of the disk before. It has had that epoch, so
    /// it is an older copy if it says an earlier one, or none.
    pub lived_by: Epoch,
}

/// Whether another disk is to fill a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Change {
    #[default]
    Settled,
    /// This one, as soon as the slot is out.
    Leaving { to: DiskId },
    /// It fills the slot, but has never been heard of. The one before it could still come back.
    Awaited { before: Option<DiskId> },
}

/// A slot, as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotShown {
    /// The slot.
    pub device: DeviceId,
    /// The disk that fills it; none before the first one has been heard of.
    pub disk: Option<DiskId>,
    /// The disk that is to fill it as soon as it is out.
    pub leaves_to: Option<DiskId>,
    /// The disk that should be brought there, if it is not there yet.
    pub awaits: Option<DiskId>,
    /// An operator has taken it out.
    pub held: bool,
    /// Why what was last heard there may not serve.
    pub unwelcome: Option<Unwelcome>,
    /// How far it is, while it is returning, as its helper last said.
    pub progress: Option<HealingProgress>,
}

/// What an operator has asked for, and has not been answered.
#[derive(Debug)]
pub(crate) struct Request {
    asker: Epoch,
    request: Administration,
    /// It is in the record that is being written.
    decided: bool,
}

impl Slot {
    /// True if it is to go out as soon as that can be.
    pub fn is_to_leave(&self) -> bool {
        self.held || matches!(self.change, Change::Leaving { .. })
    }

    /// True if it is, or is going to be, or could again become, the slot's disk.
    fn involves(&self, disk: DiskId) -> bool {
        let other = match self.change {
            Change::Settled => None,
            Change::Leaving { to } => Some(to),
            Change::Awaited { before } => before,
        };
        self.disk == Some(disk) || other == Some(disk)
    }

    /// The slot is out: another disk fills it from now on.
    fn hand_over(&mut self, to: DiskId) {
        // The one that is awaited has never been there: what was before it is still what could come back.
        let before = if let Change::Awaited { before } = self.change { before } else { self.disk };
        *self = Slot { disk: Some(to), held: false, change: Change::Awaited { before }, ..*self };
    }

    /// Why this disk, which has lived up to `epoch`, may not serve here.
    fn objects_to(&self, disk: DiskId, epoch: Epoch) -> Option<Unwelcome> {
        match (self.disk, self.change) {
            (Some(expected), _) if expected != disk => Some(Unwelcome::OtherDisk { expected }),
            (_, Change::Awaited { .. }) if epoch > Epoch(0) => Some(Unwelcome::Used { epoch }),
            _ => None,
        }
    }
}

impl Monitor {
    /// What is on record of a slot.
    pub(crate) fn slot(&self, device: DeviceId) -> Slot {
        self.record.durable().slot(device)
    }

    /// All slots, ascending: which disks fill them, or should.
    pub fn slots(&self) -> impl Iterator<Item = SlotShown> + '_ {
        self.devices.iter().map(|(device, known)| {
            let Slot { disk, held, change, .. } = self.slot(*device);
            let awaits = disk.filter(|_| matches!(change, Change::Awaited { .. }));
            let leaves_to = if let Change::Leaving { to } = change { Some(to) } else { None };
            let (unwelcome, progress) = (known.unwelcome, known.progress);
            SlotShown { device: *device, disk, leaves_to, awaits, held, unwelcome, progress }
        })
    }

    /// Disks that stand by, and how many blocks objects may have on each.
    pub fn spares(&self) -> impl Iterator<Item = (DiskId, u64)> + '_ {
        self.record.durable().spares.iter().map(|(disk, blocks)| (*disk, *blocks))
    }

    /// How fast devices are brought what they lack.
    pub fn pace(&self) -> Pace {
        self.record.durable().pace
    }

    /// A device renews with this disk. True if it is the right one, and can be treated like any; else it is answered here.
    pub(crate) fn admits(&mut self, now: Now, device: DeviceId, disk: DiskId, epoch: Epoch, out: &mut Effects) -> bool {
        let slot = self.slot(device);
        let known = self.devices.get_mut(&device).expect("just seen");
        known.unwelcome = slot.objects_to(disk, epoch);
        let reply = match (known.unwelcome, slot) {
            (Some(why), _) => MonitorReply::Unwelcome(why),
            // It may serve when that is on record.
            (None, Slot { disk: None, .. }) => {
                self.learned.insert(device, disk);
                self.decide_now = true;
                MonitorReply::Changed
            }
            // It must not live by an epoch in which it is out: that would look like a past.
            (None, Slot { change: Change::Awaited { .. }, .. }) => {
                known.heard = Some(now.time);
                MonitorReply::Changed
            }
            _ => return true,
        };
        self.counters.messages_sent += 1;
        let answer = MonitorAnswer { membership: None, away: Vec::new(), reply };
        out.send(NodeId::Device(device), braid_wire::Message::MonitorAnswer(answer));
        false
    }

    /// True if a device is to hear of a new epoch unasked.
    pub(crate) fn is_to_hear(&self, device: DeviceId) -> bool {
        let awaited = matches!(self.slot(device).change, Change::Awaited { .. });
        !awaited && self.devices[&device].unwelcome.is_none()
    }

    pub(crate) fn on_administer(
        &mut self,
        name: (NodeId, u64),
        asker: Epoch,
        request: Administration,
        out: &mut Effects,
    ) {
        if self.requests.contains_key(&name) {
            return self.ignore(Ignored::InProgress, out);
        }
        // Who was refused has made other plans: a late copy of what he asked changes nothing any more.
        if self.answered.get(&name.0).is_some_and(|last| name.1 <= *last) {
            return self.ignore(Ignored::Settled, out);
        }
        if self.requests.len() < REQUESTS_MAX {
            self.requests.insert(name, Request { asker, request, decided: false });
            self.decide_now = true;
        }
    }

    /// Puts what was asked for into the next record, and answers what can't be.
    pub(crate) fn administer(&mut self, now: Now, next: &mut Recorded, out: &mut Effects) {
        let names: Vec<_> = self.requests.iter().filter(|(_, held)| !held.decided).map(|(name, _)| *name).collect();
        for name in names {
            match self.change(now, self.requests[&name].request, next) {
                Ok(()) => self.requests.get_mut(&name).expect("just listed").decided = true,
                Err(objection) => self.answer_administered(now, name, Err(objection), out),
            }
        }
    }

    /// The record has what was decided.
    pub(crate) fn on_administered(&mut self, now: Now, out: &mut Effects) {
        let done: Vec<_> = self.requests.iter().filter(|(_, held)| held.decided).map(|(name, _)| *name).collect();
        done.into_iter().for_each(|name| self.answer_administered(now, name, Ok(()), out));
    }

    fn answer_administered(&mut self, now: Now, name: (NodeId, u64), result: Result<(), Objection>, out: &mut Effects) {
        let request = self.requests.remove(&name).expect("it has not been answered");
        if result.is_err() {
            let last = self.answered.entry(name.0).or_default();
            *last = name.1.max(*last);
            if self.answered.len() > ANSWERED_MAX {
                self.answered.pop_first();
            }
        }
        let reply = MonitorReply::Administered { ticket: name.1, result };
        self.answer(now, name.0, request.asker, reply, out);
    }

    fn change(&mut self, now: Now, request: Administration, next: &mut Recorded) -> Result<(), Objection> {
        let standing = |device, next: &Recorded| {
            next.membership.member(device).map(|member| member.standing).ok_or(Objection::NoSuchDevice)
        };
        match request {
            Administration::Fail { device } => {
                if standing(device, next)? == Standing::In {
                    self.can_leave(now.time, device, &next.membership)?;
                    if !self.stripes.is_protected(device) {
                        return Err(Objection::NothingGained);
                    }
                }
                next.slot_mut(device).held = true;
            }
            Administration::Readmit { device } => {
                standing(device, next)?;
                let slot = next.slot_mut(device);
                slot.held = false;
                (slot.disk, slot.change) = match slot.change {
                    Change::Awaited { before: Some(before) } => (Some(before), Change::Settled),
                    Change::Awaited { before: None } => (slot.disk, slot.change),
                    Change::Settled | Change::Leaving { .. } => (slot.disk, Change::Settled),
                };
            }
            Administration::Replace { device, disk, blocks, lose } => {
                let mut standing = standing(device, next)?;
                let slot = next.slot(device);
                if slot.disk == Some(disk) || slot.change == (Change::Leaving { to: disk }) {
                    return Ok(());
                }
                is_free(disk, next)?;
                let needed = self.stripes.blocks_on(device);
                if blocks < needed {
                    return Err(Objection::TooSmall { blocks, needed });
                }
                if let Some(volume) = self.stripes.unprotected_on(device).filter(|_| !lose) {
                    return Err(Objection::WouldLose { volume });
                }
                let harm =
                    if standing == Standing::In { self.can_leave(now.time, device, &next.membership) } else { Ok(()) };
                // Of one that still serves, nothing is lost yet.
                let is_dead = !self.devices[&device].may_serve(now.time);
                if !(lose && is_dead) {
                    harm.clone()?;
                }
                if next.changes() >= CHANGES_MAX {
                    return Err(Objection::TooManyChanges);
                }
                if harm.is_err() {
                    // Its operator gives up the stripes that can't do without it: so the others go on without it at once.
                    self.hold_its_wards(device, next)?;
                    self.take_out(now, device, &mut next.membership);
                    standing = Standing::Out;
                }
                next.spares.remove(&disk);
                match standing {
                    Standing::Out => self.hand_over(device, disk, next),
                    Standing::In | Standing::Returning { .. } => {
                        next.slot_mut(device).change = Change::Leaving { to: disk };
                    }
                }
            }
            Administration::AddSpare { disk, blocks } => {
                is_free(disk, next)?;
                if next.spares.len() >= limits::SPARES_MAX && !next.spares.contains_key(&disk) {
                    return Err(Objection::TooManySpares);
                }
                next.spares.insert(disk, blocks);
            }
            Administration::RemoveSpare { disk } => {
                next.spares.remove(&disk).ok_or(Objection::NoSuchSpare)?;
            }
            Administration::Pace(pace) => next.pace = pace,
            Administration::AddDevice { device, disk } => {
                if standing(device, next).is_ok() {
                    let is_this = next.slot(device).disk == Some(disk);
                    return if is_this { Ok(()) } else { Err(Objection::DeviceExists { device }) };
                }
                is_free(disk, next)?;
                if next.membership.members.len() >= limits::DEVICES_MAX {
                    return Err(Objection::TooManyDevices);
                }
                if next.changes() >= CHANGES_MAX {
                    return Err(Objection::TooManyChanges);
                }
                next.spares.remove(&disk);
                next.membership.add(device);
                self.hand_over(device, disk, next);
            }
            Administration::RemoveDevice { device } => {
                // Asked again, it is not there any more.
                if standing(device, next).is_ok() {
                    if let Some(volume) = self.stripes.any_on(device) {
                        return Err(Objection::HoldsVolume { volume });
                    }
                    next.remove(device);
                    // It may serve on for a while: nothing lies there.
                    let known = self.devices.get_mut(&device);
                    known.into_iter().for_each(|known| known.take_out(now.time, &self.config.settings));
                }
            }
        }
        Ok(())
    }

    /// A device whose stripes are given up may have been the only one that knew what others had missed. Those of these that are out must not
    /// come back with what they have, as if that were all: they are held out, until the operator replaces their disks, or readmits
    /// them and so accepts older content. One that is returning must be held out first.
    fn hold_its_wards(&self, device: DeviceId, next: &mut Recorded) -> Result<(), Objection> {
        let member = |other: DeviceId| next.membership.member(other).map(|member| member.standing);
        let wards = self.stripes.needed_beside(device, |other| member(other) == Some(Standing::In));
        let returning = |other: &DeviceId| matches!(member(*other), Some(Standing::Returning { .. }));
        let others: Vec<DeviceId> = wards.iter().copied().filter(returning).collect();
        if !others.is_empty() {
            return Err(Objection::NeedsOthers { others });
        }
        for ward in wards {
            let slot = next.slot_mut(ward);
            slot.held |= !matches!(slot.change, Change::Awaited { .. });
        }
        Ok(())
    }

    /// Those whose absence keeps a device from leaving.
    fn can_leave(&self, now: Time, device: DeviceId, membership: &Membership) -> Result<(), Objection> {
        let others = self.stripes.needed_beside(device, |other| self.is_reliable(now, other, membership));
        if others.is_empty() { Ok(()) } else { Err(Objection::NeedsOthers { others }) }
    }

    /// The record says which devices there are.
    pub(crate) fn follow_members(&mut self, now: Now) {
        let membership = self.record.durable().membership.clone();
        self.devices.retain(|device, _| membership.member(*device).is_some());
        self.learned.retain(|device, _| membership.member(*device).is_some());
        self.caught_up.retain(|device| membership.member(*device).is_some());
        for member in membership.members {
            self.devices.entry(member.device).or_insert_with(|| Device::new(now.time, &self.config.settings));
        }
    }

    /// Slots that were to get another disk, and are out.
    pub(crate) fn hand_over_left(&mut self, next: &mut Recorded) {
        let out: Vec<_> = next.membership.devices(|standing| standing == Standing::Out).collect();
        for device in out {
            if let Change::Leaving { to } = next.slot(device).change {
                self.hand_over(device, to, next);
            }
        }
    }

    fn hand_over(&mut self, device: DeviceId, to: DiskId, next: &mut Recorded) {
        next.slot_mut(device).hand_over(to);
        self.counters.handed_over += 1;
    }

    /// The record says that other disks fill these slots than before: what was heard there was not these.
    pub(crate) fn on_handed_over(&mut self, before: &Recorded) {
        let changed = |device: &DeviceId| before.slot(*device).disk != self.slot(*device).disk;
        let changed: Vec<_> = self.devices.keys().copied().filter(changed).collect();
        for device in changed {
            self.devices.get_mut(&device).expect("just listed").forget_disk();
        }
    }

    /// Spares take the slots of devices that stay out.
    pub(crate) fn use_spares(&mut self, now: Now, next: &mut Recorded) {
        if next.spares.is_empty() {
            return;
        }
        let out: Vec<_> = next.membership.devices(|standing| standing == Standing::Out).collect();
        for device in out {
            let slot = next.slot(device);
            let waits = slot.change == Change::Settled && !slot.held && self.stripes.unprotected_on(device).is_none();
            if !waits || !self.devices[&device].stays_out(now.time, &self.config.settings) {
                continue;
            }
            let needed = self.stripes.blocks_on(device);
            let fits = next.spares.iter().filter(|(_, blocks)| **blocks >= needed);
            let Some(disk) = fits.min_by_key(|(_, blocks)| **blocks).map(|(disk, _)| *disk) else { continue };
            if next.changes() < CHANGES_MAX {
                next.spares.remove(&disk);
                self.hand_over(device, disk, next);
            }
        }
    }

    /// Disks that were heard of in slots of which nothing was on record.
    pub(crate) fn learn(&mut self, next: &mut Recorded) {
        for (device, disk) in std::mem::take(&mut self.learned) {
            let slot = next.slot_mut(device);
            slot.disk = slot.disk.or(Some(disk));
        }
    }
}

fn is_free(disk: DiskId, next: &Recorded) -> Result<(), Objection> {
    let user = next.slots.iter().find(|(_, slot)| slot.involves(disk)).map(|(device, _)| *device);
    user.map_or(Ok(()), |device| Err(Objection::DiskInUse { device }))
}
