//! The table of leases, and the transitions of it.
//!
//! A lease has two parts, which different processes write. The [`Lease`] says that a host has a lease, and whether it is over. Processes
//! change it one at a time, under a lock of the backend. The [`Heartbeat`] has the time of the last renewal, and the host's report. Only the
//! host itself writes it, without that lock, so that a process that is suspended while it holds the lock prevents no renewals. A heartbeat that
//! is written late revives no lease, because the lease decides ([`LeaseTable::insert`]).

use crate::LeaseTime;
use braid_base::Generation;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The version of the array's description. Every change of the description has a higher version than the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Version(pub u64);

/// The leases of hosts, or those that a transition is about. `R` is what hosts report with their renewals.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseTable<R> {
    /// The last generation that was given.
    last: Generation,
    leases: BTreeMap<Generation, Lease<R>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lease<R> {
    /// It can't be renewed any more.
    pub is_over: bool,
    /// The host has renewed it since it was taken. A lease that was only taken does not show that renewals can be written.
    pub is_renewed: bool,
    /// What the host said last.
    pub heartbeat: Heartbeat<R>,
}

/// A renewal of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Heartbeat<R> {
    /// When the host made the renewal out; none if the record is unreadable, which counts as silence.
    pub renewed: Option<LeaseTime>,
    /// The host has applied the description of this version, and has no operation under way on volumes that are on hold there.
    pub confirmed: Version,
    pub report: R,
}

/// The last generation that is given: a fence of it needs a higher number.
const GENERATION_MAX: Generation = Generation(u32::MAX - 1);

/// A write that a transition asks of the backend. It writes what the table contains then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Write {
    /// The last generation that was given, durably.
    Counter(Generation),
    Lease(Generation),
    Heartbeat(Generation),
    RemoveLease(Generation),
    RemoveHeartbeat(Generation),
}

/// Leases that are over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expired {
    /// The generations that held them, and that can no longer renew them.
    pub gone: Vec<Generation>,
    /// The generations that the devices must refuse. The devices need to be told only if `gone` is not empty: a host that
    /// disconnected gracefully has left no request that could arrive late.
    pub fence: Fence,
    /// The shortest silence of a host that has renewed its lease, which was not over. If it is long, perhaps nobody can renew.
    pub silent: Option<Duration>,
}

/// The generations that devices must refuse: every generation below a number, except those with a lease that is not over.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Fence {
    pub below: Generation,
    /// Ascending.
    pub except: Vec<Generation>,
}

/// How the end of one lease went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeaseEnd {
    /// The host has renewed its lease.
    Lives,
    /// The lease is over for good, or was released. Requests of the host may still be on their way: the devices must refuse these
    /// generations before others act in its place.
    Ended(Fence),
}

/// A host has no lease, or one that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseLost(pub Generation);

impl<R> Heartbeat<R> {
    fn is_after(&self, earlier: &Heartbeat<R>) -> bool {
        let (Some(now), Some(earlier)) = (&self.renewed, &earlier.renewed) else { return false };
        now.since(earlier) > Some(Duration::ZERO)
    }
}

impl Fence {
    pub fn refuses(&self, host: Generation) -> bool {
        host < self.below && !self.except.contains(&host)
    }
}

impl<R> LeaseTable<R> {
    /// A table without leases. `last` is the last generation that was given, as far as the transition needs it.
    pub fn new(last: Generation) -> LeaseTable<R> {
        LeaseTable { last, leases: BTreeMap::new() }
    }

    /// Adds a lease that the backend has read, and the host's heartbeat, if there is one. The lease decides: if it is over, the heartbeat is
    /// ignored. So is a lease of a generation that is never given.
    pub fn insert(&mut self, host: Generation, mut lease: Lease<R>, heartbeat: Option<Heartbeat<R>>) {
        if host > GENERATION_MAX {
            return;
        }
        if let Some(heartbeat) = heartbeat.filter(|_| !lease.is_over) {
            lease.is_renewed |= heartbeat.is_after(&lease.heartbeat);
            lease.heartbeat = heartbeat;
        }
        // A counter from an old copy may be behind the leases.
        self.last = self.last.max(host);
        assert!(self.leases.insert(host, lease).is_none(), "host {host} has one lease");
    }

    pub fn last(&self) -> Generation {
        self.last
    }

    /// All leases, ascending by generation.
    pub fn leases(&self) -> impl Iterator<Item = (Generation, &Lease<R>)> {
        self.leases.iter().map(|(host, lease)| (*host, lease))
    }

    pub fn lease(&self, host: Generation) -> Option<&Lease<R>> {
        self.leases.get(&host)
    }

    /// Gives a generation that was never used before, with a lease that starts at `now`. None if there is no further one.
    pub fn take(&mut self, now: &LeaseTime, report: R) -> Option<(Generation, [Write; 2])> {
        let host = Some(Generation(self.last.0.checked_add(1)?)).filter(|host| *host <= GENERATION_MAX)?;
        assert!(self.leases.last_key_value().is_none_or(|(last, _)| *last < host), "{host} is given once");
        self.last = host;
        let heartbeat = Heartbeat { renewed: Some(now.clone()), confirmed: Version(0), report };
        self.leases.insert(host, Lease { is_over: false, is_renewed: false, heartbeat });
        // The counter first: if the lease is not written, the generation is lost. The other way round, it would be given again.
        Some((host, [Write::Counter(host), Write::Lease(host)]))
    }

