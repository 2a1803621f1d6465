//! Keeping out hosts: who has asked for it, and when it is done.
//!
//! It is done when the fence is durable here, no device can serve without it any more, and nothing that the fenced hosts wrote is
//! undecided: each device that may be serving has said that it lives by an epoch with the fence, and holds nothing undecided of theirs.
//! Any other is out, or is being waited for by all (it is *away*), and adopts an epoch with the fence before it serves again. Then the
//! request is answered and forgotten; the same request again finds nothing to change, and is answered likewise.
//!
//! What is undecided must be decided first. Else a reader could see what was there before, of a device that lacks the write, and that device
//! could go out: then those that are left decide without it, and the write of a host that was kept out takes effect
//! (`docs/reliability.md`).

use crate::monitor::Monitor;
use crate::record::fits;
use braid_base::{Epoch, FenceTable, Membership, NodeId, Now, Standing};
use braid_machine::{Effects, Ignored};
use braid_wire::MonitorReply;

/// The most requests that wait at a time. Others are dropped, and asked again.
pub(crate) const WAITING_MAX: usize = 64;

/// Names a request: who has asked, and the ticket.
pub(crate) type FenceName = (NodeId, u64);

/// A request that has not been answered.
#[derive(Debug)]
pub(crate) struct FenceRequest {
    /// The epoch by which the asker lives.
    asker: Epoch,
    wanted: FenceTable,
    /// The first epoch, as far as is known, that has it; none if it has not been decided.
    epoch: Option<Epoch>,
}

impl Monitor {
    pub(crate) fn on_fence(&mut self, name: FenceName, asker: Epoch, wanted: FenceTable, out: &mut Effects) {
        if let Some(known) = self.fences.get_mut(&name) {
            known.asker = asker;
            return self.ignore(Ignored::InProgress, out);
        }
        if self.fences.len() >= WAITING_MAX {
            self.counters.fences_refused += 1;
            return;
        }
        self.fences.insert(name, FenceRequest { asker, wanted, epoch: None });
        self.decide_now = true;
    }

    /// Adds what was asked for to `next`. One for which there is no room is dropped: there is again when somebody who knows all hosts
    /// that live has everyone else kept out, by one number.
    pub(crate) fn decide_fences(&mut self, durable: &Membership, next: &mut Membership) {
        let epoch = durable.epoch.next();
        let mut full = Vec::new();
        for (name, request) in self.fences.iter_mut().filter(|(_, request)| request.epoch.is_none()) {
            let mut fence = next.fence.clone();
            fence.add(request.wanted.below, &request.wanted.except, &request.wanted.also);
            if !fits(&fence) {
                full.push(*name);
                continue;
            }
            let had = fence == durable.fence;
            next.fence = fence;
            request.epoch = Some(if had { self.fenced_since } else { epoch });
        }
        for name in full {
            self.fences.remove(&name);
            self.counters.fences_refused += 1;
        }
    }

    /// Answers what is done.
    pub(crate) fn answer_fences(&mut self, now: Now, out: &mut Effects) {
        if self.fences.is_empty() {
            return;
        }
        let (durable, away) = (self.membership(), self.away());
        let counting = durable.devices(|standing| standing != Standing::Out).filter(|device| !away.contains(device));
        let counting: Vec<_> = counting.map(|device| &self.devices[&device]).collect();
        if counting.iter().any(|device| !device.may_serve(now.time)) {
            // It is about to be taken out; until that is durable, it could come back with all that it holds.
            return;
        }
        let is_done = |request: &FenceRequest| {
            let epoch = request.epoch.filter(|epoch| *epoch <= durable.epoch);
            epoch.is_some_and(|epoch| counting.iter().all(|device| device.has_done_with(epoch, &request.wanted)))
        };
        let names: Vec<_> = self.fences.iter().filter(|(_, request)| is_done(request)).map(|(name, _)| *name).collect();
        for (asker, ticket) in names {
            let request = self.fences.remove(&(asker, ticket)).expect("just seen");
            self.counters.fences += 1;
            self.answer(now, asker, request.asker, MonitorReply::Fenced { ticket }, out);
        }
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
