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
//! A compare-and-swap that fails tells the word, so it costs no more than reading. After [`RequestFailure::Unknown`] the word is read, and the
//! editor finds in it whether its swap has happened: what it puts there carries a nonce of its own.

use crate::asking::{Asking, Results};
use crate::procedure::{Answer, Next, Procedure, RequestFailure};
use braid_base::{ObjectId, Rng, Time};
use braid_wire::{AttributeName, ObjectCommand, ObjectFailure, ObjectRequest, SetAttribute};
use bytes::Bytes;
use std::time::Duration;

/// What is wanted of a word.
pub(crate) trait CasPolicy {
    /// What the procedure ends with.
    type Output;

    /// What to try without knowing the word: at first, and after every wait.
    fn begin(&mut self, _at: &mut At<'_>) -> Move<Self::Output> {
        Move::Look
    }

    /// What to do about the word as it is.
    fn look(&mut self, at: &mut At<'_>, seen: Seen) -> Move<Self::Output>;

    /// What to do once the last swap is made.
    fn made(&mut self, at: &mut At<'_>, results: Results) -> Move<Self::Output>;

    /// What to do after [`Move::Ask`].
    fn told(&mut self, _at: &mut At<'_>, _results: Results) -> Move<Self::Output> {
        Move::Look
    }

    /// How it ends when it can't be done. Unknown: what was asked last may have been done.
    fn fails(&mut self, failure: RequestFailure) -> Self::Output;
}

/// The moment, and the random source.
pub(crate) struct At<'a> {
    pub now: Time,
    pub rng: &'a mut Rng,
    /// After [`Move::Await`], the attribute's value.
    pub value: Option<Bytes>,
}

/// The word, and what else was got with it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub word: Bytes,
    pub extras: Vec<Bytes>,
    /// The last swap (or request) may have happened.
    pub outcome_unknown: bool,
}

/// What an editor does next.
pub(crate) enum Move<T> {
    /// It reads the word.
    Look,
    /// It swaps.
    Swap(Swap),
    /// It has something else done. Of a request whose fate is unknown, it hears by [`Seen::outcome_unknown`].
    Ask(Asking),
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
pub(crate) struct CasTarget {
    pub object: ObjectId,
    pub word: AttributeName,
    /// Got whenever the word is looked at.
    pub extras: Vec<AttributeName>,
    pub backoff: Backoff,
    pub patience: Patience,
}

/// When to give up.
#[derive(Clone, Debug)]
pub(crate) enum Patience {
    /// After so long, trouble is the end. What is under way then is waited for as long as its driver does.
    For(Duration),
    /// At this time, whatever is under way: from then on it would be of no use. What begins later has so long.
    Until(Time, Duration),
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

    pub fn draw(&mut self, rng: &mut Rng) -> Duration {
        let limit = self.first.saturating_mul(1 << self.tries.min(20)).min(self.longest);
        self.tries += 1;
        Duration::from_nanos(rng.between(1, u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX - 1).max(1)))
    }
}

/// After so many swaps in a row that others were faster than, it pauses.
const RACES_MAX: u32 = 3;

/// An editor at work.
pub(crate) struct CasLoop<E> {
    target: CasTarget,
    policy: E,
    state: State,
    outcome_unknown: bool,
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

impl<E: CasPolicy> CasLoop<E> {
    pub fn new(target: CasTarget, policy: E) -> CasLoop<E> {
        CasLoop { target, policy, state: State::Waiting, outcome_unknown: false, races: 0, deadline: None }
    }

    fn failure(&mut self, at: &mut At<'_>, state: State, failure: RequestFailure) -> Next<E::Output> {
        let out_of_patience = self.deadline.is_some_and(|deadline| at.now >= deadline);
        match failure {
            RequestFailure::Unknown if !out_of_patience => {
                self.outcome_unknown |= matches!(state, State::Swapping | State::Asking);
                self.read(at)
            }
            RequestFailure::Refused(ObjectFailure::Busy) if !out_of_patience => self.pause(at),
            failure => self.fail(failure),
        }
    }

    /// Of a swap that was refused it is known that it has not happened; not so of one before it.
    fn fail(&mut self, failure: RequestFailure) -> Next<E::Output> {
        self.state = State::Over;
        Next::Done(self.policy.fails(if self.outcome_unknown { RequestFailure::Unknown } else { failure }))
    }

    /// How long something may take.
    fn left(&self, at: &At<'_>) -> Duration {
        match (&self.target.patience, self.deadline) {
            (Patience::Until(..), Some(deadline)) => deadline.since(at.now),
            _ => Duration::MAX,
        }
    }

