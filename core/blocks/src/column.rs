//! The parts of a write that devices execute together (collaborative execution: the parallel-RAID paper, section 3.5).
//!
//! The host that writes, the *originator*, tells each device everything at once: its *column* of the RAIDmap. The devices then send each
//! other what they need, without further word. A block goes through the states of the paper's Table V, and leaves out those that it does
//! not need:
//!
//! | state | here |
//! | --- | --- |
//! | 1 read old data | [`Sending`] of [`Sent::Old`] or [`Sent::Change`]; [`ParityRows`] on [`Base::Old`] |
//! | 2 XOR old with new data | [`Sent::Change`] |
//! | 3 send to another node | [`Sending`] |
//! | 4 await incoming data | [`ParityRows::from`] |
//! | 5 XOR incoming data with local old data or parity | [`ParityRows`] |
//! | 6 write | [`Column::pieces`] and [`ParityRows`], in one intent |

use crate::Piece;
use braid_base::{BlockRange, DeviceId};

/// What one device does in a write. Deviation from the paper: there, each node fills in its own column. Here the originator does, so that
/// devices need not know layouts, and no two nodes can disagree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Column {
    /// Content that is written as it is.
    pub pieces: Vec<Piece>,
    /// Content that other devices need.
    pub sends: Vec<Sending>,
    /// Parity that this device computes and writes.
    pub parity: Vec<ParityRows>,
}

/// Content that a device sends to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sending {
    /// The blocks of the sender's object.
    pub blocks: BlockRange,
    pub to: DeviceId,
    /// The block of the receiver's object to which the first block is added.
    pub at: u64,
    pub what: Sent,
}

/// What is sent of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sent {
    /// Its old content.
    Old,
    /// Its new content, which is among the column's pieces.
    New,
    /// The XOR of both.
    Change,
}

/// Parity that a device computes: the XOR of the base, of what other devices send, and of what the originator has sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParityRows {
    /// The blocks of the device's object.
    pub blocks: BlockRange,
    pub base: Base,
    /// The devices that each send something for all of these blocks.
    pub from: Vec<DeviceId>,
    /// Content of the originator, for some of these blocks.
    pub own: Vec<Piece>,
}

/// To what parity is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// The old parity (small stripes).
    Old,
    /// Nothing (large and full stripes).
    Zeros,
}

impl Column {
    /// The blocks that the device writes, ascending and merged where they touch.
    pub fn writes(&self) -> Vec<BlockRange> {
        let pieces = self.pieces.iter().map(|piece| piece.range);
        united(pieces.chain(self.parity.iter().map(|rows| rows.blocks)).collect())
    }

    /// The blocks whose old content it needs, ascending and merged where they touch.
    pub fn reads(&self) -> Vec<BlockRange> {
        let sends = self.sends.iter().filter(|sending| sending.what != Sent::New).map(|sending| sending.blocks);
        let bases = self.parity.iter().filter(|rows| rows.base == Base::Old).map(|rows| rows.blocks);
        united(sends.chain(bases).collect())
    }

    /// The devices from which it awaits something, ascending.
    pub fn awaited(&self) -> Vec<DeviceId> {
        let mut from: Vec<DeviceId> = self.parity.iter().flat_map(|rows| rows.from.iter().copied()).collect();
        from.sort_unstable();
        from.dedup();
        from
    }
}

/// The same blocks as ascending ranges that don't touch.
fn united(mut ranges: Vec<BlockRange>) -> Vec<BlockRange> {
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|range, last| {
        let touches = range.start <= last.end();
        if touches {
            *last = BlockRange::between(last.start, last.end().max(range.end()));
        }
        touches
    });
    ranges
}
