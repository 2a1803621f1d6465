//! The placements of a volume: the present one, and, while the volume moves, its migration target.

use braid_base::VolumeId;
use braid_layout::VolumeDescription;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Placement {
    pub volume: VolumeId,
    pub target: bool,
}

/// About how many blocks of one device hold so many blocks of a volume.
pub(crate) fn weight(volume: &VolumeDescription, blocks: u64) -> u64 {
    blocks.div_ceil(volume.layout.data_units() as u64)
}
