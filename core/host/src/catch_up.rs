//! Bringing a returning device what it missed, when the monitor has named this host as its helper (`docs/membership.md`).
//!
//! ```text
//!   Surveying  the devices that are in say which objects they have: one that no volume is known for must become known first (volumes are
//!              told by the front end); what the returning device lacks it makes, what nobody else has it removes. One that has no lease
//!              is waited for only if it is on the ring of one of the returning device's redundant volumes
//!   Listing    every device of these rings that is not out says what was written while the other was out, once it has nothing undecided
//!              from before
//!   Restoring  each of these blocks, by an ordinary storage transaction, a few at a time
//!   Rebuilding what is absent, since the device has another disk than before
//!   Done       the monitor is told, until the membership says it, too
//! ```
//!
//! It asks for nothing that a front end could not ask for; its requests are numbered apart from those of front ends.

use crate::ctx::Timer;
use crate::host::Host;
use crate::pace::Throttle;
use crate::rebuild::{Portion, Rebuilding, Region, Side, Step};
use braid_base::{BlockRange, DeviceId, Epoch, Extents, Now, Standing, Time, VolumeId, limits};
use braid_layout::VolumeDescription;
use braid_machine::{Effects, HostError, HostOutcome, HostRequest, HostSuccess, OpId};
use braid_wire::{Failure, HealingProgress, Managed, ObjectDescription, Task};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

type Volumes = BTreeMap<VolumeId, Rc<VolumeDescription>>;

/// Front ends number their requests below this.
const OWN_OPERATIONS: u64 = 1 << 63;
/// Devices that one host helps at a time.
const HELPED_MAX: usize = 8;
/// Requests at a time, for one device.
const PARALLEL: usize = 8;
/// Blocks of the volume that one of them restores at most.
const BLOCKS_AT_ONCE: u64 = 128;
/// The most runs of missed blocks that are kept in mind of a volume; beyond, those that lie closest are taken for one.
const MISSED_MAX: usize = 1 << 16;
/// What a device missed is brought to it without giving way to users, up to so many of its blocks: redundancy is back the sooner.
const HASTE_BLOCKS: u64 = 1 << 16;
/// How long to wait after a failure.
const PAUSE: Duration = Duration::from_millis(500);
/// How long to wait for commits to be told, before it is looked whether all is there.
const LINGER: Duration = Duration::from_millis(20);

/// A device that is being helped.
#[derive(Debug)]
pub(crate) struct CatchUp {
    device: DeviceId,
    /// The epoch of its return.
    since: Epoch,
    stage: Stage,
    /// What is under way, and since when.
    asked: BTreeMap<OpId, (Errand, Time)>,
    /// What is to be done, or to be done again.
    errands: VecDeque<Errand>,
    /// The devices that were in when it was asked what was missed: each of them knows all of it.
    there: BTreeSet<DeviceId>,
    /// The objects of each device.
    objects: BTreeMap<DeviceId, Vec<ObjectDescription>>,
    /// What was missed, as far as it is known and not yet an errand: blocks of the volume, on each of its sides.
    missed: BTreeMap<Side, Extents>,
    /// The volume that is being rebuilt on it, and those of which nothing is absent.
    rebuilding: Option<Rebuilding>,
    whole: BTreeSet<Side>,
    throttle: Throttle,
    progress: HealingProgress,
    /// Blocks that can't be restored.
    lost: BTreeSet<(VolumeId, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Surveying,
    Listing,
    Restoring,
    Rebuilding,
    Done,
}

/// One thing to do for a returning device.
#[derive(Clone, Debug)]
enum Errand {
    /// Ask a device for its objects.
    Survey { of: DeviceId },
    /// Have the returning device make, change or remove an object.
    Object(Task),
    /// Ask another device what was missed.
    List { volume: VolumeId, of: DeviceId, from: u64 },
    /// Ask the returning device what is absent.
    Absent { side: Side, from: u64 },
    /// Ask another device where it holds anything.
    Allocated { side: Side, of: DeviceId, range: BlockRange },
    /// Restore blocks of the volume; where that can't be, say that they are lost.
    Restore { side: Side, portion: Portion, salvage: bool },
}

impl Host {
    /// The first device that this host helps, and how many blocks of it are still to be looked at, once that is known.
    pub fn helps(&self) -> Option<(DeviceId, Option<u64>)> {
        let helped = self.catch_ups.values().next()?;
        let known = matches!(helped.stage, Stage::Restoring | Stage::Rebuilding | Stage::Done);
        Some((helped.device, known.then(|| helped.left())))
    }

