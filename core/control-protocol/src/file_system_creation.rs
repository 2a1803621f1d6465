//! The creation of a file system with its volumes. A creation that can't be completed is undone. What is left of one whose administrator has
//! died is deleted first: the new file system has numbers and volumes of its own.
//!
//! ```text
//!   reading ◄──────► waiting for another administrator that creates a file system of this name (`turns`)
//!      │ there is none           │ it is dead, and shut out
//!      │                         ▼
//!      │ ◄───────── deleting what is left
//!      ▼
//!   entering: Creating ─► the volumes are created ─► their shards are formatted ─► finishing: Ready
//!                                └──────────────────────────┴──────────────────────────┴─► undoing: Deleting
//! ```
//!
//! The record names the administrator. So one that is late finds that the record is not its own any more, and then touches nothing. A volume
//! of the file system is entered only while the record names the host that creates it.

use crate::contract::{Done, Effect, Error, FileSystemTiming, Input};
use crate::file_system_deletion::FileSystemDeletion;
use crate::file_systems::{FileSystemRecord, FileSystemState};
use crate::interface::{Answer, Command, Question, Tag};
use crate::questions::Questions;
use crate::record::Version;
use crate::turns::{Turn, TurnEnd};
use braid_base::{FileSystemId, Generation, Time};

/// A creation, and its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystemCreation {
    own: Generation,
    timing: FileSystemTiming,
    /// The numbers of its shards, once it is entered.
    shards: Vec<FileSystemId>,
    /// The administrator that was shut out.
    shut_out: Option<Generation>,
    /// Other administrators are waited for until then.
    turn_until: Time,
    /// Lost answers of the store are made up for until then.
    until: Time,
    phase: Phase,
    questions: Questions,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    New,
    /// It reads the record, to do this.
    Reading(Tag, Next),
    Waiting(Turn),
    /// The record is to change, to do this next.
    Changing(Tag, Next),
    /// So many volumes are there.
    CreatingVolume(Tag, usize),
    /// So many shards are formatted.
    Formatting(Tag, usize),
    /// What a dead administrator has left.
    DeletingRest(Box<FileSystemDeletion>),
    Undoing(Box<FileSystemDeletion>, Error),
    Ended,
}

/// What is done next with the record.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Next {
    Enter,
    /// What is left of the creation of the administrator that was shut out is being deleted.
    DeleteRest,
    CreateVolumes,
    Finish,
    /// Because of this error.
    Undo(Error),
    DeleteOwn(Error),
}

impl FileSystemCreation {
    /// The creation by `own` of a file system.
    pub fn of(own: Generation, timing: FileSystemTiming) -> FileSystemCreation {
        FileSystemCreation {
            own,
            timing,
            shards: Vec::new(),
            shut_out: None,
            turn_until: Time(0),
            until: Time(0),
            phase: Phase::New,
            questions: Questions::default(),
        }
    }

    /// The time of the next [`Input::Wake`].
    pub fn deadline(&self) -> Option<Time> {
        match &self.phase {
            Phase::Waiting(turn) => turn.deadline(),
            Phase::DeletingRest(deletion) | Phase::Undoing(deletion, _) => deletion.deadline(),
            _ => None,
        }
    }

    /// Takes one input, and returns what follows.
    pub fn step(&mut self, now: Time, input: Input) -> Vec<Effect> {
        match (std::mem::replace(&mut self.phase, Phase::Ended), input) {
            (Phase::DeletingRest(deletion), input) => self.delete(now, *deletion, None, input),
            (Phase::Undoing(deletion, why), input) => self.delete(now, *deletion, Some(why), input),
            (Phase::New, Input::Start) => {
                self.turn_until = now.after(self.timing.turn);
                self.read(now, Next::Enter);
            }
            (_, Input::Start) => panic!("a creation begins once"),
            (phase, Input::Answer { tag, answer }) => self.on_answer(now, phase, tag, answer),
            (Phase::Waiting(turn), Input::Wake) if turn.on_wake(now).is_some() => self.read(now, Next::Enter),
            (phase, Input::Wake) => self.phase = phase,
        }
        self.questions.take()
    }

