//! A disk engine keeps many disk commands in flight. There are two engines; one is chosen at the start.

use super::Disk;
use super::threads::Threads;
use super::uring::Uring;
use crate::counters::{Counters, add};
use braid_base::{ResponseTime, Time};
use braid_machine::{DiskCommand, DiskResult, DiskTag};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Context;

/// The choice of the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineChoice {
    /// io_uring; threads if the kernel refuses it.
    #[default]
    Automatic,
    /// io_uring, or an error.
    Uring,
    /// A pool of threads.
    Threads,
}

/// A disk with commands in flight. [`Engine::push`] collects commands, [`Engine::submit`] starts them.
pub(crate) struct Engine {
    kind: Kind,
    in_flight: usize,
    response_time: ResponseTime,
    counters: Arc<Counters>,
}

enum Kind {
    Uring(Box<Uring>),
    Threads(Threads),
}

impl Engine {
    /// Starts an engine. To be called within a tokio runtime.
    pub fn start(disk: Disk, choice: EngineChoice, counters: Arc<Counters>) -> io::Result<Engine> {
        let path = disk.path().display().to_string();
        let disk = Arc::new(disk);
        let kind = match choice {
            EngineChoice::Threads => Kind::Threads(Threads::start(disk)?),
            EngineChoice::Uring => Kind::Uring(Box::new(Uring::start(disk, counters.clone())?)),
            EngineChoice::Automatic => match Uring::start(disk.clone(), counters.clone()) {
                Ok(uring) => Kind::Uring(Box::new(uring)),
                Err(error) => {
                    tracing::warn!(
                        "{path}: disk commands use a pool of threads, because the kernel refuses io_uring ({error})"
                    );
                    Kind::Threads(Threads::start(disk)?)
                }
            },
        };
        match &kind {
            Kind::Uring(_) => tracing::info!("{path}: disk commands use io_uring"),
            Kind::Threads(_) => tracing::info!("{path}: disk commands use a pool of threads"),
        }
        Ok(Engine { kind, in_flight: 0, response_time: ResponseTime::default(), counters })
    }

    /// Adds a command; [`Engine::submit`] starts it.
    pub fn push(&mut self, tag: DiskTag, command: DiskCommand) {
        self.in_flight += 1;
        add(&self.counters.disk_commands, 1);
        match &mut self.kind {
            Kind::Uring(uring) => uring.push(tag, command),
            Kind::Threads(threads) => threads.push(tag, command),
        }
    }

    /// Starts the commands that were pushed.
    pub fn submit(&mut self, now: Time) -> io::Result<()> {
        if self.in_flight > 0 {
            self.response_time.asked(now);
        } else if self.response_time.forget_old(now) {
            self.counters.disk_response_micros.store(0, Relaxed);
        }
        match &mut self.kind {
            Kind::Uring(uring) => uring.submit(),
            Kind::Threads(threads) => {
                threads.submit();
                Ok(())
            }
        }
    }

    /// Appends completed commands to `done`; wakes `cx` when more have completed.
    pub fn poll_take(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        done: &mut Vec<(DiskTag, DiskResult)>,
    ) -> io::Result<()> {
        let before = done.len();
        match &mut self.kind {
            Kind::Uring(uring) => uring.poll_take(cx, done)?,
            Kind::Threads(threads) => threads.poll_take(cx, done),
        }
        self.in_flight -= done.len() - before;
        if done.len() > before {
            self.response_time.answered(now);
            let mean = self.response_time.mean().unwrap_or_default();
            self.counters.disk_response_micros.store(mean.as_micros() as u64, Relaxed);
        }
        Ok(())
    }

    /// Commands pushed and not yet completed.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }
}
