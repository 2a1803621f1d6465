//! Plans with devices unavailable, executed on the [`Model`].
//!
//! For small layouts every case is tried: each position lost or stale, and each run of blocks in two stripes and a unit, whole or cut in
//! its first and last block.

use super::model::*;
use super::{BLOCK, noise, raid5};
use crate::plan::{
    CheckPlan, Method, Methods, New, ReadPlan, ReconstructError, ReconstructPlan, RestorePlan, Share, WritePlan,
};
use crate::{Absence, Layout, RaidLevel, Unavailable, UnitAddress};
use braid_base::limits::{EXTENTS_MAX, TRANSACTION_BYTES_MAX};
use braid_base::{BLOCK_BYTES, BlockRange};
use braid_blocks::Want;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn read(devices: &Blocks, layout: &Layout, absence: &Absence, offset: u64, length: u64) -> Vec<u8> {
    let plan = ReadPlan::new(layout, absence, offset, length).unwrap();
    assert!(plan.shares().iter().all(|share| share.prewrites.is_empty()));
    plan.assemble(&answer(devices, absence, plan.shares(), Want::Data)).concat()
}

fn restore(devices: &mut Blocks, layout: &Layout, absence: &Absence, position: usize, blocks: BlockRange) {
    let Some(plan) = RestorePlan::new(layout, absence, position, blocks).unwrap() else { return };
    assert_eq!(plan.blocks(), blocks);
    assert!(plan.shares().iter().all(|share| share.prewrites.is_empty() != (share.position == position)));
    let written = plan.compute(&answer(devices, absence, plan.shares(), Want::Data));
    apply(devices, plan.shares(), written);
}

/// Compares a plan's reads and writes, row by row, with Table III, with at most one device unavailable in a stripe.
pub(super) fn check_by_the_table(layout: &Layout, absence: &Absence, offset: u64, length: u64, plan: &WritePlan) {
    let (reads, writes) =
        (places(plan.shares(), |share| &share.reads), places(plan.shares(), |share| &share.prewrites));
    let (k, stripe_blocks, unit) = (layout.data_units(), layout.stripe_blocks(), layout.unit_blocks());
    let blocks = touched(offset, length);
    let (mut reads_seen, mut writes_seen) = (0, 0);
    for stripe in blocks.start / stripe_blocks..blocks.end().div_ceil(stripe_blocks) {
        for row in 0..unit {
            let block_of = |index: &usize| stripe * stripe_blocks + *index as u64 * unit + row;
            let updated: Vec<usize> = (0..k).filter(|index| blocks.blocks().contains(&block_of(index))).collect();
            if updated.is_empty() {
                continue;
            }
            let partly = |index: &usize| {
                let block = block_of(index);
                block * BLOCK < offset || (block + 1) * BLOCK > offset + length
            };
            let (data, redundancy) = places_of_row(layout, stripe, row);
            let others: Vec<usize> = (0..k).filter(|index| !updated.contains(index)).collect();
            let edges: Vec<usize> = updated.iter().copied().filter(partly).collect();
            let is_unavailable = |place: &UnitAddress| absence.is_unreadable(place.position);
            let data_unavailable = (0..k).find(|index| is_unavailable(&data[*index]));
            let parity_unavailable = redundancy.iter().find(|place| is_unavailable(place));
            let parity_lost = redundancy.iter().all(|place| absence.is_lost(place.position));

            // The units that are read, where k is the parity.
            let large = || others.iter().chain(&edges).copied().collect::<BTreeSet<usize>>();
            let expected = match data_unavailable {
                _ if layout.redundancy_units() == 0 || parity_lost => Some(edges.iter().copied().collect()),
                _ if k == 1 => Some(edges.iter().map(|_| data_unavailable.map_or(0, |_| 1)).collect()),
                Some(unavailable) if updated.contains(&unavailable) && edges.contains(&unavailable) => {
                    Some((0..=k).filter(|index| *index != unavailable).collect())
                }
                Some(unavailable) if updated.contains(&unavailable) => Some(large()),
                Some(_) => Some(updated.iter().copied().chain([k]).collect()),
                None if parity_unavailable.is_some() => Some(large()),
                None => None,
            };
            let row_places: Vec<UnitAddress> = data.iter().chain(&redundancy).copied().collect();
            let read: BTreeSet<UnitAddress> =
                row_places.iter().copied().filter(|place| reads.contains(place)).collect();
            match expected {
                Some(units) if k == 1 && data_unavailable.is_some() => {
                    let copy = redundancy.iter().find(|place| !is_unavailable(place));
                    assert_eq!(read, units.iter().map(|_| *copy.unwrap()).collect());
                }
                Some(units) => assert_eq!(read, units.iter().map(|unit| row_places[*unit]).collect(), "row {row}"),
                None if others.is_empty() => assert_eq!(read.len(), edges.len()),
                None => assert_eq!(read.len(), (updated.len() + 1).min(others.len() + edges.len())),
            }
            reads_seen += read.len();

            let written = updated.iter().map(|index| data[*index]).chain(redundancy);
            let written: BTreeSet<UnitAddress> = written.filter(|place| !absence.is_lost(place.position)).collect();
            assert!(written.is_subset(&writes));
            writes_seen += written.len();
        }
    }
    assert_eq!((reads.len(), writes.len()), (reads_seen, writes_seen), "nothing else is read or written");
}

