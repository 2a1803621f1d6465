//! A compare-and-swap loop on one attribute, the *word*. It is the common part of locks, delivery counters and fail-over: a policy proposes
//! a new value, until a swap succeeds or the policy ends the operation.
//!
//! ```text
//!          ┌─ begin ─▶ swap blindly ─┐                         swapped ──▶ made
//!   start ─┤                         ├─▶ CAS ── other value ──▶ look ─┬─▶ CAS again
//!          └─ read ──────────────────┘                ▲               ├─▶ wait, then begin again
//!                                        Unknown ─▶ read              └─▶ done
//! ```
//!
//! A compare-and-swap that fails returns the word, so it costs no more than a read. After [`RequestFailure::Unknown`] the word is read, and
//! the policy determines from it whether its swap has happened: what it writes contains its own nonce.

use crate::procedure::{Answer, Next, Procedure, RequestFailure};
use crate::request_builder::{RequestBuilder, Results};
use braid_base::{Backoff, ObjectId, Rng, Time};
use braid_wire::{AttributeName, ObjectCommand, ObjectFailure, ObjectRequest, SetAttribute};
use bytes::Bytes;
use std::time::Duration;

/// Decides how a word is changed.
pub(crate) trait CasPolicy {
    /// The result of the procedure.
    type Value;
    type Error: From<RequestFailure>;

    /// The first step, before the word is known; also the step after every wait.
    fn begin(&mut self, _ctx: &mut StepContext<'_>) -> MoveOf<Self> {
        Move::Look
    }

    /// The step for a word that was read.
    fn look(&mut self, ctx: &mut StepContext<'_>, seen: Seen) -> MoveOf<Self>;

    /// The step after a successful swap.
    fn made(&mut self, ctx: &mut StepContext<'_>, results: Results) -> MoveOf<Self>;

    /// The step after [`Move::Ask`].
    fn told(&mut self, _ctx: &mut StepContext<'_>, _results: Results) -> MoveOf<Self> {
        Move::Look
    }

    /// The result after a failure. After [`RequestFailure::Unknown`], the last request may have been executed.
    fn fails(&mut self, failure: RequestFailure) -> Self::Error {
        failure.into()
    }
}

pub(crate) type OutputOf<P> = Result<<P as CasPolicy>::Value, <P as CasPolicy>::Error>;
pub(crate) type MoveOf<P> = Move<OutputOf<P>>;

/// Reads the word once.
pub(crate) struct Look<F>(pub F);

impl<T, E: From<RequestFailure>, F: FnMut(Seen) -> Result<T, E>> CasPolicy for Look<F> {
    type Value = T;
    type Error = E;

    fn look(&mut self, _ctx: &mut StepContext<'_>, seen: Seen) -> MoveOf<Self> {
        Move::Done(self.0(seen))
    }

    fn made(&mut self, _ctx: &mut StepContext<'_>, _results: Results) -> MoveOf<Self> {
        unreachable!("this policy never swaps")
    }
}

/// The time and the random source.
pub(crate) struct StepContext<'a> {
    pub now: Time,
    /// How much of the patience is left.
    pub left: Duration,
    pub rng: &'a mut Rng,
    /// After [`Move::Await`], the attribute's value.
    pub value: Option<Bytes>,
}

/// The word, and the attributes read with it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub word: Bytes,
    pub extras: Vec<Bytes>,
    /// The last swap (or request) may have happened.
    pub outcome_unknown: bool,
}

/// The next step of a policy.
pub(crate) enum Move<T> {
    /// Reads the word.
    Look,
    /// It swaps.
    Swap(Swap),
    /// Makes another request. If its outcome is unknown, the policy is told by [`Seen::outcome_unknown`].
    Ask(RequestBuilder),
    Sleep(Duration),
    /// Sleeps for a while, longer each time.
    Pause,
    /// Waits for another value of an attribute, if the device can do that.
    Await {
        name: AttributeName,
        seen: Bytes,
        patience: Duration,
    },
    Done(T),
}

/// A compare-and-swap, and the commands that go with it.
#[derive(Clone, Debug)]
pub(crate) struct Swap {
    pub compare: Bytes,
    pub swap: Bytes,
    /// Set if it swaps.
    pub sets: Vec<SetAttribute>,
    /// Appended; these must state themselves that they depend on the swap.
    pub rest: Vec<ObjectCommand>,
}

/// The attributes of the word, and how patiently it is changed.
#[derive(Clone, Debug)]
pub(crate) struct CasTarget {
    pub object: ObjectId,
    pub word: AttributeName,
    /// Read together with the word.
    pub extras: Vec<AttributeName>,
    pub backoff: Backoff,
    pub patience: Patience,
}

/// When to give up.
#[derive(Clone, Debug)]
pub(crate) enum Patience {
    /// After this time, a failure is final. A request in progress is waited for as long as the driver does.
    For(Duration),
    /// At this time, whatever is in progress, since a later result would be useless. An operation that begins later has the given duration.
    Until(Time, Duration),
}

/// The next pause before a retry: random, and never zero.
fn random_pause(backoff: &mut Backoff, rng: &mut Rng) -> Duration {
    backoff.next_random_wait(Duration::from_nanos(1), rng)
}

/// After this many swaps in a row that other clients were faster than, it pauses.
const RACES_MAX: u32 = 3;

/// A compare-and-swap loop in progress.
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
    Requesting,
    Over,
}

impl<E: CasPolicy> CasLoop<E> {
    pub fn new(target: CasTarget, policy: E) -> CasLoop<E> {
        CasLoop { target, policy, state: State::Waiting, outcome_unknown: false, races: 0, deadline: None }
    }

