//! The hosts and lock servers that are alive, and the devices that hosts cannot reach. This is in memory only, since each host repeats it
//! in its reports, twice a second.

use braid_base::limits::{self, Settings};
use braid_base::{DeviceId, FenceTable, Generation, LockServerId, NodeId, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A lock server that has not been heard for this long is not told of changes.
const LOCK_SERVER_SILENT_MAX: Duration = Duration::from_secs(10);

/// The hosts that reported within their lease, and the lock servers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hosts {
    known: BTreeMap<Generation, Host>,
    /// The last generation that the control plane has given out. No host has a later one, whatever a message says.
    last_given: Generation,
    /// When each was last heard.
    lock_servers: BTreeMap<LockServerId, Time>,
}

#[derive(Clone, Debug)]
struct Host {
    heard: Time,
    /// Devices that do not answer it.
    silent: BTreeSet<DeviceId>,
}

impl Host {
    /// True if it was heard recently.
    fn is_there(&self, now: Time, settings: &Settings) -> bool {
        now.since(self.heard) <= settings.heartbeat * 4
    }
}

impl Hosts {
    /// The control plane has given out the generations up to `last`.
    pub fn note_given(&mut self, last: Generation) {
        self.last_given = self.last_given.max(last);
    }

    /// True if the generation was given out.
    pub fn may_exist(&self, host: Generation) -> bool {
        host <= self.last_given
    }

    /// True if every host that the fence names, one by one or by a number, was given out. A fence of later generations would refuse hosts
    /// that do not exist yet.
    pub fn may_fence(&self, FenceTable { below, except: _, also }: &FenceTable) -> bool {
        let last_below = below.0.checked_sub(1).map(Generation);
        last_below.is_none_or(|host| self.may_exist(host)) && also.iter().all(|host| self.may_exist(*host))
    }

    /// A host has reported. If the table is full, a new host is answered as usual, but not remembered: it is not told of changes unasked,
    /// cannot become a recovery coordinator, and its list of silent devices does not count.
    pub fn hear(&mut self, now: Time, host: Generation, silent: BTreeSet<DeviceId>) {
        if self.known.len() < limits::HOSTS_MAX || self.known.contains_key(&host) {
            self.known.insert(host, Host { heard: now, silent });
        }
    }

    /// Forgets the hosts that have not reported for the length of a lease.
    pub fn forget_silent(&mut self, now: Time, settings: &Settings) {
        self.known.retain(|_, host| now.since(host.heard) <= settings.host_lease);
    }

    /// A lock server has reported. False if its number is out of range.
    pub fn hear_lock_server(&mut self, now: Time, server: LockServerId) -> bool {
        let is_possible = usize::from(server.0) < limits::LOCK_SERVERS_MAX;
        if is_possible {
            self.lock_servers.insert(server, now);
        }
        is_possible
    }

