//! The workload on a file system: random operations of processes on few names and few files, so that they collide.

use crate::file_options::FileOptions;
use crate::file_records::{FileCall, HeldLock, OpenFile};
use crate::prelude::*;
use braid_check::{FileAction, FileFailure, FileOperation, FileTag, FileValue, UNIT_BYTES};
use braid_machine::AdvisoryOwner;
use braid_wire::{AttributeChange, FileCommand, FileError, FileType, LockMode, NewInode, Owner, SpecialType};

/// The names in each directory.
const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
/// Writes begin below this offset.
const OFFSET_MAX: u64 = 32 << 10;
/// Files that are longer are truncated.
const SIZE_MAX: u64 = 64 << 10;
/// A process has at most this many files open.
const OPEN_MAX: usize = 3;
/// Inodes of each type that the workload remembers; the oldest is forgotten.
const KNOWN_MAX: usize = 8;
/// Bytes on which processes ask for advisory locks.
const LOCKED_MAX: u64 = 64;

/// A generator of operations.
#[derive(Clone, Debug)]
pub struct FileWorkload {
    rng: Rng,
    names: u64,
    directories: Vec<InodeId>,
    files: Vec<InodeId>,
    links: Vec<InodeId>,
    last_tag: u64,
}

impl FileWorkload {
    pub fn new(options: &FileOptions, rng: Rng) -> FileWorkload {
        let (directories, files, links) = (vec![InodeId::ROOT], Vec::new(), Vec::new());
        FileWorkload { rng, names: options.names, directories, files, links, last_tag: 0 }
    }

    /// The next operation of a process that has these files open, and these advisory locks. `client` is its number on its host.
    pub(crate) fn operation(&mut self, client: usize, open: &[OpenFile], held: &[HeldLock]) -> FileCall {
        if self.rng.below(100) < self.names || self.files.is_empty() {
            return self.of_names();
        }
        let Some(file) = self.pick(open) else { return self.open() };
        match self.rng.below(100) {
            0..8 if open.len() < OPEN_MAX => self.open(),
            0..16 => self.close(open, held),
            16..28 => self.lock(client, open, held),
            28..31 => (FilesRequest::Sync { handle: file.handle }, FileAction::Sync { inode: file.inode }),
            31..38 => self.truncate(),
            38..60 => self.read(file),
            60..76 => self.append(file),
            _ => self.write(file),
        }
    }

    /// Learns inodes from an answer.
    pub(crate) fn learn(&mut self, operation: &FileOperation) {
        for attributes in operation.attributes() {
            let known = match attributes.file_type {
                FileType::Directory => &mut self.directories,
                FileType::Regular => &mut self.files,
                FileType::SymbolicLink | FileType::Special(_) => &mut self.links,
            };
            if !known.contains(&attributes.inode) {
                known.push(attributes.inode);
            }
            // The root stays.
            if known.len() > KNOWN_MAX {
                known.remove(1);
            }
        }
        let is_stale = operation.answer() == Some(&Err(FileFailure::Refused(FileError::Stale)));
        let inode = match &operation.action {
            FileAction::Open { inode } | FileAction::Truncate { inode, .. } => Some(*inode),
            FileAction::Command(FileCommand::Stat { inode }) => Some(*inode),
            _ => None,
        };
        if let Some(stale) = inode.filter(|_| is_stale) {
            let known = [&mut self.directories, &mut self.files, &mut self.links];
            known.into_iter().for_each(|known| known.retain(|inode| *inode != stale));
        }
        let is_long = |size: u64| size > SIZE_MAX;
        if let Some(Ok(FileValue::Appended { offset, .. })) = operation.answer()
            && is_long(*offset)
        {
            // It is not used any more.
            let FileAction::Append { inode: long, .. } = operation.action else { return };
            self.files.retain(|inode| *inode != long);
        }
    }

