//! Writing bytes of a file.

use super::step::{BLOCK, Input, Parts, Step, blocks_of};
use crate::block_map::Segment;
use crate::volume_io::{IoOwner, IoResult};
use braid_base::{BLOCK_BYTES, BlockRange, InodeId, limits};
use braid_machine::{FilesError, FilesSuccess, HostError};
use braid_wire::{FileCommand, FileError, FileExtent, FileReply, FileResult, FileTime, LockMode};
use bytes::{Bytes, BytesMut};

/// Writes bytes, piece after piece, each of at most a transaction's bytes. Blocks that the file has are overwritten in place. Other blocks
/// are new: a new block is written as a whole, with zeros around the bytes, and belongs to the file when the server has attached it. By
/// then it is durable. The range stays locked until the last piece is written.
#[derive(Clone, Debug)]
pub struct WriteTask {
    inode: InodeId,
    /// The first byte; none for an append, until its place is known.
    offset: Option<u64>,
    is_append: bool,
    data: Bytes,
    /// Bytes of earlier pieces.
    done: u64,
    /// The file has become longer.
    has_grown: bool,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    Preparing,
    /// The bytes between the end of the file and the write are overwritten.
    Zeroing,
    /// The piece waits for extents or for blocks.
    Planning,
    Reserving(Vec<Segment>),
    Writing(Piece),
    Attaching(Attachment),
    /// Other hosts learn the size.
    Announcing,
}

/// A piece whose bytes are being written.
#[derive(Clone, Debug)]
struct Piece {
    end: u64,
    /// New blocks of the file.
    holes: Vec<BlockRange>,
    /// Where they are; none while they are being written.
    runs: Option<Vec<BlockRange>>,
    pending: usize,
    error: Option<HostError>,
}

/// A piece whose new blocks are being attached.
#[derive(Clone, Debug)]
struct Attachment {
    end: u64,
    mtime: FileTime,
    /// What the present command attaches, and what the next ones will.
    extents: Vec<FileExtent>,
    rest: Vec<FileExtent>,
}

impl WriteTask {
    /// A write at an offset, or at the end of the file.
    pub fn new(inode: InodeId, offset: Option<u64>, data: Bytes) -> WriteTask {
        WriteTask {
            inode,
            offset,
            is_append: offset.is_none(),
            data,
            done: 0,
            has_grown: false,
            state: State::Preparing,
        }
    }

    pub fn has_changed_nothing(&self) -> bool {
        self.done == 0 && matches!(self.state, State::Preparing | State::Planning | State::Reserving(_))
    }

    /// The next piece can't have what it needs. The earlier ones are written.
    pub fn fail(&self, error: HostError) -> Step {
        if self.done == 0 { Step::Failed(error) } else { self.success() }
    }

    pub fn go_on(&mut self, parts: &mut Parts, op: u64, input: Input) -> Step {
        match (&mut self.state, input) {
            (State::Preparing, _) => self.prepare(parts, op),
            (State::Zeroing, Input::Io { result, .. }) => match result {
                Ok(_) => self.plan(parts, op),
                Err(error) => Step::Failed(error),
            },
            (State::Planning, _) => self.plan(parts, op),
            (State::Reserving(segments), Input::Ready) if parts.allotment.has_reserved(op) => {
                let segments = std::mem::take(segments);
                self.write(parts, op, &segments)
            }
            (State::Writing(piece), Input::Io { result, .. }) => {
                piece.on_io(result);
                self.on_written(parts, op)
            }
            (State::Writing(piece), Input::Blocks(result)) => {
                piece.on_blocks(result);
                self.on_written(parts, op)
            }
            (State::Attaching(_), Input::Reply(reply)) => self.on_attached(parts, op, reply),
            (State::Announcing, _) if parts.inodes.is_admitted(op) => self.success(),
            _ => Step::Waits,
        }
    }

