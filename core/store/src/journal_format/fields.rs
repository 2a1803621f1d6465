//! Encoding of fields that several records share.

use crate::block::Attribution;
use braid_base::{
    BlockRange, Clock, DeviceId, Epoch, FenceTable, Generation, Member, MemberState, Membership, Stamp, TransactionId,
    limits,
};
use braid_blocks::Linkage;
use braid_journal::DecodeError;
use braid_ordering::Ordering;
use bytes::{Buf, BufMut};
use std::collections::BTreeSet;

const STATE_IN: u8 = 0;
const STATE_RETURNING: u8 = 1;
const STATE_RETURNING_WITH_COORDINATOR: u8 = 2;
const STATE_OUT: u8 = 3;

pub(super) fn put_named(to: &mut Vec<u8>, kind: u8, transaction: TransactionId) {
    to.put_u8(kind);
    put_transaction(to, transaction);
}

pub(super) fn put_transaction(to: &mut Vec<u8>, transaction: TransactionId) {
    to.put_u32_le(transaction.host.0);
    to.put_u64_le(transaction.sequence);
}

pub(super) fn take_transaction(from: &mut &[u8]) -> Result<TransactionId, DecodeError> {
    Ok(TransactionId { host: Generation(from.try_get_u32_le()?), sequence: from.try_get_u64_le()? })
}

pub(super) fn put_stamp(to: &mut Vec<u8>, stamp: Stamp) {
    to.put_u64_le(stamp.clock.0);
    to.put_u32_le(stamp.host.0);
}

pub(super) fn take_stamp(from: &mut &[u8]) -> Result<Stamp, DecodeError> {
    Ok(Stamp { clock: Clock(from.try_get_u64_le()?), host: Generation(from.try_get_u32_le()?) })
}

pub(super) fn put_attribution(to: &mut Vec<u8>, by: &Attribution) {
    put_transaction(to, by.transaction);
    put_stamp(to, by.stamp);
    to.put_u32_le(by.epoch.0);
    to.put_u64_le(by.linkage.first);
    to.put_u64_le(by.linkage.last);
}

pub(super) fn take_attribution(from: &mut &[u8]) -> Result<Attribution, DecodeError> {
    Ok(Attribution {
        transaction: take_transaction(from)?,
        stamp: take_stamp(from)?,
        epoch: Epoch(from.try_get_u32_le()?),
        linkage: Linkage { first: from.try_get_u64_le()?, last: from.try_get_u64_le()? },
    })
}

pub(super) fn put_membership(to: &mut Vec<u8>, kind: u8, membership: &Membership) {
    to.put_u8(kind);
    to.put_u32_le(membership.epoch.0);
    to.put_u32_le(membership.members.len() as u32);
    for member in &membership.members {
        to.put_u16_le(member.device.0);
        to.put_u32_le(member.since.0);
        match member.member_state {
            MemberState::In => to.put_u8(STATE_IN),
            MemberState::Returning { recovery_coordinator: None } => to.put_u8(STATE_RETURNING),
            MemberState::Returning { recovery_coordinator: Some(recovery_coordinator) } => {
                to.put_u8(STATE_RETURNING_WITH_COORDINATOR);
                to.put_u32_le(recovery_coordinator.0);
            }
            MemberState::Out => to.put_u8(STATE_OUT),
        }
    }
    to.put_u32_le(membership.fence.below.0);
    put_generations(to, &membership.fence.except);
    put_generations(to, &membership.fence.also);
}

pub(super) fn take_membership(from: &mut &[u8]) -> Result<Membership, DecodeError> {
    let epoch = Epoch(from.try_get_u32_le()?);
    let members: Vec<Member> = (0..from.try_get_u32_le()?).map(|_| take_member(from)).collect::<Result<_, _>>()?;
    // Members are looked up by binary search.
    if !members.is_sorted_by(|one, next| one.device < next.device) {
        return Err(DecodeError);
    }
    let fence = FenceTable {
        below: Generation(from.try_get_u32_le()?),
        except: take_generations(from)?,
        also: take_generations(from)?,
    };
    Ok(Membership { epoch, members, fence })
}

pub(super) fn take_member(from: &mut &[u8]) -> Result<Member, DecodeError> {
    let (device, since) = (DeviceId(from.try_get_u16_le()?), Epoch(from.try_get_u32_le()?));
    let member_state = match from.try_get_u8()? {
        STATE_IN => MemberState::In,
        STATE_RETURNING => MemberState::Returning { recovery_coordinator: None },
        STATE_RETURNING_WITH_COORDINATOR => {
            MemberState::Returning { recovery_coordinator: Some(Generation(from.try_get_u32_le()?)) }
        }
        STATE_OUT => MemberState::Out,
        _ => return Err(DecodeError),
    };
    Ok(Member { device, member_state, since })
}

pub(super) fn put_devices(to: &mut Vec<u8>, devices: &[DeviceId]) {
    to.put_u16_le(devices.len() as u16);
    devices.iter().for_each(|device| to.put_u16_le(device.0));
}

pub(super) fn take_devices(from: &mut &[u8]) -> Result<Vec<DeviceId>, DecodeError> {
    let count = usize::from(from.try_get_u16_le()?);
    if count > limits::PARTICIPANTS_MAX {
        return Err(DecodeError);
    }
    (0..count).map(|_| Ok(DeviceId(from.try_get_u16_le()?))).collect()
}

pub(super) fn put_extents(to: &mut Vec<u8>, extents: &[BlockRange]) {
    to.put_u32_le(extents.len() as u32);
    for extent in extents {
        to.put_u64_le(extent.start);
        to.put_u64_le(extent.count);
    }
}

pub(super) fn take_extents(from: &mut &[u8]) -> Result<Vec<BlockRange>, DecodeError> {
    (0..from.try_get_u32_le()?).map(|_| take_extent(from)).collect()
}

pub(super) fn take_extent(from: &mut &[u8]) -> Result<BlockRange, DecodeError> {
    let extent = BlockRange::new(from.try_get_u64_le()?, from.try_get_u64_le()?);
    extent.start.checked_add(extent.count).map(|_| extent).ok_or(DecodeError)
}

pub(super) fn put_generations(to: &mut Vec<u8>, generations: &BTreeSet<Generation>) {
    to.put_u32_le(generations.len() as u32);
    generations.iter().for_each(|generation| to.put_u32_le(generation.0));
}

pub(super) fn take_generations(from: &mut &[u8]) -> Result<BTreeSet<Generation>, DecodeError> {
    (0..from.try_get_u32_le()?).map(|_| Ok(Generation(from.try_get_u32_le()?))).collect()
}

pub(super) fn put_ordering(to: &mut Vec<u8>, ordering: Ordering) {
    to.put_u8(match ordering {
        Ordering::Timestamp => 0,
        Ordering::None => 1,
        Ordering::ServerLock => 2,
        Ordering::CallbackLock => 3,
        Ordering::DeviceLock => 4,
    });
}

pub(super) fn take_ordering(from: &mut &[u8]) -> Result<Ordering, DecodeError> {
    Ok(match from.try_get_u8()? {
        0 => Ordering::Timestamp,
        1 => Ordering::None,
        2 => Ordering::ServerLock,
        3 => Ordering::CallbackLock,
        4 => Ordering::DeviceLock,
        _ => return Err(DecodeError),
    })
}
