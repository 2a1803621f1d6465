//! Recomputes redundancy from the blocks on the devices, with the simplest possible code.

use braid_base::BLOCK_BYTES;
use braid_layout::{Layout, UnitAddress};

/// A row of blocks whose redundancy does not match its data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stripe {stripe}: the redundancy in {place:?} does not match the data, first at byte {byte} of the block")]
pub struct ParityError {
    pub stripe: u64,
    /// The block of the redundancy unit.
    pub place: UnitAddress,
    /// The first byte that differs.
    pub byte: usize,
}

/// Compares every block of a stripe's redundancy units with the data; `block` returns a component block.
pub fn check_stripe(
    layout: &Layout,
    stripe: u64,
    mut block: impl FnMut(UnitAddress) -> Vec<u8>,
) -> Result<(), ParityError> {
    for row in 0..layout.unit_blocks() {
        let mut expected = vec![0; BLOCK_BYTES];
        for unit in 0..layout.data_units() {
            xor(&mut expected, &block(row_of(layout.data_unit(stripe, unit), row)));
        }
        for unit in 0..layout.redundancy_units() {
            let place = row_of(layout.redundancy_unit(stripe, unit), row);
            let found = block(place);
            if let Some(byte) = (0..BLOCK_BYTES).find(|at| found[*at] != expected[*at]) {
                return Err(ParityError { stripe, place, byte });
            }
        }
    }
    Ok(())
}

/// A block of the volume, computed from the other units of its stripe; `None` if the layout has no redundancy.
pub fn reconstruct(
    layout: &Layout,
    volume_block: u64,
    mut block: impl FnMut(UnitAddress) -> Vec<u8>,
) -> Option<Vec<u8>> {
    assert!(layout.data_units() == 1 || layout.redundancy_units() <= 1, "only one parity unit is supported");
    if layout.redundancy_units() == 0 {
        return None;
    }
    let stripe = volume_block / layout.stripe_blocks();
    let row = volume_block % layout.unit_blocks();
    let lost = layout.locate(volume_block);
    let mut content = block(row_of(layout.redundancy_unit(stripe, 0), row));
    for unit in 0..layout.data_units() {
        let place = row_of(layout.data_unit(stripe, unit), row);
        if place != lost {
            xor(&mut content, &block(place));
        }
    }
    Some(content)
}

fn row_of(unit: UnitAddress, row: u64) -> UnitAddress {
    UnitAddress { block: unit.block + row, ..unit }
}

fn xor(into: &mut [u8], other: &[u8]) {
    into.iter_mut().zip(other).for_each(|(a, b)| *a ^= b);
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::Rng;
    use std::collections::BTreeMap;

    #[test]
    fn right_stripes_pass_and_a_single_wrong_bit_does_not() {
        for (scheme, devices) in [("raid5:4+1", 5), ("raid5:2+1", 7), ("raid1:3", 3), ("raid0:3", 3)] {
            let layout = Layout::new(scheme.parse().unwrap(), devices, 2).unwrap();
            let mut rng = Rng::new(5);
            let mut blocks: BTreeMap<UnitAddress, Vec<u8>> = BTreeMap::new();
            for block in 0..6 * layout.stripe_blocks() {
                let content: Vec<u8> = (0..BLOCK_BYTES).map(|_| rng.next_u64() as u8).collect();
                for unit in 0..layout.redundancy_units() {
                    let place = layout.redundancy_unit(block / layout.stripe_blocks(), unit);
                    let place = row_of(place, block % layout.unit_blocks());
                    xor(blocks.entry(place).or_insert(vec![0; BLOCK_BYTES]), &content);
                }
                blocks.insert(layout.locate(block), content);
            }
            for stripe in 0..6 {
                assert_eq!(check_stripe(&layout, stripe, |place| blocks[&place].clone()), Ok(()), "{scheme}");
            }
            for block in 0..6 * layout.stripe_blocks() {
                let place = layout.locate(block);
                let stripe = block / layout.stripe_blocks();
                if let Some(content) = reconstruct(&layout, block, |place| blocks[&place].clone()) {
                    assert_eq!(content, blocks[&place], "{scheme} block {block}");
                    let mut bad = blocks.clone();
                    bad.get_mut(&place).unwrap()[77] ^= 4;
                    let error = check_stripe(&layout, stripe, |place| bad[&place].clone()).unwrap_err();
                    assert_eq!((error.stripe, error.byte), (stripe, 77));
                }
            }
        }
    }
}
