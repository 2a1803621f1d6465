//! Hosts that contend for the ownership of file systems, and the checks of what they are answered.
//!
//! The file systems are imaginary: their owners use the volumes as all hosts do. So it shows that a host that was taken over from can do
//! nothing more there.

use crate::activity::{Activity, Draw, Feature, Options, pick};
use crate::availability::Cause;
use crate::cluster::{Cluster, HostSlot, Record};
use crate::prelude::*;
use crate::swarm::{FOR_EVER, Run};
use braid_base::Ownership;

const FILE_SYSTEMS: u64 = 3;

#[derive(Clone, Debug)]
pub(crate) struct TakeOvers;

impl Feature for TakeOvers {
    const NAME: &'static str = "take-over";
    const ONE_IN: u64 = 8;
    const EVERY: Option<[u64; 3]> = Some([100, 400, 2_000]);
    // Where writes take effect on arrival, no host is fenced. In calm runs every operation must succeed.
    const NOT_WITH: &'static [&'static str] = &["calm"];
    const EXCUSES: fn(&HostError) -> bool = |error| matches!(error, HostError::Fenced);

    fn draw(options: &mut Options, _: &mut Draw) -> Option<TakeOvers> {
        options.hosts = options.hosts.max(2);
        Some(TakeOvers)
    }
}

impl Activity for TakeOvers {
    /// A host asks for a file system; now and then all hosts ask for the same at once.
    fn act(&mut self, run: &mut Run, rng: &mut Rng) {
        let staying = run.staying_slots();
        let file_system = FileSystemId(rng.below(FILE_SYSTEMS) as u16);
        let all_at_once = rng.chance(1, 4);
        if let Some(picked) = pick(rng, &staying) {
            for slot in staying.into_iter().filter(|slot| all_at_once || *slot == picked) {
                contend(run, rng, slot, file_system);
            }
        }
    }
}

fn contend(run: &mut Run, rng: &mut Rng, slot: HostSlot, file_system: FileSystemId) {
    let known = run.cluster.ownership.known(rng, file_system);
    let NodeId::Host(host) = run.cluster.node(slot) else { unreachable!("host slots hold hosts") };
    let request = match known {
        Some(Ownership { since, owner }) if owner == Some(host) => OwnershipRequest::Release { since },
        Some(from) if rng.chance(3, 4) => {
            if from.owner.is_some() {
                // The previous owner is fenced and gets errors, and the transactions that it leaves block others.
                run.availability.begin(run.cluster.world.now(), "take-over", Cause::Other, FOR_EVER);
            }
            OwnershipRequest::TakeOver { from }
        }
        _ => OwnershipRequest::Inquire,
    };
    run.count_fault(match request {
        OwnershipRequest::Inquire => "owner inquired",
        OwnershipRequest::TakeOver { .. } => "take-over",
        OwnershipRequest::Release { .. } => "owner releases",
    });
    let op = run.cluster.own(slot, file_system, request);
    run.chores.insert(op);
}

impl Cluster {
    /// A host sends a request about the ownership of a file system.
    pub fn own(&mut self, slot: HostSlot, file_system: FileSystemId, request: OwnershipRequest) -> OpId {
        let record = Record::Ownership(file_system, request);
        self.begin(slot, 0, ArrayRequest::Ownership { file_system, request }, record)
    }
}
