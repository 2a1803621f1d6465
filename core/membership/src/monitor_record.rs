//! The monitor's record: the content and format of its disk.

use crate::answered_requests::AnsweredRequests;
use crate::owners::Owners;
use crate::slot_record::{CHANGES_MAX, Change, Slot};
use braid_base::{
    ArrayId, DeviceId, DiskId, Epoch, FenceTable, Generation, Level, Member, MemberState, Membership, limits,
};
use braid_machine::DiskError;
use braid_two_copy_record::{RecordError, TwoCopyRecord};
use braid_wire::RecoveryThrottle;
use bytes::{Buf, BufMut};
use std::collections::{BTreeMap, BTreeSet};

/// Size of a monitor's disk, in bytes.
pub const DISK_BYTES: u64 = Recorded::DISK_BYTES;

/// Why a monitor cannot serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MonitorError {
    #[error("both copies of the monitor's membership record are damaged: restore a copy of its disk")]
    Damaged,
    #[error("the monitor's record has format {found}, which this release does not know: run a newer release")]
    NewerFormat { found: u32 },
    #[error(
        "the monitor's record has format {found}, which this release no longer reads: open the array with the release before first"
    )]
    OlderFormat { found: u32 },
    #[error("the monitor's disk is that of array {found}")]
    OtherArray { found: ArrayId },
    /// At least half of the devices that were heard have adopted later epochs than the record's.
    #[error(
        "device {device} has epoch {theirs}, but the monitor's record ends with epoch {ours}: the monitor's disk was lost or is an old copy, \
         so the membership is not known; restore the right disk"
    )]
    Behind {
        /// The device that is ahead.
        device: DeviceId,
        /// The device's epoch.
        theirs: Epoch,
        /// The record's epoch.
        ours: Epoch,
    },
    #[error("the monitor's disk: {0}")]
    Disk(DiskError),
}

impl From<RecordError> for MonitorError {
    fn from(error: RecordError) -> MonitorError {
        match error {
            RecordError::Damaged => MonitorError::Damaged,
            RecordError::NewerFormat { found } => MonitorError::NewerFormat { found },
            RecordError::OlderFormat { found } => MonitorError::OlderFormat { found },
            RecordError::Disk(error) => MonitorError::Disk(error),
        }
    }
}

/// The content of the record; of epoch zero if nothing was written yet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Recorded {
    pub array: ArrayId,
    pub membership: Membership,
    /// The slots of its members.
    pub slots: BTreeMap<DeviceId, Slot>,
    /// The spares, and how many blocks objects may have on each.
    pub spares: BTreeMap<DiskId, u64>,
    pub throttle: RecoveryThrottle,
    pub owners: Owners,
    pub answered: AnsweredRequests,
    /// The level of the array. The format of the record says it: each level has one.
    pub level: Level,
}

impl Recorded {
    /// A record of this membership, with nothing known of slots, spares, file systems and requests.
    pub fn of(array: ArrayId, membership: Membership) -> Recorded {
        let (slots, spares) = (BTreeMap::new(), BTreeMap::new());
        let (throttle, owners) = (RecoveryThrottle::default(), Owners::default());
        let (answered, level) = (AnsweredRequests::default(), Level::FIRST);
        Recorded { array, membership, slots, spares, throttle, owners, answered, level }
    }

    pub fn slot(&self, device: DeviceId) -> Slot {
        self.slots.get(&device).copied().unwrap_or_default()
    }

    pub fn slot_mut(&mut self, device: DeviceId) -> &mut Slot {
        self.slots.entry(device).or_default()
    }

    pub fn remove(&mut self, device: DeviceId) {
        self.membership.members.retain(|member| member.device != device);
        self.slots.remove(&device);
    }

    /// How many slots are to get another disk.
    pub fn changes(&self) -> usize {
        self.slots.values().filter(|slot| slot.change != Change::None).count()
    }
}

impl Default for Recorded {
    fn default() -> Self {
        Recorded::of(ArrayId([0; 16]), Membership::default())
    }
}