    fn of_names(&mut self) -> FileCall {
        let (parent, name) = self.place();
        let command = match self.rng.below(100) {
            0..24 => self.create(parent, name),
            24..34 => FileCommand::Lookup { parent, name },
            34..42 => FileCommand::Stat { inode: self.any() },
            42..50 => FileCommand::ReadDirectory { inode: parent, after: 0, most: 1_000 },
            50..53 => FileCommand::ReadLink { inode: self.any() },
            53..60 => FileCommand::Link { inode: self.any(), parent, name },
            60..70 => FileCommand::Unlink { parent, name },
            70..76 => FileCommand::RemoveDirectory { parent, name },
            76..94 => {
                let (new_parent, new_name) = self.place();
                FileCommand::Rename { parent, name, new_parent, new_name, no_replace: self.rng.chance(1, 4) }
            }
            _ => {
                let mode = Some(self.rng.below(0o1000) as u16);
                FileCommand::SetAttributes {
                    inode: self.any(),
                    change: AttributeChange { mode, ..AttributeChange::default() },
                }
            }
        };
        let request = match command.clone() {
            FileCommand::Create { parent, name, node: NewInode::Regular, exclusive: true, owner, mode }
                if self.rng.chance(2, 3) =>
            {
                FilesRequest::Create { parent, name, owner, mode }
            }
            command => FilesRequest::Command(command),
        };
        (request, FileAction::Command(command))
    }

    fn create(&mut self, parent: InodeId, name: Bytes) -> FileCommand {
        let node = match self.rng.below(20) {
            0..10 => NewInode::Regular,
            10..18 => NewInode::Directory,
            18 => NewInode::Special { special: SpecialType::CharacterDevice, device: 0x501 },
            _ => NewInode::SymbolicLink { target: Bytes::from_static(b"a/b") },
        };
        let (exclusive, mode) = (self.rng.chance(1, 2), self.rng.below(0o1000) as u16);
        FileCommand::Create { parent, name, node, exclusive, owner: Owner::default(), mode }
    }

    fn open(&mut self) -> FileCall {
        let files = self.files.clone();
        let inode = self.pick(&files).unwrap_or(InodeId::ROOT);
        (FilesRequest::Open { inode }, FileAction::Open { inode })
    }

    /// Closes a file on which the process has no lock.
    fn close(&mut self, open: &[OpenFile], held: &[HeldLock]) -> FileCall {
        let free = |file: &&OpenFile| held.iter().all(|lock| lock.inode != file.inode);
        let free: Vec<OpenFile> = open.iter().filter(free).copied().collect();
        match self.pick(&free) {
            Some(OpenFile { handle, inode, .. }) => (FilesRequest::Close { handle }, FileAction::Close { inode }),
            None => self.open(),
        }
    }

    fn truncate(&mut self) -> FileCall {
        let files = self.files.clone();
        let inode = self.pick(&files).expect("there are files");
        let size = if self.rng.chance(1, 3) { 0 } else { self.rng.below(OFFSET_MAX / UNIT_BYTES) * UNIT_BYTES };
        (FilesRequest::Truncate { inode, size }, FileAction::Truncate { inode, size })
    }

    fn read(&mut self, OpenFile { handle, inode, .. }: OpenFile) -> FileCall {
        let all = self.rng.chance(1, 2);
        let offset = if all { 0 } else { self.offset() };
        let length = if all { 2 * SIZE_MAX } else { self.length() };
        (FilesRequest::Read { handle, offset, length: length as usize }, FileAction::Read { inode, offset, length })
    }

    fn write(&mut self, OpenFile { handle, inode, .. }: OpenFile) -> FileCall {
        let (offset, length, tag) = (self.offset(), self.length(), self.tag());
        let data = tag.fill(length);
        (FilesRequest::Write { handle, offset, data }, FileAction::Write { inode, offset, length, tag })
    }

