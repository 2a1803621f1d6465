//! The monitor: decides which devices are in the array, which hosts are kept out, and gives devices leases (`docs/membership.md`).

mod counters;
pub mod monitor;

pub use counters::MonitorCounters;
pub use monitor::{DISK_BYTES, DeviceLease, Monitor, MonitorConfig, MonitorError, MonitorService};
