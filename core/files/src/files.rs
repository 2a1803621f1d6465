//! The parts that serve operations on files, from opening a file to attaching its blocks.

use crate::FileClientConfig;
use crate::allotment::Allotment;
use crate::handles::Handles;
use crate::inodes::Inodes;
use crate::metadata_link::{Asker, MetadataLink};
use crate::operations::{Operations, Parts};
use crate::packer::Packer;
use crate::progress::Progress;
use crate::range_locks::RangeLocks;
use crate::volume_io::VolumeIo;
use braid_base::{BLOCK_BYTES, FileSystemId, Now, ShardId, Time};
use braid_machine::Part;
use braid_wire::FileReply;

#[derive(Clone, Debug)]
pub struct Files {
    pub operations: Operations,
    pub inodes: Inodes,
    pub handles: Handles,
    pub allotment: Allotment,
    pub packer: Packer,
    pub io: VolumeIo,
    progress: Vec<Progress>,
}

impl Files {
    pub fn new(config: &FileClientConfig, shard: ShardId, file_system: FileSystemId) -> Files {
        let stripe_blocks = (config.stripe_bytes / BLOCK_BYTES) as u64;
        Files {
            operations: Operations::default(),
            inodes: Inodes::default(),
            handles: Handles::of(shard),
            allotment: Allotment::new(stripe_blocks),
            packer: Packer::new(stripe_blocks),
            io: VolumeIo::new(config.volume, Part::files(file_system), config.settings.clone()),
            progress: Vec::new(),
        }
    }

    /// The operations, and the parts that they use.
    pub fn lend<'a>(
        &'a mut self,
        now: Now,
        link: &'a mut MetadataLink,
        locks: &'a mut RangeLocks,
    ) -> (&'a mut Operations, Parts<'a>) {
        let Files { operations, inodes, handles, allotment, packer, io, progress } = self;
        (operations, Parts { now, link, locks, inodes, handles, allotment, packer, io, progress })
    }

    /// The server has answered.
    pub fn on_reply(
        &mut self,
        now: Now,
        link: &mut MetadataLink,
        locks: &mut RangeLocks,
        asker: Asker,
        reply: FileReply,
    ) {
        match asker {
            Asker::Operation(op) => {
                let (operations, mut parts) = self.lend(now, link, locks);
                operations.on_reply(&mut parts, op, reply);
            }
            Asker::Map { inode, from, number } => self.inodes.on_page(inode, from, number, reply),
            Asker::Publish(inode) => self.inodes.on_published(now, locks, link, inode),
            Asker::Reserve => self.allotment.on_reserved(now.time, link, reply, &mut self.progress),
            Asker::Confirm => {}
            Asker::CalledBack => self.allotment.on_given_back(&reply, &mut self.progress),
            Asker::GiveBack | Asker::Farewell => unreachable!("they are asked while the file system is unmounted"),
        }
    }

    /// Goes on with the operations for which parts have something. False if there are none.
    pub fn go_on(&mut self, now: Now, link: &mut MetadataLink, locks: &mut RangeLocks) -> bool {
        let (operations, mut parts) = self.lend(now, link, locks);
        let had_something = operations.take_progress(&mut parts);
        self.packer.flush(&mut self.io, &mut self.allotment);
        had_something
    }

    pub fn deadline(&self, link: &MetadataLink) -> Option<Time> {
        self.inodes.deadline(link).into_iter().chain(self.io.deadline()).min()
    }

    /// Handles all timers that are due.
    pub fn wake(&mut self, now: Time, link: &mut MetadataLink) {
        self.inodes.wake(now, link);
        self.io.wake(now);
    }

    /// True if no operation is under way and no data lock is held.
    pub fn is_idle(&self) -> bool {
        self.operations.is_empty() && self.inodes.is_empty()
    }

    pub fn invariants(&self) {
        self.operations.invariants();
        self.inodes.invariants();
        self.handles.invariants();
        self.allotment.invariants();
        self.packer.invariants();
        assert!(self.progress.is_empty(), "operations are told in the same step");
    }
}
