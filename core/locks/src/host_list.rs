//! The hosts that may hold claims: all that a lock server keeps on its disk.
//!
//! ```text
//!   0      slot 0: magic, format, sequence, count, generations …, checksum in the slot's last four bytes
//!   8 KiB  slot 1: likewise
//! ```
//!
//! The slot with the higher sequence counts; the other one is written next. A list is written to one slot after the other, and is
//! the one that holds only when both have it: so a slot may be torn by a crash, or rot, and the other says what counts. A host is
//! in the list before it is granted anything.

use braid_base::checksum::crc32c;
use braid_base::{AlignedBuffer, Generation, limits};
use braid_machine::{DiskCommand, DiskError, DiskResult, DiskTag, Effects};
use bytes::{Buf, BufMut, Bytes};
use std::collections::BTreeSet;

/// Bytes of a lock server's disk.
pub const DISK_BYTES: u64 = 2 * SLOT_BYTES as u64;

/// The format that this release writes.
const FORMAT: u32 = 1;
const MAGIC: [u8; 8] = *b"BraidLck";
const SLOT_BYTES: usize = 8 << 10;
const CHECKSUM_AT: usize = SLOT_BYTES - 4;
const HEADER_BYTES: usize = 24;
const _: () = assert!(HEADER_BYTES + limits::HOSTS_MAX * 4 <= CHECKSUM_AT);

const READ: DiskTag = DiskTag(0);

/// Why a list can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// Both slots hold something else than a list.
    #[error("the lock server's list of hosts is damaged: start every host again, then remove the list")]
    Damaged,
    /// A newer release wrote it.
    #[error("the lock server's list of hosts has format {found}, which this release does not know")]
    NewerFormat {
        /// Its format.
        found: u32,
    },
    /// The disk can't be read or written.
    #[error("the lock server's disk: {0}")]
    Disk(DiskError),
}

/// What the end of a disk command brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The list has been read.
    Read,
    /// It is being written still.
    Writing,
    /// It has been written.
    Written,
}

/// The list, in memory and on disk.
#[derive(Debug, Default)]
pub(crate) struct HostList {
    durable: BTreeSet<Generation>,
    /// Both slots have it.
    twice: bool,
    writing: Option<Writing>,
    sequence: u64,
}

#[derive(Debug)]
struct Writing {
    hosts: BTreeSet<Generation>,
    /// One slot has it.
    once: bool,
}

impl HostList {
    /// Begins to read it.
    pub fn start(&self, out: &mut Effects) {
        out.disk(READ, DiskCommand::Read { offset: 0, length: DISK_BYTES as usize });
    }

    /// Hears of the end of a disk command.
    pub fn on_disk_done(&mut self, result: DiskResult, out: &mut Effects) -> Result<Progress, ListError> {
        match result {
            DiskResult::Read(bytes) => {
                let (sequence, hosts, twice) = newest(&bytes.map_err(ListError::Disk)?)?;
                *self = HostList { durable: hosts, twice, writing: None, sequence };
                Ok(Progress::Read)
            }
            DiskResult::Done(done) => {
                done.map_err(ListError::Disk)?;
                let writing = self.writing.as_mut().expect("only this list is written");
                if !std::mem::replace(&mut writing.once, true) {
                    self.write_slot(out);
                    return Ok(Progress::Writing);
                }
                self.durable = self.writing.take().expect("just seen").hosts;
                self.twice = true;
                Ok(Progress::Written)
            }
        }
    }

    /// The hosts in it.
    pub fn hosts(&self) -> &BTreeSet<Generation> {
        &self.durable
    }

    /// True if `host` is in it, and stays in it.
    pub fn contains(&self, host: Generation) -> bool {
        self.durable.contains(&host) && self.writing.as_ref().is_none_or(|writing| writing.hosts.contains(&host))
    }

    /// Writes it anew if these hosts are others, and it is not being written. True if it does.
    pub fn update(&mut self, hosts: BTreeSet<Generation>, out: &mut Effects) -> bool {
        if self.writing.is_some() || (self.twice && self.durable == hosts) {
            return false;
        }
        self.writing = Some(Writing { hosts, once: false });
        self.write_slot(out);
        true
    }

    fn write_slot(&mut self, out: &mut Effects) {
        let writing = self.writing.as_ref().expect("there is something to write");
        self.sequence += 1;
        let offset = self.sequence % 2 * SLOT_BYTES as u64;
        let data = vec![encode(self.sequence, &writing.hosts)];
        out.disk(DiskTag(self.sequence), DiskCommand::Write { offset, data, durable: true });
    }

    /// True while a write is under way.
    pub fn is_writing(&self) -> bool {
        self.writing.is_some()
    }
}

/// The newest whole slot, and whether the other says the same. A slot of zeros was never written.
fn newest(disk: &[u8]) -> Result<(u64, BTreeSet<Generation>, bool), ListError> {
    let mut slots = Vec::new();
    let mut unwritten = false;
    for slot in disk.chunks(SLOT_BYTES) {
        unwritten |= slot.iter().all(|byte| *byte == 0);
        match decode(slot) {
            Err(ListError::Damaged) => {}
            other => slots.push(other?),
        }
    }
    slots.sort_by_key(|(sequence, _)| *sequence);
    match slots.pop() {
        Some((sequence, hosts)) => {
            let twice = slots.pop().is_some_and(|(_, older)| older == hosts);
            Ok((sequence, hosts, twice))
        }
        // One that is torn beside one that was never written: the first write of all, before which nobody held anything.
        None if unwritten => Ok((0, BTreeSet::new(), true)),
        None => Err(ListError::Damaged),
    }
}

