//! The deletion of a file system with its volumes. A deletion that was begun is completed, by its administrator or by another one. Several
//! may do it at a time: each step is done once, or finds that it is done.
//!
//! ```text
//!   marking: Deleting ─► servers release it, or are fenced ─► the volumes are deleted ─► fenced again ─► removing: no record
//! ```
//!
//! A metadata server ends when the record says `Deleting`. One that read the record before may take over as long as the volumes exist. So
//! owners are fenced again when no volume is left.
//!
//! A file system that another administrator creates is left to it while it lives; a dead one is fenced first (`turns`).

use crate::contract::{Done, Effect, Error, FileSystemTiming, Input, Stage};
use crate::disowning::Disowning;
use crate::file_systems::{FileSystemRecord, FileSystemState};
use crate::interface::{Answer, Command, Question, Tag};
use crate::questions::Questions;
use crate::record::Version;
use crate::server_wait::{Awaited, ServerWait};
use crate::turns::{Turn, TurnEnd};
use braid_base::{FileSystemId, Generation, Time};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystemDeletion {
    own: Generation,
    goal: Goal,
    timing: FileSystemTiming,
    /// Its shards, once they are known.
    shards: Vec<FileSystemId>,
    /// The administrator of its creation, which was fenced.
    fenced: Option<Generation>,
    /// One that lives is waited for until then.
    turn_until: Time,
    /// Lost answers of the store are made up for until then.
    until: Time,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goal {
    /// To delete the file system, whatever its state is.
    Delete,
    /// To complete a deletion that has begun.
    Continue,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    New,
    /// It reads the record, to do this.
    Reading(Tag, Next),
    /// For the administrator that creates it.
    Waiting(Turn),
    /// The record is to say that the file system is being deleted.
    Marking(Tag),
    AwaitingRelease(ServerWait),
    /// This follows.
    Disowning(Disowning, Next),
    DeletingVolume(Tag),
    /// There is to be no record.
    Removing(Tag),
    Ended,
}

/// What is done next with the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Mark,
    DeleteVolumes,
    Remove,
}

impl FileSystemDeletion {
    /// The deletion by `own` of a file system.
    pub fn of(own: Generation, timing: FileSystemTiming) -> FileSystemDeletion {
        FileSystemDeletion::new(own, Goal::Delete, timing)
    }

    /// The operation of `own` that completes a deletion.
    pub fn continuing(own: Generation, timing: FileSystemTiming) -> FileSystemDeletion {
        FileSystemDeletion::new(own, Goal::Continue, timing)
    }

    fn new(own: Generation, goal: Goal, timing: FileSystemTiming) -> FileSystemDeletion {
        FileSystemDeletion {
            own,
            goal,
            timing,
            shards: Vec::new(),
            fenced: None,
            turn_until: Time(0),
            until: Time(0),
            phase: Phase::New,
        }
    }

