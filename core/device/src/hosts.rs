//! The hosts that a device has lately heard of.

use braid_base::{Generation, Stamp, Time};
use std::collections::BTreeMap;
use std::time::Duration;

/// One host, by its generation.
#[derive(Clone, Debug)]
pub struct Session {
    /// When its last message came; before that, when the device started.
    pub last_heard: Time,
    /// It has not spoken since the device started, which holds something of it from before.
    pub is_recovered: bool,
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

impl Session {
    fn new(now: Time, is_recovered: bool) -> Session {
        Session {
            last_heard: now,
            is_recovered,
            last_served: None,
            settled: 0,
            locked: Stamp::ZERO,
            confirmed: Vec::new(),
        }
    }
}

/// The hosts with a lease at this device: those that spoke within its length, and those of which something was recovered and that have as
/// long to speak.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    live: BTreeMap<Generation, Session>,
    /// How many of them have not spoken.
    recovered: usize,
}

impl Hosts {
    /// Renews `host`'s lease, and tells its session; none if it is new here and `most` have spoken.
    pub fn heard(&mut self, host: Generation, now: Time, most: usize) -> Option<&mut Session> {
        let known = self.live.get(&host).is_some_and(|session| !session.is_recovered);
        if !known && self.is_full(most) {
            return None;
        }
        let session = self.live.entry(host).or_insert_with(|| Session::new(now, false));
        self.recovered -= usize::from(std::mem::take(&mut session.is_recovered));
        session.last_heard = now;
        Some(session)
    }

    /// Something of `host` was recovered: it has a lease's time to speak. Those hosts are not counted among the most that may speak, since
    /// some of them may have ended long ago; they are no more than what was recovered.
    pub fn recover(&mut self, host: Generation, now: Time) {
        if !self.live.contains_key(&host) {
            self.recovered += 1;
            self.live.insert(host, Session::new(now, true));
        }
    }

    /// True if `most` have spoken.
    pub fn is_full(&self, most: usize) -> bool {
        self.live.len() - self.recovered >= most
    }

    /// Hosts that have spoken, but not for longer than `silence`; those that were silent the longest first.
    pub fn idle(&self, now: Time, silence: Duration) -> Vec<Generation> {
        let idle = |session: &Session| !session.is_recovered && now.since(session.last_heard) > silence;
        let mut idle: Vec<_> = self.live.iter().filter(|(_, session)| idle(session)).collect();
        idle.sort_by_key(|(_, session)| session.last_heard);
        idle.into_iter().map(|(host, _)| *host).collect()
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
        let session = self.live.remove(&host)?;
        self.recovered -= usize::from(session.is_recovered);
        Some(session)
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
