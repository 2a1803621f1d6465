//! Disk commands through io_uring, in the thread of the machine's driver: one system call submits all commands of a wake-up, and
//! completions wake the driver.

use super::read_buffer::ReadBuffer;
use super::{DRAIN_MAX, DRAIN_PAUSE, Disk};
use crate::counters::{Counters, add};
use braid_machine::{DiskCommand, DiskResult, DiskTag};
use bytes::Bytes;
use io_uring::types::{Fd, FsyncFlags};
use io_uring::{IoUring, opcode, squeue};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, ReadWriteFlags};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The most commands submitted in one system call.
const SUBMISSIONS: u32 = 256;
/// The most commands in the kernel at the same time; further commands wait here.
const IN_KERNEL_MAX: usize = 1024;

pub(super) struct Uring {
    uring: IoUring,
    /// Readable when there are completions, or when the kernel must be entered to process some.
    event: AsyncFd<OwnedFd>,
    /// The commands in the kernel, by the number that their completions carry. Owns every buffer that the kernel may access.
    operations: Vec<Option<Operation>>,
    vacant: Vec<usize>,
    in_kernel: usize,
    waiting: VecDeque<Operation>,
    ended: Vec<(DiskTag, DiskResult)>,
    disk: Arc<Disk>,
    counters: Arc<Counters>,
}

/// A command and its progress. Its buffers do not move in memory when the operation is moved.
struct Operation {
    tag: DiskTag,
    work: Work,
}

enum Work {
    Read { offset: u64, buffer: ReadBuffer },
    Write { offset: u64, parts: Vec<Bytes>, slices: Vec<IoSlice<'static>>, durable: bool },
    Sync,
    Reserve { offset: u64, length: u64 },
}

impl Uring {
    pub fn start(disk: Arc<Disk>, counters: Arc<Counters>) -> io::Result<Uring> {
        let uring = build()?;
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        uring.submitter().register_eventfd(event.as_raw_fd())?;
        let mut known = io_uring::Probe::new();
        uring.submitter().register_probe(&mut known)?;
        let needed = [opcode::Read::CODE, opcode::Write::CODE, opcode::Writev::CODE, opcode::Fallocate::CODE];
        if !needed.iter().all(|code| known.is_supported(*code)) {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "this kernel's io_uring is too old"));
        }
        // SAFETY: the descriptor is valid for the lifetime of this object, which alone closes it when dropped.
        #[allow(unsafe_code)]
        let event = unsafe { AsyncFd::register_with_interest(event, Interest::READABLE) }?;
        Ok(Uring {
            uring,
            event,
            operations: Vec::new(),
            vacant: Vec::new(),
            in_kernel: 0,
            waiting: VecDeque::new(),
            ended: Vec::new(),
            disk,
            counters,
        })
    }

    pub fn push(&mut self, tag: DiskTag, command: DiskCommand) {
        let work = match command {
            DiskCommand::Read { offset, length } => Work::Read { offset, buffer: ReadBuffer::new(length) },
            DiskCommand::Write { offset, data, durable } => {
                Work::Write { offset, parts: self.disk.writable(data), slices: Vec::new(), durable }
            }
            DiskCommand::Sync => Work::Sync,
            DiskCommand::Reserve { offset, length } => {
                let length = if self.disk.needs_no_reserve(offset, length) { 0 } else { length };
                Work::Reserve { offset, length }
            }
        };
        let operation = Operation { tag, work };
        match operation.work.is_finished() {
            true => self.end(operation, Ok(())),
            false => self.waiting.push_back(operation),
        }
    }

    pub fn submit(&mut self) -> io::Result<()> {
        while let Some(mut operation) = self.waiting.pop_front() {
            if self.in_kernel == IN_KERNEL_MAX {
                self.waiting.push_front(operation);
                break;
            }
            let number = self.vacant.pop().unwrap_or_else(|| {
                self.operations.push(None);
                self.operations.len() - 1
            });
            let entry = operation.work.entry(Fd(self.disk.file.as_raw_fd())).user_data(number as u64);
            self.operations[number] = Some(operation);
            self.in_kernel += 1;
            if self.uring.submission().is_full() {
                self.enter(0)?;
            }
            // SAFETY: the descriptor belongs to `self.disk`; every buffer that the entry points to is owned by `self.operations[number]`,
            // which stays until the kernel has completed it (see `take` and `drop`).
            #[allow(unsafe_code)]
            let pushed = unsafe { self.uring.submission().push(&entry) };
            pushed.expect("entering the kernel has made room");
        }
        if self.uring.submission().is_empty() { Ok(()) } else { self.enter(0) }
    }

    pub fn poll_take(&mut self, cx: &mut Context<'_>, done: &mut Vec<(DiskTag, DiskResult)>) -> io::Result<()> {
        // The readiness is cleared before the completions are read, so that no completion is missed in between.
        while let Poll::Ready(ready) = self.event.poll_read_ready(cx) {
            ready?.clear_ready();
        }
        self.take(done)
    }

    fn take(&mut self, done: &mut Vec<(DiskTag, DiskResult)>) -> io::Result<()> {
        let mut asked = false;
        loop {
            let Some(completion) = self.uring.completion().next() else {
                // One system call processes a limited number of completions. The kernel sets the flag that there are more after it has
                // posted them, so that we may have taken them already; the flag then stays set until the next ones. Every completion
                // signals the event descriptor.
                if asked || !self.uring.submission().taskrun() {
                    break;
                }
                self.enter(0)?;
                asked = true;
                continue;
            };
            asked = false;
            let number = completion.user_data() as usize;
            let mut operation = self.operations[number].take().expect("the kernel completes each command once");
            self.vacant.push(number);
            self.in_kernel -= 1;
            let progress = match completion.result() {
                count @ 0.. => operation.work.advance(&self.disk, count as usize),
                error => Err(Errno::from_raw_os_error(-error)),
            };
            match progress {
                Ok(false) | Err(Errno::INTR | Errno::AGAIN) => self.waiting.push_front(operation),
                Ok(true) => self.end(operation, Ok(())),
                Err(error) => self.end(operation, Err(error)),
            }
        }
        done.append(&mut self.ended);
        Ok(())
    }

    /// Submits the pending commands, and waits for `completions`.
    fn enter(&mut self, completions: usize) -> io::Result<()> {
        loop {
            add(&self.counters.ring_enters, 1);
            match self.uring.submit_and_wait(completions) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The kernel is short of memory, or its completion queue is full: nothing is lost, so retry.
                Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::AGAIN | Errno::BUSY)) => {
                    std::thread::yield_now();
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn end(&mut self, operation: Operation, ended: Result<(), Errno>) {
        let disk = &self.disk;
        let result = match operation.work {
            Work::Read { offset, buffer, .. } => {
                DiskResult::Read(ended.map(|()| buffer.freeze()).map_err(|error| disk.error("read", offset, error)))
            }
            Work::Write { offset, .. } => DiskResult::Done(ended.map_err(|error| disk.error("write", offset, error))),
            Work::Sync => DiskResult::Done(ended.map_err(|error| disk.error("sync", 0, error))),
            Work::Reserve { offset, .. } => {
                DiskResult::Done(ended.map_err(|error| disk.error("reserve", offset, error)))
            }
        };
        self.ended.push((operation.tag, result));
    }
}

