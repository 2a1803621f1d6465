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
use crate::server_wait::{Awaited, ServerWait, ServerWaitEnd};
use crate::turns::{Turn, TurnEnd};
use braid_base::{FileSystemId, Generation, Time};

/// A deletion, and its state.
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

    /// The time of the next [`Input::Wake`].
    pub(crate) fn deadline(&self) -> Option<Time> {
        match &self.phase {
            Phase::AwaitingRelease(wait) => wait.deadline(),
            Phase::Waiting(turn) => turn.deadline(),
            _ => None,
        }
    }

    /// Takes one input.
    pub(crate) fn step(&mut self, now: Time, input: Input, questions: &mut Questions) {
        match input {
            Input::Start => {
                assert_eq!(self.phase, Phase::New, "a deletion begins once");
                self.turn_until = now.after(self.timing.turn);
                self.read(now, Next::Mark, questions);
            }
            Input::Answer { tag, answer } => self.on_answer(now, tag, answer, questions),
            Input::Wake => match &mut self.phase {
                Phase::AwaitingRelease(wait) => wait.on_wake(now, questions),
                Phase::Waiting(turn) if turn.on_wake(now).is_some() => self.read(now, Next::Mark, questions),
                _ => {}
            },
        }
    }

    fn on_answer(&mut self, now: Time, tag: Tag, answer: Answer, questions: &mut Questions) {
        match std::mem::replace(&mut self.phase, Phase::Ended) {
            Phase::Reading(asked, next) if asked == tag => match answer {
                Answer::FileSystem { version, record } => self.on_record(now, next, version, record, questions),
                Answer::Unknown if now < self.until => self.read_again(next, questions),
                _ => self.end(Err(Error::Question(tag)), questions),
            },
            Phase::Waiting(mut turn) => match turn.on_answer(now, self.turn_until, tag, answer, questions) {
                None => self.phase = Phase::Waiting(turn),
                Some(TurnEnd::Look) => self.read(now, Next::Mark, questions),
                Some(TurnEnd::Busy(by)) => self.end(Err(Error::Held(by)), questions),
                Some(TurnEnd::Over(by)) => {
                    self.fenced = Some(by);
                    self.read(now, Next::Mark, questions);
                }
                Some(TurnEnd::Failed(tag)) => self.end(Err(Error::Question(tag)), questions),
            },
            Phase::Marking(asked) if asked == tag => match answer {
                Answer::Replaced { .. } => self.await_release(now, questions),
                answer => self.on_unreplaced(now, tag, &answer, Next::Mark, questions),
            },
            Phase::AwaitingRelease(mut wait) => match wait.on_answer(now, tag, answer) {
                None => self.phase = Phase::AwaitingRelease(wait),
                Some(ServerWaitEnd::Reached) => self.disown(Next::DeleteVolumes, questions),
                Some(ServerWaitEnd::TimedOut(_)) => {
                    questions.push(Effect::Began(Stage::FencingServers));
                    self.disown(Next::DeleteVolumes, questions);
                }
                Some(ServerWaitEnd::Failed(tag)) => self.end(Err(Error::Question(tag)), questions),
            },
            Phase::Disowning(mut disowning, next) => match disowning.on_answer(tag, &answer, questions) {
                None => self.phase = Phase::Disowning(disowning, next),
                Some(Ok(())) => self.read(now, next, questions),
                Some(Err(error)) => self.end(Err(error), questions),
            },
            Phase::DeletingVolume(asked) if asked == tag => match answer {
                Answer::Yes => self.read(now, Next::DeleteVolumes, questions),
                _ => self.end(Err(Error::Question(tag)), questions),
            },
            Phase::Removing(asked) if asked == tag => match answer {
                Answer::Replaced { .. } => self.end(Ok(Done::Changed), questions),
                answer => self.on_unreplaced(now, tag, &answer, Next::Remove, questions),
            },
            // The answer to a question that is no longer waited for.
            phase => self.phase = phase,
        }
    }

    fn on_record(
        &mut self,
        now: Time,
        next: Next,
        version: Version,
        record: Option<FileSystemRecord>,
        questions: &mut Questions,
    ) {
        let Some(FileSystemRecord { servers, volumes, state }) = record else {
            let is_unknown = next == Next::Mark && self.shards.is_empty() && self.goal == Goal::Delete;
            // Otherwise another administrator has completed the deletion.
            return self.end(if is_unknown { Err(Error::NoFileSystem) } else { Ok(Done::Nothing) }, questions);
        };
        self.shards = servers;
        match (next, state, volumes.last()) {
            (Next::Mark, FileSystemState::Deleting, _) => self.await_release(now, questions),
            (Next::Mark, ..) if self.goal == Goal::Continue => self.end(Ok(Done::Nothing), questions),
            (Next::Mark, FileSystemState::Creating { by }, _) if self.fenced != Some(by) => {
                self.phase = Phase::Waiting(Turn::new(by, questions));
            }
            (Next::Mark, ..) => {
                let command = Command::ReplaceFileSystem { after: version, state: FileSystemState::Deleting };
                self.phase = Phase::Marking(questions.command(command));
            }
            (_, FileSystemState::Creating { .. } | FileSystemState::Ready, _) => self.end(Err(Error::Lost), questions),
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
    fn on_unreplaced(&mut self, now: Time, tag: Tag, answer: &Answer, next: Next, questions: &mut Questions) {
        match answer {
            Answer::Superseded => self.read(now, next, questions),
            Answer::Unknown if now < self.until => self.read_again(next, questions),
            _ => self.end(Err(Error::Question(tag)), questions),
        }
    }

    fn read(&mut self, now: Time, next: Next, questions: &mut Questions) {
        self.until = now.after(self.timing.store);
        self.read_again(next, questions);
    }

    fn read_again(&mut self, next: Next, questions: &mut Questions) {
        self.phase = Phase::Reading(questions.command(Command::ReadFileSystem), next);
    }

    fn await_release(&mut self, now: Time, questions: &mut Questions) {
        let until = now.after(self.timing.release);
        let wait = ServerWait::new(Awaited::Released, &self.shards, &self.timing, until, questions);
        self.phase = Phase::AwaitingRelease(wait);
    }

    fn disown(&mut self, next: Next, questions: &mut Questions) {
        self.phase = Phase::Disowning(Disowning::new(self.own, &self.shards, questions), next);
    }

    fn end(&mut self, result: Result<Done, Error>, questions: &mut Questions) {
        self.phase = Phase::Ended;
        questions.end(result);
    }
}
