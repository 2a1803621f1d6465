//! The columns of a RAIDmap, executed by simple devices. Every result is that of the plan, which computes parity at the originator.

use super::model::*;
use super::{BLOCK, noise, raid5};
use crate::plan::{New, ParitySite, RaidMap, WritePlan};
use crate::{Absence, Layout};
use braid_base::{BLOCK_BYTES, BlockRange, DeviceId};
use braid_blocks::{Base, Column, Content, Piece, Sent, Want};
use std::collections::BTreeMap;

/// The block of parity or data for which content is meant, and the content.
type Added = ((usize, u64), Vec<u8>);

/// The name of the device at a position. Not the number of the position, so that the two can't be confused.
fn device_at(position: usize) -> DeviceId {
    DeviceId(100 + position as u16)
}

fn position_of(device: DeviceId) -> usize {
    usize::from(device.0 - 100)
}

fn xor(sum: &mut [u8], other: &[u8]) {
    sum.iter_mut().zip(other).for_each(|(sum, byte)| *sum ^= byte);
}

/// The content of a block among pieces.
fn in_pieces(pieces: &[Piece], block: u64) -> Option<Vec<u8>> {
    let piece = pieces.iter().find(|piece| piece.range.blocks().contains(&block))?;
    let start = (block - piece.range.start) as usize * BLOCK_BYTES;
    Some(match &piece.content {
        Content::Data(data) => data[start..start + BLOCK_BYTES].to_vec(),
        Content::Hole => vec![0; BLOCK_BYTES],
        other => panic!("a column has data or holes, not {other:?}"),
    })
}

/// What the devices do together.
fn execute(devices: &mut Blocks, absence: &Absence, map: &RaidMap) {
    let before = devices.clone();
    let old = |position: usize, block: u64| {
        assert!(!absence.is_unreadable(position), "only a readable device reads");
        before[position].get(&block).map_or(vec![0; BLOCK_BYTES], |data| data.to_vec())
    };
    let mut sent: Vec<(DeviceId, Added)> = Vec::new();
    for (position, column) in &map.columns {
        for sending in &column.sends {
            for index in 0..sending.blocks.count {
                let block = sending.blocks.start + index;
                let new = || in_pieces(&column.pieces, block).expect("what is sent as new is written");
                let content = match sending.what {
                    Sent::Old => old(*position, block),
                    Sent::New => new(),
                    Sent::Change => {
                        let mut change = new();
                        xor(&mut change, &old(*position, block));
                        change
                    }
                };
                sent.push((device_at(*position), ((position_of(sending.to), sending.at + index), content)));
            }
        }
    }
    for (position, column) in &map.columns {
        assert!(!absence.is_lost(*position), "a lost device has no column");
        put_pieces(devices, *position, column.pieces.clone());
        for rows in &column.parity {
            for block in rows.blocks.blocks() {
                let mut sum = match rows.base {
                    Base::Old => old(*position, block),
                    Base::Zeros => vec![0; BLOCK_BYTES],
                };
                let mut from: Vec<DeviceId> = Vec::new();
                for (sender, (place, content)) in &sent {
                    if *place == (*position, block) {
                        from.push(*sender);
                        xor(&mut sum, content);
                    }
                }
                let mut awaited = rows.from.clone();
                awaited.sort_unstable();
                assert_eq!(from, awaited, "exactly the senders are awaited, each once");
                let own = rows.own.iter().filter(|piece| piece.range.blocks().contains(&block));
                own.for_each(|piece| xor(&mut sum, &in_pieces(std::slice::from_ref(piece), block).unwrap()));
                let range = BlockRange::new(block, 1);
                put_pieces(devices, *position, vec![Piece { range, content: Content::Data(sum.into()) }]);
            }
        }
    }
    let awaited =
        map.columns.values().flat_map(|column| &column.parity).map(|rows| rows.blocks.count * rows.from.len() as u64);
    assert_eq!(awaited.sum::<u64>(), sent.len() as u64, "everything that is sent is awaited");
}

