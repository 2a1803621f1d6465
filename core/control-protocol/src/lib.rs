//! The protocol by which volumes are created, changed and deleted while hosts use the array: changes are those of a volume's ordering, the
//! beginning and end of a migration, and growth. An *administrator* puts the volume on hold, waits until all hosts have drained it, tells the devices,
//! and ends the hold. If it dies, another one settles the change. All of it is pure: the store of the control plane, the clock and the
//! devices are reached by questions and answers, so that the array's folder, another store and the simulation drive the same code.
//!
//! ```text
//!   administrator                      store                    hosts                        devices
//!   Replace: Draining ───────────────► volume on hold ────────► begin no operation, end those under way
//!   ListHosts, Watch ◄──────────────── leases ◄──────────────── confirm the version
//!   EndLease, Fence, ForgetLease ────► lease over for good ·····(a silent host)············► refuse it
//!   Replace: Reordering ─────────────► committed
//!   Manage ────────────────────────────────────────────────────────────────────────────────► new ordering, or new placement
//!   Replace: Ready ──────────────────► new description ───────► adopt it, begin what waited
//! ```
//!
//! | step | asks | goes on with | otherwise |
//! | --- | --- | --- | --- |
//! | inspect | `Read`; are all devices in? | hold | ends |
//! | hold | `Read`, `Replace` by `Draining` | for a migration: wait for the monitor; drain | held by another one: ends |
//! | drain | `ListHosts`, then `Watch`; for silent hosts `EndLease`, `Fence`, `ForgetLease` | wait for lock servers, if the ordering needs them | reverts |
//! | check | are all devices in? | commit | reverts |
//! | commit | `Read`, `Replace` by `Reordering` | tell | lost: ends |
//! | tell | `Manage` for each device, within one epoch; `Confirm` before it is repeated | release | no space: undoes it; else ends, and is settled |
//! | release | `Read`, `Replace` by `Ready` with the new description | ends | lost: ends |
//! | revert | `Read`, `Replace` by `Ready` as before | ends | |
//! | settle | `Read`, `ListHosts`: is its administrator alive? | in `Draining`: revert. In `Reordering`: `EndLease`, `Fence`, take over, tell | ends |
//!
//! The steps of a creation and of a deletion, which no step of another administrator follows:
//!
//! | operation | steps |
//! | --- | --- |
//! | creation | are all devices in? `Replace`: `Creating`; wait for the monitor; `Manage`: `CreateObject`, within one epoch; wait for lock servers; `Replace`: `Ready`. If a step fails, the volume is deleted |
//! | deletion | are all devices in? `Replace`: `Deleting`, and hosts forget the volume; drain; `Manage`: `RemoveObject`, within one epoch; `Remove` |
//!
//! Another administrator that finds the volume in one of these states waits while the first one lives. Then it fences it, and goes on.
//!
//! Devices are added and removed by the monitor. The store says which, and which administrator is at work on them (`device_change`); with the
//! same turns as for volumes:
//!
//! | operation | steps |
//! | --- | --- |
//! | addition | `ReplaceDevice`: `Adding`; `Administer`: `AddDevice`; `ReplaceDevice`: `Ready`; wait until it is in. If the monitor refuses: `RemoveDevice` |
//! | removal | does no volume lie there? `ReplaceDevice`: `Removing`; `Administer`: `RemoveDevice`; `RemoveDevice`. If the monitor refuses: `ReplaceDevice`: `Ready` |
//!
//! The disk of a device is replaced by the monitor, too: the store only records which disks may fill a slot, before the monitor is asked
//! (`replacement`).
//!
//! File systems are deleted and checked with metadata servers that follow the record, and announcements (`file_systems`):
//!
//! | operation | steps |
//! | --- | --- |
//! | creation of a file system | `EnterFileSystem`: `Creating`; `CreateVolume` for each volume; `Format` for each shard; `ReplaceFileSystem`: `Ready`. If a step fails, `ReplaceFileSystem`: `Deleting`, and the deletion |
//! | deletion of a file system | `ReplaceFileSystem`: `Deleting`; `ListServers` until no server is left, or time is up; `Ownership`: fence the owner of each shard; `DeleteVolume` for each volume; `Ownership` again; `RemoveFileSystem` |
//! | check of a file system | is one under way? With several shards: `Announce`: `Quiesce`, and `ListServers` until all servers are quiescent. `Announce`: `Check`; `ListServers` until all have released, or time is up; `Examine` each shard; `Withdraw`; `ListServers` until all serve again, or time is up |
//!
//! Any answer may be lost, and its question may still take effect later ([`Answer::Unknown`]). A replacement whose answer was lost is
//! followed by a read: the record shows that it has happened, or it is made again after the version that was read. Whatever is still under
//! way then is superseded by it, or supersedes it.
//!
//! Invariants:
//!
//! 1. *Devices are told only when every host has drained*, or no host knows the volume yet. A host that may use the volume without the hold,
//!    or has not forgotten it, has a lease, and is waited for or fenced. The commit is reached only through the drain, and `DeviceNotice` asserts
//!    the state of the record.
//! 2. *One administrator tells devices at a time.* The store says which one; the one before it is fenced before another one takes over, so
//!    that devices refuse its late requests.
//!    A host performs one operation on a volume at a time: what its own generation has begun there is over.
//! 3. *A change is reverted only if no device was told*, that is in `Draining`; in `Reordering` it is completed. A deletion is always
//!    completed. A creation is completed or undone.
//! 4. *A hold ends*: by its administrator, or by the next one that settles it when its lease is over. Volumes are settled apart:
//!    one whose devices do not answer keeps no other on hold. Recoveries wait for the end of all holds, and operations that need all
//!    devices wait for recoveries.
//! 5. *An administrator that was taken over changes nothing*: its replacements are superseded, its requests to devices refused.
//! 6. *A migration ends when everything is at its target.* The record says so, in the name of that migration: whoever ends it need not have
//!    copied it, and whoever has copied another migration can't end it.
//! 7. *A host confirms a version only when it has applied it and has no operation under way on volumes that are on hold there, or gone.*
//! 8. *A volume is ready when every one of its devices has its part, and has no record when none has one.* Its number is not used again.
//! 9. *A device is ready when the monitor has it, and has no record when the monitor does not have it.* No volume lies on it otherwise. Its
//!    number is not used again.
//!
//! 10. *The volumes of a file system are deleted only when its record says so*, and its owners are fenced or have released it. It has no
//!     record when it has neither volumes nor owners.
//!     A volume of it is entered only while the record names the administrator that creates it; another one shuts that one out first.
//! 11. *A check examines nothing before its servers were told*, and with several shards only when all of them are quiescent. What it has
//!     announced is withdrawn when it ends.
//!
//! | module | what |
//! | --- | --- |
//! | `record` | what the store records of a volume, and of a device |
//! | `interface` | questions and answers: the store, the monitor, lock servers, devices |
//! | `contract` | inputs and effects of an operation, how it ends, time limits |
//! | `operation` | what drivers run: one of the machines below |
//! | `migration` | a whole migration: its beginning, the copy, its end; or the rest of one |
//! | `volume_change` | the change of one volume: the order of the steps |
//! | `volume_creation`, `volume_deletion` | those of a creation and a deletion |
//! | `replacement` | the disk of a device is replaced |
//! | `device_change` | a device is added or removed |
//! | `device_edit` | the transitions of a device's record |
//! | `file_systems` | the record of a file system, and the leases of its metadata servers |
//! | `server_wait` | waiting for metadata servers |
//! | `file_system_creation`, `file_system_deletion` | the creation and the deletion of a file system |
//! | `disowning` | fencing the owners of its shards |
//! | `file_system_check` | the check of a file system |
//! | `turns` | whose turn it is: an administrator that lives is waited for, a dead one is fenced |
//! | `cas_loop` | one replacement of a record, with lost answers |
//! | `edit` | the transitions of a volume's record |
//! | `drain` | waiting for hosts; fencing silent ones |
//! | `waiting` | a question that is repeated until the answer is yes |
//! | `device_notice` | notifying the devices, and undoing that |
//! | `device_tasks` | which device is told what |
//! | `questions` | tags, and the effects of a step, which an operation lends to its machine |
//! | `host_control` | the part of a host: it follows the records, confirms versions, and renews its lease |
//! | `follower` | the volumes as a host knows them, and its steps |
//! | `held_requests` | a host whose requests wait while their volume is on hold |
//! | `tests` | small worlds, in which every order of events is tried |

