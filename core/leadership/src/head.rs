//! The value of the key `head`. Every write of a leader replaces it, so one value names the leader, proves that it lives, and refuses late
//! writes. No value recurs: a term has a random nonce, and each write of it a higher number.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A monitor that may lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CandidateId(pub u16);

/// A random number that names the term of one process. Registries that were restored from a copy count terms again, but draw other nonces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Nonce(pub u128);

/// The value of `head`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Head {
    /// Rises with each take-over.
    pub term: u64,
    pub nonce: Nonce,
    /// Rises with each write.
    pub seq: u64,
    /// None after an orderly end, and before the first term.
    pub leader: Option<CandidateId>,
    /// Who may take over, the leader included.
    pub candidates: BTreeSet<CandidateId>,
}

/// Where in the history a head is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Mark {
    pub term: u64,
    pub nonce: Nonce,
    pub seq: u64,
}

impl Head {
    /// What creates the key: no candidate has led.
    pub fn first(candidates: BTreeSet<CandidateId>) -> Head {
        Head { term: 0, nonce: Nonce(0), seq: 0, leader: None, candidates }
    }

    /// What the leader writes next.
    pub(crate) fn next(&self) -> Head {
        Head { seq: self.seq + 1, ..self.clone() }
    }

    /// What a candidate writes that takes over.
    pub(crate) fn taken_over(&self, leader: CandidateId, nonce: Nonce) -> Head {
        Head { term: self.term + 1, nonce, leader: Some(leader), ..self.next() }
    }

    pub fn mark(&self) -> Mark {
        Mark { term: self.term, nonce: self.nonce, seq: self.seq }
    }
}

impl Mark {
    /// True if the registry has gone back: this mark was there before, and `found` belongs to an earlier state, or to another history.
    pub(crate) fn contradicts(self, found: Mark) -> bool {
        found.term < self.term || (found.term == self.term && (found.nonce != self.nonce || found.seq < self.seq))
    }
}
