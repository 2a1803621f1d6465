//! The membership on disk: all that a monitor keeps there.

use braid_base::{ArrayId, DeviceId, Epoch, FenceTable, Generation, Member, Membership, Standing, limits};
use braid_machine::DiskError;
use braid_record::{Record, RecordError};
use bytes::{Buf, BufMut};
use std::collections::BTreeSet;

/// Bytes of a monitor's disk.
pub const DISK_BYTES: u64 = Recorded::DISK_BYTES;

/// Why a monitor can't serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MonitorError {
    /// Both copies of its record are something else.
    #[error("the monitor's record of who is in the array is damaged in both copies: bring back a copy of its disk")]
    Damaged,
    /// A newer release wrote it.
    #[error("the monitor's record has format {found}, which this release does not know")]
    NewerFormat {
        /// Its format.
        found: u32,
    },
    /// It is that of another array.
    #[error("the monitor's disk is that of array {found}")]
    OtherArray {
        /// Which.
        found: ArrayId,
    },
    /// The array has other devices than the record.
    #[error(
        "device {device} is either new to the array or gone from it: that can't be changed yet once a monitor has run"
    )]
    OtherDevices {
        /// One that only one of them has.
        device: DeviceId,
    },
    /// A device has lived by a later epoch than the record's.
    #[error(
        "device {device} lives by epoch {theirs}, but the monitor's record ends with {ours}: its disk was lost or is an old copy, \
         and who is in the array is not known; bring back the right one"
    )]
    Behind {
        /// Which device.
        device: DeviceId,
        /// Its epoch.
        theirs: Epoch,
        /// The record's.
        ours: Epoch,
    },
    /// The disk can't be read or written.
    #[error("the monitor's disk: {0}")]
    Disk(DiskError),
}

impl From<RecordError> for MonitorError {
    fn from(error: RecordError) -> MonitorError {
        match error {
            RecordError::Damaged => MonitorError::Damaged,
            RecordError::NewerFormat { found } => MonitorError::NewerFormat { found },
            RecordError::Disk(error) => MonitorError::Disk(error),
        }
    }
}

/// What is on disk; nothing yet if the epoch is zero.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Recorded {
    pub array: ArrayId,
    pub membership: Membership,
    /// Of each member: the latest epoch that it was heard to live by. It has had that on its disk, so its disk is older if it says
    /// an earlier one, or none.
    pub lived_by: Vec<Epoch>,
}

impl Recorded {
    /// The latest epoch that the device was heard to live by.
    pub fn lived_by(&self, device: DeviceId) -> Epoch {
        let index = self.membership.members.binary_search_by_key(&device, |member| member.device);
        index.map_or(Epoch(0), |index| self.lived_by[index])
    }
}

impl Default for Recorded {
    fn default() -> Self {
        Recorded { array: ArrayId([0; 16]), membership: Membership::default(), lived_by: Vec::new() }
    }
}

/// The array, the epoch, three counts and `below`.
const FIXED_BYTES: usize = 16 + 4 + 3 * 4 + 4;
const MEMBER_BYTES: usize = 20;
const GENERATION_BYTES: usize = 4;
const _: () = assert!(
    FIXED_BYTES + limits::DEVICES_MAX * MEMBER_BYTES + 2 * limits::FENCED_MAX * GENERATION_BYTES
        <= Recorded::SLOT_BYTES - Recorded::EXTRA_BYTES
);

const IN: u32 = 1;
const RETURNING: u32 = 2;
const RETURNING_WITH_HELPER: u32 = 3;
const OUT: u32 = 4;

impl Record for Recorded {
    const MAGIC: [u8; 8] = *b"BraidMon";
    const FORMAT: u32 = 1;
    const SLOT_BYTES: usize = 64 << 10;

    fn put(&self, to: &mut Vec<u8>) {
        let Recorded { array, membership: Membership { epoch, members, fence }, lived_by } = self;
        to.put_slice(&array.0);
        to.put_u32_le(epoch.0);
        to.put_u32_le(members.len() as u32);
        for (member, lived_by) in members.iter().zip(lived_by) {
            let (standing, helper) = match member.standing {
                Standing::In => (IN, 0),
                Standing::Returning { helper: None } => (RETURNING, 0),
                Standing::Returning { helper: Some(helper) } => (RETURNING_WITH_HELPER, helper.0),
                Standing::Out => (OUT, 0),
            };
            to.put_u32_le(member.device.0.into());
            to.put_u32_le(standing);
            to.put_u32_le(helper);
            to.put_u32_le(member.since.0);
            to.put_u32_le(lived_by.0);
        }
        to.put_u32_le(fence.below.0);
        put_generations(&fence.except, to);
        put_generations(&fence.also, to);
    }