    /// The devices that this host helps, and how far that is, in blocks of the device.
    pub fn healing(&self) -> impl Iterator<Item = (DeviceId, HealingProgress)> + '_ {
        self.catch_ups.values().map(|helped| {
            let lost = helped.lost.len() as u64;
            (helped.device, HealingProgress { left: helped.left(), lost, ..helped.progress })
        })
    }

    /// Blocks of volumes that could not be restored on devices that this host helps, since too much of their rows is lost.
    pub fn not_restored(&self) -> impl Iterator<Item = (VolumeId, u64)> + '_ {
        self.catch_ups.values().flat_map(|helped| helped.lost.iter().copied())
    }

    /// The devices that it has helped to all that they missed.
    pub(crate) fn have_caught_up(&self) -> impl Iterator<Item = (DeviceId, Epoch)> + '_ {
        let done = self.catch_ups.values().filter(|helped| helped.stage == Stage::Done);
        done.map(|helped| (helped.device, helped.since))
    }

    /// A membership has come: are there devices that this host is to help?
    pub(crate) fn look_for_help(&mut self, now: Now, out: &mut Effects) {
        let own = Some(self.config.generation);
        let mine = |standing| matches!(standing, Standing::Returning { helper } if helper == own);
        let membership = self.membership().expect("one has come");
        let members: Vec<_> = membership.members.iter().filter(|member| mine(member.standing)).copied().collect();
        let goes_on = |helped: &CatchUp| {
            members.iter().any(|member| (member.device, member.since) == (helped.device, helped.since))
        };
        self.catch_ups.retain(|_, helped| goes_on(helped));
        let helped: BTreeSet<_> = self.catch_ups.keys().copied().collect();
        // The turn of more comes with the epoch in which one of these is in.
        let new = members.into_iter().filter(|member| !helped.contains(&member.device));
        for member in new.take(HELPED_MAX.saturating_sub(helped.len())) {
            self.catch_ups.insert(member.device, CatchUp::new(member.device, member.since));
            self.survey(member.device);
            self.help(now, member.device, out);
        }
    }

    /// Others are in, or without a lease, than before. Whoever is out is not asked any more: all who are in know as much. As long as it is
    /// being asked what was missed, the question is put anew to those who are in now.
    pub(crate) fn review_help(&mut self, now: Now, out: &mut Effects) {
        let devices: Vec<_> = self.catch_ups.keys().copied().collect();
        for device in devices {
            let there = self.those_who_know(device);
            let helped = &self.catch_ups[&device];
            let is_asking = matches!(helped.stage, Stage::Surveying | Stage::Listing);
            if is_asking && helped.there != there {
                let helped = self.helped(device);
                (helped.stage, helped.there) = (Stage::Surveying, there);
                helped.asked.clear();
                self.survey(device);
            } else {
                let needless = |errand: &Errand| match errand {
                    Errand::Survey { of } => *of != device && !self.is_to_be_surveyed(device, *of),
                    Errand::List { of, .. } => self.is_out(*of),
                    Errand::Allocated { of, .. } => !self.is_at_hand(*of),
                    Errand::Object(_) | Errand::Absent { .. } | Errand::Restore { .. } => false,
                };
                let dropped: Vec<_> =
                    helped.asked.iter().filter(|(_, (held, _))| needless(held)).map(|(op, _)| *op).collect();
                let kept: VecDeque<_> = helped.errands.iter().filter(|errand| !needless(errand)).cloned().collect();
                let helped = self.helped(device);
                helped.errands = kept;
                helped.asked.retain(|op, _| !dropped.contains(op));
            }
            self.help(now, device, out);
        }
    }

    /// The devices that are in, of the rings of a device's redundant volumes: they know what it has missed.
    fn those_who_know(&self, device: DeviceId) -> BTreeSet<DeviceId> {
        let rings = sides_on(&self.volumes, device);
        let others = rings.iter().flat_map(|(_, volume)| volume.devices.iter().copied());
        others.filter(|other| *other != device && self.place.is_in(*other)).collect()
    }

    /// Every device that is in may have an object of a volume that is not known here. But of one that does not serve only those have to be
    /// waited for that are on a ring with the returning device: what lies on the others is no matter of its.
    fn is_to_be_surveyed(&self, device: DeviceId, other: DeviceId) -> bool {
        self.is_at_hand(other) || self.those_who_know(device).contains(&other)
    }

    /// True if a device is in, and is not known to have no lease.
    fn is_at_hand(&self, device: DeviceId) -> bool {
        self.place.is_in(device) && !self.away().contains(&device)
    }

    pub(crate) fn is_out(&self, device: DeviceId) -> bool {
        let member = self.membership().and_then(|membership| membership.member(device));
        member.is_none_or(|member| member.standing == Standing::Out)
    }

    fn helped(&mut self, device: DeviceId) -> &mut CatchUp {
        self.catch_ups.get_mut(&device).expect("the device is being helped")
    }

    /// Has every device that is in, but for those that need not be waited for, and the returning one, asked for its objects.
    fn survey(&mut self, device: DeviceId) {
        let membership = self.membership().expect("one has come");
        let there = membership.devices(|standing| standing == Standing::In);
        let there: Vec<_> = there.filter(|other| self.is_to_be_surveyed(device, *other)).collect();
        let knowing = self.those_who_know(device);
        let helped = self.helped(device);
        helped.there = knowing;
        helped.objects.clear();
        helped.errands = there.into_iter().chain([device]).map(|of| Errand::Survey { of }).collect();
    }

    /// Goes on with what is to be done for a device.
    pub(crate) fn help(&mut self, now: Now, device: DeviceId, out: &mut Effects) {
        loop {
            let Some(helped) = self.catch_ups.get_mut(&device) else { return };
            if helped.asked.len() >= PARALLEL || helped.stage == Stage::Done || self.leaving.is_some() {
                return;
            }
            let Some(errand) = helped.next_errand(&self.volumes) else {
                if !helped.asked.is_empty() {
                    return;
                }
                if !self.enter_next_stage(now, device, out) {
                    return;
                }
                continue;
            };
            let errand = match errand {
                Errand::Restore { side, portion, salvage } => match self.begin_restore(now, device, side, portion) {
                    Some(portion) => Errand::Restore { side, portion, salvage },
                    None => return self.helped(device).errands.push_front(errand),
                },
                other => other,
            };
            let op = self.own_operation();
            let helped = self.helped(device);
            helped.asked.insert(op, (errand.clone(), now.time));
            let since = helped.since;
            let request = match errand {
                Errand::Survey { of } => HostRequest::Manage { device: of, task: Task::ListObjects },
                Errand::Object(task) => HostRequest::Manage { device, task },
                Errand::List { volume, of, from } => {
                    let task = Task::ListMissed { device, object: volume.object(), from };
                    HostRequest::Manage { device: of, task }
                }
                Errand::Absent { side, from } => {
                    HostRequest::Manage { device, task: Task::ListAbsent { object: side.volume.object(), from } }
                }
                Errand::Allocated { side, of, range } => {
                    let task = Task::ListAllocated { object: side.volume.object(), range };
                    HostRequest::Manage { device: of, task }
                }
                Errand::Restore { side: Side { volume, target }, portion, salvage } => {
                    HostRequest::Restore { volume, device, blocks: portion.blocks, salvage, target }
                }
            };
            self.on_request(now, op, request, out);
            if self.catch_ups.get(&device).is_none_or(|helped| helped.since != since) {
                return;
            }
        }
    }

    /// Lets a restore begin, or as much of it as should now; what is left of it is the next errand. None if it has to wait.
    fn begin_restore(&mut self, now: Now, device: DeviceId, side: Side, portion: Portion) -> Option<Portion> {
        let helped = &self.catch_ups[&device];
        let hastens = helped.stage == Stage::Restoring && helped.progress.done < HASTE_BLOCKS;
        let effort = self.effort(now, side.volume, hastens);
        let restoring = helped.asked.values().filter(|(errand, _)| matches!(errand, Errand::Restore { .. })).count();
        if restoring >= effort.parallel.min(PARALLEL) {
            return None;
        }
        let stripe = side_of(&self.volumes, side).map_or(1, |volume| volume.layout.stripe_blocks());
        let (portion, rest) = portion.cut(effort.blocks, stripe);
        if let Err(later) = self.helped(device).throttle.begin(now.time, &effort, portion.bytes()) {
            self.timers.set(Timer::Help(device), later);
            return None;
        }
        if let Some(portion) = rest {
            self.helped(device).errands.push_front(Errand::Restore { side, portion, salvage: false });
        }
        Some(portion)
    }

    /// All of a stage is done. False if there is nothing to do now.
    fn enter_next_stage(&mut self, now: Now, device: DeviceId, out: &mut Effects) -> bool {
        match self.catch_ups[&device].stage {
            Stage::Surveying => match self.after_survey(device) {
                Some(errands) => self.go_to(device, Stage::Listing, errands),
                None => {
                    // Its front end will tell of the volumes that are not known yet.
                    self.survey(device);
                    self.timers.set(Timer::Help(device), now.time.after(PAUSE));
                    return false;
                }
            },
            Stage::Listing => {
                let weighed = |(side, extents): (&Side, &Extents)| {
                    side_of(&self.volumes, *side).map_or(0, |volume| weight(&volume, extents.blocks()))
                };
                let left = self.catch_ups[&device].missed.iter().map(weighed).sum();
                self.helped(device).progress.left = left;
                self.go_to(device, Stage::Restoring, VecDeque::new());
            }
            Stage::Restoring => {
                self.helped(device).progress.left = 0;
                self.go_to(device, Stage::Rebuilding, VecDeque::new());
            }
            Stage::Rebuilding => {
                let next = self.next_of_rebuild(device);
                match next {
                    Some(errands) if errands.is_empty() => {
                        self.timers.set(Timer::Help(device), now.time.after(LINGER));
                        return false;
                    }
                    Some(errands) => self.helped(device).errands = errands,
                    None => {
                        self.go_to(device, Stage::Done, VecDeque::new());
                        // The monitor hears of it at once, and again until it has taken note.
                        self.on_monitor_timer(now, out);
                        return false;
                    }
                }
            }
            Stage::Done => return false,
        }
        true
    }

    /// What follows when all of a step of the rebuild is done; none if nothing is absent any more. Nothing at all if it is to be asked
    /// for again, later.
    fn next_of_rebuild(&mut self, device: DeviceId) -> Option<VecDeque<Errand>> {
        let helped = self.catch_ups.get_mut(&device).expect("the device is being helped");
        let sides = sides_on(&self.volumes, device);
        let known = |held: &Rebuilding| sides.iter().find(|(side, _)| *side == held.side);
        let Some((side, volume)) = helped.rebuilding.as_ref().and_then(known) else {
            let (side, volume) = sides.into_iter().find(|(side, _)| !helped.whole.contains(side))?;
            let from = volume.layout.first_block();
            helped.rebuilding = Some(Rebuilding { side, step: Step::Asking { from } });
            return Some([Errand::Absent { side, from }].into());
        };
        let (side, start) = (*side, volume.layout.first_block());
        let rebuilding = helped.rebuilding.as_mut().expect("just seen");
        match std::mem::replace(&mut rebuilding.step, Step::Asking { from: start }) {
            // All that was absent is on its way, or there: is it?
            Step::Asking { from } if from == start => Some([Errand::Absent { side, from }].into()),
            Step::Asking { .. } => Some(VecDeque::new()),
            Step::Sizing(region) => {
                let place = volume.devices.iter().position(|held| *held == helped.device).expect("it lies there");
                let end = region.range().end();
                let portions = region.portions(volume, place);
                let restore = |portion| Errand::Restore { side, portion, salvage: false };
                let mut errands: VecDeque<_> = portions.into_iter().map(restore).collect();
                rebuilding.step = Step::Bringing { end };
                if errands.is_empty() {
                    rebuilding.step = Step::Asking { from: end };
                    errands.push_back(Errand::Absent { side, from: end });
                }
                Some(errands)
            }
            Step::Bringing { end } => {
                rebuilding.step = Step::Asking { from: end };
                Some([Errand::Absent { side, from: end }].into())
            }
        }
    }

    /// The returning device has said what is absent of the volume that is being rebuilt.
    fn on_absent(&mut self, device: DeviceId, side: Side, from: u64, extents: &[BlockRange]) {
        let membership = self.membership().expect("one has come");
        let there = membership.devices(|standing| standing == Standing::In);
        let there: Vec<_> = there.filter(|other| self.is_at_hand(*other)).collect();
        let helped = self.catch_ups.get_mut(&device).expect("the device is being helped");
        let Some(held) = helped.rebuilding.as_mut().filter(|held| held.side == side) else { return };
        let Some(volume) = side_of(&self.volumes, side) else { return };
        // What is absent of the other side has its own turn.
        let extents = extents.iter().map(|extent| extent.intersection(volume.component()));
        let extents: Vec<BlockRange> = extents.filter(|extent| !extent.is_empty()).collect();
        if extents.is_empty() {
            if from == volume.layout.first_block() {
                helped.whole.insert(side);
                helped.rebuilding = None;
            }
            return;
        }
        let region = Region::first_of(&extents);
        helped.progress.left = extents.iter().map(|extent| extent.count).sum::<u64>().saturating_sub(region.blocks());
        let range = region.range_beside(&volume);
        let others = volume.devices.iter().filter(|other| there.contains(other));
        helped.errands.extend(others.map(|of| Errand::Allocated { side, of: *of, range }));
        held.step = Step::Sizing(region);
    }

    /// Some blocks can't be restored, since others of their rows are lost, too: they are cut down to the single ones that can't.
    fn on_not_restorable(&mut self, device: DeviceId, side: Side, portion: Portion) {
        let helped = self.helped(device);
        let Portion { blocks, weight, moves } = portion;
        if blocks.count <= 1 {
            if helped.lost.len() < limits::LOST_RUNS_MAX {
                helped.lost.insert((side.volume, blocks.start));
            }
            return helped.errands.push_front(Errand::Restore { side, portion, salvage: true });
        }
        let half = blocks.count / 2;
        let parts = [(blocks.start, half), (blocks.start + half, blocks.count - half)];
        for (start, count) in parts {
            let portion =
                Portion { blocks: BlockRange::new(start, count), weight: weight * count / blocks.count, moves };
            helped.errands.push_front(Errand::Restore { side, portion, salvage: false });
        }
    }

    /// True if these devices are more than a stripe does without, and none of them is in. The monitor lets so many go only when an operator has
    /// given up what lies on them: nobody will bring it back.
    fn is_given_up(&self, side: Side, devices: &[DeviceId]) -> bool {
        let redundancy = side_of(&self.volumes, side).map_or(usize::MAX, |volume| volume.layout.redundancy_units());
        devices.len() > redundancy && !devices.iter().any(|device| self.place.is_in(*device))
    }

    /// Notes which of these blocks lie on a device, in stripes that are given up.
    fn name_lost(&mut self, device: DeviceId, side: Side, blocks: BlockRange) {
        let Some(volume) = side_of(&self.volumes, side) else { return };
        let is_gone = |place: usize| volume.devices.get(place).is_none_or(|held| !self.place.is_in(*held));
        let layout = volume.layout;
        let is_lost = |block: &u64| {
            let stripe = block / layout.stripe_blocks();
            let data = (0..layout.data_units()).map(|unit| layout.data_unit(stripe, unit).position);
            let redundancy = (0..layout.redundancy_units()).map(|unit| layout.redundancy_unit(stripe, unit).position);
            let gone = data.chain(redundancy).filter(|place| is_gone(*place)).count();
            gone > layout.redundancy_units() && volume.devices.get(layout.locate(*block).position) == Some(&device)
        };
        let room = limits::LOST_RUNS_MAX.saturating_sub(self.catch_ups[&device].lost.len());
        let lost: Vec<_> = blocks.blocks().filter(is_lost).take(room).map(|block| (side.volume, block)).collect();
        self.helped(device).lost.extend(lost);
    }

    fn go_to(&mut self, device: DeviceId, stage: Stage, errands: VecDeque<Errand>) {
        let helped = self.helped(device);
        (helped.stage, helped.errands) = (stage, errands);
    }

    /// What follows from the objects that devices have; none if there is a volume that this host does not know.
    fn after_survey(&self, device: DeviceId) -> Option<VecDeque<Errand>> {
        let helped = &self.catch_ups[&device];
        let membership = self.membership().expect("one has come");
        let own = helped.objects.get(&helped.device)?;
        let others =
            || helped.objects.iter().filter(|(device, _)| **device != helped.device).flat_map(|(_, held)| held);
        let is_known = |object: &ObjectDescription| self.volumes.contains_key(&VolumeId(object.object.0));
        if others().any(|object| object.redundant && !is_known(object)) {
            return None;
        }
        // Nobody else who was asked has it. But who was not may, and then it is of a volume that is not known yet.
        let has_all_asked =
            membership.devices(|standing| standing == Standing::In).all(|other| helped.objects.contains_key(&other));
        let is_nobodys = |held: &ObjectDescription| held.redundant && !is_known(held);
        if !has_all_asked && own.iter().any(is_nobodys) {
            return None;
        }
        // Of a volume that was deleted, or has moved away, meanwhile.
        let is_left_over = |held: &&ObjectDescription| match self.volumes.get(&VolumeId(held.object.0)) {
            Some(volume) => held.redundant && volume.object_on(helped.device).is_none(),
            None => held.redundant && others().all(|other| other.object != held.object),
        };
        let removed = own.iter().filter(is_left_over).map(|held| Task::RemoveObject { object: held.object });
        let mut errands: VecDeque<_> = removed.map(Errand::Object).collect();
        for volume in self.volumes.values() {
            let Some(range) = volume.object_on(helped.device).filter(|_| volume.layout.redundancy_units() > 0) else {
                continue;
            };
            let (object, ordering) = (volume.id.object(), volume.ordering);
            let held = own.iter().find(|held| held.object == object);
            let mut has = held.map(ObjectDescription::range);
            let mut asked = BTreeSet::new();
            for (layout, devices) in volume.placements() {
                let Some(place) = devices.iter().position(|held| *held == helped.device) else { continue };
                // Of what it lacks, others hold what belongs there: from before this disk came, or from while it was out.
                let component = BlockRange::new(layout.first_block(), layout.component_blocks(volume.blocks()));
                let stripes = layout.stripes(volume.blocks());
                let absent = layout.used_blocks(place, stripes);
                match has {
                    None => {
                        let BlockRange { start: first, count: blocks } = component;
                        let (redundant, atomicity) = (true, volume.atomicity);
                        let task = Task::CreateObject { object, first, blocks, ordering, redundant, atomicity, absent };
                        errands.push_back(Errand::Object(task));
                        has = Some(component);
                    }
                    Some(has) if !has.contains(component) => {
                        let absent = BlockRange::new(component.start, absent);
                        errands.push_back(Errand::Object(Task::ResizeObject { object, range, absent }));
                    }
                    Some(_) => {}
                }
                // Whoever is in, and shares stripes with it, knows what it has missed; all who may vote must have decided what is from before
                // its return, also those that are returning themselves.
                let knows = |(other, device): &(usize, &DeviceId)| *other != place && !self.is_out(**device);
                asked.extend(devices.iter().enumerate().filter(knows).map(|(_, device)| *device));
            }
            if held.is_some_and(|held| held.ordering != ordering) {
                errands.push_back(Errand::Object(Task::SetOrdering { object, ordering }));
            }
            if has.is_some_and(|has| has != range && has.contains(range)) {
                // It was out when the volume had moved.
                let absent = BlockRange::new(0, 0);
                errands.push_back(Errand::Object(Task::ResizeObject { object, range, absent }));
            }
            errands.extend(asked.into_iter().map(|of| Errand::List { volume: volume.id, of, from: 0 }));
        }
        Some(errands)
    }

    /// One of this host's own requests has ended.
    pub(crate) fn on_errand(&mut self, now: Now, op: OpId, outcome: HostOutcome) {
        let Some(helped) = self.catch_ups.values_mut().find(|helped| helped.asked.contains_key(&op)) else { return };
        let (errand, since) = helped.asked.remove(&op).expect("just seen");
        let device = helped.device;
        if let Errand::Restore { side, .. } = errand {
            let took = now.time.since(since);
            let effort = self.effort(now, side.volume, false);
            self.helped(device).throttle.ended(now.time, &effort, took);
        }
        if let (Errand::Restore { side, portion, salvage: false }, Err(HostError::Unavailable { devices })) =
            (&errand, &outcome)
            && self.is_given_up(*side, devices)
        {
            let (side, portion) = (*side, *portion);
            self.name_lost(device, side, portion.blocks);
            self.helped(device).errands.push_front(Errand::Restore { side, portion, salvage: true });
            self.timers.set(Timer::Help(device), now.time);
            return;
        }
        let helped = self.catch_ups.get_mut(&device).expect("just seen");
        match (errand, outcome) {
            (Errand::Survey { of }, Ok(HostSuccess::Managed(Managed::Objects(objects)))) => {
                helped.objects.insert(of, objects);
            }
            (Errand::List { volume, of, .. }, Ok(HostSuccess::Managed(Managed::Missed { extents, next }))) => {
                for (side, _) in sides_on(&self.volumes, device).into_iter().filter(|(side, _)| side.volume == volume) {
                    let missed = helped.missed.entry(side).or_default();
                    extents.iter().for_each(|extent| missed.insert(*extent));
                    if missed.len() > MISSED_MAX {
                        missed.coarsen(MISSED_MAX / 4 * 3);
                    }
                }
                if let Some(from) = next {
                    helped.errands.push_back(Errand::List { volume, of, from });
                }
            }
            (Errand::Absent { side, from }, Ok(HostSuccess::Managed(Managed::Extents { extents, .. }))) => {
                self.on_absent(device, side, from, &extents);
            }
            (Errand::Allocated { side, of, range }, Ok(HostSuccess::Managed(Managed::Extents { extents, next }))) => {
                let held = helped.rebuilding.as_mut().filter(|held| held.side == side);
                if let (Some(Rebuilding { step: Step::Sizing(region), .. }), Some(volume)) =
                    (held, side_of(&self.volumes, side))
                {
                    region.add_allocated(&volume, &extents);
                }
                if let Some(from) = next {
                    let range = BlockRange::between(from, range.end());
                    helped.errands.push_back(Errand::Allocated { side, of, range });
                }
            }
            (Errand::Restore { portion, .. }, Ok(_)) => helped.progress.done += portion.weight,
            (Errand::Object(_), Ok(_)) => {}
            // A volume that was deleted meanwhile, or has moved, lacks nothing.
            (Errand::List { volume, .. }, Err(_)) if !self.volumes.contains_key(&volume) => {}
            (Errand::Absent { side, .. } | Errand::Allocated { side, .. } | Errand::Restore { side, .. }, Err(_))
                if side_of(&self.volumes, side).is_none() => {}
            (
                Errand::Restore { side, portion, salvage: false },
                Err(HostError::Device { failure: Failure::Lost { .. }, device: other }),
            ) if other != device => self.on_not_restorable(device, side, portion),
            // Too many extents for one request.
            (Errand::Restore { side, portion, salvage: false }, Err(HostError::OutOfRange))
                if portion.blocks.count > 1 =>
            {
                self.on_not_restorable(device, side, portion);
            }
            (errand, _) => {
                helped.errands.push_back(errand);
                self.timers.set(Timer::Help(device), now.time.after(PAUSE));
                return;
            }
        }
        if self.timers.deadline_of(Timer::Help(device)).is_none() {
            self.timers.set(Timer::Help(device), now.time);
        }
    }

    /// Names a request of this host's own.
    pub(crate) fn own_operation(&mut self) -> OpId {
        OpId(OWN_OPERATIONS | self.links.take_sequence())
    }

    /// Whether a request is this host's own.
    pub(crate) fn is_own(op: OpId) -> bool {
        op.0 >= OWN_OPERATIONS
    }
}

