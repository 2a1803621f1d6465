//! A simple model of an array: its bytes, and their location with independently computed parity.

use super::{BLOCK, noise};
use crate::plan::{New, Old, Share};
use crate::{Absence, Layout, RaidLevel, UnitAddress};
use braid_base::{BLOCK_BYTES, BlockRange};
use braid_blocks::{Content, Piece, Want};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// By component, the blocks that have data.
pub(super) type Blocks = Vec<BTreeMap<u64, Bytes>>;

pub(super) fn lost(positions: &[usize]) -> Absence {
    let mut absence = Absence::none();
    positions.iter().for_each(|position| absence.lose(*position));
    absence
}

pub(super) fn stale(positions: &[usize]) -> Absence {
    let mut absence = Absence::none();
    positions.iter().for_each(|position| absence.stale(*position));
    absence
}

/// Small layouts: rings as wide as a stripe, wider by one, and of two groups.
pub(super) fn small_layouts(schemes: &[&str]) -> Vec<Layout> {
    let mut layouts = Vec::new();
    for scheme in schemes {
        let scheme: RaidLevel = scheme.parse().unwrap();
        for devices in [scheme.width(), scheme.width() + 1, 2 * scheme.width()] {
            layouts.push(Layout::new(scheme, devices, if scheme.width() < 4 { 4 } else { 2 }).unwrap());
        }
    }
    layouts
}

/// The runs of blocks of a volume, and for each some runs of bytes that touch exactly these blocks.
pub(super) fn spans(blocks: u64) -> impl Iterator<Item = (u64, u64)> {
    let runs = (0..blocks).flat_map(move |start| (start + 1..=blocks).map(move |end| (start * BLOCK, end * BLOCK)));
    let cuts = [(0, 0), (100, 0), (0, 200), (300, 400)];
    runs.flat_map(move |(from, to)| cuts.map(|(front, behind)| (from + front, to - from - front - behind)))
}

/// Two stripes and a unit.
pub(super) fn volume_blocks(layout: &Layout) -> u64 {
    2 * layout.stripe_blocks() + layout.unit_blocks()
}

pub(super) fn touched(offset: u64, length: u64) -> BlockRange {
    BlockRange::between(offset / BLOCK, (offset + length).div_ceil(BLOCK))
}

/// The addresses of a row of a stripe: of the data units, then of the redundancy units.
pub(super) fn places_of_row(layout: &Layout, stripe: u64, row: u64) -> (Vec<UnitAddress>, Vec<UnitAddress>) {
    let at_row = |unit: UnitAddress| UnitAddress { block: unit.block + row, ..unit };
    let data = (0..layout.data_units()).map(|unit| at_row(layout.data_unit(stripe, unit)));
    let redundancy = (0..layout.redundancy_units()).map(|unit| at_row(layout.redundancy_unit(stripe, unit)));
    (data.collect(), redundancy.collect())
}

/// A volume's bytes, and the expected content of the devices. Every fifth block is a hole at first.
#[derive(Clone)]
pub(super) struct Model {
    pub(super) layout: Layout,
    pub(super) bytes: Vec<u8>,
    pub(super) devices: Blocks,
}

impl Model {
    pub(super) fn new(layout: Layout) -> Model {
        let blocks = volume_blocks(&layout);
        let mut bytes = noise(7, blocks * BLOCK).to_vec();
        for hole in (0..blocks).filter(|block| block % 5 == 3) {
            bytes[(hole * BLOCK) as usize..][..BLOCK_BYTES].fill(0);
        }
        let mut model = Model { layout, bytes, devices: vec![BTreeMap::new(); layout.devices()] };
        model.place(BlockRange::new(0, blocks));
        model
    }

    pub(super) fn write(&mut self, offset: u64, length: u64, new: &New) {
        let target = &mut self.bytes[offset as usize..][..length as usize];
        match new {
            New::Zeros => target.fill(0),
            New::Data(data) => target.copy_from_slice(data),
            New::Pieces(_) => unreachable!("these tests write bytes"),
        }
        self.place(touched(offset, length));
    }

    /// Updates the expected content of the devices, including redundancy.
    pub(super) fn place(&mut self, blocks: BlockRange) {
        let (stripe_blocks, unit) = (self.layout.stripe_blocks(), self.layout.unit_blocks());
        let rows: BTreeSet<(u64, u64)> =
            blocks.blocks().map(|block| (block / stripe_blocks, block % stripe_blocks % unit)).collect();
        for (stripe, row) in rows {
            let mut sum = vec![0; BLOCK_BYTES];
            let (data, redundancy) = places_of_row(&self.layout, stripe, row);
            let mut put = |place: UnitAddress, block: &[u8]| {
                self.devices[place.position].insert(place.block, Bytes::copy_from_slice(block));
            };
            for (index, place) in data.into_iter().enumerate() {
                let start = (stripe * stripe_blocks + index as u64 * unit + row) as usize * BLOCK_BYTES;
                // The last stripe may extend beyond the end of the volume.
                let Some(block) = self.bytes.get(start..start + BLOCK_BYTES) else { continue };
                sum.iter_mut().zip(block).for_each(|(sum, byte)| *sum ^= byte);
                put(place, block);
            }
            redundancy.into_iter().for_each(|place| put(place, &sum));
        }
        self.devices.iter_mut().for_each(drop_zeros);
    }
}

