//! Tests of background jobs as their host sees them: the steps that they ask for, and the results of the outcomes.

use braid_base::{DeviceId, Epoch, Generation, MemberState, Membership, Time, TransactionId, VolumeId};
use braid_healing::{Ctx, Event, Healing, StepId, Volumes};
use braid_layout::{Atomicity, Layout, VolumeDescription};
use braid_machine::{HostError, HostOutcome, HostRequest, HostSuccess, OpId};
use braid_wire::{Linkage, Ordering, RecoveryThrottle};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

const HOST: Generation = Generation(7);
const VOLUME: VolumeId = VolumeId(1);
const OP: OpId = OpId(99);

/// A host that consists of its jobs only.
struct Stage {
    healing: Healing,
    membership: Membership,
    volumes: Volumes,
    now: Time,
    fenced: bool,
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
            id: VOLUME,
            bytes: 8 * layout.stripe_blocks() * 4096,
            layout,
            devices: devices.clone(),
            ordering: Ordering::Timestamp,
            atomicity: Atomicity::Consistent,
            moving: None,
        };
        Stage {
            healing: Healing::default(),
            membership: Membership::first(devices),
            volumes: [(VOLUME, Rc::new(volume))].into(),
            now: Time(1_000_000_000),
            fenced: false,
            asked: BTreeMap::new(),
            told: Vec::new(),
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
            throttle: RecoveryThrottle::default(),
            heartbeat: Duration::from_secs(1),
            has_users: false,
            fenced: self.fenced,
            leaving: false,
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
        self.healing.invariants(false);
    }

    /// Answers the first step under way, and lets all timers expire.
    fn answer(&mut self, outcome: HostOutcome) -> HostRequest {
        let (step, request) = self.asked.pop_first().expect("something is under way");
        self.with(|healing, ctx| healing.answered(ctx, step, outcome));
        self.wake();
        request
    }

    fn wake(&mut self) {
        while let Some(deadline) = self.healing.deadline() {
            self.now = self.now.max(deadline);
            self.with(|healing, ctx| healing.wake(ctx));
        }
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
            HostRequest::CheckRows { rows, .. } => Some(rows.stripe),
            HostRequest::Recompute { rows, .. } => {
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
        assert!(matches!(stage.answer(checked(whole)), HostRequest::CrossCheck { known: true, .. }));
        if !whole {
            assert!(stage.told.is_empty());
            assert!(matches!(stage.answer(Ok(HostSuccess::Done)), HostRequest::Recompute { .. }));
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
fn a_step_of_a_recovery_that_is_over_changes_nothing() {
    let mut stage = Stage::new();
    stage.stands(MemberState::Out);
    stage.stands(MemberState::Returning { recovery_coordinator: Some(HOST) });
    assert_eq!(stage.asked.len(), 4, "all are asked for their objects");
    assert_eq!(stage.healing.recovers(), Some((DeviceId(3), None)));
    stage.stands(MemberState::Out);
    assert_eq!(stage.healing.recovers(), None);
    while !stage.asked.is_empty() {
        stage.answer(Err(HostError::Busy));
    }
    assert!(stage.told.is_empty() && stage.healing.deadline().is_none());
}

#[test]
fn another_host_recovers_what_it_was_named_for() {
    let mut stage = Stage::new();
    stage.stands(MemberState::Returning { recovery_coordinator: Some(Generation(8)) });
    assert!(stage.asked.is_empty() && stage.healing.recovers().is_none());
}
