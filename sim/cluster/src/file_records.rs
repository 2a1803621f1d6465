//! What a cluster records of operations on files: their history, the files that are open, and the advisory locks that are held.
//!
//! Exclusion of advisory locks is checked with each answer: a lock that is granted must not conflict with one that another owner surely
//! has. An owner surely has a lock from the answer to its request until it unlocks the bytes, or asks for another lock on them, or its host
//! is down, unmounts or is fenced.

use crate::failed::{Failed, failed};
use crate::file_options::ShardOptions;
use crate::prelude::*;
use crate::role::{HostSlot, Role, is_fenced_at_monitor, metadata_server_of, monitor_of};
use braid_check::{Client, FileAction, FileFailure, FileHistory, FileOperationId, FileValue, parse_units};
use braid_machine::{FileHandle, FilesError};
use braid_wire::LockExtent;
use std::ops::Range;

/// A file system.
#[derive(Clone, Debug)]
pub struct FileSystem {
    pub id: FileSystemId,
    /// Its shards, each with a metadata server.
    pub shards: Vec<FileSystemShard>,
    pub options: ShardOptions,
    /// The volume with the bytes of its files.
    pub data: VolumeDescription,
}

/// A shard of a file system.
#[derive(Clone, Debug)]
pub struct FileSystemShard {
    /// The name of its metadata server.
    pub id: FileSystemId,
    pub metadata: VolumeDescription,
}

impl FileSystem {
    /// The names of the metadata servers.
    pub fn names(&self) -> Vec<FileSystemId> {
        self.shards.iter().map(|shard| shard.id).collect()
    }

    /// True for its volumes.
    fn uses(&self, volume: VolumeId) -> bool {
        self.data.id == volume || self.shards.iter().any(|shard| shard.metadata.id == volume)
    }

    /// What hosts send to the server of a shard is sent to this.
    pub fn service(&self, shard: usize) -> NodeId {
        NodeId::MetadataServer(self.shards[shard].id)
    }
}

/// An operation, as the host gets it and as the history has it.
pub(crate) type FileCall = (FilesRequest, FileAction);

/// A file that a process has open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenFile {
    pub handle: FileHandle,
    pub inode: InodeId,
}

/// An advisory lock that an owner has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeldLock {
    /// The host, and the number of the owner there, which is that of the process.
    pub owner: (NodeId, u64),
    pub inode: InodeId,
    pub range: Range<u64>,
    pub exclusive: bool,
}

/// The records of a file system.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileRecords {
    /// The file system, if the run has one.
    pub system: Option<FileSystem>,
    /// The slots of hosts that have it mounted.
    pub hosts: BTreeSet<HostSlot>,
    /// The slots of processes of its metadata servers: two for each shard.
    pub servers: Vec<[HostSlot; 2]>,
    pub history: FileHistory,
    open: BTreeMap<(NodeId, usize), Vec<OpenFile>>,
    locks: Vec<HeldLock>,
    /// Locks that were given up for another mode, by the operation that asks for that.
    yielded: BTreeMap<FileOperationId, HeldLock>,
    /// Hosts that unmount the file system: they give up all locks.
    pub unmounting: BTreeSet<NodeId>,
    /// Hosts whose operations of unknown outcome may still happen.
    pub unknown: BTreeSet<Generation>,
    /// The slots of other processes, which nobody takes when they end.
    pub processes: BTreeSet<HostSlot>,
    /// Until then something delays operations that availability does not know: a volume was on hold, or who changes it died or was suspended.
    pub disturbed: Time,
}

impl FileRecords {
    /// The file system of a run that has one.
    pub fn mounted(&self) -> &FileSystem {
        self.system.as_ref().expect("the run has a file system")
    }

    /// True if processes of metadata servers have this slot, or others that are no clients.
    pub fn is_server(&self, slot: HostSlot) -> bool {
        self.servers.as_flattened().contains(&slot) || self.processes.contains(&slot)
    }

    /// The shard that the processes in this slot serve.
    pub fn shard_of(&self, slot: HostSlot) -> Option<(&FileSystem, usize)> {
        Some((self.system.as_ref()?, self.servers.iter().position(|slots| slots.contains(&slot))?))
    }

    /// Until then something may delay operations.
    pub fn disturb(&mut self, until: Time) {
        self.disturbed = self.disturbed.max(until);
    }

    /// A volume has changed, perhaps one of the file system.
    pub fn follow(&mut self, volume: &VolumeDescription) {
        let Some(FileSystem { shards, data, .. }) = &mut self.system else { return };
        let mut all = shards.iter_mut().map(|shard| &mut shard.metadata).chain([data]);
        all.find(|known| known.id == volume.id).into_iter().for_each(|known| known.clone_from(volume));
    }

