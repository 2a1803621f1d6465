//! Disk commands through a pool of threads, for kernels that refuse io_uring.

use super::{DRAIN_MAX, DRAIN_PAUSE, Disk};
use braid_machine::{DiskCommand, DiskResult, DiskTag};
use bytes::Bytes;
use futures_util::task::AtomicWaker;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Context;
use std::thread::JoinHandle;
use std::time::Instant;

/// Commands executed at the same time.
const THREADS: usize = 8;

pub(super) struct Threads {
    shared: Arc<Shared>,
    pushed: Vec<(DiskTag, DiskCommand)>,
    workers: Vec<JoinHandle<()>>,
}

struct Shared {
    disk: Arc<Disk>,
    queue: Mutex<Queue>,
    work: Condvar,
    /// Completed commands, with the written buffers: their memory is returned to the thread that allocated it, which reuses it.
    done: Mutex<Vec<(DiskTag, DiskResult, Vec<Bytes>)>>,
    driver: AtomicWaker,
}

#[derive(Default)]
struct Queue {
    commands: VecDeque<(DiskTag, DiskCommand)>,
    closed: bool,
}

impl Threads {
    pub fn start(disk: Arc<Disk>) -> io::Result<Threads> {
        let shared = Arc::new(Shared {
            disk,
            queue: Mutex::default(),
            work: Condvar::new(),
            done: Mutex::default(),
            driver: AtomicWaker::new(),
        });
        let mut threads = Threads { shared, pushed: Vec::new(), workers: Vec::new() };
        for number in 0..THREADS {
            let shared = threads.shared.clone();
            let builder = std::thread::Builder::new().name(format!("disk-{number}"));
            threads.workers.push(builder.spawn(move || shared.work())?);
        }
        Ok(threads)
    }

    pub fn push(&mut self, tag: DiskTag, command: DiskCommand) {
        self.pushed.push((tag, command));
    }

    pub fn submit(&mut self) {
        let count = self.pushed.len();
        held(&self.shared.queue).commands.extend(self.pushed.drain(..));
        for _ in 0..count.min(THREADS) {
            self.shared.work.notify_one();
        }
    }

    pub fn poll_take(&mut self, cx: &mut Context<'_>, done: &mut Vec<(DiskTag, DiskResult)>) {
        // Registered before the check, so that no completion is missed in between.
        self.shared.driver.register(cx.waker());
        done.extend(held(&self.shared.done).drain(..).map(|(tag, result, _)| (tag, result)));
    }
}

impl Drop for Threads {
    /// Performs all submitted commands, and waits a moment for that. A disk that hangs may never answer: then its threads go on alone, and keep
    /// the file open, and so locked.
    fn drop(&mut self) {
        held(&self.shared.queue).closed = true;
        self.shared.work.notify_all();
        let begun = Instant::now();
        for worker in self.workers.drain(..) {
            while !worker.is_finished() && begun.elapsed() < DRAIN_MAX {
                std::thread::sleep(DRAIN_PAUSE);
            }
        }
    }
}

impl Shared {
    fn work(&self) {
        while let Some((tag, command)) = self.next() {
            let written = match &command {
                DiskCommand::Write { data, .. } => data.clone(),
                _ => Vec::new(),
            };
            let result = self.disk.perform(command);
            held(&self.done).push((tag, result, written));
            self.driver.wake();
        }
    }

    fn next(&self) -> Option<(DiskTag, DiskCommand)> {
        let mut queue = held(&self.queue);
        loop {
            match queue.commands.pop_front() {
                Some(command) => return Some(command),
                None if queue.closed => return None,
                None => queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
