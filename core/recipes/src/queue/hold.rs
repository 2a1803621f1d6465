//! Operations of a consumer on an item that it has claimed: one round trip each.

use super::state::{Claim, State};
use super::{BELL, Claimed, Queue, parted, state_of, work_of};
use crate::idempotency_record::Nonce;
use crate::procedure::{Answer, Mapped, Next, Operation, Procedure, RequestFailure};
use crate::request_builder::{CasContext, DAMAGED, RequestBuilder, Results, Step, StepEvent, set};
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
        Box::new(Mapped(Holding::new(self, claimed, Aim::Renew), end))
    }

    /// Finishes an item. `results` are set on the queue's object if, and only if, the claim still holds.
    pub fn finish(self, claimed: Claimed, results: Vec<SetAttribute>) -> Operation<Result<Finished, RequestFailure>> {
        let end = |held: Held| Ok(held?.map_or(Finished::Lost, |_| Finished::Finished));
        Box::new(Mapped(Holding::new(self, claimed, Aim::Finish(results)), end))
    }

    /// Gives an item back, so that others can claim it. Tries for half a lease, and succeeds as well if the claim was lost.
    pub fn give_back(self, claimed: Claimed) -> Operation<Result<(), RequestFailure>> {
        Box::new(Mapped(Holding::new(self, claimed, Aim::GiveBack), |held: Held| held.map(|_| ())))
    }
}

/// The claim as it is at the end, or none if it was lost.
type Held = Result<Option<Claimed>, RequestFailure>;

/// A request that compares the state with the claim.
#[derive(Clone, Debug)]
struct Holding {
    queue: Queue,
    claimed: Claimed,
    aim: Aim,
    course: CasContext,
    nonce: Option<Nonce>,
    /// When it gives up. None for finishing, whose outcome must be known in any case.
    ends: Option<Time>,
    phase: Phase,
}

#[derive(Clone, Debug)]
enum Aim {
    Renew,
    Finish(Vec<SetAttribute>),
    GiveBack,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Beginning,
    Swapping,
    /// Determining whether the request has taken effect.
    Doubting,
}

impl Procedure for Holding {
    type Output = Held;

    fn resume(&mut self, now: Time, rng: &mut Rng, answer: Answer) -> Next<Held> {
        let mut course = std::mem::take(&mut self.course);
        let next = course.resume(rng, answer, |course, rng, event| self.step(course, rng, event));
        self.course = course;
        let left = self.ends.get_or_insert(now.after(self.queue.lease / 2)).since(now);
        match next {
            Next::Ask { request, .. } if !matches!(self.aim, Aim::Finish(_)) => match left {
                Duration::ZERO => Next::Done(Err(RequestFailure::Unknown)),
                patience => Next::Ask { request, patience },
            },
            next => next,
        }
    }
}

impl Holding {
    fn new(queue: Queue, claimed: Claimed, aim: Aim) -> Holding {
        Holding { queue, claimed, aim, course: CasContext::default(), nonce: None, ends: None, phase: Phase::Beginning }
    }

    fn step(&mut self, course: &mut CasContext, rng: &mut Rng, event: StepEvent) -> Step<Option<Claimed>> {
        match (self.phase, event) {
            (Phase::Beginning, _) => {
                self.nonce = Some(Nonce::draw(self.queue.idempotency_record, rng));
                self.swap()
            }
            (Phase::Swapping, StepEvent::Results(results)) => match results.compared(0)?.ok_or(DAMAGED)? {
                (true, _) => self.done(),
                (false, other) => self.otherwise(&other),
            },
            (Phase::Swapping | Phase::Doubting, StepEvent::Unknown) => {
                course.in_doubt = matches!(self.aim, Aim::Finish(_));
                self.phase = Phase::Doubting;
                let builder = RequestBuilder::of(self.queue.object)
                    .get(vec![state_of(self.claimed.item), work_of(self.claimed.item)]);
                Ok(builder.get(self.nonce().gets()).done())
            }
            (Phase::Doubting, StepEvent::Results(results)) => {
                let happened = self.found_out(&results)?;
                course.in_doubt = false;
                if happened { self.done() } else { self.otherwise(&results.values(0, 2)?[0]) }
            }
            (Phase::Swapping | Phase::Doubting, _) => unreachable!("no wait was requested"),
        }
    }

    fn swap(&mut self) -> Step<Option<Claimed>> {
        self.phase = Phase::Swapping;
        let item = self.claimed.item;
        let from = State::Claimed(self.claimed.claim).encode();
        let builder = |to: &Bytes| RequestBuilder::of(self.queue.object).swap(state_of(item), &from, to);
        let mut sets = self.nonce().sets();
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
        Ok(Next::Done(Ok(Some(claimed))))
    }

    /// The state differs from the expected one. It may still be this claim, renewed by a request whose answer was lost.
    fn otherwise(&mut self, value: &Bytes) -> Step<Option<Claimed>> {
        match State::decode(value)? {
            Some(State::Claimed(claim)) if self.is_mine(claim) => {
                self.claimed.claim = claim;
                self.swap()
            }
            _ => Ok(Next::Done(Ok(None))),
        }
    }

    fn is_mine(&self, claim: Claim) -> bool {
        Claim { heartbeat: 0, ..claim } == Claim { heartbeat: 0, ..self.claimed.claim }
    }

    fn found_out(&self, results: &Results) -> Result<bool, RequestFailure> {
        let values = results.values(0, 2)?;
        let state = State::decode(&values[0])?;
        match (&self.aim, state) {
            (Aim::Renew, Some(State::Claimed(claim))) => Ok(claim == self.heartbeat_at()),
            // If the state is not this claim's, the item was given back, or the claim was lost: the result is the same.
            (Aim::Renew | Aim::GiveBack, _) => Ok(false),
            (Aim::Finish(_), _) => {
                let nonce = self.nonce();
                let told = nonce.tells(results.values(1, nonce.gets().len())?);
                // If the item is there, it is not finished. If it is not there, another consumer may have finished it.
                let there = parted(&values[1]).is_some_and(|(of, _)| of == self.claimed.of);
                if there { Ok(false) } else { told.ok_or(RequestFailure::Unknown) }
            }
        }
    }

    fn nonce(&self) -> &Nonce {
        self.nonce.as_ref().expect("drawn in the first step")
    }
}
