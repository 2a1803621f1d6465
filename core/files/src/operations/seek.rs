//! Finding the bytes of a file that are in no hole.

use super::step::{BLOCK, Input, Parts, Step, blocks_of};
use braid_base::{BlockRange, InodeId, limits};
use braid_machine::FilesSuccess;
use braid_wire::{FileCommand, LockMode};
use std::ops::Range;

/// Goes through the extents from an offset on, page by page, up to the end of the first run. As for a read of a hole, the metadata server is
/// asked whether the host still has its data lock: no device tells.
#[derive(Clone, Debug)]
pub struct SeekTask {
    inode: InodeId,
    /// In bytes.
    start: u64,
    /// The blocks that were found.
    run: BlockRange,
    /// The blocks before this one were looked at.
    at: u64,
    found: Option<Range<u64>>,
}

impl SeekTask {
    pub fn new(inode: InodeId, offset: u64) -> SeekTask {
        let start = offset.min(limits::FILE_BYTES_MAX - 1);
        let at = start / BLOCK;
        SeekTask { inode, start, run: BlockRange::new(at, 0), at, found: None }
    }

    pub fn go_on(&mut self, parts: &mut Parts, op: u64, input: Input) -> Step {
        match (&self.found, input) {
            (None, _) => self.search(parts, op),
            (Some(found), Input::Reply(Ok(_))) => Step::Done(FilesSuccess::NextData(found.clone())),
            (Some(_), Input::Reply(Err(error))) => Step::refused(error),
            _ => Step::Waits,
        }
    }

    fn search(&mut self, parts: &mut Parts, op: u64) -> Step {
        if !parts.enter(op, self.inode, LockMode::Shared) {
            return Step::Waits;
        }
        let (now, all) = (parts.now.time, blocks_of(self.start, limits::FILE_BYTES_MAX));
        if !parts.inodes.lock(op, all) {
            return Step::Waits;
        }
        let Some(size) = parts.inodes.size(now, parts.link, op, self.at) else { return Step::Waits };
        let end = size.div_ceil(BLOCK);
        while self.at < end {
            let run = parts.inodes.known(now, parts.link, op, |map| map.next_run(BlockRange::between(self.at, end)));
            let Some((run, known_to)) = run else { return Step::Waits };
            match run {
                Some(run) if self.run.is_empty() => self.run = run,
                Some(run) if run.start == self.run.end() => self.run.count += run.count,
                _ if self.run.is_empty() => {}
                _ => break,
            }
            self.at = run.map_or(known_to, BlockRange::end);
            if run.is_some() && self.at < known_to {
                break;
            }
        }
        let found = (self.run.start * BLOCK).max(self.start)..(self.run.end() * BLOCK).min(size);
        self.found = Some(if found.is_empty() { size..size } else { found });
        parts.send(op, FileCommand::Nothing);
        Step::Waits
    }
}
