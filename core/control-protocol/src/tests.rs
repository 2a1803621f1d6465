//! Explores all interleavings of small worlds: administrators die or are suspended at every step, answers are lost, and questions take
//! effect late.

mod changes;
mod devices;
mod effects;
mod exploration;
mod file_systems;
mod migrations;
mod volume_lifecycle;
mod world;

use crate::*;
use braid_base::VolumeId;
use braid_layout::{Layout, Placement, RaidLevel, VolumeDescription};
use braid_ordering::Ordering;
use exploration::{Administered, explore};
use std::collections::BTreeSet;
use world::{Budget, DEVICES, World};

fn quiet() -> Budget {
    Budget { settlers: 1, operations: 2, ..Budget::default() }
}

fn volume() -> VolumeDescription {
    VolumeDescription::new(
        VolumeId(7),
        1 << 16,
        Layout::new(RaidLevel::Raid0 { data: 1 }, 1, 16).unwrap(),
        vec![DEVICES[0]],
    )
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

#[track_caller]
fn ends_with(what: &str, world: World, expected: &[&str]) -> BTreeSet<String> {
    print!("{what}: ");
    let ends = explore(world, World::is_settled);
    exploration::ends_with(&ends, expected);
    ends
}
