//! Opening and closing files.

use super::step::{Input, Parts, Step};
use braid_base::InodeId;
use braid_machine::{FilesSuccess, HostError};
use braid_wire::{FileCommand, FileError, FileResult, FileType};

/// Opens a file. Its existence is held when it begins; the server then says whether there is such a file.
#[derive(Clone, Debug)]
pub struct OpenTask {
    inode: InodeId,
}

impl OpenTask {
    pub fn new(inode: InodeId) -> OpenTask {
        OpenTask { inode }
    }

    pub fn go_on(&mut self, parts: &mut Parts, op: u64, input: Input) -> Step {
        let Input::Reply(reply) = input else {
            parts.send(op, FileCommand::Stat { inode: self.inode });
            return Step::Waits;
        };
        match reply {
            Ok(FileResult::Attributes(attributes)) if attributes.file_type == FileType::Regular => {
                if !parts.handles.may_open() {
                    return Step::Failed(HostError::Busy);
                }
                let handle = parts.handles.open(self.inode);
                parts.inodes.set_open(self.inode);
                Step::Done(FilesSuccess::Opened { handle, attributes })
            }
            Ok(FileResult::Attributes(attributes)) if attributes.file_type == FileType::Directory => {
                Step::refused(FileError::IsADirectory)
            }
            Ok(_) => Step::refused(FileError::NotAFile),
            Err(error) => Step::refused(error),
        }
    }
}

/// Closes a file: the time of its last write is published, and after the last handle its data lock is given back.
#[derive(Clone, Debug)]
pub struct CloseTask {
    inode: InodeId,
    has_published: bool,
}

impl CloseTask {
    pub fn new(inode: InodeId) -> CloseTask {
        CloseTask { inode, has_published: false }
    }

    pub fn go_on(&mut self, parts: &mut Parts, op: u64) -> Step {
        if !std::mem::replace(&mut self.has_published, true)
            && !parts.inodes.publish(parts.now.time, parts.link, op, self.inode)
        {
            return Step::Waits;
        }
        if !parts.handles.is_open(self.inode) {
            parts.inodes.set_closed(parts.now, parts.locks, parts.link, self.inode);
        }
        Step::Done(FilesSuccess::Done)
    }
}
