//! Leases in the simulated store: the table is that of real arrays (`braid_host_leases`), its records are in memory. A renewal looks at the lease,
//! writes its heartbeat, and looks again, as in a folder of files; in between, the host may be suspended.

use super::silent_hosts::RenewalFate;
use super::{ControlPlane, Event};
use crate::cluster::{Cluster, Failed};
use crate::exclusion;
use crate::hosts;
use crate::role::Role;
use braid_base::{Generation, NodeId, Time};
use braid_control_protocol::{HostEvent, ServerLease, Version};
use braid_host_leases::{Heartbeat, LeaseRecords, LeaseTable, LeaseTime, RenewerInput, Write};
use braid_metadata::NodeState;
use std::collections::BTreeSet;
use std::time::Duration;

/// What a lease says of the metadata server in its process, if it owns a shard.
pub(super) type Report = Option<ServerLease>;

/// The leases of hosts, and what was true of them.
pub(super) struct LeaseStore {
    records: LeaseRecords<Report>,
    /// Every generation that was given.
    given: BTreeSet<Generation>,
    /// The hosts whose leases were ended or released.
    over: BTreeSet<Generation>,
}

impl LeaseStore {
    /// After this last generation, with leases for living hosts.
    pub fn new(last: Generation, living: impl IntoIterator<Item = Generation>, now: &LeaseTime) -> LeaseStore {
        let mut records = LeaseRecords::new(last);
        for host in living {
            let mut table = LeaseTable::new(Generation(host.0 - 1));
            let (_, [_, lease]) = table.take(now, None).expect("there is a next generation");
            records.make(&table, lease);
        }
        LeaseStore { records, given: (0..=last.0).map(Generation).collect(), over: BTreeSet::new() }
    }

    pub fn table(&self) -> LeaseTable<Report> {
        self.records.table()
    }

    /// Makes the writes of a transition that led to `table`.
    pub fn make(&mut self, table: &LeaseTable<Report>, writes: impl IntoIterator<Item = Write>) {
        writes.into_iter().for_each(|write| self.records.make(table, write));
        self.check();
    }

    /// Gives a generation with a lease.
    pub fn take(&mut self, now: &LeaseTime) -> Generation {
        let mut table = self.table();
        let (host, writes) = table.take(now, None).expect("there is a next generation");
        self.make(&table, writes);
        assert!(self.given.insert(host), "{host} is given twice");
        host
    }

    /// A host has disconnected gracefully.
    pub fn release(&mut self, host: Generation) {
        let mut table = self.table();
        let writes = table.release(host);
        self.make(&table, writes);
        self.over.insert(host);
    }

    /// True if a host has a lease that it can still renew.
    pub fn has_lease(&self, host: Generation) -> bool {
        self.table().require(host).is_ok()
    }

    /// A lease that is over stays over.
    fn check(&mut self) {
        let table = self.table();
        let over = table.leases().filter(|(_, lease)| lease.is_over).map(|(host, _)| host);
        self.over.extend(over);
        for host in &self.over {
            assert!(table.require(*host).is_err(), "the lease of {host} was over");
        }
    }
}

impl Cluster {
    /// The time of leases: all processes of a real array read the same clock.
    pub(super) fn lease_time(&self) -> LeaseTime {
        LeaseTime { boot: String::new(), elapsed: self.world.now().since(Time(0)) }
    }

    /// A generation for a host that starts.
    pub(crate) fn take_generation(&mut self) -> Generation {
        if self.control.is_none() {
            return hosts::fresh_generation(self);
        }
        let now = self.lease_time();
        self.with_control(|cluster, control| {
            if control.draws_lost_generation() {
                // The host has not heard the answer, and asks again.
                control.store.leases.take(&now);
            }
            cluster.generations.last = control.store.leases.take(&now).0;
        });
        Generation(self.generations.last)
    }

    /// The generations of other nodes are in no table of leases; they come from the same counter.
    pub(crate) fn take_unleased(&mut self) {
        let now = self.lease_time();
        self.with_control(|cluster, control| {
            let taken = control.store.leases.take(&now);
            control.store.leases.release(taken);
            cluster.generations.last = taken.0 - 1;
        });
    }

