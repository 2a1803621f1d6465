//! Files that a host creates and opens by one command: with the answer, the host has the locks of an open file.
//!
//! ```text
//!   Create (opens) ─► evaluated, logged ─► locks granted ─► Opened
//!                                          a repeated command: still held? ─► Opened, otherwise Created
//! ```
//!
//! The locks are granted in the step in which the new file becomes visible, before anything else can be done with it: so the file exists
//! as long as the host holds the lock of its existence, and is empty when the host gets the lock of its data. A later answer can't promise
//! that: the file may have been removed, or may belong to others, meanwhile. A host that gets no locks opens the file like any other.

use braid_base::{BlockRange, Generation, Now, ObjectId, ShardId, TransactionId};
use braid_locks::LockServer;
use braid_machine::Effects;
use braid_wire::{
    DATA_LOCK, EXISTENCE_LOCK, FileAttributes, FileReply, FileResult, LockExtent, LockMode, opening_locks,
};
use std::collections::BTreeMap;

/// The commands that are under way, and whether each is executed for the first time. There are at most as many as hosts may have under way.
#[derive(Clone, Debug)]
pub(crate) struct Opening {
    shard: ShardId,
    under_way: BTreeMap<TransactionId, bool>,
}

/// A file that is created, and that its host opens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewFile {
    name: TransactionId,
    attributes: FileAttributes,
    is_first: bool,
}

impl Opening {
    pub fn new(shard: ShardId) -> Opening {
        Opening { shard, under_way: BTreeMap::new() }
    }

    /// A command is begun, or comes again.
    pub fn begin(&mut self, name: TransactionId, is_first: bool) {
        self.under_way.entry(name).or_insert(is_first);
    }

    /// A command is answered: the file, if it is one of this shard and was created by the command.
    pub fn end(&mut self, name: TransactionId, reply: &FileReply) -> Option<NewFile> {
        let is_first = self.under_way.remove(&name)?;
        match reply {
            // Locks of an inode of another shard are with its server.
            Ok(FileResult::Created { attributes, is_new: true }) if attributes.inode.shard() == self.shard => {
                Some(NewFile { name, attributes: *attributes, is_first })
            }
            _ => None,
        }
    }

    /// A host has the answers of all commands below this sequence.
    pub fn settle(&mut self, host: Generation, settled: u64) {
        let of = |sequence| TransactionId { host, sequence };
        while let Some((name, _)) = self.under_way.range(of(0)..of(settled)).next() {
            let name = *name;
            self.under_way.remove(&name);
        }
    }

    /// The hosts whose commands are under way get no answers any more, if this says so.
    pub fn retain(&mut self, is_served: impl Fn(Generation) -> bool) {
        self.under_way.retain(|name, _| is_served(name.host));
    }

    pub fn hosts(&self) -> impl Iterator<Item = Generation> + '_ {
        self.under_way.keys().map(|name| name.host)
    }
}

impl NewFile {
    /// Grants the locks of an open file, and makes the answer.
    pub fn open(self, now: Now, locks: &mut LockServer, out: &mut Effects) -> FileReply {
        let NewFile { name: TransactionId { host, sequence }, attributes, is_first } = self;
        let [existence, data] = opening_locks(sequence);
        let extent = |position, mode| LockExtent { position, range: BlockRange::new(0, 1), mode };
        let both =
            [(existence, extent(EXISTENCE_LOCK, LockMode::Shared)), (data, extent(DATA_LOCK, LockMode::Exclusive))];
        let is_open = match is_first {
            true => locks.grant(now, host, ObjectId(attributes.inode.0), &both, out),
            false => locks.engine().holds(host, &[existence, data]),
        };
        Ok(if is_open { FileResult::Opened(attributes) } else { FileResult::Created { attributes, is_new: true } })
    }
}
