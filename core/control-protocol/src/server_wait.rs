//! The wait until the metadata servers of a file system have done something, as their leases say: they serve, are quiescent, or are gone.

use crate::contract::{Error, FileSystemTiming, Input};
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
    Pausing,
}

impl ServerWait {
    /// The wait until all servers are as awaited, or this time is over. They are looked at once at least.
    pub fn new(
        awaited: Awaited,
        shards: &[FileSystemId],
        timing: &FileSystemTiming,
        within: Duration,
        questions: &mut Questions,
    ) -> ServerWait {
        let step = Step::Looking(questions.command(Command::ListServers));
        let until = questions.after(within);
        ServerWait { shards: shards.to_vec(), awaited, step, pause: timing.pause, until }
    }

    /// Takes an input. Returns how the wait has ended: with the shards whose servers are not as awaited when time is up.
    pub fn step(&mut self, input: Input, questions: &mut Questions) -> Option<Result<Vec<FileSystemId>, Error>> {
        let (tag, answer) = match (self.step, input) {
            (Step::Pausing, Input::Wake) => {
                self.step = Step::Looking(questions.command(Command::ListServers));
                return None;
            }
            (Step::Looking(asked), Input::Answer { tag, answer }) if asked == tag => (tag, answer),
            _ => return None,
        };
        let open: Vec<FileSystemId> = match answer {
            Answer::Servers { leases, .. } => {
                let living = |shard| latest_server(&leases, shard).filter(|lease| lease.is_live);
                self.shards.iter().copied().filter(|shard| !self.awaited.is_so(living(*shard))).collect()
            }
            Answer::Unknown => self.shards.clone(),
            _ => return Some(Err(Error::Question(tag))),
        };
        if open.is_empty() || questions.now >= self.until {
            return Some(Ok(open));
        }
        self.step = Step::Pausing;
        questions.pause(self.pause);
        None
    }
}
