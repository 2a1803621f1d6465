//! Pending requests of operators. Each is checked when the next record is made, and answered when that record is durable, also if it is
//! refused.

use crate::answered_requests::AnsweredRequests;
use braid_base::{Epoch, Generation};
use braid_machine::Ignored;
use braid_wire::{AdminError, Administration};
use std::collections::BTreeMap;

/// The most requests that wait at a time. Requests beyond that are dropped; their senders repeat them.
const REQUESTS_MAX: usize = 64;

/// Identifies a request: the host that sent it, and its ticket.
pub(crate) type AdministrationName = (Generation, u64);

/// The requests of operators.
#[derive(Clone, Debug, Default)]
pub(crate) struct Administrations {
    requests: BTreeMap<AdministrationName, Request>,
}

/// What happens to a request that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admitted {
    /// It waits for the next record.
    Waits,
    /// It was granted before: it is only answered again.
    Granted,
    /// There is no room.
    Dropped,
}

/// A request that is not answered yet.
#[derive(Clone, Debug)]
struct Request {
    /// The current epoch of the host that sent it.
    asker: Epoch,
    request: Administration,
    /// The answer, if it is part of the record that is being written.
    decided: Option<Result<(), AdminError>>,
}

impl Administrations {
    /// Takes in a request. Those of the record are `answered`.
    pub fn take(
        &mut self,
        answered: &AnsweredRequests,
        name: AdministrationName,
        asker: Epoch,
        request: Administration,
    ) -> Result<Admitted, Ignored> {
        if self.requests.contains_key(&name) {
            return Err(Ignored::InProgress);
        }
        // A late copy must not take effect.
        match answered.of(name.0) {
            Some(last) if name.1 == last.ticket && !last.is_refused => return Ok(Admitted::Granted),
            Some(last) if name.1 <= last.ticket => return Err(Ignored::Settled),
            _ => {}
        }
        let has_room = self.requests.len() < REQUESTS_MAX;
        if has_room {
            self.requests.insert(name, Request { asker, request, decided: None });
        }
        Ok(if has_room { Admitted::Waits } else { Admitted::Dropped })
    }

    /// Those that are not part of a record yet.
    pub fn undecided(&self) -> Vec<(AdministrationName, Administration)> {
        let undecided = self.requests.iter().filter(|(_, held)| held.decided.is_none());
        undecided.map(|(name, held)| (*name, held.request)).collect()
    }

    /// This answer to the request is part of the record that is being written.
    pub fn decide(&mut self, name: AdministrationName, answer: Result<(), AdminError>) {
        self.requests.get_mut(&name).expect("it has not been answered").decided = Some(answer);
    }

    /// Removes those that are part of the record, which is durable: with the epochs of their senders, and the answers.
    pub fn take_decided(&mut self) -> Vec<(AdministrationName, Epoch, Result<(), AdminError>)> {
        let decided = self.requests.extract_if(.., |_, held| held.decided.is_some());
        decided.filter_map(|(name, held)| Some((name, held.asker, held.decided?))).collect()
    }

    /// Removes the undecided requests of fenced hosts, which are never answered.
    pub fn retain(&mut self, may_ask: impl Fn(Generation) -> bool) {
        self.requests.retain(|(sender, _), held| held.decided.is_some() || may_ask(*sender));
    }

    /// Asserts that the table has its bound.
    pub fn invariants(&self) {
        assert!(self.requests.len() <= REQUESTS_MAX);
    }
}
