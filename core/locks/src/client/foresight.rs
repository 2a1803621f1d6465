//! What a host asks for beyond what a program wants now, because programs are likely to want it next: the longer part of a sequence, or the next
//! ranges of a regular stride. A lock server grants of that what is free.
//!
//! What the host keeps tells how programs of this host proceed, however many they are: a range that begins where a kept one ends continues a
//! sequence, and one that lies as far behind the last one as this behind the one before, and so on, continues a stride. Nothing is foreseen
//! for a while after another host has wanted something of the object.

use super::stripe_hashing::by_division;
use super::{Ctx, LockClient};
use braid_base::{BLOCK_BYTES, BlockRange, LockServerId, ObjectId, Time};
use braid_wire::locking::LockExtent;
use std::collections::BTreeMap;
use std::time::Duration;

/// What is asked for beyond some extents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Foresight {
    /// The only extent may be longer by so many blocks.
    pub width: u64,
    /// Further extents, each if it is free.
    pub ahead: Vec<LockExtent>,
}

/// The objects of which other hosts have wanted something lately.
#[derive(Clone, Debug, Default)]
pub(super) struct Recalled(BTreeMap<ObjectId, Time>);

/// The ranges of a stride that are asked for in one message.
const STRIDE_RANGES: u64 = 16;
/// The equal gaps that make a stride.
const STRIDE_GAPS: u64 = 3;
/// Ranges of so many programs may lie between two of a stride.
const STRIDES_AMONG_MAX: usize = 8;
/// Nothing is foreseen for so long after a recall.
const EXACT_FOR: Duration = Duration::from_secs(1);
const RECALLED_MAX: usize = 1024;

impl Recalled {
    pub fn note(&mut self, object: ObjectId, now: Time) {
        self.0.insert(object, now);
        if self.0.len() > RECALLED_MAX {
            self.0.retain(|_, since| now.since(*since) < EXACT_FOR);
            // Those that are left are exact for a shorter time.
            while self.0.len() > RECALLED_MAX / 2 {
                self.0.pop_first();
            }
        }
    }

    fn is_recent(&self, object: ObjectId, now: Time) -> bool {
        self.0.get(&object).is_some_and(|since| now.since(*since) < EXACT_FOR)
    }
}

impl LockClient {
    /// What to ask of a server beyond these extents: at most `most` blocks.
    pub(super) fn foresee(
        &self,
        cx: &Ctx,
        server: LockServerId,
        object: ObjectId,
        extents: &[LockExtent],
        most: u64,
    ) -> Foresight {
        let [extent] = extents else { return Foresight::default() };
        if most == 0 || self.recalled.is_recent(object, cx.now.time) {
            return Foresight::default();
        }
        let (start, count) = (extent.range.start, extent.range.count);
        let kept = |range| {
            let servers = self.config.servers.iter().map(|server| (*server, object));
            servers.flat_map(move |place| self.cache.kept(place, extent.position, range).take(STRIDES_AMONG_MAX))
        };
        let last = start.checked_sub(1).and_then(|at| kept(BlockRange::new(at, 1)).map(|last| last.count).max());
        if let Some(last) = last {
            // The new range is at most twice as long.
            return Foresight { width: (2 * last).saturating_sub(count).min(most), ahead: Vec::new() };
        }
        let is_kept = |range: BlockRange| kept(BlockRange::new(range.start, 1)).any(|other| other == range);
        let before = |gaps: u64, gap: u64| Some(BlockRange::new(start.checked_sub(gap.checked_mul(gaps)?)?, count));
        let is_stride = |gap: &u64| (1..=STRIDE_GAPS).all(|gaps| before(gaps, *gap).is_some_and(is_kept));
        let gaps = kept(BlockRange::between(0, start)).map(|last| start - last.start);
        let Some(gap) = gaps.filter(is_stride).min() else { return Foresight::default() };
        let after = |index: u64| {
            let start = start.checked_add(gap.checked_mul(index)?)?;
            let is_sound = start <= u64::MAX / BLOCK_BYTES as u64 - count;
            is_sound.then(|| LockExtent { range: BlockRange::new(start, count), ..*extent })
        };
        let is_new = |next: &LockExtent| {
            let servers = by_division(&self.config.servers, cx.settings.range_division, object, &[*next]);
            servers.iter().any(|(of, _)| *of == server) && self.cache.covering((server, object), &[*next]).is_none()
        };
        let ahead = (1..STRIDE_RANGES.min(most / count + 1)).map_while(after).filter(is_new).collect();
        Foresight { width: 0, ahead }
    }
}
