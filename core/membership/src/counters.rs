//! What a monitor has done since it started.

braid_base::counters! {
    /// Counts of events since the start.
    pub struct MonitorCounters;
    /// Messages that came.
    messages_received,
    /// Messages sent.
    messages_sent,
    /// Messages without effect: late, or not for the monitor.
    ignored,
    /// Leases given to devices.
    leases,
    /// Leases refused to devices whose disks are older than the record.
    outdated,
    /// Epochs begun.
    epochs,
    /// Devices taken out.
    taken_out,
    /// Slots that another disk was to fill from then on.
    handed_over,
    /// Devices that came back.
    readmitted,
    /// Devices that had caught up with what they missed.
    caught_up,
    /// Requests to keep hosts out that were answered.
    fences,
    /// Such requests that were dropped for want of room.
    fences_refused,
}