    fn prepare(&mut self, parts: &mut Parts, op: u64) -> Step {
        if self.data.is_empty() {
            self.offset.get_or_insert(0);
            return self.success();
        }
        if !parts.enter(op, self.inode, LockMode::Exclusive) {
            return Step::Waits;
        }
        let now = parts.now.time;
        let first = self.offset.unwrap_or(0) / BLOCK;
        let Some(size) = parts.inodes.size(now, parts.link, op, first) else { return Step::Waits };
        let start = if self.is_append { size } else { self.offset.expect("only an append has none") };
        let end = match start.checked_add(self.data.len() as u64) {
            Some(end) if end <= limits::FILE_BYTES_MAX => end,
            _ => return Step::refused(FileError::TooLarge),
        };
        // A size that has changed during the wait makes another range.
        if !parts.inodes.lock(op, self.range(size, start, end)) {
            return Step::Waits;
        }
        self.offset = Some(start);
        match if start > size { zero_tail(parts, op, size, start) } else { Some(false) } {
            None => Step::Waits,
            Some(true) => {
                self.state = State::Zeroing;
                Step::Waits
            }
            Some(false) => self.plan(parts, op),
        }
    }

    /// What the operation excludes others from, if the file has this size.
    ///
    /// An append excludes all who need to know the end of the file. Other writes that make the file longer go on at the same time, unless
    /// bytes between the end and the write are to be overwritten. What is between them reads as zeros until it is written.
    fn range(&self, size: u64, start: u64, end: u64) -> BlockRange {
        match (self.is_append, start > size && !size.is_multiple_of(BLOCK)) {
            (true, _) => BlockRange::between(size / BLOCK, u64::MAX),
            (false, true) => blocks_of(size, end),
            (false, false) => blocks_of(start, end),
        }
    }

    /// Looks where the next piece goes, and reserves new blocks.
    fn plan(&mut self, parts: &mut Parts, op: u64) -> Step {
        self.state = State::Planning;
        let (start, end) = self.piece();
        let range = blocks_of(start, end);
        let Some(segments) = parts.inodes.find(parts.now.time, parts.link, op, range) else { return Step::Waits };
        let needed = holes(&segments).map(|hole| hole.count).sum();
        if needed > 0 && !parts.allotment.reserve(parts.now.time, parts.link, op, needed) {
            self.state = State::Reserving(segments);
            return Step::Waits;
        }
        self.write(parts, op, &segments)
    }

    /// Writes the next piece.
    fn write(&mut self, parts: &mut Parts, op: u64, segments: &[Segment]) -> Step {
        let (start, end) = self.piece();
        let holes: Vec<_> = holes(segments).collect();
        let mut pending = usize::from(!holes.is_empty());
        for Segment { at, place } in joined(segments) {
            let Some(place) = place else { continue };
            let (from, to) = (start.max(at.start * BLOCK), end.min(at.end() * BLOCK));
            let offset = place * BLOCK + (from - at.start * BLOCK);
            parts.io.write(IoOwner::Operation { op, index: 0 }, offset, self.bytes(from, to));
            pending += 1;
        }
        if !holes.is_empty() {
            let data = holes.iter().map(|hole| self.whole_blocks(*hole)).collect();
            parts.packer.write(parts.io, parts.allotment, op, data);
        }
        self.state = State::Writing(Piece { end, holes, runs: None, pending, error: None });
        Step::Waits
    }

    /// If all bytes of the piece are written: makes them part of the file.
    fn on_written(&mut self, parts: &mut Parts, op: u64) -> Step {
        let State::Writing(piece) = &mut self.state else { unreachable!("called while a piece is written") };
        if piece.pending > 0 {
            return Step::Waits;
        }
        let runs = piece.runs.take().unwrap_or_default();
        if let Some(error) = piece.error.take() {
            parts.allotment.put_back(&runs, parts.progress);
            return self.fail(error);
        }
        let (end, mtime) = (piece.end, parts.file_time());
        let rest = extents(&piece.holes, &runs);
        let size = parts.inodes.size(parts.now.time, parts.link, op, 0).expect("known while the range is locked");
        if rest.is_empty() && end <= size {
            parts.inodes.on_overwritten(parts.now.time, self.inode, mtime);
            return self.next_piece(parts, op);
        }
        self.has_grown |= end > size;
        self.attach(parts, op, Attachment { end, mtime, extents: Vec::new(), rest })
    }

