//! The creation of a file system with its volumes. A creation that can't be completed is undone. What is left of one whose administrator has
//! died is deleted first: the new file system has numbers and volumes of its own.
//!
//! ```text
//!   reading ◄──────► waiting for another administrator that creates a file system of this name (`turns`)
//!      │ there is none           │ it is dead, and fenced
//!      │                         ▼
//!      │ ◄───────── deleting what is left
//!      ▼
//!   entering: Creating ─► the volumes are created ─► their shards are formatted ─► finishing: Ready
//!                                └──────────────────────────┴──────────────────────────┴─► undoing: Deleting
//! ```
//!
//! The record names the administrator. So one that is late finds that the record is not its own any more, and then touches nothing. A volume
//! of the file system is entered only while the record names the host that creates it.

use crate::contract::{Done, Error, FileSystemTiming, Input};
use crate::file_system_deletion::FileSystemDeletion;
use crate::file_systems::{FileSystemRecord, FileSystemState};
use crate::interface::{Answer, Command, Question, Tag};
use crate::questions::Questions;
use crate::record::Version;
use crate::turns::{Turn, TurnEnd};
use braid_base::{FileSystemId, Generation, Time};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystemCreation {
    own: Generation,
    timing: FileSystemTiming,
    /// The numbers of its shards, once it is entered.
    shards: Vec<FileSystemId>,
    /// The administrator that was fenced.
    fenced: Option<Generation>,
    /// Other administrators are waited for until then.
    turn_until: Time,
    /// Lost answers of the store are made up for until then.
    until: Time,
    phase: Phase,
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
    /// What is left of the creation of the administrator that was fenced is being deleted.
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
            fenced: None,
            turn_until: Time(0),
            until: Time(0),
            phase: Phase::New,
        }
    }

    pub(crate) fn step(&mut self, input: Input, questions: &mut Questions) {
        match (std::mem::replace(&mut self.phase, Phase::Ended), input) {
            (Phase::DeletingRest(deletion), input) => self.delete(deletion, None, input, questions),
            (Phase::Undoing(deletion, why), input) => self.delete(deletion, Some(why), input, questions),
            (Phase::New, Input::Start) => {
                self.turn_until = questions.after(self.timing.turn);
                self.read(Next::Enter, questions);
            }
            (_, Input::Start) => panic!("a creation begins once"),
            (Phase::Reading(asked, next), Input::Answer { tag, answer }) if asked == tag => match answer {
                Answer::FileSystem { version, record } => self.on_record(next, version, record, questions),
                Answer::Unknown if questions.now < self.until => self.read_again(next, questions),
                _ => questions.end(Err(why_it_ended(next, Error::Question(tag)))),
            },
            (Phase::Waiting(mut turn), input) => match turn.step(self.turn_until, input, questions) {
                None => self.phase = Phase::Waiting(turn),
                Some(Ok(TurnEnd::Look)) => self.read(Next::Enter, questions),
                Some(Ok(TurnEnd::Over(by))) => {
                    self.fenced = Some(by);
                    self.read(Next::Enter, questions);
                }
                Some(Err(error)) => questions.end(Err(error)),
            },
            (Phase::Changing(asked, next), Input::Answer { tag, answer }) if asked == tag => match answer {
                Answer::Replaced { .. } => self.go_on(next, questions),
                // The record tells what to do.
                Answer::Superseded => self.read(before(next), questions),
                Answer::Unknown if questions.now < self.until => self.read_again(before(next), questions),
                _ => questions.end(Err(why_it_ended(next, Error::Question(tag)))),
            },
            (Phase::CreatingVolume(asked, made), Input::Answer { tag, answer }) if asked == tag => match answer {
                Answer::Yes => self.create_volume(made + 1, questions),
                _ => self.read(Next::Undo(Error::Question(tag)), questions),
            },
            (Phase::Formatting(asked, done), Input::Answer { tag, answer }) if asked == tag => match answer {
                Answer::Yes => self.format(done + 1, questions),
                _ => self.read(Next::Undo(Error::Question(tag)), questions),
            },
            // The answer to a question that is no longer waited for.
            (phase, _) => self.phase = phase,
        }
    }

    fn on_record(&mut self, next: Next, version: Version, record: Option<FileSystemRecord>, questions: &mut Questions) {
        let is_own = record.as_ref().is_some_and(|record| record.state == FileSystemState::Creating { by: self.own });
        match (next, record) {
            (Next::Enter, None) => {
                let command = Command::EnterFileSystem { after: version, by: self.own };
                self.phase = Phase::Changing(questions.command(command), Next::CreateVolumes);
            }
            (Next::Enter | Next::CreateVolumes, Some(record)) if is_own => {
                self.shards = record.servers;
                self.create_volume(0, questions);
            }
            (Next::Enter, Some(FileSystemRecord { state, .. })) => match state {
                FileSystemState::Creating { by } if self.fenced == Some(by) => {
                    self.change(version, FileSystemState::Deleting, Next::DeleteRest, questions);
                }
                FileSystemState::Creating { by } => self.phase = Phase::Waiting(Turn::new(by, questions)),
                FileSystemState::Ready => questions.end(Err(Error::FileSystemExists)),
                // The answer was lost.
                FileSystemState::Deleting if self.fenced.is_some() => self.go_on(Next::DeleteRest, questions),
                FileSystemState::Deleting => questions.end(Err(Error::BeingDeleted)),
            },
            (Next::Finish, Some(_)) if is_own => {
                self.change(version, FileSystemState::Ready, Next::Finish, questions);
            }
            // The answer was lost.
            (Next::Finish, Some(record)) if record.state == FileSystemState::Ready && record.servers == self.shards => {
                questions.end(Ok(Done::Changed));
            }
            (Next::Undo(why), Some(_)) if is_own => {
                self.change(version, FileSystemState::Deleting, Next::DeleteOwn(why), questions);
            }
            (Next::Undo(why), Some(record))
                if record.state == FileSystemState::Deleting && record.servers == self.shards =>
            {
                self.go_on(Next::DeleteOwn(why), questions);
            }
            // Another administrator has shut this one out.
            (Next::CreateVolumes | Next::Finish | Next::Undo(_), _) => questions.end(Err(Error::Lost)),
            (Next::DeleteRest | Next::DeleteOwn(_), _) => unreachable!("the record is not read for that"),
        }
    }

    /// The record is changed.
    fn go_on(&mut self, next: Next, questions: &mut Questions) {
        let deletion = || Box::new(FileSystemDeletion::continuing(self.own, self.timing));
        match next {
            Next::CreateVolumes => self.read(Next::CreateVolumes, questions),
            Next::Finish => questions.end(Ok(Done::Changed)),
            Next::DeleteRest => self.delete(deletion(), None, Input::Start, questions),
            Next::DeleteOwn(why) => self.delete(deletion(), Some(why), Input::Start, questions),
            Next::Enter | Next::Undo(_) => unreachable!("the record is read for that"),
        }
    }

    fn create_volume(&mut self, made: usize, questions: &mut Questions) {
        // A volume for each shard, and one for the content of files.
        if made > self.shards.len() {
            return self.format(0, questions);
        }
        let question = Question::CreateVolume { number: made };
        self.phase = Phase::CreatingVolume(questions.ask(question), made);
    }

    fn format(&mut self, done: usize, questions: &mut Questions) {
        let Some(shard) = self.shards.get(done) else { return self.read(Next::Finish, questions) };
        let question = Question::Format { file_system: *shard, number: done };
        self.phase = Phase::Formatting(questions.ask(question), done);
    }

    /// Gives an input to the deletion of what is left of another creation, or of this one, for this reason.
    fn delete(
        &mut self,
        mut deletion: Box<FileSystemDeletion>,
        why: Option<Error>,
        input: Input,
        questions: &mut Questions,
    ) {
        deletion.step(input, questions);
        match (why, questions.ended()) {
            (None, None) => self.phase = Phase::DeletingRest(deletion),
            (Some(why), None) => self.phase = Phase::Undoing(deletion, why),
            // If the deletion has failed, the record says that it is to be completed.
            (Some(why), Some(_)) => questions.end(Err(why)),
            (None, Some(Ok(_))) => self.read(Next::Enter, questions),
            (None, Some(Err(error))) => questions.end(Err(error)),
        }
    }

    fn change(&mut self, after: Version, state: FileSystemState, next: Next, questions: &mut Questions) {
        let command = Command::ReplaceFileSystem { after, state };
        self.phase = Phase::Changing(questions.command(command), next);
    }

    fn read(&mut self, next: Next, questions: &mut Questions) {
        self.until = questions.after(self.timing.store);
        self.read_again(next, questions);
    }

    fn read_again(&mut self, next: Next, questions: &mut Questions) {
        self.phase = Phase::Reading(questions.command(Command::ReadFileSystem), next);
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
