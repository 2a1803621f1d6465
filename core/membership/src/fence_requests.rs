//! Requests to fence hosts: each is kept until the fence is complete.
//!
//! A fence is complete when it is durable at the monitor, no device can serve in an epoch without it, and nothing that the fenced hosts
//! wrote is undecided. Each device that may be serving must have reported an epoch with the fence, and no undecided intents of the fenced
//! hosts. Any other device is out or *unavailable* (operations wait for it), and adopts an epoch with the fence before it serves again.
//! Then the request is answered and forgotten. If it is repeated, it changes nothing and is answered in the same way.
//!
//! Undecided writes of the fenced hosts must be decided before the answer. Otherwise a reader could see the old content on a device that
//! lacks the write; if that device then went out, the remaining devices would commit the write without it, and a write of a fenced host
//! would take effect (`docs/reliability.md`).

use crate::device_leases::Device;
use crate::monitor_record::fits;
use braid_base::{Epoch, FenceTable, Membership, NodeId};
use std::collections::BTreeMap;

/// The most requests that wait at a time. Requests beyond that are dropped; their senders repeat them.
const WAITING_MAX: usize = 64;

/// Identifies a request: the node that sent it, and its ticket.
pub(crate) type FenceName = (NodeId, u64);

/// A request that is not answered yet.
#[derive(Clone, Debug)]
struct FenceRequest {
    /// The current epoch of the node that sent it.
    asker: Epoch,
    wanted: FenceTable,
    /// The first epoch known to have the fence; none before it is decided.
    epoch: Option<Epoch>,
}

/// What was done with a request that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It was added.
    New,
    /// It was known already.
    Again,
    /// The table is full.
    Dropped,
}

/// The requests to fence hosts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fences {
    /// Those that are not answered yet.
    waiting: BTreeMap<FenceName, FenceRequest>,
    /// The first epoch known to have the present fence.
    since: Epoch,
}

impl Fences {
    /// The fence of this epoch differs from the previous one; or this is the first epoch that is known.
    pub fn change(&mut self, epoch: Epoch) {
        self.since = epoch;
    }

    pub fn take(&mut self, name: FenceName, asker: Epoch, wanted: FenceTable) -> Taken {
        if let Some(known) = self.waiting.get_mut(&name) {
            known.asker = asker;
            return Taken::Again;
        }
        if self.waiting.len() >= WAITING_MAX {
            return Taken::Dropped;
        }
        self.waiting.insert(name, FenceRequest { asker, wanted, epoch: None });
        Taken::New
    }

    /// Adds the requested fences to `next`. A request that does not fit into the record is dropped. Room is made when a node that knows all
    /// live hosts has every other host fenced by one number (`below`). Returns how many were dropped.
    pub fn decide(&mut self, durable: &Membership, next: &mut Membership) -> u64 {
        let epoch = durable.epoch.next();
        let mut full = Vec::new();
        for (name, request) in self.waiting.iter_mut().filter(|(_, request)| request.epoch.is_none()) {
            let mut fence = next.fence.clone();
            fence.add(request.wanted.below, &request.wanted.except, &request.wanted.also);
            if !fits(&fence) {
                full.push(*name);
                continue;
            }
            let had = fence == durable.fence;
            next.fence = fence;
            request.epoch = Some(if had { self.since } else { epoch });
        }
        for name in &full {
            self.waiting.remove(name);
        }
        full.len() as u64
    }

    /// True if no request waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Removes the requests that are complete, given the devices that may be serving. Returns their names, and the epochs of their senders.
    pub fn take_done(&mut self, durable: Epoch, serving: &[&Device]) -> Vec<(FenceName, Epoch)> {
        let is_done = |request: &FenceRequest| {
            let epoch = request.epoch.filter(|epoch| *epoch <= durable);
            epoch.is_some_and(|epoch| serving.iter().all(|device| device.has_done_with(epoch, &request.wanted)))
        };
        let done = self.waiting.iter().filter(|(_, request)| is_done(request));
        let done: Vec<_> = done.map(|(name, request)| (*name, request.asker)).collect();
        for (name, _) in &done {
            self.waiting.remove(name);
        }
        done
    }

    /// Asserts that the table has its bound.
    pub fn invariants(&self) {
        assert!(self.waiting.len() <= WAITING_MAX);
    }
}

/// True if every host that `before` refuses is refused by `after`, too.
pub(crate) fn never_shrinks(before: &FenceTable, after: &FenceTable) -> bool {
    let below = before.below <= after.below;
    let spared = after.except.iter().filter(|host| **host < before.below);
    below
        && before.also.iter().all(|host| after.refuses(*host))
        && spared.into_iter().all(|host| !before.refuses(*host))
}