impl CatchUp {
    fn new(device: DeviceId, since: Epoch) -> CatchUp {
        CatchUp {
            device,
            since,
            stage: Stage::Surveying,
            asked: BTreeMap::new(),
            errands: VecDeque::new(),
            there: BTreeSet::new(),
            objects: BTreeMap::new(),
            missed: BTreeMap::new(),
            rebuilding: None,
            whole: BTreeSet::new(),
            throttle: Throttle::default(),
            progress: HealingProgress::default(),
            lost: BTreeSet::new(),
        }
    }

    /// What is to be done next in this stage. What was missed becomes errands only now: there may be much of it.
    fn next_errand(&mut self, volumes: &Volumes) -> Option<Errand> {
        let waiting = self.errands.pop_front();
        if waiting.is_some() || self.stage != Stage::Restoring {
            return waiting;
        }
        while let Some(mut entry) = self.missed.first_entry() {
            let side = *entry.key();
            let Some((volume, run)) = side_of(volumes, side).zip(entry.get().from(0).next()) else {
                entry.remove();
                continue;
            };
            let end = volume.stripes() * volume.layout.stripe_blocks();
            let blocks = BlockRange::new(run.start, run.count.min(BLOCKS_AT_ONCE));
            entry.get_mut().remove(blocks);
            let weight = weight(&volume, blocks.count);
            self.progress.left = self.progress.left.saturating_sub(weight);
            let blocks = blocks.intersection(BlockRange::new(0, end));
            if !blocks.is_empty() {
                let portion = Portion { blocks, weight, moves: true };
                return Some(Errand::Restore { side, portion, salvage: false });
            }
        }
        None
    }

