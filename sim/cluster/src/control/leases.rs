//! Leases in the simulated store: the table is that of real arrays (`braid_host_leases`), its records are in memory.

use super::context::Report;
use crate::prelude::*;
use braid_host_leases::{Heartbeat, LeaseRecords, LeaseTable, LeaseTime, Write};

/// The leases of hosts, and what was true of them.
pub(crate) struct LeaseStore {
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

    /// A host renews its lease, which it has.
    pub fn renew(&mut self, host: Generation, heartbeat: Heartbeat<Report>) {
        let mut table = self.table();
        let write = table.renew(host, heartbeat).expect("it has a lease");
        self.make(&table, [write]);
        assert!(!self.over.contains(&host), "the lease of {host} is renewed after its end");
    }

    /// A host that was suspended within a renewal writes its heartbeat, though it may have no lease any more.
    pub fn write_late_heartbeat(&mut self, host: Generation, heartbeat: Heartbeat<Report>) {
        self.records.write_heartbeat(host, heartbeat);
        self.check();
        let table = self.table();
        if table.require(host).is_err() {
            self.make(&table, [Write::RemoveHeartbeat(host)]);
        }
    }

    /// Forgets leases that are over. So many of the writes are made.
    pub fn forget(&mut self, gone: &[Generation], writes: usize) {
        let mut table = self.table();
        let all = table.forget(gone);
        self.make(&table, all.into_iter().take(writes));
        self.over.extend(gone);
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
