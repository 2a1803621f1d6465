//! What a cluster records of operations on files: their history, the files that are open, and the advisory locks that are held.
//!
//! Exclusion of advisory locks is checked with each answer: a lock that is granted must not conflict with one that another owner surely
//! has. An owner surely has a lock from the answer to its request until it unlocks the bytes, or asks for another lock on them, or its host
//! is down, unmounts or is fenced.

use crate::cluster::{Cluster, Failed, HostSlot, Record, failed};
use crate::file_workload::FileCall;
use crate::files::FileSystem;
use crate::role::Role;
use braid_base::{Generation, InodeId, NodeId};
use braid_check::{
    Client, FileAction, FileFailure, FileHistory, FileOperation, FileOperationId, FileValue, parse_units,
};
use braid_machine::{FileHandle, FilesError, FilesSuccess, HostError, HostOutcome, HostSuccess, MountRequest, OpId};
use braid_wire::FileResult;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

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
    /// Locks that were given up for another mode, by the request for that.
    yielded: BTreeMap<OpId, HeldLock>,
    /// Hosts that unmount the file system: they give up all locks.
    pub unmounting: BTreeSet<NodeId>,
    /// Hosts whose operations of unknown outcome may still happen.
    pub unknown: BTreeSet<Generation>,
}

impl FileRecords {
    /// True if processes of metadata servers have this slot.
    pub fn is_server(&self, slot: HostSlot) -> bool {
        self.servers.as_flattened().contains(&slot)
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

    /// An owner asks for something that ends what it surely has.
    fn begin(&mut self, op: OpId, node: NodeId, action: &FileAction) {
        let (FileAction::Lock { inode, owner, range, .. } | FileAction::Unlock { inode, owner, range }) = action else {
            return;
        };
        let is_it =
            |lock: &HeldLock| lock.owner == (node, *owner) && lock.inode == *inode && overlap(&lock.range, range);
        if let Some(lock) = self.locks.iter().find(|lock| is_it(lock)).cloned() {
            self.locks.retain(|lock| !is_it(lock));
            if let FileAction::Lock { .. } = action {
                self.yielded.insert(op, lock);
            }
        }
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

impl Cluster {
    /// A process issues an operation on files.
    pub(crate) fn file_operation(&mut self, slot: HostSlot, client: usize, (request, action): FileCall) -> OpId {
        let (now, node) = (self.world.now(), self.node(slot));
        let NodeId::Host(Generation(host)) = node else { unreachable!("host slots hold hosts") };
        let file_system = self.files.system.as_ref().expect("the run has a file system").id;
        let id = self.files.history.begin(Client { host, number: client }, now, action.clone());
        let op = self.begin(slot, client, MountRequest::Files { file_system, request }, Record::Files(id));
        self.files.begin(op, node, &action);
        op
    }

    /// The operation on files that a request was, once it is answered.
    pub(crate) fn file_operation_of(&self, record: &Record) -> Option<&FileOperation> {
        match record {
            Record::Files(id) => Some(self.files.history.operation(*id)),
            _ => None,
        }
    }

    pub(crate) fn on_files_reply(
        &mut self,
        (node, client, op): (NodeId, usize, OpId),
        id: FileOperationId,
        outcome: &HostOutcome,
    ) -> Result<(), Failed> {
        let now = self.world.now();
        let action = self.files.history.operation(id).action.clone();
        let yielded = self.files.yielded.remove(&op);
        let success = match outcome {
            Ok(HostSuccess::Files(success)) => success,
            Err(HostError::Files(error)) => {
                let failure = match error {
                    FilesError::NotOpen => FileFailure::NotOpen,
                    FilesError::Locked => FileFailure::Locked,
                    FilesError::Refused(error) => FileFailure::Refused(*error),
                    FilesError::NotMounted => {
                        return failed("files-not-mounted", format!("{action:?}"));
                    }
                };
                self.files.locks.extend(yielded);
                self.files.history.end(id, now, Err(failure));
                return is_expected(&action, failure);
            }
            // The outcome stays unknown. Hosts repeat everything else until it succeeds.
            Err(error @ (HostError::Fenced | HostError::Disconnecting)) if self.options.excuses(error) => return Ok(()),
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
        let open = self.files.open.entry((node, client)).or_default();
        match (&action, success) {
            (FileAction::Open { inode }, FilesSuccess::Opened { handle, .. }) => {
                open.push(OpenFile { handle: *handle, inode: *inode });
            }
            (FileAction::Command(_), FilesSuccess::Opened { handle, attributes }) => {
                open.push(OpenFile { handle: *handle, inode: attributes.inode });
            }
            (FileAction::Lock { .. }, _) => self.check_lock(node, &action)?,
            _ => {}
        }
        self.files.history.end(id, now, Ok(value));
        Ok(())
    }

    /// A process closes a file: it does not use the handle any more.
    pub(crate) fn forget_handle(&mut self, slot: HostSlot, client: usize, handle: FileHandle) {
        if let Some(open) = self.files.open.get_mut(&(self.node(slot), client)) {
            open.retain(|file| file.handle != handle);
        }
    }

    /// A lock is granted: nobody else has one that conflicts.
    fn check_lock(&mut self, node: NodeId, action: &FileAction) -> Result<(), Failed> {
        let FileAction::Lock { inode, owner, range, exclusive, .. } = action else { return Ok(()) };
        let granted = HeldLock { owner: (node, *owner), inode: *inode, range: range.clone(), exclusive: *exclusive };
        let is_alive = |node: NodeId| {
            let is_mounted = self.world.machine(node).is_some() && !self.files.unmounting.contains(&node);
            is_mounted && !self.is_fenced_at_monitor(node)
        };
        let conflicts = |lock: &&HeldLock| {
            lock.owner != granted.owner
                && lock.inode == granted.inode
                && (lock.exclusive || granted.exclusive)
                && overlap(&lock.range, &granted.range)
        };
        if is_alive(node)
            && let Some(other) = self.files.locks.iter().filter(conflicts).find(|lock| is_alive(lock.owner.0))
        {
            return failed("advisory-exclusion", format!("{granted:?}, and {other:?}"));
        }
        self.files.locks.push(granted);
        Ok(())
    }

    /// True if the monitor has fenced a host, or may have: while the monitor is down it is not known.
    pub(crate) fn is_fenced_at_monitor(&self, node: NodeId) -> bool {
        let NodeId::Host(host) = node else { return false };
        self.membership().is_none_or(|membership| membership.fence.refuses(host))
    }

    /// Records which hosts are kept out of the file system: every process that may serve knows that they are fenced, or will know before
    /// it serves; and with several shards, no transaction among them is under way for these hosts. Their operations of unknown outcome do not
    /// happen any more.
    pub(crate) fn note_kept_out(&mut self) {
        if self.files.unknown.is_empty() {
            return;
        }
        let servers: Vec<_> = {
            let slots = self.files.servers.as_flattened().iter();
            slots.filter_map(|slot| self.metadata_server(*slot)).collect()
        };
        let is_out = |host: &&Generation| {
            let knows = |membership: &braid_base::Membership| membership.fence.refuses(**host);
            let is_over = |slots: &[HostSlot; 2]| {
                let owners = slots.iter().filter(|slot| !self.is_fenced_at_monitor(self.node(**slot)));
                let mut owners = owners.filter_map(|slot| self.metadata_server(*slot));
                owners.any(|server| server.is_done_with(**host))
            };
            self.membership().is_some_and(knows)
                && servers.iter().all(|server| server.is_fenced(**host))
                && (self.files.servers.len() == 1 || self.files.servers.iter().all(is_over))
        };
        let out: Vec<Generation> = self.files.unknown.iter().filter(is_out).copied().collect();
        let now = self.world.now();
        for host in out {
            self.files.unknown.remove(&host);
            self.files.history.is_kept_out(host, now);
        }
    }

    /// At any moment, no two hosts that are served hold locks of inodes that conflict.
    pub(crate) fn check_inode_locks(&self) -> Result<(), Failed> {
        let of = |slot: &HostSlot| match (self.node(*slot), self.world.machine(self.node(*slot))) {
            (NodeId::Host(host), Some(Role::FileHost(client))) => Some((host, client.held_locks().collect())),
            _ => None,
        };
        let held: Vec<_> = self.files.hosts.iter().filter_map(of).collect();
        self.check_held(&held)
    }
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
