//! A window of inodes: each of them is compared with its entries, extents and marks.

use crate::check::finding::{Finding, Report};
use crate::check::scan::{Scan, decode};
use crate::entries::{GROUP_MAX, first_cookie};
use crate::inodes::MADE;
use crate::keys;
use crate::records::{Inode, Parameters, decode_entry, decode_extent};
use braid_base::{BLOCK_BYTES, InodeId};
use braid_objects::{Key, Kind, NotHere, Obstacle, View};
use braid_wire::{DirectoryEntry, FileAttributes, FileExtent, FileType};
use bytes::Bytes;
use std::collections::BTreeMap;

/// Inodes with neighbouring numbers.
#[derive(Clone, Debug)]
pub struct InodeWindow {
    first: InodeId,
    /// Known once the inodes have been read.
    last: InodeId,
    most: usize,
    tallies: BTreeMap<InodeId, Tally>,
    pass: Pass,
    scan: Scan,
    /// The names of the group of entries that is being read, and the directory and first cookie of that group.
    group: ((InodeId, u64), Vec<Bytes>),
}

/// What is read of all inodes of the window, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    Inodes,
    Extents,
    Marks,
    Entries,
    /// The parents of directories, from this inode on.
    Parents(InodeId),
}

/// An inode, and what was found of it.
#[derive(Clone, Debug)]
struct Tally {
    attributes: FileAttributes,
    /// Entries that refer to it.
    names: u64,
    /// Entries in it, and directories among them.
    entries: u64,
    directories: u64,
    /// Blocks of its extents, and the block behind the last one.
    blocks: u64,
    end: u64,
    is_listed: bool,
    /// Its parents lead to the root.
    is_attached: bool,
}

impl InodeWindow {
    pub fn from(first: InodeId, most: usize) -> InodeWindow {
        let all = keys::inode(first)..=*keys::all(Kind::Inode).end();
        let (tallies, group) = (BTreeMap::new(), ((first, 0), Vec::new()));
        InodeWindow { first, last: InodeId(u64::MAX), most, tallies, pass: Pass::Inodes, scan: Scan::over(all), group }
    }

    /// The window after this one.
    pub fn next(&self, most: usize) -> Option<InodeWindow> {
        self.last.0.checked_add(1).map(|first| InodeWindow::from(InodeId(first), most))
    }

    /// Reads one more key. True if the window is complete.
    pub fn advance(
        &mut self,
        view: &mut dyn View,
        parameters: &Parameters,
        report: &mut Report,
    ) -> Result<bool, NotHere> {
        if let Pass::Parents(from) = self.pass {
            return self.follow_parents(from, view, report);
        }
        match self.scan.advance(view, report)? {
            Some((key, value)) => self.take(key, &value, parameters, report),
            None => self.end_pass(report),
        }
        Ok(false)
    }

    fn take(&mut self, key: Key, value: &Bytes, parameters: &Parameters, report: &mut Report) {
        match self.pass {
            Pass::Inodes => {
                report.counted.inodes += 1;
                if key.of & MADE == 0 {
                    report.counted.last_inode = report.counted.last_inode.max(key.of);
                }
                if let Some(inode) = decode(key, value, report, |key, value| Inode::decode(InodeId(key.of), value)) {
                    self.tallies.insert(InodeId(key.of), Tally::new(inode.attributes));
                }
                if self.tallies.len() == self.most {
                    self.last = InodeId(key.of);
                    self.end_pass(report);
                }
            }
            Pass::Extents => {
                if let Some(extent) = decode(key, value, report, decode_extent) {
                    self.take_extent(InodeId(key.of), extent, report);
                }
            }
            Pass::Marks => match self.tallies.get_mut(&InodeId(key.index)) {
                Some(tally) => tally.is_listed = true,
                None => report.add(Finding::ListedWithoutInode { inode: InodeId(key.index) }),
            },
            Pass::Entries => {
                if let Some(entry) = decode(key, value, report, decode_entry) {
                    self.take_entry(InodeId(key.of), &entry, parameters, report);
                }
            }
            Pass::Parents(_) => unreachable!("this pass reads no range of keys"),
        }
    }

    fn take_extent(&mut self, inode: InodeId, extent: FileExtent, report: &mut Report) {
        let tally = self.tallies.get_mut(&inode);
        match tally.filter(|tally| tally.attributes.file_type == FileType::Regular) {
            None => report.add(Finding::ExtentWithoutFile { inode, at: extent.at }),
            Some(tally) => {
                if extent.at < tally.end {
                    report.add(Finding::OverlappingExtents { inode, at: extent.at });
                }
                tally.blocks = tally.blocks.saturating_add(extent.blocks.count);
                tally.end = extent.end();
            }
        }
    }

    fn take_entry(&mut self, directory: InodeId, entry: &DirectoryEntry, parameters: &Parameters, report: &mut Report) {
        let inode = entry.inode;
        if self.covers(directory) {
            self.check_name(directory, entry, parameters, report);
            match self.tallies.get_mut(&directory) {
                Some(tally) if tally.attributes.file_type == FileType::Directory => {
                    tally.entries += 1;
                    tally.directories += u64::from(entry.file_type == FileType::Directory);
                }
                _ => report.add(Finding::EntryWithoutDirectory { directory }),
            }
        }
        if self.covers(inode) {
            match self.tallies.get_mut(&inode) {
                Some(tally) if tally.attributes.file_type == entry.file_type => {
                    tally.names += 1;
                    if tally.attributes.parent.is_some_and(|parent| parent != directory) {
                        report.add(Finding::WrongParent { inode, directory });
                    }
                }
                _ => report.add(Finding::EntryWithoutInode { directory, inode }),
            }
        }
    }

