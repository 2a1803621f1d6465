//! Looking a name up: one round trip, and one more for each entry of its slot that comes before it.

use super::Directory;
use super::chain::Chain;
use super::entry::Entry;
use crate::procedure::{Answer, Next, Procedure, RequestFailure};
use crate::request_builder::{CasContext, Step, StepEvent};
use braid_base::{Rng, Time};
use bytes::Bytes;

/// Looks a name up, and returns its entry, or none.
#[derive(Clone, Debug)]
pub struct Lookup {
    directory: Directory,
    name: Bytes,
    chain: Chain,
    course: CasContext,
}

impl Procedure for Lookup {
    type Output = Result<Option<Entry>, RequestFailure>;

    fn resume(&mut self, _: Time, rng: &mut Rng, answer: Answer) -> Next<Self::Output> {
        let mut course = std::mem::take(&mut self.course);
        let next = course.resume(rng, answer, |_, _, event| self.step(event));
        self.course = course;
        next
    }
}

impl Lookup {
    pub(super) fn new(directory: Directory, name: Bytes) -> Lookup {
        Lookup { directory, name, chain: Chain::default(), course: CasContext::default() }
    }

    fn step(&mut self, event: StepEvent) -> Step<Option<Entry>> {
        if let StepEvent::Results(results) = event {
            self.chain.hear(&results)?;
            if let Some(at) = self.chain.find(&self.name) {
                return Ok(Next::Done(Ok(Some(self.chain.entries[at].1.clone()))));
            }
            if self.chain.next().is_none() {
                return Ok(Next::Done(Ok(None)));
            }
        }
        let slot = self.directory.slot(&self.name);
        Ok(self.directory.first_request(self.chain.ask(self.directory, slot), slot).done())
    }
}
