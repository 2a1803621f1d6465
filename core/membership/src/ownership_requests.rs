//! Requests of hosts about the ownership of file systems.
//!
//! A take-over is decided in one record: the previous owner is fenced, and the sender becomes the owner. It is answered like a fence: when
//! no device can serve the previous owner any more, and nothing that it wrote is undecided. If the ownership has changed again by then, it
//! is refused. A repeated request finds its sender to be the owner, and waits in the same way; so does one that a restarted monitor gets.
//!
//! A refusal needs no memory: an ownership never recurs, so a late copy of a refused request is refused, too.

use crate::device_leases::Device;
use crate::fence_requests::Taken;
use crate::monitor_record::{Recorded, fits};
use braid_base::{Epoch, FenceTable, FileSystemId, Generation, NodeId, Ownership};
use braid_wire::{OwnershipRefused, OwnershipRequest};
use std::collections::{BTreeMap, BTreeSet};

/// The most requests that wait at a time. Requests beyond that are dropped; their senders repeat them.
const WAITING_MAX: usize = 64;

/// Identifies a request: the host that sent it, and its ticket.
pub(crate) type OwnershipName = (Generation, u64);

/// A request that is not answered yet.
#[derive(Clone, Debug)]
struct Waiting {
    /// The current epoch of the host that sent it.
    asker: Epoch,
    file_system: FileSystemId,
    request: OwnershipRequest,
    decided: Option<Decided>,
}

/// The record has, or will have, what was requested.
#[derive(Clone, Debug)]
struct Decided {
    /// From this epoch on.
    epoch: Epoch,
    /// The previous owner. The answer waits until every device that may serve has an epoch with this fence; none after a release.
    fence: Option<FenceTable>,
}

/// An answer to a request.
#[derive(Clone, Debug)]
pub(crate) struct OwnershipAnswer {
    pub ticket: u64,
    pub host: NodeId,
    /// The host's current epoch.
    pub asker: Epoch,
    pub result: Result<Ownership, OwnershipRefused>,
}

/// The requests about the ownership of file systems.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnershipRequests {
    waiting: BTreeMap<OwnershipName, Waiting>,
}

impl OwnershipRequests {
    /// Takes in a request for a change.
    pub fn take(
        &mut self,
        name: OwnershipName,
        asker: Epoch,
        file_system: FileSystemId,
        request: OwnershipRequest,
    ) -> Taken {
        if let Some(known) = self.waiting.get_mut(&name) {
            known.asker = asker;
            return Taken::Again;
        }
        if self.waiting.len() >= WAITING_MAX {
            return Taken::Dropped;
        }
        self.waiting.insert(name, Waiting { asker, file_system, request, decided: None });
        Taken::New
    }

    /// Decides the requests that are not decided yet, and makes their changes in `next`. Each file system changes at most once in a
    /// record; what has to wait for that record is decided after it. Returns the refusals, and how many requests were dropped because the
    /// fence does not fit into the record.
    pub fn decide(&mut self, durable: &Recorded, next: &mut Recorded) -> (Vec<OwnershipAnswer>, u64) {
        let (mut refused, mut full) = (Vec::new(), Vec::new());
        for (name, waiting) in self.waiting.iter_mut().filter(|(_, waiting)| waiting.decided.is_none()) {
            match decide(name.0, waiting, durable, next) {
                Verdict::Decided(decided) => waiting.decided = Some(decided),
                Verdict::Refused(why) => refused.push((*name, why)),
                Verdict::Later => {}
                Verdict::NoRoom => full.push(*name),
            }
        }
        let refused = refused.into_iter().map(|(name, why)| self.end(name, Err(why))).collect();
        for name in &full {
            self.waiting.remove(name);
        }
        (refused, full.len() as u64)
    }

    /// True if no request waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Removes the requests that can be answered, given the devices that may be serving, and returns their answers.
    pub fn take_done(&mut self, durable: &Recorded, serving: &[&Device]) -> Vec<OwnershipAnswer> {
        let epoch_now = durable.membership.epoch;
        let mut done = Vec::new();
        for (name, waiting) in &self.waiting {
            let Some(Decided { epoch, fence }) = waiting.decided.as_ref().filter(|decided| decided.epoch <= epoch_now)
            else {
                continue;
            };
            let present = durable.owners.of(waiting.file_system);
            match fence {
                None => done.push((*name, Ok(present))),
                // It was taken over from the sender, or released by it, before this request was answered.
                Some(_) if present != (Ownership { since: *epoch, owner: Some(name.0) }) => {
                    done.push((*name, Err(OwnershipRefused::Differs(present))));
                }
                Some(fence) if serving.iter().all(|device| device.has_done_with(*epoch, fence)) => {
                    done.push((*name, Ok(present)));
                }
                Some(_) => {}
            }
        }
        done.into_iter().map(|(name, result)| self.end(name, result)).collect()
    }

    fn end(&mut self, name: OwnershipName, result: Result<Ownership, OwnershipRefused>) -> OwnershipAnswer {
        let (host, ticket) = name;
        let asker = self.waiting.remove(&name).expect("it has not been answered").asker;
        OwnershipAnswer { ticket, host: NodeId::Host(host), asker, result }
    }

    /// Asserts that the table has its bound.
    pub fn invariants(&self) {
        assert!(self.waiting.len() <= WAITING_MAX);
    }
}

/// What becomes of a request in the next record.
#[derive(Clone, Debug)]
enum Verdict {
    Decided(Decided),
    Refused(OwnershipRefused),
    /// It depends on a change of the next record, which is not durable yet.
    Later,
    /// There is no room for the fence.
    NoRoom,
}

fn decide(host: Generation, waiting: &Waiting, durable: &Recorded, next: &mut Recorded) -> Verdict {
    let (file_system, epoch) = (waiting.file_system, durable.membership.epoch.next());
    if next.owners.of(file_system) != durable.owners.of(file_system) {
        return Verdict::Later;
    }
    match waiting.request {
        OwnershipRequest::Inquire => unreachable!("it is answered at once"),
        OwnershipRequest::TakeOver { from } => {
            let previous: BTreeSet<_> = from.owner.into_iter().collect();
            let fence = Some(FenceTable { also: previous.clone(), ..FenceTable::default() });
            if next.owners.has_taken_over(file_system, host, from) {
                let epoch = next.owners.of(file_system).since;
                return Verdict::Decided(Decided { epoch, fence });
            }
            let mut owners = next.owners.clone();
            if let Err(why) = owners.take_over(file_system, host, from, epoch) {
                return Verdict::Refused(why);
            }
            if durable.membership.fence.refuses(host) {
                return Verdict::Refused(OwnershipRefused::Fenced);
            }
            let mut all_fenced = next.membership.fence.clone();
            if all_fenced.refuses(host) {
                return Verdict::Later;
            }
            all_fenced.add(Generation(0), &BTreeSet::new(), &previous);
            if !fits(&all_fenced) {
                return Verdict::NoRoom;
            }
            (next.owners, next.membership.fence) = (owners, all_fenced);
            Verdict::Decided(Decided { epoch, fence })
        }
        OwnershipRequest::Release { since } => match next.owners.release(file_system, host, since, epoch) {
            Ok(true) => Verdict::Decided(Decided { epoch, fence: None }),
            // The present record has it.
            Ok(false) => Verdict::Decided(Decided { epoch: durable.membership.epoch, fence: None }),
            Err(why) => Verdict::Refused(why),
        },
    }
}