/// The array, the epoch, five counts, `below` and the throttle.
const FIXED_BYTES: usize = 16 + 4 + 5 * 4 + 4 + 12;
/// A member and its slot.
const MEMBER_BYTES: usize = 20 + 8;
/// A slot that is to get another disk.
const CHANGE_BYTES: usize = 16;
const SPARE_BYTES: usize = 16;
const GENERATION_BYTES: usize = 4;
const _: () = assert!(
    FIXED_BYTES
        + limits::DEVICES_MAX * MEMBER_BYTES
        + 2 * limits::FENCED_MAX * GENERATION_BYTES
        + CHANGES_MAX * CHANGE_BYTES
        + limits::SPARES_MAX * SPARE_BYTES
        + Owners::BYTES_MAX
        + AnsweredRequests::BYTES_MAX
        <= Recorded::COPY_BYTES - Recorded::EXTRA_BYTES
);

const FORMAT_OF_FIRST_LEVEL: u32 = 4;

const IN: u32 = 1;
const RETURNING: u32 = 2;
const RETURNING_WITH_COORDINATOR: u32 = 3;
const OUT: u32 = 4;

/// Flags of a slot, in the word that holds its device's state.
const HAS_DISK: u32 = 1 << 8;
const KEPT_OUT: u32 = 2 << 8;
const LEAVING: u32 = 1;
const AWAITED: u32 = 2;
const AWAITED_AFTER: u32 = 3;

impl TwoCopyRecord for Recorded {
    const MAGIC: [u8; 8] = *b"BraidMon";
    /// Format 3 did not name answered requests. Earlier ones are no longer read.
    const FORMAT: u32 = FORMAT_OF_FIRST_LEVEL + (Level::KNOWN.0 - Level::FIRST.0) as u32;
    const OLDEST: u32 = 3;
    const COPY_BYTES: usize = 64 << 10;

    fn format(&self) -> u32 {
        FORMAT_OF_FIRST_LEVEL + u32::from(self.level.0 - Level::FIRST.0)
    }

    fn put(&self, to: &mut Vec<u8>) {
        let Recorded { array, membership, slots: _, spares, throttle, owners, answered, level: _ } = self;
        let Membership { epoch, members, fence } = membership;
        to.put_slice(&array.0);
        to.put_u32_le(epoch.0);
        to.put_u32_le(members.len() as u32);
        for member in members {
            let (member_state, recovery_coordinator) = match member.member_state {
                MemberState::In => (IN, 0),
                MemberState::Returning { recovery_coordinator: None } => (RETURNING, 0),
                MemberState::Returning { recovery_coordinator: Some(recovery_coordinator) } => {
                    (RETURNING_WITH_COORDINATOR, recovery_coordinator.0)
                }
                MemberState::Out => (OUT, 0),
            };
            let slot = self.slot(member.device);
            let flags = slot.disk.map_or(0, |_| HAS_DISK) | if slot.kept_out { KEPT_OUT } else { 0 };
            to.put_u32_le(member.device.0.into());
            to.put_u32_le(member_state | flags);
            to.put_u32_le(recovery_coordinator);
            to.put_u32_le(member.since.0);
            to.put_u32_le(slot.lived_by.0);
        }
        to.put_u32_le(fence.below.0);
        put_generations(&fence.except, to);
        put_generations(&fence.also, to);
        let slots: Vec<_> = members.iter().map(|member| (member.device, self.slot(member.device))).collect();
        slots.iter().for_each(|(_, slot)| to.put_u64_le(slot.disk.unwrap_or_default().0));
        let changing = slots.iter().filter(|(_, slot)| slot.change != Change::None);
        to.put_u32_le(changing.clone().count() as u32);
        for (device, slot) in changing {
            let (kind, disk) = match slot.change {
                Change::None => unreachable!("filtered out above"),
                Change::Leaving { to } => (LEAVING, to),
                Change::Awaited { before: None } => (AWAITED, DiskId::default()),
                Change::Awaited { before: Some(before) } => (AWAITED_AFTER, before),
            };
            to.put_u32_le(device.0.into());
            to.put_u32_le(kind);
            to.put_u64_le(disk.0);
        }
        to.put_u32_le(spares.len() as u32);
        for (disk, blocks) in spares {
            to.put_u64_le(disk.0);
            to.put_u64_le(*blocks);
        }
        to.put_u64_le(throttle.bytes_per_second);
        to.put_u32_le(u32::from(throttle.paused) | u32::from(throttle.share) << 8);
        owners.put(to);
        answered.put(to);
    }

