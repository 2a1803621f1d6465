//! Bringing a returning device what it missed, when the monitor has named this host as its helper (`docs/membership.md`).
//!
//! ```text
//!   Surveying  every device says which objects it has: one that no volume is known for must become known first (volumes are told by the
//!              front end); what the returning device lacks it makes, what nobody else has it removes
//!   Listing    every device that is in says what was written while the other was out, once it has nothing undecided from before
//!   Restoring  each of these blocks, by an ordinary storage transaction, a few at a time
//!   Rebuilding what is absent, since the device has another disk than before
//!   Done       the monitor is told, until the membership says it, too
//! ```
//!
//! It asks for nothing that a front end could not ask for; its requests are numbered apart from those of front ends.

use crate::host::{Host, Timer};
use crate::rebuild::{Bucket, Portion, Rebuilding, Region, Side, Step};
use braid_base::{BlockRange, DeviceId, Epoch, Now, Standing, VolumeId, limits};
use braid_layout::VolumeDescription;
use braid_machine::{Effects, HostError, HostOutcome, HostRequest, HostSuccess, OpId};
use braid_wire::{Failure, HealingProgress, Managed, ObjectDescription, Task};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

type Volumes = BTreeMap<VolumeId, Rc<VolumeDescription>>;

/// Front ends number their requests below this.
const OWN_OPERATIONS: u64 = 1 << 63;
/// Restoring transactions at a time.
const PARALLEL: usize = 8;
/// Blocks of the volume that one of them restores at most.
const BLOCKS_AT_ONCE: u64 = 128;
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
    /// What is under way.
    asked: BTreeMap<OpId, Errand>,
    /// What is to be done, or to be done again.
    errands: VecDeque<Errand>,
    /// The objects of each device.
    objects: BTreeMap<DeviceId, Vec<ObjectDescription>>,
    /// What was missed, by volume, as far as it is known.
    missed: BTreeMap<VolumeId, BTreeSet<(u64, u64)>>,
    /// The volume that is being rebuilt on it, and those of which nothing is absent.
    rebuilding: Option<Rebuilding>,
    whole: BTreeSet<Side>,
    bucket: Bucket,
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
    /// What this host helps a device with: the device, and how many blocks of volumes are still to be looked at, once that is known.
    pub fn helps(&self) -> Option<(DeviceId, Option<u64>)> {
        let helped = self.catch_up.as_ref()?;
        let known = matches!(helped.stage, Stage::Restoring | Stage::Rebuilding | Stage::Done);
        Some((helped.device, known.then(|| helped.left())))
    }

    /// The device that this host helps, and how far that is, in blocks of the device.
    pub fn healing(&self) -> Option<(DeviceId, HealingProgress)> {
        let helped = self.catch_up.as_ref()?;
        let lost = helped.lost.len() as u64;
        Some((helped.device, HealingProgress { left: helped.left(), lost, ..helped.progress }))
    }

    /// Blocks of volumes that could not be restored on the device that this host helps, since too much of their rows is lost.
    pub fn not_restored(&self) -> impl Iterator<Item = (VolumeId, u64)> + '_ {
        self.catch_up.iter().flat_map(|helped| helped.lost.iter().copied())
    }

    /// The device that it has helped to all that it missed.
    pub(crate) fn has_caught_up(&self) -> Option<(DeviceId, Epoch)> {
        let helped = self.catch_up.as_ref()?;
        (helped.stage == Stage::Done).then_some((helped.device, helped.since))
    }

    /// A membership has come: is there a device that this host is to help?
    pub(crate) fn look_for_help(&mut self, now: Now, out: &mut Effects) {
        let own = Some(self.config.generation);
        let mine = |standing| matches!(standing, Standing::Returning { helper } if helper == own);
        let membership = self.membership().expect("one has come");
        let members: Vec<_> = membership.members.iter().filter(|member| mine(member.standing)).copied().collect();
        if let Some(helped) = &self.catch_up {
            if members.iter().any(|member| (member.device, member.since) == (helped.device, helped.since)) {
                return;
            }
            self.catch_up = None;
        }
        // One at a time: another one's turn comes with the epoch in which this one is in.
        let Some(member) = members.first() else { return };
        self.catch_up = Some(CatchUp {
            device: member.device,
            since: member.since,
            stage: Stage::Surveying,
            asked: BTreeMap::new(),
            errands: VecDeque::new(),
            objects: BTreeMap::new(),
            missed: BTreeMap::new(),
            rebuilding: None,
            whole: BTreeSet::new(),
            bucket: Bucket::default(),
            progress: HealingProgress::default(),
            lost: BTreeSet::new(),
        });
        self.survey();
        self.help(now, out);
    }

    /// Has every device that is in, and the returning one, asked for its objects.
    fn survey(&mut self) {
        let membership = self.membership().expect("one has come");
        let there: Vec<_> = membership.devices(|standing| standing == Standing::In).collect();
        let helped = self.catch_up.as_mut().expect("a device is being helped");
        helped.objects.clear();
        helped.errands = there.into_iter().chain([helped.device]).map(|of| Errand::Survey { of }).collect();
    }

    /// Goes on with what is to be done.
    pub(crate) fn help(&mut self, now: Now, out: &mut Effects) {
        loop {
            let Some(helped) = &mut self.catch_up else { return };
            if helped.asked.len() >= PARALLEL || helped.stage == Stage::Done {
                return;
            }
            let Some(errand) = helped.errands.pop_front() else {
                if !helped.asked.is_empty() {
                    return;
                }
                if !self.enter_next_stage(now, out) {
                    return;
                }
                continue;
            };
            if let Errand::Restore { portion, .. } = &errand
                && let Err(later) = helped.bucket.take(now.time, self.place.pace, portion.bytes())
            {
                helped.errands.push_front(errand);
                self.timers.set(Timer::Help, later);
                return;
            }
            let (device, since) = (helped.device, helped.since);
            let op = self.own_operation();
            let helped = self.catch_up.as_mut().expect("just seen");
            helped.asked.insert(op, errand.clone());
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
            if self.catch_up.as_ref().is_none_or(|helped| helped.since != since) {
                return;
            }
        }
    }

    /// All of a stage is done. False if there is nothing to do now.
    fn enter_next_stage(&mut self, now: Now, out: &mut Effects) -> bool {
        let helped = self.catch_up.as_ref().expect("a device is being helped");
        match helped.stage {
            Stage::Surveying => match self.after_survey() {
                Some(errands) => self.go_to(Stage::Listing, errands),
                None => {
                    // Its front end will tell of the volumes that are not known yet.
                    self.survey();
                    self.timers.set(Timer::Help, now.time.after(PAUSE));
                    return false;
                }
            },
            Stage::Listing => {
                let sides = self.sides_on(helped.device).into_iter();
                let missed = sides.filter_map(|(side, volume)| Some((side, volume, helped.missed.get(&side.volume)?)));
                let errands = missed.flat_map(|(side, volume, extents)| restores(side, &volume, extents)).collect();
                self.go_to(Stage::Restoring, errands);
            }
            Stage::Restoring => self.go_to(Stage::Rebuilding, VecDeque::new()),
            Stage::Rebuilding => {
                let next = self.next_of_rebuild();
                let helped = self.catch_up.as_mut().expect("a device is being helped");
                match next {
                    Some(errands) if errands.is_empty() => {
                        self.timers.set(Timer::Help, now.time.after(LINGER));
                        return false;
                    }
                    Some(errands) => helped.errands = errands,
                    None => {
                        self.go_to(Stage::Done, VecDeque::new());
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
    fn next_of_rebuild(&mut self) -> Option<VecDeque<Errand>> {
        let helped = self.catch_up.as_mut().expect("a device is being helped");
        let sides = sides_on(&self.volumes, helped.device);
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
    fn on_absent(&mut self, side: Side, from: u64, extents: &[BlockRange]) {
        let membership = self.membership().expect("one has come");
        let there: Vec<_> = membership.devices(|standing| standing == Standing::In).collect();
        let helped = self.catch_up.as_mut().expect("a device is being helped");
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
    fn on_not_restorable(&mut self, side: Side, portion: Portion) {
        let helped = self.catch_up.as_mut().expect("a device is being helped");
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

    fn go_to(&mut self, stage: Stage, errands: VecDeque<Errand>) {
        let helped = self.catch_up.as_mut().expect("a device is being helped");
        (helped.stage, helped.errands) = (stage, errands);
    }

    /// What follows from the objects that devices have; none if there is a volume that this host does not know.
    fn after_survey(&self) -> Option<VecDeque<Errand>> {
        let helped = self.catch_up.as_ref().expect("a device is being helped");
        let membership = self.membership().expect("one has come");
        let own = helped.objects.get(&helped.device)?;
        let others =
            || helped.objects.iter().filter(|(device, _)| **device != helped.device).flat_map(|(_, held)| held);
        let is_known = |object: &ObjectDescription| self.volumes.contains_key(&VolumeId(object.object.0));
        if others().any(|object| object.redundant && !is_known(object)) {
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
                // Whoever shares stripes with it knows what it has missed; all must have decided what is from before its return.
                let knows = |(other, device): &(usize, &DeviceId)| {
                    let there = membership.member(**device).map(|member| member.standing);
                    *other != place && (there == Some(Standing::In) || layout.share_a_stripe(place, *other))
                };
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

    /// What lies on a device, or is to: the sides of redundant volumes, each as a volume of its own.
    fn sides_on(&self, device: DeviceId) -> Vec<(Side, Rc<VolumeDescription>)> {
        sides_on(&self.volumes, device)
    }

    /// One of this host's own requests has ended.
    pub(crate) fn on_errand(&mut self, now: Now, op: OpId, outcome: HostOutcome) {
        let Some(helped) = &mut self.catch_up else { return };
        let Some(errand) = helped.asked.remove(&op) else { return };
        match (errand, outcome) {
            (Errand::Survey { of }, Ok(HostSuccess::Managed(Managed::Objects(objects)))) => {
                helped.objects.insert(of, objects);
            }
            (Errand::List { volume, of, .. }, Ok(HostSuccess::Managed(Managed::Missed { extents, next }))) => {
                let missed = helped.missed.entry(volume).or_default();
                missed.extend(extents.into_iter().map(|extent| (extent.start, extent.count)));
                if let Some(from) = next {
                    helped.errands.push_back(Errand::List { volume, of, from });
                }
            }
            (Errand::Absent { side, from }, Ok(HostSuccess::Managed(Managed::Extents { extents, .. }))) => {
                self.on_absent(side, from, &extents);
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
                Err(HostError::Device { failure: Failure::Lost { .. }, device }),
            ) if device != helped.device => self.on_not_restorable(side, portion),
            // Too many extents for one request.
            (Errand::Restore { side, portion, salvage: false }, Err(HostError::OutOfRange))
                if portion.blocks.count > 1 =>
            {
                self.on_not_restorable(side, portion);
            }
            (errand, _) => {
                helped.errands.push_back(errand);
                self.timers.set(Timer::Help, now.time.after(PAUSE));
                return;
            }
        }
        if self.timers.deadline_of(Timer::Help).is_none() {
            self.timers.set(Timer::Help, now.time);
        }
    }

    /// Names a request of this host's own.
    pub(crate) fn own_operation(&mut self) -> OpId {
        self.next_sequence += 1;
        OpId(OWN_OPERATIONS | (self.next_sequence - 1))
    }

    /// Whether a request is this host's own.
    pub(crate) fn is_own(op: OpId) -> bool {
        op.0 >= OWN_OPERATIONS
    }
}

impl CatchUp {
    /// Blocks of the device that it still lacks, as far as that is known.
    fn left(&self) -> u64 {
        let weight = |errand: &Errand| if let Errand::Restore { portion, .. } = errand { portion.weight } else { 0 };
        self.errands.iter().chain(self.asked.values()).map(weight).sum::<u64>() + self.progress.left
    }
}

/// A side of a volume, as a volume of its own.
fn side_of(volumes: &Volumes, side: Side) -> Option<Rc<VolumeDescription>> {
    let volume = volumes.get(&side.volume)?;
    if side.target { volume.target().map(Rc::new) } else { Some(volume.clone()) }
}

/// See [`Host::sides_on`].
fn sides_on(volumes: &Volumes, device: DeviceId) -> Vec<(Side, Rc<VolumeDescription>)> {
    let redundant = volumes.values().filter(|volume| volume.layout.redundancy_units() > 0);
    let sides = redundant.flat_map(|volume| [false, true].map(|target| Side { volume: volume.id, target }));
    let known = sides.filter_map(|side| Some((side, side_of(volumes, side)?)));
    known.filter(|(_, volume)| volume.devices.contains(&device)).collect()
}

/// Missed extents of a volume, each block once, cut into what one transaction restores.
fn restores(side: Side, volume: &VolumeDescription, extents: &BTreeSet<(u64, u64)>) -> Vec<Errand> {
    let end = volume.stripes() * volume.layout.stripe_blocks();
    let mut errands = Vec::new();
    let mut reached = 0;
    for (start, count) in extents {
        let last = (start + count).min(end);
        reached = reached.max(*start);
        while reached < last {
            let count = BLOCKS_AT_ONCE.min(last - reached);
            let weight = count.div_ceil(volume.layout.data_units() as u64);
            let portion = Portion { blocks: BlockRange::new(reached, count), weight, moves: true };
            errands.push(Errand::Restore { side, portion, salvage: false });
            reached += count;
        }
    }
    errands
}
