//! A column under way: what a device has gathered for it, and what the device owes to others.
//!
//! ```text
//!            ┌► read old content ─► send partials ─┐
//!   column ──┤                                     ├─► all partials are here ─► one intent for data and parity
//!            └► await partials of other devices ───┘
//! ```
//!
//! A device that computes no parity makes its intent while it reads. Partials leave as soon as the content is read, so that no device
//! waits for one that waits for it.

use braid_base::{AlignedBuffer, BLOCK_BYTES, BlockRange, DeviceId, Epoch, ObjectId, Stamp};
use braid_blocks::{Base, Column, Content, ParityRows, Piece, Sent};
use braid_ordering::Policy;
use braid_store::Intent;
use bytes::Bytes;
/// A column that is being executed.
#[derive(Clone, Debug)]
pub(super) struct Execution {
    pub stamp: Stamp,
    pub object: ObjectId,
    pub policy: &'static Policy,
    pub epoch: Epoch,
    pub column: Column,
    /// The blocks whose old content it needs.
    pub reads: Vec<BlockRange>,
    /// The intent without its parity, until it is given to the store. None if the device writes nothing, or if the column is executed
    /// again.
    pub intent: Option<Intent>,
    /// What the device owes to others was sent.
    pub has_sent: bool,
    /// The old content could not be read, though the intent is being made. Then the device does not answer that it is.
    pub has_failed: bool,
    gathered: Vec<Sum>,
    /// The devices whose partials are missing.
    missing: Vec<DeviceId>,
}

/// Some rows of parity that are being added up.
#[derive(Clone, Debug)]
struct Sum {
    rows: BlockRange,
    /// Empty until something is added.
    buffer: AlignedBuffer,
    /// For each row, whether anything but holes was added.
    has_content: Vec<bool>,
}

impl Execution {
    /// A column that has arrived. `intent`: what it writes, without parity.
    pub fn new(intent: Intent, policy: &'static Policy, column: Column, reads: Vec<BlockRange>) -> Execution {
        let (gathered, missing) = (column.parity.iter().map(Sum::of_own).collect(), column.awaited());
        let again = Execution::again(&intent, policy, column, reads);
        let intent = (!again.only_reads()).then_some(intent);
        Execution { intent, gathered, missing, ..again }
    }

    /// A column whose intent is here: only what the device owes to others is sent again.
    pub fn again(intent: &Intent, policy: &'static Policy, column: Column, reads: Vec<BlockRange>) -> Execution {
        let Intent { stamp, object, epoch, .. } = *intent;
        let (gathered, missing) = (Vec::new(), Vec::new());
        Execution {
            stamp,
            object,
            policy,
            epoch,
            column,
            reads,
            intent: None,
            has_sent: false,
            has_failed: false,
            gathered,
            missing,
        }
    }

    /// True if it writes nothing here, so that there is no transaction of it.
    pub fn only_reads(&self) -> bool {
        self.column.pieces.is_empty() && self.column.parity.is_empty()
    }

    /// True if it computes parity.
    pub fn gathers(&self) -> bool {
        !self.gathered.is_empty()
    }

    /// True if all that parity is made of is here.
    pub fn is_gathered(&self) -> bool {
        self.has_sent && self.missing.is_empty()
    }

    pub fn missing(&self) -> &[DeviceId] {
        &self.missing
    }

    /// Adds what another device has sent. False if it is not awaited, or is not what the column says.
    pub fn add(&mut self, from: DeviceId, pieces: &[Piece]) -> bool {
        let awaited = self.column.parity.iter().filter(|rows| rows.from.contains(&from));
        if !self.missing.contains(&from) || !covers(pieces, awaited.map(|rows| rows.blocks)) {
            return false;
        }
        self.missing.retain(|missing| *missing != from);
        self.add_up(pieces);
        true
    }

    /// Adds the old parity that was read.
    pub fn add_base(&mut self, old: &[Piece]) {
        let bases = self.column.parity.iter().filter(|rows| rows.base == Base::Old);
        let pieces: Vec<Piece> = bases.flat_map(|rows| within(old, rows.blocks)).collect();
        self.add_up(&pieces);
    }

    fn add_up(&mut self, pieces: &[Piece]) {
        for sum in &mut self.gathered {
            within(pieces, sum.rows).for_each(|piece| sum.add(&piece));
        }
    }

