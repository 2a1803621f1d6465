//! Disks that are replaced: a small world with a store, the monitor, and administrators.

use super::exploration::{Explored, ends_with, explore};
use crate::*;
use braid_base::{DeviceId, DiskId, Epoch, Generation, Time};
use braid_wire::{AdminError, Administration};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const DEVICE: DeviceId = DeviceId(3);
const OLD: DiskId = DiskId(1);
const NEW: DiskId = DiskId(2);

#[derive(Clone, Debug)]
struct World {
    version: Version,
    record: Option<DeviceRecord>,
    /// The disk that fills the slot according to the monitor.
    member: DiskId,
    /// What another administrator requests.
    next: Replacement,
    /// The monitor refuses requests so many more times.
    refusals: u32,
    administrators: BTreeMap<Generation, (Operation, BTreeMap<Tag, Question>, Time)>,
    stray: Vec<Question>,
    ends: Vec<Result<Done, Error>>,
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

#[derive(Clone, Copy, Debug)]
enum Event {
    Answer(Generation, Tag),
    Lose(Generation, Tag),
    Stray(usize),
    Wake(Generation),
    Die(Generation),
    Repeat,
}

/// The requests of administrators that wait for a device are not lost without end.
fn timing() -> Timing {
    Timing { device: Duration::ZERO, steady: Duration::from_millis(50), ..Timing::default() }
}

impl World {
    fn new(record: Option<DeviceRecord>, operation: Replacement, budget: Budget) -> World {
        let mut world = World {
            version: Version(1),
            member: OLD,
            record,
            next: replacement(false),
            refusals: 0,
            administrators: BTreeMap::new(),
            stray: Vec::new(),
            ends: Vec::new(),
            budget,
        };
        world.begin(operation);
        world
    }

    fn begin(&mut self, operation: Replacement) {
        let own = Generation(10 - self.budget.repetitions);
        self.administrators.insert(own, (operation.into(), BTreeMap::new(), Time(0)));
        self.give(own, Input::Start);
    }

    fn give(&mut self, own: Generation, input: Input) {
        let (operation, pending, now) = self.administrators.get_mut(&own).expect("it lives");
        let mut ended = None;
        for effect in operation.step(*now, input) {
            match effect {
                Effect::Ask { tag, question } => drop(pending.insert(tag, question)),
                Effect::Began(_) => {}
                Effect::Ended(result) => ended = Some(result),
            }
        }
        if let Some(result) = ended {
            self.administrators.remove(&own);
            self.ends.push(result);
        }
    }

    fn perform(&mut self, question: &Question) -> Answer {
        match question {
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

    /// What must hold at every moment.
    fn check(&self) {
        let mut known = self.record.iter().flat_map(|record| record.others.iter().copied().chain(record.disk));
        assert!(
            known.any(|disk| disk == self.member),
            "the store does not know the disk that fills the slot: {self:#?}"
        );
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

impl Explored for World {
    type Event = Event;

    fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for (own, (operation, pending, _)) in &self.administrators {
            for (tag, question) in pending {
                events.push(Event::Answer(*own, *tag));
                if self.budget.lost > 0 && !matches!(question, Question::AreIn { .. } | Question::RunsOn { .. }) {
                    events.push(Event::Lose(*own, *tag));
                }
            }
            if operation.deadline().is_some() {
                events.push(Event::Wake(*own));
            }
            if self.budget.deaths > 0 {
                events.push(Event::Die(*own));
            }
        }
        events.extend((0..self.stray.len()).map(Event::Stray));
        if self.budget.repetitions > 0 {
            events.push(Event::Repeat);
        }
        events
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Answer(own, tag) => {
                let question = self.administrators.get_mut(&own).unwrap().1.remove(&tag).unwrap();
                let answer = self.perform(&question);
                self.give(own, Input::Answer { tag, answer });
            }
            Event::Lose(own, tag) => {
                self.budget.lost -= 1;
                let question = self.administrators.get_mut(&own).unwrap().1.remove(&tag).unwrap();
                self.stray.push(question);
                self.give(own, Input::Answer { tag, answer: Answer::Unknown });
            }
            Event::Stray(number) => {
                let question = self.stray.remove(number);
                self.perform(&question);
            }
            Event::Wake(own) => {
                let (operation, _, now) = self.administrators.get_mut(&own).unwrap();
                *now = (*now).max(operation.deadline().unwrap());
                self.give(own, Input::Wake);
            }
            Event::Die(own) => {
                self.budget.deaths -= 1;
                let (_, pending, _) = self.administrators.remove(&own).unwrap();
                self.stray.extend(pending.into_values());
            }
            Event::Repeat => {
                self.budget.repetitions -= 1;
                self.begin(self.next.clone());
            }
        }
        self.check();
    }

    /// They stay: how many operations have ended distinguishes worlds.
    fn take_ends(&mut self) -> BTreeSet<String> {
        self.ends.iter().map(|end| format!("{end:?}")).collect()
    }
}

#[test]
fn the_disk_that_fills_a_slot_is_known_whoever_replaces_it() {
    for until_rebuilt in [false, true] {
        let world = |budget| World::new(Some(record()), replacement(until_rebuilt), budget);
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
        let mut world = World::new(Some(record()), replacement(false), QUIET);
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
    let mut world = World::new(Some(record()), replacement(false), Budget { repetitions: 1, ..QUIET });
    world.refusals = 2;
    ends_with(&explore(world, |_| ()), &["Ok(Changed)", "Err(Refused"]);
}

#[test]
fn a_replacement_ends_when_another_disk_was_requested_since() {
    let mut world = World::new(Some(record()), replacement(true), Budget { repetitions: 1, ..QUIET });
    world.next = Replacement::of(DEVICE, NextDisk { disk: DiskId(7), ..next_disk(true) }, timing());
    let ends = explore(world, |world| assert_eq!(world.ends.len(), 2, "{world:#?}"));
    ends_with(&ends, &["Ok(Changed)", "Err(Lost)"]);
}

#[test]
fn a_device_that_there_is_not_gets_no_disk() {
    let mut world = World::new(None, replacement(false), QUIET);
    let (own, tag) = (Generation(10), Tag(1));
    let answer = world.perform(&Question::Store(Command::ReadDevice));
    world.give(own, Input::Answer { tag, answer });
    assert_eq!(world.ends, [Err(Error::NoDevice)]);
}