    fn take(from: &mut &[u8]) -> Option<Recorded> {
        let mut array = ArrayId([0; 16]);
        from.try_copy_to_slice(&mut array.0).ok()?;
        let epoch = Epoch(from.try_get_u32_le().ok()?);
        let count = from.try_get_u32_le().ok()? as usize;
        let members = (0..count).map(|_| take_member(from)).collect::<Option<Vec<_>>>()?;
        let (members, lived_by): (Vec<_>, Vec<_>) = members.into_iter().unzip();
        let ascending = members.windows(2).all(|pair| pair[0].device < pair[1].device);
        let below = Generation(from.try_get_u32_le().ok()?);
        let fence = FenceTable { below, except: take_generations(from)?, also: take_generations(from)? };
        let sound = ascending && members.len() <= limits::DEVICES_MAX && fits(&fence);
        sound.then_some(Recorded { array, membership: Membership { epoch, members, fence }, lived_by })
    }
}

/// True if there is room for so many hosts.
pub(crate) fn fits(fence: &FenceTable) -> bool {
    fence.except.len() <= limits::FENCED_MAX && fence.also.len() <= limits::FENCED_MAX
}

/// A member, and the latest epoch that it was heard to live by.
fn take_member(from: &mut &[u8]) -> Option<(Member, Epoch)> {
    let device = DeviceId(from.try_get_u32_le().ok()?.try_into().ok()?);
    let (standing, helper) = (from.try_get_u32_le().ok()?, Generation(from.try_get_u32_le().ok()?));
    let standing = match standing {
        IN => Standing::In,
        RETURNING => Standing::Returning { helper: None },
        RETURNING_WITH_HELPER => Standing::Returning { helper: Some(helper) },
        OUT => Standing::Out,
        _ => return None,
    };
    let since = Epoch(from.try_get_u32_le().ok()?);
    Some((Member { device, standing, since }, Epoch(from.try_get_u32_le().ok()?)))
}

fn put_generations(hosts: &BTreeSet<Generation>, to: &mut Vec<u8>) {
    to.put_u32_le(hosts.len() as u32);
    hosts.iter().for_each(|host| to.put_u32_le(host.0));
}

fn take_generations(from: &mut &[u8]) -> Option<BTreeSet<Generation>> {
    let count = from.try_get_u32_le().ok()?;
    (0..count).map(|_| from.try_get_u32_le().ok().map(Generation)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(recorded: &Recorded) -> Vec<u8> {
        let mut bytes = Vec::new();
        recorded.put(&mut bytes);
        bytes
    }

    #[test]
    fn as_much_as_there_may_be_fits_in_and_comes_back() {
        let mut membership = Membership::first((0..limits::DEVICES_MAX as u16).map(DeviceId));
        for (index, member) in membership.members.iter_mut().enumerate() {
            member.since = Epoch(index as u32);
            member.standing = match index % 4 {
                0 => Standing::In,
                1 => Standing::Returning { helper: None },
                2 => Standing::Returning { helper: Some(Generation(index as u32)) },
                _ => Standing::Out,
            };
        }
        let hosts = |from: u32| (from..from + limits::FENCED_MAX as u32).map(Generation).collect();
        membership.fence = FenceTable { below: Generation(9_000), except: hosts(100), also: hosts(10_000) };
        let lived_by = (0..limits::DEVICES_MAX as u32).map(|index| Epoch(index / 2)).collect();
        let recorded = Recorded { array: ArrayId([7; 16]), membership, lived_by };
        let bytes = bytes_of(&recorded);
        assert!(bytes.len() + Recorded::EXTRA_BYTES <= Recorded::SLOT_BYTES);
        let mut from = &bytes[..];
        assert_eq!((Recorded::take(&mut from), from.len()), (Some(recorded), 0));
    }

    #[test]
    fn what_makes_no_sense_is_not_taken() {
        let membership = Membership::first([DeviceId(1), DeviceId(2)]);
        let recorded = Recorded { array: ArrayId([7; 16]), membership, lived_by: vec![Epoch(1); 2] };
        let bytes = bytes_of(&recorded);
        for length in 0..bytes.len() {
            assert_eq!(Recorded::take(&mut &bytes[..length]), None, "cut at {length}");
        }
        // How many members; the first one's number, too large and not ascending; its standing.
        for (at, value) in [(20, 3), (20, u32::MAX), (24, 70_000), (24, 2), (28, 0), (28, 5)] {
            let mut other = bytes.clone();
            other[at..at + 4].copy_from_slice(&value.to_le_bytes());
            assert_eq!(Recorded::take(&mut &other[..]), None, "{value} at {at}");
        }
    }
}
