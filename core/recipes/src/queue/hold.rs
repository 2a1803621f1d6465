//! Operations of a consumer on an item that it has claimed: one round trip each.

use super::state::{Claim, State};
use super::{BELL, Claimed, Queue, parted, state_of, work_of};
use crate::idempotency_record::Nonce;
use crate::procedure::{Operation, RequestFailure};
use crate::request_builder::{DAMAGED, RequestBuilder, Results, set};
use crate::requester::{Requester, operation};
use braid_wire::SetAttribute;
use bytes::Bytes;

/// The result of a renewal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// The claim holds for another lease, counted from when the renewal began.
    Kept(Claimed),
    /// Another consumer has claimed the item, or it is finished.
    Lost,
}

/// The result of finishing an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// The item is removed, and the results are set.
    Finished,
    /// The claim was lost: nothing was set.
    Lost,
}

impl Queue {
    /// Renews a claim. Tries for half a lease; a consumer that begins in the other half knows the outcome in time.
    pub fn renew(self, claimed: Claimed) -> Operation<Result<Renewed, RequestFailure>> {
        operation(move |requester| async move {
            let kept = hold(requester, self, claimed, Aim::Renew).await?;
            Ok(kept.map_or(Renewed::Lost, Renewed::Kept))
        })
    }

    /// Finishes an item. `results` are set on the queue's object if, and only if, the claim still holds.
    pub fn finish(self, claimed: Claimed, results: Vec<SetAttribute>) -> Operation<Result<Finished, RequestFailure>> {
        operation(move |requester| async move {
            let kept = hold(requester, self, claimed, Aim::Finish(results)).await?;
            Ok(kept.map_or(Finished::Lost, |_| Finished::Finished))
        })
    }

    /// Gives an item back, so that others can claim it. Tries for half a lease, and succeeds as well if the claim was lost.
    pub fn give_back(self, claimed: Claimed) -> Operation<Result<(), RequestFailure>> {
        operation(move |requester| async move { hold(requester, self, claimed, Aim::GiveBack).await.map(|_| ()) })
    }
}

enum Aim {
    Renew,
    Finish(Vec<SetAttribute>),
    GiveBack,
}

/// A request that compares the state with the claim. Returns the claim as it is at the end, or none if it was lost.
async fn hold(
    mut requester: Requester,
    queue: Queue,
    mut claimed: Claimed,
    aim: Aim,
) -> Result<Option<Claimed>, RequestFailure> {
    let nonce = requester.draw(|rng| Nonce::draw(queue.idempotency_record, rng));
    // It gives up then, unless it finishes the item: that outcome must be known in any case.
    let ends = requester.now().after(queue.lease / 2);
    requester.ends = (!matches!(aim, Aim::Finish(_))).then_some(ends);
    let (state, work) = (state_of(claimed.item), work_of(claimed.item));
    loop {
        let builder = || RequestBuilder::of(queue.object);
        let swap = |to: State| builder().swap(state, &State::Claimed(claimed.claim).encode(), &to.encode());
        let renewed = Claim { heartbeat: claimed.claim.heartbeat.wrapping_add(1), ..claimed.claim };
        let request = match &aim {
            Aim::Renew => swap(State::Claimed(renewed)),
            Aim::GiveBack => swap(State::Free { token: claimed.token }).then_add(BELL, 1),
            Aim::Finish(results) => {
                let mut sets = nonce.sets();
                sets.push(set(work, &Bytes::new()));
                sets.extend(results.iter().cloned());
                builder().swap(state, &State::Claimed(claimed.claim).encode(), &Bytes::new()).then_set(sets)
            }
        };
        let inquiry = builder().get(vec![state, work]).get(nonce.gets());
        let (happened, value) = match (&aim, requester.ask(request).await?) {
            (_, Some(results)) => results.compared(0)?.ok_or(DAMAGED)?,
            // If the item is there, it is not finished. If it is not there, another consumer may have finished it.
            (Aim::Finish(_), None) => {
                let results = requester.read(inquiry).await.or(Err(RequestFailure::Unknown))?;
                is_finished(&claimed, &nonce, &results).ok_or(RequestFailure::Unknown)?
            }
            // If the state is not this claim's, the item was given back, or the claim was lost: the result is the same.
            (Aim::Renew | Aim::GiveBack, None) => {
                let value = requester.read(inquiry).await?.values(0, 2)?[0].clone();
                (matches!(aim, Aim::Renew) && State::decode(&value)? == Some(State::Claimed(renewed)), value)
            }
        };
        match State::decode(&value) {
            _ if happened && matches!(aim, Aim::Renew) => return Ok(Some(Claimed { claim: renewed, ..claimed })),
            _ if happened => return Ok(Some(claimed)),
            // It may still be this claim, renewed by a request whose answer was lost.
            Ok(Some(State::Claimed(claim)))
                if Claim { heartbeat: claimed.claim.heartbeat, ..claim } == claimed.claim =>
            {
                claimed.claim = claim;
            }
            Ok(_) => return Ok(None),
            Err(failure) => return Err(failure),
        }
    }
}

/// Whether the item is finished, if that can be determined, and the value of its state.
fn is_finished(claimed: &Claimed, nonce: &Nonce, inquired: &Results) -> Option<(bool, Bytes)> {
    let values = inquired.values(0, 2).ok()?;
    State::decode(&values[0]).ok()?;
    let told = nonce.tells(inquired.values(1, nonce.gets().len()).ok()?);
    let there = parted(&values[1]).is_some_and(|(of, _)| of == claimed.of);
    Some((!there && told?, values[0].clone()))
}
