//! The interface of all operations: a procedure makes one request at a time and takes its answer, until it is done.
//!
//! A procedure has no socket and no clock. Its driver sends the requests, waits, and passes the time and the answers to the procedure.
//! Dropping a procedure is like a crash at that step: its last request may still be executed.

use braid_base::{ObjectId, Rng, Time};
use braid_wire::{AttributeName, ObjectFailure, ObjectRequest};
use bytes::Bytes;
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

/// A procedure whose result is another one in the end.
pub(crate) struct Mapped<P, F>(pub P, pub F);

impl<P: Procedure, U, F: FnMut(P::Output) -> U> Procedure for Mapped<P, F> {
    type Output = U;

    fn resume(&mut self, now: Time, rng: &mut Rng, answer: Answer) -> Next<U> {
        self.0.resume(now, rng, answer).map(&mut self.1)
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