    pub(crate) fn step(&mut self, input: Input, questions: &mut Questions) {
        match (std::mem::replace(&mut self.phase, Phase::Ended), input) {
            (Phase::New, Input::Start) => {
                self.turn_until = questions.after(self.timing.turn);
                self.read(Next::Mark, questions);
            }
            (_, Input::Start) => panic!("a deletion begins once"),
            (Phase::Reading(asked, next), Input::Answer { tag, answer }) if asked == tag => match answer {
                Answer::FileSystem { version, record } => self.on_record(next, version, record, questions),
                answer => self.on_failure(tag, &answer, next, questions),
            },
            (Phase::Waiting(mut turn), input) => match turn.step(self.turn_until, input, questions) {
                None => self.phase = Phase::Waiting(turn),
                Some(Ok(TurnEnd::Look)) => self.read(Next::Mark, questions),
                Some(Ok(TurnEnd::Over(by))) => {
                    self.fenced = Some(by);
                    self.read(Next::Mark, questions);
                }
                Some(Err(error)) => questions.end(Err(error)),
            },
            (Phase::Marking(asked), Input::Answer { tag, answer }) if asked == tag => match answer {
                Answer::Replaced { .. } => self.await_release(questions),
                answer => self.on_failure(tag, &answer, Next::Mark, questions),
            },
            (Phase::AwaitingRelease(mut wait), input) => match wait.step(input, questions) {
                None => self.phase = Phase::AwaitingRelease(wait),
                Some(Ok(open)) => {
                    if !open.is_empty() {
                        questions.push(Effect::Began(Stage::FencingServers));
                    }
                    self.disown(Next::DeleteVolumes, questions);
                }
                Some(Err(error)) => questions.end(Err(error)),
            },
            (Phase::Disowning(mut disowning, next), input) => match disowning.step(input, questions) {
                None => self.phase = Phase::Disowning(disowning, next),
                Some(Ok(())) => self.read(next, questions),
                Some(Err(error)) => questions.end(Err(error)),
            },
            (Phase::DeletingVolume(asked), Input::Answer { tag, answer }) if asked == tag => match answer {
                Answer::Yes => self.read(Next::DeleteVolumes, questions),
                _ => questions.end(Err(Error::Question(tag))),
            },
            (Phase::Removing(asked), Input::Answer { tag, answer }) if asked == tag => match answer {
                Answer::Replaced { .. } => questions.end(Ok(Done::Changed)),
                answer => self.on_failure(tag, &answer, Next::Remove, questions),
            },
            // The answer to a question that is no longer waited for.
            (phase, _) => self.phase = phase,
        }
    }

    fn on_record(&mut self, next: Next, version: Version, record: Option<FileSystemRecord>, questions: &mut Questions) {
        let Some(FileSystemRecord { servers, volumes, state }) = record else {
            let is_unknown = next == Next::Mark && self.shards.is_empty() && self.goal == Goal::Delete;
            // Otherwise another administrator has completed the deletion.
            return questions.end(if is_unknown { Err(Error::NoFileSystem) } else { Ok(Done::Nothing) });
        };
        self.shards = servers;
        match (next, state, volumes.last()) {
            (Next::Mark, FileSystemState::Deleting, _) => self.await_release(questions),
            (Next::Mark, ..) if self.goal == Goal::Continue => questions.end(Ok(Done::Nothing)),
            (Next::Mark, FileSystemState::Creating { by }, _) if self.fenced != Some(by) => {
                self.phase = Phase::Waiting(Turn::new(by, questions));
            }
            (Next::Mark, ..) => {
                let command = Command::ReplaceFileSystem { after: version, state: FileSystemState::Deleting };
                self.phase = Phase::Marking(questions.command(command));
            }
            (_, FileSystemState::Creating { .. } | FileSystemState::Ready, _) => questions.end(Err(Error::Lost)),
            (_, FileSystemState::Deleting, Some(volume)) => {
                self.phase = Phase::DeletingVolume(questions.ask(Question::DeleteVolume { volume: *volume }));
            }
            (Next::DeleteVolumes, FileSystemState::Deleting, None) => self.disown(Next::Remove, questions),
            (Next::Remove, FileSystemState::Deleting, None) => {
                self.phase = Phase::Removing(questions.command(Command::RemoveFileSystem { after: version }));
            }
        }
    }

    /// The description has changed since, or the answer is lost.
    fn on_failure(&mut self, tag: Tag, answer: &Answer, next: Next, questions: &mut Questions) {
        match answer {
            Answer::Superseded => self.read(next, questions),
            Answer::Unknown if questions.now < self.until => self.read_again(next, questions),
            _ => questions.end(Err(Error::Question(tag))),
        }
    }

    fn read(&mut self, next: Next, questions: &mut Questions) {
        self.until = questions.after(self.timing.store);
        self.read_again(next, questions);
    }

    fn read_again(&mut self, next: Next, questions: &mut Questions) {
        self.phase = Phase::Reading(questions.command(Command::ReadFileSystem), next);
    }

    fn await_release(&mut self, questions: &mut Questions) {
        let wait = ServerWait::new(Awaited::Released, &self.shards, &self.timing, self.timing.release, questions);
        self.phase = Phase::AwaitingRelease(wait);
    }

    fn disown(&mut self, next: Next, questions: &mut Questions) {
        self.phase = Phase::Disowning(Disowning::new(self.own, &self.shards, questions), next);
    }
}