    /// The cookie of an entry fits its name, which no other entry of the group has.
    fn check_name(&mut self, directory: InodeId, entry: &DirectoryEntry, parameters: &Parameters, report: &mut Report) {
        let first = first_cookie(parameters, &entry.name);
        if !(first..first + GROUP_MAX).contains(&entry.cookie) {
            report.add(Finding::MisplacedEntry { directory, inode: entry.inode });
        }
        if self.group.0 != (directory, first) {
            self.group = ((directory, first), Vec::new());
        }
        if self.group.1.contains(&entry.name) {
            report.add(Finding::DoubleName { directory, inode: entry.inode });
        }
        self.group.1.push(entry.name.clone());
    }

    fn covers(&self, inode: InodeId) -> bool {
        (self.first..=self.last).contains(&inode)
    }

    fn end_pass(&mut self, report: &mut Report) {
        let (first, last) = (self.first.0, self.last.0);
        let whole = |kind| Key { kind, of: first, index: 0 }..=Key { kind, of: last, index: u64::MAX };
        let (pass, scan) = match self.pass {
            Pass::Inodes => (Pass::Extents, whole(Kind::Extent)),
            Pass::Extents => (Pass::Marks, keys::reclaim(self.first)..=keys::reclaim(self.last)),
            Pass::Marks => (Pass::Entries, keys::all(Kind::Name)),
            Pass::Entries | Pass::Parents(_) => {
                self.tallies.values().for_each(|tally| tally.judge(report));
                self.pass = Pass::Parents(self.first);
                return;
            }
        };
        (self.pass, self.scan) = (pass, Scan::over(scan));
    }

    /// Follows the parents of one directory. True if there are no further ones.
    fn follow_parents(&mut self, from: InodeId, view: &mut dyn View, report: &mut Report) -> Result<bool, NotHere> {
        let is_directory = |tally: &Tally| tally.attributes.parent.is_some() && tally.attributes.links > 0;
        let found = self.tallies.range(from..).find(|(_, tally)| is_directory(tally));
        let Some(inode) = found.map(|(inode, _)| *inode) else { return Ok(true) };
        if self.leads_to_root(inode, view)? {
            self.tallies.get_mut(&inode).expect("it was found").is_attached = true;
        } else {
            report.add(Finding::Detached { inode });
        }
        match inode.0.checked_add(1) {
            Some(next) => self.pass = Pass::Parents(InodeId(next)),
            None => return Ok(true),
        }
        Ok(false)
    }

    /// Follows parents up to the root, or to a directory from which this was done. A cycle is found by comparison with an earlier
    /// directory of the way, which is replaced after 1, 2, 4, … levels (Brent's algorithm).
    fn leads_to_root(&self, inode: InodeId, view: &mut dyn View) -> Result<bool, NotHere> {
        let (mut directory, mut earlier) = (inode, inode);
        let (mut levels, mut limit) = (0_u64, 1);
        loop {
            if directory == InodeId::ROOT || self.tallies.get(&directory).is_some_and(|tally| tally.is_attached) {
                return Ok(true);
            }
            let value = match view.get(keys::inode(directory)) {
                Ok(value) => value,
                Err(Obstacle::NotHere) => return Err(NotHere),
                Err(Obstacle::Lost) => None,
            };
            let inode = value.and_then(|value| Inode::decode(directory, &value).ok());
            let Some(parent) = inode.and_then(|inode| inode.attributes.parent) else { return Ok(false) };
            if parent == earlier {
                return Ok(false);
            }
            levels += 1;
            if levels == limit {
                (earlier, levels, limit) = (parent, 0, limit * 2);
            }
            directory = parent;
        }
    }
}

impl Tally {
    fn new(attributes: FileAttributes) -> Tally {
        Tally {
            attributes,
            names: 0,
            entries: 0,
            directories: 0,
            blocks: 0,
            end: 0,
            is_listed: false,
            is_attached: false,
        }
    }

    /// Compares the attributes with what was found.
    fn judge(&self, report: &mut Report) {
        let FileAttributes { inode, file_type, links, size, blocks, .. } = self.attributes;
        let is_directory = file_type == FileType::Directory;
        // The root has no entry, but counts as if it had one.
        let names = self.names + u64::from(inode == InodeId::ROOT);
        let expected = if is_directory && names > 0 { 2 + self.directories } else { names };
        if is_directory && names > 1 {
            report.add(Finding::SeveralNames { inode, names });
        }
        let (links_found, is_orphan) = (u64::from(links), links == 0);
        if links_found != expected {
            report.add(Finding::WrongLinks { inode, links, expected });
        }
        if is_directory && size != self.entries {
            report.add(Finding::WrongSize { inode, size, expected: self.entries });
        }
        if blocks != self.blocks {
            report.add(Finding::WrongBlocks { inode, blocks, expected: self.blocks });
        }
        let has_more = file_type == FileType::Regular && self.end > size.div_ceil(BLOCK_BYTES as u64);
        if (is_orphan || has_more) && !self.is_listed {
            report.add(Finding::NotListed { inode });
        }
    }
}
