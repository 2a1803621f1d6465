//! Reading bytes of a file.

use super::step::{BLOCK, Input, Parts, Step, blocks_of};
use crate::block_map::Segment;
use crate::volume_io::IoOwner;
use braid_base::{InodeId, limits};
use braid_machine::FilesSuccess;
use braid_wire::{FileCommand, LockMode};
use bytes::Bytes;

/// Reads what the extents say, up to the size. All hostreads of a read are under way at once.
///
/// What a device has read is as new as the moment of reading: a fenced host reads nothing. The size and holes are remembered, so a read
/// that no device answers asks the metadata server whether the host still has its data lock. So does a read for the front end's cache, if the
/// host may be fenced without knowing it: what it got would be kept.
#[derive(Clone, Debug)]
pub struct ReadTask {
    inode: InodeId,
    /// In bytes.
    start: u64,
    end: u64,
    fills: bool,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    Preparing,
    Reading {
        parts: Vec<Vec<Bytes>>,
        pending: usize,
    },
    /// The metadata server is asked.
    Confirming(Vec<Bytes>),
}

impl ReadTask {
    /// A read of `length` bytes. `fills`: for the front end's cache.
    pub fn new(inode: InodeId, offset: u64, length: u64, fills: bool) -> ReadTask {
        let start = offset.min(limits::FILE_BYTES_MAX);
        let end = start.saturating_add(length).min(limits::FILE_BYTES_MAX);
        ReadTask { inode, start, end, fills, state: State::Preparing }
    }

    pub fn go_on(&mut self, parts: &mut Parts, op: u64, input: Input) -> Step {
        match (&mut self.state, input) {
            (State::Preparing, _) => self.prepare(parts, op),
            (State::Reading { parts: read, pending }, Input::Io { index, result }) => {
                match result {
                    Ok(data) => read[index] = data,
                    Err(error) => return Step::Failed(error),
                }
                *pending -= 1;
                if *pending > 0 {
                    return Step::Waits;
                }
                let data = std::mem::take(read).into_iter().flatten().collect();
                self.end(parts, op, data)
            }
            (State::Confirming(data), Input::Reply(reply)) => match reply {
                Ok(_) => {
                    let data = std::mem::take(data);
                    self.end(parts, op, data)
                }
                Err(error) => Step::refused(error),
            },
            _ => Step::Waits,
        }
    }

    /// Everything is read.
    fn end(&mut self, parts: &mut Parts, op: u64, data: Vec<Bytes>) -> Step {
        match self.fills && !parts.link.is_confirmed(parts.now.time) {
            true => self.confirm(parts, op, data),
            false => Step::Done(FilesSuccess::Data(data)),
        }
    }

    fn prepare(&mut self, parts: &mut Parts, op: u64) -> Step {
        let is_admitted = match self.fills {
            true => parts.enter_to_fill(op, self.inode),
            false => parts.enter(op, self.inode, LockMode::Shared),
        };
        if !is_admitted {
            return Step::Waits;
        }
        let now = parts.now.time;
        let range = blocks_of(self.start, self.end.max(self.start + 1));
        if !parts.inodes.lock(op, range) {
            return Step::Waits;
        }
        let Some(size) = parts.inodes.size(now, parts.link, op, range.start) else { return Step::Waits };
        let end = self.end.min(size);
        if end <= self.start {
            return self.confirm(parts, op, Vec::new());
        }
        let Some(segments) = parts.inodes.find(now, parts.link, op, blocks_of(self.start, end)) else {
            return Step::Waits;
        };
        let (mut read, mut pending) = (Vec::new(), 0);
        for Segment { at, place } in segments.into_iter().flat_map(Segment::pieces) {
            let from = self.start.max(at.start * BLOCK);
            let length = (end.min(at.end() * BLOCK) - from) as usize;
            match place {
                None => read.push(vec![Bytes::from(vec![0; length])]),
                Some(place) => {
                    let offset = place * BLOCK + (from - at.start * BLOCK);
                    parts.io.read(IoOwner::Operation { op, index: read.len() }, offset, length);
                    read.push(Vec::new());
                    pending += 1;
                }
            }
        }
        if pending == 0 {
            return self.confirm(parts, op, read.into_iter().flatten().collect());
        }
        self.state = State::Reading { parts: read, pending };
        Step::Waits
    }

    fn confirm(&mut self, parts: &mut Parts, op: u64, data: Vec<Bytes>) -> Step {
        self.state = State::Confirming(data);
        parts.send(op, FileCommand::Nothing);
        Step::Waits
    }
}
