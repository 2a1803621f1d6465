//! A disk in memory without latency and faults, for tests and benchmarks of single machines. A [`World`](crate::World) has
//! [`Disk`](crate::Disk)s, which lose and damage data.

use braid_machine::{DiskCommand, DiskResult, DiskTag};
use bytes::Bytes;
use std::collections::VecDeque;

/// A disk that executes the commands of a machine in their order, each when it is told to.
#[derive(Clone, Debug)]
pub struct MemoryDisk {
    bytes: Vec<u8>,
    commands: VecDeque<(DiskTag, DiskCommand)>,
}

impl MemoryDisk {
    /// A disk of this many zeros.
    pub fn new(size: u64) -> MemoryDisk {
        MemoryDisk::of(vec![0; size as usize])
    }

    /// A disk with this content.
    pub fn of(bytes: Vec<u8>) -> MemoryDisk {
        MemoryDisk { bytes, commands: VecDeque::new() }
    }

    /// A disk of this size on which these bytes are written at these offsets.
    pub fn with(size: u64, parts: impl IntoIterator<Item = (u64, Bytes)>) -> MemoryDisk {
        let mut disk = MemoryDisk::new(size);
        parts.into_iter().for_each(|(offset, bytes)| disk.write(offset as usize, &bytes));
        disk
    }

    /// Queues a command.
    pub fn submit(&mut self, tag: DiskTag, command: DiskCommand) {
        self.commands.push_back((tag, command));
    }

    /// Executes the next command.
    pub fn end_one(&mut self) -> Option<(DiskTag, DiskResult)> {
        let (tag, command) = self.commands.pop_front()?;
        let result = match command {
            DiskCommand::Read { offset, length } => {
                DiskResult::Read(Ok(Bytes::copy_from_slice(&self.bytes[offset as usize..offset as usize + length])))
            }
            DiskCommand::Write { offset, data, .. } => {
                let mut at = offset as usize;
                for part in data {
                    self.write(at, &part);
                    at += part.len();
                }
                DiskResult::Done(Ok(()))
            }
            DiskCommand::Sync | DiskCommand::Reserve { .. } => DiskResult::Done(Ok(())),
        };
        Some((tag, result))
    }

    /// Forgets the commands that were not executed, as when its machine crashes.
    pub fn forget_commands(&mut self) {
        self.commands.clear();
    }

    /// Its content.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Its content, to be changed without a command.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }
}