    /// Attaches as many extents as one command takes. The last command sets the size.
    fn attach(&mut self, parts: &mut Parts, op: u64, mut attachment: Attachment) -> Step {
        let count = attachment.rest.len().min(limits::FILE_EXTENTS_MAX);
        attachment.extents = attachment.rest.drain(..count).collect();
        let reached = attachment.extents.last().map_or(0, |last| last.end() * BLOCK);
        let size = if attachment.rest.is_empty() { attachment.end } else { reached.min(attachment.end) };
        let (inode, mtime) = (self.inode, attachment.mtime);
        parts.send(op, FileCommand::Attach { inode, extents: attachment.extents.clone(), size, mtime });
        self.state = State::Attaching(attachment);
        Step::Waits
    }

    fn on_attached(&mut self, parts: &mut Parts, op: u64, reply: FileReply) -> Step {
        let state = std::mem::replace(&mut self.state, State::Planning);
        let State::Attaching(mut attachment) = state else { unreachable!("called while extents are attached") };
        let error = match reply {
            Ok(FileResult::Attached { attributes, next }) => {
                let (attached, mut left) = cut(std::mem::take(&mut attachment.extents), next.unwrap_or(u64::MAX));
                parts.inodes.on_attached(self.inode, &attached, attributes.size, attachment.mtime);
                left.append(&mut attachment.rest);
                if left.is_empty() && next.is_none() {
                    return self.next_piece(parts, op);
                }
                attachment.rest = left;
                return self.attach(parts, op, attachment);
            }
            Ok(_) => FileError::Lost,
            Err(error) => error,
        };
        // Blocks that may belong to somebody else are not used again.
        if !matches!(error, FileError::NotAllotted | FileError::Lost) {
            let runs: Vec<_> = attachment.extents.iter().chain(&attachment.rest).map(|extent| extent.blocks).collect();
            parts.allotment.put_back(&runs, parts.progress);
        }
        self.fail(HostError::Files(FilesError::Refused(error)))
    }

    fn next_piece(&mut self, parts: &mut Parts, op: u64) -> Step {
        let (start, end) = self.piece();
        self.done += end - start;
        if self.done < self.data.len() as u64 {
            return self.plan(parts, op);
        }
        if self.has_grown && !parts.announce(op, self.inode) {
            self.state = State::Announcing;
            return Step::Waits;
        }
        self.success()
    }

    /// The bytes of the file that the next piece writes. Pieces end at multiples of their greatest length, so that they have few partial
    /// blocks.
    fn piece(&self) -> (u64, u64) {
        let most = limits::TRANSACTION_BYTES_MAX as u64;
        let offset = self.offset.expect("the place is known");
        let (start, end) = (offset + self.done, offset + self.data.len() as u64);
        (start, end.min((start / most + 1) * most))
    }

    /// The bytes that the file gets from `from` to `to`.
    fn bytes(&self, from: u64, to: u64) -> Bytes {
        let offset = self.offset.expect("the place is known");
        self.data.slice((from - offset) as usize..(to - offset) as usize)
    }

    /// The content of new blocks: the bytes of the next piece, and zeros around them.
    fn whole_blocks(&self, blocks: BlockRange) -> Bytes {
        let (start, end) = self.piece();
        let (first, behind) = (blocks.start * BLOCK, blocks.end() * BLOCK);
        let (from, to) = (start.max(first), end.min(behind));
        if (from, to) == (first, behind) {
            return self.bytes(from, to);
        }
        let mut whole = BytesMut::zeroed(blocks.count as usize * BLOCK_BYTES);
        whole[(from - first) as usize..(to - first) as usize].copy_from_slice(&self.bytes(from, to));
        whole.freeze()
    }

