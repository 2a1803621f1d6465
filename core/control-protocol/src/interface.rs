//! What the protocols ask of the world, and the answers. The store is asked only for what a key-value store with compare-and-swap, leases
//! and watches offers: the array's folder, etcd and the simulation can each implement it.

use crate::file_systems::{Announcement, FileSystemRecord, FileSystemState, ServerLease};
use crate::record::{DeviceRecord, Version, VolumeRecord};
use braid_base::{DeviceId, DiskId, Epoch, FileSystemId, Generation, MemberState, Membership, Ownership, VolumeId};
pub use braid_host_leases::{Fence, LeaseEnd};
use braid_wire::{AdminError, Administration, OwnershipRequest, Task};
use std::collections::BTreeSet;

/// Names a question. Answers to questions that are no longer waited for are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u64);

/// Something that a machine wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// A command for the store of the control plane.
    Store(Command),
    /// Are all of these devices in, and in which epoch? The monitor is asked: the answer is not older than the question.
    AreIn { devices: BTreeSet<DeviceId> },
    /// Has the monitor adopted the description of this version?
    MonitorKnows { version: Version },
    /// Does every lock server serve?
    LockServersServe,
    /// Have devices refuse all generations below `below`, except some. Answered when no device serves them any more.
    Fence(Fence),
    /// Send a task to a device.
    Manage { device: DeviceId, task: Task },
    /// Send the monitor a request, which is idempotent. It has no effect any more if the administrator is fenced before, or if the monitor
    /// has answered a later request of the administrator.
    Administer { request: Administration },
    /// Does the device run on this disk, according to the monitor; if `is_whole`, with all its content?
    RunsOn { device: DeviceId, disk: DiskId, is_whole: bool },
    /// Have the administrator's own host copy the migrating volume to its target, from this block on. Answered when all is copied, or when
    /// the host has stopped because the volume was put on hold.
    Copy { from: u64 },
    /// What has the host copied so far?
    CopyProgress,
    /// Send the monitor a request about the ownership of a shard. It takes effect at most once, and only in the state that it names.
    Ownership { file_system: FileSystemId, request: OwnershipRequest },
    /// Create a volume of a file system that this administrator creates: those of its shards, in order, then the one for the content of
    /// files. It is entered only while the record of the file system names the administrator.
    CreateVolume { number: usize },
    /// Make the volume of this number that of an empty shard.
    Format { file_system: FileSystemId, number: usize },
    /// Delete a volume of a file system that is being deleted. Also answered with yes if another administrator has deleted it.
    DeleteVolume { volume: VolumeId },
    /// Have metadata servers see this, until it is withdrawn or the administrator is dead.
    Announce(Announcement),
    /// End an announcement, if there is one.
    Withdraw(Announcement),
    /// Take over the shard of this number, fencing its owner if it has one; read it, and release it. Answered when that is done, with the
    /// ownership since.
    Examine { shard: usize },
}

