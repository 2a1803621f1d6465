//! Fencing tokens. A fence is an attribute with a token, by which a device refuses the late writes of a former holder.
//!
//! ```text
//!   guarded:   [ CAS  fence: mine → mine, strictly ]  [ all the rest, if swapped ]        one request, all or nothing
//!
//!   raise:     read fence  ── higher than mine ──▶ lost
//!                 │ lower                                      the holder raises the fence of an object elsewhere
//!                 ▼                                            before it reads or writes there
//!              CAS lower → mine
//! ```
//!
//! A *token* is a number that grows with each grant: a lock's token, a delivery counter's ticket, the term of fail-over. The structure
//! itself keeps its token in an attribute beside its word, which guards data in the same space (device). For data elsewhere, each object
//! (or each set of data that is written together) has a fence attribute of its own.
//!
//! **A fence never falls**: [`Fence::raise`] swaps only for a higher token. **A guarded request takes effect only while its token is in the fence**:
//! so none of a holder's requests takes effect after the next holder has raised the fence. Not guaranteed: anything about requests that are
//! not guarded, or that are guarded by another fence.

use crate::cas_loop::{CasTarget, Patience, Seen, Swap, Turn, cas_loop, number, number_bytes};
use crate::procedure::{Operation, RequestFailure};
use crate::request_builder::RequestBuilder;
use braid_base::{Backoff, ObjectId, limits};
use braid_wire::{Action, ActionResult, AttributeName, CommandResult, ObjectCommand, ObjectRequest, When};
use bytes::Bytes;
use std::time::Duration;

/// A token in an attribute, which guarded requests compare.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fence {
    /// The object of the attribute.
    pub object: ObjectId,
    pub name: AttributeName,
    pub token: u64,
}

impl Fence {
    /// The same request, with no effect unless the token is in the attribute. Pass its results to [`unguard`].
    pub fn guard(&self, request: ObjectRequest) -> Result<ObjectRequest, Unguardable> {
        let guard = RequestBuilder::of(self.object).test(self.name, &number_bytes(self.token));
        Ok(guard.then(if_swapped(request, 1)?).request())
    }

    /// Writes the token to the attribute, unless a higher one is there. From then on, requests guarded by a lower token have no effect.
    pub fn raise(&self) -> Operation<Result<(), RaiseError>> {
        let backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(500));
        let patience = Patience::For(Duration::from_secs(30));
        let target = CasTarget { object: self.object, word: self.name, extras: Vec::new(), backoff, patience };
        let own = self.token;
        cas_loop(target, move |mut cas| async move {
            let mut compare = Bytes::new();
            loop {
                let swap = Swap { compare, swap: number_bytes(own), sets: Vec::new(), rest: Vec::new() };
                compare = match cas.swap(swap).await? {
                    Turn::Made(_) => return Ok(()),
                    Turn::Paused => Bytes::new(),
                    Turn::Seen(Seen { word, .. }) => match number(&word).ok_or(RaiseError::NoFence)? {
                        token if token > own => return Err(RaiseError::TooLate { token }),
                        token if token == own && !word.is_empty() => return Ok(()),
                        _ => word,
                    },
                }
            }
        })
    }
}

/// The results of a guarded request without the guard's own; or an error if the guard refused it.
pub fn unguard(mut results: Vec<CommandResult>) -> Result<Vec<CommandResult>, Fenced> {
    let guard = (!results.is_empty()).then(|| results.remove(0).action);
    match guard {
        Some(ActionResult::Compared { swapped: true, .. }) => Ok(results),
        Some(ActionResult::Compared { original: Some(value), .. }) => Err(Fenced { token: number(&value) }),
        _ => Err(Fenced { token: None }),
    }
}

/// A guarded request came too late: it has had no effect, and its sender is not the holder any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too late: another client holds it now, and the request has had no effect")]
pub struct Fenced {
    /// The token in the fence, if it contains one; 0 if there is no holder.
    pub token: Option<u64>,
}

/// Why a request cannot be guarded: its commands must depend on its own compare-and-swaps in a certain way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unguardable {
    #[error(
        "command {0} is conditional on a compare-and-swap that has not swapped: it would be executed when the guard refuses"
    )]
    IfNotSwapped(usize),
    /// A command is to be executed unconditionally behind a compare-and-swap of the request: it would be skipped if that has not swapped.
    #[error("command {0} is unconditional behind a compare-and-swap: a guarded request cannot express that")]
    Always(usize),
    #[error("{0} commands and the guard exceed the limit of a request")]
    TooMany(usize),
}

/// The commands of a request, each to be executed only if all before it have swapped; they follow `own` other commands.
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

/// Why a fence was not raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RaiseError {
    #[error("too late: a later holder, of token {token}, has raised the fence")]
    TooLate {
        /// The later holder's token.
        token: u64,
    },
    /// The attribute is used for something else.
    #[error("the attribute is not a fence")]
    NoFence,
    /// The device cannot execute the request.
    #[error("the fence could not be raised: {0}")]
    RequestFailure(#[from] RequestFailure),
}
