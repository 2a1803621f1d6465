//! The counters of a coordinator.

use braid_layout::Methods;

braid_base::counters! {
    /// Counts of events since the start.
    pub struct TransactionCounters;
    /// Storage operations that were started. Each takes one transaction or, after refusals, more.
    operations,
    /// Requests sent again because no answer came.
    resent,
    /// Attempts that were refused and tried again.
    retries,
    /// Operations that had to wait for another transaction, or were refused and tried again (shared-array paper, figure 6).
    delayed,
    /// How often a patient operation has waited for the host's time-out once more.
    prolonged,
    /// Writes of endless patience that were written again because all their devices had been out before their outcome was known.
    repeated,
    /// Attempts that ended because locks were not granted in time, perhaps because of a deadlock.
    restarts,
    /// Storage transactions that committed.
    committed,
    /// Storage transactions that were aborted.
    aborted,
    /// Attempts whose columns were sent to the devices.
    executed,
    /// Transactions of dead hosts, and this host's own of an earlier epoch, that were resolved.
    resolved,
    /// Attempts that met a block which its device has lost, and succeeded without it.
    damaged,
    /// Bands written in full, without reading (see `braid_layout::Method`).
    full_bands,
    /// Bands written by reading the units that are not updated.
    large_bands,
    /// Bands written by reading old data and old parity.
    small_bands,
}

impl TransactionCounters {
    /// A write's plan is carried out.
    pub(crate) fn count_bands(&mut self, methods: Methods) {
        self.full_bands += methods.full;
        self.large_bands += methods.large;
        self.small_bands += methods.small;
    }
}
