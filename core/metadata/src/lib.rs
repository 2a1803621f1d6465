//! The metadata server of a file system: it owns the names, inodes and free blocks of the file system, and grants the locks of inodes.
//! Hosts read and write the bytes of files themselves.
//!
//! ```text
//!   host ──── FileRequest ───► store: evaluated by `braid-namespace`, logged with its answer ──┐
//!   host ──── LockRequest ───► lock server                                                     │ hostreads, hostwrites
//!   host ◄─── answers ──────── lease: open only while this process is known to be the owner    ▼
//!                                                                              volume NAME.meta of the array
//! ```
//!
//! A metadata server is a host of the array: its disk is a volume. The store on it is the store of a device, with its journal and
//! its ordered map, but without blocks: each operation is one record, and takes effect once (`operation`). Locks are those of a lock
//! server ([`braid_locks`]), for which each inode is an object.
//!
//! At most one process serves a file system at a time:
//!
//! * The monitor knows the owner. A new process *takes over*: the monitor fences the process before, and names the new one as the owner, in
//!   one record. After that, nothing that the old process sends takes effect on the volume.
//! * The old process may still answer from memory. So each answer needs a *lease* (`lease`): the process has lately read or written its
//!   volume, which a fenced process can't. The new process waits as long as the lease of the old one may last.
//! * The new process *writes before it serves*: its generation goes into the journal. The fence was final when the monitor answered, so
//!   what the new process has read there can't change any more (`docs/metadata.md`).
//!
//! | module | what |
//! | --- | --- |
//! | [`node`] | the host of a process: takes over, and runs the server over its host |
//! | `lifecycle` | the life cycle of a process: it takes ownership, releases it, and restarts |
//! | [`server`] | the machine: checks who may speak, and routes each input |
//! | `disk` | the parts of the volume, and the disk commands of each part of the server |
//! | `operation` | operations of the namespace as procedures of the store |
//! | `opening` | files that are created and opened by one command |
//! | `lease` | the lease, and messages that wait for it |
//! | `absent_hosts` | hosts that are gone and were not dropped |
//! | `check` | the check of the whole file system |
//! | `actions` | what the server does for its parts |
//! | `shards` | operations on several shards: plans, questions to other servers, and what the commit protocols want done |
//! | `groups` | operations that become one transaction |
//! | `operation_locks` | the locks of operations on several shards |
//! | `shard_operation` | operations on several shards as procedures of the store |
//! | `space_requests` | free blocks that a shard gets of its hosts and of other shards |
//! | `room` | the room for names and extents in the metadata volume |
//! | `revocation` | the hosts that are called on to give back blocks |
//! | `reclaim` | the background job that frees the blocks of removed files and of hosts that are gone |

mod absent_hosts;
mod actions;
mod check;
mod disk;
mod groups;
mod lease;
mod lifecycle;
pub mod node;
mod opening;
mod operation;
mod operation_locks;
mod reclaim;
mod revocation;
mod room;
pub mod server;
mod shard_operation;
mod shards;
mod space_requests;

pub use braid_commit::{Grouping, Protocol};
pub use check::{Collected, Purpose, Undecided, check_together, united};
pub use disk::{STORE_OFFSET, VOLUME_BYTES_MIN, format, store_config};
pub use lifecycle::{EntryState, LifecycleInput, LifecycleStep, MetadataLifecycle, Observation, Pause, RELEASE_WAIT};
pub use node::{MetadataNode, NodeState};
pub use room::Room;
pub use server::{MetadataServer, MetadataServerConfig, MetadataService};
pub use shard_operation::is_undecided;
