//! The monitor is the process that decides the membership of an array, fences hosts, and grants leases to devices (`docs/membership.md`).
//! The crate also contains its client, through which hosts, devices and lock servers talk to it.
//!
//! ```text
//!     Renew ──► device_leases, hosts ──┐
//!     Fence ──► fence_requests ────────┼──► next_epoch ──► monitor_record ──► Changed, to all nodes
//!     Resynchronised ──► new_reports ──┤                   (durable)
//!     Administer ──► slot_answers ─────┤
//!     Ownership ──► ownership_requests ┘
//! ```
//!
//! | module | what |
//! | --- | --- |
//! | [`monitor`] | the machine: accepts or ignores each message, and routes it |
//! | [`device_leases`] | the monitor's data on each device: its reports, and its lease |
//! | `flapping` | how long a device stays out that has gone out often |
//! | `hosts` | which hosts and lock servers are alive, and which devices the hosts cannot reach |
//! | `later_epochs` | what follows if a device names an epoch that the record does not know |
//! | [`leadership`] | what is different in a monitor that leads for a term |
//! | `watch` | how long to wait for messages after a start or a pause, and when to check leases next |
//! | `stripes` | which devices depend on each other |
//! | `dependence` | which devices can be marked out at present |
//! | `new_reports` | the reports since the last decision |
//! | `next_epoch` | computes the next epoch |
//! | `record_draft` | the next record, while it is being made |
//! | `operator_changes` | applies operators' requests to the next record |
//! | [`slot_record`](SlotShown) | the record of one slot and its disk |
//! | `slot_answers` | which disk fills each slot, and what devices and operators are told of it |
//! | `operator_requests` | operators' requests that are not answered yet |
//! | `answered_requests` | the table of the last of them that were answered |
//! | `fence_requests` | requests to fence hosts that are not answered yet, and when each is done |
//! | `owners` | the table of the owners of file systems |
//! | `ownership_requests` | hosts' requests about these owners that are not answered yet, and when each is done |
//! | `monitor_record` | the monitor's record: content and format |
//! | [`record_recovery`] | rebuilds a lost record from the devices' journals |
//! | `counters` | counts of what a monitor has done |
//! | [`client`] | the monitor's client: a node's membership, its lease, its requests |
//!
//! * A membership is durable before it is announced: no node is told of it before both copies of the record have it.
//! * A device is marked out only when its lease has expired here. The monitor counts a lease longer than the device does, so it has then
//!   expired at the device, too. From that decision on the device gets no lease, until an epoch in which it has returned is durable.
//! * A restart loses the memory, and with it who holds a lease: the monitor then assumes that every device holds one.

mod answered_requests;
pub mod client;
mod counters;
mod dependence;
pub mod device_leases;
mod fence_requests;
mod flapping;
mod hosts;
mod later_epochs;
pub mod leadership;
pub mod monitor;
mod monitor_record;
mod new_reports;
mod next_epoch;
mod operator_changes;
mod operator_requests;
mod owners;
mod ownership_requests;
mod record_draft;
pub mod record_recovery;
mod slot_answers;
mod slot_record;
mod stripes;
mod watch;

pub use counters::MonitorCounters;
pub use device_leases::{DeviceLease, LEASE_MARGIN};
pub use monitor::{Monitor, MonitorConfig, MonitorService};
pub use monitor_record::{DISK_BYTES, MonitorError};
pub use operator_changes::OlderPrograms;
pub use slot_record::SlotShown;
