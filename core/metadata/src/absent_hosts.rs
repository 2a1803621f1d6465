//! Hosts that have left something behind: blocks of their allotment, or answers that they did not acknowledge. Some had been fenced by an
//! owner that died before it dropped that; others ended while no process served.
//!
//! A host that uses the file system has a session at the lock server. Every ten leases the server looks for hosts in the map that have
//! none. One that it knows to be fenced, or that has no session at the next look either, is fenced for good, and dropped like any other.

use crate::reclaim::Step;
use crate::server::MetadataServer;
use braid_base::{Generation, Now, Time};
use braid_machine::Effects;
use std::collections::BTreeSet;

/// How many leases lie between two looks.
const LEASES: u32 = 10;

/// The hosts without a session that the last look has found.
#[derive(Clone, Debug, Default)]
pub(crate) struct AbsentHosts {
    found: BTreeSet<Generation>,
    /// When to look again. Set when the server serves.
    next: Option<Time>,
}

impl AbsentHosts {
    pub fn deadline(&self) -> Option<Time> {
        self.next
    }
}

impl MetadataServer {
    /// A host has an allotment.
    pub(crate) fn on_host_found(&mut self, now: Now, host: Generation, out: &mut Effects) {
        self.reclaim.add_host(host);
        if !self.locks.engine().has_session(host) {
            self.absent.found.insert(host);
            self.fence_for_good(now, out);
        }
    }

    /// Has absent hosts fenced for good that the membership shows as fenced: some device may not know yet.
    pub(crate) fn fence_for_good(&mut self, now: Now, out: &mut Effects) {
        let fenced = self.absent.found.iter().copied().filter(|host| self.is_fenced(*host));
        self.fence_absent(now, fenced.collect(), out);
    }

    /// Looks for absent hosts, if that is due. Those that were absent at the last look, too, are fenced.
    pub(crate) fn look_for_absent(&mut self, now: Now, out: &mut Effects) {
        let next = now.time.after(self.config.settings.host_lease * LEASES);
        if *self.absent.next.get_or_insert(next) > now.time {
            return;
        }
        self.absent.next = Some(next);
        let before = std::mem::take(&mut self.absent.found);
        self.fence_absent(
            now,
            before.into_iter().filter(|host| !self.locks.engine().has_session(*host)).collect(),
            out,
        );
        let (locks, own) = (&self.locks, self.config.generation);
        let answered =
            self.store.hosts_with_answers().filter(|host| *host != own && !locks.engine().has_session(*host));
        self.absent.found = answered.collect();
        if self.reclaim.forget_hosts(|host| !locks.engine().has_session(host)) {
            self.reclaim.add_step(Step::FindHosts(None));
        }
    }

    fn fence_absent(&mut self, now: Now, hosts: Vec<Generation>, out: &mut Effects) {
        self.with_locks(now, out, |locks, out| locks.fence_absent(now, &hosts, out));
        self.drop_fenced();
    }

    /// Drops what fenced hosts have left.
    pub(crate) fn drop_fenced(&mut self) {
        let locks = &self.locks;
        self.reclaim.drop_hosts(|host| locks.has_fenced(host));
    }

    /// Hosts that are gone, or seem to be, and whose blocks come back.
    pub(crate) fn hosts_with_allotments_to_reclaim(&self) -> impl Iterator<Item = Generation> {
        let absent = self.absent.found.iter().filter(|host| !self.locks.engine().has_session(**host));
        self.reclaim.gone().chain(absent.copied())
    }
}
