//! A layout maps the blocks of a volume to the devices of its ring.
//!
//! The units of all stripes are numbered consecutively and distributed round the ring of devices. With w = k + m units a stripe, unit p
//! of stripe s has the number u = s·w + p, and is at ring position u mod n, as unit u div n of the component there. With n = w, each
//! stripe is a row over all devices; with n = G·w there are G groups; any other n ≥ w declusters the stripes.
//!
//! Within a stripe, data and parity rotate left-symmetrically (parallel-RAID paper, Table II), by one step whenever the stripes have
//! returned to their first position on the ring:
//!
//! ```text
//!   stripe 0:   0   1   2   3   P        raid5:4+1 on five devices:
//!   stripe 1:   5   6   7   P   4        a sequential read keeps all of them busy
//!   stripe 2:  10  11   P   8   9
//!   stripe 3:  15   P  12  13  14
//!   stripe 4:   P  16  17  18  19
//! ```

use crate::{RaidLevel, RaidLevelError};
use braid_base::limits::PARTICIPANTS_MAX;
use braid_base::{BLOCK_BYTES, BlockRange};
use serde::{Deserialize, Serialize};

/// The arrangement of a volume on its ring of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Layout {
    scheme: RaidLevel,
    devices: usize,
    unit_blocks: u64,
    first_block: u64,
}

/// The address of a block, or of the first block of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitAddress {
    /// The ring position of the device.
    pub position: usize,
    /// The block of the object on that device.
    pub block: u64,
}

impl Layout {
    /// The smallest stripe unit, in blocks: 4 KiB.
    pub const UNIT_BLOCKS_MIN: u64 = 1;
    /// The largest stripe unit, in blocks: 1 MiB.
    pub const UNIT_BLOCKS_MAX: u64 = (1 << 20) / BLOCK_BYTES as u64;
    /// The default stripe unit, in blocks: 64 KiB.
    pub const UNIT_BLOCKS_DEFAULT: u64 = (64 << 10) / BLOCK_BYTES as u64;

    /// Stripes of `scheme` on a ring of `devices` devices, with units of `unit_blocks` blocks.
    pub fn new(scheme: RaidLevel, devices: usize, unit_blocks: u64) -> Result<Layout, LayoutError> {
        scheme.check()?;
        if devices < scheme.width() {
            return Err(LayoutError::TooFewDevices { scheme, needed: scheme.width(), devices });
        }
        if devices > PARTICIPANTS_MAX {
            return Err(LayoutError::TooManyDevices { devices, most: PARTICIPANTS_MAX });
        }
        if !unit_blocks.is_power_of_two() || unit_blocks > Self::UNIT_BLOCKS_MAX {
            return Err(LayoutError::Unit { bytes: unit_blocks.saturating_mul(BLOCK_BYTES as u64) });
        }
        Ok(Layout { scheme, devices, unit_blocks, first_block: 0 })
    }

    /// The same layout with components that begin at this block of their objects.
    pub fn beginning_at(self, first_block: u64) -> Layout {
        Layout { first_block, ..self }
    }

    /// The first block of the components in their objects.
    pub fn first_block(&self) -> u64 {
        self.first_block
    }

    /// The RAID level and its parameters.
    pub fn scheme(&self) -> RaidLevel {
        self.scheme
    }

    /// n: devices on the ring.
    pub fn devices(&self) -> usize {
        self.devices
    }

    /// Blocks of a stripe unit.
    pub fn unit_blocks(&self) -> u64 {
        self.unit_blocks
    }

    /// k: data units of a stripe.
    pub fn data_units(&self) -> usize {
        self.scheme.data_units()
    }

    /// m: redundancy units of a stripe.
    pub fn redundancy_units(&self) -> usize {
        self.scheme.redundancy_units()
    }

    /// The number of the volume's blocks in one stripe.
    pub fn stripe_blocks(&self) -> u64 {
        self.data_units() as u64 * self.unit_blocks
    }