    /// The nodes that are told of changes.
    pub fn all(&self, now: Time) -> impl Iterator<Item = NodeId> + '_ {
        let lately = move |heard: Time| now.since(heard) <= LOCK_SERVER_SILENT_MAX;
        let servers = self.lock_servers.iter().filter(move |(_, heard)| lately(**heard));
        let servers = servers.map(|(server, _)| NodeId::LockServer(*server));
        self.known.keys().map(|host| NodeId::Host(*host)).chain(servers)
    }

    /// Chooses the recovery coordinator of a returning device: the `present` one, while it is alive and reaches all live devices; else the
    /// oldest host of which that holds. If there is none, the present one, or else the oldest live host.
    pub fn recovery_coordinator(
        &self,
        now: Time,
        present: Option<Generation>,
        devices: &BTreeSet<DeviceId>,
        fence: &FenceTable,
        settings: &Settings,
    ) -> Option<Generation> {
        let there = |(host, known): &(&Generation, &Host)| known.is_there(now, settings) && !fence.refuses(**host);
        let hosts =
            || present.and_then(|host| self.known.get_key_value(&host)).into_iter().chain(&self.known).filter(there);
        let unhindered = hosts().find(|(_, known)| known.silent.is_disjoint(devices));
        unhindered.or_else(|| hosts().next()).map(|(host, _)| *host)
    }

    /// The devices that at least half of the hosts cannot reach. Fenced hosts, and hosts that were not heard recently, do not count.
    pub fn suspects(&self, now: Time, fence: &FenceTable, settings: &Settings) -> BTreeSet<DeviceId> {
        let live = || self.known.iter().filter(|(host, known)| known.is_there(now, settings) && !fence.refuses(**host));
        let live = || live().map(|(_, host)| host);
        let mut accusers: BTreeMap<DeviceId, usize> = BTreeMap::new();
        live().flat_map(|host| &host.silent).for_each(|device| *accusers.entry(*device).or_default() += 1);
        let hosts = live().count();
        accusers.into_iter().filter(|(_, count)| 2 * count >= hosts).map(|(device, _)| device).collect()
    }

    pub fn len(&self) -> usize {
        self.known.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_hosts_that_count_make_a_device_suspect() {
        let mut hosts = Hosts::default();
        let silent = |devices: &[u16]| devices.iter().copied().map(DeviceId).collect();
        hosts.hear(Time(0), Generation(1), silent(&[1, 2]));
        hosts.hear(Time(0), Generation(2), silent(&[1]));
        hosts.hear(Time(0), Generation(3), silent(&[3]));
        let mut fence = FenceTable::default();
        let suspects = |hosts: &Hosts, fence: &FenceTable| hosts.suspects(Time(0), fence, &Settings::default());
        assert_eq!(suspects(&hosts, &fence), silent(&[1]));
        fence.also.insert(Generation(3));
        assert_eq!(suspects(&hosts, &fence), silent(&[1, 2]));
        hosts.hear(Time(0), Generation(1), silent(&[]));
        hosts.hear(Time(0), Generation(2), silent(&[]));
        assert_eq!(suspects(&hosts, &fence), silent(&[]));
        let later = Time(0).after(Settings::default().heartbeat * 4 + std::time::Duration::from_nanos(1));
        hosts.hear(Time(0), Generation(1), silent(&[1]));
        hosts.hear(Time(0), Generation(2), silent(&[1]));
        assert_eq!(suspects(&hosts, &fence), silent(&[1]));
        assert_eq!(hosts.suspects(later, &fence, &Settings::default()), silent(&[]));
        assert_eq!(suspects(&Hosts::default(), &fence), silent(&[]));
    }

    #[test]
    fn the_oldest_host_heard_lately_is_the_recovery_coordinator() {
        let (settings, fence) = (Settings::default(), FenceTable::default());
        let mut hosts = Hosts::default();
        let later = Time(0).after(settings.heartbeat * 4);
        hosts.hear(Time(0), Generation(1), BTreeSet::new());
        hosts.hear(later, Generation(3), BTreeSet::new());
        hosts.hear(later, Generation(2), BTreeSet::new());
        let recovery_coordinator = |hosts: &Hosts, now, present: Option<u32>, fence: &FenceTable| {
            let devices = BTreeSet::from([DeviceId(1), DeviceId(2)]);
            hosts.recovery_coordinator(now, present.map(Generation), &devices, fence, &settings).map(|host| host.0)
        };
        assert_eq!(recovery_coordinator(&hosts, later, None, &fence), Some(1));
        assert_eq!(
            (
                recovery_coordinator(&hosts, later, Some(3), &fence),
                recovery_coordinator(&hosts, later, Some(9), &fence)
            ),
            (Some(3), Some(1))
        );
        assert_eq!(recovery_coordinator(&hosts, Time(later.0 + 1), Some(1), &fence), Some(2));
        let kept_out = FenceTable { below: Generation(3), ..fence.clone() };
        assert_eq!(recovery_coordinator(&hosts, later, Some(2), &kept_out), Some(3));
        // A host that does not reach a member is chosen only if every host has such a device; a device that is out does not count.
        hosts.hear(later, Generation(1), BTreeSet::from([DeviceId(2)]));
        hosts.hear(later, Generation(2), BTreeSet::from([DeviceId(7)]));
        assert_eq!(
            (
                recovery_coordinator(&hosts, later, Some(1), &fence),
                recovery_coordinator(&hosts, later, Some(2), &fence)
            ),
            (Some(2), Some(2))
        );
        hosts.hear(later, Generation(2), BTreeSet::from([DeviceId(1)]));
        hosts.hear(later, Generation(3), BTreeSet::from([DeviceId(1)]));
        assert_eq!(
            (recovery_coordinator(&hosts, later, Some(2), &fence), recovery_coordinator(&hosts, later, None, &fence)),
            (Some(2), Some(1))
        );
    }

    #[test]
    fn the_table_of_hosts_has_its_bound() {
        let mut hosts = Hosts::default();
        (0..2_000).for_each(|host| hosts.hear(Time(0), Generation(host), BTreeSet::new()));
        hosts.hear(Time(5), Generation(0), BTreeSet::new());
        assert_eq!(hosts.len(), limits::HOSTS_MAX);
        hosts.forget_silent(Time(5).after(Settings::default().host_lease), &Settings::default());
        assert_eq!(hosts.all(Time(5)).collect::<Vec<_>>(), [NodeId::Host(Generation(0))]);
    }
}
