//! The program of a client: an async function that runs procedures and makes requests. `L` is the record of the test, shared by all clients.
//!
//! ```text
//! world.client(async |me| {
//!     let Ok(grant) = me.run(lock.acquire("a")).await else { return };
//!     me.ask(write).await;
//!     me.observed().wrote += 1;
//!     me.run(grant.release()).await.expect("it was held");
//! });
//! ```

use braid_base::{Rng, Time};
use braid_recipes::{Answer, Next, Procedure};
use braid_wire::ObjectRequest;
use std::cell::{RefCell, RefMut};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// What a client wants next, and the delay of its request, if it is given.
pub(super) type Wants = (Next<()>, Option<Duration>);

type Program = Pin<Box<dyn Future<Output = ()>>>;

/// A client, as its program sees it.
pub struct Me<L> {
    state: Rc<RefCell<State>>,
    observed: Rc<RefCell<L>>,
}

struct State {
    client: usize,
    now: Time,
    true_now: Time,
    rng: Rng,
    wants: Option<Wants>,
    answer: Option<Answer>,
}

/// A program that has not begun.
pub struct Doing<L>(Box<dyn FnOnce(Me<L>) -> Program>);

pub fn doing<L, F>(program: impl FnOnce(Me<L>) -> F + 'static) -> Doing<L>
where
    F: Future<Output = ()> + 'static,
{
    Doing(Box::new(|me| Box::pin(program(me))))
}

/// A program that has begun.
pub(super) struct Running {
    state: Rc<RefCell<State>>,
    program: Program,
}

impl Running {
    pub fn begin<L>(doing: Doing<L>, client: usize, rng: Rng, observed: Rc<RefCell<L>>) -> Running {
        let (now, true_now) = (Time(0), Time(0));
        let state = Rc::new(RefCell::new(State { client, now, true_now, rng, wants: None, answer: None }));
        Running { state: state.clone(), program: doing.0(Me { state, observed }) }
    }

    /// Continues with an answer, up to the next request or wait; none if the program has ended.
    pub fn step(&mut self, now: Time, true_now: Time, answer: Answer) -> Option<Wants> {
        {
            let mut state = self.state.borrow_mut();
            (state.now, state.true_now, state.answer) = (now, true_now, Some(answer));
        }
        match self.program.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(()) => None,
            Poll::Pending => {
                Some(self.state.borrow_mut().wants.take().expect("a client waits for its own requests only"))
            }
        }
    }
}

impl<L> Me<L> {
    pub fn client(&self) -> usize {
        self.state.borrow().client
    }

    /// The time by the client's own clock, which differs from the others'.
    pub fn now(&self) -> Time {
        self.state.borrow().now
    }

    /// True time, which no client sees.
    pub fn true_now(&self) -> Time {
        self.state.borrow().true_now
    }

    /// The test's record.
    pub fn observed(&self) -> RefMut<'_, L> {
        self.observed.borrow_mut()
    }

    /// A number below `bound`, from the client's random source.
    pub fn below(&self, bound: u64) -> u64 {
        self.state.borrow_mut().rng.below(bound)
    }

    pub fn chance(&self, parts: u64, whole: u64) -> bool {
        self.state.borrow_mut().rng.chance(parts, whole)
    }

    /// Runs a procedure to its end.
    pub async fn run<P: Procedure>(&self, mut procedure: P) -> P::Output {
        let mut answer = Answer::None;
        loop {
            let mut output = None;
            let now = self.now();
            let next = procedure.resume(now, &mut self.state.borrow_mut().rng, answer).map(|end| output = Some(end));
            if let Some(output) = output {
                return output;
            }
            answer = self.want(next, None).await;
        }
    }

    pub async fn ask(&self, request: ObjectRequest) -> Answer {
        self.want(Next::ask(request), None).await
    }

    /// Makes one request, which is delayed by this time.
    pub async fn late(&self, delay: Duration, request: ObjectRequest) -> Answer {
        self.want(Next::ask(request), Some(delay)).await
    }

    pub async fn sleep(&self, span: Duration) {
        self.want(Next::Sleep(span), None).await;
    }

    fn want(&self, next: Next<()>, delay: Option<Duration>) -> impl Future<Output = Answer> {
        let mut state = self.state.borrow_mut();
        (state.wants, state.answer) = (Some((next, delay)), None);
        std::future::poll_fn(|_| self.state.borrow_mut().answer.take().map_or(Poll::Pending, Poll::Ready))
    }
}