    /// The address of data unit `unit`, below k, of a stripe.
    pub fn data_unit(&self, stripe: u64, unit: usize) -> UnitAddress {
        assert!(unit < self.data_units(), "a stripe has data units 0 to k-1");
        let behind = self.redundancy_units() + unit;
        self.unit(stripe, (self.first_redundancy(stripe) + behind) % self.scheme.width())
    }

    /// The address of redundancy unit `unit`, below m, of a stripe.
    pub fn redundancy_unit(&self, stripe: u64, unit: usize) -> UnitAddress {
        assert!(unit < self.redundancy_units(), "a stripe has redundancy units 0 to m-1");
        self.unit(stripe, (self.first_redundancy(stripe) + unit) % self.scheme.width())
    }

    /// The address of a block of the volume.
    pub fn locate(&self, block: u64) -> UnitAddress {
        let within = block % self.stripe_blocks();
        let mut place = self.data_unit(block / self.stripe_blocks(), (within / self.unit_blocks) as usize);
        place.block += within % self.unit_blocks;
        place
    }

    /// The number of stripes of a volume of this many blocks. The last one is allocated as a whole, even if it is used in part.
    pub fn stripes(&self, volume_blocks: u64) -> u64 {
        volume_blocks.div_ceil(self.stripe_blocks())
    }

    /// The length in blocks of each component of a volume of this many blocks.
    pub fn component_blocks(&self, volume_blocks: u64) -> u64 {
        let units = self.stripes(volume_blocks) * self.scheme.width() as u64;
        units.div_ceil(self.devices as u64) * self.unit_blocks
    }

    /// The number of blocks, from the beginning of the component at a position, that belong to the first `stripes` stripes. The last unit
    /// of some components belongs to no stripe.
    pub fn used_blocks(&self, position: usize, stripes: u64) -> u64 {
        let units = (stripes * self.scheme.width() as u64).saturating_sub(position as u64);
        units.div_ceil(self.devices as u64) * self.unit_blocks
    }

    /// The largest volume, in blocks, whose components have at most `component_blocks` blocks.
    pub fn usable_blocks(&self, component_blocks: u64) -> u64 {
        let units = u128::from(component_blocks / self.unit_blocks) * self.devices as u128;
        let blocks = units / self.scheme.width() as u128 * u128::from(self.stripe_blocks());
        u64::try_from(blocks).unwrap_or(u64::MAX)
    }

    /// The positions of every possible stripe, including those after the end of a small volume.
    pub fn stripes_of_the_ring(&self) -> impl Iterator<Item = impl Iterator<Item = usize> + Clone + use<>> + use<> {
        let (devices, width) = (self.devices, self.scheme.width());
        // Stripes begin at every multiple of the step, and continue over neighbouring positions.
        let step = greatest_common_divisor(devices, width);
        (0..devices).step_by(step).map(move |start| (start..start + width).map(move |position| position % devices))
    }

    /// True if some stripe has units at both of these positions. All possible stripes are considered, including those after the end of a
    /// small volume.
    pub fn share_a_stripe(&self, a: usize, b: usize) -> bool {
        self.stripes_of_the_ring().any(|stripe| [a, b].iter().all(|wanted| stripe.clone().any(|held| held == *wanted)))
    }

    /// The address of the `p`-th unit of a stripe, data or redundancy.
    fn unit(&self, stripe: u64, p: usize) -> UnitAddress {
        let number = stripe * self.scheme.width() as u64 + p as u64;
        let devices = self.devices as u64;
        UnitAddress {
            position: (number % devices) as usize,
            block: self.first_block + number / devices * self.unit_blocks,
        }
    }

    /// The index, among the units of a stripe, of the first redundancy unit. The other redundancy units follow, then the data units.
    fn first_redundancy(&self, stripe: u64) -> usize {
        if self.redundancy_units() == 0 {
            return 0;
        }
        let width = self.scheme.width();
        let cycle = self.devices / greatest_common_divisor(self.devices, width);
        let turns = (stripe / cycle as u64 % width as u64) as usize;
        width - 1 - turns
    }
}

