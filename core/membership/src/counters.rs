//! The counters of a monitor since its start.

braid_base::counters! {
    /// Counts of events since the start.
    pub struct MonitorCounters;
    messages_received,
    messages_sent,
    /// Messages without effect: late, or not addressed to the monitor.
    ignored,
    /// Leases granted to devices.
    leases,
    /// Leases refused to devices whose disks are older than the record says.
    outdated,
    /// Renewals of devices that named an epoch which the record does not know.
    ahead,
    /// Epochs begun.
    epochs,
    /// Devices marked out.
    taken_out,
    /// Slots to which another disk was assigned.
    handed_over,
    /// Devices that returned.
    readmitted,
    /// Devices that were completely resynchronised.
    resynchronised,
    /// Requests to fence hosts that were answered.
    fences,
    /// Such requests, and requests about the ownership of file systems, that were dropped because the record or the table was full.
    fences_refused,
    /// Requests to fence hosts that were dropped because they named generations that were never given out.
    fences_ahead,
    /// Requests about the ownership of file systems that were answered.
    ownership_answers,
    /// Such requests that were refused.
    ownership_refused,
}
