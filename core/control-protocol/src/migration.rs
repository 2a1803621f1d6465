//! A whole migration of a volume: it begins, a host copies, it ends. If it is interrupted, another one continues it.
//!
//! ```text
//!   beginning ──────────► inspecting ◄────────────── pausing
//!   (a volume change)         │                         ▲ the host has stopped, or does not know yet that the volume moves
//!                             ▼                         │
//!                          copying ─────────────────────┘
//!                             │ everything is copied
//!                             ▼
//!                          noting ────────► ending (a volume change) ◄───► waiting until all devices are in
//! ```
//!
//! The record says how much is copied, and by which migration. Only the host that copies knows when all is copied, and only a note in the
//! record ends the migration: so an operation that was suspended meanwhile can't end another migration, of which perhaps nothing is copied.

use crate::contract::{Done, Effect, Error, Input, Stage, Timing};
use crate::edit::{Edit, RecordEdit};
use crate::interface::{Answer, Command, Question, Tag};
use crate::questions::Questions;
use crate::record::{Change, CopyRecord, VolumeRecord};
use crate::volume_change::VolumeChange;
use braid_base::{Generation, Time};
use braid_layout::Placement;
use std::time::Duration;

/// The pause before devices that are not in are looked at again.
const MEMBERS_PAUSE: Duration = Duration::from_millis(500);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    own: Generation,
    timing: Timing,
    phase: Phase,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// With the target, unless the migration has begun.
    New(Option<Placement>),
    Beginning(VolumeChange),
    /// It reads the record, until this time.
    Inspecting(Tag, Time),
    /// The host does not copy: the record is read again after a while. After this time, it is no use.
    Pausing(Time),
    Copying(Copying),
    /// Everything is copied: the record is to say so.
    Noting(RecordEdit),
    /// Waits for devices until the time given.
    Ending(VolumeChange, Time),
    /// A device is not in: the end is tried again after a while, until this time.
    AwaitingDevices(Time),
    Ended,
}

/// The host copies.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Copying {
    tag: Tag,
    copied: CopyRecord,
    /// The number of blocks of the volume.
    blocks: u64,
    /// The host must know by then that the volume moves.
    until: Time,
    note: Note,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Note {
    /// The next one is due at the deadline.
    Due,
    Asking(Tag),
    Writing(Box<RecordEdit>),
}

impl Migration {
    /// The operation of `own` that moves the volume to this target.
    pub fn to(own: Generation, target: Placement, timing: Timing) -> Migration {
        Migration { own, timing, phase: Phase::New(Some(target)) }
    }

    /// The operation of `own` that continues a migration that has begun.
    pub fn continuing(own: Generation, timing: Timing) -> Migration {
        Migration { own, timing, phase: Phase::New(None) }
    }

    pub(crate) fn is_copying(&self) -> bool {
        matches!(self.phase, Phase::Inspecting(..) | Phase::Pausing(_) | Phase::Copying(_))
    }

    pub(crate) fn step(&mut self, input: Input, questions: &mut Questions) {
        match (std::mem::replace(&mut self.phase, Phase::Ended), input) {
            (Phase::New(None), Input::Start) => self.inspect(questions.after(self.timing.store), questions),
            (Phase::New(Some(target)), input @ Input::Start) => {
                let change = self.change(Change::Move(target));
                self.on_beginning(change, input, questions);
            }
            (Phase::Beginning(change), input) => self.on_beginning(change, input, questions),
            (Phase::Ending(change, until), input) => self.on_ending(change, until, input, questions),
            (_, Input::Start) => panic!("a migration begins once"),
            (Phase::Inspecting(asked, until), Input::Answer { tag, answer }) if asked == tag => match answer {
                Answer::Record { record, .. } => self.on_record(until, record.map(|record| *record), questions),
                Answer::Unknown if questions.now < until => self.inspect(until, questions),
                _ => questions.end(Err(Error::Question(tag))),
            },
            (Phase::Pausing(until), Input::Wake) => self.inspect(until, questions),
            (Phase::Copying(copying), Input::Answer { tag, answer }) if copying.tag == tag => {
                self.on_copied(&copying, answer, questions);
            }
            (Phase::Copying(copying), input) => self.on_note(copying, input, questions),
            (Phase::Noting(mut editing), input) => match editing.step(input, questions) {
                None => self.phase = Phase::Noting(editing),
                Some(Ok(_)) => self.end_move(questions.after(self.timing.members), questions),
                Some(Err(error @ Error::Question(_))) => questions.end(Err(error)),
                Some(Err(_)) => questions.end(Err(Error::Migration)),
            },
            (Phase::AwaitingDevices(until), Input::Wake) => self.end_move(until, questions),
            (phase, _) => self.phase = phase,
        }
    }

