//! Tests of background jobs as their host sees them: the steps that they ask for, and the results of the outcomes.

use braid_base::{BlockRange, DeviceId, Epoch, Generation, MemberState, Membership, Time, TransactionId, VolumeId};
use braid_blocks::Linkage;
use braid_healing::{Ctx, Event, Healing, StepId, Volumes};
use braid_layout::{Atomicity, Layout, Placement, VolumeDescription};
use braid_machine::{ArrayRequest, HostError, HostOutcome, HostRequest, HostSuccess, JobRequest, OpId};
use braid_wire::{Failure, Managed, ObjectDescription, RecoveryThrottle, Task};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

const HOST: Generation = Generation(7);
const OTHER: Generation = Generation(8);
const VOLUME: VolumeId = VolumeId(1);
const OP: OpId = OpId::front_end(99);

/// A host that consists of its jobs only.
#[derive(Default)]
struct Stage {
    healing: Healing,
    membership: Membership,
    volumes: Volumes,
    held: BTreeSet<VolumeId>,
    now: Time,
    fenced: bool,
    leaving: bool,
    has_users: bool,
    throttle: RecoveryThrottle,
    /// Steps that were asked for and are not answered.
    asked: BTreeMap<StepId, HostRequest>,
    /// All other events.
    told: Vec<Event>,
}

impl Stage {
    fn new() -> Stage {
        let devices: Vec<_> = (0..4).map(DeviceId).collect();
        let layout = Layout::new("raid5:3+1".parse().unwrap(), 4, 4).unwrap();
        let volume = VolumeDescription {
            atomicity: Atomicity::Consistent,
            ..VolumeDescription::new(VOLUME, 8 * layout.stripe_blocks() * 4096, layout, devices.clone())
        };
        Stage {
            membership: Membership::first(devices),
            volumes: [(VOLUME, Rc::new(volume))].into(),
            now: Time(1_000_000_000),
            ..Default::default()
        }
    }

    fn with(&mut self, what: impl FnOnce(&mut Healing, &mut Ctx)) {
        let unavailable = BTreeSet::new();
        let mut ctx = Ctx {
            now: self.now,
            host: HOST,
            membership: Some(&self.membership),
            unavailable: &unavailable,
            volumes: &self.volumes,
            held: &self.held,
            throttle: self.throttle,
            heartbeat: Duration::from_secs(1),
            has_users: self.has_users,
            fenced: self.fenced,
            leaving: self.leaving,
            events: Vec::new(),
        };
        what(&mut self.healing, &mut ctx);
        for event in ctx.events {
            match event {
                Event::Ask { step, request } => {
                    assert!(self.asked.insert(step, request).is_none(), "each step has a number of its own");
                }
                other => self.told.push(other),
            }
        }
        self.healing.invariants(self.leaving);
    }

    /// Answers the first step under way, and lets all timers expire.
    fn answer(&mut self, outcome: HostOutcome) -> HostRequest {
        let (step, request) = self.asked.pop_first().expect("something is under way");
        self.with(|healing, ctx| healing.answered(ctx, step, outcome));
        self.wake();
        request
    }

    fn wake(&mut self) {
        while self.wake_once() {}
    }

    /// Answers the steps under way, and those that follow at once.
    fn end_steps(&mut self, outcome: &HostOutcome) {
        for _ in 0..20 {
            let Some((step, _)) = self.asked.pop_first() else { return };
            self.with(|healing, ctx| healing.answered(ctx, step, outcome.clone()));
            self.wake_once();
        }
        panic!("more and more steps: {:?}", self.asked);
    }

    /// Lets the next timer expire. False if there is none.
    fn wake_once(&mut self) -> bool {
        let Some(deadline) = self.healing.deadline() else { return false };
        self.now = self.now.max(deadline);
        self.with(|healing, ctx| healing.wake(ctx));
        true
    }

    fn interrupt(&mut self, transaction: TransactionId) {
        let volume = self.volumes[&VOLUME].clone();
        let linkage = Linkage { first: 0, last: 0 };
        self.with(|healing, ctx| healing.on_interrupted(ctx, transaction, volume, linkage));
    }

    fn stands(&mut self, member_state: MemberState) {
        let epoch = Epoch(self.membership.epoch.0 + 1);
        self.membership.epoch = epoch;
        let member = self.membership.member_mut(DeviceId(3)).unwrap();
        (member.member_state, member.since) = (member_state, epoch);
        self.with(|healing, ctx| healing.on_membership(ctx));
    }

