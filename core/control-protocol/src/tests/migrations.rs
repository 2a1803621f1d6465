//! Whole migrations: whoever continues or restarts them meanwhile, one ends only when everything is copied.

use super::world::*;
use super::*;

fn first() -> Migration {
    Migration::to(FIRST, target(), Timing::default())
}

/// A migration that has begun, of which nothing is copied, and the operation that continues it.
fn continued(budget: Budget) -> World {
    let mut world = World::new(moving(), Migration::continuing(FIRST, Timing::default()), budget);
    world.copied.copied_to = 0;
    world.record.copied = Some(world.copied);
    world
}

#[test]
fn a_migration_goes_from_one_device_to_the_other() {
    let budget = Budget { settlers: 0, notes: 1, ..quiet() };
    let ends = ends_with("a whole migration", World::new(volume(), first(), budget), &["Ok(Changed)"]);
    assert_eq!(ends.len(), 1, "nothing else can happen: {ends:?}");
}

#[test]
fn a_migration_whose_operation_dies_is_continued_from_what_is_noted() {
    let budget = Budget { deaths: 1, continuers: 1, operations: 0, ..quiet() };
    ends_with("deaths", World::new(volume(), first(), budget), &["Ok(Changed)", "Ok(Reverted)", "Ok(Nothing)"]);
}

#[test]
fn a_migration_is_not_ended_by_who_copied_one_before_whatever_else_happens() {
    let budget = Budget { continuers: 1, operations: 0, ..quiet() };
    let restarted = Budget { restarts: 1, settlers: 0, ..budget.clone() };
    for (what, budget, expected) in [
        ("two continue it", budget, &["Ok(Changed)", "Err(Held(", "Err(Migration)"][..]),
        ("given up and begun again", Budget { notes: 1, ..restarted.clone() }, &["Ok(Changed)", "Err(Migration)"]),
        ("also lost answers", Budget { lost: 1, ..restarted }, &["Ok(Changed)", "Err(Migration)"]),
    ] {
        ends_with(what, continued(budget), expected);
    }
}

#[test]
fn a_volume_moves_only_to_a_place_that_it_does_not_use_and_with_an_ordering() {
    let moved = Change::EndMove.applied_to(&moving());
    let unordered = VolumeDescription { ordering: Ordering::None, ..volume() };
    for volume in [moved, unordered, moving()] {
        let world = World::new(volume, first(), quiet());
        let ends = explore(world, World::is_settled);
        assert!(ends.iter().all(|end| end.contains("Migration")), "{ends:?}");
    }
}
