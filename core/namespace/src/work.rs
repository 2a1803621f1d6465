//! A command under evaluation: the map with the changes of the command so far, and access to the inodes and counters in it.

use crate::keys;
use crate::records::{Counters, Damaged, Inode, Parameters, decode_number};
use braid_base::{Generation, InodeId};
use braid_objects::{Key, NotHere, Obstacle, Overlay, View};
use braid_wire::{FileAttributes, FileError, FileTime, FileType};

/// What an evaluation knows besides the command and the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// The host that sent the command.
    pub host: Generation,
    /// The present time, for the times of inodes.
    pub now: FileTime,
    /// The map has little space left: commands that make it grow are refused.
    pub is_nearly_full: bool,
}

/// Why an evaluation ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// A key is not in memory.
    NotHere,
    Fails(FileError),
}

impl From<FileError> for Stop {
    fn from(error: FileError) -> Stop {
        Stop::Fails(error)
    }
}

impl From<Damaged> for Stop {
    fn from(Damaged: Damaged) -> Stop {
        Stop::Fails(FileError::Lost)
    }
}

impl From<Obstacle> for Stop {
    fn from(obstacle: Obstacle) -> Stop {
        match obstacle {
            Obstacle::NotHere => Stop::NotHere,
            Obstacle::Lost => Stop::Fails(FileError::Lost),
        }
    }
}

/// The end of an evaluation: what it has come to, or `Err` if it needs keys that are not in memory.
pub(crate) fn ended<T>(result: Result<T, Stop>) -> Result<Result<T, FileError>, NotHere> {
    match result {
        Ok(found) => Ok(Ok(found)),
        Err(Stop::NotHere) => Err(NotHere),
        Err(Stop::Fails(error)) => Ok(Err(error)),
    }
}

/// A sum that overflows only if the map is damaged.
pub(crate) fn sum(number: u64, summand: u64) -> Result<u64, Stop> {
    number.checked_add(summand).ok_or(FileError::Lost.into())
}

/// A difference that is negative only if the map is damaged.
pub(crate) fn difference(number: u64, subtrahend: u64) -> Result<u64, Stop> {
    number.checked_sub(subtrahend).ok_or(FileError::Lost.into())
}

/// A command under evaluation.
pub(crate) struct Work<'a> {
    pub map: Overlay<'a>,
    pub context: Context,
    /// It is decided that this happens: bounds that were found to be kept may be exceeded by others that were decided meanwhile.
    pub is_decided: bool,
}

impl<'a> Work<'a> {
    pub fn new(view: &'a mut dyn View, context: Context) -> Work<'a> {
        Work { map: Overlay::new(view), context, is_decided: false }
    }

    /// A number that has a key of its own; zero if there is none.
    pub fn number(&mut self, key: Key) -> Result<u64, Stop> {
        Ok(self.map.get(key)?.map_or(Ok(0), |value| decode_number(&value))?)
    }

    /// Refuses to go on if the map is nearly full. To be called before it grows.
    pub fn grow(&self) -> Result<(), Stop> {
        if self.context.is_nearly_full { Err(FileError::NoSpace.into()) } else { Ok(()) }
    }

    pub fn inode(&mut self, inode: InodeId) -> Result<Inode, Stop> {
        let value = self.map.get(keys::inode(inode))?.ok_or(FileError::Stale)?;
        Ok(Inode::decode(inode, &value)?)
    }

    pub fn attributes(&mut self, inode: InodeId) -> Result<FileAttributes, Stop> {
        Ok(self.inode(inode)?.attributes)
    }

    pub fn directory(&mut self, inode: InodeId) -> Result<FileAttributes, Stop> {
        let attributes = self.attributes(inode)?;
        if attributes.file_type == FileType::Directory { Ok(attributes) } else { Err(FileError::NotADirectory.into()) }
    }

    /// The attributes of a regular file.
    pub fn file(&mut self, inode: InodeId) -> Result<FileAttributes, Stop> {
        let attributes = self.attributes(inode)?;
        match attributes.file_type {
            FileType::Regular => Ok(attributes),
            FileType::Directory => Err(FileError::IsADirectory.into()),
            FileType::SymbolicLink | FileType::Special(_) => Err(FileError::NotAFile.into()),
        }
    }

    pub fn put_inode(&mut self, inode: &Inode) {
        self.map.put(keys::inode(inode.attributes.inode), Some(inode.encode()));
    }

    /// Gives an existing inode other attributes.
    pub fn put_attributes(&mut self, attributes: FileAttributes) -> Result<(), Stop> {
        let Inode { target, .. } = self.inode(attributes.inode)?;
        self.put_inode(&Inode { attributes, target });
        Ok(())
    }

    pub fn parameters(&mut self) -> Result<Parameters, Stop> {
        let value = self.map.get(keys::PARAMETERS)?.ok_or(Damaged)?;
        Ok(Parameters::decode(&value)?)
    }

    pub fn counters(&mut self) -> Result<Counters, Stop> {
        let value = self.map.get(keys::COUNTERS)?.ok_or(Damaged)?;
        Ok(Counters::decode(&value)?)
    }

    pub fn put_counters(&mut self, counters: Counters) {
        self.map.put(keys::COUNTERS, Some(counters.encode()));
    }
}