    fn outcome(&self) -> Option<&HostOutcome> {
        self.told.iter().find_map(|event| match event {
            Event::Ended { op: OP, outcome } => Some(outcome),
            _ => None,
        })
    }
}

fn checked(matches: bool) -> HostOutcome {
    Ok(HostSuccess::Checked { matches })
}

#[test]
fn a_scrub_checks_every_stripe_and_ends_with_its_report() {
    let mut stage = Stage::new();
    stage.with(|healing, ctx| healing.scrub(ctx, OP, VOLUME, 2..5, (false, true)));
    let mut stripes = BTreeSet::new();
    while !stage.asked.is_empty() {
        // The redundancy of stripe 3 does not match.
        let stripe = match stage.asked.first_key_value().unwrap().1 {
            HostRequest::Job(JobRequest::CheckRows { rows, .. }) => Some(rows.stripe),
            HostRequest::Job(JobRequest::Recompute { rows, .. }) => {
                assert_eq!(rows.stripe, 3);
                None
            }
            other => panic!("a scrub asks for no {other:?}"),
        };
        stripes.extend(stripe);
        stage.answer(stripe.map_or(Ok(HostSuccess::Done), |stripe| checked(stripe != 3)));
    }
    assert_eq!(stripes, [2, 3, 4].into());
    let Some(Ok(HostSuccess::Scrubbed(report))) = stage.outcome() else { panic!("it has ended") };
    assert_eq!((report.rows, report.mismatched, report.recomputed), (12, 1, 1));
}

/// Otherwise the scrub of a volume with a million stripes and a dead device would take days.
#[test]
fn a_scrub_goes_on_at_once_where_devices_are_out() {
    let mut stage = Stage::new();
    let begun = stage.now;
    stage.with(|healing, ctx| healing.scrub(ctx, OP, VOLUME, 0..u64::MAX, (true, false)));
    let mut asked = 0;
    while !stage.asked.is_empty() {
        stage.answer(Err(HostError::Unavailable { devices: vec![DeviceId(3)] }));
        asked += 1;
    }
    let Some(Ok(HostSuccess::Scrubbed(report))) = stage.outcome() else { panic!("it has ended") };
    assert_eq!((asked, report.skipped), (8, 8), "each stripe is tried once");
    assert!(stage.now.since(begun) < Duration::from_millis(50), "{:?}", stage.now.since(begun));
}

#[test]
fn beside_users_one_step_is_under_way_at_a_time() {
    for (users, expected) in [(false, 4), (true, 1)] {
        let mut stage = Stage::new();
        if users {
            stage.healing.on_user(stage.now);
        }
        stage.with(|healing, ctx| healing.scrub(ctx, OP, VOLUME, 0..8, (false, false)));
        assert_eq!(stage.asked.len(), expected);
    }
    let mut stage = Stage::new();
    stage.healing.on_busy(stage.now, DeviceId(2), true, Duration::from_secs(1));
    stage.with(|healing, ctx| healing.scrub(ctx, OP, VOLUME, 0..8, (false, false)));
    assert_eq!(stage.asked.len(), 1, "a device of the volume serves users of other hosts");
}

#[test]
fn a_fenced_host_ends_its_jobs_when_their_steps_have_ended() {
    let mut stage = Stage::new();
    stage.with(|healing, ctx| healing.scrub(ctx, OP, VOLUME, 0..8, (false, false)));
    stage.fenced = true;
    for _ in 0..100 {
        if stage.asked.is_empty() {
            break;
        }
        assert_eq!(stage.outcome(), None);
        stage.answer(Err(HostError::Fenced));
    }
    assert!(stage.outcome().is_some(), "every step was retried, and the job has ended");
}

#[test]
fn redundancy_of_an_interrupted_write_is_computed_unless_its_records_agree() {
    let transaction = TransactionId { host: HOST, sequence: 5 };
    for whole in [true, false] {
        let mut stage = Stage::new();
        stage.interrupt(transaction);
        assert!(stage.healing.resyncs(transaction));
        assert!(matches!(stage.answer(checked(whole)), HostRequest::Job(JobRequest::CrossCheck { known: true, .. })));
        if !whole {
            assert!(stage.told.is_empty());
            assert!(matches!(stage.answer(Ok(HostSuccess::Done)), HostRequest::Job(JobRequest::Recompute { .. })));
        }
        assert!(
            matches!(&stage.told[..], [Event::Forget { devices, .. }, Event::Resynced { .. }] if devices.len() == 4),
            "{:?}",
            stage.told
        );
        assert!(stage.asked.is_empty() && !stage.healing.resyncs(transaction));
    }
}

