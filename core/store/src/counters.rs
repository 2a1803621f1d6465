//! What the store has done since it started.

use braid_machine::{DiskCommand, DiskError, DiskResult};

/// Counts of commands and bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    pub disk_reads: u64,
    pub disk_read_bytes: u64,
    pub disk_writes: u64,
    pub disk_write_bytes: u64,
    pub disk_durable_writes: u64,
    pub disk_syncs: u64,
    pub disk_reservations: u64,
    /// Commands that the disk has failed, other than for want of space.
    pub read_errors: u64,
    pub write_errors: u64,
    pub batches: u64,
    /// Of the blocks that writes brought; what the disk writes for them is more.
    pub bytes_accepted: u64,
    pub journal_bytes: u64,
    pub journal_blocks: u64,
    pub chunks_written: u64,
    pub blocks_homed: u64,
    pub checkpoints: u64,
    /// For objects.
    pub requests: u64,
    /// Of removed objects.
    pub keys_swept: u64,
}

impl Counters {
    /// Counts a command.
    pub fn count(&mut self, command: &DiskCommand) {
        match command {
            DiskCommand::Read { length, .. } => {
                self.disk_reads += 1;
                self.disk_read_bytes += *length as u64;
            }
            DiskCommand::Write { data, durable, .. } => {
                self.disk_writes += 1;
                self.disk_durable_writes += u64::from(*durable);
                self.disk_write_bytes += data.iter().map(|part| part.len() as u64).sum::<u64>();
            }
            DiskCommand::Sync => self.disk_syncs += 1,
            DiskCommand::Reserve { .. } => self.disk_reservations += 1,
        }
    }

    /// Counts what became of a command.
    pub fn count_result(&mut self, result: &DiskResult) {
        match result {
            DiskResult::Read(Err(_)) => self.read_errors += 1,
            DiskResult::Done(Err(DiskError::Failed)) => self.write_errors += 1,
            DiskResult::Read(Ok(_)) | DiskResult::Done(_) => {}
        }
    }

    /// Names and values, in a fixed order.
    pub fn list(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("disk_reads", self.disk_reads),
            ("disk_read_bytes", self.disk_read_bytes),
            ("disk_writes", self.disk_writes),
            ("disk_write_bytes", self.disk_write_bytes),
            ("disk_durable_writes", self.disk_durable_writes),
            ("disk_syncs", self.disk_syncs),
            ("disk_reservations", self.disk_reservations),
            ("read_errors", self.read_errors),
            ("write_errors", self.write_errors),
            ("bytes_accepted", self.bytes_accepted),
            ("journal_batches", self.batches),
            ("journal_bytes", self.journal_bytes),
            ("journal_blocks", self.journal_blocks),
            ("chunks_written", self.chunks_written),
            ("blocks_homed", self.blocks_homed),
            ("checkpoints", self.checkpoints),
            ("object_requests", self.requests),
            ("keys_swept", self.keys_swept),
        ]
    }
}
