//! Operations of a consumer on an item that it has claimed: one round trip each.

use super::state::{Claim, State};
use super::{BELL, Claimed, Queue, parted, state_of, work_of};
use crate::idempotency_record::Nonce;
use crate::procedure::{Mapped, Next, Operation, RequestFailure};
use crate::request_builder::{DAMAGED, RequestBuilder, Results, Step, Steps, operation, set};
use braid_base::{Rng, Time};
use braid_wire::SetAttribute;
use bytes::Bytes;
use std::time::Duration;

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
        let end = |held: Held| Ok(held?.map_or(Renewed::Lost, Renewed::Kept));
        Box::new(Mapped(holding(self, claimed, Aim::Renew), end))
    }

    /// Finishes an item. `results` are set on the queue's object if, and only if, the claim still holds.
    pub fn finish(self, claimed: Claimed, results: Vec<SetAttribute>) -> Operation<Result<Finished, RequestFailure>> {
        let end = |held: Held| Ok(held?.map_or(Finished::Lost, |_| Finished::Finished));
        Box::new(Mapped(holding(self, claimed, Aim::Finish(results)), end))
    }

    /// Gives an item back, so that others can claim it. Tries for half a lease, and succeeds as well if the claim was lost.
    pub fn give_back(self, claimed: Claimed) -> Operation<Result<(), RequestFailure>> {
        Box::new(Mapped(holding(self, claimed, Aim::GiveBack), |held: Held| held.map(|_| ())))
    }
}

/// The claim as it is at the end, or none if it was lost.
type Held = Result<Option<Claimed>, RequestFailure>;

fn holding(queue: Queue, claimed: Claimed, aim: Aim) -> Operation<Held> {
    operation(move |now, rng| {
        let nonce = Nonce::draw(queue.idempotency_record, rng);
        Ok(Holding { queue, claimed, aim, nonce, ends: now.after(queue.lease / 2) })
    })
}

/// A request that compares the state with the claim.
#[derive(Clone, Debug)]
struct Holding {
    queue: Queue,
    claimed: Claimed,
    aim: Aim,
    nonce: Nonce,
    /// When it gives up, unless it finishes the item: that outcome must be known in any case.
    ends: Time,
}

#[derive(Clone, Debug)]
enum Aim {
    Renew,
    Finish(Vec<SetAttribute>),
    GiveBack,
}

impl Steps for Holding {
    type Output = Option<Claimed>;

    fn step(&mut self, _: Time, _: &mut Rng, results: Option<Results>) -> Step<Option<Claimed>> {
        let Some(results) = results else { return self.swap() };
        match results.compared(0)?.ok_or(DAMAGED)? {
            (true, _) => self.done(),
            (false, other) => self.otherwise(&other),
        }
    }

    fn inquiry(&mut self) -> Option<RequestBuilder> {
        let gets = vec![state_of(self.claimed.item), work_of(self.claimed.item)];
        Some(RequestBuilder::of(self.queue.object).get(gets).get(self.nonce.gets()))
    }

    fn found_out(&mut self, _: Time, _: &mut Rng, results: Results) -> Result<Step<Option<Claimed>>, RequestFailure> {
        let values = results.values(0, 2)?;
        let happened = match (&self.aim, State::decode(&values[0])?) {
            (Aim::Renew, Some(State::Claimed(claim))) => claim == self.heartbeat_at(),
            // If the state is not this claim's, the item was given back, or the claim was lost: the result is the same.
            (Aim::Renew | Aim::GiveBack, _) => false,
            // If the item is there, it is not finished. If it is not there, another consumer may have finished it.
            (Aim::Finish(_), _) => {
                let told = self.nonce.tells(results.values(1, self.nonce.gets().len())?);
                let there = parted(&values[1]).is_some_and(|(of, _)| of == self.claimed.of);
                !there && told.ok_or(RequestFailure::Unknown)?
            }
        };
        Ok(if happened { self.done() } else { self.otherwise(&values[0]) })
    }

    fn on_sent(&mut self, now: Time) -> Duration {
        if matches!(self.aim, Aim::Finish(_)) { Duration::MAX } else { self.ends.since(now) }
    }

    /// Only the outcome of finishing matters.
    fn fails(&mut self, failure: RequestFailure, in_doubt: bool) -> Held {
        let unknown = in_doubt && matches!(self.aim, Aim::Finish(_));
        Err(if unknown { RequestFailure::Unknown } else { failure })
    }
}

impl Holding {
    fn swap(&self) -> Step<Option<Claimed>> {
        let item = self.claimed.item;
        let from = State::Claimed(self.claimed.claim).encode();
        let builder = |to: &Bytes| RequestBuilder::of(self.queue.object).swap(state_of(item), &from, to);
        let mut sets = self.nonce.sets();
        Ok(match &self.aim {
            Aim::Renew => builder(&State::Claimed(self.heartbeat_at()).encode()).done(),
            Aim::GiveBack => builder(&State::Free { token: self.claimed.token }.encode()).then_add(BELL, 1).done(),
            Aim::Finish(results) => {
                sets.push(set(work_of(item), &Bytes::new()));
                sets.extend(results.iter().cloned());
                builder(&Bytes::new()).then_set(sets).done()
            }
        })
    }

    fn heartbeat_at(&self) -> Claim {
        Claim { heartbeat: self.claimed.claim.heartbeat.wrapping_add(1), ..self.claimed.claim }
    }

    fn done(&self) -> Step<Option<Claimed>> {
        let mut claimed = self.claimed.clone();
        if matches!(self.aim, Aim::Renew) {
            claimed.claim = self.heartbeat_at();
        }
        Ok(Next::Done(Some(claimed)))
    }

    /// The state differs from the expected one. It may still be this claim, renewed by a request whose answer was lost.
    fn otherwise(&mut self, value: &Bytes) -> Step<Option<Claimed>> {
        match State::decode(value)? {
            Some(State::Claimed(claim)) if self.is_mine(claim) => {
                self.claimed.claim = claim;
                self.swap()
            }
            _ => Ok(Next::Done(None)),
        }
    }

    fn is_mine(&self, claim: Claim) -> bool {
        Claim { heartbeat: 0, ..claim } == Claim { heartbeat: 0, ..self.claimed.claim }
    }
}
