//! Setting the size of a file.

use super::step::{BLOCK, Input, Parts, Step};
use super::write::zero_tail;
use braid_base::{BlockRange, InodeId};
use braid_machine::FilesSuccess;
use braid_wire::{FileCommand, FileError, FileResult, LockMode};

/// Makes a file shorter or longer.
///
/// The last block may have bytes behind the size: of a write whose host died before the size was set, or from before the file became
/// shorter. They are overwritten with zeros before the file becomes longer. They are not when it becomes shorter: if this host died between
/// the two steps, the file would have its old size and zeros that nobody wrote.
#[derive(Clone, Debug)]
pub struct TruncateTask {
    inode: InodeId,
    size: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Preparing,
    Zeroing,
    Truncating,
}

impl TruncateTask {
    pub fn new(inode: InodeId, size: u64) -> TruncateTask {
        TruncateTask { inode, size, state: State::Preparing }
    }

    pub fn has_changed_nothing(&self) -> bool {
        self.state == State::Preparing
    }

    pub fn go_on(&mut self, parts: &mut Parts, op: u64, input: Input) -> Step {
        match (self.state, input) {
            (State::Preparing, _) => self.prepare(parts, op),
            (State::Zeroing, Input::Io { result: Ok(_), .. }) => self.truncate(parts, op),
            (State::Zeroing, Input::Io { result: Err(error), .. }) => Step::Failed(error),
            (State::Truncating, Input::Reply(Ok(FileResult::Truncated { attributes, is_done }))) => {
                parts.inodes.on_truncated(self.inode, attributes.size, attributes.size.div_ceil(BLOCK));
                if is_done { Step::Done(FilesSuccess::Done) } else { self.truncate(parts, op) }
            }
            (State::Truncating, Input::Reply(Ok(_))) => Step::refused(FileError::Lost),
            (State::Truncating, Input::Reply(Err(error))) => Step::refused(error),
            _ => Step::Waits,
        }
    }

    fn prepare(&mut self, parts: &mut Parts, op: u64) -> Step {
        if !parts.enter(op, self.inode, LockMode::Exclusive) {
            return Step::Waits;
        }
        let now = parts.now.time;
        // A page of extents from the start tells the size, and whether the inode is a file at all.
        let Some(size) = parts.inodes.size(now, parts.link, op, self.size / BLOCK) else { return Step::Waits };
        let changed = BlockRange::between(size.min(self.size) / BLOCK, u64::MAX);
        if !parts.inodes.lock(op, changed) {
            return Step::Waits;
        }
        if self.size > size {
            match zero_tail(parts, op, size, self.size) {
                None => return Step::Waits,
                Some(true) => {
                    self.state = State::Zeroing;
                    return Step::Waits;
                }
                Some(false) => {}
            }
        }
        self.truncate(parts, op)
    }

    fn truncate(&mut self, parts: &mut Parts, op: u64) -> Step {
        self.state = State::Truncating;
        parts.send(op, FileCommand::Truncate { inode: self.inode, size: self.size });
        Step::Waits
    }
}