    fn change(&self, change: Change) -> VolumeChange {
        VolumeChange::new(self.own, change, self.timing)
    }

    fn on_beginning(&mut self, mut change: VolumeChange, input: Input, questions: &mut Questions) {
        change.step(input, questions);
        match questions.ended() {
            None => self.phase = Phase::Beginning(change),
            Some(Ok(_)) => self.inspect(questions.after(self.timing.store), questions),
            Some(Err(error)) => questions.end(Err(error)),
        }
    }

    fn on_ending(&mut self, mut change: VolumeChange, until: Time, input: Input, questions: &mut Questions) {
        change.step(input, questions);
        match questions.ended() {
            None => self.phase = Phase::Ending(change, until),
            Some(Err(Error::NotIn(_))) if questions.now < until => {
                questions.push(Effect::Began(Stage::AwaitingDevices));
                self.phase = Phase::AwaitingDevices(until);
                questions.pause(MEMBERS_PAUSE);
            }
            Some(end) => questions.end(end.map(|_| Done::Changed)),
        }
    }

    fn inspect(&mut self, until: Time, questions: &mut Questions) {
        self.phase = Phase::Inspecting(questions.command(Command::Read), until);
    }

    fn on_record(&mut self, until: Time, record: Option<VolumeRecord>, questions: &mut Questions) {
        let Some(record) = record.filter(VolumeRecord::is_usable) else {
            return questions.end(Err(Error::NotUsable));
        };
        let Some(copied) = record.copied else { return questions.end(Err(Error::Migration)) };
        if record.is_copied() {
            self.end_move(questions.after(self.timing.members), questions);
        } else {
            questions.push(Effect::Began(Stage::Copying));
            let tag = questions.ask(Question::Copy { from: copied.copied_to });
            let note = self.due(questions);
            self.phase = Phase::Copying(Copying { tag, copied, blocks: record.volume.blocks(), until, note });
        }
    }

    /// The host does not copy any more.
    fn on_copied(&mut self, copying: &Copying, answer: Answer, questions: &mut Questions) {
        match answer {
            Answer::Copied { lost: 1.., .. } => questions.end(Err(Error::BlocksLost(copying.tag))),
            Answer::Copied { copied_to, .. } if copied_to >= copying.blocks => {
                let noted = CopyRecord { copied_to, ..copying.copied };
                self.phase = Phase::Noting(self.note(noted, questions));
            }
            // Another administrator has put the volume on hold.
            Answer::Copied { .. } => self.pause(questions.after(self.timing.drain), questions),
            // The host has not heard yet that the volume moves, or has heard that it does not.
            Answer::No if questions.now < copying.until => self.pause(copying.until, questions),
            _ => questions.end(Err(Error::Question(copying.tag))),
        }
    }

    fn pause(&mut self, until: Time, questions: &mut Questions) {
        self.phase = Phase::Pausing(until);
        questions.pause(self.timing.pause);
    }

    fn due(&self, questions: &mut Questions) -> Note {
        questions.pause(self.timing.note);
        Note::Due
    }

    /// An input that belongs to a note of the progress. If a note fails, the next one may succeed.
    fn on_note(&mut self, mut copying: Copying, input: Input, questions: &mut Questions) {
        copying.note = match (copying.note, input) {
            (Note::Due, Input::Wake) => Note::Asking(questions.ask(Question::CopyProgress)),
            (Note::Asking(asked), Input::Answer { tag, answer }) if asked == tag => match answer {
                Answer::Copied { copied_to, lost: 0 } if copied_to > copying.copied.copied_to => {
                    copying.copied.copied_to = copied_to;
                    Note::Writing(Box::new(self.note(copying.copied, questions)))
                }
                _ => self.due(questions),
            },
            (Note::Writing(mut editing), input) => match editing.step(input, questions) {
                None => Note::Writing(editing),
                Some(_) => self.due(questions),
            },
            (note, _) => note,
        };
        self.phase = Phase::Copying(copying);
    }

    fn note(&self, noted: CopyRecord, questions: &mut Questions) -> RecordEdit {
        RecordEdit::new(Edit::NoteCopied(noted), self.timing.store, questions)
    }

    fn end_move(&mut self, until: Time, questions: &mut Questions) {
        let change = self.change(Change::EndMove);
        self.on_ending(change, until, Input::Start, questions);
    }
}
