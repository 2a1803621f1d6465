//! A device is added to the array, or removed from it. The store says what is to be, and which administrator does it; the monitor decides.
//!
//! ```text
//!   inspecting ◄──────► waiting for another administrator (`turns`)
//!       │ nobody is at work on the device, or a dead administrator, which is fenced
//!       ▼
//!   addition: marking: Adding ────► AddDevice ────► finishing: Ready ─► waiting: the device is in
//!   removal:  marking: Removing ──► RemoveDevice ─► finishing: no record
//!                                       └─► refused: undoing: as before
//! ```
//!
//! Requests to the monitor are idempotent. A request without an answer may have its effect later, and then the record stays. The
//! administrator itself may repeat it: when the monitor has answered that, the earlier request has no effect any more. Another administrator
//! shuts the first one out before it repeats the request, so that the monitor ignores the late one.

use crate::contract::{Done, Error, Input, Timing};
use crate::device_edit::{DeviceEdit, DeviceRecordEdit};
use crate::interface::{Answer, Command, Question, Tag};
use crate::questions::Questions;
use crate::record::{DeviceRecord, DeviceState};
use crate::turns::{Turn, TurnEnd};
use crate::waiting::Waiting;
use braid_base::{DeviceId, DiskId, Generation, Time};
use braid_wire::{AdminError, Administration};

/// An addition or a removal, and its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceChange {
    own: Generation,
    device: DeviceId,
    goal: Goal,
    timing: Timing,
    /// Other administrators are waited for until then.
    until: Time,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goal {
    /// To add the device with this disk.
    Add(DiskId),
    Remove,
    /// To complete what has begun.
    Continue,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    New,
    /// It reads the record, until this time.
    Inspecting(Tag, Time),
    Waiting(Turn, DeviceRecord),
    /// The record says what is to be.
    Marking(DeviceRecordEdit, Request, Past),
    /// The monitor is asked.
    Asking(Tag, Request, Past),
    /// The record says what is.
    Finishing(DeviceRecordEdit, Request),
    /// The monitor has refused the request for the reason under this tag.
    Undoing(DeviceRecordEdit, Tag),
    AwaitingDevice(Waiting),
    Ended,
}

/// What the monitor is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Add(DiskId),
    Remove,
}

/// Whether the monitor may have executed such a request before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Past {
    /// It is the first request.
    None,
    Possible,
}

impl DeviceChange {
    /// The addition by `own` of a device with this disk. If its record is there already, with the same disk, the addition is continued.
    pub fn adding(own: Generation, device: DeviceId, disk: DiskId, timing: Timing) -> DeviceChange {
        DeviceChange::new(own, device, Goal::Add(disk), timing)
    }

    /// The removal by `own` of a device on which no volume lies.
    pub fn removing(own: Generation, device: DeviceId, timing: Timing) -> DeviceChange {
        DeviceChange::new(own, device, Goal::Remove, timing)
    }

    /// The operation of `own` that completes an addition or a removal, if its administrator has died.
    pub fn continuing(own: Generation, device: DeviceId, timing: Timing) -> DeviceChange {
        DeviceChange::new(own, device, Goal::Continue, timing)
    }

    fn new(own: Generation, device: DeviceId, goal: Goal, timing: Timing) -> DeviceChange {
        let (until, phase) = (Time(0), Phase::New);
        DeviceChange { own, device, goal, timing, until, phase }
    }

    pub(crate) fn step(&mut self, input: Input, questions: &mut Questions) {
        match (std::mem::replace(&mut self.phase, Phase::Ended), input) {
            (Phase::New, Input::Start) => {
                self.until = questions.after(self.timing.turn);
                self.inspect(questions);
            }
            (_, Input::Start) => panic!("a change of a device begins once"),
            (Phase::Inspecting(asked, until), Input::Answer { tag, answer }) if asked == tag => match answer {
                Answer::Device { record, .. } => self.on_record(record, questions),
                Answer::Unknown if questions.now < until => {
                    self.phase = Phase::Inspecting(questions.command(Command::ReadDevice), until);
                }
                _ => questions.end(Err(Error::Question(tag))),
            },
            (Phase::Waiting(mut turn, record), input) => match turn.step(self.until, input, questions) {
                None => self.phase = Phase::Waiting(turn, record),
                Some(Ok(TurnEnd::Look)) => self.inspect(questions),
                Some(Ok(TurnEnd::Over(_))) => self.take_over(&record, questions),
                Some(Err(Error::Held(_))) if self.goal == Goal::Continue => questions.end(Ok(Done::Nothing)),
                Some(Err(error)) => questions.end(Err(error)),
            },
            (Phase::Marking(mut editing, request, past), input) => match editing.step(input, questions) {
                None => self.phase = Phase::Marking(editing, request, past),
                Some(Ok(_)) => self.ask(request, past, questions),
                Some(Err(Error::Lost)) => self.inspect(questions),
                Some(Err(error)) => questions.end(Err(error)),
            },
            (Phase::Asking(asked, request, past), Input::Answer { tag, answer }) if asked == tag => {
                self.on_asked(tag, (request, past), &answer, questions);
            }
            (Phase::Finishing(mut editing, request), input) => match editing.step(input, questions) {
                None => self.phase = Phase::Finishing(editing, request),
                Some(Ok(_)) => match (self.goal, request) {
                    (Goal::Add(disk), Request::Add(_)) => self.await_device(disk, questions),
                    _ => questions.end(Ok(Done::Changed)),
                },
                Some(Err(error)) => questions.end(Err(error)),
            },
            (Phase::Undoing(mut editing, refusal), input) => match editing.step(input, questions) {
                None => self.phase = Phase::Undoing(editing, refusal),
                Some(Ok(_)) => questions.end(Err(Error::Refused(refusal))),
                Some(Err(error)) => questions.end(Err(error)),
            },
            (Phase::AwaitingDevice(mut waiting), input) => match waiting.step(input, questions) {
                None => self.phase = Phase::AwaitingDevice(waiting),
                Some(end) => questions.end(end.map(|()| Done::Changed)),
            },
            // The answer to a question that is no longer waited for.
            (phase, _) => self.phase = phase,
        }
    }

