//! The sides of a volume: where it lies, and, while it moves, where it moves to.

use braid_base::VolumeId;
use braid_layout::VolumeDescription;

/// One side of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Side {
    pub volume: VolumeId,
    pub target: bool,
}

/// About how many blocks of a device so many blocks of a volume bring.
pub(crate) fn weight(volume: &VolumeDescription, blocks: u64) -> u64 {
    blocks.div_ceil(volume.layout.data_units() as u64)
}
