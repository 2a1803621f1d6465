//! Volumes that are created and deleted, and whoever completes that.

use super::world::*;
use super::*;
use braid_base::Generation;
use std::time::Duration;

/// A volume on both devices.
fn wide() -> VolumeDescription {
    VolumeDescription {
        layout: Layout::new(RaidLevel::Raid0 { data: 2 }, 2, 16).unwrap(),
        devices: DEVICES.into(),
        ..volume()
    }
}

/// Administrators do not wait for each other for long.
fn timing() -> Timing {
    Timing { turn: Duration::from_millis(50), ..Timing::default() }
}

fn creation(budget: Budget) -> World {
    World::before_creation(wide(), budget)
}

fn deletion(volume: VolumeDescription, budget: Budget) -> World {
    World::new(volume, Deletion::of(FIRST, timing()), budget)
}

/// A creation, and a deletion, with such failures.
fn both_end_with(what: &str, budget: Budget, expected: &[&str]) {
    ends_with(what, creation(budget.clone()), expected);
    ends_with(what, deletion(wide(), budget), expected);
}

#[test]
fn a_volume_is_created() {
    let mut world = creation(quiet());
    world.add_host(LATE_USER);
    ends_with("creation", world, &["Ok(Changed)", "Ok(Nothing)"]);
}

#[test]
fn a_change_is_completed_or_leaves_nothing_whatever_fails_meanwhile() {
    let budget = Budget { operations: 1, ..quiet() };
    for (what, budget, expected) in [
        ("lost", Budget { lost: 2, ..budget.clone() }, &["Ok(Changed)", "Incomplete"][..]),
        ("deaths", Budget { deaths: 1, settlers: 2, ..budget.clone() }, &["Ok(Changed)", "Ok(Nothing)"]),
        ("suspended", Budget { silences: 1, ..budget.clone() }, &["Ok(Changed)", "Ok(Nothing)", "Err("]),
        ("all at once", Budget { silences: 1, lost: 1, operations: 0, ..budget.clone() }, &["Ok(Changed)"]),
        ("unanswered", Budget { unanswered: 1, deaths: 1, ..budget.clone() }, &["Ok(Changed)"]),
        ("returns", Budget { returns: 1, operations: 0, ..budget }, &["Ok(Changed)"]),
    ] {
        both_end_with(what, budget, expected);
    }
}

#[test]
fn a_creation_that_a_device_has_no_space_for_leaves_nothing() {
    for device in DEVICES {
        let mut world = creation(Budget { deaths: 1, settlers: 2, operations: 0, ..quiet() });
        world.budget.full = Some(device);
        ends_with("no space", world, &["NoSpace", "Ok(Changed)"]);
    }
}

#[test]
fn a_number_that_another_volume_has_had_is_refused() {
    let mut world = creation(quiet());
    world.next_volume = VolumeId(wide().id.0 + 1);
    let ends = ends_with("used", world, &["NumberUsed"]);
    assert_eq!(ends.len(), 1, "{ends:?}");
}

#[test]
fn a_volume_is_deleted_when_no_host_uses_it() {
    for volume in [wide(), moving()] {
        let mut world = deletion(volume, quiet());
        world.add_host(LATE_USER);
        ends_with("deletion", world, &["Ok(Changed)", "Ok(Nothing)"]);
    }
}

#[test]
fn a_volume_on_hold_for_a_dead_administrator_is_deleted() {
    let (to, by) = (Change::Move(target()), Generation(5));
    for state in [VolumeState::Draining { to: to.clone(), by }, VolumeState::Reordering { to, by }] {
        let mut world = deletion(volume(), Budget { settlers: 1, operations: 1, ..quiet() });
        world.record.state = state;
        // Hosts know of it, and have drained if it is committed.
        world.start(USER);
        ends_with("on hold", world, &["Ok(Changed)"]);
    }
}

#[test]
fn of_two_operations_on_one_volume_each_takes_its_turn() {
    let (second, budget) = (Generation(12), Budget { settlers: 0, operations: 0, deaths: 1, ..quiet() });
    let change = VolumeChange::new(second, Change::Move(target()), timing());
    let cases: [(World, Operation, &str); 3] = [
        (creation(budget.clone()), Creation::of(second, wide(), timing()).into(), "Ok(Nothing)"),
        (creation(budget.clone()), Deletion::of(second, timing()).into(), "Err(NotUsable)"),
        (deletion(volume(), budget), change.into(), "Err(NotUsable)"),
    ];
    for (mut world, operation, end) in cases {
        world.begin(second, operation);
        ends_with("two", world, &["Ok(Changed)", end]);
    }
}
