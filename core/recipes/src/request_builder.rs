//! Functions that all structures use: they build requests, interpret answers, and repeat requests that were not answered.
//!
//! All comparisons are strict: an undefined attribute equals only a value of no bytes. So no structure restores an attribute that another
//! client has removed.

use crate::procedure::{Answer, Next, Operation, Procedure, RequestFailure};
use braid_base::{ObjectId, Rng, Time};
use braid_wire::{
    Action, ActionResult, AttributeName, CommandResult, ObjectCommand, ObjectFailure, ObjectRequest, SetAttribute,
    Undefined, When,
};
use bytes::Bytes;
use std::time::Duration;

pub(crate) struct RequestBuilder {
    object: ObjectId,
    commands: Vec<ObjectCommand>,
}

impl RequestBuilder {
    pub(crate) fn of(object: ObjectId) -> RequestBuilder {
        RequestBuilder { object, commands: Vec::new() }
    }

    /// Compares and swaps, and returns the value that was there.
    pub(crate) fn swap(self, name: AttributeName, compare: &Bytes, swap: &Bytes) -> RequestBuilder {
        self.swap_when(When::Always, name, compare, swap)
    }

    /// The same, if all comparisons before have held.
    pub(crate) fn then_swap(self, name: AttributeName, compare: &Bytes, swap: &Bytes) -> RequestBuilder {
        self.swap_when(When::IfSwapped, name, compare, swap)
    }

    fn swap_when(self, when: When, name: AttributeName, compare: &Bytes, swap: &Bytes) -> RequestBuilder {
        let (compare, swap) = (compare.clone(), swap.clone());
        self.command(
            when,
            Action::CompareAndSwap { name, compare, swap, undefined: Undefined::IsEmpty, original: true },
        )
    }

    /// Changes nothing; later commands depend on whether the attribute has this value.
    pub(crate) fn test(self, name: AttributeName, value: &Bytes) -> RequestBuilder {
        self.swap(name, value, value)
    }

    /// Sets attributes if the last command's comparison has held, too.
    pub(crate) fn with_sets(mut self, sets: Vec<SetAttribute>) -> RequestBuilder {
        let last = self.commands.last_mut().expect("it belongs to a command");
        (last.sets, last.sets_when) = (sets, When::IfSwapped);
        self
    }

    /// Reads attributes with the last command.
    pub(crate) fn with_gets(mut self, gets: Vec<AttributeName>) -> RequestBuilder {
        self.commands.last_mut().expect("it belongs to a command").gets = gets;
        self
    }

    /// Appends commands that state their own conditions.
    pub(crate) fn then(mut self, commands: impl IntoIterator<Item = ObjectCommand>) -> RequestBuilder {
        self.commands.extend(commands);
        self
    }

    /// Adds if all comparisons before have held, and returns the value that was there.
    pub(crate) fn then_add(self, name: AttributeName, add: i64) -> RequestBuilder {
        self.command(When::IfSwapped, Action::FetchAndAdd { name, add, original: true })
    }

    /// Sets attributes if all comparisons before have held.
    pub(crate) fn then_set(self, sets: Vec<SetAttribute>) -> RequestBuilder {
        self.command(When::IfSwapped, Action::Nothing).with_sets(sets)
    }

    /// Reads attributes unconditionally.
    pub(crate) fn get(self, gets: Vec<AttributeName>) -> RequestBuilder {
        self.command(When::Always, Action::Nothing).with_gets(gets)
    }

    /// Reads attributes if all comparisons before have held.
    pub(crate) fn then_get(self, gets: Vec<AttributeName>) -> RequestBuilder {
        self.command(When::IfSwapped, Action::Nothing).with_gets(gets)
    }

    /// Lists attributes of a page unconditionally.
    pub(crate) fn list(self, page: u32, after: Option<u32>, most: u32) -> RequestBuilder {
        let after = after.map(|number| AttributeName::new(page, number));
        self.command(When::Always, Action::ListAttributes { after, page: Some(page), most })
    }

    fn command(mut self, when: When, action: Action) -> RequestBuilder {
        let (sets, gets) = (Vec::new(), Vec::new());
        self.commands.push(ObjectCommand { object: self.object, when, action, sets, sets_when: When::Always, gets });
        self
    }

    pub(crate) fn request(self) -> ObjectRequest {
        ObjectRequest { commands: self.commands }
    }

    pub(crate) fn done<T>(self) -> Next<T> {
        Next::ask(self.request())
    }
}

