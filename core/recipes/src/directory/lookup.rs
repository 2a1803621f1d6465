//! Looking a name up: one round trip, and one more for each entry of its slot that comes before it.

use super::Directory;
use super::chain::Chain;
use super::entry::Entry;
use crate::procedure::{Operation, RequestFailure};
use crate::requester::operation;
use bytes::Bytes;

impl Directory {
    pub fn look_up(self, name: Bytes) -> Operation<Result<Option<Entry>, RequestFailure>> {
        operation(move |mut requester| async move {
            let (slot, mut chain) = (self.slot(&name), Chain::default());
            loop {
                let request = self.first_request(chain.ask(self, slot), slot);
                chain.hear(&requester.read(request).await?)?;
                if let Some(at) = chain.find(&name) {
                    return Ok(Some(chain.entries.swap_remove(at).1));
                }
                if chain.next().is_none() {
                    return Ok(None);
                }
            }
        })
    }
}