#[test]
fn a_resync_that_can_not_continue_is_abandoned_and_nothing_is_forgotten() {
    let mut stage = Stage::new();
    stage.interrupt(TransactionId { host: HOST, sequence: 5 });
    stage.answer(Err(HostError::Contended { waited: Duration::ZERO }));
    assert!(matches!(&stage.told[..], [Event::Resynced { .. }]), "{:?}", stage.told);
}

#[test]
fn objects_of_a_new_disk_are_changed_one_step_after_the_other() {
    let mut stage = Stage::new();
    let mut volume = VolumeDescription::clone(&stage.volumes[&VOLUME]);
    let target = volume.layout.beginning_at(64);
    volume.moving = Some(Box::new(Placement { layout: target, devices: volume.devices.clone() }));
    stage.volumes.insert(VOLUME, Rc::new(volume));
    stage.stands(MemberState::Returning { recovery_coordinator: Some(HOST) });
    (0..4).for_each(|_| drop(stage.answer(Ok(HostSuccess::Managed(Managed::Objects(Vec::new()))))));
    let task_under_way = |stage: &Stage| {
        let mut tasks = stage.asked.values().filter_map(|request| match request {
            HostRequest::Array(ArrayRequest::Manage { device: DeviceId(3), task }) => Some(task.clone()),
            _ => None,
        });
        (tasks.next().expect("a step for the device"), tasks.next())
    };
    assert!(matches!(task_under_way(&stage), (Task::CreateObject { .. }, None)));
    // Its answer was lost: it is repeated before the object is resized.
    stage.answer(Err(HostError::Busy));
    assert!(matches!(task_under_way(&stage), (Task::CreateObject { .. }, None)));
    while matches!(task_under_way(&stage), (Task::CreateObject { .. }, None)) {
        stage.answer(Ok(HostSuccess::Done));
    }
    assert!(matches!(task_under_way(&stage), (Task::ResizeObject { .. }, None)));
}

fn objects(volume: &VolumeDescription, device: DeviceId) -> Vec<ObjectDescription> {
    let object = |range: BlockRange| ObjectDescription {
        object: volume.id.object(),
        first: range.start,
        blocks: range.count,
        ordering: volume.ordering,
        redundant: true,
        atomicity: volume.atomicity,
    };
    volume.object_on(device).map(object).into_iter().collect()
}

/// Answers the survey under way: device 3 has its part of this volume, and the others what they have of the volume that the host knows.
fn answer_survey(stage: &mut Stage, on_device_3: &VolumeDescription) {
    answer_survey_with(stage, &objects(on_device_3, DeviceId(3)));
}

fn answer_survey_with(stage: &mut Stage, on_device_3: &[ObjectDescription]) {
    let known = stage.volumes[&VOLUME].clone();
    for (step, request) in std::mem::take(&mut stage.asked) {
        let HostRequest::Array(ArrayRequest::Manage { device, task: Task::ListObjects }) = request else {
            panic!("not a part of a survey: {request:?}")
        };
        let held = if device == DeviceId(3) { on_device_3.to_vec() } else { objects(&known, device) };
        let outcome = Ok(HostSuccess::Managed(Managed::Objects(held)));
        stage.with(|healing, ctx| healing.answered(ctx, step, outcome));
    }
    while stage.asked.is_empty() && stage.wake_once() {}
}

/// A volume is about to move. An administrator has told device 3, which is returning, and the host does not know the target.
#[test]
fn while_a_volume_is_on_hold_no_recovery_gets_beyond_its_survey() {
    for changes in [true, false] {
        let mut stage = Stage::new();
        let mut volume = VolumeDescription::clone(&stage.volumes[&VOLUME]);
        let everywhere = std::mem::replace(&mut volume.devices, vec![DeviceId(0), DeviceId(1)]);
        volume.layout = Layout::new("raid1:2".parse().unwrap(), 2, 4).unwrap();
        let layout = Layout::new("raid1:2".parse().unwrap(), 4, 4).unwrap().beginning_at(4096);
        let moving = Some(Box::new(Placement { layout, devices: everywhere }));
        let moves = VolumeDescription { moving, ..volume.clone() };
        stage.volumes.insert(VOLUME, Rc::new(volume));
        stage.held.insert(VOLUME);
        stage.stands(MemberState::Returning { recovery_coordinator: Some(HOST) });
        for _ in 0..3 {
            answer_survey(&mut stage, &moves);
            assert_eq!(stage.asked.len(), 4, "the survey is repeated");
        }
        stage.held.clear();
        if changes {
            stage.volumes.insert(VOLUME, Rc::new(moves.clone()));
            stage.with(|healing, ctx| healing.on_volume_changed(ctx));
        }
        answer_survey(&mut stage, &moves);
        let is_removal = |request: &HostRequest| {
            let remove = Task::RemoveObject { object: VOLUME.object() };
            *request == ArrayRequest::Manage { device: DeviceId(3), task: remove }.into()
        };
        assert_eq!(stage.asked.values().any(is_removal), !changes, "{:?}", stage.asked);
    }
}

