//! Driving procedures: structures that are built on objects say what to ask next, and here it is asked.

use crate::error::{Error, RequestError};
use crate::space::Space;
use crate::value::Value;
use braid_base::Rng;
use braid_recipes::{Answer, Next, Procedure, RequestFailure};
use braid_wire::{ObjectFailure, ObjectRequest};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};

/// How long to wait before an attribute volume is asked again that was not to be had.
const AWAY_PAUSE: Duration = Duration::from_millis(500);

impl Space {
    /// Runs a procedure of `braid_recipes` to its end. Each of its requests has this handle's deadline, or the procedure's if that is shorter; how long the
    /// whole takes is the procedure's business. What the device refuses, or does not answer in time, the procedure hears of, and so it does where a
    /// attribute volume's devices are unavailable; anything else ends it here.
    /// Dropping the future is dying at that step.
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
        // Known at once, where silence is known after the deadline: who asks again and again gives the devices time.
        if matches!(error, Error::Unavailable { .. }) {
            self.array().sleep(AWAY_PAUSE.min(left)).await?;
        }
        Ok(Answer::RequestFailure(request_failure(error)?))
    }
}

/// What a procedure hears of an error; or the error, if it is none that a procedure can deal with.
fn request_failure(error: Error) -> Result<RequestFailure, Error> {
    let refused = |failure| Ok(RequestFailure::Refused(failure));
    match error {
        Error::TimedOut { .. } | Error::Unavailable { .. } => Ok(RequestFailure::Unknown),
        Error::NoSuchObject => refused(ObjectFailure::NoSuchObject),
        Error::ObjectExists => refused(ObjectFailure::ObjectExists),
        Error::NotANumber { length } => refused(ObjectFailure::NotANumber { length }),
        Error::Overflow => refused(ObjectFailure::Overflow),
        Error::ValueTooLong { length } => refused(ObjectFailure::ValueTooLong { length }),
        Error::ReservedPage { page } => refused(ObjectFailure::ReservedPage { page }),
        Error::NumberTooHigh => refused(ObjectFailure::NumberTooHigh),
        Error::TooLong => refused(ObjectFailure::TooLong),
        Error::CutsTooMuch => refused(ObjectFailure::CutsTooMuch),
        Error::NoSpace => refused(ObjectFailure::NoSpace),
        Error::Lost => refused(ObjectFailure::Lost),
        Error::Busy => refused(ObjectFailure::Busy),
        Error::Malformed => refused(ObjectFailure::Malformed),
        Error::NotTogether => refused(ObjectFailure::NotTogether),
        Error::NotInAttributeVolume => refused(ObjectFailure::NotInAttributeVolume),
        Error::NotAnAttributeVolume => refused(ObjectFailure::NotAnAttributeVolume),
        error => Err(error),
    }
}

/// From the system's random source: the standard library rolls them for every `RandomState`.
fn seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_procedure_hears_of_what_it_can_deal_with() {
        let failures = [ObjectFailure::NoSuchObject, ObjectFailure::Overflow, ObjectFailure::NotANumber { length: 3 }];
        for failure in failures {
            assert_eq!(request_failure(Error::from(failure)).expect("it is one"), RequestFailure::Refused(failure));
        }
        let unavailable = Error::Unavailable { devices: vec![1, 2] };
        assert!(unavailable.may_have_happened(), "a procedure must find out");
        assert_eq!(request_failure(unavailable).expect("it is one"), RequestFailure::Unknown);
        assert!(matches!(request_failure(Error::Fenced), Err(Error::Fenced)));
        assert_ne!(seed(), seed());
    }
}
