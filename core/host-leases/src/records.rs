//! The records of a backend in memory, for the simulation and for tests. As in a folder of files, each is written by itself: a process may die
//! between two writes of a transition, and a heartbeat may be written late.

use crate::{Heartbeat, Lease, LeaseTable, Write};
use braid_base::Generation;
use std::collections::BTreeMap;

/// What a backend keeps of leases.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseRecords<R> {
    counter: Generation,
    leases: BTreeMap<Generation, Lease<R>>,
    heartbeats: BTreeMap<Generation, Heartbeat<R>>,
}

impl<R: Clone> LeaseRecords<R> {
    /// Without leases, after this last generation.
    pub fn new(counter: Generation) -> LeaseRecords<R> {
        LeaseRecords { counter, leases: BTreeMap::new(), heartbeats: BTreeMap::new() }
    }

    /// The table, as a process reads it.
    pub fn table(&self) -> LeaseTable<R> {
        let mut table = LeaseTable::new(self.counter);
        for (host, lease) in &self.leases {
            table.insert(*host, lease.clone(), self.heartbeats.get(host).cloned());
        }
        table
    }

    /// Makes one write of a transition that led to `table`.
    pub fn make(&mut self, table: &LeaseTable<R>, write: Write) {
        let lease = |host| table.lease(host).expect("a lease that is written").clone();
        match write {
            Write::Counter(last) => self.counter = last,
            Write::Lease(host) => drop(self.leases.insert(host, lease(host))),
            Write::Heartbeat(host) => self.write_heartbeat(host, lease(host).heartbeat),
            Write::RemoveLease(host) => drop(self.leases.remove(&host)),
            Write::RemoveHeartbeat(host) => drop(self.heartbeats.remove(&host)),
        }
    }

    /// Writes a heartbeat of a host that has looked at its lease before.
    pub fn write_heartbeat(&mut self, host: Generation, heartbeat: Heartbeat<R>) {
        self.heartbeats.insert(host, heartbeat);
    }
}
