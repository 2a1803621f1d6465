//! One attribute, the *word*, changed by compare-and-swap until that has succeeded or is not wanted any more: what locks, counters and
//! fail-over have in common.
//!
//! ```text
//!          ┌─ begin ─▶ swap blindly ─┐                         swapped ──▶ made
//!   start ─┤                         ├─▶ CAS ── other value ──▶ look ─┬─▶ CAS again
//!          └─ read ──────────────────┘                ▲              ├─▶ wait, then begin again
//!                                        Unknown ─▶ read             └─▶ done
//! ```
//!
//! A compare-and-swap that fails tells the word, so it costs no more than reading. After [`Trouble::Unknown`] the word is read, and the
//! editor finds in it whether its swap has happened: what it puts there carries a nonce of its own.

use crate::procedure::{Answer, Next, Procedure, Trouble};
use braid_base::{ObjectId, Rng, Time};
use braid_wire::{
    Action, ActionResult, AttributeName, CommandResult, ObjectCommand, ObjectFailure, ObjectRequest, SetAttribute,
    Undefined, When,
};
use bytes::Bytes;
use std::time::Duration;

/// What is wanted of a word.
pub(crate) trait Editor {
    /// What the procedure ends with.
    type Output;

    /// What to try without knowing the word: at first, and after every wait.
    fn begin(&mut self, _at: &mut At<'_>) -> Move<Self::Output> {
        Move::Look
    }

    /// What to do about the word as it is.
    fn look(&mut self, at: &mut At<'_>, seen: Seen) -> Move<Self::Output>;

    /// What to do once the last swap is made.
    fn made(&mut self, at: &mut At<'_>, results: Vec<CommandResult>) -> Move<Self::Output>;

    /// What to do after [`Move::Ask`].
    fn told(&mut self, _at: &mut At<'_>, _results: Vec<CommandResult>) -> Move<Self::Output> {
        Move::Look
    }

    /// How it ends when it can't be done. Unknown: what was asked last may have been done.
    fn fails(&mut self, trouble: Trouble) -> Self::Output;
}

/// The moment, and the dice.
pub(crate) struct At<'a> {
    pub now: Time,
    pub dice: &'a mut Rng,
    /// After [`Move::Await`], the attribute's value.
    pub value: Option<Bytes>,
}

/// The word, and what else was got with it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub word: Bytes,
    pub extras: Vec<Bytes>,
    /// The last swap (or request) may have happened.
    pub doubt: bool,
}

/// What an editor does next.
pub(crate) enum Move<T> {
    /// It reads the word.
    Look,
    /// It swaps.
    Swap(Swap),
    /// It has something else done. Of a request whose fate is unknown, it hears by [`Seen::doubt`].
    Ask(ObjectRequest),
    /// It waits.
    Sleep(Duration),
    /// It waits for another value of an attribute, if the device can do that.
    Await { name: AttributeName, seen: Bytes, patience: Duration },
    /// It is over.
    Done(T),
}

/// A compare-and-swap, and what happens with it.
#[derive(Clone, Debug)]
pub(crate) struct Swap {
    pub compare: Bytes,
    pub swap: Bytes,
    /// Set if it swaps.
    pub sets: Vec<SetAttribute>,
    /// Behind it: these must say themselves that they depend on it.
    pub rest: Vec<ObjectCommand>,
}

/// Where words are, and how patiently they are changed.
#[derive(Clone, Debug)]
pub(crate) struct Desk {
    pub object: ObjectId,
    pub word: AttributeName,
    /// Got whenever the word is looked at.
    pub extras: Vec<AttributeName>,
    pub backoff: Backoff,
    /// After so long, trouble is the end.
    pub patience: Duration,
}

/// Truncated binary exponential back-off: each pause is any up to a limit, which doubles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Backoff {
    pub first: Duration,
    pub longest: Duration,
    tries: u32,
}

impl Backoff {
    pub fn new(first: Duration, longest: Duration) -> Backoff {
        Backoff { first, longest, tries: 0 }
    }

    pub fn draw(&mut self, dice: &mut Rng) -> Duration {
        let limit = self.first.saturating_mul(1 << self.tries.min(20)).min(self.longest);
        self.tries += 1;
        Duration::from_nanos(dice.between(1, u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX - 1).max(1)))
    }
}

/// After so many swaps in a row that others were faster than, it pauses.
const RACES_MAX: u32 = 3;

/// An editor at work.
pub(crate) struct Editing<E> {
    desk: Desk,
    editor: E,
    state: State,
    doubt: bool,
    races: u32,
    deadline: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Reading,
    Swapping,
    Asking,
    Over,
}

impl<E: Editor> Editing<E> {
    pub fn new(desk: Desk, editor: E) -> Editing<E> {
        Editing { desk, editor, state: State::Waiting, doubt: false, races: 0, deadline: None }
    }

    fn trouble(&mut self, at: &mut At<'_>, state: State, trouble: Trouble) -> Next<E::Output> {
        let out_of_patience = self.deadline.is_some_and(|deadline| at.now >= deadline);
        match trouble {
            Trouble::Unknown if !out_of_patience => {
                self.doubt |= matches!(state, State::Swapping | State::Asking);
                self.read()
            }
            Trouble::Refused(ObjectFailure::Busy) if !out_of_patience => self.pause(at),
            trouble => {
                self.state = State::Over;
                // Of a swap that was refused it is known that it has not happened; not so of one before it.
                Next::Done(self.editor.fails(if self.doubt { Trouble::Unknown } else { trouble }))
            }
        }
    }

