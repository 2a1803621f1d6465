//! Who must be asked in a recovery, and who may be missing: the decision for each of its stages, in one place (`docs/healing.md`, Who may
//! be missing). A device must come back as soon as those are there that know something about its volumes, whoever else is dead.
//!
//! | question | answer required | answer useful | not asked |
//! | --- | --- | --- | --- |
//! | which objects are there? | the returning device; in, and shares a volume with it | in, with a lease | the others |
//! | what did it miss of a volume? | not out, and on a ring of the volume | | the others |
//! | which chunks hold anything? | nobody: answers only determine how large transactions are | in, with a lease, and shares a stripe with it there | the others |
//!
//! Two devices share a volume if it is redundant and each of them is on a ring of it: on the same one, or on those of the two placements of a
//! volume that moves. Only devices that share a stripe know what was missed. The others are asked because a hostwrite of several stripes has
//! one outcome: one of them may hold it undecided, and would decide it alone once all that have decided it had gone and come
//! (`docs/reliability.md`, Votes).
//!
//! The returning device alone knows which of its blocks are absent. A restore needs the devices of its rows, as any transaction does.
//!
//! A required answer is waited for without limit: nobody else has it, and without it the device could be in with old content. A useful answer
//! is waited for until the device loses its lease, or until a request to it times out.

use crate::ctx::Ctx;
use crate::job::RecoveryStep;
use crate::placements::Placement;
use braid_base::{DeviceId, MemberState, VolumeId};
use braid_layout::VolumeDescription;
use std::collections::BTreeSet;

/// What a recovery asks other devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    Objects,
    /// What the returning device missed of this volume.
    Missed(VolumeId),
    /// Which chunks of this placement have content.
    Content(Placement),
}

/// What a device's answer is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Worth {
    Required,
    Useful,
    /// The device is not asked.
    Nothing,
}

/// What matters of a device that may be asked.
#[derive(Clone, Copy, Debug)]
struct Relation {
    member_state: Option<MemberState>,
    /// It is in, and its lease is not known to have expired.
    available: bool,
    /// A volume that is asked about, and a stripe there, lies on it and on the returning device.
    shares_a_volume: bool,
    shares_a_stripe: bool,
}

/// The table above, for every device but the returning one.
fn worth(question: Question, it: Relation) -> Worth {
    let is_in = it.member_state == Some(MemberState::In);
    let is_out = matches!(it.member_state, None | Some(MemberState::Out));
    match question {
        Question::Objects if is_in && it.shares_a_volume => Worth::Required,
        Question::Objects if it.available => Worth::Useful,
        Question::Missed(_) if !is_out && it.shares_a_volume => Worth::Required,
        Question::Content(_) if it.available && it.shares_a_stripe => Worth::Useful,
        Question::Objects | Question::Missed(_) | Question::Content(_) => Worth::Nothing,
    }
}

/// What the answer of `other` is worth in the recovery of `device`.
pub(crate) fn worth_of(ctx: &Ctx, device: DeviceId, question: Question, other: DeviceId) -> Worth {
    if device == other {
        return if question == Question::Objects { Worth::Required } else { Worth::Nothing };
    }
    let is_meant = |placement: &Placement| match question {
        Question::Objects => true,
        Question::Missed(volume) => placement.volume == volume,
        Question::Content(meant) => *placement == meant,
    };
    let placements = ctx.placements_on(device).into_iter().filter(|(placement, _)| is_meant(placement));
    let placements: Vec<_> = placements.collect();
    let holds = |placement: &Placement| ctx.volumes[&placement.volume].holders().contains(&other);
    let member = ctx.membership.and_then(|membership| membership.member(other));
    worth(
        question,
        Relation {
            member_state: member.map(|member| member.member_state),
            available: ctx.is_available(other),
            shares_a_volume: placements.iter().any(|(placement, _)| holds(placement)),
            shares_a_stripe: placements.iter().any(|(_, volume)| share_a_stripe(volume, device, other)),
        },
    )
}

/// What the answer to a step is worth. Steps of the returning device itself, and restores, are the recovery.
pub(crate) fn worth_of_step(ctx: &Ctx, device: DeviceId, step: &RecoveryStep) -> Worth {
    match step {
        RecoveryStep::Survey { of } => worth_of(ctx, device, Question::Objects, *of),
        RecoveryStep::List { volume, of, .. } => worth_of(ctx, device, Question::Missed(*volume), *of),
        RecoveryStep::Allocated { placement, of, .. } => worth_of(ctx, device, Question::Content(*placement), *of),
        RecoveryStep::Object(_) | RecoveryStep::Absent { .. } | RecoveryStep::Restore { .. } => Worth::Required,
    }
}

/// The devices that are asked in the recovery of `device`.
pub(crate) fn asked(ctx: &Ctx, device: DeviceId, question: Question) -> Vec<DeviceId> {
    let members = ctx.membership.iter().flat_map(|membership| &membership.members).map(|member| member.device);
    members.filter(|other| worth_of(ctx, device, question, *other) != Worth::Nothing).collect()
}

/// The devices that are in and share volumes with a device: they know what it missed there, and which writes of them are undecided.
pub(crate) fn witnesses(ctx: &Ctx, device: DeviceId) -> BTreeSet<DeviceId> {
    let worth = |other: &DeviceId| worth_of(ctx, device, Question::Objects, *other);
    ctx.devices_in().filter(|other| *other != device && worth(other) == Worth::Required).collect()
}

fn share_a_stripe(volume: &VolumeDescription, a: DeviceId, b: DeviceId) -> bool {
    let place = |device| volume.devices.iter().position(|held| *held == device);
    place(a).zip(place(b)).is_some_and(|(a, b)| volume.layout.share_a_stripe(a, b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stage_waits_only_for_devices_that_know_something() {
        const IN: MemberState = MemberState::In;
        const OUT: MemberState = MemberState::Out;
        const BACK: MemberState = MemberState::Returning { recovery_coordinator: None };
        use Worth::{Nothing, Required, Useful};
        // State, lease, shares a volume, shares a stripe: worth of its objects, of what was missed, and of its chunks.
        let table = [
            ((IN, true, true, true), [Required, Required, Useful]),
            ((IN, false, true, true), [Required, Required, Nothing]),
            ((IN, true, true, false), [Required, Required, Nothing]),
            ((IN, false, true, false), [Required, Required, Nothing]),
            ((IN, true, false, false), [Useful, Nothing, Nothing]),
            ((IN, false, false, false), [Nothing, Nothing, Nothing]),
            ((BACK, false, true, true), [Nothing, Required, Nothing]),
            ((BACK, false, true, false), [Nothing, Required, Nothing]),
            ((BACK, false, false, false), [Nothing, Nothing, Nothing]),
            ((OUT, false, true, true), [Nothing, Nothing, Nothing]),
            ((OUT, false, false, false), [Nothing, Nothing, Nothing]),
        ];
        let volume = VolumeId(1);
        let questions =
            [Question::Objects, Question::Missed(volume), Question::Content(Placement { volume, target: false })];
        for ((member_state, available, shares_a_volume, shares_a_stripe), expected) in table {
            let it = Relation { member_state: Some(member_state), available, shares_a_volume, shares_a_stripe };
            assert_eq!(questions.map(|question| worth(question, it)), expected, "{it:?}");
        }
        let stranger = Relation { member_state: None, available: false, shares_a_volume: true, shares_a_stripe: true };
        assert_eq!(questions.map(|question| worth(question, stranger)), [Nothing; 3], "it was removed");
    }
}