impl Drop for Uring {
    /// Waits a moment until the kernel no longer accesses any buffer. A disk that hangs may never answer, and this thread may serve other
    /// devices: then the buffers are leaked. What the kernel still does keeps the file open, and so locked, until it is done.
    fn drop(&mut self) {
        let (mut ended, begun) = (Vec::new(), Instant::now());
        self.waiting.clear();
        while self.in_kernel > 0 {
            let entered = self.enter(0).and_then(|()| self.take(&mut ended));
            self.waiting.clear();
            if entered.is_err() || (self.in_kernel > 0 && begun.elapsed() > DRAIN_MAX) {
                let path = self.disk.path().display();
                tracing::error!("{path}: {} disk commands don't end; their buffers are leaked", self.in_kernel);
                std::mem::forget(std::mem::take(&mut self.operations));
                return;
            }
            if self.in_kernel > 0 {
                std::thread::sleep(DRAIN_PAUSE);
            }
        }
    }
}

/// Where the kernel supports it (6.1 and later), this thread processes completions when it enters the kernel, and is not interrupted
/// by them.
fn build() -> io::Result<IoUring> {
    let plain = || {
        let mut builder = IoUring::builder();
        builder.setup_cqsize(IN_KERNEL_MAX as u32);
        builder
    };
    let deferred = plain().setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().build(SUBMISSIONS);
    deferred.or_else(|_| plain().build(SUBMISSIONS))
}

impl Work {
    /// True if no part of the command is left to do.
    fn is_finished(&self) -> bool {
        match self {
            Work::Read { buffer, .. } => buffer.is_full(),
            Work::Write { parts, .. } => parts.is_empty(),
            Work::Sync => false,
            Work::Reserve { length, .. } => *length == 0,
        }
    }

    /// Records that the kernel has transferred `count` bytes. Returns true if the command is complete.
    fn advance(&mut self, disk: &Disk, count: usize) -> Result<bool, Errno> {
        match self {
            Work::Read { buffer, .. } => {
                // SAFETY: the kernel has written this many bytes, starting at the address in `entry`.
                #[allow(unsafe_code)]
                unsafe {
                    buffer.filled(count);
                }
                if disk.ends_after(count, buffer.len())? {
                    buffer.fill_with_zeros();
                    return Ok(true);
                }
            }
            Work::Write { offset, parts, .. } => {
                disk.advance(parts, count)?;
                *offset += count as u64;
            }
            Work::Sync => return Ok(true),
            Work::Reserve { length, .. } => *length = 0,
        }
        Ok(self.is_finished())
    }

    /// The io_uring entry for the rest of the command.
    fn entry(&mut self, disk: Fd) -> squeue::Entry {
        match self {
            Work::Read { offset, buffer } => {
                let begins = *offset + buffer.len() as u64;
                let rest = buffer.rest();
                let length = u32::try_from(rest.len()).expect("a read is shorter than 4 GiB");
                opcode::Read::new(disk, rest.as_mut_ptr().cast(), length).offset(begins).build()
            }
            Work::Write { offset, parts, slices, durable } => {
                let flags = if *durable { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
                let flags = flags.bits() as i32;
                if let [only] = &parts[..] {
                    let length = u32::try_from(only.len()).expect("a write is shorter than 4 GiB");
                    return opcode::Write::new(disk, only.as_ptr(), length).offset(*offset).rw_flags(flags).build();
                }
                slices.clear();
                slices.extend(parts.iter().map(|part| {
                    // SAFETY: the slice lives as long as `parts` beside it; both are released together.
                    #[allow(unsafe_code)]
                    IoSlice::new(unsafe { std::slice::from_raw_parts(part.as_ptr(), part.len()) })
                }));
                // `IoSlice` is guaranteed to have the layout of the system's `iovec`.
                opcode::Writev::new(disk, slices.as_ptr().cast(), slices.len() as u32)
                    .offset(*offset)
                    .rw_flags(flags)
                    .build()
            }
            Work::Sync => opcode::Fsync::new(disk).flags(FsyncFlags::DATASYNC).build(),
            Work::Reserve { offset, length } => opcode::Fallocate::new(disk, *length).offset(*offset).build(),
        }
    }
}
