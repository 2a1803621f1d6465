//! Creating a file and opening it, by one command: with the answer come the locks of an open file.

use super::step::{Input, Parts, Step};
use braid_base::InodeId;
use braid_machine::{FilesError, FilesSuccess, HostError};
use braid_wire::{FileAttributes, FileCommand, FileError, FileResult, NewInode, OPENS, Owner};
use bytes::Bytes;

/// Creates a file. If the server grants no locks with its answer, or this host can't have them, the file is created and not open.
#[derive(Clone, Debug)]
pub struct CreateTask(FileCommand);

impl CreateTask {
    pub fn new(parent: InodeId, name: Bytes, owner: Owner, mode: u16) -> Result<CreateTask, HostError> {
        let node = NewInode::Regular;
        let command = FileCommand::Create { parent, name, node, exclusive: true, owner, mode: mode | OPENS };
        let is_sound = if mode & OPENS != 0 { Err(FileError::Malformed) } else { command.check() };
        is_sound.map_err(|error| HostError::Files(FilesError::Refused(error)))?;
        Ok(CreateTask(command))
    }

    pub fn go_on(&mut self, parts: &mut Parts, op: u64, input: Input) -> Step {
        let Input::Reply(reply) = input else {
            parts.send(op, self.0.clone());
            return Step::Waits;
        };
        match reply {
            Ok(FileResult::Opened(attributes)) => opened(parts, attributes),
            Ok(result @ FileResult::Created { .. }) => Step::Done(FilesSuccess::Result(result)),
            Ok(_) => Step::refused(FileError::Lost),
            Err(error) => Step::refused(error),
        }
    }
}

/// The server has granted the locks of an open file.
fn opened(parts: &mut Parts, attributes: FileAttributes) -> Step {
    let inode = attributes.inode;
    let (start, sequence) = parts.link.last_answer();
    if !parts.locks.adopt(parts.now, start, sequence, inode) {
        return Step::Done(FilesSuccess::Result(FileResult::Created { attributes, is_new: true }));
    }
    let handle = parts.handles.open_new(inode);
    parts.inodes.open_new(inode);
    Step::Done(FilesSuccess::Opened { handle, attributes })
}