    /// What is owed to each device, of the old content that was read.
    pub fn partials(&self, old: &[Piece]) -> Vec<(DeviceId, Vec<Piece>)> {
        let mut partials: Vec<(DeviceId, Vec<Piece>)> = Vec::new();
        for sending in &self.column.sends {
            let moved = |mut piece: Piece| {
                piece.range.start = piece.range.start - sending.blocks.start + sending.at;
                piece
            };
            let new = within(&self.column.pieces, sending.blocks);
            let pieces: Vec<Piece> = match sending.what {
                Sent::Old => within(old, sending.blocks).map(moved).collect(),
                Sent::New => new.map(moved).collect(),
                Sent::Change => {
                    let mut sum = Sum::new(sending.blocks);
                    new.for_each(|piece| sum.add(&piece));
                    within(old, sending.blocks).for_each(|piece| sum.add(&piece));
                    sum.done().into_iter().map(moved).collect()
                }
            };
            match partials.iter_mut().find(|(to, _)| *to == sending.to) {
                Some((_, owed)) => owed.extend(pieces),
                None => partials.push((sending.to, pieces)),
            }
        }
        partials.iter_mut().for_each(|(_, owed)| owed.sort_by_key(|piece| piece.range.start));
        partials
    }

    /// The intent, with the parity. To be called once.
    pub fn finish(&mut self) -> Intent {
        let mut intent = self.intent.take().expect("an intent is made once");
        let sums = std::mem::take(&mut self.gathered);
        intent.pieces.extend(sums.into_iter().flat_map(Sum::done));
        intent.pieces.sort_by_key(|piece| piece.range.start);
        intent
    }

    /// What it takes in memory: its content, its parity, and what it reads and sends.
    pub fn bytes(&self) -> usize {
        let sent: u64 = self.column.sends.iter().map(|sending| sending.blocks.count).sum();
        let own = self.column.parity.iter().map(|rows| bytes_of(&rows.own) + rows.blocks.count as usize * BLOCK_BYTES);
        bytes_of(&self.column.pieces) + own.sum::<usize>() + sent as usize * BLOCK_BYTES
    }
}

impl Sum {
    fn new(rows: BlockRange) -> Sum {
        let count = rows.count as usize;
        Sum { rows, buffer: AlignedBuffer::with_capacity(count * BLOCK_BYTES), has_content: vec![false; count] }
    }

    /// Begins with what the originator has sent.
    fn of_own(rows: &ParityRows) -> Sum {
        let mut sum = Sum::new(rows.blocks);
        rows.own.iter().for_each(|piece| sum.add(piece));
        sum
    }

    /// Adds a piece within the rows.
    fn add(&mut self, piece: &Piece) {
        let Content::Data(data) = &piece.content else { return };
        let first = (piece.range.start - self.rows.start) as usize;
        self.has_content[first..first + piece.range.count as usize].fill(true);
        if self.buffer.is_empty() {
            if piece.range == self.rows {
                return self.buffer.append(data);
            }
            self.buffer.append_zeros(self.rows.count as usize * BLOCK_BYTES);
        }
        let target = &mut self.buffer[first * BLOCK_BYTES..][..data.len()];
        target.iter_mut().zip(data).for_each(|(sum, byte)| *sum ^= byte);
    }

    /// The sum, as pieces that cover the rows: holes where nothing was added.
    fn done(self) -> Vec<Piece> {
        let Sum { rows, buffer, has_content } = self;
        let data: Bytes = buffer.freeze();
        let mut pieces: Vec<Piece> = Vec::new();
        let mut first = 0;
        for run in has_content.chunk_by(|one, next| one == next) {
            let range = BlockRange::new(rows.start + first as u64, run.len() as u64);
            let bytes = first * BLOCK_BYTES..(first + run.len()) * BLOCK_BYTES;
            let content = if run[0] { Content::Data(data.slice(bytes)) } else { Content::Hole };
            pieces.push(Piece { range, content });
            first += run.len();
        }
        pieces
    }
}

/// The parts of the pieces in a range.
fn within(pieces: &[Piece], range: BlockRange) -> impl Iterator<Item = Piece> {
    pieces.iter().filter(move |piece| piece.range.overlaps(range)).map(move |piece| piece.clip(range))
}

/// True if the pieces are data or holes, ascending, and cover exactly these ranges.
fn covers(pieces: &[Piece], ranges: impl Iterator<Item = BlockRange>) -> bool {
    let mut wanted: Vec<BlockRange> = ranges.collect();
    wanted.sort_unstable_by_key(|range| range.start);
    let is_content = |piece: &Piece| matches!(piece.content, Content::Data(_) | Content::Hole);
    let blocks = |ranges: &mut dyn Iterator<Item = BlockRange>| {
        let mut runs: Vec<BlockRange> = Vec::new();
        for range in ranges {
            match runs.last_mut() {
                Some(last) if last.end() == range.start => last.count += range.count,
                _ => runs.push(range),
            }
        }
        runs
    };
    pieces.iter().all(is_content)
        && blocks(&mut pieces.iter().map(|piece| piece.range)) == blocks(&mut wanted.into_iter())
}

pub(super) fn bytes_of(pieces: &[Piece]) -> usize {
    let data = |piece: &Piece| if let Content::Data(bytes) = &piece.content { bytes.len() } else { 0 };
    pieces.iter().map(|piece| size_of::<Piece>() + data(piece)).sum()
}
