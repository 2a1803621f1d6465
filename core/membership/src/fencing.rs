//! Keeping out hosts: who has asked for it, and when it is done.
//!
//! It is done when the fence is durable here, no device can serve without it any more, and nothing that the fenced hosts wrote is
//! undecided: each device that may be serving has said that it lives by an epoch with the fence, and holds nothing undecided of theirs.
//! Any other is out, or is being waited for by all (it is *unavailable*), and adopts an epoch with the fence before it serves again. Then the
//! request is answered and forgotten; the same request again finds nothing to change, and is answered likewise.
//!
//! What is undecided must be decided first. Else a reader could see what was there before, of a device that lacks the write, and that device
//! could go out: then those that are left decide without it, and the write of a host that was kept out takes effect
//! (`docs/reliability.md`).

use crate::leases::Device;
use crate::record::fits;
use braid_base::{Epoch, FenceTable, Membership, NodeId};
use std::collections::BTreeMap;

/// The most requests that wait at a time. Others are dropped, and asked again.
const WAITING_MAX: usize = 64;

/// Names a request: who has asked, and the ticket.
pub(crate) type FenceName = (NodeId, u64);

/// A request that has not been answered.
#[derive(Debug)]
struct FenceRequest {
    /// The epoch by which the asker lives.
    asker: Epoch,
    wanted: FenceTable,
    /// The first epoch, as far as is known, that has it; none if it has not been decided.
    epoch: Option<Epoch>,
}

/// What has become of a request that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It waits from now on.
    New,
    /// It has come before.
    Again,
    /// There is no room.
    Dropped,
}

/// Requests to keep hosts out.
#[derive(Debug, Default)]
pub(crate) struct Fences {
    /// Those that have not been answered.
    waiting: BTreeMap<FenceName, FenceRequest>,
    /// The first epoch, as far as is known, with the present fence.
    since: Epoch,
}

impl Fences {
    /// An epoch has another fence than the one before it; or it is the first that is known.
    pub fn change(&mut self, epoch: Epoch) {
        self.since = epoch;
    }

    /// Takes in a request.
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

    /// Adds what was asked for to `next`. One for which there is no room is dropped: there is again when somebody who knows all hosts
    /// that live has everyone else kept out, by one number. Tells how many are dropped.
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

    /// True if none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes out those that are done, if these are the devices that may be serving: their names, and the epochs by which their askers live.
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

/// True if whoever `before` keeps out is kept out by `after`, too.
pub(crate) fn never_shrinks(before: &FenceTable, after: &FenceTable) -> bool {
    let below = before.below <= after.below;
    let spared = after.except.iter().filter(|host| **host < before.below);
    below
        && before.also.iter().all(|host| after.refuses(*host))
        && spared.into_iter().all(|host| !before.refuses(*host))
}
