//! Which hosts are there, and which devices they can't reach. In memory only: a host says it again twice a second.

use braid_base::limits::{self, Settings};
use braid_base::{DeviceId, FenceTable, Generation, Time};
use std::collections::{BTreeMap, BTreeSet};

/// The hosts that have renewed within their lease.
#[derive(Debug, Default)]
pub(crate) struct Hosts(BTreeMap<Generation, Host>);

#[derive(Debug)]
struct Host {
    heard: Time,
    /// Devices that don't answer it.
    silent: BTreeSet<DeviceId>,
}

impl Hosts {
    /// One has renewed. One too many is answered like all others, but not remembered: it is not told of changes unasked, is nobody's
    /// helper, and can accuse nobody.
    pub fn hear(&mut self, now: Time, host: Generation, silent: BTreeSet<DeviceId>) {
        if self.0.len() < limits::HOSTS_MAX || self.0.contains_key(&host) {
            self.0.insert(host, Host { heard: now, silent });
        }
    }

    /// Forgets those that have not renewed for a lease.
    pub fn forget_silent(&mut self, now: Time, settings: &Settings) {
        self.0.retain(|_, host| now.since(host.heard) <= settings.host_lease);
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = Generation> + '_ {
        self.0.keys().copied()
    }

    /// True if a returning device may rely on this one.
    pub fn can_help(&self, now: Time, host: Generation, fence: &FenceTable, settings: &Settings) -> bool {
        let lately = |host: &Host| now.since(host.heard) <= settings.heartbeat * 4;
        self.0.get(&host).is_some_and(lately) && !fence.refuses(host)
    }

    /// The one with the lowest generation that can help.
    pub fn helper(&self, now: Time, fence: &FenceTable, settings: &Settings) -> Option<Generation> {
        self.all().find(|host| self.can_help(now, *host, fence, settings))
    }

    /// The devices that at least half of the hosts can't reach. Hosts that are kept out have no say.
    pub fn suspects(&self, fence: &FenceTable) -> BTreeSet<DeviceId> {
        let live = || self.0.iter().filter(|(host, _)| !fence.refuses(**host)).map(|(_, host)| host);
        let mut accusers: BTreeMap<DeviceId, usize> = BTreeMap::new();
        live().flat_map(|host| &host.silent).for_each(|device| *accusers.entry(*device).or_default() += 1);
        let hosts = live().count();
        accusers.into_iter().filter(|(_, count)| 2 * count >= hosts).map(|(device, _)| device).collect()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
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
        assert_eq!(hosts.suspects(&fence), silent(&[1]));
        fence.also.insert(Generation(3));
        assert_eq!(hosts.suspects(&fence), silent(&[1, 2]));
        hosts.hear(Time(0), Generation(1), silent(&[]));
        hosts.hear(Time(0), Generation(2), silent(&[]));
        assert_eq!(hosts.suspects(&fence), silent(&[]));
        assert_eq!(Hosts::default().suspects(&fence), silent(&[]));
    }

    #[test]
    fn the_oldest_host_that_was_heard_lately_helps() {
        let (settings, fence) = (Settings::default(), FenceTable::default());
        let mut hosts = Hosts::default();
        let later = Time(0).after(settings.heartbeat * 4);
        hosts.hear(Time(0), Generation(1), BTreeSet::new());
        hosts.hear(later, Generation(3), BTreeSet::new());
        hosts.hear(later, Generation(2), BTreeSet::new());
        assert_eq!(hosts.helper(later, &fence, &settings), Some(Generation(1)));
        assert_eq!(hosts.helper(Time(later.0 + 1), &fence, &settings), Some(Generation(2)));
        let kept_out = FenceTable { below: Generation(3), ..fence };
        assert_eq!(hosts.helper(later, &kept_out, &settings), Some(Generation(3)));
    }

    #[test]
    fn the_table_of_hosts_has_its_bound() {
        let mut hosts = Hosts::default();
        (0..2_000).for_each(|host| hosts.hear(Time(0), Generation(host), BTreeSet::new()));
        hosts.hear(Time(5), Generation(0), BTreeSet::new());
        assert_eq!(hosts.len(), limits::HOSTS_MAX);
        hosts.forget_silent(Time(5).after(Settings::default().host_lease), &Settings::default());
        assert_eq!(hosts.all().collect::<Vec<_>>(), [Generation(0)]);
    }
}
