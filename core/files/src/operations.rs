//! The operations under way: what each one is, what it waits for, and its end.
//!
//! An operation goes on whenever a part reports something for it. It then looks at what it has, asks for what it lacks, and waits again:
//!
//! ```text
//!   existence held ─► data lock held ─► size known ─► range locked ─► extents known ─► blocks reserved ─► bytes written ─► extents attached
//! ```
//!
//! Every wait is for something further to the right, and no operation holds the data locks of two inodes. So there is no deadlock.

mod command;
mod create;
mod follow;
mod open;
mod read;
mod seek;
mod step;
mod truncate;
mod write;

use crate::progress::Progress;
use crate::volume_io::{IoOwner, IoResult};
use braid_base::{InodeId, limits};
use braid_machine::{FileHandle, FilesError, FilesRequest, HostError, HostOutcome, HostSuccess, OpId};
use braid_wire::{FileError, FileReply};
use command::CommandTask;
use create::CreateTask;
use follow::FollowTask;
use open::{CloseTask, OpenTask};
use read::ReadTask;
use seek::SeekTask;
use std::collections::{BTreeMap, BTreeSet};
pub use step::Parts;
use step::{Input, Step};
use truncate::TruncateTask;
use write::WriteTask;

#[derive(Clone, Debug, Default)]
pub struct Operations {
    by_number: BTreeMap<u64, Operation>,
    next: u64,
    /// The bytes that the operations read and write.
    bytes: usize,
    /// The outcomes of operations that have ended.
    ended: Vec<(OpId, HostOutcome)>,
}

#[derive(Clone, Debug)]
struct Operation {
    /// The number that the front end gave it; none if the client itself began it.
    op: Option<OpId>,
    /// The inode whose existence it holds.
    held: Option<InodeId>,
    /// The bytes that it reads or writes.
    bytes: usize,
    task: Task,
}

#[derive(Clone, Debug)]
enum Task {
    Command(CommandTask),
    Create(CreateTask),
    Open(OpenTask),
    Close(CloseTask),
    Read(ReadTask),
    Seek(SeekTask),
    Follow(FollowTask),
    Write(WriteTask),
    Truncate(TruncateTask),
}

impl Operations {
    /// Begins an operation for the front end.
    pub fn begin(&mut self, parts: &mut Parts, op: OpId, request: FilesRequest) {
        let bytes = bytes_of(&request).min(limits::FILE_IO_BYTES_MAX);
        let is_full =
            self.by_number.len() >= limits::OPERATIONS_MAX || self.bytes + bytes > limits::FILE_OPERATIONS_BYTES_MAX;
        let task = if is_full { Err(HostError::Busy) } else { task(parts, request) };
        match task {
            Ok((inode, task)) => self.start(parts, Some(op), (inode, bytes), task),
            Err(error) => self.ended.push((op, Err(error))),
        }
    }

    pub fn close_all(&mut self, parts: &mut Parts) {
        for handle in parts.handles.all() {
            let inode = parts.handles.inode(handle).expect("it is open");
            parts.handles.close(handle);
            self.start(parts, None, (Some(inode), 0), Task::Close(CloseTask::new(inode)));
        }
    }

    fn start(&mut self, parts: &mut Parts, op: Option<OpId>, needs: (Option<InodeId>, usize), task: Task) {
        let (held, bytes) = needs;
        let number = self.next;
        self.next += 1;
        self.by_number.insert(number, Operation { op, held, bytes, task });
        self.bytes += bytes;
        if held.is_none_or(|inode| parts.handles.hold(parts.now, parts.locks, number, inode)) {
            self.go_on(parts, number, Input::Ready);
        }
    }

    /// The server has answered a command of an operation.
    pub fn on_reply(&mut self, parts: &mut Parts, number: u64, reply: FileReply) {
        self.go_on(parts, number, Input::Reply(reply));
    }

    /// A hostread or hostwrite of an operation has ended.
    pub fn on_io(&mut self, parts: &mut Parts, owner: IoOwner, result: IoResult) {
        match owner {
            IoOwner::Operation { op, index } => self.go_on(parts, op, Input::Io { index, result }),
            IoOwner::Batch(batch) => parts.packer.on_written(parts.allotment, batch, result, parts.progress),
        }
    }

