//! The hosts and lock servers that are alive, and the devices that hosts cannot reach. This is in memory only, since each host repeats it
//! in its reports, twice a second.

use braid_base::limits::{self, Settings};
use braid_base::{DeviceId, FenceTable, Generation, Level, LockServerId, NodeId, Time};
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
    /// When each was last heard, and the highest level that its program knows.
    lock_servers: BTreeMap<LockServerId, (Time, Level)>,
}

#[derive(Clone, Debug)]
struct Host {
    /// When it was first heard, of an uninterrupted series of reports.
    since: Time,
    heard: Time,
    /// Devices that do not answer it.
    silent: BTreeSet<DeviceId>,
    /// The highest level that its program knows.
    knows: Level,
}

impl Host {
    /// True if it was heard recently.
    fn is_recently_heard(&self, now: Time, settings: &Settings) -> bool {
        now.since(self.heard) <= settings.heartbeat * 4
    }

    /// True if it has been heard for so long that it would have reported a device that does not answer it. A host that has just started, such
    /// as a command that asks for the state of the array, reports none.
    fn is_past_grace_period(&self, settings: &Settings) -> bool {
        self.heard.since(self.since) >= settings.heartbeat * 4
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
            let before = self.known.get(&host);
            let (since, knows) = before.map_or((now, Level::FIRST), |known| (known.since, known.knows));
            self.known.insert(host, Host { since, heard: now, silent, knows });
        }
    }

    /// A host has said which level its program knows.
    pub fn note_level(&mut self, host: Generation, knows: Level) {
        self.known.get_mut(&host).into_iter().for_each(|known| known.knows = knows);
    }

    /// Forgets the hosts that have not reported for the length of a lease.
    pub fn forget_silent(&mut self, now: Time, settings: &Settings) {
        self.known.retain(|_, host| now.since(host.heard) <= settings.host_lease);
    }

    /// A lock server has reported. False if its number is out of range.
    pub fn hear_lock_server(&mut self, now: Time, server: LockServerId, knows: Level) -> bool {
        let is_possible = usize::from(server.0) < limits::LOCK_SERVERS_MAX;
        if is_possible {
            self.lock_servers.insert(server, (now, knows));
        }
        is_possible
    }

    /// The nodes that are told of changes.
    pub fn all(&self, now: Time) -> impl Iterator<Item = NodeId> + '_ {
        let lately = move |heard: Time| now.since(heard) <= LOCK_SERVER_SILENT_MAX;
        let servers = self.lock_servers.iter().filter(move |(_, (heard, _))| lately(*heard));
        let servers = servers.map(|(server, _)| NodeId::LockServer(*server));
        self.known.keys().map(|host| NodeId::Host(*host)).chain(servers)
    }

    /// The live hosts whose programs do not know `level`, and how many of the lock servers do not that were heard lately.
    pub fn older_than(&self, level: Level, now: Time) -> (Vec<Generation>, u16) {
        let hosts = self.known.iter().filter(|(_, host)| host.knows < level).map(|(host, _)| *host);
        let lately = |heard: Time| now.since(heard) <= LOCK_SERVER_SILENT_MAX;
        let lock_servers = self.lock_servers.values().filter(|(heard, knows)| *knows < level && lately(*heard)).count();
        (hosts.take(limits::FENCED_MAX).collect(), lock_servers as u16)
    }

    /// Chooses the recovery coordinator of a returning device: the `present` one, while it is alive and reaches all these `devices`; else the
    /// oldest host that reaches them, and has been there for long enough to know. If there is none, the present one, if it is alive, or
    /// else the oldest live host. So a host that comes and goes does not end what another one has begun.
    pub fn recovery_coordinator(
        &self,
        now: Time,
        present: Option<Generation>,
        devices: &BTreeSet<DeviceId>,
        fence: &FenceTable,
        settings: &Settings,
    ) -> Option<Generation> {
        let there =
            |(host, known): &(&Generation, &Host)| known.is_recently_heard(now, settings) && !fence.refuses(**host);
        let present = present.and_then(|host| self.known.get_key_value(&host)).filter(there);
        let past_grace = || self.known.iter().filter(there).filter(|(_, known)| known.is_past_grace_period(settings));
        let reaches_all = |(_, known): &(&Generation, &Host)| known.silent.is_disjoint(devices);
        let chosen = present.filter(reaches_all).or_else(|| past_grace().find(reaches_all)).or(present);
        chosen.or_else(|| past_grace().next()).or_else(|| self.known.iter().find(there)).map(|(host, _)| *host)
    }

    /// The devices that at least half of the hosts cannot reach. Fenced hosts, and hosts that were not heard recently, do not count.
    pub fn suspects(&self, now: Time, fence: &FenceTable, settings: &Settings) -> BTreeSet<DeviceId> {
        let live = || {
            self.known.iter().filter(|(host, known)| known.is_recently_heard(now, settings) && !fence.refuses(**host))
        };
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
    fn the_oldest_host_that_reaches_the_devices_is_the_recovery_coordinator() {
        let (settings, none) = (Settings::default(), FenceTable::default());
        let long = settings.heartbeat * 4;
        let (start, now) = (Time(0), Time(0).after(long));
        let coordinator = |hosts: &Hosts, present: Option<u32>, fence: &FenceTable| {
            let devices = BTreeSet::from([DeviceId(1), DeviceId(2)]);
            hosts.recovery_coordinator(now, present.map(Generation), &devices, fence, &settings).map(|host| host.0)
        };
        // Hosts, each with the time when it was first heard, and the devices that it reports; the present one; the one to be chosen.
        type Known<'a> = &'a [(u32, Time, &'a [u16])];
        let soon = Time(now.0 - 1);
        let table: [(Known, Option<u32>, Option<u32>); 10] = [
            (&[(1, start, &[]), (2, start, &[])], None, Some(1)),
            (&[(1, start, &[]), (2, start, &[])], Some(2), Some(2)),
            (&[(1, start, &[]), (2, start, &[])], Some(9), Some(1)),
            // A host that does not reach a device is chosen only if every host has such a device; another device does not count.
            (&[(1, start, &[2]), (2, start, &[7])], Some(1), Some(2)),
            (&[(1, start, &[2]), (2, start, &[1])], Some(2), Some(2)),
            (&[(1, start, &[2]), (2, start, &[1])], None, Some(1)),
            // One that has just come has not noticed which devices are silent.
            (&[(1, start, &[2]), (2, soon, &[])], Some(1), Some(1)),
            (&[(1, start, &[2]), (2, soon, &[])], None, Some(1)),
            (&[(2, soon, &[])], Some(1), Some(2)),
            (&[(1, soon, &[2]), (2, soon, &[])], Some(1), Some(1)),
        ];
        for (known, present, expected) in table {
            let mut hosts = Hosts::default();
            for (host, since, silent) in known {
                hosts.hear(*since, Generation(*host), BTreeSet::new());
                hosts.hear(now, Generation(*host), silent.iter().copied().map(DeviceId).collect());
            }
            assert_eq!(coordinator(&hosts, present, &none), expected, "{known:?}, {present:?}");
        }
        let mut hosts = Hosts::default();
        for (host, heard) in [(1, start), (2, start), (3, start), (2, now), (3, now)] {
            hosts.hear(heard, Generation(host), BTreeSet::new());
        }
        let later = Time(now.0 + 1);
        let chosen = hosts.recovery_coordinator(later, Some(Generation(1)), &BTreeSet::new(), &none, &settings);
        assert_eq!(chosen, Some(Generation(2)), "the first is silent");
        let fence = FenceTable { below: Generation(3), ..none };
        assert_eq!(coordinator(&hosts, Some(2), &fence), Some(3));
        let mut hosts = Hosts::default();
        hosts.hear(start, Generation(1), BTreeSet::from([DeviceId(2)]));
        hosts.hear(start.after(long / 2), Generation(2), BTreeSet::new());
        hosts.hear(later, Generation(1), BTreeSet::from([DeviceId(2)]));
        assert_eq!(coordinator(&hosts, Some(1), &FenceTable::default()), Some(1), "the other one has come and gone");
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