/// A volume on devices 0 and 3 that the host does not know is being created, and device 3 was told first. Then the same with one that the
/// host knew, and that was deleted when its part was created.
#[test]
fn a_part_of_an_unknown_volume_stays_and_one_of_a_deleted_volume_is_removed() {
    for was_known in [false, true] {
        let mut stage = Stage::new();
        let mut volume = VolumeDescription::clone(&stage.volumes[&VOLUME]);
        (volume.id, volume.devices) = (VolumeId(2), vec![DeviceId(0), DeviceId(3)]);
        volume.layout = Layout::new("raid1:2".parse().unwrap(), 2, 4).unwrap();
        let is_task = |request: &HostRequest, task: &dyn Fn(&Task) -> bool| match request {
            HostRequest::Array(ArrayRequest::Manage { device: DeviceId(3), task: asked }) => task(asked),
            _ => false,
        };
        if was_known {
            stage.volumes.insert(volume.id, Rc::new(volume.clone()));
        }
        stage.stands(MemberState::Returning { recovery_coordinator: Some(HOST) });
        if was_known {
            answer_survey_with(&mut stage, &[]);
            let creates =
                |task: &Task| matches!(task, Task::CreateObject { object, .. } if *object == volume.id.object());
            while !stage.asked.values().any(|request| is_task(request, &creates)) {
                stage.answer(Ok(HostSuccess::Done));
            }
            assert!(!stage.healing.is_idle_for(volume.id) && stage.healing.is_idle_for(VOLUME), "it is created");
            stage.volumes.remove(&volume.id);
            stage.with(|healing, ctx| healing.on_volume_dropped(ctx, volume.id));
            let Stage { asked, healing, .. } = &mut stage;
            asked.retain(|step, _| healing.awaits(*step));
            assert!(!stage.healing.is_idle_for(volume.id), "the task is still under way");
            while !stage.healing.is_idle_for(volume.id) {
                stage.answer(Ok(HostSuccess::Done));
            }
        }
        let known = stage.volumes[&VOLUME].clone();
        let own: Vec<_> = [&*known, &volume].into_iter().flat_map(|volume| objects(volume, DeviceId(3))).collect();
        answer_survey_with(&mut stage, &own);
        let removes = |task: &Task| matches!(task, Task::RemoveObject { object } if *object == volume.id.object());
        assert_eq!(stage.asked.values().any(|request| is_task(request, &removes)), was_known, "{:?}", stage.asked);
        assert!(!stage.asked.is_empty(), "the recovery goes on");
    }
}

/// A host whose device 3 is back, and recovered by another host.
fn worker() -> Stage {
    let mut stage = Stage::new();
    stage.stands(MemberState::Returning { recovery_coordinator: Some(OTHER) });
    stage.wake();
    stage
}

fn extents(extents: &[(u64, u64)]) -> HostOutcome {
    let extents = extents.iter().map(|(start, count)| BlockRange::new(*start, *count)).collect();
    Ok(HostSuccess::Managed(Managed::Extents { extents, next: None }))
}

fn is_question(request: &HostRequest) -> bool {
    matches!(request, HostRequest::Array(ArrayRequest::Manage { device: DeviceId(3), task: Task::ListAbsent { .. } }))
}

/// Answers until restores are under way: all 32 blocks of the device are absent.
fn begin_restores(stage: &mut Stage) {
    assert!(is_question(&stage.answer(extents(&[(0, 32)]))));
    for _ in 0..3 {
        let request = stage.answer(extents(&[(0, 32)]));
        assert!(
            matches!(request, HostRequest::Array(ArrayRequest::Manage { task: Task::ListAllocated { .. }, .. })),
            "{request:?}"
        );
    }
}

fn stripes_restored(request: &HostRequest) -> Range<u64> {
    let HostRequest::Job(JobRequest::Restore { device: DeviceId(3), blocks, salvage: false, .. }) = request else {
        panic!("a rebuild worker asks for no {request:?}")
    };
    blocks.start / 12..blocks.end() / 12
}