    fn ask(&mut self, at: &At<'_>, state: State, request: ObjectRequest) -> Next<E::Output> {
        let patience = self.left(at);
        if patience.is_zero() {
            return self.fail(RequestFailure::Unknown);
        }
        self.state = state;
        Next::Ask { request, patience }
    }

    fn read(&mut self, at: &At<'_>) -> Next<E::Output> {
        let gets = [self.target.word].into_iter().chain(self.target.extras.iter().copied()).collect();
        self.ask(at, State::Reading, Asking::of(self.target.object).get(gets).request())
    }

    fn pause(&mut self, at: &mut At<'_>) -> Next<E::Output> {
        self.state = State::Waiting;
        Next::Sleep(self.target.backoff.draw(at.rng).min(self.left(at)))
    }

    fn go(&mut self, at: &mut At<'_>, next: Move<E::Output>) -> Next<E::Output> {
        match next {
            Move::Look => self.read(at),
            Move::Swap(_) if self.races > RACES_MAX => {
                self.races = 0;
                self.pause(at)
            }
            Move::Swap(Swap { compare, swap, sets, rest }) => {
                let asking = Asking::of(self.target.object).swap(self.target.word, &compare, &swap);
                let asking = asking.with_sets(sets).with_gets(self.target.extras.clone()).then(rest);
                self.ask(at, State::Swapping, asking.request())
            }
            Move::Ask(asking) => self.ask(at, State::Asking, asking.request()),
            Move::Sleep(span) => {
                self.state = State::Waiting;
                Next::Sleep(span)
            }
            Move::Await { name, seen, patience } => {
                self.state = State::Waiting;
                Next::Await { object: self.target.object, name, seen, patience }
            }
            Move::Done(output) => {
                self.state = State::Over;
                Next::Done(output)
            }
        }
    }

    fn look(&mut self, at: &mut At<'_>, word: Bytes, extras: &[Bytes]) -> Next<E::Output> {
        let seen = Seen { word, extras: extras.to_vec(), outcome_unknown: std::mem::take(&mut self.outcome_unknown) };
        let next = self.policy.look(at, seen);
        self.go(at, next)
    }

    /// A word that was read, or found instead of the one compared with, and the extras. What a device must not answer is as good as no answer.
    fn heard(&mut self, at: &mut At<'_>, results: Results) -> Result<Next<E::Output>, RequestFailure> {
        let extras = self.target.extras.len();
        match self.state {
            State::Reading => {
                let values = results.values(0, 1 + extras)?;
                Ok(self.look(at, values[0].clone(), &values[1..]))
            }
            State::Swapping if results.swapped(0)? => {
                self.races = 0;
                let next = self.policy.made(at, results);
                Ok(self.go(at, next))
            }
            State::Swapping => {
                let (_, word) = results.compared(0)?.ok_or(RequestFailure::Unknown)?;
                self.races += 1;
                Ok(self.look(at, word, results.values(0, extras)?))
            }
            _ => {
                let next = self.policy.told(at, results);
                Ok(self.go(at, next))
            }
        }
    }
}

impl<E: CasPolicy> Procedure for CasLoop<E> {
    type Output = E::Output;

    fn resume(&mut self, now: Time, rng: &mut Rng, answer: Answer) -> Next<E::Output> {
        let value = if let Answer::Value(value) = &answer { Some(value.clone()) } else { None };
        let at = &mut At { now, rng, value };
        self.deadline.get_or_insert(match self.target.patience {
            Patience::Until(end, _) if now < end => end,
            Patience::For(span) | Patience::Until(_, span) => now.after(span),
        });
        match (self.state, answer) {
            (State::Over, _) => panic!("a procedure that is over does not go on"),
            // A device that can't wait for an attribute: then time does.
            (State::Waiting, Answer::RequestFailure(_)) => self.pause(at),
            (State::Waiting, _) if self.outcome_unknown => self.read(at),
            (State::Waiting, _) => {
                let next = self.policy.begin(at);
                self.go(at, next)
            }
            (state, Answer::RequestFailure(failure)) => self.failure(at, state, failure),
            (state, Answer::Results(results)) => match self.heard(at, Results(results)) {
                Ok(next) => next,
                Err(_) => self.failure(at, state, RequestFailure::Unknown),
            },
            (state, _) => self.failure(at, state, RequestFailure::Unknown),
        }
    }
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