mod cas_loop;
mod contract;
mod device_change;
mod device_edit;
mod device_notice;
mod device_tasks;
mod disowning;
mod drain;
mod edit;
mod file_system_check;
mod file_system_creation;
mod file_system_deletion;
mod file_systems;
mod follower;
mod held_requests;
mod host_control;
mod interface;
mod migration;
mod operation;
mod questions;
mod record;
mod replacement;
mod server_wait;
#[cfg(test)]
mod tests;
mod turns;
mod volume_change;
mod volume_creation;
mod volume_deletion;
mod waiting;

pub use contract::{Done, Effect, Error, FileSystemTiming, Input, Stage, Timing};
pub use device_change::DeviceChange;
pub use device_tasks::{holders, task_for};
pub use file_system_check::FileSystemCheck;
pub use file_system_creation::FileSystemCreation;
pub use file_system_deletion::FileSystemDeletion;
pub use file_systems::{Announcement, FileSystemRecord, FileSystemState, ServerLease, latest_server};
pub use follower::HostStep;
pub use held_requests::HoldingHost;
pub use host_control::{HostAction, HostControl, HostEvent};
pub use interface::{Answer, Command, Fence, HostLease, LeaseEnd, Question, Tag};
pub use migration::Migration;
pub use operation::{Operation, OperationKind};
pub use record::{Change, CopyRecord, DeviceRecord, DeviceState, Version, VolumeRecord, VolumeState};
pub use replacement::{NextDisk, Replacement};
pub use volume_change::VolumeChange;
pub use volume_creation::Creation;
pub use volume_deletion::Deletion;
