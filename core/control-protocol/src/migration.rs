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
use crate::edit::{Edit, EditError, RecordEdit};
use crate::interface::{Answer, Command, Question, Tag};
use crate::questions::Questions;
use crate::record::{Change, CopyRecord, VolumeRecord};
use crate::volume_change::VolumeChange;
use braid_base::{Generation, Time};
use braid_layout::Placement;
use std::time::Duration;

/// The pause before devices that are not in are looked at again.
const MEMBERS_PAUSE: Duration = Duration::from_millis(500);

/// A migration, and its state.
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
    /// The host does not copy: the record is read again at the first of these times. After the second, it is no use.
    Pausing(Time, Time),
    Copying(Copying),
    /// Everything is copied: the record is to say so.
    Noting(RecordEdit),
    /// Waits for devices until the time given.
    Ending(VolumeChange, Time),
    /// A device is not in: the end is tried again at the first of these times, until the second.
    AwaitingDevices(Time, Time),
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

/// A note of the progress.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Note {
    /// The next one is due then.
    Due(Time),
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

    /// The time of the next [`Input::Wake`].
    pub(crate) fn deadline(&self) -> Option<Time> {
        match &self.phase {
            Phase::Beginning(change) | Phase::Ending(change, _) => change.deadline(),
            Phase::Copying(Copying { note: Note::Due(at), .. }) => Some(*at),
            Phase::Copying(Copying { note: Note::Writing(editing), .. }) => editing.deadline(),
            Phase::Noting(editing) => editing.deadline(),
            Phase::Pausing(at, _) | Phase::AwaitingDevices(at, _) => Some(*at),
            _ => None,
        }
    }

    /// Takes one input.
    pub(crate) fn step(&mut self, now: Time, input: Input, questions: &mut Questions) {
        match std::mem::replace(&mut self.phase, Phase::Ended) {
            Phase::New(target) => {
                assert_eq!(input, Input::Start, "a migration begins first");
                match target {
                    None => self.inspect(now.after(self.timing.store), questions),
                    Some(target) => {
                        let change = self.change(Change::Move(target));
                        self.on_beginning(now, change, Input::Start, questions);
                    }
                }
            }
            Phase::Beginning(change) => self.on_beginning(now, change, input, questions),
            Phase::Ending(change, until) => self.on_ending(now, change, until, input, questions),
            phase => match input {
                Input::Start => panic!("a migration begins once"),
                Input::Wake => self.on_wake(now, phase, questions),
                Input::Answer { tag, answer } => self.on_answer(now, phase, tag, answer, questions),
            },
        }
    }

    fn on_wake(&mut self, now: Time, mut phase: Phase, questions: &mut Questions) {
        match &mut phase {
            Phase::Pausing(at, until) if *at <= now => return self.inspect(*until, questions),
            Phase::AwaitingDevices(at, until) if *at <= now => return self.end_move(now, *until, questions),
            Phase::Noting(editing) => editing.on_wake(now, questions),
            Phase::Copying(copying) => match &mut copying.note {
                Note::Due(at) if *at <= now => {
                    copying.note = Note::Asking(questions.ask(Question::CopyProgress));
                }
                Note::Writing(editing) => editing.on_wake(now, questions),
                _ => {}
            },
            _ => {}
        }
        self.phase = phase;
    }

    fn on_answer(&mut self, now: Time, phase: Phase, tag: Tag, answer: Answer, questions: &mut Questions) {
        match phase {
            Phase::Inspecting(asked, until) if asked == tag => match answer {
                Answer::Record { record, .. } => self.on_record(now, until, record.map(|record| *record), questions),
                Answer::Unknown if now < until => self.inspect(until, questions),
                _ => self.end(Err(Error::Question(tag)), questions),
            },
            Phase::Copying(copying) if copying.tag == tag => self.on_copied(now, &copying, answer, questions),
            Phase::Copying(copying) => self.on_note(now, copying, tag, answer, questions),
            Phase::Noting(mut editing) => match editing.on_answer(now, tag, answer, questions) {
                None => self.phase = Phase::Noting(editing),
                Some(Ok(_)) => self.end_move(now, now.after(self.timing.members), questions),
                Some(Err(EditError::Store(tag))) => self.end(Err(Error::Question(tag)), questions),
                Some(Err(_)) => self.end(Err(Error::Migration), questions),
            },
            phase => self.phase = phase,
        }
    }

    fn change(&self, change: Change) -> VolumeChange {
        VolumeChange::new(self.own, change, self.timing)
    }

    fn on_beginning(&mut self, now: Time, mut change: VolumeChange, input: Input, questions: &mut Questions) {
        change.step(now, input, questions);
        match questions.ended() {
            None => self.phase = Phase::Beginning(change),
            Some(Ok(_)) => self.inspect(now.after(self.timing.store), questions),
            Some(Err(error)) => self.end(Err(error), questions),
        }
    }

    fn on_ending(&mut self, now: Time, mut change: VolumeChange, until: Time, input: Input, questions: &mut Questions) {
        change.step(now, input, questions);
        match questions.ended() {
            None => self.phase = Phase::Ending(change, until),
            Some(Ok(_)) => self.end(Ok(Done::Changed), questions),
            Some(Err(Error::NotIn(_))) if now < until => {
                questions.push(Effect::Began(Stage::AwaitingDevices));
                self.phase = Phase::AwaitingDevices(now.after(MEMBERS_PAUSE), until);
            }
            Some(Err(error)) => self.end(Err(error), questions),
        }
    }

    fn inspect(&mut self, until: Time, questions: &mut Questions) {
        self.phase = Phase::Inspecting(questions.command(Command::Read), until);
    }

    fn on_record(&mut self, now: Time, until: Time, record: Option<VolumeRecord>, questions: &mut Questions) {
        let Some(record) = record.filter(VolumeRecord::is_usable) else {
            return self.end(Err(Error::NotUsable), questions);
        };
        let Some(copied) = record.copied else { return self.end(Err(Error::Migration), questions) };
        if record.is_copied() {
            self.end_move(now, now.after(self.timing.members), questions);
        } else {
            questions.push(Effect::Began(Stage::Copying));
            let tag = questions.ask(Question::Copy { from: copied.copied_to });
            let note = Note::Due(now.after(self.timing.note));
            self.phase = Phase::Copying(Copying { tag, copied, blocks: record.volume.blocks(), until, note });
        }
    }

    /// The host does not copy any more.
    fn on_copied(&mut self, now: Time, copying: &Copying, answer: Answer, questions: &mut Questions) {
        match answer {
            Answer::Copied { lost: 1.., .. } => self.end(Err(Error::BlocksLost(copying.tag)), questions),
            Answer::Copied { copied_to, .. } if copied_to >= copying.blocks => {
                let noted = CopyRecord { copied_to, ..copying.copied };
                self.phase = Phase::Noting(self.note(now, noted, questions));
            }
            // Another administrator has put the volume on hold.
            Answer::Copied { .. } => self.pause(now, now.after(self.timing.drain)),
            // The host has not heard yet that the volume moves, or has heard that it does not.
            Answer::No if now < copying.until => self.pause(now, copying.until),
            _ => self.end(Err(Error::Question(copying.tag)), questions),
        }
    }

    fn pause(&mut self, now: Time, until: Time) {
        self.phase = Phase::Pausing(now.after(self.timing.pause), until);
    }

    /// An answer that belongs to a note of the progress. If a note fails, the next one may succeed.
    fn on_note(&mut self, now: Time, mut copying: Copying, tag: Tag, answer: Answer, questions: &mut Questions) {
        copying.note = match copying.note {
            Note::Asking(asked) if asked == tag => match answer {
                Answer::Copied { copied_to, lost: 0 } if copied_to > copying.copied.copied_to => {
                    copying.copied.copied_to = copied_to;
                    Note::Writing(Box::new(self.note(now, copying.copied, questions)))
                }
                _ => Note::Due(now.after(self.timing.note)),
            },
            Note::Writing(mut editing) => match editing.on_answer(now, tag, answer, questions) {
                None => Note::Writing(editing),
                Some(_) => Note::Due(now.after(self.timing.note)),
            },
            note => note,
        };
        self.phase = Phase::Copying(copying);
    }

    fn note(&mut self, now: Time, noted: CopyRecord, questions: &mut Questions) -> RecordEdit {
        RecordEdit::new(Edit::NoteCopied(noted), now.after(self.timing.store), questions)
    }

    fn end_move(&mut self, now: Time, until: Time, questions: &mut Questions) {
        let change = self.change(Change::EndMove);
        self.on_ending(now, change, until, Input::Start, questions);
    }

    fn end(&mut self, result: Result<Done, Error>, questions: &mut Questions) {
        self.phase = Phase::Ended;
        questions.end(result);
    }
}