/// Every write of small layouts with each device unavailable in turn; or only every n-th of these, different ones for each device.
fn try_all(schemes: &[&str], less: usize) {
    for layout in small_layouts(schemes) {
        let (blocks, before) = (volume_blocks(&layout), Model::new(layout));
        for position in 0..layout.devices() {
            for absence in [lost(&[position]), stale(&[position])] {
                for (index, (offset, length)) in spans(blocks).enumerate().skip(position % less).step_by(less) {
                    let new = if index % 3 == 2 { New::Zeros } else { New::Data(noise(index as u64, length)) };
                    try_write(&before, position, &absence, offset, length, &new);
                }
            }
        }
    }
}

fn try_write(before: &Model, position: usize, absence: &Absence, offset: u64, length: u64, new: &New) {
    let (layout, blocks) = (before.layout, touched(offset, length));
    let mut devices = before.devices.clone();
    let plan = WritePlan::new(&layout, absence, offset, length).unwrap();
    check_by_the_table(&layout, absence, offset, length, &plan);
    let written = plan.compute(new, &answer(&devices, absence, plan.shares(), Want::Data));
    apply(&mut devices, plan.shares(), written);
    let mut model = before.clone();
    model.write(offset, length, new);

    // All readable content is that of a healthy array; on a stale device, the blocks that were written.
    assert!((0..layout.devices()).all(|other| other == position || devices[other] == model.devices[other]));
    for place in places(plan.shares(), |share| &share.prewrites) {
        assert_eq!(devices[place.position].get(&place.block), model.devices[place.position].get(&place.block));
    }
    assert!(read(&devices, &layout, absence, offset, length) == model.bytes[offset as usize..][..length as usize]);

    if absence.is_lost(position) {
        assert_eq!(devices[position], before.devices[position]);
        restore(&mut devices, &layout, &stale(&[position]), position, blocks);
        assert!(devices[position] == model.devices[position], "missed blocks are restored, others unchanged");
    }
}

#[test]
fn every_write_with_a_device_missing_and_many_of_those_to_wide_stripes() {
    try_all(&["raid1:2", "raid1:3", "raid5:2+1", "raid5:3+1"], 1);
    try_all(&["raid5:4+1"], 3);
}

