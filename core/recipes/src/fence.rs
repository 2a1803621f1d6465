//! Fences: how a device refuses the late writes of who holds a thing no longer.
//!
//! ```text
//!   guarded:   [ CAS  fence: mine → mine, strictly ]  [ all the rest, if swapped ]        one request: all of it or nothing
//!
//!   raise:     read fence  ── higher than mine ──▶ lost
//!                 │ lower                                      whoever holds raises the fence of an object elsewhere
//!                 ▼                                            before it reads or writes there
//!              CAS lower → mine
//! ```
//!
//! A *token* is a number that grows with each grant: of a lock, the token; of a delivery counter, the ticket; of fail-over, the term. The structure itself
//! keeps one in an attribute beside its word, which guards data in the same space (device). For data elsewhere, each object (or
//! whatever is written together) has a fence attribute of its own.
//!
//! **A fence never falls**: `Raise` swaps only for a higher token. **A guarded request happens only while its token is in the fence**: so none
//! of a holder's happens after the next holder has raised it. Not guaranteed: anything for requests that are not guarded, or that others guard by
//! another fence.

use crate::asking::{Asking, Results};
use crate::edit::{At, Backoff, CasLoop, CasPolicy, CasTarget, Move, Patience, Seen, Swap, number, number_bytes};
use crate::procedure::{Answer, Next, Procedure, RequestFailure};
use braid_base::{ObjectId, Rng, Time, limits};
use braid_wire::{Action, ActionResult, AttributeName, CommandResult, ObjectCommand, ObjectRequest, When};
use bytes::Bytes;
use std::time::Duration;

/// A token in an attribute: what guarded requests compare.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fence {
    /// In which object.
    pub object: ObjectId,
    /// In which attribute.
    pub name: AttributeName,
    /// The token.
    pub token: u64,
}

impl Fence {
    /// The same request, of which nothing happens unless the token is in the attribute. See [`unguard`] for its answer.
    pub fn guard(&self, request: ObjectRequest) -> Result<ObjectRequest, Unguardable> {
        let guard = Asking::of(self.object).test(self.name, &number_bytes(self.token));
        Ok(guard.then(if_swapped(request, 1)?).request())
    }

    /// Puts the token into the attribute, unless a higher one is there.
    pub fn raise(&self) -> Raise {
        let backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(500));
        let patience = Patience::For(Duration::from_secs(30));
        let target = CasTarget { object: self.object, word: self.name, extras: Vec::new(), backoff, patience };
        Raise(CasLoop::new(target, Raising(self.clone())))
    }
}

/// Results of a guarded request, without the guard's own; or that it came too late.
pub fn unguard(mut results: Vec<CommandResult>) -> Result<Vec<CommandResult>, Fenced> {
    let guard = (!results.is_empty()).then(|| results.remove(0).action);
    match guard {
        Some(ActionResult::Compared { swapped: true, .. }) => Ok(results),
        Some(ActionResult::Compared { original: Some(value), .. }) => Err(Fenced { token: number(&value) }),
        _ => Err(Fenced { token: None }),
    }
}

/// A guarded request came too late: nothing of it has happened, and its sender holds no longer what it held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too late: another one holds it now, and nothing of the request has happened")]
pub struct Fenced {
    /// The token in the fence, if that is one; 0: nobody holds it.
    pub token: Option<u64>,
}

/// Why a request can't be guarded: what it does may depend on its own compare-and-swaps only in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unguardable {
    /// It has something to do if a compare-and-swap has not swapped: it would do that if the guard finds another token.
    #[error("command {0} is for when a compare-and-swap has not swapped: it would be done when the guard refuses")]
    IfNotSwapped(usize),
    /// It has something to do always, behind a compare-and-swap of its own: it would not do that if this has not swapped.
    #[error(
        "command {0} is to be done whatever the compare-and-swap before it finds: a guarded request has no way to say so"
    )]
    Always(usize),
    /// Too many commands.
    #[error("{0} commands and the guard are more than a request can have")]
    TooMany(usize),
}

/// A request's commands, each to be done only if everything before has swapped, behind `own` others.
pub(crate) fn if_swapped(request: ObjectRequest, own: usize) -> Result<Vec<ObjectCommand>, Unguardable> {
    let mut commands = request.commands;
    if commands.len() + own > limits::OBJECT_COMMANDS_MAX {
        return Err(Unguardable::TooMany(commands.len()));
    }
    let mut swaps = false;
    for (number, command) in commands.iter_mut().enumerate() {
        if command.when == When::IfNotSwapped || command.sets_when == When::IfNotSwapped && !command.sets.is_empty() {
            return Err(Unguardable::IfNotSwapped(number));
        }
        if swaps && command.when == When::Always {
            return Err(Unguardable::Always(number));
        }
        swaps |= matches!(command.action, Action::CompareAndSwap { .. });
        if swaps && command.sets_when == When::Always && !command.sets.is_empty() {
            return Err(Unguardable::Always(number));
        }
        command.when = When::IfSwapped;
        command.sets_when = When::IfSwapped;
    }
    Ok(commands)
}

/// Puts a token into a fence. From then on, nothing happens there that is guarded by a lower one.
pub struct Raise(CasLoop<Raising>);

impl Procedure for Raise {
    type Output = Result<(), RaiseError>;

    fn resume(&mut self, now: Time, rng: &mut Rng, answer: Answer) -> Next<Self::Output> {
        self.0.resume(now, rng, answer)
    }
}

/// Why a fence was not raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RaiseError {
    /// Another one holds it by now.
    #[error("too late: a later holder, of token {token}, has been here")]
    TooLate {
        /// Its token.
        token: u64,
    },
    /// The attribute is used for something else.
    #[error("what is there is no fence")]
    NoFence,
    /// The device can't.
    #[error("the fence could not be raised: {0}")]
    RequestFailure(RequestFailure),
}

struct Raising(Fence);

impl Raising {
    fn swap(&self, compare: Bytes) -> Move<Result<(), RaiseError>> {
        Move::Swap(Swap { compare, swap: number_bytes(self.0.token), sets: Vec::new(), rest: Vec::new() })
    }
}

impl CasPolicy for Raising {
    type Output = Result<(), RaiseError>;

    fn begin(&mut self, _at: &mut At<'_>) -> Move<Self::Output> {
        self.swap(Bytes::new())
    }

    fn look(&mut self, _at: &mut At<'_>, seen: Seen) -> Move<Self::Output> {
        match number(&seen.word) {
            None => Move::Done(Err(RaiseError::NoFence)),
            Some(_) if seen.word.is_empty() => self.swap(seen.word),
            Some(token) if token > self.0.token => Move::Done(Err(RaiseError::TooLate { token })),
            Some(token) if token == self.0.token => Move::Done(Ok(())),
            Some(_) => self.swap(seen.word),
        }
    }

    fn made(&mut self, _at: &mut At<'_>, _results: Results) -> Move<Self::Output> {
        Move::Done(Ok(()))
    }

    fn fails(&mut self, failure: RequestFailure) -> Self::Output {
        Err(RaiseError::RequestFailure(failure))
    }
}
