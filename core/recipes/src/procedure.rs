//! What the operations of all structures have in common: one request at a time, an answer, and so on until it is done.
//!
//! A procedure holds no socket and no clock. Its driver sends what it asks for, sleeps when it waits, and tells it the time and the
//! answer. Dropping a procedure is dying at that step: what it has asked for may happen yet or not.

use braid_base::{ObjectId, Rng, Time};
use braid_wire::{AttributeName, ObjectFailure, ObjectRequest};
use bytes::Bytes;
use std::time::Duration;

/// An operation under way.
pub trait Procedure {
    /// What it ends with.
    type Output;

    /// Goes on. `answer` is [`Answer::None`] at first and after a wait, else what came of the last request.
    fn resume(&mut self, now: Time, rng: &mut Rng, answer: Answer) -> Next<Self::Output>;
}

impl<P: Procedure + ?Sized> Procedure for Box<P> {
    type Output = P::Output;

    fn resume(&mut self, now: Time, rng: &mut Rng, answer: Answer) -> Next<P::Output> {
        (**self).resume(now, rng, answer)
    }
}

/// What a procedure hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing was asked.
    None,
    /// To [`Next::Ask`]: of each command. That a request was refused comes as [`RequestFailure::Refused`].
    Results(Vec<braid_wire::CommandResult>),
    /// To [`Next::Await`]: the value, which may be the one that was known.
    Value(Bytes),
    /// It could not be done.
    RequestFailure(RequestFailure),
}

/// Why a request was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestFailure {
    /// The device refuses it, and nothing of it has happened.
    #[error("{0}")]
    Refused(ObjectFailure),
    /// The device did not answer in time: it may have happened or not, and may happen yet, until the device has done a later request
    /// of the same client. So what that one finds is what came of this.
    #[error("the device did not answer in time: what was asked may have been done or not")]
    Unknown,
    /// What is to be put in is too long. Nobody was asked.
    #[error("that is too long: {most} bytes are the most that it can have")]
    TooLong {
        /// The most bytes.
        most: usize,
    },
    /// A name is to be put in that has no bytes. Nobody was asked.
    #[error("a name has one byte at least")]
    NoName,
}

/// What a procedure does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next<T> {
    /// It has the device do this. Whoever drives it may be less patient: then it hears [`RequestFailure::Unknown`] earlier.
    Ask {
        /// What is to be done.
        request: ObjectRequest,
        /// So long at most is the answer worth waiting for.
        patience: Duration,
    },
    /// It waits until an attribute has another value than this, so long at most. It may be answered earlier, with the value that it knows, and be
    /// refused with [`ObjectFailure::Busy`]: whoever waits like this must be able to do without.
    Await {
        /// Of which object.
        object: ObjectId,
        /// Which.
        name: AttributeName,
        /// The value that it knows.
        seen: Bytes,
        /// So long at most.
        patience: Duration,
    },
    /// It waits.
    Sleep(Duration),
    /// It is over.
    Done(T),
}

impl<T> Next<T> {
    /// It has the device do this, and waits for the answer as long as its driver does.
    pub fn ask(request: ObjectRequest) -> Next<T> {
        Next::Ask { request, patience: Duration::MAX }
    }

    /// The same, with another end.
    pub fn map<U>(self, end: impl FnOnce(T) -> U) -> Next<U> {
        match self {
            Next::Ask { request, patience } => Next::Ask { request, patience },
            Next::Await { object, name, seen, patience } => Next::Await { object, name, seen, patience },
            Next::Sleep(span) => Next::Sleep(span),
            Next::Done(output) => Next::Done(end(output)),
        }
    }
}
