//! Keeping out hosts: who has asked for it, and when it is done.
//!
//! It is done when the fence is durable here, and no device can serve without it any more: each one that may be serving has said that it
//! lives by an epoch with the fence, and any other adopts one before it serves again. Then the request is answered and forgotten;
//! the same request again finds nothing to change, and is answered likewise.

use crate::monitor::Monitor;
use crate::record::fits;
use braid_base::{Epoch, FenceTable, Generation, Membership, NodeId, Now, Standing};
use braid_machine::{Effects, Ignored};
use braid_wire::MonitorReply;
use std::collections::BTreeSet;

/// The most requests that wait at a time. Others are dropped, and asked again.
pub(crate) const WAITING_MAX: usize = 64;

/// Names a request: who has asked, and the ticket.
pub(crate) type FenceName = (NodeId, u64);

/// A request that has not been answered.
#[derive(Debug)]
pub(crate) struct FenceRequest {
    /// The epoch by which the asker lives.
    asker: Epoch,
    wanted: Wanted,
    /// The first epoch, as far as is known, that has it; none if it has not been decided.
    epoch: Option<Epoch>,
}

/// Who is to be kept out.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    pub below: Generation,
    pub except: BTreeSet<Generation>,
    pub also: BTreeSet<Generation>,
}

impl Monitor {
    pub(crate) fn on_fence(&mut self, name: FenceName, asker: Epoch, wanted: Wanted, out: &mut Effects) {
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
            request.wanted = Wanted::default();
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
        let durable = self.membership();
        let may_serve = durable.devices(|standing| standing != Standing::Out).map(|device| &self.devices[&device]);
        let may_serve = may_serve.filter(|device| device.may_serve(now.time));
        let lived_by = may_serve.map(|device| device.epoch).min().unwrap_or(durable.epoch).min(durable.epoch);
        let done = |request: &FenceRequest| request.epoch.is_some_and(|epoch| epoch <= lived_by);
        let done: Vec<_> = self.fences.extract_if(.., |_, request| done(request)).collect();
        for ((asker, ticket), request) in done {
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
