//! What a host has done since it started.

braid_base::counters! {
    /// Counts of events since the start.
    pub struct HostCounters;
    /// Storage operations that front ends asked for; each takes one transaction or, after refusals, more.
    operations,
    /// Requests sent to devices, heartbeats included.
    requests_sent,
    /// Answers that came.
    answers,
    /// Requests sent again for want of an answer.
    resent,
    /// Heartbeats sent only because commits had no request to ride on.
    commit_carriers,
    /// Attempts that were refused and tried again.
    retries,
    /// Operations that had to wait for somebody, or were refused and tried again (shared array, figure 6).
    delayed,
    /// Attempts given up because locks could not be had in time, perhaps in a deadlock.
    restarts,
    /// Messages sent to lock servers, heartbeats included.
    lock_requests,
    /// Messages that came from lock servers.
    lock_answers,
    /// Locks of lock servers that somebody else had.
    lock_waits,
    /// Attempts that found all their locks kept here (callback locking).
    lock_hits,
    /// Locks that a lock server called back.
    revocations,
    /// Storage transactions that committed.
    committed,
    /// Storage transactions that were aborted.
    aborted,
    /// Transactions of dead hosts, and own ones of an earlier epoch, that were resolved.
    resolved,
    /// Rows of stripes in which the linkage records showed that what was cut short is whole.
    rows_checked,
    /// Rows of stripes whose redundancy was computed anew.
    rows_recomputed,
    /// Changes of the array's membership.
    epochs,
    /// Attempts that met a block which its device has lost, and did without it.
    damaged,
    /// Blocks that devices had lost, as scrubs found, and repairing what users met.
    corruption_found,
    /// Those of them that were worked out from the rest of their rows and written again.
    corruption_repaired,
    /// Bands written whole, without reading (see `braid_layout::Method`).
    full_bands,
    /// Bands written by reading the units not updated.
    large_bands,
    /// Bands written by reading old data and old parity.
    small_bands,
}
