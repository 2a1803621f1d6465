//! Putting an item in: one round trip.

use super::state::State;
use super::{BELL, ITEM_BYTES_MAX, Item, Queue, parted, state_of, work_of};
use crate::idempotency_record::Nonce;
use crate::procedure::{Next, Operation, RequestFailure};
use crate::request_builder::{RequestBuilder, Results, Step, Steps, operation, set};
use braid_base::{Rng, Time};
use bytes::Bytes;

impl Queue {
    pub fn put(self, item: Bytes) -> Operation<Result<Item, RequestFailure>> {
        operation(move |_, rng| {
            if item.len() > ITEM_BYTES_MAX {
                return Err(RequestFailure::TooLong { most: ITEM_BYTES_MAX });
            }
            let nonce = Nonce::draw(self.idempotency_record, rng);
            Ok(Put { queue: self, work: item, nonce, item: None })
        })
    }
}

/// Puts an item in, and returns its number.
#[derive(Clone, Debug)]
pub(super) struct Put {
    queue: Queue,
    work: Bytes,
    nonce: Nonce,
    /// The number that it tries.
    item: Option<Item>,
}

impl Steps for Put {
    type Output = Item;

    fn step(&mut self, _: Time, rng: &mut Rng, results: Option<Results>) -> Step<Item> {
        match (self.item, results) {
            (Some(item), Some(results)) if results.swapped(0)? => Ok(Next::Done(item)),
            // It begins, or another item has the number.
            _ => self.put(rng),
        }
    }

    fn inquiry(&mut self) -> Option<RequestBuilder> {
        self.item.map(|item| RequestBuilder::of(self.queue.object).get(vec![work_of(item)]).get(self.nonce.gets()))
    }

    /// An item that is not there was never put in, or is finished already.
    fn found_out(&mut self, _: Time, rng: &mut Rng, results: Results) -> Result<Step<Item>, RequestFailure> {
        let there = parted(&results.values(0, 1)?[0]).is_some_and(|(of, _)| of == self.nonce.value());
        let told = self.nonce.tells(results.values(1, self.nonce.gets().len())?);
        let happened = there || told.ok_or(RequestFailure::Unknown)?;
        Ok(match self.item.filter(|_| happened) {
            Some(item) => Ok(Next::Done(item)),
            None => self.put(rng),
        })
    }
}

impl Put {
    fn put(&mut self, rng: &mut Rng) -> Step<Item> {
        let item = Item(rng.next_u64() as u32);
        self.item = Some(item);
        let value: Bytes = self.nonce.value().iter().chain(&self.work).copied().collect();
        let mut sets = vec![set(work_of(item), &value)];
        sets.extend(self.nonce.sets());
        let builder = RequestBuilder::of(self.queue.object).swap(state_of(item), &Bytes::new(), &State::FRESH.encode());
        Ok(builder.then_add(BELL, 1).then_set(sets).done())
    }
}
