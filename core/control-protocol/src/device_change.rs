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
use crate::device_edit::{DeviceEdit, DeviceEditError, DeviceRecordEdit};
use crate::interface::{Answer, Command, Question, Tag};
use crate::questions::Questions;
use crate::record::{DeviceRecord, DeviceState};
use crate::turns::{Turn, TurnEnd};
use crate::waiting::{WaitEnd, Waiting};
use braid_base::{DeviceId, DiskId, Generation, Time};
use braid_wire::{AdminError, Administration};
use std::time::Duration;

/// The pause before the device is looked at again.
const PAUSE: Duration = Duration::from_millis(50);

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

    /// The time of the next [`Input::Wake`].
    pub(crate) fn deadline(&self) -> Option<Time> {
        match &self.phase {
            Phase::Waiting(turn, _) => turn.deadline(),
            Phase::Marking(editing, ..) | Phase::Finishing(editing, _) | Phase::Undoing(editing, _) => {
                editing.deadline()
            }
            Phase::AwaitingDevice(waiting) => waiting.deadline(),
            _ => None,
        }
    }

    /// Takes one input.
    pub(crate) fn step(&mut self, now: Time, input: Input, questions: &mut Questions) {
        match input {
            Input::Start => {
                assert_eq!(self.phase, Phase::New, "a change of a device begins once");
                self.until = now.after(self.timing.turn);
                self.inspect(now, questions);
            }
            Input::Answer { tag, answer } => self.on_answer(now, tag, answer, questions),
            Input::Wake => self.on_wake(now, questions),
        }
    }

    fn on_wake(&mut self, now: Time, questions: &mut Questions) {
        match &mut self.phase {
            Phase::Waiting(turn, _) if turn.on_wake(now).is_some() => self.inspect(now, questions),
            Phase::Marking(editing, ..) | Phase::Finishing(editing, _) | Phase::Undoing(editing, _) => {
                editing.on_wake(now, questions);
            }
            Phase::AwaitingDevice(waiting) => waiting.on_wake(now, questions),
            _ => {}
        }
    }

    fn on_answer(&mut self, now: Time, tag: Tag, answer: Answer, questions: &mut Questions) {
        match std::mem::replace(&mut self.phase, Phase::Ended) {
            Phase::Inspecting(asked, until) if asked == tag => match answer {
                Answer::Device { record, .. } => self.on_record(now, record, questions),
                Answer::Unknown if now < until => {
                    self.phase = Phase::Inspecting(questions.command(Command::ReadDevice), until);
                }
                _ => self.end(Err(Error::Question(tag)), questions),
            },
            Phase::Waiting(mut turn, record) => match turn.on_answer(now, self.until, tag, answer, questions) {
                None => self.phase = Phase::Waiting(turn, record),
                Some(TurnEnd::Look) => self.inspect(now, questions),
                Some(TurnEnd::Busy(_)) if self.goal == Goal::Continue => self.end(Ok(Done::Nothing), questions),
                Some(TurnEnd::Busy(by)) => self.end(Err(Error::Held(by)), questions),
                Some(TurnEnd::Over(_)) => self.take_over(now, &record, questions),
                Some(TurnEnd::Failed(tag)) => self.end(Err(Error::Question(tag)), questions),
            },
            Phase::Marking(mut editing, request, past) => match editing.on_answer(now, tag, answer, questions) {
                None => self.phase = Phase::Marking(editing, request, past),
                Some(Ok(_)) => self.ask(request, past, questions),
                Some(Err(DeviceEditError::Lost)) => self.inspect(now, questions),
                Some(Err(error)) => self.end(Err(error.into()), questions),
            },
            Phase::Asking(asked, request, past) if asked == tag => {
                self.on_asked(now, tag, (request, past), answer, questions)
            }
            Phase::Finishing(mut editing, request) => match editing.on_answer(now, tag, answer, questions) {
                None => self.phase = Phase::Finishing(editing, request),
                Some(Ok(_)) => match (self.goal, request) {
                    (Goal::Add(disk), Request::Add(_)) => self.await_device(now, disk, questions),
                    _ => self.end(Ok(Done::Changed), questions),
                },
                Some(Err(error)) => self.end(Err(error.into()), questions),
            },
            Phase::Undoing(mut editing, refusal) => match editing.on_answer(now, tag, answer, questions) {
                None => self.phase = Phase::Undoing(editing, refusal),
                Some(Ok(_)) => self.end(Err(Error::Refused(refusal)), questions),
                Some(Err(error)) => self.end(Err(error.into()), questions),
            },
            Phase::AwaitingDevice(mut waiting) => match waiting.on_answer(now, tag, &answer) {
                None => self.phase = Phase::AwaitingDevice(waiting),
                Some(WaitEnd::Yes) => self.end(Ok(Done::Changed), questions),
                Some(WaitEnd::TimedOut(tag)) => self.end(Err(Error::NotYet(tag)), questions),
                // Another disk was requested for its slot since.
                Some(WaitEnd::Superseded(_)) => self.end(Err(Error::Lost), questions),
                Some(WaitEnd::Failed(tag)) => self.end(Err(Error::Question(tag)), questions),
            },
            // The answer to a question that is no longer waited for.
            phase => self.phase = phase,
        }
    }

    fn inspect(&mut self, now: Time, questions: &mut Questions) {
        let until = now.after(self.timing.store);
        self.phase = Phase::Inspecting(questions.command(Command::ReadDevice), until);
    }

    fn on_record(&mut self, now: Time, record: Option<DeviceRecord>, questions: &mut Questions) {
        let Some(record) = record else {
            return match self.goal {
                Goal::Add(disk) => {
                    let edit = DeviceEdit::Enter { disk, by: self.own };
                    self.mark(now, edit, Request::Add(disk), Past::None, questions);
                }
                Goal::Remove => self.end(Err(Error::NoDevice), questions),
                Goal::Continue => self.end(Ok(Done::Nothing), questions),
            };
        };
        match (self.goal, record.state) {
            (Goal::Add(disk), _) if record.disk != Some(disk) => self.end(Err(Error::NumberUsed), questions),
            // Another administrator has completed it.
            (Goal::Add(disk), DeviceState::Ready) => self.await_device(now, disk, questions),
            (Goal::Add(_), DeviceState::Removing { .. }) => self.end(Err(Error::Lost), questions),
            (Goal::Continue, DeviceState::Ready) => self.end(Ok(Done::Nothing), questions),
            (Goal::Remove, from @ DeviceState::Ready) => {
                self.mark(now, DeviceEdit::Leave { from, by: self.own }, Request::Remove, Past::None, questions);
            }
            (Goal::Remove, from @ DeviceState::Adding { by }) if by == self.own => {
                self.mark(now, DeviceEdit::Leave { from, by }, Request::Remove, Past::Possible, questions);
            }
            (_, DeviceState::Adding { by } | DeviceState::Removing { by }) if by == self.own => {
                match request_for(&record) {
                    Some(request) => self.ask(request, Past::Possible, questions),
                    None => self.end(Err(Error::NoDevice), questions),
                }
            }
            (_, DeviceState::Adding { by } | DeviceState::Removing { by }) => {
                self.phase = Phase::Waiting(Turn::new(by, questions), record);
            }
        }
    }

    /// The administrator of the record is dead, and fenced.
    fn take_over(&mut self, now: Time, record: &DeviceRecord, questions: &mut Questions) {
        let (from, by) = (record.state, self.own);
        match (self.goal, request_for(record)) {
            (Goal::Remove, Some(Request::Add(_))) => {
                self.mark(now, DeviceEdit::Leave { from, by }, Request::Remove, Past::Possible, questions);
            }
            (_, Some(request)) => self.mark(now, DeviceEdit::TakeOver { from, by }, request, Past::Possible, questions),
            (_, None) => self.end(Err(Error::NoDevice), questions),
        }
    }

    fn mark(&mut self, now: Time, edit: DeviceEdit, request: Request, past: Past, questions: &mut Questions) {
        self.phase = Phase::Marking(self.edit(now, edit, questions), request, past);
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

    fn on_asked(
        &mut self,
        now: Time,
        tag: Tag,
        (request, past): (Request, Past),
        answer: Answer,
        questions: &mut Questions,
    ) {
        let is_there = matches!(answer, Answer::Refused(AdminError::DeviceExists { .. })) && past != Past::None;
        match answer {
            Answer::Yes => self.finish(now, request, questions),
            // It was added, and has got another disk since.
            Answer::Refused(_) if is_there => self.finish(now, request, questions),
            Answer::Refused(_) => {
                let by = self.own;
                let edit = match request {
                    Request::Add(_) => DeviceEdit::NotAdded { by },
                    Request::Remove => DeviceEdit::Stay { by },
                };
                self.phase = Phase::Undoing(self.edit(now, edit, questions), tag);
            }
            // It may be done later.
            _ => self.end(Err(Error::Question(tag)), questions),
        }
    }

    fn finish(&mut self, now: Time, request: Request, questions: &mut Questions) {
        let by = self.own;
        let edit = match request {
            Request::Add(_) => DeviceEdit::Added { by },
            Request::Remove => DeviceEdit::Removed { by },
        };
        self.phase = Phase::Finishing(self.edit(now, edit, questions), request);
    }

    /// The monitor has recorded the device: it joins.
    fn await_device(&mut self, now: Time, disk: DiskId, questions: &mut Questions) {
        let question = Question::RunsOn { device: self.device, disk, is_whole: true };
        let timing = Timing { pause: PAUSE, ..self.timing };
        let until = now.after(self.timing.device);
        self.phase = Phase::AwaitingDevice(Waiting::new(question, &timing, until, questions));
    }

    fn edit(&mut self, now: Time, edit: DeviceEdit, questions: &mut Questions) -> DeviceRecordEdit {
        DeviceRecordEdit::new(edit, now.after(self.timing.store), questions)
    }

    fn end(&mut self, result: Result<Done, Error>, questions: &mut Questions) {
        self.phase = Phase::Ended;
        questions.end(result);
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
