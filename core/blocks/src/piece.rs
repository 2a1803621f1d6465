//! Blocks of an object with their content, as devices read and write them.

use braid_base::{BLOCK_BYTES, BlockRange, TransactionId};
use bytes::Bytes;

/// Blocks with their present or new content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The blocks of the object.
    pub range: BlockRange,
    pub content: Content,
}

/// The content of a run of blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// No content: the blocks read as zeros and take no space.
    Hole,
    /// Some content, which was not asked for.
    Present,
    /// The header of the last write.
    Header {
        /// The transaction that wrote the blocks.
        transaction: TransactionId,
        /// The extent of its hostwrite.
        linkage: Linkage,
    },
    /// The bytes, 4096 for each block.
    Data(Bytes),
    /// The content is lost. A read in salvage mode returns this for damaged blocks; a write stores it for blocks that nothing can
    /// restore.
    Lost,
}

/// The linkage record of the shared-array paper (section 5): the hostwrite that a block was last part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linkage {
    /// The hostwrite's first block in its volume.
    pub first: u64,
    /// Its last block.
    pub last: u64,
}

/// What a read returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    Data,
    /// Whether the blocks have content ([`Content::Present`]) or are holes, that is, were never written or were given back.
    Allocation,
    /// Which transaction wrote the blocks last, and its hostwrite's extent ([`Content::Header`]); a hole for blocks that were given back.
    Linkage,
    /// The content of the readable blocks, and [`Content::Lost`] for damaged ones.
    Salvage,
}

impl Piece {
    /// The part of a piece in `range`. Data is shared, not copied.
    pub fn clip(&self, range: BlockRange) -> Piece {
        let kept = self.range.intersection(range);
        let content = match &self.content {
            Content::Data(data) => {
                let skip = (kept.start - self.range.start) as usize * BLOCK_BYTES;
                Content::Data(data.slice(skip..skip + kept.count as usize * BLOCK_BYTES))
            }
            other => other.clone(),
        };
        Piece { range: kept, content }
    }
}
