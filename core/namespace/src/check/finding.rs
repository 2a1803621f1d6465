//! What a check of a file system can find.

use crate::records::Counters;
use braid_base::{BlockRange, InodeId};
use braid_objects::Key;

/// The most findings that a check lists.
const FINDINGS_MAX: usize = 1000;

/// A violation of an invariant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Finding {
    #[error("there is no file system: its parameters are missing or damaged")]
    NoFileSystem,
    #[error("no metadata server has made the file system yet: its volume is blank")]
    Blank,
    #[error("the record of the counters, or of an inode that is referred to, is missing: {key:?}")]
    Missing { key: Key },
    #[error("a record is damaged: {key:?}")]
    Damaged { key: Key },
    #[error("an entry belongs to directory {directory}, which is no directory")]
    EntryWithoutDirectory { directory: InodeId },
    #[error("an entry of directory {directory} refers to inode {inode}, which does not exist or has another type")]
    EntryWithoutInode { directory: InodeId, inode: InodeId },
    #[error("an entry of directory {directory}, for inode {inode}, has a cookie that does not fit its name")]
    MisplacedEntry { directory: InodeId, inode: InodeId },
    #[error("directory {directory} has two entries of the same name, one of them for inode {inode}")]
    DoubleName { directory: InodeId, inode: InodeId },
    #[error("directory {inode} has {names} names")]
    SeveralNames { inode: InodeId, names: u64 },
    #[error("directory {inode} has an entry in {directory}, but another parent")]
    WrongParent { inode: InodeId, directory: InodeId },
    #[error("the parents of directory {inode} do not lead to the root")]
    Detached { inode: InodeId },
    #[error("inode {inode} has {links} links, and should have {expected}")]
    WrongLinks { inode: InodeId, links: u32, expected: u64 },
    #[error("directory {inode} has {expected} entries, but its size is {size}")]
    WrongSize { inode: InodeId, size: u64, expected: u64 },
    #[error("inode {inode} has {expected} blocks in its extents, but its attributes say {blocks}")]
    WrongBlocks { inode: InodeId, blocks: u64, expected: u64 },
    #[error("an extent at block {at} belongs to inode {inode}, which is no regular file")]
    ExtentWithoutFile { inode: InodeId, at: u64 },
    #[error("inode {inode} has two extents for block {at}")]
    OverlappingExtents { inode: InodeId, at: u64 },
    #[error("inode {inode} has no links, or extents behind its size, but is not listed for reclaim")]
    NotListed { inode: InodeId },
    #[error("inode {inode} is listed for reclaim, but does not exist")]
    ListedWithoutInode { inode: InodeId },
    #[error("blocks {blocks} are not in the volume")]
    OutsideVolume { blocks: BlockRange },
    #[error("block {block} is used twice")]
    UsedTwice { block: u64 },
    #[error("blocks {blocks} are neither used nor free nor allotted")]
    Leaked { blocks: BlockRange },
    #[error("the counter of {what} is {counter}, and should be {expected}")]
    WrongCounter { what: &'static str, counter: u64, expected: u64 },
}

/// The findings of a check, and what it has counted.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub findings: Vec<Finding>,
    /// Findings beyond those that are listed.
    pub omitted: u64,
    /// What the counters should be.
    pub counted: Counters,
}

impl Report {
    pub fn add(&mut self, finding: Finding) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        } else {
            self.omitted += 1;
        }
    }

    /// Compares counters with what was counted.
    pub fn compare(&mut self, counters: Counters) {
        let counted = self.counted;
        for (what, counter, expected) in [
            ("inodes", counters.inodes, counted.inodes),
            ("free blocks", counters.free, counted.free),
            ("allotted blocks", counters.allotted, counted.allotted),
            // Inodes with higher numbers may be gone.
            ("numbers of inodes", counters.last_inode, counted.last_inode.max(counters.last_inode)),
        ] {
            if counter != expected {
                self.add(Finding::WrongCounter { what, counter, expected });
            }
        }
    }
}
