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

/// A creation, and its state.
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

    /// The time of the next [`Input::Wake`].
    pub(crate) fn deadline(&self) -> Option<Time> {
        match &self.phase {
            Phase::Waiting(turn) => turn.deadline(),
            Phase::DeletingRest(deletion) | Phase::Undoing(deletion, _) => deletion.deadline(),
            _ => None,
        }
    }

    /// Takes one input.
    pub(crate) fn step(&mut self, now: Time, input: Input, questions: &mut Questions) {
        match (std::mem::replace(&mut self.phase, Phase::Ended), input) {
            (Phase::DeletingRest(deletion), input) => self.delete(now, deletion, None, input, questions),
            (Phase::Undoing(deletion, why), input) => self.delete(now, deletion, Some(why), input, questions),
            (Phase::New, Input::Start) => {
                self.turn_until = now.after(self.timing.turn);
                self.read(now, Next::Enter, questions);
            }
            (_, Input::Start) => panic!("a creation begins once"),
            (phase, Input::Answer { tag, answer }) => self.on_answer(now, phase, tag, answer, questions),
            (Phase::Waiting(turn), Input::Wake) if turn.on_wake(now).is_some() => {
                self.read(now, Next::Enter, questions)
            }
            (phase, Input::Wake) => self.phase = phase,
        }
    }

    fn on_answer(&mut self, now: Time, phase: Phase, tag: Tag, answer: Answer, questions: &mut Questions) {
        match phase {
            Phase::Reading(asked, next) if asked == tag => match answer {
                Answer::FileSystem { version, record } => self.on_record(now, next, version, record, questions),
                Answer::Unknown if now < self.until => self.read_again(next, questions),
                _ => self.end(Err(why_it_ended(next, Error::Question(tag))), questions),
            },
            Phase::Waiting(mut turn) => match turn.on_answer(now, self.turn_until, tag, answer, questions) {
                None => self.phase = Phase::Waiting(turn),
                Some(TurnEnd::Look) => self.read(now, Next::Enter, questions),
                Some(TurnEnd::Busy(by)) => self.end(Err(Error::Held(by)), questions),
                Some(TurnEnd::Over(by)) => {
                    self.fenced = Some(by);
                    self.read(now, Next::Enter, questions);
                }
                Some(TurnEnd::Failed(tag)) => self.end(Err(Error::Question(tag)), questions),
            },
            Phase::Changing(asked, next) if asked == tag => match answer {
                Answer::Replaced { .. } => self.go_on(now, next, questions),
                // The record tells what to do.
                Answer::Superseded => self.read(now, before(next), questions),
                Answer::Unknown if now < self.until => self.read_again(before(next), questions),
                _ => self.end(Err(why_it_ended(next, Error::Question(tag))), questions),
            },
            Phase::CreatingVolume(asked, made) if asked == tag => match answer {
                Answer::Yes => self.create_volume(now, made + 1, questions),
                _ => self.read(now, Next::Undo(Error::Question(tag)), questions),
            },
            Phase::Formatting(asked, done) if asked == tag => match answer {
                Answer::Yes => self.format(now, done + 1, questions),
                _ => self.read(now, Next::Undo(Error::Question(tag)), questions),
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
        let is_own = record.as_ref().is_some_and(|record| record.state == FileSystemState::Creating { by: self.own });
        match (next, record) {
            (Next::Enter, None) => {
                let command = Command::EnterFileSystem { after: version, by: self.own };
                self.phase = Phase::Changing(questions.command(command), Next::CreateVolumes);
            }
            (Next::Enter | Next::CreateVolumes, Some(record)) if is_own => {
                self.shards = record.servers;
                self.create_volume(now, 0, questions);
            }
            (Next::Enter, Some(FileSystemRecord { state, .. })) => match state {
                FileSystemState::Creating { by } if self.fenced == Some(by) => {
                    self.change(version, FileSystemState::Deleting, Next::DeleteRest, questions);
                }
                FileSystemState::Creating { by } => self.phase = Phase::Waiting(Turn::new(by, questions)),
                FileSystemState::Ready => self.end(Err(Error::FileSystemExists), questions),
                // The answer was lost.
                FileSystemState::Deleting if self.fenced.is_some() => self.go_on(now, Next::DeleteRest, questions),
                FileSystemState::Deleting => self.end(Err(Error::BeingDeleted), questions),
            },
            (Next::Finish, Some(_)) if is_own => {
                self.change(version, FileSystemState::Ready, Next::Finish, questions);
            }
            // The answer was lost.
            (Next::Finish, Some(record)) if record.state == FileSystemState::Ready && record.servers == self.shards => {
                self.end(Ok(Done::Changed), questions);
            }
            (Next::Undo(why), Some(_)) if is_own => {
                self.change(version, FileSystemState::Deleting, Next::DeleteOwn(why), questions);
            }
            (Next::Undo(why), Some(record))
                if record.state == FileSystemState::Deleting && record.servers == self.shards =>
            {
                self.go_on(now, Next::DeleteOwn(why), questions);
            }
            // Another administrator has shut this one out.
            (Next::CreateVolumes | Next::Finish | Next::Undo(_), _) => self.end(Err(Error::Lost), questions),
            (Next::DeleteRest | Next::DeleteOwn(_), _) => unreachable!("the record is not read for that"),
        }
    }

    /// The record is changed.
    fn go_on(&mut self, now: Time, next: Next, questions: &mut Questions) {
        match next {
            Next::CreateVolumes => self.read(now, Next::CreateVolumes, questions),
            Next::Finish => self.end(Ok(Done::Changed), questions),
            Next::DeleteRest => {
                let deletion = FileSystemDeletion::continuing(self.own, self.timing);
                self.delete(now, Box::new(deletion), None, Input::Start, questions);
            }
            Next::DeleteOwn(why) => {
                let deletion = FileSystemDeletion::continuing(self.own, self.timing);
                self.delete(now, Box::new(deletion), Some(why), Input::Start, questions);
            }
            Next::Enter | Next::Undo(_) => unreachable!("the record is read for that"),
        }
    }

    fn create_volume(&mut self, now: Time, made: usize, questions: &mut Questions) {
        // A volume for each shard, and one for the content of files.
        if made > self.shards.len() {
            return self.format(now, 0, questions);
        }
        let question = Question::CreateVolume { number: made };
        self.phase = Phase::CreatingVolume(questions.ask(question), made);
    }

    fn format(&mut self, now: Time, done: usize, questions: &mut Questions) {
        let Some(shard) = self.shards.get(done) else { return self.read(now, Next::Finish, questions) };
        let question = Question::Format { file_system: *shard, number: done };
        self.phase = Phase::Formatting(questions.ask(question), done);
    }

    /// Gives an input to the deletion of what is left of another creation, or of this one, for this reason.
    fn delete(
        &mut self,
        now: Time,
        mut deletion: Box<FileSystemDeletion>,
        why: Option<Error>,
        input: Input,
        questions: &mut Questions,
    ) {
        deletion.step(now, input, questions);
        match (why, questions.ended()) {
            (None, None) => self.phase = Phase::DeletingRest(deletion),
            (Some(why), None) => self.phase = Phase::Undoing(deletion, why),
            // If the deletion has failed, the record says that it is to be completed.
            (Some(why), Some(_)) => self.end(Err(why), questions),
            (None, Some(Ok(_))) => self.read(now, Next::Enter, questions),
            (None, Some(Err(error))) => self.end(Err(error), questions),
        }
    }

    fn change(&mut self, after: Version, state: FileSystemState, next: Next, questions: &mut Questions) {
        let command = Command::ReplaceFileSystem { after, state };
        self.phase = Phase::Changing(questions.command(command), next);
    }

    fn read(&mut self, now: Time, next: Next, questions: &mut Questions) {
        self.until = now.after(self.timing.store);
        self.read_again(next, questions);
    }

    fn read_again(&mut self, next: Next, questions: &mut Questions) {
        self.phase = Phase::Reading(questions.command(Command::ReadFileSystem), next);
    }

    fn end(&mut self, result: Result<Done, Error>, questions: &mut Questions) {
        self.phase = Phase::Ended;
        questions.end(result);
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
