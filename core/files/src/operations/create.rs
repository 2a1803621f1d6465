//! Creating a file and opening it, by one command: with the answer come the locks of an open file.

use super::step::{Input, Parts, Step};
use braid_base::InodeId;
use braid_machine::{FilesError, FilesSuccess, HostError};
use braid_wire::{FileAttributes, FileCommand, FileError, FileResult, NewInode, OPENS, Owner};
use bytes::Bytes;

/// Creates a file. If the server grants no locks with its answer, or this host can't have them, the file is created and not open.
#[derive(Clone, Debug)]
pub struct CreateTask {
    /// As a server of an earlier release knows it.
    command: FileCommand,
    opens: bool,
}

impl CreateTask {
    pub fn new(parent: InodeId, name: Bytes, owner: Owner, mode: u16) -> Result<CreateTask, HostError> {
        let command = FileCommand::Create { parent, name, node: NewInode::Regular, exclusive: true, owner, mode };
        let is_sound = if command.opens() { Err(FileError::Malformed) } else { command.check() };
        is_sound.map_err(|error| HostError::Files(FilesError::Refused(error)))?;
        Ok(CreateTask { command, opens: false })
    }

    pub fn go_on(&mut self, parts: &mut Parts, op: u64, input: Input) -> Step {
        let Input::Reply(reply) = input else { return self.send(parts, op) };
        match reply {
            Ok(FileResult::Opened(attributes)) if self.opens => opened(parts, attributes),
            Ok(result @ FileResult::Created { .. }) => Step::Done(FilesSuccess::Result(result)),
            Ok(_) => Step::refused(FileError::Lost),
            Err(FileError::Malformed) if self.opens => {
                parts.link.refuses_to_open();
                self.send(parts, op)
            }
            Err(error) => Step::refused(error),
        }
    }

    fn send(&mut self, parts: &mut Parts, op: u64) -> Step {
        let mut command = self.command.clone();
        self.opens = parts.link.opens();
        if let FileCommand::Create { mode, .. } = &mut command
            && self.opens
        {
            *mode |= OPENS;
        }
        parts.send(op, command);
        Step::Waits
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