    fn append(&mut self, OpenFile { handle, inode, .. }: OpenFile) -> FileCall {
        let (length, tag) = (self.length(), self.tag());
        (FilesRequest::Append { handle, data: tag.fill(length) }, FileAction::Append { inode, length, tag })
    }

    /// A process has at most one advisory lock at a time, and waits only while it has none. So every wait ends.
    fn lock(&mut self, client: usize, open: &[OpenFile], held: &[HeldLock]) -> FileCall {
        let owner = AdvisoryOwner(client as u64);
        if let Some(lock) = held.first()
            && let Some(file) = open.iter().find(|file| file.inode == lock.inode)
        {
            let (handle, inode, range) = (file.handle, file.inode, lock.range.clone());
            if self.rng.chance(1, 5) {
                let exclusive = !lock.exclusive;
                let action = FileAction::Lock { inode, owner: owner.0, range: range.clone(), exclusive, waits: false };
                return (FilesRequest::Lock { handle, owner, range, mode: mode(exclusive), wait: false }, action);
            }
            let action = FileAction::Unlock { inode, owner: owner.0, range: range.clone() };
            return (FilesRequest::Unlock { handle, owner, range }, action);
        }
        let file = self.pick(open).expect("a file is open");
        let (handle, inode) = (file.handle, file.inode);
        let start = self.rng.below(LOCKED_MAX);
        let range = start..start + self.rng.between(1, LOCKED_MAX / 2);
        let exclusive = self.rng.chance(1, 2);
        if self.rng.chance(1, 6) {
            let action = FileAction::TestLock { inode, owner: owner.0, range: range.clone(), exclusive };
            return (FilesRequest::TestLock { handle, owner, range, mode: mode(exclusive) }, action);
        }
        let wait = self.rng.chance(1, 3);
        let action = FileAction::Lock { inode, owner: owner.0, range: range.clone(), exclusive, waits: wait };
        (FilesRequest::Lock { handle, owner, range, mode: mode(exclusive), wait }, action)
    }

    fn place(&mut self) -> (InodeId, Bytes) {
        let directories = self.directories.clone();
        let parent =
            if self.rng.chance(1, 2) { InodeId::ROOT } else { self.pick(&directories).unwrap_or(InodeId::ROOT) };
        (parent, Bytes::from_static(self.pick(&NAMES).expect("there are names").as_bytes()))
    }

    /// An inode of any type, mostly a file.
    fn any(&mut self) -> InodeId {
        let known = match self.rng.below(6) {
            0 => &self.directories,
            1 => &self.links,
            _ => &self.files,
        };
        let known = known.clone();
        self.pick(&known).unwrap_or(InodeId::ROOT)
    }

    fn tag(&mut self) -> FileTag {
        self.last_tag += 1;
        FileTag(self.last_tag)
    }

    fn offset(&mut self) -> u64 {
        let offset = self.rng.below(OFFSET_MAX);
        let to = [UNIT_BYTES, UNIT_BYTES, BLOCK_BYTES as u64][self.rng.below(3) as usize];
        offset / to * to
    }

    fn length(&mut self) -> u64 {
        match self.rng.below(4) {
            0 | 1 => self.rng.between(1, 8) * UNIT_BYTES,
            2 => self.rng.between(1, 3) * BLOCK_BYTES as u64,
            _ => self.rng.between(1, 96) * UNIT_BYTES,
        }
    }

    fn pick<T: Clone>(&mut self, among: &[T]) -> Option<T> {
        (!among.is_empty()).then(|| among[self.rng.below(among.len() as u64) as usize].clone())
    }
}

pub(crate) fn mode(exclusive: bool) -> LockMode {
    if exclusive { LockMode::Exclusive } else { LockMode::Shared }
}

/// True if the operation is a command that lists a directory.
pub(crate) fn listed(result: &FileResult) -> Option<&[braid_wire::DirectoryEntry]> {
    match result {
        FileResult::Entries { entries, .. } => Some(entries),
        _ => None,
    }
}
