//! Checks of a column that has arrived. What comes from a host is not trusted.

use super::super::ctx::{Ctx, are_disjoint};
use super::super::waiting::ReadRequest;
use braid_base::{BLOCK_BYTES, BlockRange, DeviceId, limits};
use braid_blocks::{Column, Content, Sent, Want};
use braid_ordering::WriteMode;
use braid_ordering::{Admission, Policy};
use braid_store::Intent;
use braid_wire::Failure;

/// Checks a column: that its object can be written so, that the device takes part, and that its parts fit together and are within the
/// limits. Returns the policy of the object's ordering.
pub(super) fn check(
    cx: &Ctx,
    intent: &Intent,
    column: &Column,
    writes: &[BlockRange],
    reads: &[BlockRange],
) -> Result<&'static Policy, Failure> {
    let object = cx.object(intent.object).ok_or(Failure::NoSuchObject)?;
    let policy = object.ordering.policy();
    let is_possible = policy.admission == Admission::ByStamps
        && policy.admits_unannounced(WriteMode::Intent)
        && object.mode() == WriteMode::Intent;
    let takes_part = intent.participants.contains(&cx.device) != writes.is_empty();
    if !is_possible || !takes_part {
        return Err(Failure::Malformed);
    }
    if !writes.is_empty() {
        cx.check_ranges(intent.object, writes, true)?;
    }
    if !reads.is_empty() {
        let extents = reads.to_vec();
        cx.check_read(&ReadRequest { object: intent.object, extents, want: Want::Data, waited: false })?;
    }
    let does_nothing = writes.is_empty() && reads.is_empty();
    if does_nothing || !is_sound(cx, column) { Err(Failure::Malformed) } else { Ok(policy) }
}

/// True if a column of this device fits together, and names other devices that take part in writes.
fn is_sound(cx: &Ctx, column: &Column) -> bool {
    let is_other = |device: DeviceId| device != cx.device && cx.is_member(device);
    let mut written: Vec<BlockRange> = column.pieces.iter().map(|piece| piece.range).collect();
    let is_ordered = are_disjoint(&written);
    let is_new = |blocks: &BlockRange| {
        written.iter().map(|range| range.intersection(*blocks).count).sum::<u64>() == blocks.count
    };
    let sends = column.sends.iter().all(|sending| {
        let is_here = sending.what == Sent::Old || is_new(&sending.blocks);
        !sending.blocks.is_empty() && is_other(sending.to) && is_here
    });
    let parity = column.parity.iter().all(|rows| {
        let own: Vec<BlockRange> = rows.own.iter().map(|piece| piece.range).collect();
        let is_fed = !rows.from.is_empty() || !own.is_empty();
        let senders =
            rows.from.iter().enumerate().all(|(index, from)| is_other(*from) && !rows.from[..index].contains(from));
        let is_within = |range: &BlockRange| !range.is_empty() && rows.blocks.contains(*range);
        is_fed && senders && own.iter().all(is_within) && are_disjoint(&own)
    });
    written.extend(column.parity.iter().map(|rows| rows.blocks));
    written.sort_unstable_by_key(|range| range.start);
    let pieces = column.pieces.iter().chain(column.parity.iter().flat_map(|rows| &rows.own));
    let content = pieces.into_iter().all(|piece| matches!(piece.content, Content::Data(_) | Content::Hole));
    // Change is computed anew for each receiver.
    let sent: u64 = column.sends.iter().map(|sending| sending.blocks.count).sum();
    let is_bounded = sent <= (limits::DEVICE_BYTES_MAX / BLOCK_BYTES) as u64;
    let is_whole = written.iter().all(|range| !range.is_empty());
    is_ordered && is_bounded && is_whole && are_disjoint(&written) && sends && parity && content
}
