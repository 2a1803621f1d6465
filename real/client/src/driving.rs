//! Drives procedures: sends the requests of structures, and passes the answers to them.

use crate::error::{Error, RequestError};
use crate::space::Space;
use crate::value::Value;
use braid_base::Rng;
use braid_recipes::{Answer, Next, Procedure, RequestFailure};
use braid_wire::{ObjectFailure, ObjectRequest};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};

/// The pause after an attribute volume was unavailable.
const AWAY_PAUSE: Duration = Duration::from_millis(500);

impl Space {
    /// Runs a procedure of [`recipes`](crate::recipes) to its end. Each of its requests has this handle's deadline, or the procedure's if
    /// that is shorter; the procedure limits the whole. Dropping the future is like a crash of the program at that step: the last request
    /// may still be executed.
    ///
    /// The procedure handles refusals and time-outs of the device, and an attribute volume whose devices are unavailable.
    ///
    /// # Errors
    /// Errors that a procedure cannot handle, for example [`Error::Fenced`] and [`Error::Closed`].
    pub async fn run<P: Procedure>(&self, mut procedure: P) -> Result<P::Output, Error> {
        let mut rng = Rng::new(seed());
        let mut answer = Answer::None;
        loop {
            let next = procedure.resume(crate::now(), &mut rng, answer);
            answer = match next {
                Next::Ask { request, patience } => self.answer(request, patience).await?,
                Next::Await { object, name, seen, patience } => {
                    match self.await_change(object.0, name, Value::from(seen), patience).await {
                        Ok(value) => Answer::Value(value.into_bytes()),
                        Err(error) => self.request_failure(error, AWAY_PAUSE).await?,
                    }
                }
                Next::Sleep(span) => {
                    self.array().sleep(span).await?;
                    Answer::None
                }
                Next::Done(output) => return Ok(output),
            };
        }
    }

    async fn answer(&self, request: ObjectRequest, patience: Duration) -> Result<Answer, Error> {
        let begun = Instant::now();
        match self.within(patience.min(self.array().deadline())).send(request).await {
            Ok(answers) => Ok(Answer::Results(answers.into_results())),
            Err(RequestError { error, .. }) => {
                self.request_failure(error, patience.saturating_sub(begun.elapsed())).await
            }
        }
    }

    async fn request_failure(&self, error: Error, left: Duration) -> Result<Answer, Error> {
        // This error is returned at once, unlike a time-out: the pause keeps a procedure that retries from busy polling.
        if matches!(error, Error::Unavailable { .. }) {
            self.array().sleep(AWAY_PAUSE.min(left)).await?;
        }
        Ok(Answer::RequestFailure(request_failure(error)?))
    }
}

/// The failure that a procedure is told of; or the error itself, if no procedure can handle it.
fn request_failure(error: Error) -> Result<RequestFailure, Error> {
    let refused = |failure| Ok(RequestFailure::Refused(failure));
    match error {
        Error::TimedOut { .. } | Error::Unavailable { .. } => Ok(RequestFailure::Unknown),
        Error::Object(failure) => refused(failure),
        Error::NoSpace => refused(ObjectFailure::NoSpace),
        Error::Lost => refused(ObjectFailure::Lost),
        Error::Busy => refused(ObjectFailure::Busy),
        error => Err(error),
    }
}

/// A random seed: the standard library seeds every `RandomState` from the system.
fn seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_procedure_gets_the_failures_that_it_can_handle() {
        let failures = [ObjectFailure::NoSuchObject, ObjectFailure::Overflow, ObjectFailure::NotANumber { length: 3 }];
        for failure in failures {
            let handled = request_failure(Error::from(failure)).expect("procedures handle it");
            assert_eq!(handled, RequestFailure::Refused(failure));
        }
        let unavailable = Error::Unavailable { devices: vec![1, 2] };
        assert!(unavailable.may_have_happened(), "a procedure must find out the outcome");
        assert_eq!(request_failure(unavailable).expect("procedures handle it"), RequestFailure::Unknown);
        assert!(matches!(request_failure(Error::Fenced), Err(Error::Fenced)));
        assert_ne!(seed(), seed());
    }
}
