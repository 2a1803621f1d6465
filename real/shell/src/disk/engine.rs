//! A disk engine keeps many disk commands in flight. There are two engines; one is chosen at the start.

use super::Disk;
use super::threads::Threads;
use super::uring::Uring;
use crate::counters::{Counters, add};
use braid_machine::{DiskCommand, DiskResult, DiskTag};
use std::io;
use std::sync::Arc;
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
        Ok(Engine { kind, in_flight: 0, counters })
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
    pub fn submit(&mut self) -> io::Result<()> {
        match &mut self.kind {
            Kind::Uring(uring) => uring.submit(),
            Kind::Threads(threads) => {
                threads.submit();
                Ok(())
            }
        }
    }

    /// Appends completed commands to `done`; wakes `cx` when more have completed.
    pub fn poll_take(&mut self, cx: &mut Context<'_>, done: &mut Vec<(DiskTag, DiskResult)>) -> io::Result<()> {
        let before = done.len();
        match &mut self.kind {
            Kind::Uring(uring) => uring.poll_take(cx, done)?,
            Kind::Threads(threads) => threads.poll_take(cx, done),
        }
        self.in_flight -= done.len() - before;
        Ok(())
    }

    /// Commands pushed and not yet completed.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }
}
