//! A disk in memory without latency. Its copying is part of the measured work: the driver of a real disk copies less, but waits.

use braid_base::DiskId;
use braid_machine::{DiskCommand, DiskResult, DiskTag};
use braid_store::{Store, StoreConfig};
use bytes::Bytes;
use std::collections::VecDeque;

pub(crate) struct MemoryDisk {
    bytes: Vec<u8>,
    commands: VecDeque<(DiskTag, DiskCommand)>,
}

impl MemoryDisk {
    /// A disk with an empty store whose journal has this many bytes.
    pub fn formatted(config: &StoreConfig, journal: u64) -> MemoryDisk {
        let mut disk = MemoryDisk { bytes: vec![0; config.size as usize], commands: VecDeque::new() };
        for (offset, bytes) in Store::format_with(config, DiskId(1), 77, Some(journal)).expect("the size will do") {
            disk.write(offset as usize, &bytes);
        }
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

    fn write(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }
}