    fn on_answer(&mut self, now: Time, phase: Phase, tag: Tag, answer: Answer) {
        match phase {
            Phase::Reading(asked, next) if asked == tag => match answer {
                Answer::FileSystem { version, record } => self.on_record(now, next, version, record),
                Answer::Unknown if now < self.until => self.read_again(next),
                _ => self.end(Err(why_it_ended(next, Error::Question(tag)))),
            },
            Phase::Waiting(mut turn) => match turn.on_answer(now, self.turn_until, tag, answer, &mut self.questions) {
                None => self.phase = Phase::Waiting(turn),
                Some(TurnEnd::Look) => self.read(now, Next::Enter),
                Some(TurnEnd::Busy(by)) => self.end(Err(Error::Held(by))),
                Some(TurnEnd::Over(by)) => {
                    self.shut_out = Some(by);
                    self.read(now, Next::Enter);
                }
                Some(TurnEnd::Failed(tag)) => self.end(Err(Error::Question(tag))),
            },
            Phase::Changing(asked, next) if asked == tag => match answer {
                Answer::Replaced { .. } => self.go_on(now, next),
                // The record tells what to do.
                Answer::Superseded => self.read(now, before(next)),
                Answer::Unknown if now < self.until => self.read_again(before(next)),
                _ => self.end(Err(why_it_ended(next, Error::Question(tag)))),
            },
            Phase::CreatingVolume(asked, made) if asked == tag => match answer {
                Answer::Yes => self.create_volume(now, made + 1),
                _ => self.read(now, Next::Undo(Error::Question(tag))),
            },
            Phase::Formatting(asked, done) if asked == tag => match answer {
                Answer::Yes => self.format(now, done + 1),
                _ => self.read(now, Next::Undo(Error::Question(tag))),
            },
            // The answer to a question that is no longer waited for.
            phase => self.phase = phase,
        }
    }

    fn on_record(&mut self, now: Time, next: Next, version: Version, record: Option<FileSystemRecord>) {
        let is_own = record.as_ref().is_some_and(|record| record.state == FileSystemState::Creating { by: self.own });
        match (next, record) {
            (Next::Enter, None) => {
                let command = Command::EnterFileSystem { after: version, by: self.own };
                self.phase = Phase::Changing(self.questions.command(command), Next::CreateVolumes);
            }
            (Next::Enter | Next::CreateVolumes, Some(record)) if is_own => {
                self.shards = record.servers;
                self.create_volume(now, 0);
            }
            (Next::Enter, Some(FileSystemRecord { state, .. })) => match state {
                FileSystemState::Creating { by } if self.shut_out == Some(by) => {
                    self.change(version, FileSystemState::Deleting, Next::DeleteRest);
                }
                FileSystemState::Creating { by } => self.phase = Phase::Waiting(Turn::new(by, &mut self.questions)),
                FileSystemState::Ready => self.end(Err(Error::FileSystemExists)),
                // The answer was lost.
                FileSystemState::Deleting if self.shut_out.is_some() => self.go_on(now, Next::DeleteRest),
                FileSystemState::Deleting => self.end(Err(Error::BeingDeleted)),
            },
            (Next::Finish, Some(_)) if is_own => {
                self.change(version, FileSystemState::Ready, Next::Finish);
            }
            // The answer was lost.
            (Next::Finish, Some(record)) if record.state == FileSystemState::Ready && record.servers == self.shards => {
                self.end(Ok(Done::Changed));
            }
            (Next::Undo(why), Some(_)) if is_own => {
                self.change(version, FileSystemState::Deleting, Next::DeleteOwn(why));
            }
            (Next::Undo(why), Some(record))
                if record.state == FileSystemState::Deleting && record.servers == self.shards =>
            {
                self.go_on(now, Next::DeleteOwn(why));
            }
            // Another administrator has shut this one out.
            (Next::CreateVolumes | Next::Finish | Next::Undo(_), _) => self.end(Err(Error::Lost)),
            (Next::DeleteRest | Next::DeleteOwn(_), _) => unreachable!("the record is not read for that"),
        }
    }