    /// Tells operations what parts have for them. Returns true if there was something.
    pub fn take_progress(&mut self, parts: &mut Parts) -> bool {
        let mut progress = std::mem::take(parts.progress);
        progress.extend(parts.inodes.take_progress());
        progress.extend(parts.handles.take_progress());
        let ended = parts.packer.take_ended();
        let had_something = !progress.is_empty() || !ended.is_empty();
        for event in progress {
            match event {
                Progress::Ready(number) => self.go_on(parts, number, Input::Ready),
                Progress::Failed(number, error) => {
                    let step = match self.by_number.get_mut(&number).map(|operation| &mut operation.task) {
                        Some(Task::Write(task)) => task.fail(error),
                        Some(Task::Truncate(task)) => task.fail(error),
                        _ => Step::Failed(error),
                    };
                    self.end(parts, number, step);
                }
            }
        }
        for (number, result) in ended {
            self.go_on(parts, number, Input::Blocks(result));
        }
        had_something
    }

    /// The front end has lost interest in these operations. Those that have changed nothing end; the others end as usual.
    pub fn abandon(&mut self, parts: &mut Parts, ops: &[OpId]) {
        let ops: BTreeSet<_> = ops.iter().collect();
        let of = |operation: &Operation| {
            operation.op.is_some_and(|op| ops.contains(&op)) && operation.task.has_changed_nothing()
        };
        let numbers = self.by_number.iter().filter(|(_, operation)| of(operation)).map(|(number, _)| *number);
        for number in numbers.collect::<Vec<_>>() {
            self.end(parts, number, Step::Failed(HostError::Abandoned));
            parts.io.abandon_reads(number);
        }
    }

    /// Ends all operations: the host is fenced.
    pub fn end_all(&mut self, error: &HostError) {
        self.bytes = 0;
        let ended = std::mem::take(&mut self.by_number).into_values();
        self.ended.extend(ended.filter_map(|operation| Some((operation.op?, Err(error.clone())))));
    }

    /// Takes out the outcomes of operations that have ended.
    pub fn take_ended(&mut self) -> Vec<(OpId, HostOutcome)> {
        std::mem::take(&mut self.ended)
    }

    pub fn is_empty(&self) -> bool {
        self.by_number.is_empty()
    }

    /// The number of operations under way.
    pub fn len(&self) -> usize {
        self.by_number.len()
    }

    /// The bytes that the operations under way read and write.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn invariants(&self) {
        let bytes: usize = self.by_number.values().map(|operation| operation.bytes).sum();
        assert_eq!(self.bytes, bytes, "bytes are counted");
    }

    fn go_on(&mut self, parts: &mut Parts, number: u64, input: Input) {
        // An operation that was abandoned may still be told something.
        let Some(operation) = self.by_number.get_mut(&number) else { return };
        let step = match &mut operation.task {
            Task::Command(task) => task.go_on(parts, number, input),
            Task::Create(task) => task.go_on(parts, number, input),
            Task::Open(task) => task.go_on(parts, number, input),
            Task::Close(task) => task.go_on(parts, number),
            Task::Read(task) => task.go_on(parts, number, input),
            Task::Seek(task) => task.go_on(parts, number, input),
            Task::Follow(task) => task.go_on(parts, number, input),
            Task::Write(task) => task.go_on(parts, number, input),
            Task::Truncate(task) => task.go_on(parts, number, input),
        };
        self.end(parts, number, step);
    }

    /// Ends an operation, unless it waits.
    fn end(&mut self, parts: &mut Parts, number: u64, step: Step) {
        let outcome = match step {
            Step::Waits => return,
            Step::Done(success) => Ok(HostSuccess::Files(success)),
            Step::Failed(error) => Err(error),
        };
        let Some(operation) = self.by_number.remove(&number) else { return };
        self.bytes -= operation.bytes;
        self.ended.extend(operation.op.map(|op| (op, outcome)));
        parts.allotment.cancel(number, parts.progress);
        parts.inodes.leave(parts.now, parts.locks, parts.link, number);
        if let Some(inode) = operation.held {
            parts.handles.let_go(parts.now, parts.locks, number, inode);
        }
    }
}

impl Task {
    /// True if the operation can end at once, as if it had not begun.
    fn has_changed_nothing(&self) -> bool {
        match self {
            Task::Open(_) | Task::Read(_) | Task::Seek(_) | Task::Follow(_) => true,
            Task::Command(_) | Task::Create(_) | Task::Close(_) => false,
            Task::Write(task) => task.has_changed_nothing(),
            Task::Truncate(task) => task.has_changed_nothing(),
        }
    }
}

