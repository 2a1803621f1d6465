//! Pending requests of operators. Each is checked when the next record is made, and answered when that record is durable.

use braid_base::{Epoch, NodeId};
use braid_machine::Ignored;
use braid_wire::Administration;
use std::collections::BTreeMap;

/// The most requests that wait at a time. Requests beyond that are dropped; their senders repeat them.
const REQUESTS_MAX: usize = 64;
/// The most senders whose last answer is remembered: those of the latest generations.
const ANSWERED_MAX: usize = 256;

/// Identifies a request: the node that sent it, and its ticket.
pub(crate) type AdministrationName = (NodeId, u64);

/// The requests of operators.
#[derive(Clone, Debug, Default)]
pub(crate) struct Administrations {
    requests: BTreeMap<AdministrationName, Request>,
    /// The last ticket of each sender that was answered.
    answered: BTreeMap<NodeId, Answered>,
}

#[derive(Clone, Copy, Debug)]
struct Answered {
    ticket: u64,
    is_refused: bool,
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
    /// The current epoch of the node that sent it.
    asker: Epoch,
    request: Administration,
    /// It is part of the record that is being written.
    decided: bool,
}

impl Administrations {
    /// Takes in a request.
    pub fn take(
        &mut self,
        name: AdministrationName,
        asker: Epoch,
        request: Administration,
    ) -> Result<Admitted, Ignored> {
        if self.requests.contains_key(&name) {
            return Err(Ignored::InProgress);
        }
        // The sender was told of the refusal, or has repeated the request, and may have decided otherwise since; or it was granted, and
        // another host has undone it since: a late request must not take effect.
        match self.answered.get(&name.0) {
            Some(last) if name.1 == last.ticket && !last.is_refused => return Ok(Admitted::Granted),
            Some(last) if name.1 <= last.ticket => return Err(Ignored::Settled),
            _ => {}
        }
        let has_room = self.requests.len() < REQUESTS_MAX;
        if has_room {
            self.requests.insert(name, Request { asker, request, decided: false });
        }
        Ok(if has_room { Admitted::Waits } else { Admitted::Dropped })
    }

    /// Those that are not part of a record yet.
    pub fn undecided(&self) -> Vec<(AdministrationName, Administration)> {
        let undecided = self.requests.iter().filter(|(_, held)| !held.decided);
        undecided.map(|(name, held)| (*name, held.request)).collect()
    }

    /// The request is part of the record that is being written.
    pub fn decide(&mut self, name: AdministrationName) {
        self.requests.get_mut(&name).expect("it has not been answered").decided = true;
    }

    /// Those that are part of a record.
    pub fn decided(&self) -> Vec<AdministrationName> {
        self.requests.iter().filter(|(_, held)| held.decided).map(|(name, _)| *name).collect()
    }

    /// Removes a request that is answered. Returns the epoch of its sender.
    pub fn end(&mut self, name: AdministrationName, is_refused: bool) -> Epoch {
        let request = self.requests.remove(&name).expect("it has not been answered");
        if self.answered.get(&name.0).is_none_or(|last| last.ticket < name.1) {
            self.answered.insert(name.0, Answered { ticket: name.1, is_refused });
        }
        if self.answered.len() > ANSWERED_MAX {
            self.answered.pop_first();
        }
        request.asker
    }

    /// Removes the undecided requests of fenced hosts, which are never answered.
    pub fn retain(&mut self, may_ask: impl Fn(NodeId) -> bool) {
        self.requests.retain(|(sender, _), held| held.decided || may_ask(*sender));
    }

    /// Asserts that the table has its bound.
    pub fn invariants(&self) {
        assert!(self.requests.len() <= REQUESTS_MAX);
    }
}