    /// True for the volumes of the file system.
    pub fn uses(&self, volume: VolumeId) -> bool {
        self.system.as_ref().is_some_and(|system| system.uses(volume))
    }

    /// The files that a process has open.
    pub fn open_files(&self, node: NodeId, client: usize) -> Vec<OpenFile> {
        self.open.get(&(node, client)).cloned().unwrap_or_default()
    }

    /// The locks of a process.
    pub fn held_locks(&self, node: NodeId, client: usize) -> Vec<HeldLock> {
        self.locks.iter().filter(|lock| lock.owner == (node, client as u64)).cloned().collect()
    }

    /// The processes that hold locks.
    pub fn lockers(&self) -> BTreeSet<(NodeId, u64)> {
        self.locks.iter().map(|lock| lock.owner).collect()
    }

    /// A process issues an operation.
    pub fn begin(&mut self, now: Time, (node, client): (NodeId, usize), action: &FileAction) -> FileOperationId {
        let NodeId::Host(Generation(host)) = node else { unreachable!("host slots hold hosts") };
        let id = self.history.begin(Client { host, number: client }, now, action.clone());
        self.yield_locks(id, node, action);
        id
    }

    /// An owner asks for something that ends what it surely has.
    fn yield_locks(&mut self, id: FileOperationId, node: NodeId, action: &FileAction) {
        let (FileAction::Lock { inode, owner, range, .. } | FileAction::Unlock { inode, owner, range }) = action else {
            return;
        };
        let is_it =
            |lock: &HeldLock| lock.owner == (node, *owner) && lock.inode == *inode && overlap(&lock.range, range);
        if let Some(lock) = self.locks.iter().find(|lock| is_it(lock)).cloned() {
            self.locks.retain(|lock| !is_it(lock));
            if let FileAction::Lock { .. } = action {
                self.yielded.insert(id, lock);
            }
        }
    }

    /// A process was answered, perhaps with an error that faults excuse.
    pub fn on_reply(
        &mut self,
        world: &World<Role>,
        (node, client): (NodeId, usize),
        id: FileOperationId,
        outcome: &HostOutcome,
        is_excused: bool,
    ) -> Result<(), Failed> {
        let now = world.now();
        let action = self.history.operation(id).action.clone();
        let yielded = self.yielded.remove(&id);
        let success = match outcome {
            Ok(HostSuccess::Files(success)) => success,
            Err(HostError::Files(error)) => {
                let failure = match error {
                    FilesError::NotOpen => FileFailure::NotOpen,
                    FilesError::Locked => FileFailure::Locked,
                    FilesError::Refused(error) => FileFailure::Refused(*error),
                    FilesError::NotMounted | FilesError::Deadlock | FilesError::TooManyLocks => {
                        return failed("unexpected-files-error", format!("{action:?}: {error}"));
                    }
                };
                self.locks.extend(yielded);
                self.history.end(id, now, Err(failure));
                return is_expected(&action, failure);
            }
            // The outcome stays unknown. Hosts repeat everything else until it succeeds.
            Err(HostError::Fenced | HostError::Disconnecting) if is_excused => return Ok(()),
            other => {
                return failed("unexpected-answer", format!("{action:?}: {other:?}"));
            }
        };
        let value = match success {
            FilesSuccess::Done => FileValue::Done,
            FilesSuccess::Result(result) => FileValue::Result(result.clone()),
            FilesSuccess::Opened { attributes, .. } => match action {
                FileAction::Open { .. } => FileValue::Opened(*attributes),
                _ => FileValue::Result(FileResult::Created { attributes: *attributes, is_new: true }),
            },
            FilesSuccess::Data(parts) => match parse_units(&parts.concat()) {
                Ok(units) => FileValue::Data(units),
                Err(corrupt) => {
                    return failed("garbage-in-file", format!("{node} got for {action:?}: {corrupt}"));
                }
            },
            FilesSuccess::Written { length } => FileValue::Written { length: *length },
            FilesSuccess::Appended { offset, length } => FileValue::Appended { offset: *offset, length: *length },
            FilesSuccess::Tested { is_locked } => FileValue::Tested { is_locked: *is_locked },
            FilesSuccess::Shards(_)
            | FilesSuccess::Revoked(_)
            | FilesSuccess::NextData(_)
            | FilesSuccess::Tail { .. } => unreachable!("clients do not ask for that"),
        };
        let open = self.open.entry((node, client)).or_default();
        match (&action, success) {
            (FileAction::Open { inode }, FilesSuccess::Opened { handle, .. }) => {
                open.push(OpenFile { handle: *handle, inode: *inode });
            }
            (FileAction::Command(_), FilesSuccess::Opened { handle, attributes }) => {
                open.push(OpenFile { handle: *handle, inode: attributes.inode });
            }
            (FileAction::Lock { .. }, _) => self.check_lock(world, node, &action)?,
            _ => {}
        }
        self.history.end(id, now, Ok(value));
        Ok(())
    }

