//! The sessions of hosts: their leases at this device, and the confirmations that the device owes them.

use braid_base::{BlockRange, Generation, ObjectId, Time, limits};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The session of one host. Hosts are identified by their generations.
#[derive(Clone, Debug, Default)]
struct Session {
    /// When its last message came; before that, when the device started.
    last_heard: Time,
    /// The device recovered transactions of the host, and the host has not spoken since the device started.
    is_recovered: bool,
    /// When it last read or wrote, other than to restore.
    last_served: Option<Time>,
    /// The ranges of objects near which it last began to restore, and when; the latest is last.
    restoring: VecDeque<(Time, ObjectId, BlockRange)>,
    /// Its transactions below this sequence are over.
    settled: u64,
    /// Commits that are durable here and not yet confirmed to the host, by sequence.
    confirmed: Vec<u64>,
}

/// The hosts with a lease at this device: hosts that spoke within the length of a lease, and hosts whose transactions
/// were recovered. The latter have the length of a lease, from the device's start, to speak.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sessions {
    live: BTreeMap<Generation, Session>,
    /// The settled marks of hosts whose leases have ended: late copies of their requests may still arrive.
    ended: BTreeMap<Generation, u64>,
    /// The number of sessions of hosts that have not spoken since the device started.
    recovered: usize,
    /// When the device next looks for silent hosts.
    next_patrol: Option<Time>,
}

/// How often the device looks for silent hosts within the length of a lease.
pub(crate) const PATROLS_PER_LEASE: u32 = 4;
/// The most ranges near which one host restores: it works on some returning devices at a time.
const RESTORING_MAX: usize = 8;
/// How long a host restores a range, at most.
const RESTORES_FOR: Duration = Duration::from_secs(10);
/// The most settled marks of hosts whose leases have ended. Those of the oldest hosts are forgotten first: most of these are fenced.
const ENDED_MAX: usize = 1024;
/// The most hosts that one check of the invariants looks at.
const CHECKED_MAX: usize = 16;

impl Sessions {
    /// Renews `host`'s lease. False if the host is new and `most` hosts have spoken already.
    pub fn hear(&mut self, host: Generation, now: Time, most: usize) -> bool {
        if !self.is_known(host) && self.is_full(most) {
            return false;
        }
        let session = self.live.entry(host).or_insert_with(|| Session { last_heard: now, ..Session::default() });
        self.recovered -= usize::from(std::mem::take(&mut session.is_recovered));
        session.last_heard = now;
        true
    }

    /// Gives a host with recovered transactions the length of a lease to speak. Such hosts do not count towards the
    /// limit of hosts, since some may have ended long ago. Their number is bounded by that of recovered transactions.
    pub fn recover(&mut self, host: Generation, now: Time) {
        if !self.live.contains_key(&host) {
            self.recovered += 1;
            self.live.insert(host, Session { last_heard: now, is_recovered: true, ..Session::default() });
        }
    }

    /// True if `most` hosts have spoken.
    pub fn is_full(&self, most: usize) -> bool {
        self.live.len() - self.recovered >= most
    }

    /// Hosts that have spoken, and then were silent for longer than `silence`; the longest silence comes first.
    pub fn idle(&self, now: Time, silence: Duration) -> Vec<Generation> {
        let idle = |session: &Session| !session.is_recovered && now.since(session.last_heard) > silence;
        let mut idle: Vec<_> = self.live.iter().filter(|(_, session)| idle(session)).collect();
        idle.sort_by_key(|(_, session)| session.last_heard);
        idle.into_iter().map(|(host, _)| *host).collect()
    }

    /// True if the host has spoken and its lease runs.
    pub fn is_known(&self, host: Generation) -> bool {
        self.live.get(&host).is_some_and(|session| !session.is_recovered)
    }

    /// True if the host's lease runs.
    pub fn has(&self, host: Generation) -> bool {
        self.live.contains_key(&host)
    }

    /// The settled mark of a host: its transactions below it are over. `None` if its lease has expired.
    pub fn settled(&self, host: Generation) -> Option<u64> {
        self.live.get(&host).map(|session| session.settled)
    }

    /// True if a transaction of the host is over.
    pub fn is_settled(&self, host: Generation, sequence: u64) -> bool {
        self.settled(host).is_some_and(|settled| sequence < settled)
    }

