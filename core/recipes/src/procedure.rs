//! The interface of all operations: a procedure makes one request at a time and takes its answer, until it is done.
//!
//! A procedure has no socket and no clock. Its driver sends the requests, waits, and passes the time and the answers to the procedure.
//! Dropping a procedure is like a crash at that step: its last request may still be executed.
//!
//! Operations are written as `async` functions with an `Asker`, and their only await point is `Asker::want`. No executor runs them:
//! [`Procedure::resume`] polls the function once, up to its next request. So an operation stays a pure function of what its driver passes.

use braid_base::{ObjectId, Rng, Time};
use braid_wire::{AttributeName, ObjectFailure, ObjectRequest};
use bytes::Bytes;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// An operation in progress.
pub trait Procedure {
    /// The result.
    type Output;

    /// Advances the operation. `answer` is [`Answer::None`] at the beginning and after a sleep, otherwise the answer to the last request.
    fn resume(&mut self, now: Time, rng: &mut Rng, answer: Answer) -> Next<Self::Output>;
}

/// An operation that programs run. They need not know its steps.
pub type Operation<T> = Box<dyn Procedure<Output = T> + Send>;

/// The operation that an async function describes.
pub(crate) fn operation<T, F>(function: impl FnOnce(Asker) -> F) -> Operation<T>
where
    F: Future<Output = T> + Send + 'static,
{
    let exchange = Exchange { now: Time(0), rng: Rng::new(0), answer: None, wanted: None };
    let asker = Asker(Arc::new(Mutex::new(exchange)));
    Box::new(Written { function: Box::pin(function(asker.clone())), asker })
}

/// The handle by which an operation makes requests.
#[derive(Clone)]
pub(crate) struct Asker(Arc<Mutex<Exchange>>);

/// What a driver and its operation pass to each other.
struct Exchange {
    now: Time,
    /// The driver's random source, while the operation is polled.
    rng: Rng,
    answer: Option<Answer>,
    wanted: Option<Next<Infallible>>,
}

impl Asker {
    /// The time of the last answer.
    pub(crate) fn now(&self) -> Time {
        self.exchange().now
    }

    /// Draws from the random source.
    pub(crate) fn draw<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut self.exchange().rng)
    }

    /// Makes a request, or waits, and returns the answer. The only await point of all operations.
    pub(crate) async fn want(&self, next: Next<Infallible>) -> Answer {
        {
            let mut exchange = self.exchange();
            (exchange.wanted, exchange.answer) = (Some(next), None);
        }
        std::future::poll_fn(|_| self.exchange().answer.take().map_or(Poll::Pending, Poll::Ready)).await
    }

    pub(crate) async fn sleep(&self, span: Duration) {
        self.want(Next::Sleep(span)).await;
    }

    fn exchange(&self) -> MutexGuard<'_, Exchange> {
        self.0.lock().expect("the driver and its operation take turns")
    }
}

struct Written<F> {
    function: Pin<Box<F>>,
    asker: Asker,
}

impl<F: Future> Procedure for Written<F> {
    type Output = F::Output;

    fn resume(&mut self, now: Time, rng: &mut Rng, answer: Answer) -> Next<F::Output> {
        {
            let mut exchange = self.asker.exchange();
            (exchange.now, exchange.answer) = (now, Some(answer));
            std::mem::swap(&mut exchange.rng, rng);
        }
        let polled = self.function.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let mut exchange = self.asker.exchange();
        std::mem::swap(&mut exchange.rng, rng);
        match polled {
            Poll::Ready(output) => Next::Done(output),
            Poll::Pending => exchange
                .wanted
                .take()
                .expect("an operation waits for its own requests only")
                .map(|never| match never {}),
        }
    }
}

impl<P: Procedure + ?Sized> Procedure for Box<P> {
    type Output = P::Output;

    fn resume(&mut self, now: Time, rng: &mut Rng, answer: Answer) -> Next<P::Output> {
        (**self).resume(now, rng, answer)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing was requested.
    None,
    /// To [`Next::Ask`]: the results of the commands. A request that was refused yields [`RequestFailure::Refused`] instead.
    Results(Vec<braid_wire::CommandResult>),
    /// To [`Next::Await`]: the value, which may be the known one.
    Value(Bytes),
    /// The request failed.
    RequestFailure(RequestFailure),
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestFailure {
    /// The device refused it; nothing of it has happened.
    #[error("{0}")]
    Refused(ObjectFailure),
    /// The device did not answer in time. The request may have been executed or not, and may still be executed, until the device has
    /// executed a later request of the same client. So what that later request finds is final.
    #[error("the device did not answer in time: the request may have been executed or not")]
    Unknown,
    /// A value is too long. Nothing was requested.
    #[error("too long: at most {most} bytes are allowed")]
    TooLong {
        /// The most bytes that are allowed.
        most: usize,
    },
    /// A name without bytes. Nothing was requested.
    #[error("a name must have at least one byte")]
    NoName,
}

/// The next step of a procedure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next<T> {
    /// A request to the device. A driver may be less patient: then it reports [`RequestFailure::Unknown`] earlier.
    Ask {
        request: ObjectRequest,
        /// How long to wait for the answer at most.
        patience: Duration,
    },
    /// Waits until an attribute differs from a known value. The device may answer earlier with the known value, or refuse with
    /// [`ObjectFailure::Busy`]: a procedure must be able to do without this wait.
    Await {
        /// The object of the attribute.
        object: ObjectId,
        name: AttributeName,
        /// The known value.
        seen: Bytes,
        /// How long to wait at most.
        patience: Duration,
    },
    Sleep(Duration),
    /// The operation is over.
    Done(T),
}

impl<T> Next<T> {
    /// A request whose answer is waited for as long as the driver does.
    pub fn ask(request: ObjectRequest) -> Next<T> {
        Next::Ask { request, patience: Duration::MAX }
    }

    /// The same step with another result.
    pub fn map<U>(self, end: impl FnOnce(T) -> U) -> Next<U> {
        match self {
            Next::Ask { request, patience } => Next::Ask { request, patience },
            Next::Await { object, name, seen, patience } => Next::Await { object, name, seen, patience },
            Next::Sleep(span) => Next::Sleep(span),
            Next::Done(output) => Next::Done(end(output)),
        }
    }
}