#[test]
fn striping_goes_on_where_no_lost_device_is_touched() {
    for layout in small_layouts(&["raid0:2", "raid0:3", "raid0:1"]) {
        let model = Model::new(layout);
        for position in 0..layout.devices() {
            for (offset, length) in spans(volume_blocks(&layout)) {
                let blocks = touched(offset, length);
                let on_it = |block: u64| layout.locate(block).position == position;
                let hit = blocks.blocks().any(on_it);
                let partly = |block: u64| block * BLOCK < offset || (block + 1) * BLOCK > offset + length;
                let hit_partly = blocks.blocks().any(|block| on_it(block) && partly(block));
                let unavailable = Unavailable { positions: vec![position] };
                for absence in [lost(&[position]), stale(&[position])] {
                    let reading = ReadPlan::new(&layout, &absence, offset, length).map(drop);
                    let writing = WritePlan::new(&layout, &absence, offset, length).map(drop);
                    assert_eq!(reading, if hit { Err(unavailable.clone()) } else { Ok(()) });
                    let in_the_way = if absence.is_lost(position) { hit } else { hit_partly };
                    assert_eq!(writing, if in_the_way { Err(unavailable.clone()) } else { Ok(()) });
                    if !in_the_way {
                        let new = New::Data(noise(1, length));
                        let (mut devices, mut expected) = (model.devices.clone(), model.clone());
                        let plan = WritePlan::new(&layout, &absence, offset, length).unwrap();
                        check_by_the_table(&layout, &absence, offset, length, &plan);
                        let written = plan.compute(&new, &answer(&devices, &absence, plan.shares(), Want::Data));
                        apply(&mut devices, plan.shares(), written);
                        expected.write(offset, length, &new);
                        assert!(devices == expected.devices);
                    }
                }
                let restored = RestorePlan::new(&layout, &stale(&[position]), position, blocks);
                assert_eq!(restored, if hit { Err(unavailable) } else { Ok(None) });
            }
        }
    }
}

#[test]
fn with_two_missing_only_stripes_without_both_are_served() {
    for layout in small_layouts(&["raid5:2+1", "raid5:3+1"]) {
        let (model, n) = (Model::new(layout), layout.devices());
        for (a, b) in (0..n).flat_map(|a| (0..n).filter(move |b| *b != a).map(move |b| (a, b))) {
            let mut mixed = lost(&[a]);
            mixed.stale(b);
            for absence in [lost(&[a, b]), mixed, stale(&[a, b])] {
                for (offset, length) in spans(volume_blocks(&layout)) {
                    try_with_two_unavailable(&model, [a, b], &absence, offset, length);
                }
            }
        }
    }
}

fn try_with_two_unavailable(model: &Model, unavailable: [usize; 2], absence: &Absence, offset: u64, length: u64) {
    let layout = model.layout;
    let has_both = |stripe: u64| {
        let (data, redundancy) = places_of_row(&layout, stripe, 0);
        unavailable.iter().all(|unavailable| data.iter().chain(&redundancy).any(|place| place.position == *unavailable))
    };
    let blocks = touched(offset, length);
    let stripe_of = |block: u64| block / layout.stripe_blocks();
    let both = Unavailable { positions: unavailable.iter().copied().collect::<BTreeSet<_>>().into_iter().collect() };

    let no_write = blocks.blocks().any(|block| has_both(stripe_of(block)));
    let plan = WritePlan::new(&layout, absence, offset, length);
    match plan {
        Err(unavailable) => assert!(no_write && unavailable == both),
        Ok(plan) => {
            assert!(!no_write);
            check_by_the_table(&layout, absence, offset, length, &plan);
        }
    }
    let is_unavailable = |block: u64| unavailable.contains(&layout.locate(block).position);
    let no_read = blocks.blocks().any(|block| has_both(stripe_of(block)) && is_unavailable(block));
    match ReadPlan::new(&layout, absence, offset, length) {
        Err(unavailable) => assert!(no_read && unavailable == both),
        Ok(plan) => {
            assert!(!no_read);
            let bytes = plan.assemble(&answer(&model.devices, absence, plan.shares(), Want::Data)).concat();
            assert!(bytes == model.bytes[offset as usize..][..length as usize]);
        }
    }
}

