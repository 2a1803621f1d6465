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
fn a_change_with_lost_answers_is_complete_or_leaves_nothing() {
    both_end_with("lost", Budget { lost: 2, operations: 1, ..quiet() }, &["Ok(Changed)", "Incomplete"]);
}

#[test]
fn a_change_whose_administrator_dies_or_is_suspended_is_completed() {
    let budget = Budget { deaths: 1, settlers: 2, operations: 1, ..quiet() };
    both_end_with("deaths", budget, &["Ok(Changed)", "Ok(Nothing)"]);
    let budget = Budget { silences: 1, settlers: 1, operations: 1, ..quiet() };
    both_end_with("suspended", budget, &["Ok(Changed)", "Ok(Nothing)", "Err("]);
    let budget = Budget { silences: 1, lost: 1, settlers: 1, operations: 0, ..quiet() };
    both_end_with("all at once", budget, &["Ok(Changed)"]);
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
fn hosts_whose_answers_are_lost_know_what_there_is() {
    let budget = Budget { unanswered: 1, deaths: 1, settlers: 1, operations: 1, ..quiet() };
    both_end_with("unanswered", budget, &["Ok(Changed)"]);
}

#[test]
fn a_device_that_returns_meanwhile_has_what_it_should() {
    both_end_with("returns", Budget { returns: 1, operations: 0, ..quiet() }, &["Ok(Changed)"]);
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
