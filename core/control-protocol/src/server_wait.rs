//! The wait until the metadata servers of a file system have done something, as their leases say: they serve, are quiescent, or are gone.

use crate::contract::FileSystemTiming;
use crate::file_systems::{ServerLease, latest_server};
use crate::interface::{Answer, Command, Tag};
use crate::questions::Questions;
use braid_base::{FileSystemId, Time};
use std::time::Duration;

/// What metadata servers are to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// Each shard is served.
    Served,
    /// Each server is quiescent.
    Quiescent,
    /// No shard has a server.
    Released,
}

impl Awaited {
    fn is_so(self, lease: Option<&ServerLease>) -> bool {
        match self {
            Awaited::Served => lease.is_some_and(|lease| lease.serves),
            Awaited::Quiescent => lease.is_some_and(|lease| lease.quiescent),
            Awaited::Released => lease.is_none(),
        }
    }
}

/// The wait for the metadata servers of a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerWait {
    shards: Vec<FileSystemId>,
    awaited: Awaited,
    step: Step,
    pause: Duration,
    until: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Looking(Tag),
    Pausing(Time),
}

/// How the wait ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServerWaitEnd {
    Reached,
    /// Time is up. The servers of these shards are not as awaited.
    TimedOut(Vec<FileSystemId>),
    /// The question of this tag has failed.
    Failed(Tag),
}

impl ServerWait {
    /// The wait until all servers are as awaited, or this time. They are looked at once at least.
    pub fn new(
        awaited: Awaited,
        shards: &[FileSystemId],
        timing: &FileSystemTiming,
        until: Time,
        questions: &mut Questions,
    ) -> ServerWait {
        let step = Step::Looking(questions.command(Command::ListServers));
        ServerWait { shards: shards.to_vec(), awaited, step, pause: timing.pause, until }
    }

    pub fn deadline(&self) -> Option<Time> {
        match self.step {
            Step::Looking(_) => None,
            Step::Pausing(at) => Some(at),
        }
    }

    pub fn on_wake(&mut self, now: Time, questions: &mut Questions) {
        if self.deadline().is_some_and(|at| at <= now) {
            self.step = Step::Looking(questions.command(Command::ListServers));
        }
    }

    pub fn on_answer(&mut self, now: Time, tag: Tag, answer: Answer) -> Option<ServerWaitEnd> {
        if self.step != Step::Looking(tag) {
            return None;
        }
        let open: Vec<FileSystemId> = match answer {
            Answer::Servers { leases, .. } => {
                let living = |shard| latest_server(&leases, shard).filter(|lease| lease.is_live);
                self.shards.iter().copied().filter(|shard| !self.awaited.is_so(living(*shard))).collect()
            }
            Answer::Unknown => self.shards.clone(),
            _ => return Some(ServerWaitEnd::Failed(tag)),
        };
        match () {
            () if open.is_empty() => Some(ServerWaitEnd::Reached),
            () if now >= self.until => Some(ServerWaitEnd::TimedOut(open)),
            () => {
                self.step = Step::Pausing(now.after(self.pause));
                None
            }
        }
    }
}
