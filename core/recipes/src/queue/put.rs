//! Putting an item in: one round trip.

use super::state::State;
use super::{BELL, ITEM_BYTES_MAX, Item, Queue, parted, state_of, work_of};
use crate::idempotency_record::Nonce;
use crate::procedure::{Next, Operation, RequestFailure};
use crate::request_builder::{CasContext, RequestBuilder, Step, StepEvent, Steps, set};
use braid_base::{Rng, Time};
use bytes::Bytes;

impl Queue {
    pub fn put(self, item: Bytes) -> Operation<Result<Item, RequestFailure>> {
        Put::new(self, item).begin()
    }
}

/// Puts an item in, and returns its number.
#[derive(Clone, Debug)]
pub(super) struct Put {
    queue: Queue,
    work: Bytes,
    nonce: Option<Nonce>,
    item: Item,
    phase: Phase,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Beginning,
    Putting,
    /// Determining whether the item was put in.
    Doubting,
}

impl Steps for Put {
    type Output = Item;

    fn step(&mut self, course: &mut CasContext, _: Time, rng: &mut Rng, event: StepEvent) -> Step<Item> {
        match (self.phase, event) {
            (Phase::Beginning, _) => {
                if self.work.len() > ITEM_BYTES_MAX {
                    return Err(RequestFailure::TooLong { most: ITEM_BYTES_MAX });
                }
                self.nonce = Some(Nonce::draw(self.queue.idempotency_record, rng));
                self.put(rng)
            }
            (Phase::Putting, StepEvent::Results(results)) if results.swapped(0)? => Ok(Next::Done(Ok(self.item))),
            // Another item has the number.
            (Phase::Putting, StepEvent::Results(_)) => self.put(rng),
            (Phase::Putting | Phase::Doubting, StepEvent::Unknown) => {
                course.in_doubt = true;
                self.phase = Phase::Doubting;
                let builder = RequestBuilder::of(self.queue.object).get(vec![work_of(self.item)]);
                Ok(builder.get(self.nonce().gets()).done())
            }
            (Phase::Doubting, StepEvent::Results(results)) => {
                let nonce = self.nonce();
                let found = parted(&results.values(0, 1)?[0]).is_some_and(|(of, _)| of == nonce.value());
                let told = nonce.tells(results.values(1, nonce.gets().len())?);
                // An item that is not there was never put in, or is finished already.
                let happened = if found { true } else { told.ok_or(RequestFailure::Unknown)? };
                course.in_doubt = false;
                if happened { Ok(Next::Done(Ok(self.item))) } else { self.put(rng) }
            }
            (Phase::Putting | Phase::Doubting, StepEvent::Nothing | StepEvent::Value) => {
                unreachable!("no wait was requested")
            }
        }
    }
}

impl Put {
    pub(super) fn new(queue: Queue, work: Bytes) -> Put {
        Put { queue, work, nonce: None, item: Item(0), phase: Phase::Beginning }
    }

    fn put(&mut self, rng: &mut Rng) -> Step<Item> {
        self.phase = Phase::Putting;
        self.item = Item(rng.next_u64() as u32);
        let nonce = self.nonce();
        let value: Bytes = nonce.value().iter().chain(&self.work).copied().collect();
        let mut sets = vec![set(work_of(self.item), &value)];
        sets.extend(nonce.sets());
        let builder =
            RequestBuilder::of(self.queue.object).swap(state_of(self.item), &Bytes::new(), &State::FRESH.encode());
        Ok(builder.then_add(BELL, 1).then_set(sets).done())
    }

    fn nonce(&self) -> &Nonce {
        self.nonce.as_ref().expect("drawn in the first step")
    }
}