/// Runs of consecutive blocks of a volume on one device, in the order of the volume: one run for each stripe unit.
pub(crate) fn unit_runs(layout: &Layout, blocks: BlockRange) -> impl Iterator<Item = BlockRange> + use<> {
    let unit = layout.unit_blocks();
    let mut at = blocks.start;
    std::iter::from_fn(move || {
        let run = BlockRange::between(at, blocks.end().min((at / unit + 1) * unit));
        at = run.end();
        (!run.is_empty()).then_some(run)
    })
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// Why a layout is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    #[error(transparent)]
    RaidLevel(#[from] RaidLevelError),
    /// The ring has fewer devices than a stripe has units.
    #[error("{scheme} needs {needed} devices, and there are only {devices}: add devices or choose a narrower layout")]
    TooFewDevices {
        scheme: RaidLevel,
        /// The width of the scheme.
        needed: usize,
        /// The devices of the ring.
        devices: usize,
    },
    /// One request could involve more devices than may take part in a transaction.
    #[error("a volume lies on at most {most} devices, not {devices}: make several volumes")]
    TooManyDevices {
        /// The devices of the ring.
        devices: usize,
        most: usize,
    },
    #[error("a stripe unit can't have {bytes} bytes: choose a power of two from 4 KiB to 1 MiB, such as 64KiB")]
    Unit {
        /// The stripe unit asked for.
        bytes: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::layouts;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn raid5(data: usize, devices: usize) -> Layout {
        Layout::new(RaidLevel::Raid5 { data }, devices, 1).unwrap()
    }

    #[test]
    fn the_blocks_that_belong_to_stripes_come_first() {
        for (data, devices, stripes) in [(4, 5, 7), (2, 4, 5), (2, 4, 1), (2, 7, 2), (3, 11, 9)] {
            let layout = raid5(data, devices);
            let mut used = vec![0; devices];
            for stripe in 0..stripes {
                let places =
                    (0..data).map(|unit| layout.data_unit(stripe, unit)).chain([layout.redundancy_unit(stripe, 0)]);
                places.for_each(|place| used[place.position] = place.block + 1);
            }
            let counted: Vec<u64> = (0..devices).map(|position| layout.used_blocks(position, stripes)).collect();
            assert_eq!(counted, used, "{data}+1 on {devices}, {stripes} stripes");
        }
    }

    #[test]
    fn units_lie_as_in_table_ii_of_the_parallel_raid_paper() {
        let layout = raid5(4, 5);
        let mut table = vec![vec![String::new(); 5]; 5];
        for block in 0..20 {
            let place = layout.locate(block);
            table[place.block as usize][place.position] = block.to_string();
        }
        for stripe in 0..5 {
            let place = layout.redundancy_unit(stripe, 0);
            table[place.block as usize][place.position] = "P".to_string();
        }
        let rows: Vec<String> = table.iter().map(|row| row.join(" ")).collect();
        assert_eq!(rows, ["0 1 2 3 P", "5 6 7 P 4", "10 11 P 8 9", "15 P 12 13 14", "P 16 17 18 19"]);
    }

    #[test]
    fn four_groups_of_five_lie_side_by_side_on_twenty_devices() {
        let (wide, narrow) = (raid5(4, 20), raid5(4, 5));
        for block in 0..400 {
            let (stripe, group) = (block / 4 / 4, block / 4 % 4);
            let place = wide.locate(block);
            let within_group = narrow.locate(stripe * 4 + block % 4);
            assert_eq!((place.position as u64 / 5, place.block), (group, within_group.block));
            assert_eq!(place.position % 5, within_group.position);
        }
    }

    #[test]
    fn raid0_deals_round_the_ring_without_rotation() {
        let layout = Layout::new(RaidLevel::Raid0 { data: 3 }, 3, 1).unwrap();
        let positions: Vec<usize> = (0..7).map(|block| layout.locate(block).position).collect();
        assert_eq!(positions, [0, 1, 2, 0, 1, 2, 0]);
    }

    #[test]
    fn impossible_layouts_are_refused_with_advice() {
        let scheme = RaidLevel::Raid5 { data: 4 };
        for (result, advice) in [
            (Layout::new(scheme, 4, 16), "raid5:4+1 needs 5 devices, and there are only 4"),
            (Layout::new(scheme, PARTICIPANTS_MAX + 1, 16), "make several volumes"),
            (Layout::new(scheme, 5, 0), "power of two"),
            (Layout::new(scheme, 5, 3), "12288 bytes"),
            (Layout::new(scheme, 5, 512), "1 MiB"),
            (Layout::new(RaidLevel::Raid1 { copies: 0 }, 5, 16), "raid1:2"),
        ] {
            let error = result.unwrap_err().to_string();
            assert!(error.contains(advice), "{error}");
        }
        assert!(Layout::new(scheme, PARTICIPANTS_MAX, Layout::UNIT_BLOCKS_MAX).is_ok());
        assert!(Layout::new(scheme, 5, Layout::UNIT_BLOCKS_MIN).is_ok());
    }

    proptest! {
        #[test]
        fn every_block_has_one_place_of_its_own(layout in layouts(), stripes in 1u64..40) {
            let blocks = stripes * layout.stripe_blocks();
            let component = layout.component_blocks(blocks);
            let mut taken = BTreeSet::new();
            let mut take = |place: UnitAddress| {
                assert!(place.position < layout.devices() && place.block < component, "{place:?} is outside");
                assert!(taken.insert(place), "{place:?} is taken twice");
            };
            for block in 0..blocks {
                take(layout.locate(block));
            }
            for stripe in 0..stripes {
                for unit in 0..layout.redundancy_units() {
                    let UnitAddress { position, block } = layout.redundancy_unit(stripe, unit);
                    (block..block + layout.unit_blocks()).for_each(|block| take(UnitAddress { position, block }));
                }
            }
            // No component is longer than the average requires.
            let units = taken.len() as u64 / layout.unit_blocks();
            prop_assert_eq!(component, units.div_ceil(layout.devices() as u64) * layout.unit_blocks());
        }

        #[test]
        fn the_units_of_a_stripe_lie_on_devices_of_their_own(layout in layouts(), stripe in 0u64..1 << 40) {
            let data = (0..layout.data_units()).map(|unit| layout.data_unit(stripe, unit).position);
            let redundancy = (0..layout.redundancy_units()).map(|unit| layout.redundancy_unit(stripe, unit).position);
            let positions: BTreeSet<usize> = data.chain(redundancy).collect();
            prop_assert_eq!(positions.len(), layout.scheme().width());
            // They are neighbours on the ring, which `ring_of` relies on to separate failure domains.
            let steps = positions.iter().filter(|p| !positions.contains(&((**p + 1) % layout.devices()))).count();
            prop_assert!(steps <= 1);
        }

        #[test]
        fn over_a_whole_turn_all_devices_bear_the_same_load(layout in layouts()) {
            let stripes = (layout.devices() * layout.scheme().width()) as u64;
            let mut data = vec![0; layout.devices()];
            let mut redundancy = vec![0; layout.devices()];
            for stripe in 0..stripes {
                (0..layout.data_units()).for_each(|unit| data[layout.data_unit(stripe, unit).position] += 1);
                (0..layout.redundancy_units())
                    .for_each(|unit| redundancy[layout.redundancy_unit(stripe, unit).position] += 1);
            }
            prop_assert!(data.iter().all(|count| *count == data[0]), "{data:?}");
            prop_assert!(redundancy.iter().all(|count| *count == redundancy[0]), "{redundancy:?}");
        }

        #[test]
        fn the_usable_size_is_the_largest_that_fits(layout in layouts(), component in 0u64..1 << 40) {
            let usable = layout.usable_blocks(component);
            prop_assert!(layout.component_blocks(usable) <= component);
            prop_assert!(layout.component_blocks(usable + 1) > component);
        }
    }
}
