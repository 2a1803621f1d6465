//! Disks that are replaced: a small world with a store, the monitor, and administrators.

use super::exploration::*;
use crate::*;
use braid_base::DiskId;
use braid_wire::{AdminError, Administration};

const DEVICE: DeviceId = DeviceId(3);
const OLD: DiskId = DiskId(1);
const NEW: DiskId = DiskId(2);

#[derive(Clone, Debug)]
struct ReplacementWorld {
    version: Version,
    record: Option<DeviceRecord>,
    /// The disk that fills the slot according to the monitor.
    member: DiskId,
    /// What another administrator requests.
    next: Replacement,
    /// The monitor refuses requests so many more times.
    refusals: u32,
    administrators: Administrators,
    /// How many operations have ended distinguishes worlds.
    ended: Vec<Result<Done, Error>>,
    budget: Budget,
}

#[derive(Clone, Copy, Debug)]
struct Budget {
    lost: u32,
    deaths: u32,
    /// Administrators that repeat the replacement.
    repetitions: u32,
}

const QUIET: Budget = Budget { lost: 0, deaths: 0, repetitions: 0 };

/// Another administrator repeats the replacement.
#[derive(Clone, Copy, Debug)]
struct Repeat;

/// The requests of administrators that wait for a device are not lost without end.
fn timing() -> Timing {
    Timing { device: Duration::ZERO, steady: Duration::from_millis(50), ..Timing::default() }
}

impl ReplacementWorld {
    fn new(record: Option<DeviceRecord>, operation: Replacement, budget: Budget) -> ReplacementWorld {
        let mut world = ReplacementWorld {
            version: Version(1),
            member: OLD,
            record,
            next: replacement(false),
            refusals: 0,
            administrators: Administrators::with(budget.lost, 0, budget.deaths),
            ended: Vec::new(),
            budget,
        };
        world.start(operation);
        world
    }

    fn start(&mut self, operation: Replacement) {
        self.begin(Generation(10 - self.budget.repetitions), operation);
    }
}

fn record() -> DeviceRecord {
    DeviceRecord { disk: Some(OLD), others: BTreeSet::new(), state: DeviceState::Ready }
}

fn next_disk(until_rebuilt: bool) -> NextDisk {
    NextDisk { disk: NEW, blocks: 9, is_spare: false, lose: false, until_rebuilt }
}

fn replacement(until_rebuilt: bool) -> Replacement {
    Replacement::of(DEVICE, next_disk(until_rebuilt), timing())
}

impl Administered for ReplacementWorld {
    type Event = Repeat;

    has_administrators!();

    fn other_events(&self) -> Vec<Repeat> {
        vec![Repeat; usize::from(self.budget.repetitions > 0)]
    }

    fn other_happens(&mut self, Repeat: Repeat) {
        self.budget.repetitions -= 1;
        self.start(self.next.clone());
    }

    fn perform(&mut self, _: Generation, asked: &Asked) -> Answer {
        match &asked.question {
            Question::Store(Command::ReadDevice) => {
                let (version, record) = (self.version, self.record.clone());
                Answer::Device { version, record, is_used: true, volumes: BTreeSet::new() }
            }
            Question::Store(Command::ReplaceDevice { after, .. }) if *after != self.version => Answer::Superseded,
            Question::Store(Command::ReplaceDevice { record, .. }) => {
                (self.version, self.record) = (Version(self.version.0 + 1), Some(record.clone()));
                Answer::Replaced { version: self.version }
            }
            Question::AreIn { .. } => Answer::AllIn(Epoch(1)),
            Question::RunsOn { disk, .. } if self.member == *disk => Answer::Yes,
            Question::RunsOn { .. } => Answer::Superseded,
            Question::Administer { .. } if self.refusals > 0 => {
                self.refusals -= 1;
                Answer::Refused(AdminError::NeedsOthers { others: vec![DeviceId(1)] })
            }
            Question::Administer { request: Administration::Replace { disk, .. } } => {
                self.member = *disk;
                Answer::Yes
            }
            other => panic!("{other:?}"),
        }
    }

    fn may_be_lost(question: &Question) -> bool {
        !matches!(question, Question::AreIn { .. } | Question::RunsOn { .. })
    }

    fn ended(&mut self, _: Generation, _: Administrator, result: &Result<Done, Error>) {
        self.ended.push(result.clone());
    }

    fn check(&self) {
        let mut known = self.record.iter().flat_map(|record| record.others.iter().copied().chain(record.disk));
        assert!(
            known.any(|disk| disk == self.member),
            "the store does not know the disk that fills the slot: {self:#?}"
        );
    }
}

#[test]
fn the_disk_that_fills_a_slot_is_known_whoever_replaces_it() {
    for until_rebuilt in [false, true] {
        let world = |budget| ReplacementWorld::new(Some(record()), replacement(until_rebuilt), budget);
        let ends = explore(world(QUIET), |world| assert_eq!(world.member, NEW));
        assert_eq!(ends, ["Ok(Changed)".to_string()].into());
        ends_with(&explore(world(Budget { deaths: 1, repetitions: 1, ..QUIET }), |_| ()), &["Ok(Changed)"]);
        let lost = Budget { lost: 2, repetitions: 1, ..QUIET };
        ends_with(&explore(world(lost), |_| ()), &["Ok(Changed)", "Err(Question"]);
    }
}

#[test]
fn a_refused_disk_is_forgotten_and_one_that_needs_others_is_asked_for_again() {
    let world = |refusals| {
        let mut world = ReplacementWorld::new(Some(record()), replacement(false), QUIET);
        world.refusals = refusals;
        world
    };
    let ends = explore(world(1), |world| assert_eq!(world.member, NEW));
    assert_eq!(ends, ["Ok(Changed)".to_string()].into());
    let ends = explore(world(9), |world| assert_eq!(world.record, Some(record())));
    ends_with(&ends, &["Err(Refused"]);
    assert_eq!(ends.len(), 1, "{ends:?}");
}

#[test]
fn a_refused_replacement_does_not_forget_the_disk_of_another_one() {
    let mut world = ReplacementWorld::new(Some(record()), replacement(false), Budget { repetitions: 1, ..QUIET });
    world.refusals = 2;
    ends_with(&explore(world, |_| ()), &["Ok(Changed)", "Err(Refused"]);
}

#[test]
fn a_replacement_ends_when_another_disk_was_requested_since() {
    let mut world = ReplacementWorld::new(Some(record()), replacement(true), Budget { repetitions: 1, ..QUIET });
    world.next = Replacement::of(DEVICE, NextDisk { disk: DiskId(7), ..next_disk(true) }, timing());
    let ends = explore(world, |world| assert_eq!(world.ended.len(), 2, "{world:#?}"));
    ends_with(&ends, &["Ok(Changed)", "Err(Lost)"]);
}

#[test]
fn a_device_that_there_is_not_gets_no_disk() {
    let mut world = ReplacementWorld::new(None, replacement(false), QUIET);
    let (own, tag) = (Generation(10), Tag(1));
    let asked = world.living(own).pending.remove(&tag).expect("it reads first");
    let answer = world.perform(own, &asked);
    world.give(own, Input::Answer { tag, answer });
    assert_eq!(world.ended, [Err(Error::NoDevice)]);
}
