//! The counters of a host. Each of its parts counts what it does, and the host adds them up.

use braid_layout::Methods;

braid_base::counters! {
    /// Counts of events since the start.
    pub struct HostCounters;
    /// Storage operations that front ends asked for. Each takes one transaction or, after refusals, more.
    operations,
    /// Requests sent to devices, heartbeats included.
    requests_sent,
    /// Answers received from devices.
    answers,
    /// Requests sent again because no answer came.
    resent,
    /// Heartbeats sent only because commits had no request to ride on.
    commit_carriers,
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
    /// Messages sent to lock servers, heartbeats included.
    lock_requests,
    /// Messages received from lock servers.
    lock_answers,
    /// Lock requests to lock servers that had to wait for another host.
    lock_waits,
    /// Attempts whose locks were all cached at this host (callback locking).
    lock_hits,
    /// Cached locks that a lock server called back.
    revocations,
    /// Storage transactions that committed.
    committed,
    /// Storage transactions that were aborted.
    aborted,
    /// Writes that devices were asked to execute together (`docs/parallel-raid.md`).
    executed,
    /// Transactions of dead hosts, and this host's own of an earlier epoch, that were resolved.
    resolved,
    /// Rows of stripes whose interrupted write was found complete by the linkage records.
    rows_checked,
    /// Rows of stripes whose redundancy was recomputed.
    rows_recomputed,
    /// Changes of the membership.
    epochs,
    /// Attempts that met a block which its device has lost, and succeeded without it.
    damaged,
    /// Blocks that devices had lost, as found by scrubs and by the repair of blocks that users met.
    corruption_found,
    /// Those that were reconstructed from the rest of their rows and written again.
    corruption_repaired,
    /// Bands written in full, without reading (see `braid_layout::Method`).
    full_bands,
    /// Bands written by reading the units that are not updated.
    large_bands,
    /// Bands written by reading old data and old parity.
    small_bands,
}

impl HostCounters {
    /// A write's plan is carried out.
    pub(crate) fn count_bands(&mut self, methods: Methods) {
        self.full_bands += methods.full;
        self.large_bands += methods.large;
        self.small_bands += methods.small;
    }
}
