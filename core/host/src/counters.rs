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
    /// Storage transactions that committed.
    committed,
    /// Storage transactions that were aborted.
    aborted,
    /// Transactions of dead hosts that were resolved.
    resolved,
    /// Bands written whole, without reading (see `braid_layout::Method`).
    full_bands,
    /// Bands written by reading the units not updated.
    large_bands,
    /// Bands written by reading old data and old parity.
    small_bands,
}
