//! The monitor: decides which devices are in the array, which hosts are kept out, and gives devices leases (`docs/membership.md`).
//! And its client, by which hosts, devices and lock servers speak with it.
//!
//! ```text
//!     Renew ──► leases, hosts ──┐
//!     Fence ──► fencing ────────┼──► deciding ──► record ──► Changed, to everybody
//!     CaughtUp ─────────────────┤    (an epoch)   (durable)
//!     Administer ──► slots ─────┘
//! ```
//!
//! | module | what |
//! | --- | --- |
//! | [`monitor`] | the machine: who may speak, and where each message goes |
//! | [`leases`] | what is known of each device, and until when it may serve |
//! | `hosts` | which hosts and lock servers are there, and what devices the hosts can't reach |
//! | `watch` | what may not have been heard yet, and when leases are looked at again |
//! | `stripes` | which devices depend on each other |
//! | `dependence` | which devices the others can do without, as things stand |
//! | `findings` | what is new since something was last decided |
//! | `deciding` | what the next epoch is to be |
//! | `draft` | the next record, as it is being made |
//! | `changes` | what operators ask for, made part of the next record |
//! | [`slot`](SlotShown) | what is on record of the disk in a slot |
//! | `slots` | which disks fill the slots, as devices and operators hear of it |
//! | `administrations` | what operators have asked for, and is not answered |
//! | `fencing` | who has asked for hosts to be kept out, and when that is done |
//! | `record` | the membership, on disk |
//! | [`recovery`] | the record made anew from what devices know, when it is lost |
//! | `counters` | what a monitor has done |
//! | [`client`] | the monitor's client: the membership a node lives by, its lease, its requests |
//!
//! * What is said is durable: a membership is told to nobody before both copies of the record have it.
//! * A device is taken out only when its lease has run out here, and with it, since the monitor counts longer, at the device. From the
//!   decision on it gets none, until an epoch in which it is back is durable.
//! * Memory is lost in a restart, and with it who has which lease: so the monitor takes everybody to have one then.

mod administrations;
mod changes;
pub mod client;
mod counters;
mod deciding;
mod dependence;
mod draft;
mod fencing;
mod findings;
mod hosts;
pub mod leases;
pub mod monitor;
mod record;
pub mod recovery;
mod slot;
mod slots;
mod stripes;
mod watch;

pub use counters::MonitorCounters;
pub use leases::{DeviceLease, LEASE_MARGIN};
pub use monitor::{Monitor, MonitorConfig, MonitorService};
pub use record::{DISK_BYTES, MonitorError};
pub use slot::SlotShown;