    /// A process closes a file: it does not use the handle any more.
    pub fn forget_handle(&mut self, node: NodeId, client: usize, handle: FileHandle) {
        if let Some(open) = self.open.get_mut(&(node, client)) {
            open.retain(|file| file.handle != handle);
        }
    }

    /// A lock is granted: nobody else has one that conflicts.
    fn check_lock(&mut self, world: &World<Role>, node: NodeId, action: &FileAction) -> Result<(), Failed> {
        let FileAction::Lock { inode, owner, range, exclusive, .. } = action else { return Ok(()) };
        let granted = HeldLock { owner: (node, *owner), inode: *inode, range: range.clone(), exclusive: *exclusive };
        let is_alive = |node: NodeId| {
            let is_mounted = world.is_up(node) && !self.unmounting.contains(&node);
            is_mounted && !is_fenced_at_monitor(world, node)
        };
        let conflicts = |lock: &&HeldLock| {
            lock.owner != granted.owner
                && lock.inode == granted.inode
                && (lock.exclusive || granted.exclusive)
                && overlap(&lock.range, &granted.range)
        };
        if is_alive(node)
            && let Some(other) = self.locks.iter().filter(conflicts).find(|lock| is_alive(lock.owner.0))
        {
            return failed("advisory-exclusion", format!("{granted:?}, and {other:?}"));
        }
        self.locks.push(granted);
        Ok(())
    }

    /// Records which hosts are kept out of the file system: every process that may serve knows that they are fenced, or will know before
    /// it serves; and with several shards, no transaction among them is under way for these hosts. Their operations of unknown outcome do not
    /// happen any more.
    pub fn note_kept_out(&mut self, world: &World<Role>, hosts: &[NodeId]) {
        if self.unknown.is_empty() {
            return;
        }
        let server = |slot: &HostSlot| metadata_server_of(world, hosts[slot.0]);
        let servers: Vec<_> = self.servers.as_flattened().iter().filter_map(server).collect();
        let is_out = |host: &&Generation| {
            let knows = |membership: &Membership| membership.fence.refuses(**host);
            let is_over = |slots: &[HostSlot; 2]| {
                let owners = slots.iter().filter(|slot| !is_fenced_at_monitor(world, hosts[slot.0]));
                let mut owners = owners.filter_map(server);
                owners.any(|server| server.is_done_with(**host))
            };
            monitor_of(world).is_some_and(|monitor| knows(monitor.membership()))
                && servers.iter().all(|server| server.is_fenced(**host))
                && (self.servers.len() == 1 || self.servers.iter().all(is_over))
        };
        let out: Vec<Generation> = self.unknown.iter().filter(is_out).copied().collect();
        let now = world.now();
        for host in out {
            self.unknown.remove(&host);
            self.history.is_kept_out(host, now);
        }
    }

    /// The locks of inodes that hosts hold.
    pub fn held_inode_locks(
        &self,
        world: &World<Role>,
        hosts: &[NodeId],
    ) -> Vec<(Generation, Vec<(ObjectId, LockExtent)>)> {
        let of = |slot: &HostSlot| match (hosts[slot.0], world.machine(hosts[slot.0])) {
            (NodeId::Host(host), Some(Role::FileHost(client))) => Some((host, client.held_locks().collect())),
            _ => None,
        };
        self.hosts.iter().filter_map(of).collect()
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

/// An error must be one that the operation can have; the model of names says which of them fit.
fn is_expected(action: &FileAction, failure: FileFailure) -> Result<(), Failed> {
    use braid_wire::FileError::{Busy, DirectoryFull, Lost, Malformed, NotAllotted, Rejected};
    let is_unexpected = match failure {
        FileFailure::Locked => !matches!(action, FileAction::Lock { .. }),
        FileFailure::NotOpen => true,
        FileFailure::Refused(error) => {
            matches!(error, Busy | DirectoryFull | Lost | Malformed | NotAllotted | Rejected(_))
        }
    };
    if is_unexpected {
        return failed("unexpected-refusal", format!("{action:?}: {failure:?}"));
    }
    Ok(())
}