/// A command part that sets an attribute.
pub(crate) fn set(name: AttributeName, value: &Bytes) -> SetAttribute {
    SetAttribute { name, value: value.clone() }
}

/// The results of a request. They come from the network: a result that does not fit its command counts as damage.
pub(crate) struct Results(pub(crate) Vec<CommandResult>);

impl Results {
    /// Whether the compare-and-swap found the expected value, and the value found. `None` if it was skipped.
    pub(crate) fn compared(&self, command: usize) -> Result<Option<(bool, Bytes)>, RequestFailure> {
        match self.action(command)? {
            ActionResult::Skipped => Ok(None),
            ActionResult::Compared { swapped, original: Some(original) } => Ok(Some((*swapped, original.clone()))),
            _ => Err(DAMAGED),
        }
    }

    /// True if the compare-and-swap was executed and has swapped.
    pub(crate) fn swapped(&self, command: usize) -> Result<bool, RequestFailure> {
        Ok(self.compared(command)?.is_some_and(|(swapped, _)| swapped))
    }

    /// The value before an addition. `None` if it was skipped.
    pub(crate) fn added(&self, command: usize) -> Result<Option<i64>, RequestFailure> {
        match self.action(command)? {
            ActionResult::Skipped => Ok(None),
            ActionResult::Added { original: Some(original) } => Ok(Some(*original)),
            _ => Err(DAMAGED),
        }
    }

    /// True if a command was executed.
    pub(crate) fn happened(&self, command: usize) -> Result<bool, RequestFailure> {
        Ok(!matches!(self.action(command)?, ActionResult::Skipped))
    }

    /// The values that were read; an error if there are not `count` of them.
    pub(crate) fn values(&self, command: usize, count: usize) -> Result<&[Bytes], RequestFailure> {
        let values = &self.0.get(command).ok_or(DAMAGED)?.values;
        if values.len() == count { Ok(values) } else { Err(DAMAGED) }
    }

    /// The listed attributes: numbers and lengths, and whether there are more.
    pub(crate) fn listed(&self, command: usize) -> Result<(Vec<(u32, u32)>, bool), RequestFailure> {
        match self.action(command)? {
            ActionResult::Attributes { found, more } => {
                Ok((found.iter().map(|(name, length)| (name.number, *length)).collect(), *more))
            }
            _ => Err(DAMAGED),
        }
    }

    pub(crate) fn from(mut self, command: usize) -> Vec<CommandResult> {
        self.0.split_off(command.min(self.0.len()))
    }

    fn action(&self, command: usize) -> Result<&ActionResult, RequestFailure> {
        self.0.get(command).map(|result| &result.action).ok_or(DAMAGED)
    }
}

/// The attributes do not contain what the structure stores there.
pub(crate) const DAMAGED: RequestFailure = RequestFailure::Refused(ObjectFailure::Lost);

/// How often a device may refuse because it is busy, or not answer in time, before an operation fails.
const TRIES_MAX: u32 = 8;

/// If the device has no room for a wait, the operation sleeps for up to this many milliseconds instead.
const INSTEAD_OF_WAITING_MS: u64 = 50;

/// The next step, or why there is none.
pub(crate) type Step<T> = Result<Next<T>, RequestFailure>;

/// The steps of an operation that makes one request after the other.
pub(crate) trait Steps: Send + 'static {
    /// The result.
    type Output;

    /// The next step after an answer; none at the beginning, after a wait, and if a request that changes nothing was not answered.
    fn step(&mut self, now: Time, rng: &mut Rng, results: Option<Results>) -> Step<Self::Output>;

    /// The request that finds out whether the last one has taken effect; none if that one was not to take effect.
    fn inquiry(&mut self) -> Option<RequestBuilder> {
        None
    }

    /// The next step after the answer to the inquiry; an error if the operation is still in doubt.
    fn found_out(&mut self, _: Time, _: &mut Rng, _: Results) -> Result<Step<Self::Output>, RequestFailure> {
        unreachable!("nothing was inquired")
    }

    /// A request is sent, perhaps again; or a wait begins. Returns how long to wait for the answer to a request.
    fn on_sent(&mut self, _now: Time) -> Duration {
        Duration::MAX
    }

    /// The result after a failure. `in_doubt`: it is unknown whether the operation has taken effect.
    fn fails(&mut self, failure: RequestFailure, in_doubt: bool) -> Result<Self::Output, RequestFailure> {
        Err(if in_doubt { RequestFailure::Unknown } else { failure })
    }
}

