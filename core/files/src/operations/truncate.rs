//! Setting the size of a file.

use super::step::{BLOCK, Input, Parts, Step};
use super::write::zero_tail;
use braid_base::{BlockRange, InodeId};
use braid_machine::{FilesSuccess, HostError};
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
    /// The file has become longer.
    has_grown: bool,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Preparing,
    Zeroing,
    Truncating,
    /// Other hosts learn the size.
    Announcing,
}

impl TruncateTask {
    pub fn new(inode: InodeId, size: u64) -> TruncateTask {
        TruncateTask { inode, size, has_grown: false, state: State::Preparing }
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
                if !is_done {
                    return self.truncate(parts, op);
                }
                if self.has_grown && !parts.announce(op, self.inode) {
                    self.state = State::Announcing;
                    return Step::Waits;
                }
                Step::Done(FilesSuccess::Done)
            }
            (State::Truncating, Input::Reply(Ok(_))) => Step::refused(FileError::Lost),
            (State::Truncating, Input::Reply(Err(error))) => Step::refused(error),
            (State::Announcing, _) if parts.inodes.is_admitted(op) => Step::Done(FilesSuccess::Done),
            _ => Step::Waits,
        }
    }

    /// It can't have what it waits for. If that is only to tell others, it is done.
    pub fn fail(&self, error: HostError) -> Step {
        if self.state == State::Announcing { Step::Done(FilesSuccess::Done) } else { Step::Failed(error) }
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
        self.has_grown = self.size > size;
        if self.has_grown {
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