    /// The record is changed.
    fn go_on(&mut self, now: Time, next: Next) {
        match next {
            Next::CreateVolumes => self.read(now, Next::CreateVolumes),
            Next::Finish => self.end(Ok(Done::Changed)),
            Next::DeleteRest => {
                let deletion = self.deletion();
                self.delete(now, deletion, None, Input::Start);
            }
            Next::DeleteOwn(why) => {
                let deletion = self.deletion();
                self.delete(now, deletion, Some(why), Input::Start);
            }
            Next::Enter | Next::Undo(_) => unreachable!("the record is read for that"),
        }
    }

    fn create_volume(&mut self, now: Time, made: usize) {
        // A volume for each shard, and one for the content of files.
        if made > self.shards.len() {
            return self.format(now, 0);
        }
        let question = Question::CreateVolume { number: made };
        self.phase = Phase::CreatingVolume(self.questions.ask(question), made);
    }

    fn format(&mut self, now: Time, done: usize) {
        let Some(shard) = self.shards.get(done) else { return self.read(now, Next::Finish) };
        let question = Question::Format { file_system: *shard, number: done };
        self.phase = Phase::Formatting(self.questions.ask(question), done);
    }

    fn deletion(&mut self) -> FileSystemDeletion {
        FileSystemDeletion::as_part(self.own, self.timing, &mut self.questions)
    }

    /// Gives an input to the deletion of what is left of another creation, or of this one, for this reason.
    fn delete(&mut self, now: Time, mut deletion: FileSystemDeletion, why: Option<Error>, input: Input) {
        let effects = deletion.step(now, input);
        let end = effects.iter().find_map(|effect| match effect {
            Effect::Ended(result) => Some(result.clone()),
            _ => None,
        });
        let others = effects.into_iter().filter(|effect| !matches!(effect, Effect::Ended(_)));
        let Some(end) = end else {
            others.for_each(|effect| self.questions.push(effect));
            self.phase = match why {
                None => Phase::DeletingRest(Box::new(deletion)),
                Some(why) => Phase::Undoing(Box::new(deletion), why),
            };
            return;
        };
        self.questions = deletion.into_questions();
        others.for_each(|effect| self.questions.push(effect));
        match (why, end) {
            // If the deletion has failed, the record says that it is to be completed.
            (Some(why), _) => self.end(Err(why)),
            (None, Ok(_)) => self.read(now, Next::Enter),
            (None, Err(error)) => self.end(Err(error)),
        }
    }

    fn change(&mut self, after: Version, state: FileSystemState, next: Next) {
        let command = Command::ReplaceFileSystem { after, state };
        self.phase = Phase::Changing(self.questions.command(command), next);
    }

    fn read(&mut self, now: Time, next: Next) {
        self.until = now.after(self.timing.store);
        self.read_again(next);
    }

    fn read_again(&mut self, next: Next) {
        self.phase = Phase::Reading(self.questions.command(Command::ReadFileSystem), next);
    }

    fn end(&mut self, result: Result<Done, Error>) {
        self.phase = Phase::Ended;
        self.questions.push(Effect::Ended(result));
    }
}

/// What the record was read for before a change that is followed by this.
fn before(next: Next) -> Next {
    match next {
        Next::CreateVolumes | Next::DeleteRest => Next::Enter,
        Next::DeleteOwn(why) => Next::Undo(why),
        next => next,
    }
}

/// The error of a creation that can't go on.
fn why_it_ended(next: Next, error: Error) -> Error {
    match next {
        Next::Undo(why) | Next::DeleteOwn(why) => why,
        _ => error,
    }
}
