//! Changes of a volume, and their settlement.

use super::world::*;
use super::*;
use braid_base::Generation;

fn reorder() -> Change {
    Change::Ordering(Ordering::DeviceLock)
}

/// All changes, with volumes that they fit.
fn changes() -> [(VolumeDescription, Change); 5] {
    [
        (volume(), reorder()),
        (volume(), Change::Move(target())),
        (moving(), Change::EndMove),
        (moving(), Change::GiveUpMove),
        (volume(), Change::Grow(3 << 16)),
    ]
}

fn world(volume: VolumeDescription, change: Change, budget: Budget) -> World {
    World::new(volume, VolumeChange::new(FIRST, change, Timing::default()), budget)
}

/// All changes, with such failures.
fn all_end_with(what: &str, budget: &Budget, expected: &[&str]) -> BTreeSet<String> {
    let ends = |(volume, change)| ends_with(what, world(volume, change, budget.clone()), expected);
    changes().into_iter().flat_map(ends).collect()
}

#[test]
fn a_change_ends_whatever_hosts_do_meanwhile() {
    for (volume, change) in changes() {
        let mut world = world(volume, change, quiet());
        world.add_host(LATE_USER);
        ends_with("all is well", world, &["Ok(Changed)", "Ok(Nothing)"]);
    }
}

#[test]
fn answers_may_be_lost_and_questions_take_effect_late() {
    let budget = Budget { lost: 2, operations: 1, ..quiet() };
    let ends = all_end_with("lost answers", &budget, &["Ok(Changed)", "Incomplete"]);
    assert!(!ends.contains("Err(Lost)"), "nobody takes over from a living administrator");
}

#[test]
fn a_change_whose_question_fails_names_that_question() {
    let budget = Budget { failures: 1, operations: 0, settlers: 0, ..quiet() };
    let mut ends = all_end_with("failed questions", &budget, &["Ok(Changed)", "Err(Question(", "Err(Incomplete("]);
    let migration = Migration::to(FIRST, target(), Timing::default());
    ends.extend(ends_with("a migration", World::new(volume(), migration, budget), &["Ok(Changed)", "Err(Question("]));
    let names_it =
        |end: &String| ["Ok(Changed)", "Err(Question(", "Err(Incomplete("].iter().any(|good| end.starts_with(good));
    assert!(ends.iter().all(names_it), "{ends:?}");
}

#[test]
fn a_recovery_leaves_a_later_hold_of_its_own_host_alone() {
    let state = VolumeState::Draining { to: reorder(), by: FIRST };
    let record = Some(Box::new(VolumeRecord { volume: volume(), state, copied: None }));
    let answer =
        Answer::Record { version: Version(3), record, ready_devices: DEVICES.into(), next_volume: VolumeId(8) };
    let mut recovery = Operation::from(VolumeChange::recovering(FIRST, Generation(9), Timing::default()));
    let Effect::Ask { tag, .. } = recovery.step(braid_base::Time(0), Input::Start).remove(0) else {
        panic!("it reads first")
    };
    let effects = recovery.step(braid_base::Time(0), Input::Answer { tag, answer });
    assert_eq!(effects, [Effect::Ended(Ok(Done::Nothing))]);
}

#[test]
fn a_change_is_completed_or_undone_whatever_fails_meanwhile() {
    let budget = Budget { deaths: 1, settlers: 1, operations: 1, ..quiet() };
    for (what, budget, expected) in [
        ("unanswered", Budget { unanswered: 1, ..budget.clone() }, &["Ok(Changed)", "Ok(Reverted)"][..]),
        ("deaths", Budget { settlers: 2, ..budget }, &["Ok(Changed)", "Ok(Reverted)", "Ok(Nothing)"]),
        ("returns", Budget { returns: 1, operations: 0, ..quiet() }, &["Ok(Changed)"]),
    ] {
        all_end_with(what, &budget, expected);
    }
}

#[test]
fn an_administrator_that_was_suspended_and_taken_over_changes_nothing() {
    let budget = Budget { silences: 1, settlers: 1, operations: 1, ..quiet() };
    all_end_with("suspended", &budget, &["Ok(Changed)", "Ok(Reverted)", "Err(Lost)", "Incomplete"]);
}

#[test]
fn silence_death_and_lost_answers_may_come_together() {
    let budget = Budget { lost: 1, deaths: 0, silences: 1, settlers: 1, operations: 0, ..quiet() };
    ends_with("all at once", world(volume(), reorder(), budget), &["Ok(Changed)", "Ok(Reverted)"]);
}

#[test]
fn a_change_that_a_device_has_no_space_for_is_undone() {
    let [one, other] = DEVICES;
    let cases = [(one, Change::Move(target())), (other, Change::Move(target())), (one, Change::Grow(3 << 16))];
    for (device, change) in cases {
        let mut world = world(volume(), change, Budget { deaths: 1, operations: 0, ..quiet() });
        world.budget.full = Some(device);
        ends_with("no space", world, &["NoSpace", "Ok(Changed)"]);
    }
}

#[test]
fn a_volume_does_not_shrink_nor_change_its_size_while_it_moves() {
    for (volume, bytes) in [(volume(), 1 << 16), (volume(), 1 << 15), (moving(), 3 << 16), (volume(), (3 << 16) + 1)] {
        let world = world(volume, Change::Grow(bytes), Budget { operations: 0, ..quiet() });
        let ends = ends_with("no growth", world, &["Err(Migration)"]);
        assert_eq!(ends.len(), 1, "{ends:?}");
    }
}

#[test]
fn one_of_two_administrators_changes_a_volume() {
    let mut world = world(volume(), reorder(), Budget { settlers: 0, operations: 1, ..quiet() });
    let second = Generation(12);
    let change = Change::Ordering(Ordering::None);
    world.begin(second, VolumeChange::new(second, change, Timing::default()));
    ends_with("two", world, &["Err(Held(", "Ok(Changed)"]);
}
