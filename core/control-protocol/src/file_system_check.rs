//! The check of a file system. The process that checks takes the place of the metadata servers meanwhile: a shard without a server does
//! not change. Announcements tell the servers of it.
//!
//! ```text
//!   several shards: announce Quiesce ─► all servers are quiescent ─┐
//!   one shard ───────────────────────────────────────────────────┴─► announce Check ─► servers release their shards, or time is up ─►
//!     examine each shard ─► was none owned since? ─► withdraw Check ─► servers serve again, or time is up ─► withdraw Quiesce
//! ```
//!
//! With several shards, a name may be in one and its inode in another, and one shard may have done its part of an operation when another one
//! has not. So nothing is examined unless all servers are quiescent. A server that does not release its shard is fenced by the take-over of
//! the process that examines it. If the process was suspended, servers may have served meanwhile: then the maps of the shards are of different
//! times, and the check is interrupted. If shards have no owner, another file system may have been released, for which the monitor keeps the
//! same number: then all shards are examined again. Whatever fails, all announcements are withdrawn.

use crate::contract::{Done, Effect, Error, FileSystemTiming, Input, Stage};
use crate::file_systems::Announcement;
use crate::interface::{Answer, Command, Question, Tag};
use crate::questions::Questions;
use crate::server_wait::{Awaited, ServerWait};
use braid_base::{FileSystemId, Ownership};
use braid_wire::OwnershipRequest;
use std::time::Duration;

/// How often all shards are examined again.
const REPEATS_MAX: u32 = 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystemCheck {
    shards: Vec<FileSystemId>,
    timing: FileSystemTiming,
    /// What is announced, or may be; the last one is withdrawn first.
    announced: Vec<Announcement>,
    /// All shards were served before the check.
    was_served: bool,
    /// The ownership of all examined shards after the last one was released: the monitor keeps one number for those without an owner.
    released: Ownership,
    repeats: u32,
    phase: Phase,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    New,
    /// Is a check under way?
    Inspecting(Tag),
    Announcing(Tag),
    AwaitingQuiescence(ServerWait),
    /// Are all shards served?
    Looking(ServerWait),
    AwaitingRelease(ServerWait),
    /// The shard of this number is examined.
    Examining(Tag, usize),
    /// Is the ownership of this shard as after the last release? So many are examined.
    Confirming(Tag, usize, usize),
    Withdrawing(Tag, Announcement, Result<Done, Error>),
    AwaitingServed(ServerWait, Result<Done, Error>),
    Ended,
}

impl FileSystemCheck {
    /// The check of a file system that is ready.
    pub fn of(shards: Vec<FileSystemId>, timing: FileSystemTiming) -> FileSystemCheck {
        let (announced, was_served, released, phase) = (Vec::new(), false, Ownership::default(), Phase::New);
        FileSystemCheck { shards, timing, announced, was_served, released, repeats: 0, phase }
    }

