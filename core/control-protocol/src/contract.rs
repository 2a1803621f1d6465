//! The inputs and effects of an operation, how it ends, and its time limits.

use crate::interface::{Answer, Question, Tag};
use braid_base::{DeviceId, FileSystemId, Generation, VolumeId};
use std::time::Duration;

/// Something that happens to an administrator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// It begins.
    Start,
    Answer {
        tag: Tag,
        answer: Answer,
    },
    /// Its deadline has passed.
    Wake,
}

/// Something that an administrator wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Ask {
        tag: Tag,
        question: Question,
    },
    /// For people: a step has begun.
    Began(Stage),
    /// It has ended. Nothing more will be asked.
    Ended(Result<Done, Error>),
}

/// Steps that may take long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Draining,
    AwaitingLockServers,
    NotifyingDevices,
    Copying,
    /// Everything is copied; not all devices are in.
    AwaitingDevices,
    /// A metadata server has not released its file system in time.
    FencingServers,
    /// The metadata servers do not serve again yet. The operation ends all the same.
    Unserved,
}

/// What an administrator has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// The change is complete.
    Changed,
    /// The change of another administrator is reverted.
    Reverted,
    /// There was nothing to settle, or another administrator does it.
    Nothing,
}

/// Why a change was not made. Unless it says otherwise, the volume is as before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// There is no such volume, or it is being created or deleted.
    NotUsable,
    /// Another administrator is at work on the volume, or on the device.
    Held(Generation),
    /// Another volume, or another device, has had this number.
    NumberUsed,
    /// A migration of the volume has begun or ended meanwhile, or its target does not fit the volume any more.
    Migration,
    /// A migration can't end: not everything is copied.
    NotCopied,
    /// Some blocks can't be read, and are not at the target. The question's tag leads to them.
    BlocksLost(Tag),
    /// A device of the new volume, or of the target, is not ready.
    NoSuchDevice(DeviceId),
    /// The array has no such device.
    NoDevice,
    /// These volumes lie on the device, or migrate to it: it can't be removed.
    HoldsVolumes(Vec<VolumeId>),
    /// The monitor has refused the request. The question's tag leads to the reason.
    Refused(Tag),
    /// The monitor has recorded the request, but the device is not as requested yet. The question's tag leads to the device.
    NotYet(Tag),
    /// A device of the volume is not in. The question's tag leads to the devices.
    NotIn(Tag),
    /// The monitor has not adopted the description in time.
    MonitorSilent,
    /// These hosts have not ended their operations in time.
    NotDrained(Vec<Generation>),
    /// The lock servers do not serve. The question's tag leads to the missing one.
    NoLockServer(Tag),
    /// The volume, or the device, was taken over by another administrator, which completes or reverts the change, or was deleted.
    Lost,
    /// The question of this tag has failed. The volume may still be on hold.
    Question(Tag),
    /// A device has too little space: the change was undone. The question's tag leads to the device.
    NoSpace(Tag),
    /// A device could not be told. The volume is on hold until the change is completed.
    Incomplete(Tag),
    /// There is no such file system.
    NoFileSystem,
    /// There is a file system of this name.
    FileSystemExists,
    /// A file system of this name is being deleted.
    BeingDeleted,
    /// Other processes take over the file system again and again.
    Contended,
    /// Another process has owned a shard while the file system was checked.
    Interrupted,
    /// Another process checks the file system.
    CheckUnderWay,
    /// The metadata servers of these shards have not ended their operations in time.
    NotQuiescent(Vec<FileSystemId>),
}

/// The time limits of an administrator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long the monitor may take to adopt a description.
    pub monitor: Duration,
    /// How long hosts may take to end their operations.
    pub drain: Duration,
    /// How long lock servers may take to start.
    pub lock_servers: Duration,
    /// How long transactions of other hosts may delay a task for a device.
    pub in_use: Duration,
    /// How long answers of the store may be missing.
    pub store: Duration,
    /// How long the end of a migration waits for devices that are not in.
    pub members: Duration,
    /// How long an administrator waits for another one that is at work on the same volume or device.
    pub turn: Duration,
    /// How long a device may take to be as the monitor has recorded.
    pub device: Duration,
    /// How long devices that have just returned may take to count as in for the monitor.
    pub steady: Duration,
    /// The interval at which the progress of a migration is recorded.
    pub note: Duration,
    /// The interval of repeated questions.
    pub pause: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            monitor: Duration::from_secs(10),
            drain: Duration::from_secs(30),
            lock_servers: Duration::from_secs(10),
            in_use: Duration::from_secs(10),
            store: Duration::from_secs(10),
            members: Duration::from_secs(60),
            turn: Duration::from_secs(30),
            device: Duration::from_secs(60),
            steady: Duration::from_secs(3),
            note: Duration::from_secs(3),
            pause: Duration::from_millis(20),
        }
    }
}

/// The time limits of operations on file systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystemTiming {
    /// How long another administrator that lives is waited for.
    pub turn: Duration,
    /// How long metadata servers may take to release their shards.
    pub release: Duration,
    /// How long metadata servers may take to quiesce. One that died is replaced meanwhile.
    pub quiesce: Duration,
    /// How long metadata servers may take to serve again after a check.
    pub serve: Duration,
    /// How long answers of the store may be missing.
    pub store: Duration,
    /// The interval of repeated questions.
    pub pause: Duration,
}

impl Default for FileSystemTiming {
    fn default() -> FileSystemTiming {
        FileSystemTiming {
            turn: Duration::from_secs(30),
            release: Duration::from_secs(5),
            quiesce: Duration::from_secs(30),
            serve: Duration::from_secs(10),
            store: Duration::from_secs(10),
            pause: Duration::from_millis(20),
        }
    }
}