    /// Renews a lease. The host makes renewals out one after the other, but they may arrive in another order.
    pub fn renew(&mut self, host: Generation, heartbeat: Heartbeat<R>) -> Result<Write, LeaseLost> {
        let lease = self.leases.get_mut(&host).filter(|lease| !lease.is_over).ok_or(LeaseLost(host))?;
        let confirmed = lease.heartbeat.confirmed.max(heartbeat.confirmed);
        let is_after =
            |last: &LeaseTime| heartbeat.renewed.as_ref().is_some_and(|now| last.since(now) > Some(Duration::ZERO));
        if !lease.heartbeat.renewed.as_ref().is_some_and(is_after) {
            lease.is_renewed |= heartbeat.is_after(&lease.heartbeat);
            lease.heartbeat = heartbeat;
        }
        lease.heartbeat.confirmed = confirmed;
        Ok(Write::Heartbeat(host))
    }

    /// Fails if a host has no lease, or one that is over.
    pub fn require(&self, host: Generation) -> Result<(), LeaseLost> {
        let lease = self.leases.get(&host).filter(|lease| !lease.is_over);
        lease.map(drop).ok_or(LeaseLost(host))
    }

    /// Releases a lease: the host has ended, and all its transactions are decided.
    pub fn release(&mut self, host: Generation) -> [Write; 2] {
        self.leases.remove(&host);
        // The lease first, because a heartbeat without a lease is ignored.
        [Write::RemoveLease(host), Write::RemoveHeartbeat(host)]
    }

    /// The time since a host last renewed its lease; none if that is unknown, or was in another boot.
    pub fn silent(&self, host: Generation, now: &LeaseTime) -> Option<Duration> {
        now.since(self.leases.get(&host)?.heartbeat.renewed.as_ref()?)
    }

    /// The shortest silence of the hosts that have renewed their leases, and whose leases are not over; none if that is unknown. A host that
    /// has only taken its lease does not count: on a full file system a lease may be taken though nobody can renew.
    pub fn shortest_silence(&self, now: &LeaseTime) -> Option<Duration> {
        let open = self.leases.iter().filter(|(_, lease)| !lease.is_over && lease.is_renewed);
        open.filter_map(|(host, _)| self.silent(*host, now)).min()
    }

    /// True if a host has renewed its lease within `allowed`, and can renew it again.
    pub fn is_live(&self, host: Generation, now: &LeaseTime, allowed: Duration) -> bool {
        self.require(host).is_ok() && self.silent(host, now).is_some_and(|silent| silent <= allowed)
    }

    /// Ends the leases that were not renewed for `allowed`, for good, and returns the generations that the devices must refuse. Hosts whose
    /// leases are over are returned again by every call until the caller has fenced them and [forgets](LeaseTable::forget) them. The
    /// calling host `by` counts as live, even if it was suspended and could not renew its lease. If its own lease is over, the call fails.
    /// Needs the whole table.
    pub fn expire(
        &mut self,
        by: Generation,
        now: &LeaseTime,
        allowed: Duration,
    ) -> Result<(Expired, Vec<Write>), LeaseLost> {
        self.require(by)?;
        let silent = self.shortest_silence(now);
        let lives = |host: &Generation| *host == by || self.is_live(*host, now, allowed);
        let gone: Vec<Generation> = self.leases.keys().copied().filter(|host| !lives(host)).collect();
        let writes = gone.iter().flat_map(|host| self.end(*host)).collect();
        let fence = self.fence(Generation(self.last.0.saturating_add(1)));
        assert!(gone.iter().all(|host| fence.refuses(*host)), "the fence refuses the hosts whose leases are over");
        Ok((Expired { gone, fence, silent }, writes))
    }

    /// Ends the lease of one host for good, unless it was renewed within `allowed`, and returns the generations that the devices must refuse.
    /// Needs the whole table.
    pub fn expire_one(&mut self, host: Generation, now: &LeaseTime, allowed: Duration) -> (LeaseEnd, Vec<Write>) {
        if self.is_live(host, now, allowed) {
            return (LeaseEnd::Lives, Vec::new());
        }
        let writes = self.end(host);
        let fence = self.fence(Generation(host.0.saturating_add(1)));
        assert!(fence.refuses(host), "the fence of a lease that is over refuses its host");
        (LeaseEnd::Ended(fence), writes)
    }

    /// Removes leases that are over, whose hosts are fenced.
    pub fn forget(&mut self, gone: &[Generation]) -> Vec<Write> {
        for host in gone {
            assert!(self.require(*host).is_err(), "the lease of {host} is over before it is forgotten");
        }
        gone.iter().flat_map(|host| self.release(*host)).collect()
    }

    /// Ends a lease, if there is one that is not over.
    fn end(&mut self, host: Generation) -> Vec<Write> {
        match self.leases.get_mut(&host).filter(|lease| !lease.is_over) {
            None => Vec::new(),
            Some(lease) => {
                lease.is_over = true;
                vec![Write::Lease(host), Write::RemoveHeartbeat(host)]
            }
        }
    }

    /// The fence of all generations below one, except those that can still renew their leases.
    fn fence(&self, below: Generation) -> Fence {
        let renewable = self.leases.range(..below).filter(|(_, lease)| !lease.is_over);
        Fence { below, except: renewable.map(|(host, _)| *host).collect() }
    }
}