    pub(crate) fn step(&mut self, input: Input, questions: &mut Questions) {
        match (std::mem::replace(&mut self.phase, Phase::Ended), input) {
            (Phase::New, Input::Start) => self.phase = Phase::Inspecting(questions.command(Command::ListServers)),
            (_, Input::Start) => panic!("a check begins once"),
            (Phase::Inspecting(asked), Input::Answer { tag, answer }) if asked == tag => match answer {
                Answer::Servers { announced, .. } if !announced.is_empty() => questions.end(Err(Error::CheckUnderWay)),
                Answer::Servers { .. } if self.shards.len() > 1 => self.announce(Announcement::Quiesce, questions),
                Answer::Servers { .. } => self.look(questions),
                _ => questions.end(Err(Error::Question(tag))),
            },
            (Phase::Announcing(asked), Input::Answer { tag, answer }) if asked == tag => {
                match (answer, self.announced.last()) {
                    (Answer::Yes, Some(Announcement::Quiesce)) => {
                        let wait = self.wait(Awaited::Quiescent, self.timing.quiesce, questions);
                        self.phase = Phase::AwaitingQuiescence(wait);
                    }
                    (Answer::Yes, _) => {
                        let wait = self.wait(Awaited::Released, self.timing.release, questions);
                        self.phase = Phase::AwaitingRelease(wait);
                    }
                    _ => self.withdraw(Err(Error::Question(tag)), questions),
                }
            }
            (Phase::AwaitingQuiescence(mut wait), input) => match wait.step(input, questions) {
                None => self.phase = Phase::AwaitingQuiescence(wait),
                Some(Ok(open)) if open.is_empty() => self.look(questions),
                Some(Ok(open)) => self.withdraw(Err(Error::NotQuiescent(open)), questions),
                Some(Err(error)) => self.withdraw(Err(error), questions),
            },
            (Phase::Looking(mut wait), input) => match wait.step(input, questions) {
                None => self.phase = Phase::Looking(wait),
                Some(Ok(open)) => {
                    self.was_served = open.is_empty();
                    self.announce(Announcement::Check, questions);
                }
                Some(Err(error)) => self.withdraw(Err(error), questions),
            },
            (Phase::AwaitingRelease(mut wait), input) => match wait.step(input, questions) {
                None => self.phase = Phase::AwaitingRelease(wait),
                Some(Ok(_)) => self.examine(0, questions),
                Some(Err(error)) => self.withdraw(Err(error), questions),
            },
            (Phase::Examining(asked, shard), Input::Answer { tag, answer }) if asked == tag => match answer {
                Answer::Ownership(released) => {
                    self.released = released;
                    self.confirm(0, shard + 1, questions);
                }
                _ => self.withdraw(Err(Error::Question(tag)), questions),
            },
            (Phase::Confirming(asked, shard, examined), Input::Answer { tag, answer }) if asked == tag => {
                match answer {
                    Answer::Ownership(now) if now == self.released => self.confirm(shard + 1, examined, questions),
                    Answer::Ownership(now) if now.owner.is_none() && self.repeats < REPEATS_MAX => {
                        self.repeats += 1;
                        self.examine(0, questions);
                    }
                    Answer::Ownership(_) => self.withdraw(Err(Error::Interrupted), questions),
                    _ => self.withdraw(Err(Error::Question(tag)), questions),
                }
            }
            (Phase::Withdrawing(asked, announcement, result), Input::Answer { tag, .. }) if asked == tag => {
                if announcement == Announcement::Check && self.was_served {
                    let wait = self.wait(Awaited::Served, self.timing.serve, questions);
                    self.phase = Phase::AwaitingServed(wait, result);
                } else {
                    self.withdraw(result, questions);
                }
            }
            (Phase::AwaitingServed(mut wait, result), input) => match wait.step(input, questions) {
                None => self.phase = Phase::AwaitingServed(wait, result),
                Some(Ok(open)) => {
                    if !open.is_empty() {
                        questions.push(Effect::Began(Stage::Unserved));
                    }
                    self.withdraw(result, questions);
                }
                Some(Err(error)) => self.withdraw(Err(error), questions),
            },
            // The answer to a question that is no longer waited for.
            (phase, _) => self.phase = phase,
        }
    }

    fn announce(&mut self, announcement: Announcement, questions: &mut Questions) {
        // Also if the answer is lost, it is withdrawn.
        self.announced.push(announcement);
        self.phase = Phase::Announcing(questions.ask(Question::Announce(announcement)));
    }

    fn look(&mut self, questions: &mut Questions) {
        self.phase = Phase::Looking(self.wait(Awaited::Served, Duration::ZERO, questions));
    }

    fn wait(&self, awaited: Awaited, within: Duration, questions: &mut Questions) -> ServerWait {
        ServerWait::new(awaited, &self.shards, &self.timing, within, questions)
    }

    fn examine(&mut self, shard: usize, questions: &mut Questions) {
        if shard == self.shards.len() {
            return self.withdraw(Ok(Done::Nothing), questions);
        }
        self.phase = Phase::Examining(questions.ask(Question::Examine { shard }), shard);
    }

    /// Makes sure that no examined shard was owned since the last release. A single shard was examined by the process that owned it.
    fn confirm(&mut self, shard: usize, examined: usize, questions: &mut Questions) {
        if shard == examined || self.shards.len() == 1 {
            return self.examine(examined, questions);
        }
        let question = Question::Ownership { file_system: self.shards[shard], request: OwnershipRequest::Inquire };
        self.phase = Phase::Confirming(questions.ask(question), shard, examined);
    }

    /// Withdraws what is announced, and ends.
    fn withdraw(&mut self, result: Result<Done, Error>, questions: &mut Questions) {
        match self.announced.pop() {
            Some(announcement) => {
                let asked = questions.ask(Question::Withdraw(announcement));
                self.phase = Phase::Withdrawing(asked, announcement, result);
            }
            None => questions.end(result),
        }
    }
}
