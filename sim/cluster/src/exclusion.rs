//! Checks mutual exclusion at the hosts: no two hosts may hold conflicting locks of a lock server.
//!
//! A host that was silent may continue without knowing that it lost its locks. This does no harm once every device refuses it.

use crate::cluster::{Cluster, Failed, failed};
use braid_base::{Generation, NodeId, ObjectId};
use braid_wire::LockExtent;

impl Cluster {
    /// At any moment of any run, no two hosts that devices still serve hold conflicting locks.
    pub fn check_exclusion(&self) -> Result<(), Failed> {
        let held: Vec<_> = self.slots().filter_map(|slot| self.held_locks(self.node(slot))).collect();
        self.check_held(&held)
    }

    /// The same for these locks of hosts.
    pub(crate) fn check_held(&self, held: &[(Generation, Vec<(ObjectId, LockExtent)>)]) -> Result<(), Failed> {
        for (number, (host, locks)) in held.iter().enumerate() {
            for (other, theirs) in &held[number + 1..] {
                let conflict =
                    locks.iter().find_map(|lock| Some((lock, theirs.iter().find(|its| conflict(lock, its))?)));
                if let Some(((_, lock), (_, its))) = conflict
                    && self.is_served(*host)
                    && self.is_served(*other)
                {
                    return failed("exclusion", format!("{host} holds {lock:?}, and {other} holds {its:?}"));
                }
            }
        }
        Ok(())
    }

    fn held_locks(&self, node: NodeId) -> Option<(Generation, Vec<(ObjectId, LockExtent)>)> {
        match (node, self.world.machine(node)) {
            (NodeId::Host(host), Some(role)) => Some((host, role.host()?.held_locks().collect())),
            _ => None,
        }
    }

    /// True if some device would execute requests of this host.
    pub(crate) fn is_served(&self, host: Generation) -> bool {
        self.devices().into_iter().filter(|device| self.can_serve(*device)).any(|device| {
            let now = self.world.local(NodeId::Device(device)).expect("the node is in the world").time;
            self.device(device).is_some_and(|machine| machine.has_lease(now) && !machine.keeps_out(host))
        })
    }
}

fn conflict((object, lock): &(ObjectId, LockExtent), (other, its): &(ObjectId, LockExtent)) -> bool {
    object == other && lock.position == its.position && lock.mode.conflicts(its.mode) && lock.range.overlaps(its.range)
}
