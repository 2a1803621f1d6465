//! The survey is the first stage of a recovery: it finds the objects that the returning device lacks, and those that it should not have.

use crate::ctx::Ctx;
use crate::job::RecoveryStep;
use crate::recovery_stages::Recovery;
use crate::who_answers::{Question, asked};
use braid_base::{BlockRange, DeviceId, VolumeId};
use braid_layout::VolumeDescription;
use braid_wire::{ObjectDescription, Task};
use std::collections::{BTreeSet, VecDeque};

impl Recovery {
    /// The steps that follow from the objects of the devices. None if some object belongs to a volume that this host does not know, or
    /// not as it will be.
    ///
    /// An object of a volume that this host does not know stays, unless this host knows that the volume was deleted: perhaps the volume is
    /// being created. The devices' answers are from different moments, so it proves nothing that no other device has the object.
    pub(crate) fn after_survey(&self, ctx: &Ctx, deleted: &BTreeSet<VolumeId>) -> Option<VecDeque<RecoveryStep>> {
        let device = self.device;
        // Otherwise the recovery could undo what an administrator has told the device, and end before this host knows the change.
        if !ctx.held.is_empty() {
            return None;
        }
        let own = self.objects.get(&device)?;
        let others = || self.objects.iter().filter(|(other, _)| **other != device).flat_map(|(_, held)| held);
        let is_known = |object: &ObjectDescription| ctx.volumes.contains_key(&VolumeId(object.object.0));
        if others().any(|object| object.redundant && !is_known(object)) {
            return None;
        }
        // None of the devices that were asked has the object. A device that was not asked may have it; then its volume is not known yet.
        let has_all_asked = ctx.devices_in().all(|other| self.objects.contains_key(&other));
        let has_no_volume = |held: &ObjectDescription| held.redundant && !is_known(held);
        if !has_all_asked && own.iter().any(has_no_volume) {
            return None;
        }
        // The volume was deleted, or has moved away, while this recovery changed objects.
        let is_left_over = |held: &&ObjectDescription| match ctx.volumes.get(&VolumeId(held.object.0)) {
            Some(volume) => held.redundant && volume.object_on(device).is_none(),
            None => held.redundant && deleted.contains(&VolumeId(held.object.0)),
        };
        let removed = own.iter().filter(is_left_over).map(|held| Task::RemoveObject { object: held.object });
        let mut steps: VecDeque<_> = removed.map(RecoveryStep::Object).collect();
        for volume in ctx.volumes.values().filter(|volume| volume.layout.redundancy_units() > 0) {
            steps.extend(steps_of_volume(ctx, device, volume, own));
        }
        Some(steps)
    }
}

/// The steps that create or adjust the device's object of a volume, and that ask the other devices what it missed.
fn steps_of_volume(
    ctx: &Ctx,
    device: DeviceId,
    volume: &VolumeDescription,
    own: &[ObjectDescription],
) -> Vec<RecoveryStep> {
    let Some(range) = volume.object_on(device) else { return Vec::new() };
    let mut steps = Vec::new();
    let (object, ordering) = (volume.id.object(), volume.ordering);
    let held = own.iter().find(|held| held.object == object);
    let mut has = held.map(ObjectDescription::range);
    for (layout, devices) in volume.placements() {
        let Some(place) = devices.iter().position(|held| *held == device) else { continue };
        // Blocks that it lacks are absent: the other devices hold their content, from before this disk came or from while it was out.
        let component = BlockRange::new(layout.first_block(), layout.component_blocks(volume.blocks()));
        let stripes = layout.stripes(volume.blocks());
        let absent = layout.used_blocks(place, stripes);
        match has {
            None => {
                let BlockRange { start: first, count: blocks } = component;
                let (redundant, atomicity) = (true, volume.atomicity);
                let task = Task::CreateObject { object, first, blocks, ordering, redundant, atomicity, absent };
                steps.push(RecoveryStep::Object(task));
                has = Some(component);
            }
            Some(has) if !has.contains(component) => {
                let absent = BlockRange::new(component.start, absent);
                steps.push(RecoveryStep::Object(Task::ResizeObject { object, range, absent }));
            }
            Some(_) => {}
        }
    }
    if held.is_some_and(|held| held.ordering != ordering) {
        steps.push(RecoveryStep::Object(Task::SetOrdering { object, ordering }));
    }
    if has.is_some_and(|has| has != range && has.contains(range)) {
        // The device was out when the volume finished its move.
        let absent = BlockRange::new(0, 0);
        steps.push(RecoveryStep::Object(Task::ResizeObject { object, range, absent }));
    }
    // Each device that shares stripes with it knows what it missed. All devices of the volume, also those that are returning, must have decided
    // the intents from before this return.
    let of = asked(ctx, device, Question::Missed(volume.id)).into_iter();
    steps.extend(of.map(|of| RecoveryStep::List { volume: volume.id, of, from: 0 }));
    steps
}