    fn inspect(&mut self, questions: &mut Questions) {
        self.phase = Phase::Inspecting(questions.command(Command::ReadDevice), questions.after(self.timing.store));
    }

    fn on_record(&mut self, record: Option<DeviceRecord>, questions: &mut Questions) {
        let Some(record) = record else {
            return match self.goal {
                Goal::Add(disk) => {
                    let edit = DeviceEdit::Enter { disk, by: self.own };
                    self.mark(edit, Request::Add(disk), Past::None, questions);
                }
                Goal::Remove => questions.end(Err(Error::NoDevice)),
                Goal::Continue => questions.end(Ok(Done::Nothing)),
            };
        };
        match (self.goal, record.state) {
            (Goal::Add(disk), _) if record.disk != Some(disk) => questions.end(Err(Error::NumberUsed)),
            // Another administrator has completed it.
            (Goal::Add(disk), DeviceState::Ready) => self.await_device(disk, questions),
            (Goal::Add(_), DeviceState::Removing { .. }) => questions.end(Err(Error::Lost)),
            (Goal::Continue, DeviceState::Ready) => questions.end(Ok(Done::Nothing)),
            (Goal::Remove, from @ DeviceState::Ready) => {
                self.mark(DeviceEdit::Leave { from, by: self.own }, Request::Remove, Past::None, questions);
            }
            (Goal::Remove, from @ DeviceState::Adding { by }) if by == self.own => {
                self.mark(DeviceEdit::Leave { from, by }, Request::Remove, Past::Possible, questions);
            }
            (_, DeviceState::Adding { by } | DeviceState::Removing { by }) if by == self.own => {
                match request_for(&record) {
                    Some(request) => self.ask(request, Past::Possible, questions),
                    None => questions.end(Err(Error::NoDevice)),
                }
            }
            (_, DeviceState::Adding { by } | DeviceState::Removing { by }) => {
                self.phase = Phase::Waiting(Turn::new(by, questions), record);
            }
        }
    }

    /// The administrator of the record is dead, and fenced.
    fn take_over(&mut self, record: &DeviceRecord, questions: &mut Questions) {
        let (from, by) = (record.state, self.own);
        match (self.goal, request_for(record)) {
            (Goal::Remove, Some(Request::Add(_))) => {
                self.mark(DeviceEdit::Leave { from, by }, Request::Remove, Past::Possible, questions);
            }
            (_, Some(request)) => self.mark(DeviceEdit::TakeOver { from, by }, request, Past::Possible, questions),
            (_, None) => questions.end(Err(Error::NoDevice)),
        }
    }

    fn mark(&mut self, edit: DeviceEdit, request: Request, past: Past, questions: &mut Questions) {
        self.phase = Phase::Marking(self.edit(edit, questions), request, past);
    }

    fn ask(&mut self, request: Request, past: Past, questions: &mut Questions) {
        let device = self.device;
        let administration = match request {
            Request::Add(disk) => Administration::AddDevice { device, disk },
            Request::Remove => Administration::RemoveDevice { device },
        };
        let question = Question::Administer { request: administration };
        self.phase = Phase::Asking(questions.ask(question), request, past);
    }

    fn on_asked(&mut self, tag: Tag, (request, past): (Request, Past), answer: &Answer, questions: &mut Questions) {
        let by = self.own;
        let is_there = matches!(answer, Answer::Refused(AdminError::DeviceExists { .. })) && past != Past::None;
        match (answer, request) {
            (Answer::Yes, _) => self.finish(request, questions),
            // It was added, and has got another disk since.
            (Answer::Refused(_), _) if is_there => self.finish(request, questions),
            (Answer::Refused(_), Request::Add(_)) => {
                self.phase = Phase::Undoing(self.edit(DeviceEdit::NotAdded { by }, questions), tag);
            }
            (Answer::Refused(_), Request::Remove) => {
                self.phase = Phase::Undoing(self.edit(DeviceEdit::Stay { by }, questions), tag);
            }
            // It may be done later.
            _ => questions.end(Err(Error::Question(tag))),
        }
    }

    fn finish(&mut self, request: Request, questions: &mut Questions) {
        let by = self.own;
        let edit = match request {
            Request::Add(_) => DeviceEdit::Added { by },
            Request::Remove => DeviceEdit::Removed { by },
        };
        self.phase = Phase::Finishing(self.edit(edit, questions), request);
    }

    /// The monitor has recorded the device: it joins.
    fn await_device(&mut self, disk: DiskId, questions: &mut Questions) {
        let question = Question::RunsOn { device: self.device, disk, is_whole: true };
        let waiting = Waiting::new(question, self.timing.device, &self.timing, questions);
        self.phase = Phase::AwaitingDevice(waiting);
    }

    fn edit(&self, edit: DeviceEdit, questions: &mut Questions) -> DeviceRecordEdit {
        DeviceRecordEdit::new(edit, self.timing.store, questions)
    }
}

/// The request that completes what the record says.
fn request_for(record: &DeviceRecord) -> Option<Request> {
    match record.state {
        DeviceState::Adding { .. } => record.disk.map(Request::Add),
        DeviceState::Removing { .. } => Some(Request::Remove),
        DeviceState::Ready => None,
    }
}
