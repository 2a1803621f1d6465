//! Pending requests of operators. Each is checked when the next record is made, and answered when that record is durable.

use braid_base::{Epoch, NodeId};
use braid_machine::Ignored;
use braid_wire::Administration;
use std::collections::BTreeMap;

/// The most requests that wait at a time. Requests beyond that are dropped; their senders repeat them.
const REQUESTS_MAX: usize = 64;
/// The most senders whose last refusal is remembered: those of the latest generations.
const ANSWERED_MAX: usize = 256;

/// Identifies a request: the node that sent it, and its ticket.
pub(crate) type AdministrationName = (NodeId, u64);

/// The requests of operators.
#[derive(Clone, Debug, Default)]
pub(crate) struct Administrations {
    requests: BTreeMap<AdministrationName, Request>,
    /// The last refused ticket of each sender.
    refused: BTreeMap<NodeId, u64>,
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
    /// Takes in a request. False if there is no room.
    pub fn take(&mut self, name: AdministrationName, asker: Epoch, request: Administration) -> Result<bool, Ignored> {
        if self.requests.contains_key(&name) {
            return Err(Ignored::InProgress);
        }
        // The sender was told of the refusal, and may have decided otherwise: a late duplicate of its request must not take effect.
        if self.refused.get(&name.0).is_some_and(|last| name.1 <= *last) {
            return Err(Ignored::Settled);
        }
        let has_room = self.requests.len() < REQUESTS_MAX;
        if has_room {
            self.requests.insert(name, Request { asker, request, decided: false });
        }
        Ok(has_room)
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
        if is_refused {
            let last = self.refused.entry(name.0).or_default();
            *last = name.1.max(*last);
            if self.refused.len() > ANSWERED_MAX {
                self.refused.pop_first();
            }
        }
        request.asker
    }

    /// Asserts that the table has its bound.
    pub fn invariants(&self) {
        assert!(self.requests.len() <= REQUESTS_MAX);
    }
}
