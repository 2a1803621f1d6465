//! Renewing and releasing a lock.

use super::word::Word;
use super::{Grant, LastRequest, LockError, Mode};
use crate::cas_loop::{CasLoop, Swap, Turn, cas_loop, number, number_bytes};
use crate::fencing_token::{Unguardable, if_swapped};
use crate::hold_word::{patience_to_give_back, patience_to_renew, was_too_slow};
use crate::procedure::{Operation, RequestFailure};
use crate::request_builder::{RequestBuilder, set};
use braid_wire::{CommandResult, ObjectCommand, ObjectRequest};
use bytes::Bytes;

impl Grant {
    /// Renews it for another lease. Ends at [`sure_until`](Grant::sure_until) at the latest, or, if begun later, after a third of the
    /// lease.
    pub fn renew(&self) -> Operation<Result<Grant, LockError>> {
        let grant = self.clone();
        let target = grant.lock.target(patience_to_renew(grant.sure_until(), grant.entry.lease));
        cas_loop(target, |mut cas| async move { keep(grant, &mut cas).await })
    }

    /// Releases it, or fails with [`LockError::Lost`] if it was broken before. Tries for one lease; after that, others may break the lock
    /// anyway.
    pub fn release(self) -> Operation<Result<(), LockError>> {
        give(self, None, |_| ())
    }

    /// Executes a last request and releases the lock in one round trip. If the lock is no longer held, the request has no effect. Tries for
    /// three leases, to learn the outcome.
    pub fn release_with(self, request: ObjectRequest) -> Result<LastRequest, Unguardable> {
        Ok(give(self, Some(if_swapped(request, 2)?), |results| results))
    }
}

async fn keep(grant: Grant, cas: &mut CasLoop) -> Result<Grant, LockError> {
    let (mut compare, mut entry) = (grant.word.clone(), grant.entry.next_heartbeat());
    loop {
        let mut word = Word::decode(&compare).ok_or(LockError::NoLock)?;
        let mine = word.holders.iter_mut().find(|mine| mine.nonce == entry.nonce).ok_or(LockError::Lost)?;
        *mine = entry.clone();
        let kept = Grant { entry: entry.clone(), word: word.encode(), sent: cas.now(), ..grant.clone() };
        let turn = cas.swap(Swap { compare, swap: kept.word.clone(), sets: Vec::new(), rest: Vec::new() }).await;
        compare =
            match turn.map_err(|failure| if was_too_slow(failure) { LockError::Uncertain } else { failure.into() })? {
                Turn::Made(_) => return Ok(kept),
                Turn::Paused => grant.word.clone(),
                Turn::Seen(seen) => {
                    match Word::decode(&seen.word).and_then(|word| word.holder(entry.nonce).cloned()) {
                        Some(held) if seen.outcome_unknown && held == entry => {
                            return Ok(Grant { word: seen.word, ..kept });
                        }
                        // Renewed through another copy of this grant, at an unknown time.
                        Some(held) if held.heartbeat >= entry.heartbeat => entry = held.next_heartbeat(),
                        _ => {}
                    }
                    seen.word
                }
            };
    }
}

/// Releases it, with a last request if there is one.
fn give<T: 'static>(
    grant: Grant,
    request: Option<Vec<ObjectCommand>>,
    given: fn(Option<Vec<CommandResult>>) -> T,
) -> Operation<Result<T, LockError>> {
    let target = grant.lock.target(patience_to_give_back(grant.entry.lease, request.is_some()));
    cas_loop(target, move |mut cas| async move {
        let (mut compare, mut was_unknown) = (grant.word.clone(), false);
        let mut word = Word::decode(&compare).expect("it was granted with this word");
        loop {
            word.holders.retain(|entry| entry.nonce != grant.entry.nonce);
            let (mut sets, mut rest) = (Vec::new(), RequestBuilder::of(grant.lock.object));
            let ends = word.holders.is_empty();
            if ends {
                rest = rest.then_add(grant.lock.token(), 1);
            }
            if let Some(request) = &request {
                sets.push(set(grant.lock.trace(), &number_bytes(grant.entry.nonce)));
                rest = rest.then(request.iter().cloned());
            }
            compare = match cas.swap(Swap { compare, swap: word.encode(), sets, rest: rest.request().commands }).await?
            {
                Turn::Made(results) => return Ok(given(Some(results.from(1 + usize::from(ends))))),
                Turn::Paused => grant.word.clone(),
                Turn::Seen(seen) => {
                    was_unknown |= seen.outcome_unknown;
                    let (Some(word), Some(token)) = (Word::decode(&seen.word), number(&seen.extras[0])) else {
                        return Err(LockError::NoLock);
                    };
                    if word.holder(grant.entry.nonce).is_none() {
                        if !was_unknown {
                            return Err(LockError::Lost);
                        }
                        return gone(&grant, token, &seen.extras[1], request.is_some()).map(|()| given(None));
                    }
                    seen.word
                }
            };
            word = Word::decode(&compare).ok_or(LockError::NoLock)?;
        }
    })
}

/// Whether it was released by a swap that may have happened, if the entry is not in the word any more.
fn gone(grant: &Grant, token: u64, trace: &Bytes, requests: bool) -> Result<(), LockError> {
    if !requests || number(trace) == Some(grant.entry.nonce) {
        return Ok(());
    }
    // Exactly one hold has ended since: if that was done by this request, its trace would be there, which only a later release overwrites.
    let is_next = grant.mode == Mode::Exclusive && token == grant.token.wrapping_add(1);
    if grant.lock.options.idempotency_record.is_some() || is_next {
        return Err(LockError::Lost);
    }
    Err(LockError::RequestFailure(RequestFailure::Unknown))
}