    fn failure(&mut self, ctx: &mut StepContext<'_>, state: State, failure: RequestFailure) -> Next<OutputOf<E>> {
        match failure {
            RequestFailure::Unknown if !ctx.left.is_zero() => {
                self.outcome_unknown |= matches!(state, State::Swapping | State::Requesting);
                self.read(ctx)
            }
            RequestFailure::Refused(ObjectFailure::Busy) if !ctx.left.is_zero() => self.pause(ctx),
            failure => self.fail(failure),
        }
    }

    /// A refused swap is known not to have happened; an earlier one may have.
    fn fail(&mut self, failure: RequestFailure) -> Next<OutputOf<E>> {
        self.state = State::Over;
        let failure = if self.outcome_unknown { RequestFailure::Unknown } else { failure };
        Next::Done(Err(self.policy.fails(failure)))
    }

    /// How long a request may take.
    fn left(&self, ctx: &StepContext<'_>) -> Duration {
        if matches!(self.target.patience, Patience::Until(..)) { ctx.left } else { Duration::MAX }
    }

    fn ask(&mut self, ctx: &StepContext<'_>, state: State, request: ObjectRequest) -> Next<OutputOf<E>> {
        let patience = self.left(ctx);
        if patience.is_zero() {
            return self.fail(RequestFailure::Unknown);
        }
        self.state = state;
        Next::Ask { request, patience }
    }

    fn read(&mut self, ctx: &StepContext<'_>) -> Next<OutputOf<E>> {
        let gets = [self.target.word].into_iter().chain(self.target.extras.iter().copied()).collect();
        self.ask(ctx, State::Reading, RequestBuilder::of(self.target.object).get(gets).request())
    }

    fn pause(&mut self, ctx: &mut StepContext<'_>) -> Next<OutputOf<E>> {
        self.state = State::Waiting;
        Next::Sleep(random_pause(&mut self.target.backoff, ctx.rng).min(self.left(ctx)))
    }

    fn go(&mut self, ctx: &mut StepContext<'_>, next: MoveOf<E>) -> Next<OutputOf<E>> {
        match next {
            Move::Look => self.read(ctx),
            Move::Swap(_) if self.races > RACES_MAX => {
                self.races = 0;
                self.pause(ctx)
            }
            Move::Swap(Swap { compare, swap, sets, rest }) => {
                let builder = RequestBuilder::of(self.target.object).swap(self.target.word, &compare, &swap);
                let builder = builder.with_sets(sets).with_gets(self.target.extras.clone()).then(rest);
                self.ask(ctx, State::Swapping, builder.request())
            }
            Move::Ask(builder) => self.ask(ctx, State::Requesting, builder.request()),
            Move::Sleep(span) => {
                self.state = State::Waiting;
                Next::Sleep(span)
            }
            Move::Pause => {
                self.state = State::Waiting;
                Next::Sleep(random_pause(&mut self.target.backoff, ctx.rng).min(ctx.left))
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

    fn look(&mut self, ctx: &mut StepContext<'_>, word: Bytes, extras: &[Bytes]) -> Next<OutputOf<E>> {
        let seen = Seen { word, extras: extras.to_vec(), outcome_unknown: std::mem::take(&mut self.outcome_unknown) };
        let next = self.policy.look(ctx, seen);
        self.go(ctx, next)
    }

    /// Handles a word that was read or found by a failed comparison, and the extras. A malformed answer is treated like a lost one.
    fn on_results(&mut self, ctx: &mut StepContext<'_>, results: Results) -> Result<Next<OutputOf<E>>, RequestFailure> {
        let extras = self.target.extras.len();
        match self.state {
            State::Reading => {
                let values = results.values(0, 1 + extras)?;
                Ok(self.look(ctx, values[0].clone(), &values[1..]))
            }
            State::Swapping if results.swapped(0)? => {
                self.races = 0;
                let next = self.policy.made(ctx, results);
                Ok(self.go(ctx, next))
            }
            State::Swapping => {
                let (_, word) = results.compared(0)?.ok_or(RequestFailure::Unknown)?;
                self.races += 1;
                Ok(self.look(ctx, word, results.values(0, extras)?))
            }
            _ => {
                let next = self.policy.told(ctx, results);
                Ok(self.go(ctx, next))
            }
        }
    }
}

impl<E: CasPolicy> Procedure for CasLoop<E> {
    type Output = OutputOf<E>;

    fn resume(&mut self, now: Time, rng: &mut Rng, answer: Answer) -> Next<OutputOf<E>> {
        let value = if let Answer::Value(value) = &answer { Some(value.clone()) } else { None };
        let deadline = *self.deadline.get_or_insert(match self.target.patience {
            Patience::Until(end, _) if now < end => end,
            Patience::For(span) | Patience::Until(_, span) => now.after(span),
        });
        let ctx = &mut StepContext { now, left: deadline.since(now), rng, value };
        match (self.state, answer) {
            (State::Over, _) => panic!("a procedure that has ended is not resumed"),
            // The device cannot wait for an attribute, so the operation pauses instead.
            (State::Waiting, Answer::RequestFailure(_)) => self.pause(ctx),
            (State::Waiting, _) if self.outcome_unknown => self.read(ctx),
            (State::Waiting, _) => {
                let next = self.policy.begin(ctx);
                self.go(ctx, next)
            }
            (state, Answer::RequestFailure(failure)) => self.failure(ctx, state, failure),
            (state, Answer::Results(results)) => match self.on_results(ctx, Results(results)) {
                Ok(next) => next,
                Err(_) => self.failure(ctx, state, RequestFailure::Unknown),
            },
            (state, _) => self.failure(ctx, state, RequestFailure::Unknown),
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

/// The inverse of [`number`].
pub(crate) fn number_bytes(number: u64) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}