#[test]
fn three_copies_do_with_any_one_of_them() {
    let layout = Layout::new(RaidLevel::Raid1 { copies: 3 }, 3, 2).unwrap();
    let before = Model::new(layout);
    for present in 0..3 {
        let [a, b] = [(present + 1) % 3, (present + 2) % 3];
        let mut mixed = lost(&[a]);
        mixed.stale(b);
        for (absence, (offset, length)) in
            [lost(&[a, b]), mixed, stale(&[a, b])].iter().flat_map(|absence| spans(6).map(move |span| (absence, span)))
        {
            let (mut devices, mut model) = (before.devices.clone(), before.clone());
            let new = New::Data(noise(5, length));
            let plan = WritePlan::new(&layout, absence, offset, length).unwrap();
            let written = plan.compute(&new, &answer(&devices, absence, plan.shares(), Want::Data));
            apply(&mut devices, plan.shares(), written);
            model.write(offset, length, &new);
            assert!(devices[present] == model.devices[present]);
            assert!((0..3).all(|position| absence.is_lost(position) || devices[position] == model.devices[position]));
            assert!(read(&devices, &layout, absence, 0, 6 * BLOCK) == model.bytes[..6 * BLOCK_BYTES]);
            // Both return, one after the other.
            let mut back = stale(&[a, b]);
            for position in [a, b] {
                restore(&mut devices, &layout, &back, position, touched(offset, length));
                back = stale(&[b]);
            }
            assert!(devices == model.devices);
        }
    }
    let none = Unavailable { positions: vec![0, 1, 2] };
    let mut absence = lost(&[0, 2]);
    absence.stale(1);
    assert_eq!(WritePlan::new(&layout, &absence, 0, BLOCK).unwrap_err(), none);
    assert_eq!(ReadPlan::new(&layout, &absence, 0, BLOCK).unwrap_err(), none);
    assert_eq!(RestorePlan::new(&layout, &absence, 1, BlockRange::new(0, 1)).unwrap_err(), none);
}

#[test]
fn the_allocation_of_missing_units_follows_from_their_neighbours() {
    for layout in small_layouts(&["raid1:2", "raid5:3+1"]) {
        let mut model = Model::new(layout);
        // Including rows of holes.
        model.write(0, (layout.stripe_blocks() + 1) * BLOCK, &New::Zeros);
        for (position, skip) in (0..layout.devices()).flat_map(|position| [(position, 0), (position, 1)]) {
            let (absence, blocks) = (lost(&[position]), volume_blocks(&layout) - skip);
            let plan = ReadPlan::new(&layout, &absence, skip * BLOCK, blocks * BLOCK).unwrap();
            let runs = plan.allocation(&answer(&model.devices, &absence, plan.shares(), Want::Allocation));
            assert!(runs.windows(2).all(|pair| pair[0].1 != pair[1].1));
            let told: Vec<bool> = runs.iter().flat_map(|(count, data)| vec![*data; *count as usize]).collect();
            let has_data = |place: &UnitAddress| model.devices[place.position].contains_key(&place.block);
            let expected = (skip..skip + blocks).map(|block| {
                let place = layout.locate(block);
                let row = block % layout.stripe_blocks() % layout.unit_blocks();
                let (data, redundancy) = places_of_row(&layout, block / layout.stripe_blocks(), row);
                let mut others = data.iter().chain(&redundancy).filter(|other| other.position != position);
                if place.position == position { others.any(has_data) } else { has_data(&place) }
            });
            assert_eq!(told, expected.collect::<Vec<bool>>());
        }
    }
}