#[test]
fn a_rebuild_worker_restores_what_is_not_left_to_the_coordinator_and_reports_nothing() {
    let mut stage = worker();
    let mut absent: BTreeSet<u64> = (0..32).collect();
    while absent.last().is_some_and(|last| *last >= 8) {
        let listed: Vec<_> = absent.iter().map(|block| (*block, 1)).collect();
        let contiguous: Vec<_> =
            listed.chunk_by(|a, b| a.0 + 1 == b.0).map(|run| (run[0].0, run.len() as u64)).collect();
        let request = stage.answer(match stage.asked.values().next().unwrap() {
            HostRequest::Job(JobRequest::Restore { .. }) => Ok(HostSuccess::Done),
            request if is_question(request) => extents(&contiguous),
            _ => extents(&[(0, 32)]),
        });
        if let HostRequest::Job(JobRequest::Restore { .. }) = request {
            for stripe in stripes_restored(&request) {
                assert!((4 * stripe..4 * stripe + 4).all(|block| absent.remove(&block)), "{stripe} is restored once");
            }
        }
    }
    assert!((0..4).all(|block| absent.contains(&block)), "the first region is left to the coordinator: {absent:?}");
    assert_eq!(stage.healing.recovers(), None);
    assert!(stage.healing.progress().next().is_none() && stage.healing.recovered().next().is_none());
    assert!(stage.told.is_empty());
}

#[test]
fn a_rebuild_worker_leaves_to_the_coordinator_what_can_not_be_restored() {
    let mut stage = worker();
    begin_restores(&mut stage);
    let lost = HostError::Device { device: DeviceId(1), failure: Failure::Lost { block: 5 } };
    stripes_restored(&stage.answer(Err(lost)));
    while !is_question(stage.asked.values().next().unwrap()) {
        stripes_restored(&stage.answer(Err(HostError::Unavailable { devices: vec![DeviceId(0), DeviceId(1)] })));
    }
    assert_eq!(stage.asked.len(), 1, "it asks what is absent, and does not try the same again");
    assert_eq!(stage.healing.not_restored().count(), 0);
}

#[test]
fn a_rebuild_worker_stops_at_once_when_the_device_is_in_or_out_or_its_own_to_recover() {
    let own = MemberState::Returning { recovery_coordinator: Some(HOST) };
    for member_state in [MemberState::In, MemberState::Out, own] {
        let mut stage = worker();
        begin_restores(&mut stage);
        let before: Vec<_> = stage.asked.keys().copied().collect();
        stage.stands(member_state);
        let recovers = member_state == own;
        assert_eq!(stage.healing.recovers().is_some(), recovers);
        assert_eq!(stage.asked.len(), before.len() + if recovers { 4 } else { 0 }, "a survey, or nothing");
        for _ in before {
            stage.answer(Ok(HostSuccess::Done));
        }
        assert_eq!(stage.asked.len(), if recovers { 4 } else { 0 });
        assert!(stage.healing.deadline().is_none() && stage.told.is_empty());
    }
}

#[test]
fn a_rebuild_worker_begins_nothing_that_is_limited() {
    let limits = [
        (RecoveryThrottle { paused: true, ..RecoveryThrottle::default() }, false),
        (RecoveryThrottle { bytes_per_second: 1 << 30, ..RecoveryThrottle::default() }, false),
        (RecoveryThrottle { share: 99, ..RecoveryThrottle::default() }, false),
        (RecoveryThrottle::default(), true),
    ];
    for (throttle, has_users) in limits {
        let mut stage = worker();
        begin_restores(&mut stage);
        (stage.throttle, stage.has_users) = (throttle, has_users);
        stage.end_steps(&Ok(HostSuccess::Done));
        for _ in 0..20 {
            stage.wake_once();
            assert!(stage.asked.is_empty(), "{throttle:?}: {:?}", stage.asked);
        }
        // Users have no priority: neither for the coordinator nor for workers.
        stage.throttle = RecoveryThrottle { share: 100, ..RecoveryThrottle::default() };
        stage.wake_once();
        assert!(is_question(stage.asked.values().next().unwrap()));
    }
}

#[test]
fn a_host_that_is_fenced_or_leaves_is_no_rebuild_worker() {
    for leaving in [false, true] {
        let mut stage = worker();
        begin_restores(&mut stage);
        (stage.fenced, stage.leaving) = (!leaving, leaving);
        stage.end_steps(&Err(HostError::Fenced));
        for _ in 0..20 {
            stage.wake_once();
            assert!(stage.asked.is_empty());
        }
    }
}