    fn take(format: u32, from: &mut &[u8]) -> Option<Recorded> {
        let mut recorded = take_membership(from)?;
        for member in &recorded.membership.members {
            let disk = DiskId(from.try_get_u64_le().ok()?);
            if let Some(named) = recorded.slots.get_mut(&member.device).and_then(|slot| slot.disk.as_mut()) {
                *named = disk;
            }
        }
        for _ in 0..from.try_get_u32_le().ok()? {
            let device = DeviceId(from.try_get_u32_le().ok()?.try_into().ok()?);
            let (kind, disk) = (from.try_get_u32_le().ok()?, DiskId(from.try_get_u64_le().ok()?));
            recorded.membership.member(device)?;
            recorded.slot_mut(device).change = match kind {
                LEAVING => Change::Leaving { to: disk },
                AWAITED => Change::Awaited { before: None },
                AWAITED_AFTER => Change::Awaited { before: Some(disk) },
                _ => return None,
            };
        }
        for _ in 0..from.try_get_u32_le().ok()? {
            recorded.spares.insert(DiskId(from.try_get_u64_le().ok()?), from.try_get_u64_le().ok()?);
        }
        let (bytes_per_second, rest) = (from.try_get_u64_le().ok()?, from.try_get_u32_le().ok()?);
        let (paused, share) = (rest & 0xff, u8::try_from(rest >> 8).ok()?);
        recorded.throttle = RecoveryThrottle { bytes_per_second, share, paused: paused == 1 };
        let sound = paused <= 1 && recorded.changes() <= CHANGES_MAX && recorded.spares.len() <= limits::SPARES_MAX;
        recorded.owners = Owners::take(recorded.membership.epoch, from)?;
        if let Some(above) = format.checked_sub(FORMAT_OF_FIRST_LEVEL) {
            recorded.level = Level(Level::FIRST.0 + above as u16);
            recorded.answered = AnsweredRequests::take(from)?;
        }
        sound.then_some(recorded)
    }
}

/// The first part of a record: the array and its membership.
fn take_membership(from: &mut &[u8]) -> Option<Recorded> {
    let mut array = ArrayId([0; 16]);
    from.try_copy_to_slice(&mut array.0).ok()?;
    let epoch = Epoch(from.try_get_u32_le().ok()?);
    let count = from.try_get_u32_le().ok()? as usize;
    let members = (0..count).map(|_| take_member(from)).collect::<Option<Vec<_>>>()?;
    let slots = members.iter().map(|(member, slot)| (member.device, *slot));
    // A slot of which nothing is known is not kept.
    let slots = slots.filter(|(_, slot)| *slot != Slot::default()).collect();
    let members: Vec<_> = members.into_iter().map(|(member, _)| member).collect();
    let ascending = members.windows(2).all(|pair| pair[0].device < pair[1].device);
    let below = Generation(from.try_get_u32_le().ok()?);
    let fence = FenceTable { below, except: take_generations(from)?, also: take_generations(from)? };
    // A decision begins the next epoch.
    let sound = ascending && members.len() <= limits::DEVICES_MAX && fits(&fence) && epoch.0 < u32::MAX;
    sound.then(|| Recorded { slots, ..Recorded::of(array, Membership { epoch, members, fence }) })
}

/// True if the fence fits into a record.
pub(crate) fn fits(fence: &FenceTable) -> bool {
    fence.except.len() <= limits::FENCED_MAX && fence.also.len() <= limits::FENCED_MAX
}