    fn success(&self) -> Step {
        let length = self.done;
        let offset = self.offset.expect("the place is known");
        Step::Done(if self.is_append {
            FilesSuccess::Appended { offset, length }
        } else {
            FilesSuccess::Written { length }
        })
    }
}

impl Piece {
    fn on_io(&mut self, result: IoResult) {
        self.pending -= 1;
        self.error = self.error.take().or(result.err());
    }

    fn on_blocks(&mut self, result: Result<Vec<BlockRange>, HostError>) {
        self.pending -= 1;
        match result {
            Ok(runs) => self.runs = Some(runs),
            Err(error) => self.error = Some(error),
        }
    }
}

/// Overwrites with zeros what the last block of a file has behind the size, up to the byte `end` of the file. True if something is being
/// written; none if extents have to be loaded first.
pub fn zero_tail(parts: &mut Parts, op: u64, size: u64, end: u64) -> Option<bool> {
    let last = size / BLOCK;
    if size.is_multiple_of(BLOCK) {
        return Some(false);
    }
    let segments = parts.inodes.find(parts.now.time, parts.link, op, BlockRange::new(last, 1))?;
    let Some(place) = segments[0].place else { return Some(false) };
    let length = end.min((last + 1) * BLOCK) - size;
    let zeros = Bytes::from(vec![0; length as usize]);
    parts.io.write(IoOwner::Operation { op, index: 0 }, place * BLOCK + size % BLOCK, zeros);
    Some(true)
}

fn holes(segments: &[Segment]) -> impl Iterator<Item = BlockRange> + '_ {
    segments.iter().filter(|segment| segment.place.is_none()).map(|segment| segment.at)
}

/// Segments that follow each other both in the file and in the volume, as one.
fn joined(segments: &[Segment]) -> Vec<Segment> {
    let mut joined: Vec<Segment> = Vec::new();
    for segment in segments {
        match joined.last_mut() {
            Some(last) if last.place.is_some_and(|place| Some(place + last.at.count) == segment.place) => {
                last.at.count += segment.at.count;
            }
            _ => joined.push(*segment),
        }
    }
    joined
}

/// Divides extents into those before a block of the file and those behind.
fn cut(extents: Vec<FileExtent>, at: u64) -> (Vec<FileExtent>, Vec<FileExtent>) {
    let part = |extent: &FileExtent, range: BlockRange| {
        let kept = BlockRange::new(extent.at, extent.blocks.count).intersection(range);
        (!kept.is_empty()).then(|| {
            let start = extent.blocks.start + (kept.start - extent.at);
            FileExtent { at: kept.start, blocks: BlockRange::new(start, kept.count) }
        })
    };
    let parts = |range| extents.iter().filter_map(|extent| part(extent, range)).collect();
    (parts(BlockRange::between(0, at)), parts(BlockRange::between(at, u64::MAX)))
}

/// The extents that put runs of the volume, in order, into holes of a file.
fn extents(holes: &[BlockRange], runs: &[BlockRange]) -> Vec<FileExtent> {
    let mut extents = Vec::new();
    let mut runs = runs.iter().copied();
    let mut run = BlockRange::new(0, 0);
    for hole in holes {
        let mut at = hole.start;
        while at < hole.end() {
            if run.is_empty() {
                run = runs.next().expect("there is a block for each of the hole");
            }
            let count = run.count.min(hole.end() - at);
            extents.push(FileExtent { at, blocks: BlockRange::new(run.start, count) });
            run = BlockRange::new(run.start + count, run.count - count);
            at += count;
        }
    }
    extents
}