/// The operation with the steps that `begin` makes when it begins, since they contain random numbers.
pub(crate) fn operation<S: Steps>(
    begin: impl FnOnce(Time, &mut Rng) -> Result<S, RequestFailure> + Send + 'static,
) -> Operation<Result<S::Output, RequestFailure>> {
    Box::new(Retried { begin: Some(begin), steps: None, last: Last::Nothing, busy: 0, unknown: 0, in_doubt: false })
}

/// Steps in progress. Without an answer, a request is repeated a limited number of times.
struct Retried<B, S> {
    begin: Option<B>,
    steps: Option<S>,
    last: Last,
    busy: u32,
    unknown: u32,
    in_doubt: bool,
}

/// The last step of an operation.
#[derive(Clone, Debug, Default)]
enum Last {
    #[default]
    Nothing,
    Asked(ObjectRequest),
    Awaited,
    /// It sleeps before this request is repeated, since the device was busy.
    Again(ObjectRequest),
}

impl<B, S> Procedure for Retried<B, S>
where
    B: FnOnce(Time, &mut Rng) -> Result<S, RequestFailure>,
    S: Steps,
{
    type Output = Result<S::Output, RequestFailure>;

    fn resume(&mut self, now: Time, rng: &mut Rng, answer: Answer) -> Next<Self::Output> {
        let mut steps = match (self.begin.take(), self.steps.take()) {
            (Some(begin), _) => match begin(now, rng) {
                Ok(steps) => steps,
                Err(failure) => return Next::Done(Err(failure)),
            },
            (None, steps) => steps.expect("a procedure that has ended is not resumed"),
        };
        let next = self.advance(&mut steps, now, rng, answer);
        let patience = steps.on_sent(now);
        let next = match next {
            Ok(Next::Ask { .. }) if patience.is_zero() => Next::Done(Err(RequestFailure::Unknown)),
            Ok(Next::Ask { request, .. }) => Next::Ask { request, patience },
            Ok(next) => next.map(Ok),
            Err(failure) => Next::Done(steps.fails(failure, self.in_doubt)),
        };
        self.steps = Some(steps);
        next
    }
}

impl<B, S: Steps> Retried<B, S> {
    fn advance(&mut self, steps: &mut S, now: Time, rng: &mut Rng, answer: Answer) -> Step<S::Output> {
        let next = match (answer, std::mem::take(&mut self.last)) {
            (Answer::None, Last::Again(request)) => Next::ask(request),
            (Answer::None | Answer::Value(_), _) => steps.step(now, rng, None)?,
            (Answer::Results(results), _) => {
                (self.busy, self.unknown) = (0, 0);
                if self.in_doubt {
                    let step = steps.found_out(now, rng, Results(results))?;
                    self.in_doubt = false;
                    step?
                } else {
                    steps.step(now, rng, Some(Results(results)))?
                }
            }
            (Answer::RequestFailure(failure), last) => {
                if let Some(sleep) = self.pause(rng, failure, last)? {
                    return Ok(Next::Sleep(sleep));
                }
                let inquiry = steps.inquiry();
                self.in_doubt |= inquiry.is_some();
                inquiry.map_or_else(|| steps.step(now, rng, None), |inquiry| Ok(inquiry.done()))?
            }
        };
        match &next {
            Next::Ask { request, .. } => self.last = Last::Asked(request.clone()),
            Next::Await { .. } => self.last = Last::Awaited,
            _ => {}
        }
        Ok(next)
    }

    /// How long to sleep before a retry; none if the operation continues without an answer.
    fn pause(
        &mut self,
        rng: &mut Rng,
        failure: RequestFailure,
        last: Last,
    ) -> Result<Option<Duration>, RequestFailure> {
        match (failure, last) {
            (RequestFailure::Refused(ObjectFailure::Busy), Last::Asked(request)) if self.busy < TRIES_MAX => {
                self.busy += 1;
                self.last = Last::Again(request);
                Ok(Some(Duration::from_millis(rng.between(1, 1 << self.busy))))
            }
            (RequestFailure::Refused(ObjectFailure::Busy), Last::Awaited) => {
                Ok(Some(Duration::from_millis(rng.between(INSTEAD_OF_WAITING_MS / 5, INSTEAD_OF_WAITING_MS))))
            }
            (RequestFailure::Unknown, _) if self.unknown < TRIES_MAX => {
                self.unknown += 1;
                Ok(None)
            }
            (failure, _) => Err(failure),
        }
    }
}
