//! What operators have asked for. It is checked when the next record is made, and answered when that is durable.

use braid_base::{Epoch, NodeId};
use braid_machine::Ignored;
use braid_wire::Administration;
use std::collections::BTreeMap;

/// The most requests of operators that wait at a time. Others are dropped, and asked again.
const REQUESTS_MAX: usize = 64;
/// The most askers whose last refusal is remembered: the latest generations.
const ANSWERED_MAX: usize = 256;

/// Names a request: who has asked, and the ticket.
pub(crate) type AdministrationName = (NodeId, u64);

/// What operators have asked for.
#[derive(Debug, Default)]
pub(crate) struct Administrations {
    requests: BTreeMap<AdministrationName, Request>,
    /// The last of each asker's tickets that was refused.
    refused: BTreeMap<NodeId, u64>,
}

/// What an operator has asked for, and has not been answered.
#[derive(Debug)]
struct Request {
    /// The epoch by which the asker lives.
    asker: Epoch,
    request: Administration,
    /// It is in the record that is being written.
    decided: bool,
}

impl Administrations {
    /// Takes in a request. False if there is no room.
    pub fn take(&mut self, name: AdministrationName, asker: Epoch, request: Administration) -> Result<bool, Ignored> {
        if self.requests.contains_key(&name) {
            return Err(Ignored::InProgress);
        }
        // An asker that was refused has made other plans: a late copy of its request changes nothing any more.
        if self.refused.get(&name.0).is_some_and(|last| name.1 <= *last) {
            return Err(Ignored::Settled);
        }
        let has_room = self.requests.len() < REQUESTS_MAX;
        if has_room {
            self.requests.insert(name, Request { asker, request, decided: false });
        }
        Ok(has_room)
    }

    /// Those that are in no record yet.
    pub fn undecided(&self) -> Vec<(AdministrationName, Administration)> {
        let undecided = self.requests.iter().filter(|(_, held)| !held.decided);
        undecided.map(|(name, held)| (*name, held.request)).collect()
    }

    /// It is in the record that is being written.
    pub fn decide(&mut self, name: AdministrationName) {
        self.requests.get_mut(&name).expect("it has not been answered").decided = true;
    }

    /// Those that are in a record.
    pub fn decided(&self) -> Vec<AdministrationName> {
        self.requests.iter().filter(|(_, held)| held.decided).map(|(name, _)| *name).collect()
    }

    /// It is answered. Tells by which epoch its asker lives.
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
