//! The hosts that a device has lately heard of: their leases, and what the device owes them.

use braid_base::{Generation, Time, limits};
use std::collections::BTreeMap;
use std::time::Duration;

/// One host, by its generation.
#[derive(Clone, Debug)]
struct Session {
    /// When its last message came; before that, when the device started.
    last_heard: Time,
    /// It has not spoken since the device started, which holds something of it from before.
    is_recovered: bool,
    /// When it last asked to read or write.
    last_served: Option<Time>,
    /// Its transactions below this sequence are over.
    settled: u64,
    /// Commits that are durable here and not yet confirmed to it, by sequence.
    confirmed: Vec<u64>,
}

impl Session {
    fn new(now: Time, is_recovered: bool) -> Session {
        Session { last_heard: now, is_recovered, last_served: None, settled: 0, confirmed: Vec::new() }
    }
}

/// The hosts with a lease at this device: those that spoke within its length, and those of which something was recovered and that have as
/// long to speak.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sessions {
    live: BTreeMap<Generation, Session>,
    /// How many of them have not spoken.
    recovered: usize,
    /// When silent hosts are looked for again.
    next_patrol: Option<Time>,
}

/// How often silent hosts are looked for, as a part of the lease.
const PATROLS_PER_LEASE: u32 = 4;
/// The most hosts that one look at the invariants checks.
const CHECKED_MAX: usize = 16;

impl Sessions {
    /// Renews `host`'s lease. False if it is new here and `most` have spoken.
    pub fn hear(&mut self, host: Generation, now: Time, most: usize) -> bool {
        if !self.is_known(host) && self.is_full(most) {
            return false;
        }
        let session = self.live.entry(host).or_insert_with(|| Session::new(now, false));
        self.recovered -= usize::from(std::mem::take(&mut session.is_recovered));
        session.last_heard = now;
        true
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

    /// True if the host has spoken, and its lease runs.
    pub fn is_known(&self, host: Generation) -> bool {
        self.live.get(&host).is_some_and(|session| !session.is_recovered)
    }

    /// True if the host's lease runs.
    pub fn has(&self, host: Generation) -> bool {
        self.live.contains_key(&host)
    }

    /// The mark of a host: its transactions below are over. None if its lease has run out.
    pub fn settled(&self, host: Generation) -> Option<u64> {
        self.live.get(&host).map(|session| session.settled)
    }

    /// True if a transaction of the host is over.
    pub fn is_settled(&self, host: Generation, sequence: u64) -> bool {
        self.settled(host).is_some_and(|settled| sequence < settled)
    }

    /// The host has declared its transactions below `sequence` over. False if it had before.
    pub fn settle(&mut self, host: Generation, sequence: u64) -> bool {
        let session = self.live.get_mut(&host).expect("it was just heard");
        let is_news = sequence > session.settled;
        session.settled = session.settled.max(sequence);
        is_news
    }

    /// The host has asked to read or write.
    pub fn serve(&mut self, host: Generation, now: Time) {
        if let Some(session) = self.live.get_mut(&host) {
            session.last_served = Some(now);
        }
    }

    /// Hosts that have asked to read or write since then.
    pub fn served_since(&self, now: Time, span: Duration) -> impl Iterator<Item = Generation> + '_ {
        let lately = move |at: Time| now.since(at) <= span;
        let served = self.live.iter().filter(move |(_, session)| session.last_served.is_some_and(lately));
        served.map(|(host, _)| *host)
    }

    /// The host is to hear, with the next answer to it, that a commit is durable.
    pub fn confirm(&mut self, host: Generation, sequence: u64) {
        if let Some(session) = self.live.get_mut(&host)
            && session.confirmed.len() < limits::DEVICE_TRANSACTIONS_MAX
        {
            session.confirmed.push(sequence);
        }
    }

    /// Takes out commits that an answer to the host confirms.
    pub fn take_confirmed(&mut self, host: Generation) -> Vec<u64> {
        let Some(session) = self.live.get_mut(&host) else { return Vec::new() };
        let count = session.confirmed.len().min(limits::COMMITS_PER_REQUEST_MAX);
        session.confirmed.drain(..count).collect()
    }

    /// Ends a lease.
    pub fn end(&mut self, host: Generation) {
        if let Some(session) = self.live.remove(&host) {
            self.recovered -= usize::from(session.is_recovered);
        }
    }

    /// If it is time to look for silent hosts: those that have been silent for longer than `lease`.
    pub fn patrol(&mut self, now: Time, lease: Duration) -> Vec<Generation> {
        if self.next_patrol.is_some_and(|patrol| now < patrol) {
            return Vec::new();
        }
        self.next_patrol = Some(now.after(lease / PATROLS_PER_LEASE));
        let silent = |session: &Session| now.since(session.last_heard) > lease;
        self.live.iter().filter(|(_, session)| silent(session)).map(|(host, _)| *host).collect()
    }

    /// When silent hosts are looked for again; never if there are no hosts.
    pub fn deadline(&self) -> Option<Time> {
        self.next_patrol.filter(|_| !self.live.is_empty())
    }

    /// Every host whose lease runs.
    pub fn hosts(&self) -> impl Iterator<Item = Generation> + '_ {
        self.live.keys().copied()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.live.len()
    }
    /// Asserts that a host which has not spoken has had nothing served and settled nothing, and that such hosts are counted.
    pub fn invariants(&self) {
        assert!(self.recovered <= self.live.len(), "hosts that have not spoken have leases");
        for (host, session) in self.live.iter().take(CHECKED_MAX).filter(|(_, session)| session.is_recovered) {
            assert!(session.last_served.is_none() && session.settled == 0, "it has not spoken: {host}");
        }
        if self.live.len() <= CHECKED_MAX {
            let recovered = self.live.values().filter(|session| session.is_recovered).count();
            assert_eq!(recovered, self.recovered, "hosts that have not spoken are counted");
        }
    }
}
