//! What is true of locks of ranges at any moment, seen from outside of all machines:
//!
//! - Programs of hosts that run never have ranges that conflict, locked or leased, also if a host is fenced and has not heard of it.
//! - What a program has, its host keeps at each lock server that is concerned; and each of them has granted what the host keeps.
//! - No program of a host that runs has a lock if a lock server concerned has not heard the host for a lease.
//! - At each lock server, requests that conflict are granted in the order in which they came.

use crate::cluster::{Cluster, Failed, failed};
use crate::exclusion::{check_held_by, of_hosts};
use crate::prelude::*;
use crate::role::{Role, lock_server_of};
use braid_locks::{LockName, LockServer, LockState};
use braid_wire::LockExtent;

/// A host that was suspended has looked at its leases after so long.
const AWAKE: Duration = Duration::from_millis(50);

/// What is remembered from one moment to the next.
#[derive(Clone, Debug, Default)]
pub(crate) struct RangeChecks {
    /// When requests came to the present start of each lock server, by its clock.
    arrivals: BTreeMap<(LockServerId, Generation), BTreeMap<LockName, Time>>,
    /// When each host was seen last while it did not run.
    asleep: BTreeMap<Generation, Time>,
}

impl RangeChecks {
    pub fn check(&mut self, cluster: &Cluster) -> Result<(), Failed> {
        self.note_sleepers(cluster);
        let now = cluster.world.now();
        let flat = |(_, object, extents, _): (u64, ObjectId, Vec<LockExtent>, bool)| {
            extents.into_iter().map(move |extent| (object, extent))
        };
        let programs = of_hosts(cluster, |host| host.locked_ranges().flat_map(flat).collect());
        check_held_by(&programs, |host| self.is_awake(host, now))?;
        for (generation, ()) in of_hosts(cluster, |_| ()) {
            self.check_host(cluster, generation)?;
        }
        servers(cluster).try_for_each(|(id, server)| self.check_order(id, server))
    }

    fn note_sleepers(&mut self, cluster: &Cluster) {
        let now = cluster.world.now();
        let asleep = |node: &&NodeId| cluster.world.is_stalled(**node);
        for node in cluster.hosts.iter().filter(asleep) {
            if let NodeId::Host(host) = node {
                self.asleep.insert(*host, now);
            }
        }
    }

    fn is_awake(&self, host: Generation, now: Time) -> bool {
        self.asleep.get(&host).is_none_or(|at| now.since(*at) > AWAKE)
    }

    fn check_host(&self, cluster: &Cluster, generation: Generation) -> Result<(), Failed> {
        let role = cluster.world.machine(NodeId::Host(generation)).and_then(Role::host);
        let host = role.expect("it was just listed");
        let is_awake = self.is_awake(generation, cluster.world.now());
        let settings = &cluster.options.settings;
        for (lock, object, extents, _) in host.locked_ranges().filter(|(.., is_lease)| !is_lease) {
            let concerned = |extent: &LockExtent| {
                settings.range_division.servers(object, extent.range, cluster.options.lock_servers.into())
            };
            let concerned: BTreeSet<_> = extents.iter().flat_map(concerned).collect();
            for id in concerned.into_iter().map(|server| LockServerId(server as u16)) {
                let kept: Vec<_> = host.locks().held().filter(|held| (held.0, held.1) == (id, object)).collect();
                let left = extents.iter().flat_map(|extent| extent.uncovered(kept.iter().map(|(.., kept)| kept)));
                if let Some(left) = left.last() {
                    return failed("ranges-uncovered", format!("lock {lock} of {generation}: {left:?} at {id}"));
                }
                let local = cluster.world.local(NodeId::LockServer(id)).expect("the node is in the world").time;
                let heard =
                    lock_server_of(&cluster.world, id).and_then(|server| server.engine().last_heard(generation));
                if let Some(heard) = heard.filter(|heard| local.since(*heard) > settings.host_lease && is_awake) {
                    let silent = local.since(heard);
                    return failed("ranges-outlive-lease", format!("lock {lock} of {generation} at {id}: {silent:?}"));
                }
            }
        }
        for (id, start, lock_id, extents) in host.locks().confirmed() {
            let is_it = |server: &&LockServer| server.start() == start && !server.has_fenced(generation);
            let Some(server) = lock_server_of(&cluster.world, id).filter(is_it) else { continue };
            let (name, engine) = (LockName { host: generation, lock_id }, server.engine());
            let granted = engine.extents(name).filter(|_| engine.state(name) == Some(LockState::Held));
            let granted = granted.map_or(&[][..], |(_, extents)| extents);
            if let Some(left) = extents.iter().flat_map(|extent| extent.uncovered(granted)).last() {
                return failed("ranges-not-granted", format!("{name:?} at {id}: {left:?} of {extents:?}"));
            }
        }
        Ok(())
    }

    /// No lock is held that conflicts with a request of another host that came earlier and waits.
    fn check_order(&mut self, id: LockServerId, server: &LockServer) -> Result<(), Failed> {
        self.arrivals.retain(|(of, start), _| *of != id || *start == server.start());
        let arrivals = self.arrivals.entry((id, server.start())).or_default();
        let engine = server.engine();
        arrivals.retain(|name, _| engine.state(*name).is_some());
        for (name, state) in engine.lock_ids() {
            let Some((since, waited)) = engine.since(name) else { continue };
            // Of one that was granted meanwhile, the time is that of the grant.
            if state == LockState::Waiting || !waited {
                arrivals.insert(name, since);
            }
        }
        let waiting = engine.lock_ids().filter(|(_, state)| *state == LockState::Waiting).map(|(name, _)| name);
        for first in waiting.filter(|name| arrivals.contains_key(name)) {
            let is_later = |name: &LockName| name.host != first.host && arrivals[name] > arrivals[&first];
            let held = arrivals.keys().filter(|name| engine.state(**name) == Some(LockState::Held) && is_later(name));
            let conflict = |name: &LockName| {
                let ((object, extents), (other, its)) = (engine.extents(first)?, engine.extents(*name)?);
                let conflict = extents.iter().any(|extent| its.iter().any(|other| extent.conflicts(other)));
                Some(object == other && conflict)
            };
            if let Some(other) = held.clone().find(|name| conflict(name) == Some(true)) {
                return failed("ranges-overtaken", format!("{other:?} has overtaken {first:?} at {id}"));
            }
        }
        Ok(())
    }
}

/// The lock servers that are up.
pub(crate) fn servers(cluster: &Cluster) -> impl Iterator<Item = (LockServerId, &LockServer)> {
    cluster.lock_servers().into_iter().filter_map(|id| Some((id, lock_server_of(&cluster.world, id)?)))
}