#[test]
fn one_method_of_table_iii_for_each_case() {
    let (small, large, full) = (BLOCK, 2 * 16 * BLOCK, 4 * 16 * BLOCK);
    // In stripe 0, the data units are at positions 0 to 3 and the parity at 4.
    for (length, absence, method, reads, writes) in [
        (small, lost(&[0]), Method::Large, &[1, 2, 3][..], &[4][..]),
        (small, stale(&[0]), Method::Large, &[1, 2, 3], &[0, 4]),
        (small, lost(&[4]), Method::Full, &[], &[0]),
        (small, stale(&[4]), Method::Large, &[1, 2, 3], &[0, 4]),
        (small, lost(&[3]), Method::Small, &[0, 4], &[0, 4]),
        (small, stale(&[3]), Method::Small, &[0, 4], &[0, 4]),
        (large, lost(&[0]), Method::Large, &[2, 3], &[1, 4]),
        (large, stale(&[0]), Method::Large, &[2, 3], &[0, 1, 4]),
        (large, lost(&[4]), Method::Full, &[], &[0, 1]),
        (large, stale(&[4]), Method::Large, &[2, 3], &[0, 1, 4]),
        (large, lost(&[3]), Method::Small, &[0, 1, 4], &[0, 1, 4]),
        (large, stale(&[3]), Method::Small, &[0, 1, 4], &[0, 1, 4]),
        (full, lost(&[0]), Method::Full, &[], &[1, 2, 3, 4]),
        (full, stale(&[0]), Method::Full, &[], &[0, 1, 2, 3, 4]),
        (full, lost(&[4]), Method::Full, &[], &[0, 1, 2, 3]),
        (full, stale(&[4]), Method::Full, &[], &[0, 1, 2, 3, 4]),
    ] {
        let plan = WritePlan::new(&raid5(), &absence, 0, length).unwrap();
        let mut methods = Methods::default();
        methods.count(method);
        assert_eq!(plan.methods(), methods, "{length} {absence:?}");
        let positions = |does: fn(&Share) -> bool| {
            plan.shares().iter().filter(|share| does(share)).map(|share| share.position).collect::<Vec<usize>>()
        };
        assert_eq!(positions(|share| !share.reads.is_empty()), reads, "{length} {absence:?}");
        assert_eq!(positions(|share| !share.prewrites.is_empty()), writes, "{length} {absence:?}");
    }
}

#[test]
fn checks_and_reconstructions_need_the_whole_rest() {
    let unavailable = |positions: &[usize]| Unavailable { positions: positions.to_vec() };
    for absence in [lost(&[2]), stale(&[2])] {
        assert_eq!(CheckPlan::new(&raid5(), &absence, 0).unwrap_err(), unavailable(&[2]));
        let unit = |unit: u64| ReconstructPlan::new(&raid5(), &absence, unit * 16 * BLOCK, BLOCK);
        assert!(unit(2).is_ok(), "the unit itself is not needed");
        assert_eq!(unit(1).unwrap_err(), ReconstructError::Unavailable(unavailable(&[2])));
    }
    let groups = Layout::new(RaidLevel::Raid5 { data: 4 }, 10, 16).unwrap();
    assert!(CheckPlan::new(&groups, &lost(&[2]), 1).is_ok(), "stripe 1 is at positions 5 to 9");
    let restoring =
        |absence: &Absence, start, count| RestorePlan::new(&raid5(), absence, 2, BlockRange::new(start, count));
    assert!(restoring(&lost(&[2]), 0, 64).is_err(), "a lost device can't be written");
    assert!(restoring(&stale(&[2, 3]), 0, 64).is_err());
    assert_eq!(restoring(&stale(&[2]), 0, 16), Ok(None));
    assert_eq!(restoring(&stale(&[2]), 40, 0), Ok(None));
}

