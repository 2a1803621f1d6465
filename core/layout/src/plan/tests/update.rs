//! Updates: whichever of the blocks change, the devices have the same content as after a write of all of them.

use super::model::{Blocks, Model, answer, apply, lost, put_pieces};
use super::moving::{BLOCKS, moving, on_both_sides};
use super::{BLOCK, layouts, noise};
use crate::{Absences, Layout, MovePlan, New, Share, UpdatePlan, VolumeDescription};
use braid_base::{BLOCK_BYTES, BlockRange, DeviceId, VolumeId};
use braid_blocks::{Content, Piece, Want};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn volume(layout: Layout) -> VolumeDescription {
    VolumeDescription::new(VolumeId(1), BLOCKS * BLOCK, layout, (0..layout.devices() as u16).map(DeviceId).collect())
}

/// Pseudo-random content with holes.
fn filled(layout: Layout) -> Model {
    let mut bytes = noise(9, BLOCKS * BLOCK).to_vec();
    (0..BLOCKS).filter(|block| block % 7 == 2).for_each(|hole| bytes[(hole * BLOCK) as usize..][..BLOCK_BYTES].fill(0));
    let mut model = Model { layout, bytes, devices: vec![BTreeMap::new(); layout.devices()] };
    model.place(BlockRange::new(0, BLOCKS));
    model
}

/// Changes some of the blocks, every third of them to a hole. Returns the new content of all blocks.
fn changes(blocks: BlockRange, changed: &BTreeSet<u64>, before: &[u8]) -> Vec<Piece> {
    let after = |block: u64| match changed.contains(&block) {
        true if block.is_multiple_of(3) => Content::Hole,
        true => Content::Data(noise(block + 100, BLOCK)),
        false => Content::Data(before[(block * BLOCK) as usize..][..BLOCK_BYTES].to_vec().into()),
    };
    blocks.blocks().map(|block| Piece { range: BlockRange::new(block, 1), content: after(block) }).collect()
}

fn assembled(pieces: &[Piece]) -> Vec<u8> {
    let bytes = |piece: &Piece| match &piece.content {
        Content::Data(data) => data.to_vec(),
        _ => vec![0; piece.range.count as usize * BLOCK_BYTES],
    };
    pieces.iter().flat_map(bytes).collect()
}

/// Writes pieces, which must be a part of the pre-writes, and at least one on each device. Returns the number of blocks.
fn apply_part(devices: &mut Blocks, shares: &[Share], written: Vec<(usize, Vec<Piece>)>) -> usize {
    let writing: Vec<&Share> = shares.iter().filter(|share| !share.prewrites.is_empty()).collect();
    assert_eq!(writing.len(), written.len(), "every device with a pre-write writes");
    let mut count = 0;
    for (share, (position, pieces)) in writing.into_iter().zip(written) {
        assert_eq!(share.position, position);
        let blocks: Vec<u64> = pieces.iter().flat_map(|piece| piece.range.blocks()).collect();
        assert!(!blocks.is_empty() && blocks.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(blocks.iter().all(|block| share.prewrites.iter().any(|range| range.blocks().contains(block))));
        count += blocks.len();
        put_pieces(devices, position, pieces);
    }
    count
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn changed_units_are_written_with_their_redundancy(
        layout in layouts(),
        (start, count) in (0..BLOCKS - 1, 1u64..33),
        changed in prop::collection::btree_set(0..BLOCKS, 0..6),
        out in prop::option::of(0usize..12),
    ) {
        let volume = volume(layout);
        let blocks = BlockRange::between(start, BLOCKS.min(start + count));
        let changed: BTreeSet<u64> = changed.into_iter().filter(|block| blocks.blocks().contains(block)).collect();
        let gone: Vec<usize> = out.into_iter().filter(|out| *out < layout.devices() && layout.redundancy_units() > 0).collect();
        let absences = Absences { own: lost(&gone), ..Absences::default() };
        let mut model = filled(layout);
        let mut devices = model.devices.clone();
        gone.iter().for_each(|position| devices[*position].clear());
        let plan = UpdatePlan::new(&volume, &absences, blocks).unwrap();
        prop_assert_eq!(plan.blocks(), blocks);
        let old = answer(&devices, &absences.own, plan.shares(), Want::Data);
        let bytes = (blocks.start * BLOCK) as usize..(blocks.end() * BLOCK) as usize;
        prop_assert!(assembled(&plan.before(&old)) == model.bytes[bytes.clone()]);
        let after = changes(blocks, &changed, &model.bytes);
        let new = assembled(&after);
        let written = apply_part(&mut devices, plan.shares(), plan.compute(after, &changed, &old));
        model.bytes[bytes].copy_from_slice(&new);
        model.place(blocks);
        gone.iter().for_each(|position| model.devices[*position].clear());
        prop_assert!(devices == model.devices);
        if layout.data_units() == 1 {
            // A copy on each device, or one block that makes it a participant.
            let copies = layout.scheme().width();
            let writers = plan.shares().iter().filter(|share| !share.prewrites.is_empty()).count();
            prop_assert!(written <= changed.len() * copies + writers);
        }
    }

    #[test]
    fn of_a_volume_that_moves_both_sides_change(
        which in 0usize..5, (start, count) in (0..BLOCKS - 1, 1u64..33),
        changed in prop::collection::btree_set(0..BLOCKS, 0..6),
    ) {
        let volume = moving(which);
        let blocks = BlockRange::between(start, BLOCKS.min(start + count));
        let changed: BTreeSet<u64> = changed.into_iter().filter(|block| blocks.blocks().contains(block)).collect();
        let (absences, none) = (Absences::default(), lost(&[]));
        let mut own = filled(volume.layout);
        let mut devices = own.devices.clone();
        devices.resize(volume.holders().len(), BTreeMap::new());
        let copy = MovePlan::copy(&volume, &absences, BlockRange::new(0, BLOCKS)).unwrap();
        let old = answer(&devices, &none, copy.shares(), Want::Data);
        apply(&mut devices, copy.shares(), copy.compute(&New::Pieces(Vec::new()), &old));

        let plan = UpdatePlan::new(&volume, &absences, blocks).unwrap();
        let old = answer(&devices, &none, plan.shares(), Want::Data);
        let bytes = (blocks.start * BLOCK) as usize..(blocks.end() * BLOCK) as usize;
        prop_assert!(assembled(&plan.before(&old)) == own.bytes[bytes.clone()]);
        let after = changes(blocks, &changed, &own.bytes);
        own.bytes[bytes].copy_from_slice(&assembled(&after));
        apply(&mut devices, plan.shares(), plan.compute(after, &changed, &old));

        own.place(blocks);
        prop_assert!(devices == on_both_sides(&volume, own));
    }
}
