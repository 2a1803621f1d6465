//! What an administrator does, as its driver sees it: one machine with one kind of inputs and effects, whatever the operation is.

use crate::contract::{Effect, Input};
use crate::device_change::DeviceChange;
use crate::file_system_check::FileSystemCheck;
use crate::file_system_creation::FileSystemCreation;
use crate::file_system_deletion::FileSystemDeletion;
use crate::interface::Tag;
use crate::migration::Migration;
use crate::questions::Questions;
use crate::replacement::Replacement;
use crate::volume_change::VolumeChange;
use crate::volume_creation::Creation;
use crate::volume_deletion::Deletion;
use braid_base::Time;

/// An operation on one volume, one device or one file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    kind: OperationKind,
    deadline: Option<Time>,
    last_tag: Tag,
}

/// Declares the kinds of operations: the machine of each.
macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident($machine:ident),)*) => {
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum OperationKind {
            $($(#[$doc])* $name(Box<$machine>),)*
        }

        impl Operation {
            /// Takes one input, and returns what follows. Machines are woken only at their deadlines.
            pub fn step(&mut self, now: Time, input: Input) -> Vec<Effect> {
                if input == Input::Wake && self.deadline.is_none_or(|deadline| now < deadline) {
                    return Vec::new();
                }
                let mut questions = Questions::new(now, self.deadline, self.last_tag);
                match &mut self.kind {
                    $(OperationKind::$name(machine) => machine.step(input, &mut questions),)*
                }
                let effects;
                (self.deadline, self.last_tag, effects) = questions.into_effects();
                effects
            }
        }

        $(impl From<$machine> for Operation {
            fn from(machine: $machine) -> Operation {
                Operation { kind: OperationKind::$name(Box::new(machine)), deadline: None, last_tag: Tag(0) }
            }
        })*
    };
}

kinds! {
    /// A change of the volume, or the recovery of one.
    Change(VolumeChange),
    /// A whole migration, or the rest of one.
    Migration(Migration),
    /// The creation of the volume, or the rest of it.
    Creation(Creation),
    /// The deletion of the volume, or the rest of it.
    Deletion(Deletion),
    /// The disk of a device is replaced.
    Replacement(Replacement),
    /// A device is added or removed, or the rest of that.
    DeviceChange(DeviceChange),
    FileSystemCreation(FileSystemCreation),
    /// The deletion of the file system, or the rest of it.
    FileSystemDeletion(FileSystemDeletion),
    FileSystemCheck(FileSystemCheck),
}

impl Operation {
    /// The time of the next [`Input::Wake`].
    pub fn deadline(&self) -> Option<Time> {
        self.deadline
    }

    /// A migration that copies, or looks whether it can: it holds no record meanwhile.
    pub fn is_copying(&self) -> bool {
        matches!(&self.kind, OperationKind::Migration(migration) if migration.is_copying())
    }

    pub fn kind(&self) -> &OperationKind {
        &self.kind
    }
}
