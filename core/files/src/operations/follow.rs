//! The end of a file, for a front end whose cache keeps the size.

use super::read::ReadTask;
use super::step::{Input, Parts, Step};
use braid_base::InodeId;
use braid_machine::FilesSuccess;

/// Gives back what the front end has dropped, and asks for the data lock again in the same step: so a host that makes the file longer
/// meanwhile finds this one in the queue, and waits until the front end knows the new size. Then reads the last byte.
#[derive(Clone, Debug)]
pub struct FollowTask {
    inode: InodeId,
    /// The front end has dropped what it kept.
    drops: bool,
    follows: bool,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    Preparing,
    Reading { size: u64, read: ReadTask },
}

impl FollowTask {
    pub fn new(inode: InodeId, drops: bool, follows: bool) -> FollowTask {
        FollowTask { inode, drops, follows, state: State::Preparing }
    }

    pub fn go_on(&mut self, parts: &mut Parts, op: u64, input: Input) -> Step {
        if let State::Preparing = self.state {
            if std::mem::take(&mut self.drops) {
                self.follows &= parts.inodes.has_dropped_all(self.inode);
                if self.follows {
                    parts.enter_to_fill(op, self.inode);
                }
                parts.inodes.on_dropped(parts.now, parts.locks, parts.link, self.inode);
            }
            if !self.follows {
                return Step::Done(FilesSuccess::Done);
            }
            if !parts.enter_to_fill(op, self.inode) {
                return Step::Waits;
            }
            let Some(size) = parts.inodes.size(parts.now.time, parts.link, op, 0) else { return Step::Waits };
            if size == 0 {
                return Step::Done(FilesSuccess::Tail { size, last: bytes::Bytes::new() });
            }
            self.state = State::Reading { size, read: ReadTask::new(self.inode, size - 1, 1, true) };
        }
        let State::Reading { size, read } = &mut self.state else { unreachable!("it was just set") };
        match read.go_on(parts, op, input) {
            Step::Done(FilesSuccess::Data(data)) => {
                Step::Done(FilesSuccess::Tail { size: *size, last: data.concat().into() })
            }
            step => step,
        }
    }
}