    /// Blocks of the device that it still lacks, as far as that is known.
    fn left(&self) -> u64 {
        let weight = |errand: &Errand| if let Errand::Restore { portion, .. } = errand { portion.weight } else { 0 };
        let asked = self.asked.values().map(|(errand, _)| errand);
        self.errands.iter().chain(asked).map(weight).sum::<u64>() + self.progress.left
    }
}

/// How many blocks of a device so many of a volume bring, about.
fn weight(volume: &VolumeDescription, blocks: u64) -> u64 {
    blocks.div_ceil(volume.layout.data_units() as u64)
}

/// A side of a volume, as a volume of its own.
fn side_of(volumes: &Volumes, side: Side) -> Option<Rc<VolumeDescription>> {
    let volume = volumes.get(&side.volume)?;
    if side.target { volume.target().map(Rc::new) } else { Some(volume.clone()) }
}

/// What lies on a device, or is to: the sides of redundant volumes, each as a volume of its own.
fn sides_on(volumes: &Volumes, device: DeviceId) -> Vec<(Side, Rc<VolumeDescription>)> {
    let redundant = volumes.values().filter(|volume| volume.layout.redundancy_units() > 0);
    let sides = redundant.flat_map(|volume| [false, true].map(|target| Side { volume: volume.id, target }));
    let known = sides.filter_map(|side| Some((side, side_of(volumes, side)?)));
    known.filter(|(_, volume)| volume.devices.contains(&device)).collect()
}
