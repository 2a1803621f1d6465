//! The generations of hosts.

use crate::prelude::*;

/// The generations of hosts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Generations {
    pub last: u32,
    /// All hosts that ever existed.
    pub all: BTreeSet<Generation>,
    /// Hosts that have disconnected gracefully, with all confirmations.
    pub disconnected: BTreeMap<Generation, DisconnectedHost>,
}

/// A host that has disconnected gracefully.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DisconnectedHost {
    /// When it was told to disconnect.
    pub asked: Time,
    /// Its last epoch. A device that was out in this epoch was not told.
    pub epoch: Epoch,
}

impl Generations {
    pub fn next(&self) -> Generation {
        Generation(self.last + 1)
    }

    pub fn take_next(&mut self) -> Generation {
        self.last += 1;
        Generation(self.last)
    }
}