/// A command for the store. Each is about one volume, one device or one file system, or about leases of hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// The record of the volume. Linearizable: it contains all changes that were answered before.
    Read,
    /// Replaces the record, if nothing in the description has changed since version `after`. If there is no such volume, it is entered.
    Replace { after: Version, record: VolumeRecord },
    /// Removes the record, under the same condition: there is no such volume any more. Its number is not used again.
    Remove { after: Version },
    /// The record of the device. Linearizable, too.
    ReadDevice,
    /// Replaces the record of the device, under the condition of [`Command::Replace`]. If there is no such device, it is entered.
    ReplaceDevice { after: Version, record: DeviceRecord },
    /// Removes the record of the device, under the same condition. Its number is not used again.
    RemoveDevice { after: Version },
    /// The record of the file system. Linearizable, too.
    ReadFileSystem,
    /// Enters a file system that is being created, with numbers that none had before, if there is none of its name, under the condition of
    /// [`Command::Replace`].
    EnterFileSystem { after: Version, by: Generation },
    /// Changes the state of the file system, under the condition of [`Command::Replace`].
    ReplaceFileSystem { after: Version, state: FileSystemState },
    /// Removes the record of the file system, under the same condition. Its numbers are not used again.
    RemoveFileSystem { after: Version },
    /// The metadata servers with leases, and what is announced to those of the file system.
    ListServers,
    /// Is this still the version of the description? Linearizable, too.
    Confirm { version: Version },
    /// The hosts with leases.
    ListHosts,
    /// Ends the lease of a host for good, unless it has renewed its lease in time: it can't renew it later.
    EndLease { host: Generation },
    /// Forgets an ended lease, whose host is fenced.
    ForgetLease { host: Generation },
    /// Answers when something may have changed. It may answer early, late or never: no decision depends on it.
    Watch,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To [`Command::Read`]: the record, if there is such a volume. No volume has had the number `next_volume`, or a higher one.
    Record {
        version: Version,
        record: Option<Box<VolumeRecord>>,
        ready_devices: BTreeSet<DeviceId>,
        next_volume: VolumeId,
    },
    /// To commands that replace or remove records: it is done, durably; the description has this version.
    Replaced { version: Version },
    /// To the same, and to [`Command::Confirm`]: the description has another version. To [`Question::RunsOn`]: the device is to run on
    /// another disk, unless the answer is about an earlier time.
    Superseded,
    /// To [`Command::ReadDevice`]: the record, if there is such a device; whether a device has had its number; and the volumes that lie
    /// on it, or migrate to it.
    Device { version: Version, record: Option<DeviceRecord>, is_used: bool, volumes: BTreeSet<VolumeId> },
    /// To [`Command::ReadFileSystem`]: the record, if there is such a file system.
    FileSystem { version: Version, record: Option<FileSystemRecord> },
    /// To [`Command::ListServers`]: the leases, in the order of the generations, and what living processes announce.
    Servers { leases: Vec<ServerLease>, announced: BTreeSet<Announcement> },
    /// To [`Question::Ownership`]: the ownership after the request, or the one because of which it had no effect.
    Ownership(Ownership),
    /// To [`Question::Administer`]: the monitor refuses the request, and nothing has changed.
    Refused(AdminError),
    /// To [`Command::ListHosts`].
    Hosts(Vec<HostLease>),
    /// To [`Command::EndLease`].
    Lease(LeaseEnd),
    /// To [`Question::AreIn`]: all of them are, in this epoch.
    AllIn(Epoch),
    /// To [`Question::AreIn`]: one of them is not, in this epoch.
    NotIn(Epoch),
    /// To [`Question::Copy`] and [`Question::CopyProgress`]: every block below `copied_to` is at the target, except so many that can't be
    /// read.
    Copied { copied_to: u64, lost: u64 },
    /// Yes, or: it is done.
    Yes,
    /// No, or: not yet.
    No,
    /// Of a device: transactions on the object are under way.
    InUse,
    /// Of a device: it has no space.
    NoSpace,
    /// No answer: the question may have had its effect, may have it later, or never.
    Unknown,
    /// The question can't be answered, and asking again would not help. Whoever answers keeps the reason under the question's tag.
    Failed,
}

impl Answer {
    /// The answer to [`Question::AreIn`], by a membership that the monitor had after the question.
    pub fn of_members(membership: &Membership, devices: &BTreeSet<DeviceId>) -> Answer {
        let is_in =
            |device: &DeviceId| membership.member(*device).is_some_and(|member| member.member_state == MemberState::In);
        match devices.iter().all(is_in) {
            true => Answer::AllIn(membership.epoch),
            false => Answer::NotIn(membership.epoch),
        }
    }
}

/// A host with a lease, as others see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostLease {
    pub host: Generation,
    /// False if it has not renewed its lease in time. Only [`Command::EndLease`] says whether it can still do so.
    pub is_live: bool,
    /// It uses volumes; false for lock servers.
    pub uses_volumes: bool,
    /// What it confirmed with its lease: it has applied the description of this version, and has no operation under way on volumes that are
    /// on hold there.
    pub confirmed: Version,
}
