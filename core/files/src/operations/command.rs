//! Commands about names and attributes, which pass through to the metadata server, and `Sync`.

use super::step::{Input, Parts, Step};
use braid_base::InodeId;
use braid_machine::{FilesError, FilesSuccess, HostError};
use braid_wire::{FileCommand, FileError};

#[derive(Clone, Debug)]
pub struct CommandTask {
    /// None for `Sync`.
    command: Option<FileCommand>,
    /// The time of this inode's last write has to be published first.
    publishes: Option<InodeId>,
}

impl CommandTask {
    pub fn new(command: FileCommand) -> Result<CommandTask, HostError> {
        let refused = |error| HostError::Files(FilesError::Refused(error));
        let publishes = match &command {
            FileCommand::Lookup { .. }
            | FileCommand::ReadDirectory { .. }
            | FileCommand::ReadLink { .. }
            | FileCommand::Create { .. }
            | FileCommand::Link { .. }
            | FileCommand::Unlink { .. }
            | FileCommand::RemoveDirectory { .. }
            | FileCommand::Rename { .. }
            | FileCommand::StatFileSystem => None,
            // A time that is set is not replaced by that of an earlier write.
            FileCommand::Stat { inode } | FileCommand::SetAttributes { inode, .. } => Some(*inode),
            FileCommand::Nothing
            | FileCommand::Truncate { .. }
            | FileCommand::Map { .. }
            | FileCommand::Reserve { .. }
            | FileCommand::Attach { .. }
            | FileCommand::GiveBack { .. } => return Err(refused(FileError::Malformed)),
        };
        command.check().map_err(refused)?;
        Ok(CommandTask { command: Some(command), publishes })
    }

    pub fn sync(inode: InodeId) -> CommandTask {
        CommandTask { command: None, publishes: Some(inode) }
    }

    pub fn go_on(&mut self, parts: &mut Parts, op: u64, input: Input) -> Step {
        if let Input::Reply(reply) = input {
            return match reply {
                Ok(result) => Step::Done(FilesSuccess::Result(result)),
                Err(error) => Step::refused(error),
            };
        }
        if let Some(inode) = self.publishes.take()
            && !parts.inodes.publish(parts.now.time, parts.link, op, inode)
        {
            return Step::Waits;
        }
        let Some(command) = self.command.take() else { return Step::Done(FilesSuccess::Done) };
        parts.send(op, command);
        Step::Waits
    }
}
