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

/// The volume is on hold for a change of an administrator that has died.
fn abandoned(state: VolumeState, budget: Budget) -> World {
    let mut world = deletion(volume(), budget);
    world.record.state = state;
    // Hosts know of it, and have drained if it is committed.
    world.start(USER);
    world
}

#[test]
fn a_volume_is_created() {
    let mut world = creation(QUIET);
    world.add_host(LATE_USER);
    ends_with("creation", world, &["Ok(Changed)", "Ok(Nothing)"]);
}

#[test]
fn a_creation_with_lost_answers_is_complete_or_leaves_nothing() {
    let budget = Budget { lost: 2, operations: 0, ..QUIET };
    ends_with("lost", creation(budget), &["Ok(Changed)", "Incomplete"]);
}

#[test]
fn a_change_whose_administrator_dies_or_is_suspended_is_completed() {
    let budget = Budget { deaths: 1, settlers: 2, operations: 1, ..QUIET };
    both_end_with("deaths", budget, &["Ok(Changed)", "Ok(Nothing)"]);
    let budget = Budget { silences: 1, settlers: 1, operations: 1, ..QUIET };
    both_end_with("suspended", budget, &["Ok(Changed)", "Ok(Nothing)", "Err("]);
    let budget = Budget { silences: 1, lost: 1, settlers: 1, operations: 0, ..QUIET };
    both_end_with("all at once", budget, &["Ok(Changed)"]);
}

#[test]
fn a_creation_that_a_device_has_no_space_for_leaves_nothing() {
    for device in DEVICES {
        let mut world = creation(Budget { deaths: 1, settlers: 2, operations: 0, ..QUIET });
        world.budget.full = Some(device);
        ends_with("no space", world, &["NoSpace", "Ok(Changed)"]);
    }
}

#[test]
fn two_creations_of_one_volume_create_one() {
    let mut world = creation(Budget { settlers: 0, deaths: 1, operations: 0, ..QUIET });
    let second = Generation(12);
    world.begin(second, Creation::of(second, wide(), timing()));
    ends_with("two", world, &["Ok(Changed)", "Ok(Nothing)"]);
}

#[test]
fn a_number_that_another_volume_has_had_is_refused() {
    let mut world = creation(QUIET);
    world.life.next_volume = VolumeId(wide().id.0 + 1);
    let ends = ends_with("used", world, &["NumberUsed"]);
    assert_eq!(ends.len(), 1, "{ends:?}");
}

#[test]
fn a_volume_is_deleted_when_no_host_uses_it() {
    for volume in [wide(), moving()] {
        let mut world = deletion(volume, QUIET);
        world.add_host(LATE_USER);
        ends_with("deletion", world, &["Ok(Changed)", "Ok(Nothing)"]);
    }
}

#[test]
fn a_deletion_with_lost_answers_is_completed() {
    let budget = Budget { lost: 2, operations: 1, ..QUIET };
    ends_with("lost", deletion(wide(), budget), &["Ok(Changed)", "Incomplete"]);
}

#[test]
fn hosts_whose_answers_are_lost_know_what_there_is() {
    let budget = Budget { unanswered: 1, deaths: 1, settlers: 1, operations: 1, ..QUIET };
    both_end_with("unanswered", budget, &["Ok(Changed)"]);
}

#[test]
fn a_device_that_returns_meanwhile_has_what_it_should() {
    both_end_with("returns", Budget { returns: 1, operations: 0, ..QUIET }, &["Ok(Changed)"]);
}

#[test]
fn a_volume_on_hold_for_a_dead_administrator_is_deleted() {
    let dead = Generation(5);
    let to = || Change::Move(target());
    for state in [VolumeState::Draining { to: to(), by: dead }, VolumeState::Reordering { to: to(), by: dead }] {
        let budget = Budget { settlers: 1, operations: 1, ..QUIET };
        ends_with("on hold", abandoned(state, budget), &["Ok(Changed)"]);
    }
}

#[test]
fn a_volume_that_another_administrator_changes_is_deleted_when_that_has_ended() {
    let mut world = deletion(volume(), Budget { settlers: 0, operations: 0, deaths: 1, ..QUIET });
    let second = Generation(12);
    world.begin(second, VolumeChange::new(second, Change::Move(target()), timing()));
    ends_with("both", world, &["Ok(Changed)", "Err(NotUsable)"]);
}

#[test]
fn a_volume_may_be_deleted_while_it_is_created() {
    let mut world = creation(Budget { settlers: 0, operations: 0, deaths: 1, ..QUIET });
    let second = Generation(12);
    world.begin(second, Deletion::of(second, timing()));
    ends_with("both", world, &["Ok(Changed)", "Err(NotUsable)"]);
}
