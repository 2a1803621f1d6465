//! The list of hosts that may hold locks. It is all that a lock server keeps on its disk. A host is in the list before
//! it is granted anything.

use braid_base::{Generation, limits};
use braid_machine::{DiskError, DiskResult, Effects};
use braid_two_copy_record::{Progress, RecordError, StoredRecord, TwoCopyRecord, disk_image, is_written};
use bytes::{Buf, BufMut};
use std::collections::{BTreeMap, BTreeSet};

/// The size of a lock server's disk.
pub const DISK_BYTES: u64 = Hosts::DISK_BYTES;

/// The content of the disk of a lock server of which no host holds a lock. A disk of zeros may also be one that was lost.
pub fn empty_list() -> Vec<u8> {
    disk_image(&Hosts::default())
}

/// True if this content of a disk contains no list that was ever durable: the list was lost, or there never was one. A first list that was
/// written in part counts as none: hosts may have reported their locks meanwhile.
pub fn is_list_lost(disk: &[u8]) -> bool {
    matches!(is_written::<Hosts>(disk), Ok(false))
}

/// The reason why a list can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// Both slots hold something that is not a list.
    #[error("the lock server's list of hosts is damaged: start every host again, then remove the list")]
    Damaged,
    /// The list was written by a newer release.
    #[error("the lock server's list of hosts has format {found}, which this release does not know")]
    NewerFormat {
        /// The format found on the disk.
        found: u32,
    },
    /// The disk can't be read or written.
    #[error("the lock server's disk: {0}")]
    Disk(DiskError),
}

impl From<RecordError> for ListError {
    fn from(error: RecordError) -> ListError {
        match error {
            // There was no format before the first.
            RecordError::Damaged | RecordError::OlderFormat { .. } => ListError::Damaged,
            RecordError::NewerFormat { found } => ListError::NewerFormat { found },
            RecordError::Disk(error) => ListError::Disk(error),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Hosts(BTreeSet<Generation>);

const GENERATION_BYTES: usize = 4;
const _: () = assert!(limits::HOSTS_MAX * GENERATION_BYTES <= Hosts::COPY_BYTES - Hosts::EXTRA_BYTES);

impl TwoCopyRecord for Hosts {
    const MAGIC: [u8; 8] = *b"BraidLck";
    const FORMAT: u32 = 1;
    const COPY_BYTES: usize = 8 << 10;

    fn put(&self, to: &mut Vec<u8>) {
        self.0.iter().for_each(|host| to.put_u32_le(host.0));
    }

    fn take(_format: u32, from: &mut &[u8]) -> Option<Hosts> {
        let count = from.len() / GENERATION_BYTES;
        (count <= limits::HOSTS_MAX).then(|| Hosts((0..count).map(|_| Generation(from.get_u32_le())).collect()))
    }
}

/// The list, in memory and on disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostList {
    record: StoredRecord<Hosts>,
    /// What is on disk is not up to date.
    is_stale: bool,
    /// Hosts that are ending, and the lock that each gave back last: they are told once the list on disk does not name them.
    ending: BTreeMap<Generation, u64>,
}

impl HostList {
    /// Begins to read the list.
    pub fn start(&self, out: &mut Effects) {
        self.record.start(out);
    }

    /// A disk command has ended.
    pub fn on_disk_done(&mut self, result: DiskResult, out: &mut Effects) -> Result<Progress, ListError> {
        Ok(self.record.on_disk_done(result, out)?)
    }

    pub fn hosts(&self) -> &BTreeSet<Generation> {
        &self.record.durable().0
    }

    /// True if `host` is in the list, and in the one that is being written, if any.
    pub fn contains(&self, host: Generation) -> bool {
        self.hosts().contains(&host) && self.record.writing().is_none_or(|writing| writing.0.contains(&host))
    }

    /// Other hosts may belong into the list than those on disk.
    pub fn set_stale(&mut self) {
        self.is_stale = true;
    }

    /// True if the list is to be written, and no write is under way.
    pub fn is_due(&self) -> bool {
        self.is_stale && !self.is_writing()
    }

    /// Writes the list if `hosts` differ from it. True if it did.
    pub fn update(&mut self, hosts: BTreeSet<Generation>, out: &mut Effects) -> bool {
        assert!(!self.is_writing(), "one write of the list is under way at a time");
        self.is_stale = false;
        self.record.update(Hosts(hosts), out)
    }

    pub fn is_writing(&self) -> bool {
        self.record.writing().is_some()
    }

    /// A host that is not to be in the list has given back this lock, its last one.
    pub fn add_ending(&mut self, host: Generation, lock_id: u64) {
        self.ending.insert(host, lock_id);
    }

    /// Takes out the hosts that are to be told, if the list on disk is up to date.
    pub fn take_ending(&mut self) -> BTreeMap<Generation, u64> {
        if self.is_stale || self.is_writing() { BTreeMap::new() } else { std::mem::take(&mut self.ending) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_lost_unless_one_copy_was_written_or_both_are_damaged() {
        let mut disk = vec![0; DISK_BYTES as usize];
        assert!(is_list_lost(&disk));
        let list = empty_list();
        disk[..100].copy_from_slice(&list[..100]);
        assert!(is_list_lost(&disk), "the first write of all was torn");
        disk[Hosts::COPY_BYTES] = 1;
        assert!(!is_list_lost(&disk), "both copies are damaged");
        disk[..Hosts::COPY_BYTES].copy_from_slice(&list[..Hosts::COPY_BYTES]);
        assert!(!is_list_lost(&disk));
    }

    #[test]
    fn as_many_hosts_as_there_may_be_fit_in() {
        let most = limits::HOSTS_MAX as u32;
        let hosts = Hosts((0..most).map(Generation).collect());
        let mut bytes = Vec::new();
        hosts.put(&mut bytes);
        assert_eq!(Hosts::take(Hosts::FORMAT, &mut &bytes[..]), Some(hosts));
        bytes.put_u32_le(most);
        assert_eq!(Hosts::take(Hosts::FORMAT, &mut &bytes[..]), None, "a list with too many hosts is invalid");
    }
}