#[test]
fn positions_share_a_stripe_if_any_stripe_has_both() {
    for layout in small_layouts(&["raid0:1", "raid0:3", "raid1:2", "raid1:3", "raid5:2+1", "raid5:4+1"]) {
        let n = layout.devices();
        for (a, b) in (0..n).flat_map(|a| (0..n).map(move |b| (a, b))) {
            let shared = (0..(n * layout.scheme().width()) as u64).any(|stripe| {
                let (data, redundancy) = places_of_row(&layout, stripe, 0);
                let has = |position| data.iter().chain(&redundancy).any(|place| place.position == position);
                has(a) && has(b)
            });
            assert_eq!(layout.share_a_stripe(a, b), shared, "{layout:?} {a} {b}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// A device is lost, misses some writes, returns as stale, is written to, and is restored write by write.
    #[test]
    fn a_device_that_was_missing_is_resynchronised(
        layout in super::layouts().prop_filter("has redundancy", |layout| layout.redundancy_units() > 0),
        position in any::<usize>(),
        missed in prop::collection::vec(super::writes(), 1..6),
        taken in prop::collection::vec(super::writes(), 0..4),
    ) {
        let position = position % layout.devices();
        let mut model = Model { layout, bytes: vec![0; 90 * BLOCK_BYTES], devices: vec![BTreeMap::new(); layout.devices()] };
        let mut devices = model.devices.clone();
        let mut ranges = Vec::new();
        for (index, write) in missed.iter().chain(&taken).enumerate() {
            let absence = if index < missed.len() { lost(&[position]) } else { stale(&[position]) };
            let new = if write.zeros { New::Zeros } else { New::Data(noise(index as u64, write.length)) };
            let plan = WritePlan::new(&layout, &absence, write.offset, write.length).unwrap();
            let written = plan.compute(&new, &answer(&devices, &absence, plan.shares(), Want::Data));
            apply(&mut devices, plan.shares(), written);
            model.write(write.offset, write.length, &new);
            prop_assert!(read(&devices, &layout, &absence, 0, 90 * BLOCK) == model.bytes);
            if index < missed.len() {
                ranges.push(plan.blocks());
            }
        }
        for blocks in ranges {
            restore(&mut devices, &layout, &stale(&[position]), position, blocks);
            prop_assert!(read(&devices, &layout, &stale(&[position]), 0, 90 * BLOCK) == model.bytes);
        }
        prop_assert!(devices == model.devices);
    }

    #[test]
    fn the_longest_request_fits_the_messages_with_a_device_missing(
        layout in super::layouts().prop_filter("has redundancy", |layout| layout.redundancy_units() > 0),
        position in any::<usize>(),
        is_lost in any::<bool>(),
        offset in 0u64..1 << 40,
    ) {
        let (position, length) = (position % layout.devices(), TRANSACTION_BYTES_MAX as u64);
        let absence = if is_lost { lost(&[position]) } else { stale(&[position]) };
        let write = WritePlan::new(&layout, &absence, offset, length).unwrap();
        let read = ReadPlan::new(&layout, &absence, offset, length).unwrap();
        let restore = RestorePlan::new(&layout, &stale(&[position]), position, touched(offset, length)).unwrap();
        let restore = restore.as_ref().map_or(&[][..], |plan| plan.shares());
        for share in write.shares().iter().chain(read.shares()).chain(restore) {
            prop_assert!(share.prewrites.len() + share.reads.len() <= EXTENTS_MAX);
        }
    }

    #[test]
    fn reads_are_united_in_whatever_order(ranges in prop::collection::vec((0u64..60, 1u64..9), 1..20)) {
        let mut united = Vec::new();
        let mut blocks = BTreeSet::new();
        for (start, count) in ranges {
            super::super::push_united(&mut united, BlockRange::new(start, count));
            blocks.extend(start..start + count);
        }
        prop_assert!(united.windows(2).all(|pair| pair[0].end() < pair[1].start));
        prop_assert!(united.iter().flat_map(|range| range.blocks()).eq(blocks));
    }
}
