//! Plans are executed on an array in memory, and compared with an array of bytes.

mod model;
mod moving;
mod raidmap;
mod unavailable;
mod update;

use super::{CheckPlan, Methods, New, Old, ReadPlan, ReconstructError, ReconstructPlan, Share, WritePlan};
use crate::{Absence, Layout, RaidLevel, UnitAddress};
use braid_base::{BLOCK_BYTES, BlockRange};
use braid_blocks::{Content, Piece, Want};
use bytes::Bytes;
use model::{Blocks, Model, answer_in_pieces, apply_as_it_is, drop_zeros};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Layouts of every scheme, on rings as wide as a stripe and wider.
pub(crate) fn layouts() -> impl Strategy<Value = Layout> {
    let schemes = prop_oneof![
        (1usize..6).prop_map(|data| RaidLevel::Raid0 { data }),
        (2usize..5).prop_map(|copies| RaidLevel::Raid1 { copies }),
        (2usize..8).prop_map(|data| RaidLevel::Raid5 { data }),
    ];
    (schemes, 0usize..9, 0u32..4)
        .prop_map(|(scheme, more, shift)| Layout::new(scheme, scheme.width() + more, 1 << shift).unwrap())
}

/// Devices that execute shares without faults.
struct Array {
    layout: Layout,
    devices: Blocks,
    /// Whether answers consist of single blocks or of runs.
    block_by_block: bool,
}

impl Array {
    fn new(layout: Layout, block_by_block: bool) -> Array {
        Array { layout, devices: vec![BTreeMap::new(); layout.devices()], block_by_block }
    }

    /// Answers, in any order.
    fn answer(&self, shares: &[Share], want: Want) -> Old {
        answer_in_pieces(&self.devices, &Absence::none(), shares, want, |pieces| {
            let pieces = if self.block_by_block { pieces } else { in_runs(pieces) };
            pieces.into_iter().rev().collect()
        })
    }

    /// Executes a write, and checks that it corresponds to its plan.
    fn write(&mut self, offset: u64, length: u64, new: &New) {
        let plan = WritePlan::new(&self.layout, &Absence::none(), offset, length).unwrap();
        unavailable::check_by_the_table(&self.layout, &Absence::none(), offset, length, &plan);
        let written = plan.compute(new, &self.answer(plan.shares(), Want::Data));
        apply_as_it_is(&mut self.devices, plan.shares(), written);
    }

    fn read(&self, offset: u64, length: u64) -> Vec<u8> {
        let plan = ReadPlan::new(&self.layout, &Absence::none(), offset, length).unwrap();
        assert!(plan.shares().iter().all(|share| share.prewrites.is_empty()));
        plan.assemble(&self.answer(plan.shares(), Want::Data)).concat()
    }

    fn matches(&self, stripe: u64) -> bool {
        let plan = CheckPlan::new(&self.layout, &Absence::none(), stripe).unwrap();
        plan.matches(&self.answer(plan.shares(), Want::Data))
    }
}

/// Joins neighbours that are alike.
fn in_runs(pieces: Vec<Piece>) -> Vec<Piece> {
    let mut runs: Vec<Piece> = Vec::new();
    for piece in pieces {
        let last = runs.last_mut().filter(|last| last.range.end() == piece.range.start);
        match (last, &piece.content) {
            (Some(Piece { range, content: Content::Data(before) }), Content::Data(data)) => {
                *before = Bytes::from([&before[..], data].concat());
                range.count += 1;
            }
            (Some(last), Content::Hole) if last.content == Content::Hole => last.range.count += 1,
            _ => runs.push(piece),
        }
    }
    runs
}

fn blocks_read(shares: &[Share]) -> u64 {
    shares.iter().flat_map(|share| &share.reads).map(|range| range.count).sum()
}

/// Pseudo-random bytes.
fn noise(seed: u64, length: u64) -> Bytes {
    let mut rng = braid_base::Rng::new(seed);
    (0..length.div_ceil(8)).flat_map(|_| rng.next_u64().to_le_bytes()).take(length as usize).collect::<Vec<u8>>().into()
}

#[derive(Clone, Debug)]
struct Write {
    offset: u64,
    length: u64,
    zeros: bool,
}

const VOLUME_BLOCKS: u64 = 90;

