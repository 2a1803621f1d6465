//! Hosts that contend for the ownership of file systems, and the checks of what they are answered.
//!
//! The file systems are imaginary: their owners use the volumes as all hosts do. So it shows that a host that was taken over from can do
//! nothing more there.

use crate::availability::Cause;
use crate::cluster::{Cluster, Failed, HostSlot, PendingOperation, Record};
use crate::fault_events::FaultEvent;
use crate::graceful_disconnect::pick;
use crate::options::{Choices, Options};
use crate::swarm::{FOR_EVER, Run};
use braid_base::{Epoch, FileSystemId, Generation, NodeId, Ownership, Rng, Time};
use braid_machine::{ArrayRequest, HostError, HostOutcome, HostSuccess, OpId};
use braid_ordering::Atomicity;
use braid_wire::{OwnershipRefused, OwnershipRequest};
use braid_world::FaultKind;
use std::collections::BTreeMap;
use std::time::Duration;

/// The number of file systems.
const FILE_SYSTEMS: u64 = 3;
/// So many of the hosts that were taken over from last are looked for at each moment.
const WATCHED: usize = 4;

/// What hosts were told of the ownership of file systems.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnershipHistory {
    /// All ownerships of each file system that a host was told, by the epoch in which they began.
    told: BTreeMap<FileSystemId, BTreeMap<Epoch, Ownership>>,
    /// The take-overs that were answered: from which ownership, and to which.
    followed: BTreeMap<FileSystemId, BTreeMap<Ownership, Ownership>>,
    /// The hosts that were taken over from, and when that was answered, in this order.
    taken_over: Vec<(Generation, Time)>,
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

    /// Some ownership that hosts were told, mostly the last one.
    fn known(&self, rng: &mut Rng, file_system: FileSystemId) -> Option<Ownership> {
        let told = self.told.get(&file_system)?;
        let which = if rng.chance(3, 4) { told.len() as u64 - 1 } else { rng.below(told.len() as u64) };
        told.values().nth(which as usize).copied()
    }
}

impl Options {
    /// In some seeds, hosts take file systems over from each other; if the choices name it, in all seeds in which they may.
    pub(crate) fn with_take_overs(self, choices: &Choices) -> Options {
        let kind = FaultKind::TakeOver;
        // Where writes take effect on arrival, no host is fenced. In calm runs every operation must succeed.
        let may = choices.kinds().contains(&kind)
            && self.atomicity == Atomicity::Implied
            && !self.faults.has(FaultKind::Calm);
        let named = choices.only.contains(&kind) || choices.also.contains(&kind);
        let rng = &mut self.source("take-over");
        if !may || !(rng.below(8) == 0 || named) {
            return self;
        }
        let every = Duration::from_millis([100, 400, 2_000][rng.below(3) as usize]);
        Options { take_overs: Some(every), hosts: self.hosts.max(2), ..self }
    }
}

impl Run {
    /// Schedules requests for file systems, if the run has them.
    pub(crate) fn plan_take_over(&mut self) {
        if let Some(mean) = self.cluster.options.take_overs {
            let pause = Duration::from_nanos(self.take_over_rng.below(2 * mean.as_nanos() as u64) + 1);
            self.plan_fault(pause, FaultEvent::TakeOver);
        }
    }

    /// A host asks for a file system; now and then all hosts ask for the same at once.
    pub(crate) fn contend_and_plan_next(&mut self) {
        let staying = self.staying_slots();
        let file_system = FileSystemId(self.take_over_rng.below(FILE_SYSTEMS) as u16);
        let all_at_once = self.take_over_rng.chance(1, 4);
        if let Some(picked) = pick(&mut self.take_over_rng, &staying) {
            for slot in staying.into_iter().filter(|slot| all_at_once || *slot == picked) {
                self.contend(slot, file_system);
            }
        }
        self.plan_take_over();
    }