/// All layouts with parity, all runs of whole blocks, and each position in or out.
#[test]
fn columns_that_devices_execute_leave_the_same_content_as_a_plan() {
    for layout in small_layouts(&["raid5:2+1", "raid5:3+1", "raid5:4+1"]) {
        let model = Model::new(layout);
        let absences = (0..layout.devices()).flat_map(|position| [lost(&[position]), stale(&[position])]);
        for absence in absences.chain([Absence::none()]) {
            for (offset, length) in
                spans(volume_blocks(&layout)).filter(|span| (span.0 + span.1) % BLOCK == 0 && span.0 % BLOCK == 0)
            {
                for new in [New::Data(noise(offset + length, length)), New::Zeros] {
                    check(&model, &absence, offset, length, &new);
                }
            }
        }
    }
}

fn check(model: &Model, absence: &Absence, offset: u64, length: u64, new: &New) {
    let layout = &model.layout;
    let plan = WritePlan::new(layout, absence, offset, length).unwrap();
    let mut expected = model.devices.clone();
    let written = plan.compute(new, &answer(&model.devices, absence, plan.shares(), Want::Data));
    apply(&mut expected, plan.shares(), written);
    for site in [ParitySite::AtParity, ParitySite::ParityNode] {
        let map = RaidMap::new(&plan, new, site, device_at).expect("whole blocks of a layout with parity");
        for share in plan.shares() {
            let column = map.columns.get(&share.position);
            assert_eq!(column.map(Column::writes).unwrap_or_default(), share.prewrites, "{site:?}: pre-writes");
            assert_eq!(column.map(Column::reads).unwrap_or_default(), share.reads, "{site:?}: the plan's reads");
        }
        let mut found = model.devices.clone();
        execute(&mut found, absence, &map);
        assert!(found == expected, "{site:?}: {layout:?}, {absence:?}, {length} bytes at {offset}");
    }
}

#[test]
fn only_whole_blocks_of_stripes_with_parity_are_executed_together() {
    let map = |layout: &Layout, offset, length, site| {
        let plan = WritePlan::new(layout, &Absence::none(), offset, length).unwrap();
        RaidMap::new(&plan, &New::Zeros, site, device_at)
    };
    let layout = raid5();
    assert!(map(&layout, 0, BLOCK, ParitySite::AtParity).is_some());
    assert_eq!(map(&layout, 0, BLOCK - 512, ParitySite::AtParity), None, "a part of a block");
    assert_eq!(map(&layout, 0, BLOCK, ParitySite::Originator), None, "the originator reads first");
    let stripe = layout.stripe_blocks() * BLOCK;
    assert!(map(&layout, 0, stripe, ParitySite::Originator).is_some(), "nothing is read for a full stripe");
    for layout in small_layouts(&["raid0:3", "raid1:2"]) {
        assert_eq!(map(&layout, 0, BLOCK, ParitySite::AtParity), None);
    }
}

/// The table of the module: who sends how much for a small, a large and a full band.
#[test]
fn the_sites_differ_in_what_is_sent() {
    let layout = raid5();
    let (unit, k) = (layout.unit_blocks() * BLOCK, layout.data_units() as u64);
    let messages = |units: u64, site| {
        let plan = WritePlan::new(&layout, &Absence::none(), 0, units * unit).unwrap();
        let map = RaidMap::new(&plan, &New::Data(noise(1, units * unit)), site, device_at).unwrap();
        let mut counts: BTreeMap<Sent, usize> = BTreeMap::new();
        map.columns
            .values()
            .flat_map(|column| &column.sends)
            .for_each(|sending| *counts.entry(sending.what).or_default() += 1);
        let writers = map.columns.values().filter(|column| !column.writes().is_empty()).count();
        // Each column takes a message, and each writer answers.
        (counts, map.columns.len() + writers + map.columns.values().map(|column| column.sends.len()).sum::<usize>())
    };
    assert_eq!(k, 4, "the figures of the documentation are for 4+1");
    assert_eq!(messages(1, ParitySite::AtParity), ([(Sent::Change, 1)].into(), 5));
    assert_eq!(messages(1, ParitySite::ParityNode), ([(Sent::Old, 1)].into(), 5));
    assert_eq!(messages(3, ParitySite::AtParity), ([(Sent::New, 3), (Sent::Old, 1)].into(), 13));
    assert_eq!(messages(3, ParitySite::ParityNode), ([(Sent::Old, 1)].into(), 10));
    assert_eq!(messages(4, ParitySite::AtParity), ([].into(), 10));
}
