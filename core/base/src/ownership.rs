//! The ownership of a file system: which host serves its metadata, and since which epoch (`docs/membership.md`).

use crate::{Epoch, Generation};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Which host owns a file system. The array's monitor changes it by compare-and-swap.
///
/// A file system never has the same ownership twice: each change begins a new epoch. So `since` also orders the owners of a file system,
/// which generations do not: the owner after `h6` may be `h5`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ownership {
    /// The epoch in which it began. Without an owner: the last epoch in which any file system lost its owner without a successor.
    pub since: Epoch,
    /// The owner; none if no host owns the file system.
    pub owner: Option<Generation>,
}

impl fmt::Display for Ownership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.owner {
            Some(owner) => write!(f, "owned by host {owner} since epoch {}", self.since),
            None => write!(f, "owned by no host, as of epoch {}", self.since),
        }
    }
}
