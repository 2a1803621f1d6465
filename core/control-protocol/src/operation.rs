//! What an administrator does, as its driver sees it: one machine with one kind of inputs and effects, whatever the operation is.

use crate::contract::{Effect, Input};
use crate::device_change::DeviceChange;
use crate::file_system_check::FileSystemCheck;
use crate::file_system_creation::FileSystemCreation;
use crate::file_system_deletion::FileSystemDeletion;
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
    questions: Questions,
}

/// Declares the kinds of operations: the machine of each.
macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident($machine:ident),)*) => {
        /// What an operation does.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum OperationKind {
            $($(#[$doc])* $name(Box<$machine>),)*
        }

        impl Operation {
            /// The time of the next [`Input::Wake`].
            pub fn deadline(&self) -> Option<Time> {
                match &self.kind {
                    $(OperationKind::$name(machine) => machine.deadline(),)*
                }
            }

            /// Takes one input, and returns what follows.
            pub fn step(&mut self, now: Time, input: Input) -> Vec<Effect> {
                match &mut self.kind {
                    $(OperationKind::$name(machine) => machine.step(now, input, &mut self.questions),)*
                }
                self.questions.take()
            }
        }

        $(impl From<$machine> for Operation {
            fn from(machine: $machine) -> Operation {
                Operation { kind: OperationKind::$name(Box::new(machine)), questions: Questions::default() }
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
    /// The creation of the file system.
    FileSystemCreation(FileSystemCreation),
    /// The deletion of the file system, or the rest of it.
    FileSystemDeletion(FileSystemDeletion),
    /// The file system is checked.
    FileSystemCheck(FileSystemCheck),
}

impl Operation {
    /// What it does.
    pub fn kind(&self) -> &OperationKind {
        &self.kind
    }
}
