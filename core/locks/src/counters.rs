//! The counters of a lock server.

braid_base::counters! {
    /// Counts of events since the start.
    pub struct LockServerCounters;
    messages_received,
    messages_sent,
    /// Lock requests; repetitions are not counted.
    locks,
    /// Locks released by `Unlock`.
    unlocks,
    /// Lock requests that had to wait.
    waits,
    /// Revocations of locks, repetitions included.
    revocations,
    /// Recalls of parts of locks, repetitions included; of node groups, one for each host that is told.
    recalls,
    /// Locks of which a host kept a part only.
    shrunk,
    /// Locks released by `Yield`.
    yields,
    /// Cached locks that hosts dropped by themselves.
    dropped,
    /// Lock requests refused because they were not granted in time.
    timeouts,
    /// Lock requests refused for lack of room, or because they were malformed.
    refused,
    /// Locks that hosts reasserted after a restart of the server.
    reasserted,
    /// Hosts fenced.
    fenced,
    /// Hosts to be fenced because they kept locks that others waited for, though they were heard.
    evicted,
    /// Messages without effect: late, or not for this server.
    ignored,
    /// Writes of the list of hosts.
    list_writes,
}
