//! Migrating volumes: after any sequence of writes and copies, both locations have the same content.

use super::model::{Blocks, Model, answer, apply, lost};
use super::{BLOCK, noise};
use crate::{Absences, Layout, MovePlan, New, Old, Placement, VolumeDescription};
use braid_base::{BlockRange, DeviceId, VolumeId};
use braid_blocks::Want;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

pub(super) const BLOCKS: u64 = 60;

fn layout(scheme: &str, devices: usize, unit: u64) -> Layout {
    Layout::new(scheme.parse().unwrap(), devices, unit).unwrap()
}

/// Pairs of locations: with other levels, other devices, some of the same devices, other units.
pub(super) fn moving(which: usize) -> VolumeDescription {
    let (from, from_ring, to, to_ring): (Layout, &[u16], Layout, &[u16]) = match which {
        0 => (layout("raid1:2", 2, 4), &[0, 1], layout("raid5:3+1", 4, 2), &[3, 1, 0, 2]),
        1 => (layout("raid5:3+1", 4, 2), &[0, 1, 2, 3], layout("raid1:2", 3, 8), &[6, 2, 4]),
        2 => (layout("raid5:2+1", 4, 4), &[2, 1, 0, 3], layout("raid5:4+1", 5, 4), &[4, 3, 2, 1, 0]),
        3 => (layout("raid1:3", 3, 1), &[0, 1, 2], layout("raid5:2+1", 3, 16), &[0, 1, 2]),
        _ => (layout("raid5:4+1", 5, 1), &[0, 1, 2, 3, 4], layout("raid5:2+1", 3, 4), &[5, 6, 7]),
    };
    let ring = |devices: &[u16]| devices.iter().copied().map(DeviceId).collect::<Vec<_>>();
    let mut volume = VolumeDescription::new(VolumeId(1), BLOCKS * BLOCK, from, ring(from_ring));
    let first = volume.place_for(&to);
    volume.moving = Some(Box::new(Placement { layout: to.beginning_at(first), devices: ring(to_ring) }));
    volume
}

/// What devices hold if both locations have the content of the first.
pub(super) fn on_both_sides(volume: &VolumeDescription, own: Model) -> Blocks {
    let target = volume.target().unwrap();
    let none = vec![BTreeMap::new(); target.devices.len()];
    let mut there = Model { layout: target.layout, bytes: own.bytes, devices: none };
    there.place(BlockRange::new(0, BLOCKS));
    let mut held = own.devices;
    held.resize(volume.holders().len(), BTreeMap::new());
    for (position, blocks) in volume.target_positions().into_iter().zip(there.devices) {
        held[position].extend(blocks);
    }
    held
}

#[derive(Clone, Debug)]
enum Act {
    Write { offset: u64, length: u64, zero: bool },
    Copy { blocks: BlockRange },
}

fn act() -> impl Strategy<Value = Act> {
    let write =
        (0..BLOCKS * BLOCK, 1..12 * BLOCK, any::<bool>(), any::<bool>()).prop_map(|(offset, length, whole, zero)| {
            let (offset, length) =
                if whole { (offset / BLOCK * BLOCK, length.next_multiple_of(BLOCK)) } else { (offset, length) };
            Act::Write { offset, length: length.min(BLOCKS * BLOCK - offset), zero }
        });
    let copy = (0..BLOCKS, 1..20u64)
        .prop_map(|(start, count)| Act::Copy { blocks: BlockRange::between(start, BLOCKS.min(start + count)) });
    prop_oneof![3 => write, 1 => copy]
}

proptest! {
    #[test]
    fn source_and_target_hold_the_same_in_the_end(
        which in 0usize..5, acts in prop::collection::vec(act(), 0..12), out in prop::option::of(0u16..8),
    ) {
        let volume = moving(which);
        prop_assert_eq!(volume.check(), Ok(()));
        let out: BTreeSet<DeviceId> = out.map(DeviceId).into_iter().collect();
        let absences: Absences = volume.absences(&out, &BTreeSet::new());
        let holders = volume.holders();
        let gone: Vec<usize> = (0..holders.len()).filter(|position| out.contains(&holders[*position])).collect();
        let unavailable = lost(&gone);
        let none = vec![BTreeMap::new(); volume.devices.len()];
        let mut own = Model { layout: volume.layout, bytes: vec![0; (BLOCKS * BLOCK) as usize], devices: none };
        own.write(0, BLOCKS * BLOCK, &New::Data(noise(9, BLOCKS * BLOCK)));
        let mut devices = own.devices.clone();
        devices.resize(holders.len(), BTreeMap::new());
        gone.iter().for_each(|position| devices[*position].clear());
        let everything = Act::Copy { blocks: BlockRange::new(0, BLOCKS) };
        for (index, act) in acts.into_iter().chain([everything]).enumerate() {
            let (plan, new) = match act {
                Act::Write { offset, length, zero } => {
                    let new = if zero { New::Zeros } else { New::Data(noise(index as u64, length)) };
                    own.write(offset, length, &new);
                    (MovePlan::write(&volume, &absences, offset, length).unwrap(), new)
                }
                Act::Copy { blocks } => (MovePlan::copy(&volume, &absences, blocks).unwrap(), New::Pieces(Vec::new())),
            };
            let old: Old = answer(&devices, &unavailable, plan.shares(), Want::Data);
            apply(&mut devices, plan.shares(), plan.compute(&new, &old));
        }
        let mut expected = on_both_sides(&volume, own);
        gone.iter().for_each(|position| expected[*position].clear());
        for (position, (found, expected)) in devices.iter().zip(&expected).enumerate() {
            let blocks = |held: &BTreeMap<u64, bytes::Bytes>| held.keys().copied().collect::<Vec<_>>();
            prop_assert_eq!(blocks(found), blocks(expected), "which blocks device {} holds", holders[position]);
            prop_assert!(found == expected, "what device {} holds", holders[position]);
        }
    }
}