/// The answers of correct devices. Checks that no unreadable device is read, and no block twice.
pub(super) fn answer(devices: &Blocks, absence: &Absence, shares: &[Share], want: Want) -> Old {
    answer_in_pieces(devices, absence, shares, want, |pieces| pieces)
}

/// The same. An answer has a piece for each block, of which other pieces are made.
pub(super) fn answer_in_pieces(
    devices: &Blocks,
    absence: &Absence,
    shares: &[Share],
    want: Want,
    remade: impl Fn(Vec<Piece>) -> Vec<Piece>,
) -> Old {
    let mut old = Old::new();
    for share in shares {
        assert!(!absence.is_lost(share.position), "a lost device has no share");
        assert!(share.reads.is_empty() || !absence.is_unreadable(share.position), "a stale device is not read");
        for ranges in [&share.reads, &share.prewrites] {
            assert!(ranges.iter().all(|range| !range.is_empty()));
            assert!(ranges.windows(2).all(|pair| pair[0].end() < pair[1].start), "ascending and merged: {ranges:?}");
        }
        let content = |block| match (want, devices[share.position].get(&block)) {
            (_, None) => Content::Hole,
            (Want::Allocation, Some(_)) => Content::Present,
            (Want::Data | Want::Salvage, Some(data)) => Content::Data(data.clone()),
            (Want::Linkage, Some(_)) => panic!("the model has no headers"),
        };
        let blocks = share.reads.iter().flat_map(|range| range.blocks());
        let piece = |block| Piece { range: BlockRange::new(block, 1), content: content(block) };
        old.insert(share.position, remade(blocks.map(piece).collect()));
        assert!(old.covers(share.position, &share.reads, want));
    }
    old
}

/// Writes the pieces that a plan has computed, which must be exactly its pre-writes.
pub(super) fn apply(devices: &mut Blocks, shares: &[Share], written: Vec<(usize, Vec<Piece>)>) {
    apply_as_it_is(devices, shares, written);
    devices.iter_mut().for_each(drop_zeros);
}

/// The same; zeros that are written stay data.
pub(super) fn apply_as_it_is(devices: &mut Blocks, shares: &[Share], written: Vec<(usize, Vec<Piece>)>) {
    let blocks = |ranges: &mut dyn Iterator<Item = BlockRange>| ranges.flat_map(BlockRange::blocks).collect::<Vec<_>>();
    let writing: Vec<&Share> = shares.iter().filter(|share| !share.prewrites.is_empty()).collect();
    assert_eq!(writing.len(), written.len());
    for (share, (position, pieces)) in writing.into_iter().zip(written) {
        assert_eq!(share.position, position);
        let pre_written = blocks(&mut share.prewrites.iter().copied());
        assert_eq!(blocks(&mut pieces.iter().map(|piece| piece.range)), pre_written);
        put_as_it_is(&mut devices[position], pieces);
    }
}

/// Writes the pieces to a device.
pub(super) fn put_pieces(devices: &mut Blocks, position: usize, pieces: Vec<Piece>) {
    put_as_it_is(&mut devices[position], pieces);
    drop_zeros(&mut devices[position]);
}

fn put_as_it_is(device: &mut BTreeMap<u64, Bytes>, pieces: Vec<Piece>) {
    for Piece { range, content } in pieces {
        for block in range.blocks() {
            let start = (block - range.start) as usize * BLOCK_BYTES;
            match &content {
                Content::Data(data) => drop(device.insert(block, data.slice(start..start + BLOCK_BYTES))),
                Content::Hole => drop(device.remove(&block)),
                Content::Present | Content::Header { .. } | Content::Lost => panic!("a write has data or holes"),
            }
        }
    }
}

/// Zeros are holes, in the model and in the content that is compared with it.
pub(super) fn drop_zeros(device: &mut BTreeMap<u64, Bytes>) {
    device.retain(|_, block| block.iter().any(|byte| *byte != 0));
}

pub(super) fn places(shares: &[Share], ranges: impl Fn(&Share) -> &[BlockRange]) -> BTreeSet<UnitAddress> {
    let of_share = |share| ranges(share).iter().flat_map(|range| range.blocks()).map(move |block| (share, block));
    shares
        .iter()
        .flat_map(of_share)
        .map(|(Share { position, .. }, block)| UnitAddress { position: *position, block })
        .collect()
}
