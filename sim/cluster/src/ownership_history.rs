//! What hosts were told of the ownership of file systems: the answers about each must form one chain of owners.

use crate::failed::{Failed, failed};
use crate::prelude::*;
use braid_base::Ownership;
use braid_wire::OwnershipRefused;

/// What hosts were told of the ownership of file systems.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnershipHistory {
    /// All ownerships of each file system that a host was told, by the epoch in which they began.
    told: BTreeMap<FileSystemId, BTreeMap<Epoch, Ownership>>,
    /// The take-overs that were answered: from which ownership, and to which.
    followed: BTreeMap<FileSystemId, BTreeMap<Ownership, Ownership>>,
    /// The hosts that were taken over from, and when that was answered, in this order.
    pub taken_over: Vec<(Generation, Time)>,
}

impl OwnershipHistory {
    /// A host was told of an ownership.
    fn tell(&mut self, file_system: FileSystemId, told: Ownership) -> Result<(), String> {
        let known = *self.told.entry(file_system).or_default().entry(told.since).or_insert(told);
        if known != told {
            return Err(format!("{file_system} was {known}, and {told}"));
        }
        let followed = self.followed.entry(file_system).or_default();
        match followed.iter().find(|(from, to)| from.since < told.since && told.since < to.since) {
            Some((from, to)) => Err(format!("{file_system} was {told}, but {to} follows {from}")),
            None => Ok(()),
        }
    }

    /// A host took over. No other host may have taken over from the same ownership, and no other ownership may have been in between.
    fn take_over(&mut self, file_system: FileSystemId, from: Ownership, to: Ownership) -> Result<(), String> {
        let other = *self.followed.entry(file_system).or_default().entry(from).or_insert(to);
        if other != to || to.since <= from.since {
            return Err(format!("{file_system} is {to}, from {from}, which {other} followed"));
        }
        self.tell(file_system, from)?;
        self.tell(file_system, to)?;
        let between = self.told[&file_system].values().find(|told| from.since < told.since && told.since < to.since);
        between.map_or(Ok(()), |told| Err(format!("{file_system} is {to}, from {from}, but it was {told} in between")))
    }

    /// A host was answered. Returns the host that it has taken over from, if it has.
    pub fn on_reply(
        &mut self,
        now: Time,
        node: NodeId,
        (file_system, request): (FileSystemId, OwnershipRequest),
        outcome: &HostOutcome,
    ) -> Result<Option<Generation>, Failed> {
        let NodeId::Host(host) = node else { unreachable!("only hosts are asked") };
        let broken = |details| Failed { check: "ownership", details };
        let unexpected = || Failed { check: "unexpected-answer", details: format!("{request:?}: {outcome:?}") };
        match (request, outcome) {
            (OwnershipRequest::TakeOver { from }, Ok(HostSuccess::Ownership(to))) => {
                if to.owner != Some(host) {
                    return Err(unexpected());
                }
                self.take_over(file_system, from, *to).map_err(broken)?;
                if let Some(previous) = from.owner {
                    self.taken_over.push((previous, now));
                }
                return Ok(from.owner);
            }
            (OwnershipRequest::Release { since }, Ok(HostSuccess::Ownership(told))) if told.since <= since => {
                return Err(unexpected());
            }
            (OwnershipRequest::Inquire | OwnershipRequest::Release { .. }, Ok(HostSuccess::Ownership(told)))
            | (_, Err(HostError::Ownership(OwnershipRefused::Differs(told)))) => {
                self.tell(file_system, *told).map_err(broken)?;
            }
            (_, Err(HostError::MonitorSilent { .. } | HostError::Fenced | HostError::Disconnecting)) => {}
            _ => return Err(unexpected()),
        }
        Ok(None)
    }

    /// A request that was made after its host had been taken over from must not succeed.
    pub fn check_is_owner_still(&self, node: NodeId, since: Time) -> Result<(), Failed> {
        let is_it = |host: Generation| node == NodeId::Host(host);
        match self.taken_over.iter().find(|(host, at)| is_it(*host) && *at < since) {
            Some((host, at)) => {
                let details = format!("a request of {since:?} succeeds, but {host} was taken over from at {at:?}");
                failed("taken-over-and-answered", details)
            }
            None => Ok(()),
        }
    }

    /// Some ownership that hosts were told, mostly the last one.
    pub fn known(&self, rng: &mut Rng, file_system: FileSystemId) -> Option<Ownership> {
        let told = self.told.get(&file_system)?;
        let which = if rng.chance(3, 4) { told.len() as u64 - 1 } else { rng.below(told.len() as u64) };
        told.values().nth(which as usize).copied()
    }
}