    /// True if the host has declared a request over, also before its last lease ended.
    pub fn is_over(&self, host: Generation, sequence: u64) -> bool {
        self.is_settled(host, sequence) || self.ended.get(&host).is_some_and(|mark| sequence < *mark)
    }

    /// Notes that the host has declared its transactions below `sequence` over. False if that was known.
    pub fn settle(&mut self, host: Generation, sequence: u64) -> bool {
        let session = self.live.get_mut(&host).expect("it was just heard");
        let is_news = sequence > session.settled;
        session.settled = session.settled.max(sequence);
        is_news
    }

    /// Notes that the host has read or written, other than to restore.
    pub fn serve(&mut self, host: Generation, now: Time) {
        if let Some(session) = self.live.get_mut(&host) {
            session.last_served = Some(now);
        }
    }

    /// Notes that the host is about to restore blocks in the rows of this range.
    pub fn restore(&mut self, host: Generation, now: Time, object: ObjectId, range: BlockRange) {
        if let Some(session) = self.live.get_mut(&host) {
            if session.restoring.len() >= RESTORING_MAX {
                session.restoring.pop_front();
            }
            session.restoring.push_back((now, object, range));
        }
    }

    /// True if the host restores blocks in the rows of all these extents.
    pub fn restores(&self, host: Generation, now: Time, object: ObjectId, extents: &[BlockRange]) -> bool {
        let Some(session) = self.live.get(&host).filter(|session| !session.restoring.is_empty()) else { return false };
        let lately = session.restoring.iter().filter(|(at, of, _)| *of == object && now.since(*at) <= RESTORES_FOR);
        extents.iter().all(|extent| lately.clone().any(|(_, _, range)| range.overlaps(*extent)))
    }

    /// Hosts that have read or written within `span` before now, other than to restore.
    pub fn served_since(&self, now: Time, span: Duration) -> impl Iterator<Item = Generation> + '_ {
        let lately = move |at: Time| now.since(at) <= span;
        let served = self.live.iter().filter(move |(_, session)| session.last_served.is_some_and(lately));
        served.map(|(host, _)| *host)
    }

    /// Notes that the next answer to the host is to confirm a durable commit.
    pub fn confirm(&mut self, host: Generation, sequence: u64) {
        if let Some(session) = self.live.get_mut(&host)
            && session.confirmed.len() < limits::DEVICE_TRANSACTIONS_MAX
        {
            session.confirmed.push(sequence);
        }
    }

    /// Takes out the commits to confirm in an answer to the host.
    pub fn take_confirmed(&mut self, host: Generation) -> Vec<u64> {
        let Some(session) = self.live.get_mut(&host) else { return Vec::new() };
        let count = session.confirmed.len().min(limits::COMMITS_PER_REQUEST_MAX);
        session.confirmed.drain(..count).collect()
    }

    pub fn end(&mut self, host: Generation) {
        if let Some(session) = self.live.remove(&host) {
            self.recovered -= usize::from(session.is_recovered);
            let mark = self.ended.entry(host).or_default();
            *mark = session.settled.max(*mark);
            if self.ended.len() > ENDED_MAX {
                self.ended.pop_first();
            }
        }
    }

    /// Returns the hosts that have been silent for longer than `lease`. `None` if it is not time to look for them.
    pub fn patrol(&mut self, now: Time, lease: Duration) -> Option<Vec<Generation>> {
        if self.next_patrol.is_some_and(|patrol| now < patrol) {
            return None;
        }
        self.next_patrol = Some(now.after(lease / PATROLS_PER_LEASE));
        let silent = |session: &Session| now.since(session.last_heard) > lease;
        Some(self.live.iter().filter(|(_, session)| silent(session)).map(|(host, _)| *host).collect())
    }

    /// When silent hosts are looked for again. `None` if there are no hosts.
    pub fn deadline(&self) -> Option<Time> {
        self.next_patrol.filter(|_| !self.live.is_empty())
    }

    /// Every host whose lease runs.
    pub fn hosts(&self) -> impl Iterator<Item = Generation> + '_ {
        self.live.keys().copied()
    }

    pub fn len(&self) -> usize {
        self.live.len()
    }

    /// Asserts that a host that has not spoken was not served and has no settled mark, and that the count of these hosts
    /// is right.
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
