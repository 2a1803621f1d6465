//! What an administrator does, as its driver sees it: one machine with one kind of inputs and effects, whatever the operation is.

use crate::administrator::Administrator;
use crate::contract::{Effect, Input};
use crate::creation::Creation;
use crate::deletion::Deletion;
use crate::device_change::DeviceChange;
use crate::file_system_check::FileSystemCheck;
use crate::file_system_creation::FileSystemCreation;
use crate::file_system_deletion::FileSystemDeletion;
use crate::migration::Migration;
use crate::replacement::Replacement;
use braid_base::Time;

/// An operation on one volume, one device or one file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A change of the volume, or its settlement.
    Change(Administrator),
    /// A whole migration, or the rest of one.
    Migration(Box<Migration>),
    /// The creation of the volume, or the rest of it.
    Creation(Creation),
    /// The deletion of the volume, or the rest of it.
    Deletion(Deletion),
    /// The disk of a device is replaced.
    Replacement(Replacement),
    /// A device is added or removed, or the rest of that.
    DeviceChange(DeviceChange),
    /// The creation of the file system.
    FileSystemCreation(Box<FileSystemCreation>),
    /// The deletion of the file system, or the rest of it.
    FileSystemDeletion(FileSystemDeletion),
    /// The file system is checked.
    FileSystemCheck(FileSystemCheck),
}

impl Operation {
    /// The time of the next [`Input::Wake`].
    pub fn deadline(&self) -> Option<Time> {
        match self {
            Operation::Change(administrator) => administrator.deadline(),
            Operation::Migration(migration) => migration.deadline(),
            Operation::Creation(creation) => creation.deadline(),
            Operation::Deletion(deletion) => deletion.deadline(),
            Operation::Replacement(replacement) => replacement.deadline(),
            Operation::DeviceChange(change) => change.deadline(),
            Operation::FileSystemCreation(creation) => creation.deadline(),
            Operation::FileSystemDeletion(deletion) => deletion.deadline(),
            Operation::FileSystemCheck(check) => check.deadline(),
        }
    }

    /// Takes one input, and returns what follows.
    pub fn step(&mut self, now: Time, input: Input) -> Vec<Effect> {
        match self {
            Operation::Change(administrator) => administrator.step(now, input),
            Operation::Migration(migration) => migration.step(now, input),
            Operation::Creation(creation) => creation.step(now, input),
            Operation::Deletion(deletion) => deletion.step(now, input),
            Operation::Replacement(replacement) => replacement.step(now, input),
            Operation::DeviceChange(change) => change.step(now, input),
            Operation::FileSystemCreation(creation) => creation.step(now, input),
            Operation::FileSystemDeletion(deletion) => deletion.step(now, input),
            Operation::FileSystemCheck(check) => check.step(now, input),
        }
    }
}

impl From<Administrator> for Operation {
    fn from(administrator: Administrator) -> Operation {
        Operation::Change(administrator)
    }
}

impl From<Migration> for Operation {
    fn from(migration: Migration) -> Operation {
        Operation::Migration(Box::new(migration))
    }
}

impl From<Creation> for Operation {
    fn from(creation: Creation) -> Operation {
        Operation::Creation(creation)
    }
}

impl From<Deletion> for Operation {
    fn from(deletion: Deletion) -> Operation {
        Operation::Deletion(deletion)
    }
}

impl From<Replacement> for Operation {
    fn from(replacement: Replacement) -> Operation {
        Operation::Replacement(replacement)
    }
}

impl From<DeviceChange> for Operation {
    fn from(change: DeviceChange) -> Operation {
        Operation::DeviceChange(change)
    }
}

impl From<FileSystemCreation> for Operation {
    fn from(creation: FileSystemCreation) -> Operation {
        Operation::FileSystemCreation(Box::new(creation))
    }
}

impl From<FileSystemDeletion> for Operation {
    fn from(deletion: FileSystemDeletion) -> Operation {
        Operation::FileSystemDeletion(deletion)
    }
}

impl From<FileSystemCheck> for Operation {
    fn from(check: FileSystemCheck) -> Operation {
        Operation::FileSystemCheck(check)
    }
}
