//! Requests of directories, lists and queues: they are repeated a limited number of times if the device is busy or does not answer.
//!
//! ```text
//!   read       repeated until it is answered
//!   ask        the caller learns that it was not answered
//!   change     if it is not answered, an inquiry finds out whether it has taken effect
//! ```

use crate::procedure::{Answer, Asker, Next, Operation, RequestFailure};
use crate::request_builder::{RequestBuilder, Results};
use braid_base::{ObjectId, Rng, Time};
use braid_wire::{AttributeName, ObjectFailure, ObjectRequest};
use bytes::Bytes;
use std::time::Duration;

/// How often a device may refuse because it is busy, or not answer in time, before an operation fails.
const TRIES_MAX: u32 = 8;

/// If the device has no room for a wait, the operation sleeps for up to this many milliseconds instead.
const INSTEAD_OF_WAITING_MS: u64 = 50;

/// The operation that an async function describes.
pub(crate) fn operation<T, F>(function: impl FnOnce(Requester) -> F) -> Operation<T>
where
    F: Future<Output = T> + Send + 'static,
{
    crate::procedure::operation(|asker| function(Requester { asker, asked: Time(0), ends: None, busy: 0, unknown: 0 }))
}

pub(crate) struct Requester {
    asker: Asker,
    /// When the last request was sent, perhaps again.
    pub(crate) asked: Time,
    /// When the operation gives up, if it does.
    pub(crate) ends: Option<Time>,
    busy: u32,
    unknown: u32,
}

/// What is known of a request that was to take effect.
pub(crate) enum Outcome {
    Answered(Results),
    /// It was not answered: the results of the inquiry.
    Inquired(Results),
}

impl Requester {
    pub(crate) fn now(&self) -> Time {
        self.asker.now()
    }

    pub(crate) fn draw<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        self.asker.draw(draw)
    }

    /// Returns the results; none if it was not answered.
    pub(crate) async fn ask(&mut self, builder: RequestBuilder) -> Result<Option<Results>, RequestFailure> {
        self.send(&builder.request()).await
    }

    /// A request that changes nothing that matters.
    pub(crate) async fn read(&mut self, builder: RequestBuilder) -> Result<Results, RequestFailure> {
        let request = builder.request();
        loop {
            if let Some(results) = self.send(&request).await? {
                return Ok(results);
            }
        }
    }

    /// A request that takes effect, and the request that finds out whether it has. What the last one finds is final.
    pub(crate) async fn change(
        &mut self,
        builder: RequestBuilder,
        inquiry: RequestBuilder,
    ) -> Result<Outcome, RequestFailure> {
        match self.ask(builder).await? {
            Some(results) => Ok(Outcome::Answered(results)),
            None => self.read(inquiry).await.map(Outcome::Inquired).map_err(|_| RequestFailure::Unknown),
        }
    }

    /// Waits until an attribute differs from what was seen, or for some time.
    pub(crate) async fn wait(
        &mut self,
        object: ObjectId,
        name: AttributeName,
        seen: Bytes,
        patience: Duration,
    ) -> Result<(), RequestFailure> {
        match self.asker.want(Next::Await { object, name, seen, patience }).await {
            Answer::RequestFailure(RequestFailure::Refused(ObjectFailure::Busy)) => {
                self.sleep_for(INSTEAD_OF_WAITING_MS / 5, INSTEAD_OF_WAITING_MS).await;
            }
            Answer::RequestFailure(RequestFailure::Unknown) if self.unknown < TRIES_MAX => self.unknown += 1,
            Answer::RequestFailure(failure) => return Err(failure),
            _ => {}
        }
        Ok(())
    }

    async fn send(&mut self, request: &ObjectRequest) -> Result<Option<Results>, RequestFailure> {
        loop {
            self.asked = self.now();
            let patience = self.ends.map_or(Duration::MAX, |ends| ends.since(self.asked));
            if patience.is_zero() {
                return Err(RequestFailure::Unknown);
            }
            match self.asker.want(Next::Ask { request: request.clone(), patience }).await {
                Answer::Results(results) => {
                    (self.busy, self.unknown) = (0, 0);
                    return Ok(Some(Results(results)));
                }
                Answer::RequestFailure(RequestFailure::Refused(ObjectFailure::Busy)) if self.busy < TRIES_MAX => {
                    self.busy += 1;
                    self.sleep_for(1, 1 << self.busy).await;
                }
                Answer::RequestFailure(RequestFailure::Unknown) if self.unknown < TRIES_MAX => {
                    self.unknown += 1;
                    return Ok(None);
                }
                Answer::RequestFailure(failure) => return Err(failure),
                Answer::None | Answer::Value(_) => return Ok(None),
            }
        }
    }

    /// Sleeps for a random number of milliseconds.
    async fn sleep_for(&self, least: u64, most: u64) {
        let millis = self.draw(|rng| rng.between(least, most));
        self.asker.sleep(Duration::from_millis(millis)).await;
    }
}
