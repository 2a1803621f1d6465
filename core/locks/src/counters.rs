//! What a lock server has done since it started.

braid_base::counters! {
    /// Counts of events since the start.
    pub struct LockServerCounters;
    /// Messages that came.
    messages_received,
    /// Messages sent.
    messages_sent,
    /// Claims asked for; repeated requests not counted.
    locks,
    /// Claims given back by `Unlock`.
    unlocks,
    /// Claims that had to wait.
    waits,
    /// Claims asked back, repetitions included.
    revocations,
    /// Claims given back by `Yield`.
    yields,
    /// Claims that hosts dropped of themselves.
    dropped,
    /// Claims refused because they could not be had in time.
    timeouts,
    /// Claims refused for want of room, or because they made no sense.
    refused,
    /// Claims that hosts said again after a restart of the server.
    reasserted,
    /// Hosts fenced.
    fenced,
    /// Messages without effect: late, or not for this server.
    ignored,
    /// Times that the list of hosts was written.
    list_writes,
}
