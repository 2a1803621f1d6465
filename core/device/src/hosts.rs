//! The hosts that a device has lately heard of.

use braid_base::{Generation, Stamp, Time, limits};
use std::collections::BTreeMap;
use std::time::Duration;

/// One host, by its generation.
#[derive(Clone, Debug)]
pub struct Session {
    /// When its last message came.
    pub last_heard: Time,
    /// When it last asked to read or write.
    pub last_served: Option<Time>,
    /// Its transactions below this sequence are over.
    pub settled: u64,
    /// The highest stamp with which it asked for device locks: under the floor once its lease has run out, since nothing else
    /// would be left to refuse late copies by.
    pub locked: Stamp,
    /// Commits that are durable here and not yet confirmed to it, by sequence.
    pub confirmed: Vec<u64>,
}

/// The hosts with a lease at this device: those that spoke within its length.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    live: BTreeMap<Generation, Session>,
}

impl Hosts {
    /// Renews `host`'s lease, and tells its session; none if there are too many hosts.
    pub fn heard(&mut self, host: Generation, now: Time) -> Option<&mut Session> {
        if !self.live.contains_key(&host) && self.live.len() >= limits::HOSTS_MAX {
            return None;
        }
        let session = self.live.entry(host).or_insert(Session {
            last_heard: now,
            last_served: None,
            settled: 0,
            locked: Stamp::ZERO,
            confirmed: Vec::new(),
        });
        session.last_heard = now;
        Some(session)
    }

    /// The session of a host whose lease runs.
    pub fn get_mut(&mut self, host: Generation) -> Option<&mut Session> {
        self.live.get_mut(&host)
    }

    /// The session of a host whose lease runs.
    pub fn get(&self, host: Generation) -> Option<&Session> {
        self.live.get(&host)
    }

    /// Ends a lease.
    pub fn remove(&mut self, host: Generation) -> Option<Session> {
        self.live.remove(&host)
    }

    /// The hosts that have been silent for longer than `lease`.
    pub fn silent(&self, now: Time, lease: Duration) -> Vec<Generation> {
        let silent = |session: &Session| now.since(session.last_heard) > lease;
        self.live.iter().filter(|(_, session)| silent(session)).map(|(host, _)| *host).collect()
    }

    /// Every host whose lease runs.
    pub fn iter(&self) -> impl Iterator<Item = (&Generation, &Session)> {
        self.live.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.live.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }
}
