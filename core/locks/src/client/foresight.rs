//! What a host asks for beyond what a program wants now, because programs are likely to want it next: the longer part of a sequence, or the next
//! ranges of a regular stride. A lock server grants of that what is free.
//!
//! What the host keeps tells how programs of this host proceed, however many they are: a range that begins where a kept one ends continues a
//! sequence, and one that lies as far behind the last one as this behind the one before, and so on, continues a stride. Nothing is foreseen
//! for a while after another host has wanted something of the object.

use super::cache::Cache;
use super::stripe_hashing::by_division;
use braid_base::{BLOCK_BYTES, BlockRange, LockServerId, ObjectId, RangeDivision};
use braid_wire::locking::LockExtent;

/// What is asked for beyond some extents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Foresight {
    /// The only extent may be longer by so many blocks.
    pub width: u64,
    /// Further extents, each if it is free.
    pub ahead: Vec<LockExtent>,
}

/// Where a host sees how its programs proceed: what it keeps, and at which servers.
pub(super) struct Seen<'a> {
    pub cache: &'a Cache,
    pub servers: &'a [LockServerId],
    pub division: RangeDivision,
}

/// The ranges of a stride that are asked for in one message.
const STRIDE_RANGES: u64 = 16;
/// The equal gaps that make a stride.
const STRIDE_GAPS: u64 = 3;
/// Ranges of so many programs may lie between two of a stride.
const STRIDES_AMONG_MAX: usize = 8;

impl Seen<'_> {
    /// What to ask of a server beyond this extent: at most `most` blocks.
    pub fn foresee(&self, server: LockServerId, object: ObjectId, extent: &LockExtent, most: u64) -> Foresight {
        let (start, count) = (extent.range.start, extent.range.count);
        let cached = |range| {
            let servers = self.servers.iter().map(|server| (*server, object));
            servers.flat_map(move |place| self.cache.cached(place, extent.position, range).take(STRIDES_AMONG_MAX))
        };
        let last = start.checked_sub(1).and_then(|at| cached(BlockRange::new(at, 1)).map(|last| last.count).max());
        if let Some(last) = last {
            // The new range is at most twice as long.
            return Foresight { width: (2 * last).saturating_sub(count).min(most), ahead: Vec::new() };
        }
        let is_kept = |range: BlockRange| cached(BlockRange::new(range.start, 1)).any(|other| other == range);
        let before = |gaps: u64, gap: u64| Some(BlockRange::new(start.checked_sub(gap.checked_mul(gaps)?)?, count));
        let is_stride = |gap: &u64| (1..=STRIDE_GAPS).all(|gaps| before(gaps, *gap).is_some_and(is_kept));
        let gaps = cached(BlockRange::between(0, start)).map(|last| start - last.start);
        let Some(gap) = gaps.filter(is_stride).min() else { return Foresight::default() };
        let after = |index: u64| {
            let start = start.checked_add(gap.checked_mul(index)?)?;
            let is_sound = start <= u64::MAX / BLOCK_BYTES as u64 - count;
            is_sound.then(|| LockExtent { range: BlockRange::new(start, count), ..*extent })
        };
        let is_new = |next: &LockExtent| {
            let servers = by_division(self.servers, self.division, object, &[*next]);
            servers.iter().any(|(of, _)| *of == server) && self.cache.covering((server, object), &[*next]).is_none()
        };
        let ahead = (1..STRIDE_RANGES.min(most / count + 1)).map_while(after).filter(is_new).collect();
        Foresight { width: 0, ahead }
    }
}
