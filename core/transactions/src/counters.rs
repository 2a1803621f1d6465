//! What a coordinator has done since it started.

braid_base::counters! {
    /// Counts of events since the start.
    pub struct TransactionCounters;
    /// Storage operations that were asked for; each takes one transaction or, after refusals, more.
    operations,
    /// Requests sent again for want of an answer.
    resent,
    /// Attempts that were refused and tried again.
    retries,
    /// Operations that had to wait for somebody, or were refused and tried again (shared array, figure 6).
    delayed,
    /// Attempts given up because locks could not be had in time, perhaps in a deadlock.
    restarts,
    /// Storage transactions that committed.
    committed,
    /// Storage transactions that were aborted.
    aborted,
    /// Transactions of dead hosts, and own ones of an earlier epoch, that were resolved.
    resolved,
    /// Attempts that met a block which its device has lost, and did without it.
    damaged,
    /// Bands written whole, without reading (see `braid_layout::Method`).
    full_bands,
    /// Bands written by reading the units not updated.
    large_bands,
    /// Bands written by reading old data and old parity.
    small_bands,
}