/// The bytes that a request reads or writes.
fn bytes_of(request: &FilesRequest) -> usize {
    match request {
        FilesRequest::Read { length, .. } | FilesRequest::ReadPages { length, .. } => *length,
        FilesRequest::Write { data, .. } | FilesRequest::Append { data, .. } => data.len(),
        _ => 0,
    }
}

/// The task of a request, and the inode whose existence it needs.
fn task(parts: &mut Parts, request: FilesRequest) -> Result<(Option<InodeId>, Task), HostError> {
    let inode_of = |handle: FileHandle| parts.handles.inode(handle).ok_or(HostError::Files(FilesError::NotOpen));
    let (inode, task) = match request {
        FilesRequest::Command(command) => return Ok((None, Task::Command(CommandTask::new(command)?))),
        FilesRequest::Sync { handle } => {
            let inode = inode_of(handle)?;
            (inode, Task::Command(CommandTask::sync(inode)))
        }
        FilesRequest::Create { .. } | FilesRequest::Open { .. } if !parts.handles.may_open() => {
            return Err(HostError::Busy);
        }
        FilesRequest::Create { parent, name, owner, mode } => {
            return Ok((None, Task::Create(CreateTask::new(parent, name, owner, mode)?)));
        }
        FilesRequest::Open { inode } => (inode, Task::Open(OpenTask::new(inode))),
        FilesRequest::Close { handle } => {
            let inode = inode_of(handle)?;
            // No later operation uses the handle. Those under way go on.
            parts.handles.close(handle);
            (inode, Task::Close(CloseTask::new(inode)))
        }
        FilesRequest::Read { length, .. } | FilesRequest::ReadPages { length, .. }
            if length > limits::FILE_IO_BYTES_MAX =>
        {
            return Err(HostError::OutOfRange);
        }
        FilesRequest::Read { handle, offset, length } => {
            let inode = inode_of(handle)?;
            (inode, Task::Read(ReadTask::new(inode, offset, length as u64, false)))
        }
        FilesRequest::ReadPages { handle, offset, length } => {
            let inode = inode_of(handle)?;
            (inode, Task::Read(ReadTask::new(inode, offset, length as u64, true)))
        }
        FilesRequest::NextData { handle, offset } => {
            let inode = inode_of(handle)?;
            (inode, Task::Seek(SeekTask::new(inode, offset)))
        }
        FilesRequest::Follow { handle } => {
            let inode = inode_of(handle)?;
            (inode, Task::Follow(FollowTask::new(inode, false, true)))
        }
        FilesRequest::Dropped { inode, follows } => {
            let follows = follows.is_some_and(|handle| parts.handles.inode(handle) == Some(inode));
            let task = Task::Follow(FollowTask::new(inode, true, follows));
            // Without an open file, the existence need not be held.
            return Ok((follows.then_some(inode), task));
        }
        FilesRequest::Write { data, .. } | FilesRequest::Append { data, .. }
            if data.len() > limits::FILE_IO_BYTES_MAX =>
        {
            return Err(HostError::OutOfRange);
        }
        FilesRequest::Write { handle, offset, data } => {
            let inode = inode_of(handle)?;
            (inode, Task::Write(WriteTask::new(inode, Some(offset), data)))
        }
        FilesRequest::Append { handle, data } => {
            let inode = inode_of(handle)?;
            (inode, Task::Write(WriteTask::new(inode, None, data)))
        }
        FilesRequest::Truncate { size, .. } if size > limits::FILE_BYTES_MAX => {
            return Err(HostError::Files(FilesError::Refused(FileError::TooLarge)));
        }
        FilesRequest::Truncate { inode, size } => (inode, Task::Truncate(TruncateTask::new(inode, size))),
        FilesRequest::Lock { .. }
        | FilesRequest::Unlock { .. }
        | FilesRequest::TestLock { .. }
        | FilesRequest::ReleaseOwner { .. } => unreachable!("advisory locks are served by their own part"),
        FilesRequest::StatShards | FilesRequest::AwaitRevocation => unreachable!("the client itself answers it"),
    };
    Ok((Some(inode), task))
}
