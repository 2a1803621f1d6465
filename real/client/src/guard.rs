//! Guarded requests, which the device refuses if they come from a former holder.

use crate::error::{Error, RequestError};
use crate::request::{Answers, Request};
use braid_recipes::counter::Turn;
use braid_recipes::failover::Leadership;
use braid_recipes::fencing_token::{Fence, Unguardable, unguard};
use braid_recipes::lock::Grant;
use braid_wire::ObjectRequest;

/// Something that a request can be guarded by: a [`Grant`] of a lock, a [`Turn`] or a [`Leadership`], each for requests to the device or
/// attribute volume on which it was won; or a [`Fence`] that was raised elsewhere.
pub trait Guard {
    /// The same request, with no effect if the guard is no longer held.
    ///
    /// # Errors
    /// [`Unguardable`] if the commands depend on each other in a way that a guarded request cannot express.
    fn guard(&self, request: ObjectRequest) -> Result<ObjectRequest, Unguardable>;
}

macro_rules! guards {
    ($($guard:ty),*) => {$(
        impl Guard for $guard {
            fn guard(&self, request: ObjectRequest) -> Result<ObjectRequest, Unguardable> {
                <$guard>::guard(self, request)
            }
        }
    )*};
}

guards!(Fence, Grant, Turn, Leadership);

impl Request {
    /// Sends the request under a guard. The answers are those of this request's own commands.
    ///
    /// Each of its commands is executed only if every compare-and-swap before it has swapped.
    ///
    /// ```no_run
    /// # use braid_client::{Error, Object, recipes::lock::Grant};
    /// # async fn example(object: Object, grant: Grant) -> Result<(), Error> {
    /// match object.request().write(0, "only while I have the lock").guarded(&grant).await {
    ///     Ok(_) => println!("written"),
    ///     Err(refused) if matches!(refused.error, Error::TooLate { .. }) => println!("another client has the lock"),
    ///     Err(failed) => return Err(failed.into()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::TooLate`] if the guard is no longer held: the request has had no effect. [`Error::Unguardable`] if a command has another
    /// condition.
    pub async fn guarded(self, by: &impl Guard) -> Result<Answers, RequestError> {
        let space = self.space().clone();
        let request = by.guard(self.into()).map_err(Error::Unguardable)?;
        let answers = space.send(request).await.map_err(without_guard)?;
        let results = unguard(answers.into_results()).map_err(|fenced| Error::TooLate { token: fenced.token })?;
        Ok(Answers::from(results))
    }
}

/// Corrects the index of the failed command: the guard is a command before all others, which the caller does not know.
fn without_guard(error: RequestError) -> RequestError {
    RequestError { command: error.command.and_then(|command| command.checked_sub(1)), error: error.error }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_wire::ObjectFailure;

    #[test]
    fn commands_are_counted_without_the_guard() {
        let of = |command| {
            without_guard(RequestError { command, error: Error::Object(ObjectFailure::NoSuchObject) }).command
        };
        assert_eq!([of(None), of(Some(0)), of(Some(1)), of(Some(2))], [None, None, Some(0), Some(1)]);
    }
}
