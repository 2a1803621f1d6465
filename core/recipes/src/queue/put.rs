//! Putting an item in: one round trip.

use super::state::State;
use super::{BELL, ITEM_BYTES_MAX, Item, Queue, parted, state_of, work_of};
use crate::idempotency_record::Nonce;
use crate::procedure::{Operation, RequestFailure};
use crate::request_builder::{RequestBuilder, Results, set};
use crate::requester::{Outcome, operation};
use braid_base::Rng;
use bytes::Bytes;

impl Queue {
    /// Puts an item in, and returns its number.
    pub fn put(self, item: Bytes) -> Operation<Result<Item, RequestFailure>> {
        operation(move |mut requester| async move {
            if item.len() > ITEM_BYTES_MAX {
                return Err(RequestFailure::TooLong { most: ITEM_BYTES_MAX });
            }
            let nonce = requester.draw(|rng| Nonce::draw(self.idempotency_record, rng));
            let value: Bytes = nonce.value().iter().chain(&item).copied().collect();
            loop {
                let number = Item(requester.draw(Rng::next_u64) as u32);
                let builder = || RequestBuilder::of(self.object);
                let mut sets = vec![set(work_of(number), &value)];
                sets.extend(nonce.sets());
                let put = builder().swap(state_of(number), &Bytes::new(), &State::FRESH.encode());
                let put = put.then_add(BELL, 1).then_set(sets);
                let inquiry = builder().get(vec![work_of(number)]).get(nonce.gets());
                let happened = match requester.change(put, inquiry).await? {
                    // Otherwise another item has the number.
                    Outcome::Answered(results) => results.swapped(0)?,
                    // An item that is not there was never put in, or is finished already.
                    Outcome::Inquired(results) => has_happened(&nonce, &results).ok_or(RequestFailure::Unknown)?,
                };
                if happened {
                    return Ok(number);
                }
            }
        })
    }
}

/// Whether the item was put in, if that can be determined.
fn has_happened(nonce: &Nonce, inquired: &Results) -> Option<bool> {
    let there = parted(&inquired.values(0, 1).ok()?[0]).is_some_and(|(of, _)| of == nonce.value());
    let told = nonce.tells(inquired.values(1, nonce.gets().len()).ok()?);
    if there { Some(true) } else { told }
}