    fn read(&mut self) -> Next<E::Output> {
        self.state = State::Reading;
        let gets = [self.desk.word].into_iter().chain(self.desk.extras.iter().copied()).collect();
        Next::Ask(ObjectRequest {
            commands: vec![ObjectCommand { gets, ..command(self.desk.object, Action::Nothing) }],
        })
    }

    fn pause(&mut self, at: &mut At<'_>) -> Next<E::Output> {
        self.state = State::Waiting;
        Next::Sleep(self.desk.backoff.draw(at.dice))
    }

    fn go(&mut self, at: &mut At<'_>, next: Move<E::Output>) -> Next<E::Output> {
        match next {
            Move::Look => self.read(),
            Move::Swap(_) if self.races > RACES_MAX => {
                self.races = 0;
                self.pause(at)
            }
            Move::Swap(Swap { compare, swap, sets, mut rest }) => {
                self.state = State::Swapping;
                let name = self.desk.word;
                let action =
                    Action::CompareAndSwap { name, compare, swap, undefined: Undefined::IsEmpty, original: true };
                let gets = self.desk.extras.clone();
                let first = command(self.desk.object, action);
                rest.insert(0, ObjectCommand { sets, sets_when: When::IfSwapped, gets, ..first });
                Next::Ask(ObjectRequest { commands: rest })
            }
            Move::Ask(request) => {
                self.state = State::Asking;
                Next::Ask(request)
            }
            Move::Sleep(span) => {
                self.state = State::Waiting;
                Next::Sleep(span)
            }
            Move::Await { name, seen, patience } => {
                self.state = State::Waiting;
                Next::Await { object: self.desk.object, name, seen, patience }
            }
            Move::Done(output) => {
                self.state = State::Over;
                Next::Done(output)
            }
        }
    }

    fn look(&mut self, at: &mut At<'_>, word: Bytes, extras: Vec<Bytes>) -> Next<E::Output> {
        let seen = Seen { word, extras, doubt: std::mem::take(&mut self.doubt) };
        let next = self.editor.look(at, seen);
        self.go(at, next)
    }
}

impl<E: Editor> Procedure for Editing<E> {
    type Output = E::Output;

    fn resume(&mut self, now: Time, dice: &mut Rng, answer: Answer) -> Next<E::Output> {
        let value = if let Answer::Value(value) = &answer { Some(value.clone()) } else { None };
        let at = &mut At { now, dice, value };
        let patience = self.desk.patience;
        self.deadline.get_or_insert(now.after(patience));
        match (self.state, answer) {
            (State::Over, _) => panic!("a procedure that is over does not go on"),
            // A device that can't wait for an attribute: then time does.
            (State::Waiting, Answer::Trouble(_)) => self.pause(at),
            (State::Waiting, _) if self.doubt => self.read(),
            (State::Waiting, _) => {
                let next = self.editor.begin(at);
                self.go(at, next)
            }
            (State::Reading, Answer::Results(results)) if results.len() == 1 => {
                let mut values = results.into_iter().next().expect("one result").values;
                if values.len() != 1 + self.desk.extras.len() {
                    return self.trouble(at, State::Reading, Trouble::Unknown);
                }
                let word = values.remove(0);
                self.look(at, word, values)
            }
            (State::Swapping, Answer::Results(mut results)) => match results.first_mut() {
                Some(CommandResult { action: ActionResult::Compared { swapped: true, .. }, .. }) => {
                    self.races = 0;
                    let next = self.editor.made(at, results);
                    self.go(at, next)
                }
                Some(CommandResult { action: ActionResult::Compared { original: Some(word), .. }, values })
                    if values.len() == self.desk.extras.len() =>
                {
                    self.races += 1;
                    let (word, extras) = (std::mem::take(word), std::mem::take(values));
                    self.look(at, word, extras)
                }
                _ => self.trouble(at, State::Swapping, Trouble::Unknown),
            },
            (State::Asking, Answer::Results(results)) => {
                let next = self.editor.told(at, results);
                self.go(at, next)
            }
            (state, Answer::Trouble(trouble)) => self.trouble(at, state, trouble),
            // What a device must not answer is as good as no answer.
            (state, _) => self.trouble(at, state, Trouble::Unknown),
        }
    }
}

/// A command with nothing attached.
pub(crate) fn command(object: ObjectId, action: Action) -> ObjectCommand {
    let always = When::Always;
    ObjectCommand { object, when: always, action, sets: Vec::new(), sets_when: always, gets: Vec::new() }
}

/// Adds to a number if everything before has swapped; tells what it was.
pub(crate) fn add_if_swapped(object: ObjectId, name: AttributeName, add: i64) -> ObjectCommand {
    let action = Action::FetchAndAdd { name, add, original: true };
    ObjectCommand { when: When::IfSwapped, ..command(object, action) }
}

/// A number of eight bytes, big-endian; 0 if it is undefined; none if it is something else.
pub(crate) fn number(value: &Bytes) -> Option<u64> {
    match value.len() {
        0 => Some(0),
        8 => Some(u64::from_be_bytes(value[..].try_into().expect("eight bytes"))),
        _ => None,
    }
}

/// The same the other way.
pub(crate) fn number_bytes(number: u64) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}