fn decode(slot: &[u8]) -> Result<(u64, BTreeSet<Generation>), ListError> {
    let whole = slot.len() == SLOT_BYTES && slot[..8] == MAGIC;
    if !whole || slot[CHECKSUM_AT..] != crc32c(&slot[..CHECKSUM_AT]).to_le_bytes() {
        return Err(ListError::Damaged);
    }
    let mut from = &slot[8..];
    let found = from.get_u32_le();
    if found > FORMAT {
        return Err(ListError::NewerFormat { found });
    }
    let count = from.get_u32_le() as usize;
    let sequence = from.get_u64_le();
    if count > limits::HOSTS_MAX {
        return Err(ListError::Damaged);
    }
    Ok((sequence, (0..count).map(|_| Generation(from.get_u32_le())).collect()))
}

fn encode(sequence: u64, hosts: &BTreeSet<Generation>) -> Bytes {
    let mut slot = AlignedBuffer::zeroed(SLOT_BYTES);
    let mut to = &mut slot[..];
    to.put_slice(&MAGIC);
    to.put_u32_le(FORMAT);
    to.put_u32_le(hosts.len() as u32);
    to.put_u64_le(sequence);
    hosts.iter().for_each(|host| to.put_u32_le(host.0));
    let checksum = crc32c(&slot[..CHECKSUM_AT]);
    slot[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
    slot.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_machine::Effect;

    fn list(hosts: &[u32]) -> BTreeSet<Generation> {
        hosts.iter().map(|host| Generation(*host)).collect()
    }

    #[test]
    fn the_newest_whole_slot_counts() {
        let mut disk = [encode(8, &list(&[1])), encode(9, &list(&[1, 2]))].concat();
        assert_eq!(newest(&disk), Ok((9, list(&[1, 2]), false)));
        disk[SLOT_BYTES + 20] ^= 1;
        assert_eq!(newest(&disk), Ok((8, list(&[1]), false)));
        disk[20] ^= 1;
        assert_eq!(newest(&disk), Err(ListError::Damaged), "whoever is in neither may hold something");
    }

    #[test]
    fn a_disk_of_zeros_is_an_empty_list_even_if_its_first_write_was_torn() {
        let mut disk = vec![0; DISK_BYTES as usize];
        assert_eq!(newest(&disk), Ok((0, list(&[]), true)));
        disk[SLOT_BYTES..][..100].copy_from_slice(&encode(1, &list(&[1]))[..100]);
        assert_eq!(newest(&disk), Ok((0, list(&[]), true)));
    }

    #[test]
    fn no_list_that_was_written_is_lost_with_a_slot() {
        let mut disk = vec![0; DISK_BYTES as usize];
        let mut lists = HostList::default();
        for round in 1..5 {
            let written = list(&[round]);
            let mut out = Effects::new();
            lists.update(written.clone(), &mut out);
            for _ in 0..2 {
                let write = out.drain().next();
                let Some(Effect::Disk { command: DiskCommand::Write { offset, data, .. }, .. }) = write else {
                    panic!("each slot is written");
                };
                disk[offset as usize..][..SLOT_BYTES].copy_from_slice(&data[0]);
                lists.on_disk_done(DiskResult::Done(Ok(())), &mut out).expect("it was written");
            }
            assert_eq!(newest(&disk).map(|(_, hosts, twice)| (hosts, twice)), Ok((written.clone(), true)));
            for slot in [0, SLOT_BYTES] {
                disk[slot + 30] ^= 1;
                assert_eq!(newest(&disk).map(|(_, hosts, _)| hosts), Ok(written.clone()));
                disk[slot + 30] ^= 1;
            }
        }
    }

    #[test]
    fn a_list_that_only_one_slot_has_is_written_again() {
        let disk = [encode(8, &list(&[1])), vec![1; SLOT_BYTES].into()].concat();
        let mut lists = HostList::default();
        let mut out = Effects::new();
        let read = DiskResult::Read(Ok(disk.into()));
        assert_eq!(lists.on_disk_done(read, &mut out), Ok(Progress::Read));
        assert!(lists.update(list(&[1]), &mut out));
    }

    #[test]
    fn a_newer_format_is_refused_by_name() {
        let mut slot = encode(1, &list(&[])).to_vec();
        slot[8] = 9;
        let checksum = crc32c(&slot[..CHECKSUM_AT]).to_le_bytes();
        slot[CHECKSUM_AT..].copy_from_slice(&checksum);
        assert_eq!(newest(&[slot, vec![0; SLOT_BYTES]].concat()), Err(ListError::NewerFormat { found: 9 }));
    }

    #[test]
    fn as_many_hosts_as_there_may_be_fit_in() {
        let hosts = (0..limits::HOSTS_MAX as u32).map(Generation).collect();
        assert_eq!(decode(&encode(1, &hosts)), Ok((1, hosts)));
    }
}