/// Writes of whole blocks, or of any bytes.
fn writes() -> impl Strategy<Value = Write> {
    let bytes = VOLUME_BLOCKS * BLOCK;
    let bytes_of_it = (0..bytes, prop_oneof![1..3 * BLOCK, 1..bytes], any::<bool>());
    (bytes_of_it, any::<bool>()).prop_map(move |((offset, length, zeros), whole)| {
        let (offset, length) =
            if whole { (offset / BLOCK * BLOCK, length.next_multiple_of(BLOCK)) } else { (offset, length) };
        Write { offset, length: length.min(bytes - offset), zeros }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_writes_leave_the_right_bytes_and_the_right_parity(
        layout in layouts(),
        writes in prop::collection::vec(writes(), 1..12),
        block_by_block: bool,
        (from, to) in (0..VOLUME_BLOCKS * BLOCK, 0..VOLUME_BLOCKS * BLOCK),
    ) {
        let mut array = Array::new(layout, block_by_block);
        let mut model = vec![0; (VOLUME_BLOCKS * BLOCK) as usize];
        let mut ever_written = BTreeSet::new();
        for (seed, Write { offset, length, zeros }) in writes.into_iter().enumerate() {
            let data = noise(seed as u64, length);
            let new = if zeros { New::Zeros } else { New::Data(data.clone()) };
            array.write(offset, length, &new);
            let target = &mut model[offset as usize..(offset + length) as usize];
            if zeros { target.fill(0) } else { target.copy_from_slice(&data) }
            ever_written.extend(offset / BLOCK..(offset + length).div_ceil(BLOCK));
        }
        prop_assert!(array.read(0, VOLUME_BLOCKS * BLOCK) == model);
        let (from, to) = (from.min(to), from.max(to));
        prop_assert!(array.read(from, to - from) == model[from as usize..to as usize]);
        prop_assert!((0..VOLUME_BLOCKS).all(|block| {
            let UnitAddress { position, block: at } = layout.locate(block);
            ever_written.contains(&block) || !array.devices[position].contains_key(&at)
        }), "what was never written is a hole");

        // The content of all devices, computed independently.
        let mut expected = Model { layout, bytes: model.clone(), devices: vec![BTreeMap::new(); layout.devices()] };
        expected.place(BlockRange::new(0, VOLUME_BLOCKS));
        let mut found = array.devices.clone();
        found.iter_mut().for_each(drop_zeros);
        prop_assert!(found == expected.devices);
        prop_assert!((0..layout.stripes(VOLUME_BLOCKS)).all(|stripe| array.matches(stripe)));

        // Every block can be reconstructed without its device.
        for block in (0..VOLUME_BLOCKS).filter(|_| layout.redundancy_units() > 0) {
            let plan = ReconstructPlan::new(&layout, &Absence::none(), block * BLOCK, BLOCK).unwrap();
            prop_assert!(plan.shares().iter().all(|share| share.position != layout.locate(block).position));
            prop_assert_eq!(blocks_read(plan.shares()), layout.data_units() as u64);
            let bytes = plan.compute(&array.answer(plan.shares(), Want::Data)).concat();
            prop_assert!(bytes == model[(block * BLOCK) as usize..][..BLOCK_BYTES]);
        }
    }

    #[test]
    fn a_check_sees_a_single_wrong_byte(
        layout in layouts().prop_filter("has redundancy", |layout| layout.redundancy_units() > 0),
        (unit, row, index) in (any::<usize>(), any::<u64>(), 0..BLOCK_BYTES),
    ) {
        let mut array = Array::new(layout, false);
        array.write(0, VOLUME_BLOCKS * BLOCK, &New::Data(noise(1, VOLUME_BLOCKS * BLOCK)));
        let unit = unit % layout.scheme().width();
        let place = match unit.checked_sub(layout.data_units()) {
            None => layout.data_unit(0, unit),
            Some(unit) => layout.redundancy_unit(0, unit),
        };
        let block = place.block + row % layout.unit_blocks();
        let mut bytes = array.devices[place.position][&block].to_vec();
        bytes[index] ^= 1;
        array.devices[place.position].insert(block, bytes.into());
        prop_assert!(!array.matches(0));
        prop_assert!(array.matches(1));
    }

    #[test]
    fn a_volume_that_is_zeroed_whole_takes_no_space(layout in layouts(), writes in prop::collection::vec(writes(), 1..4)) {
        let mut array = Array::new(layout, false);
        for Write { offset, length, .. } in writes {
            array.write(offset, length, &New::Data(noise(offset, length)));
        }
        array.write(0, layout.stripes(VOLUME_BLOCKS) * layout.stripe_blocks() * BLOCK, &New::Zeros);
        prop_assert!(array.devices.iter().all(BTreeMap::is_empty));
    }
}

fn raid5() -> Layout {
    Layout::new(RaidLevel::Raid5 { data: 4 }, 5, 16).unwrap()
}

fn share(position: usize, prewrites: &[(u64, u64)], reads: &[(u64, u64)]) -> Share {
    let ranges = |of: &[(u64, u64)]| of.iter().map(|(start, count)| BlockRange::new(*start, *count)).collect();
    Share { position, prewrites: ranges(prewrites), reads: ranges(reads) }
}

#[test]
fn a_write_across_units_has_a_method_for_each_band() {
    // Unit 0 from row 12 on, units 1 and 2 whole, unit 3 up to row 4.
    let plan = WritePlan::new(&raid5(), &Absence::none(), 12 * BLOCK, (4 + 16 + 16 + 4) * BLOCK).unwrap();
    assert_eq!(plan.methods(), Methods { large: 3, ..Methods::default() });
    // Unit 0 from row 4 on, units 1 and 2 whole, unit 3 up to row 12: rows 4 to 11 are full.
    let plan = WritePlan::new(&raid5(), &Absence::none(), 4 * BLOCK, (12 + 16 + 16 + 12) * BLOCK).unwrap();
    assert_eq!(plan.methods(), Methods { large: 2, full: 1, ..Methods::default() });
    assert_eq!(plan.shares()[0], share(0, &[(4, 12)], &[(0, 4)]));
    assert_eq!(plan.shares()[3], share(3, &[(0, 12)], &[(12, 4)]));
    assert_eq!(plan.shares()[4], share(4, &[(0, 16)], &[]));
}

#[test]
fn between_equally_many_reads_the_method_of_fewer_devices_is_taken() {
    let layout = Layout::new(RaidLevel::Raid5 { data: 2 }, 3, 16).unwrap();
    for (length, large, small) in [(BLOCK, 1, 0), (512, 0, 1)] {
        let plan = WritePlan::new(&layout, &Absence::none(), 0, length).unwrap();
        assert_eq!(plan.methods(), Methods { large, small, ..Methods::default() });
    }
}

#[test]
fn an_empty_request_has_no_plan() {
    assert!(WritePlan::new(&raid5(), &Absence::none(), 4096, 0).unwrap().shares().is_empty());
    assert!(WritePlan::new(&raid5(), &Absence::none(), 4097, 0).unwrap().compute(&New::Zeros, &Old::new()).is_empty());
    let read = ReadPlan::new(&raid5(), &Absence::none(), 4097, 0).unwrap();
    assert!(read.shares().is_empty() && read.assemble(&Old::new()).is_empty());
}

#[test]
fn users_bytes_are_shared_and_never_copied() {
    let layout = Layout::new(RaidLevel::Raid1 { copies: 3 }, 3, 16).unwrap();
    let data = noise(1, 40 * BLOCK);
    let plan = WritePlan::new(&layout, &Absence::none(), 5 * BLOCK, 40 * BLOCK).unwrap();
    for (_, pieces) in plan.compute(&New::Data(data.clone()), &Old::new()) {
        for piece in pieces {
            let Content::Data(bytes) = piece.content else { panic!("data became a hole") };
            assert!(data.as_ptr_range().contains(&bytes.as_ptr()));
        }
    }
}

#[test]
fn the_parity_of_one_unit_among_holes_shares_its_bytes() {
    let data = noise(1, 20 * BLOCK);
    let plan = WritePlan::new(&raid5(), &Absence::none(), 0, 20 * BLOCK).unwrap();
    let hole = |range: &BlockRange| Piece { range: *range, content: Content::Hole };
    let mut old = Old::new();
    for share in plan.shares() {
        old.insert(share.position, share.reads.iter().map(hole).collect());
    }
    let (position, parity) = plan.compute(&New::Data(data.clone()), &old).pop().unwrap();
    assert_eq!(position, 4);
    // Rows 0 to 3 are updated in two units, whose XOR is computed; the others only in unit 0.
    let shared = |piece: &Piece| match &piece.content {
        Content::Data(bytes) => data.as_ptr_range().contains(&bytes.as_ptr()),
        _ => false,
    };
    let pieces: Vec<(BlockRange, bool)> = parity.iter().map(|piece| (piece.range, shared(piece))).collect();
    assert_eq!(pieces, [(BlockRange::new(0, 4), false), (BlockRange::new(4, 12), true)]);
}

#[test]
fn neighbours_with_data_are_not_added_up_for_nothing() {
    let data = noise(1, 4 * BLOCK);
    let halves = [
        (BlockRange::new(0, 2), data.slice(..2 * BLOCK_BYTES)),
        (BlockRange::new(2, 2), data.slice(2 * BLOCK_BYTES..)),
    ];
    let pieces = super::parity::xor(BlockRange::new(0, 5), halves.to_vec());
    let piece = |(range, data): &(BlockRange, Bytes)| Piece { range: *range, content: Content::Data(data.clone()) };
    let hole = Piece { range: BlockRange::new(4, 1), content: Content::Hole };
    assert_eq!(pieces, [piece(&halves[0]), piece(&halves[1]), hole]);
}

#[test]
fn a_device_that_lies_is_found_out_before_its_answer_is_used() {
    let data = |blocks: u64| Content::Data(noise(1, blocks * BLOCK));
    let covers = |pieces: Vec<(u64, u64, Content)>, want| {
        let mut old = Old::new();
        let piece = |(start, count, content)| Piece { range: BlockRange::new(start, count), content };
        old.insert(1, pieces.into_iter().map(piece).collect());
        assert!(!old.covers(0, &[BlockRange::new(10, 1)], want), "another device's answer is not this one's");
        old.covers(1, &[BlockRange::new(10, 4), BlockRange::new(20, 1)], want)
    };
    let rest = (20, 1, Content::Hole);
    assert!(covers(vec![rest.clone(), (10, 1, data(1)), (11, 3, Content::Hole)], Want::Data));
    assert!(covers(vec![(0, 100, data(100))], Want::Data), "more than was asked for does no harm");
    assert!(!covers(vec![(10, 4, data(4))], Want::Data), "a range is missing");
    assert!(!covers(vec![(10, 1, data(1)), (12, 2, data(2)), rest.clone()], Want::Data), "a gap");
    assert!(!covers(vec![(10, 3, data(3)), rest.clone()], Want::Data), "the end is missing");
    assert!(!covers(vec![(11, 3, data(3)), rest.clone()], Want::Data), "the beginning is missing");
    assert!(!covers(vec![(10, 4, data(3)), rest.clone()], Want::Data), "fewer bytes than blocks");
    assert!(!covers(vec![(10, 4, Content::Present), rest.clone()], Want::Data), "no content");
    assert!(covers(vec![(10, 4, Content::Present), rest.clone()], Want::Allocation));
    assert!(!covers(vec![(10, u64::MAX, Content::Hole), (u64::MAX, 2, Content::Hole), rest], Want::Data), "overflow");
}

#[test]
fn a_repeated_answer_does_no_harm() {
    let piece = Piece { range: BlockRange::new(0, 2), content: Content::Data(noise(1, 2 * BLOCK)) };
    let mut old = Old::new();
    old.insert(0, vec![piece.clone(), piece.clone()]);
    old.insert(0, vec![piece]);
    assert_eq!(ReadPlan::new(&raid5(), &Absence::none(), 0, 2 * BLOCK).unwrap().assemble(&old), [noise(1, 2 * BLOCK)]);
}

#[test]
fn a_read_that_can_not_be_reconstructed_is_refused() {
    let unit = 16 * BLOCK;
    assert!(ReconstructPlan::new(&raid5(), &Absence::none(), unit, unit).is_ok());
    for (offset, length) in [(1, BLOCK), (0, 100), (0, 0)] {
        assert_eq!(ReconstructPlan::new(&raid5(), &Absence::none(), offset, length), Err(ReconstructError::NotBlocks));
    }
    let several = Err(ReconstructError::SeveralUnits { unit_bytes: unit });
    assert_eq!(ReconstructPlan::new(&raid5(), &Absence::none(), unit - BLOCK, 2 * BLOCK), several);
    let raid0 = Layout::new(RaidLevel::Raid0 { data: 4 }, 4, 16).unwrap();
    assert_eq!(ReconstructPlan::new(&raid0, &Absence::none(), 0, BLOCK), Err(ReconstructError::NoRedundancy));
}