/// A member and its slot; the disk's name follows later in the record.
fn take_member(from: &mut &[u8]) -> Option<(Member, Slot)> {
    let device = DeviceId(from.try_get_u32_le().ok()?.try_into().ok()?);
    let (member_state, recovery_coordinator) = (from.try_get_u32_le().ok()?, Generation(from.try_get_u32_le().ok()?));
    let disk = (member_state & HAS_DISK != 0).then_some(DiskId::default());
    let kept_out = member_state & KEPT_OUT != 0;
    let member_state = match member_state & !(HAS_DISK | KEPT_OUT) {
        IN => MemberState::In,
        RETURNING => MemberState::Returning { recovery_coordinator: None },
        RETURNING_WITH_COORDINATOR => MemberState::Returning { recovery_coordinator: Some(recovery_coordinator) },
        OUT => MemberState::Out,
        _ => return None,
    };
    let since = Epoch(from.try_get_u32_le().ok()?);
    let lived_by = Epoch(from.try_get_u32_le().ok()?);
    Some((Member { device, member_state, since }, Slot { disk, kept_out, change: Change::None, lived_by }))
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
    use crate::answered_requests::{ANSWERED_MAX, AnsweredRequest};
    use braid_base::FileSystemId;

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
            member.member_state = match index % 4 {
                0 => MemberState::In,
                1 => MemberState::Returning { recovery_coordinator: None },
                2 => MemberState::Returning { recovery_coordinator: Some(Generation(index as u32)) },
                _ => MemberState::Out,
            };
        }
        let hosts = |from: u32| (from..from + limits::FENCED_MAX as u32).map(Generation).collect();
        membership.fence = FenceTable { below: Generation(9_000), except: hosts(100), also: hosts(10_000) };
        let mut recorded = Recorded::of(ArrayId([7; 16]), membership);
        for device in 0..limits::DEVICES_MAX as u16 {
            let change = match device % 7 {
                _ if recorded.changes() == CHANGES_MAX => Change::None,
                0 => Change::Leaving { to: DiskId(u64::MAX) },
                1 => Change::Awaited { before: None },
                2 => Change::Awaited { before: Some(DiskId(5)) },
                _ => Change::None,
            };
            let disk = Some(DiskId(u64::from(device))).filter(|_| device % 5 > 0);
            let slot = Slot { disk, kept_out: device % 3 == 0, change, lived_by: Epoch(u32::from(device) / 2) };
            recorded.slots.insert(DeviceId(device), slot);
        }
        recorded.slots.retain(|_, slot| *slot != Slot::default());
        recorded.spares = (0..limits::SPARES_MAX as u64).map(|spare| (DiskId(spare), spare * 16)).collect();
        recorded.throttle = RecoveryThrottle { bytes_per_second: 77, share: 30, paused: true };
        recorded.membership.epoch = Epoch(2_000);
        for file_system in (0..limits::FILE_SYSTEMS_MAX as u16).map(FileSystemId) {
            let (from, owner) = (recorded.owners.of(file_system), Generation(file_system.0.into()));
            recorded.owners.take_over(file_system, owner, from, Epoch(2_000)).expect("there is room");
        }
        for host in 0..ANSWERED_MAX as u32 {
            let answered =
                AnsweredRequest { host: Generation(host), ticket: u64::MAX, is_refused: host.is_multiple_of(2) };
            recorded.answered.note(answered, |_| false);
        }
        let bytes = bytes_of(&recorded);
        assert!(bytes.len() + Recorded::EXTRA_BYTES <= Recorded::COPY_BYTES);
        let mut from = &bytes[..];
        assert_eq!((Recorded::take(Recorded::FORMAT, &mut from), from.len()), (Some(recorded), 0));
    }

    #[test]
    fn a_record_from_before_answers_were_kept_is_read() {
        let mut recorded = Recorded::of(ArrayId([7; 16]), Membership::first([DeviceId(1), DeviceId(2)]));
        recorded.membership.epoch = Epoch(3);
        let none = recorded.owners.of(FileSystemId(4));
        recorded.owners.take_over(FileSystemId(4), Generation(5), none, Epoch(3)).expect("there is room");
        let bytes = bytes_of(&recorded);
        // A table without answers was added since.
        let older = &bytes[..bytes.len() - 4];
        let mut from = older;
        assert_eq!((Recorded::take(3, &mut from), from.len()), (Some(recorded), 0));
        assert_eq!(Recorded::take(4, &mut &older[..]), None);
    }

    #[test]
    fn an_inconsistent_record_is_refused() {
        let membership = Membership::first([DeviceId(1), DeviceId(2)]);
        let mut recorded = Recorded::of(ArrayId([7; 16]), membership);
        recorded.slot_mut(DeviceId(2)).lived_by = Epoch(1);
        let bytes = bytes_of(&recorded);
        for length in 0..bytes.len() {
            assert_eq!(Recorded::take(Recorded::FORMAT, &mut &bytes[..length]), None, "cut at {length}");
        }
        // The epoch, which must have a next one; the number of members; the first member's number, too large and not ascending; its state.
        for (at, value) in [(16, u32::MAX), (20, 3), (20, u32::MAX), (24, 70_000), (24, 2), (28, 0), (28, 5)] {
            let mut other = bytes.clone();
            other[at..at + 4].copy_from_slice(&value.to_le_bytes());
            assert_eq!(Recorded::take(Recorded::FORMAT, &mut &other[..]), None, "{value} at {at}");
        }
    }
}