    /// Sends a renewal to the store.
    pub(super) fn send_renewal(&mut self, control: &mut ControlPlane, host: Generation, confirmed: Version) {
        let way = control.way();
        let report = match self.world.machine(NodeId::Host(host)) {
            Some(Role::Metadata(node)) if node.state() == NodeState::Owns => node.server().map(|server| ServerLease {
                host,
                file_system: node.file_system(),
                is_live: true,
                serves: server.is_serving(),
                settled: server.is_settled(),
            }),
            _ => None,
        };
        let heartbeat = Heartbeat { renewed: Some(self.lease_time()), confirmed, report };
        self.schedule(control, way, Event::Renewal { host, heartbeat });
    }

    /// A renewal arrives.
    pub(super) fn on_renewal(&mut self, control: &mut ControlPlane, host: Generation, heartbeat: Heartbeat<Report>) {
        let fate = control.renewal_fate(self.world.now(), host);
        let leases = &mut control.store.leases;
        // A host has no answer until its next round would begin.
        let unanswered = self.control_lease() / 8;
        let (end, after) = match fate {
            RenewalFate::Lost => (RenewerInput::Unknown, unanswered),
            _ if leases.table().require(host).is_err() => (RenewerInput::Refused, Duration::ZERO),
            RenewalFate::Unwritable => (RenewerInput::Unwritable, Duration::ZERO),
            RenewalFate::Late { by } => {
                self.schedule(control, by, Event::LateHeartbeat { host, heartbeat });
                (RenewerInput::Unknown, unanswered)
            }
            RenewalFate::Made => {
                let mut table = leases.table();
                let write = table.renew(host, heartbeat).expect("it has a lease");
                leases.make(&table, [write]);
                assert!(!leases.over.contains(&host), "the lease of {host} is renewed after its end");
                (RenewerInput::Renewed, Duration::ZERO)
            }
        };
        self.schedule(control, after, Event::Host(host, HostEvent::Renewal(end)));
    }

    /// A host that was suspended within a renewal writes its heartbeat, though it may have no lease any more.
    pub(super) fn on_late_heartbeat(
        &mut self,
        control: &mut ControlPlane,
        host: Generation,
        heartbeat: Heartbeat<Report>,
    ) {
        if control.takes_no_renewals(self.world.now()) {
            return;
        }
        let leases = &mut control.store.leases;
        leases.records.write_heartbeat(host, heartbeat);
        leases.check();
        if leases.table().require(host).is_err() {
            let table = leases.table();
            leases.make(&table, [Write::RemoveHeartbeat(host)]);
        }
    }

    /// Forgets leases that are over. So many of the writes are made.
    pub(super) fn forget_leases(&mut self, control: &mut ControlPlane, gone: &[Generation], writes: usize) {
        if let Some(host) = gone.iter().find(|host| exclusion::is_served(self, **host)) {
            let details = format!("the lease of {host} is forgotten, and a device serves it");
            control.failed.get_or_insert(Failed { check: "forgotten-too-soon", details });
        }
        let mut table = control.store.leases.table();
        let all = table.forget(gone);
        control.store.leases.make(&table, all.into_iter().take(writes));
        control.store.leases.over.extend(gone);
    }

    /// Checks what must hold at any moment of a run with leases.
    pub(crate) fn check_leases(&self) -> Result<(), Failed> {
        self.control.as_ref().and_then(|control| control.failed.clone()).map_or(Ok(()), Err)
    }

    /// True if the living hosts have leases, and no other host has. Others are left until a fencer has found them.
    pub(super) fn has_only_living_leases(&self, control: &ControlPlane) -> bool {
        let table = control.store.leases.table();
        let is_up = |host: Generation| self.world.machine(NodeId::Host(host)).is_some();
        table.leases().all(|(host, lease)| !lease.is_over && is_up(host))
            && control.hosts.keys().all(|host| table.require(*host).is_ok() || !is_up(*host))
    }
}