    fn contend(&mut self, slot: HostSlot, file_system: FileSystemId) {
        let known = self.cluster.ownership.known(&mut self.take_over_rng, file_system);
        let NodeId::Host(host) = self.cluster.node(slot) else { unreachable!("host slots hold hosts") };
        let request = match known {
            Some(Ownership { since, owner }) if owner == Some(host) => OwnershipRequest::Release { since },
            Some(from) if self.take_over_rng.chance(3, 4) => {
                if from.owner.is_some() {
                    // The previous owner is fenced and gets errors, and the transactions that it leaves block others.
                    self.availability.begin(self.cluster.world.now(), "take-over", Cause::Other, FOR_EVER);
                }
                OwnershipRequest::TakeOver { from }
            }
            _ => OwnershipRequest::Inquire,
        };
        self.count_fault(match request {
            OwnershipRequest::Inquire => "owner inquired",
            OwnershipRequest::TakeOver { .. } => "take-over",
            OwnershipRequest::Release { .. } => "owner releases",
        });
        let op = self.cluster.own(slot, file_system, request);
        self.chores.insert(op);
    }
}

impl Cluster {
    /// A host sends a request about the ownership of a file system.
    pub fn own(&mut self, slot: HostSlot, file_system: FileSystemId, request: OwnershipRequest) -> OpId {
        let record = Record::Ownership(file_system, request);
        self.begin(slot, 0, ArrayRequest::Ownership { file_system, request }, record)
    }

    pub(crate) fn on_ownership_reply(
        &mut self,
        asked: &PendingOperation,
        (file_system, request): (FileSystemId, OwnershipRequest),
        outcome: &HostOutcome,
    ) -> Result<(), Failed> {
        let now = self.world.now();
        let NodeId::Host(host) = asked.node else { unreachable!("only hosts are asked") };
        let broken = |details| Failed { check: "ownership", details };
        let unexpected = || Failed { check: "unexpected-answer", details: format!("{request:?}: {outcome:?}") };
        match (request, outcome) {
            (OwnershipRequest::TakeOver { from }, Ok(HostSuccess::Ownership(to))) => {
                if to.owner != Some(host) {
                    return Err(unexpected());
                }
                self.ownership.take_over(file_system, from, *to).map_err(broken)?;
                if let Some(previous) = from.owner {
                    self.ownership.taken_over.push((previous, now));
                    self.note_fence(previous, asked.since);
                }
            }
            (OwnershipRequest::Release { since }, Ok(HostSuccess::Ownership(told))) if told.since <= since => {
                return Err(unexpected());
            }
            (OwnershipRequest::Inquire | OwnershipRequest::Release { .. }, Ok(HostSuccess::Ownership(told)))
            | (_, Err(HostError::Ownership(OwnershipRefused::Differs(told)))) => {
                self.ownership.tell(file_system, *told).map_err(broken)?;
            }
            (_, Err(HostError::MonitorSilent { .. } | HostError::Fenced | HostError::Disconnecting)) => {}
            _ => return Err(unexpected()),
        }
        Ok(())
    }

    /// At any moment, no device that serves would execute a request of a host that was taken over from.
    pub(crate) fn check_taken_over(&self) -> Result<(), Failed> {
        for (host, _) in self.ownership.taken_over.iter().rev().take(WATCHED) {
            if self.is_served(*host) {
                let details = format!("{host} was taken over from, and a device serves it");
                return Err(Failed { check: "taken-over-and-served", details });
            }
        }
        Ok(())
    }

    /// A request that was made after its host had been taken over from must not succeed.
    pub(crate) fn check_is_owner_still(&self, asked: &PendingOperation) -> Result<(), Failed> {
        let is_it = |host: Generation| asked.node == NodeId::Host(host);
        match self.ownership.taken_over.iter().find(|(host, at)| is_it(*host) && *at < asked.since) {
            Some((host, at)) => {
                let details = format!("{asked:?} succeeds, but {host} was taken over from at {at:?}");
                Err(Failed { check: "taken-over-and-answered", details })
            }
            None => Ok(()),
        }
    }
}
