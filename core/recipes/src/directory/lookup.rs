//! Looking a name up: one round trip, and one more for each entry of its slot that comes before it.

use super::Directory;
use super::chain::Chain;
use super::entry::Entry;
use crate::procedure::{Next, Operation, RequestFailure};
use crate::request_builder::{Results, Step, Steps, operation};
use braid_base::{Rng, Time};
use bytes::Bytes;

impl Directory {
    pub fn look_up(self, name: Bytes) -> Operation<Result<Option<Entry>, RequestFailure>> {
        operation(move |_, _| Ok(Lookup { directory: self, name, chain: Chain::default() }))
    }
}

/// Looks a name up, and returns its entry, or none.
#[derive(Clone, Debug)]
pub(super) struct Lookup {
    directory: Directory,
    name: Bytes,
    chain: Chain,
}

impl Steps for Lookup {
    type Output = Option<Entry>;

    fn step(&mut self, _: Time, _: &mut Rng, results: Option<Results>) -> Step<Option<Entry>> {
        if let Some(results) = results {
            self.chain.hear(&results)?;
            if let Some(at) = self.chain.find(&self.name) {
                return Ok(Next::Done(Some(self.chain.entries[at].1.clone())));
            }
            if self.chain.next().is_none() {
                return Ok(Next::Done(None));
            }
        }
        let slot = self.directory.slot(&self.name);
        Ok(self.directory.first_request(self.chain.ask(self.directory, slot), slot).done())
    }
}
