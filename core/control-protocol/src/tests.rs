//! Explores all interleavings of small worlds: administrators die or are suspended at every step, answers are lost, and questions take
//! effect late.

mod changes;
mod device_changes;
mod effects;
mod exploration;
mod file_system_creations;
mod file_systems;
mod lives;
mod migrations;
mod replacements;
mod world;

use crate::*;
use braid_base::VolumeId;
use braid_layout::{Layout, Placement, RaidLevel, VolumeDescription};
use braid_ordering::Ordering;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use world::{Budget, DEVICES, World};

const QUIET: Budget = Budget {
    lost: 0,
    deaths: 0,
    silences: 0,
    settlers: 1,
    operations: 2,
    returns: 0,
    continuers: 0,
    notes: 0,
    restarts: 0,
    full: None,
};

fn volume() -> VolumeDescription {
    VolumeDescription {
        id: VolumeId(7),
        bytes: 1 << 16,
        layout: Layout::new(RaidLevel::Raid0 { data: 1 }, 1, 16).unwrap(),
        devices: vec![DEVICES[0]],
        ordering: Ordering::Timestamp,
        atomicity: Default::default(),
        parity_site: Default::default(),
        moving: None,
    }
}

/// To the other device.
fn target() -> Placement {
    Placement {
        layout: Layout::new(RaidLevel::Raid0 { data: 1 }, 1, 16).unwrap().beginning_at(256),
        devices: vec![DEVICES[1]],
    }
}

fn moving() -> VolumeDescription {
    Change::Move(target()).applied_to(&volume())
}

/// Visits every world that can come about. Returns how many there were, and how administrators ended in those where nothing can happen.
fn explore(world: World) -> (usize, BTreeSet<String>) {
    let fingerprint = |world: &World| {
        let mut hasher = DefaultHasher::new();
        format!("{world:?}").hash(&mut hasher);
        hasher.finish()
    };
    let mut visited = BTreeSet::from([fingerprint(&world)]);
    let mut ends = BTreeSet::new();
    let mut next = vec![world];
    while let Some(world) = next.pop() {
        for process in world.administrators.values() {
            ends.extend(process.ended.as_ref().map(|ended| format!("{ended:?}")));
        }
        let events = world.events();
        // Nothing can happen any more, and whoever was to settle the change has had its turn.
        if events.is_empty() && world.budget.settlers > 0 {
            let left = world.record().and_then(VolumeRecord::administrator);
            assert_eq!(left, None, "a hold outlives its administrator: {world:#?}");
        }
        for event in events {
            let mut after = world.clone();
            after.happen(event);
            if visited.insert(fingerprint(&after)) {
                next.push(after);
            }
        }
    }
    (visited.len(), ends)
}

#[track_caller]
fn ends_with(what: &str, world: World, expected: &[&str]) -> BTreeSet<String> {
    let (worlds, ends) = explore(world);
    println!("{what}: {worlds} worlds, {ends:?}");
    for end in expected {
        assert!(ends.iter().any(|found| found.contains(end)), "{end} never happened");
    }
    ends
}
