//! The program of a client: a procedure, and depending on its result, the next one. `L` is the record of the test, shared by all clients.
//!
//! ```text
//! run(lock.acquire("a"), move |_, grant| match grant {
//!     Ok(grant) => ask(write, move |moment: &mut Moment<Observations>, answer| { moment.observed.wrote += 1; run(grant.release(), |_, _| over()) }),
//!     Err(_) => over(),
//! })
//! ```

use braid_base::{Rng, Time};
use braid_recipes::{Answer, Next, Procedure};
use braid_wire::ObjectRequest;
use std::time::Duration;

/// The state of a client at the end of one of its procedures.
pub struct Moment<'a, L> {
    pub client: usize,
    /// The time by the client's own clock, which differs from the others'.
    pub now: Time,
    /// True time, which no client sees.
    pub true_now: Time,
    /// The client's random source.
    pub rng: &'a mut Rng,
    /// The test's record.
    pub observed: &'a mut L,
}

/// The rest of a client's program.
pub struct Doing<L>(pub(super) Option<Box<dyn Runs<L>>>);

/// The result of a step.
pub(super) enum Step<L> {
    /// The client makes this request, and continues with the answer. The duration, if given, is the delay of the request.
    Wants(Next<()>, Option<Duration>),
    /// The client continues with this.
    Then(Doing<L>),
}

pub(super) trait Runs<L> {
    fn resume(&mut self, moment: &mut Moment<L>, answer: Answer) -> Step<L>;
}

/// The client has finished.
pub fn over<L>() -> Doing<L> {
    Doing(None)
}

/// Runs a procedure to its end.
pub fn run<L, P, F>(procedure: P, then: F) -> Doing<L>
where
    P: Procedure + 'static,
    F: FnOnce(&mut Moment<L>, P::Output) -> Doing<L> + 'static,
{
    Doing(Some(Box::new(Run { procedure, then: Some(then) })))
}

/// Makes one request.
pub fn ask<L, F>(request: ObjectRequest, then: F) -> Doing<L>
where
    F: FnOnce(&mut Moment<L>, Answer) -> Doing<L> + 'static,
{
    Doing(Some(Box::new(One { wants: Some((Next::ask(request), None)), then: Some(then) })))
}

/// Makes one request, which is delayed by this time.
pub fn late<L, F>(delay: Duration, request: ObjectRequest, then: F) -> Doing<L>
where
    F: FnOnce(&mut Moment<L>, Answer) -> Doing<L> + 'static,
{
    Doing(Some(Box::new(One { wants: Some((Next::ask(request), Some(delay))), then: Some(then) })))
}

/// Sleeps.
pub fn sleep<L, F>(span: Duration, then: F) -> Doing<L>
where
    F: FnOnce(&mut Moment<L>) -> Doing<L> + 'static,
{
    let then = move |moment: &mut Moment<L>, _: Answer| then(moment);
    Doing(Some(Box::new(One { wants: Some((Next::Sleep(span), None)), then: Some(then) })))
}

struct Run<P, F> {
    procedure: P,
    then: Option<F>,
}

impl<L, P, F> Runs<L> for Run<P, F>
where
    P: Procedure,
    F: FnOnce(&mut Moment<L>, P::Output) -> Doing<L>,
{
    fn resume(&mut self, moment: &mut Moment<L>, answer: Answer) -> Step<L> {
        let mut output = None;
        match self.procedure.resume(moment.now, moment.rng, answer).map(|end| output = Some(end)) {
            Next::Done(()) => {
                let (then, output) = (self.then.take().expect("it ends once"), output.expect("just ended"));
                Step::Then(then(moment, output))
            }
            wants => Step::Wants(wants, None),
        }
    }
}

struct One<F> {
    wants: Option<(Next<()>, Option<Duration>)>,
    then: Option<F>,
}

impl<L, F> Runs<L> for One<F>
where
    F: FnOnce(&mut Moment<L>, Answer) -> Doing<L>,
{
    fn resume(&mut self, moment: &mut Moment<L>, answer: Answer) -> Step<L> {
        if let Some((wants, delay)) = self.wants.take() {
            return Step::Wants(wants, delay);
        }
        Step::Then(self.then.take().expect("it ends once")(moment, answer))
    }
}
