//! Messages between hosts and the metadata server of a file system.
//!
//! A file system has inodes: regular files, directories, symbolic links and special files. A directory maps names to inodes. The bytes of a regular file
//! lie in blocks of a volume; its *extents* say in which. Hosts read and write these blocks themselves, and ask the metadata server for
//! everything else:
//!
//! ```text
//!   host                                  metadata server
//!    │ Create (parent, name)                  │
//!    │───────────────────────────────────────►│   evaluated, and logged together with its answer
//!    │◄────────────────── Created (attributes)│
//!    │ Reserve (blocks)                       │   the blocks now belong to the host's allotment
//!    │───────────────────────────────────────►│
//!    │◄────────────────────── Reserved (runs) │
//!    │   … writes to the volume …             │
//!    │ Attach (inode, extents, size)          │   the blocks now belong to the file
//!    │───────────────────────────────────────►│
//!    │◄───────────────── Attached (attributes)│
//! ```
//!
//! Each command is atomic and takes effect exactly once, however often its request is sent: a host repeats a request until it is answered,
//! and the server answers a repeated request as it answered the first. Everything that an answer says is durable.
//!
//! Names are bytes. Paths, permissions, `.` and `..` are the concern of the host.

use crate::declarations::wire;
use crate::rejection::Rejection;
use braid_base::{BLOCK_BYTES, BlockRange, Generation, InodeId, limits};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// A message from a host to a metadata server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRequest {
    /// The host's generation. Fencing refuses it.
    pub host: Generation,
    /// The settled mark: the host has the answers of all its requests with a lower sequence. The server may forget them.
    pub settled: u64,
    /// Sequences above that mark of further requests whose answers the host has. Each is sent once.
    pub over: Vec<u64>,
    /// Identifies the request among those of its host. The highest number is not used. It is lower than the settled mark plus
    /// [`limits::FILE_REQUESTS_MAX`]; the server refuses other commands than `Nothing` with [`FileError::Busy`].
    pub sequence: u64,
    pub command: FileCommand,
}

/// A message from a metadata server to a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileAnswer {
    /// The start of the server that answers: a number that rises with every start.
    pub start: Generation,
    pub sequence: u64,
    pub reply: FileReply,
}

/// The outcome of a command. A command that fails changes nothing.
pub type FileReply = Result<FileResult, FileError>;

/// A point in time, as files carry it: nanoseconds since 1970, negative before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FileTime(pub i64);

wire! {
    /// A command to a metadata server.
    #[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum FileCommand {
        /// Nothing: shows that the host is alive, and carries its settled mark.
        Nothing = 1,
        /// The inode of a name.
        Lookup { parent: InodeId, name: Bytes } = 2,
        /// The attributes of an inode.
        Stat { inode: InodeId } = 3,
        /// Entries of a directory, ascending by cookie. An entry keeps its cookie until it is removed, so that a list that continues after
        /// the last cookie neither skips nor repeats an entry.
        ReadDirectory {
            inode: InodeId,
            /// Begins after this cookie; zero: with the first entry. Cookies of entries are at least [`FIRST_COOKIE`].
            after: u64,
            /// How many at most, and at most [`limits::FILE_ENTRIES_MAX`].
            most: u32,
        } = 4,
        /// The target of a symbolic link.
        ReadLink { inode: InodeId } = 5,
        /// Creates an inode with a name.
        Create {
            parent: InodeId,
            name: Bytes,
            /// What to create.
            node: NewInode,
            /// Fails if the name exists. If not, a regular file or symbolic link that has the name is returned as it is. Directories and
            /// symbolic links are always created exclusively.
            exclusive: bool,
            owner: Owner,
            /// The permission bits; and [`OPENS`], if the host opens what is made.
            mode: u16,
        } = 6,
        /// Gives an inode that is no directory a further name.
        Link { inode: InodeId, parent: InodeId, name: Bytes } = 7,
        /// Removes a name of an inode that is no directory. With its last name, the inode becomes an *orphan*: it exists until no host has
        /// it open.
        Unlink { parent: InodeId, name: Bytes } = 8,
        /// Removes an empty directory, which becomes an orphan.
        RemoveDirectory { parent: InodeId, name: Bytes } = 9,
        /// Moves a name. An inode that had the new name loses it as by `Unlink` or `RemoveDirectory`. If both names belong to the same
        /// inode, nothing happens.
        Rename {
            parent: InodeId,
            name: Bytes,
            /// The directory of the new name.
            new_parent: InodeId,
            new_name: Bytes,
            /// Fails if the new name exists.
            no_replace: bool,
        } = 10,
        /// Sets attributes; `None` leaves them as they are.
        SetAttributes { inode: InodeId, change: AttributeChange } = 11,
        /// Sets the size of a regular file. What is added reads as zeros. The size changes at once, but a command frees at most
        /// [`limits::FILE_EXTENTS_FREED_MAX`] of the extents that are cut off; if there are more, the command is to be repeated. Until all
        /// are freed, the file does not grow. Bytes of the last block behind the size are not changed: the host overwrites them with zeros
        /// before it makes a file shorter or longer.
        Truncate { inode: InodeId, size: u64 } = 12,
        /// Extents of a regular file, ascending. What no extent covers reads as zeros.
        Map {
            inode: InodeId,
            /// The first block of the file to look at.
            from: u64,
            /// How many extents at most, and at most [`limits::FILE_EXTENTS_MAX`].
            most: u32,
        } = 13,
        /// Moves free blocks into the host's allotment: preferably whole stripes, so that there may be more blocks than asked for. There
        /// may also be fewer, but at least one.
        Reserve {
            /// At most [`limits::RESERVED_BLOCKS_MAX`].
            blocks: u64,
        } = 14,
        /// Makes blocks of the host's allotment blocks of a regular file. The blocks that they replace become free. If they replace more
        /// than [`limits::FILE_EXTENTS_FREED_MAX`] extents, only the first of them are attached.
        Attach {
            inode: InodeId,
            /// Ascending and disjoint; at most [`limits::FILE_EXTENTS_MAX`].
            extents: Vec<FileExtent>,
            /// The file is at least as long afterwards. Extents end in the block of its last byte.
            size: u64,
            /// The time of the last write.
            mtime: FileTime,
        } = 15,
        /// Makes blocks of the host's allotment free.
        GiveBack {
            /// At most [`limits::FILE_EXTENTS_MAX`].
            runs: Vec<BlockRange>,
        } = 16,
        /// The size of the file system, and what is free.
        StatFileSystem = 17,
    }
}

/// The locks of an inode are those of an object with its number, which metadata servers grant like lock servers. Their position says what
/// a lock protects. The lock of the bytes, the size and the extents: one block.
pub const DATA_LOCK: u16 = 0;
/// The lock of the inode's existence: one block, shared by the hosts that have the inode open.
pub const EXISTENCE_LOCK: u16 = 1;
/// Advisory locks of programs: ranges of bytes.
pub const ADVISORY_LOCKS: u16 = 2;

/// A bit beside the permissions of a regular file that is created exclusively: the host opens it. The server grants the host the locks of a
/// file that is open, if it can at once, and answers [`FileResult::Opened`].
pub const OPENS: u16 = 1 << 15;
/// Hosts number other locks below this.
const OPENING_LOCKS: u64 = 1 << 63;

/// The numbers of the locks that a host gets with the answer to a `Create` of this sequence: that of the existence, shared, and that of the
/// data, exclusive.
pub fn opening_locks(sequence: u64) -> [u64; 2] {
    let existence = OPENING_LOCKS | sequence << 1;
    [existence, existence | 1]
}

/// The sequence of the `Create` that this lock came with, if it came with one.
pub fn opening_sequence(lock_id: u64) -> Option<u64> {
    (lock_id & OPENING_LOCKS != 0).then_some((lock_id & !OPENING_LOCKS) >> 1)
}

/// The lowest cookie of a directory entry. Lower ones are left to the host, for `.` and `..`.
pub const FIRST_COOKIE: u64 = 256;

wire! {
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    pub enum FileResult {
        /// The result of `Nothing` and `GiveBack`.
        Done = 1,
        /// The result of `Lookup`, `Stat`, `Link` and `SetAttributes`: the inode as it is then.
        Attributes(attributes: FileAttributes) = 2,
        /// The result of `ReadDirectory`.
        Entries {
            entries: Vec<DirectoryEntry>,
            /// There are further entries.
            more: bool,
        } = 3,
        /// The result of `ReadLink`.
        Target(target: Bytes) = 4,
        Created {
            attributes: FileAttributes,
            /// False if the inode existed.
            is_new: bool,
        } = 5,
        /// The result of `Unlink` and `RemoveDirectory`: the inode without the name. It is an orphan if it has no links.
        Removed(attributes: FileAttributes) = 6,
        Renamed {
            moved: FileAttributes,
            /// The inode that had the new name. It is an orphan if it has no links.
            replaced: Option<FileAttributes>,
        } = 7,
        Truncated {
            attributes: FileAttributes,
            /// The file has the size that was asked for, and everything behind it is freed. Otherwise repeat the command.
            is_done: bool,
        } = 8,
        /// The result of `Map`.
        Extents {
            extents: Vec<FileExtent>,
            /// There are further extents.
            more: bool,
            /// The size of the file in bytes.
            size: u64,
        } = 9,
        Reserved(runs: Vec<BlockRange>) = 10,
        Attached {
            attributes: FileAttributes,
            /// `None` if all extents are attached. Otherwise only the blocks before this block of the file are: attach the rest, and set
            /// the size, by another command.
            next: Option<u64>,
        } = 11,
        /// The result of `StatFileSystem`.
        FileSystem(status: FileSystemStatus) = 12,
        /// The result of a `Create` with [`OPENS`]: a new file. The host holds its locks, which are cached ([`opening_locks`]). Without
        /// them the result is `Created`.
        Opened(attributes: FileAttributes) = 13,
    }

    /// The attributes of an inode.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct FileAttributes {
        pub inode: InodeId,
        pub file_type: FileType,
        /// The permission bits.
        pub mode: u16,
        pub owner: Owner,
        /// The number of names. A directory has two, and one for each directory in it; zero after its removal.
        pub links: u32,
        /// The length of a regular file or of a target in bytes; the number of entries of a directory.
        pub size: u64,
        /// Blocks of 4096 bytes that the extents cover.
        pub blocks: u64,
        pub atime: FileTime,
        pub mtime: FileTime,
        pub ctime: FileTime,
        /// The directory that contains this directory. The root is in itself. An inode of another type may be in several, so that it has
        /// none.
        pub parent: Option<InodeId>,
        /// The number of the device that a device file stands for; otherwise zero.
        pub device: u32,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum FileType {
        Regular = 1,
        Directory = 2,
        SymbolicLink = 3,
        Special(special: SpecialType) = 4,
    }

    /// The type of a special file. Its name is all that the file system keeps: what programs do with it is the concern of each host's
    /// kernel.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    pub enum SpecialType {
        /// A named pipe.
        Fifo = 1,
        Socket = 2,
        CharacterDevice = 3,
        BlockDevice = 4,
    }
}

impl SpecialType {
    pub const ALL: [SpecialType; 4] =
        [SpecialType::Fifo, SpecialType::Socket, SpecialType::CharacterDevice, SpecialType::BlockDevice];

    /// True if it stands for a device, which has a number.
    pub fn is_device(self) -> bool {
        matches!(self, SpecialType::CharacterDevice | SpecialType::BlockDevice)
    }
}

wire! {
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub struct Owner {
        pub uid: u32,
        pub gid: u32,
    }

    /// An inode to create.
    #[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum NewInode {
        Regular = 1,
        Directory = 2,
        SymbolicLink {
            /// At most [`limits::SYMBOLIC_LINK_BYTES_MAX`].
            target: Bytes,
        } = 3,
        Special {
            special: SpecialType,
            /// The number of the device; zero if it stands for none.
            device: u32,
        } = 4,
    }
}

impl NewInode {
    pub fn file_type(&self) -> FileType {
        match self {
            NewInode::Regular => FileType::Regular,
            NewInode::Directory => FileType::Directory,
            NewInode::SymbolicLink { .. } => FileType::SymbolicLink,
            NewInode::Special { special, .. } => FileType::Special(*special),
        }
    }

    /// The target of a symbolic link; otherwise empty.
    pub fn target(&self) -> &[u8] {
        if let NewInode::SymbolicLink { target } = self { target } else { &[] }
    }

    /// The number of a device; otherwise zero.
    pub fn device(&self) -> u32 {
        if let NewInode::Special { device, .. } = self { *device } else { 0 }
    }
}

wire! {
    /// Attributes to set.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub struct AttributeChange {
        pub mode: Option<u16>,
        pub uid: Option<u32>,
        pub gid: Option<u32>,
        pub atime: Option<NewTime>,
        pub mtime: Option<NewTime>,
    }

    /// A time to set.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum NewTime {
        /// The present time of the server.
        Now = 1,
        At(time: FileTime) = 2,
    }

    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    pub struct DirectoryEntry {
        pub cookie: u64,
        pub inode: InodeId,
        pub file_type: FileType,
        pub name: Bytes,
    }

    /// Blocks of a file, and where they lie in the volume.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub struct FileExtent {
        /// The first block of the file.
        pub at: u64,
        /// The blocks of the volume.
        pub blocks: BlockRange,
    }
}

impl FileExtent {
    /// The block of the file behind the extent.
    pub fn end(&self) -> u64 {
        self.at.saturating_add(self.blocks.count)
    }
}

/// The size of a file system, and what is free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileSystemStatus {
    /// Blocks of 4096 bytes.
    pub blocks: u64,
    /// Free blocks, without allotments.
    pub free: u64,
    /// Blocks in the allotments of hosts.
    pub allotted: u64,
    /// Inodes, orphans included.
    pub inodes: u64,
}

impl FileResult {
    /// Approximate bytes of memory that the result takes beside itself.
    pub fn memory_bytes(&self) -> usize {
        match self {
            FileResult::Entries { entries, .. } => {
                size_of_val(&entries[..]) + entries.iter().map(|entry| entry.name.len()).sum::<usize>()
            }
            FileResult::Target(target) => target.len(),
            FileResult::Extents { extents, .. } => size_of_val(&extents[..]),
            FileResult::Reserved(runs) => size_of_val(&runs[..]),
            _ => 0,
        }
    }
}

impl FileCommand {
    /// True if the command changes nothing, whatever it finds.
    pub fn only_asks(&self) -> bool {
        matches!(
            self,
            FileCommand::Nothing
                | FileCommand::Lookup { .. }
                | FileCommand::Stat { .. }
                | FileCommand::ReadDirectory { .. }
                | FileCommand::ReadLink { .. }
                | FileCommand::Map { .. }
                | FileCommand::StatFileSystem
        )
    }

    /// True if the host opens what is created.
    pub fn opens(&self) -> bool {
        matches!(self, FileCommand::Create { node: NewInode::Regular, exclusive: true, mode, .. } if mode & OPENS != 0)
    }

    /// The command without [`OPENS`].
    pub fn make_plain(&mut self) {
        if let FileCommand::Create { mode, .. } = self {
            *mode &= !OPENS;
        }
    }

    /// The inode whose metadata server executes the command: for a command on names, the directory. `None` for commands on the file system.
    pub fn inode(&self) -> Option<InodeId> {
        match self {
            FileCommand::Nothing
            | FileCommand::Reserve { .. }
            | FileCommand::GiveBack { .. }
            | FileCommand::StatFileSystem => None,
            FileCommand::Lookup { parent, .. }
            | FileCommand::Create { parent, .. }
            | FileCommand::Link { parent, .. }
            | FileCommand::Unlink { parent, .. }
            | FileCommand::RemoveDirectory { parent, .. }
            | FileCommand::Rename { parent, .. } => Some(*parent),
            FileCommand::Stat { inode }
            | FileCommand::ReadDirectory { inode, .. }
            | FileCommand::ReadLink { inode }
            | FileCommand::SetAttributes { inode, .. }
            | FileCommand::Truncate { inode, .. }
            | FileCommand::Map { inode, .. }
            | FileCommand::Attach { inode, .. } => Some(*inode),
        }
    }

    /// Approximate bytes of memory that the command takes beside itself.
    pub fn memory_bytes(&self) -> usize {
        match self {
            FileCommand::Lookup { name, .. }
            | FileCommand::Link { name, .. }
            | FileCommand::Unlink { name, .. }
            | FileCommand::RemoveDirectory { name, .. } => name.len(),
            FileCommand::Create { name, node: NewInode::SymbolicLink { target }, .. } => name.len() + target.len(),
            FileCommand::Create { name, .. } => name.len(),
            FileCommand::Rename { name, new_name, .. } => name.len() + new_name.len(),
            FileCommand::Attach { extents, .. } => size_of_val(&extents[..]),
            FileCommand::GiveBack { runs } => size_of_val(&runs[..]),
            _ => 0,
        }
    }

    /// Validates the command, independent of what the file system holds.
    pub fn check(&self) -> Result<(), FileError> {
        match self {
            FileCommand::Lookup { name, .. }
            | FileCommand::Link { name, .. }
            | FileCommand::Unlink { name, .. }
            | FileCommand::RemoveDirectory { name, .. } => check_name(name),
            FileCommand::Create { name, node, mode, .. } => {
                check_name(name)?;
                check_mode(if self.opens() { *mode & !OPENS } else { *mode })?;
                match node {
                    NewInode::SymbolicLink { target } => check_target(target),
                    NewInode::Special { special, device } if !special.is_device() && *device != 0 => {
                        Err(FileError::Malformed)
                    }
                    NewInode::Regular | NewInode::Directory | NewInode::Special { .. } => Ok(()),
                }
            }
            FileCommand::Rename { name, new_name, .. } => check_name(name).and(check_name(new_name)),
            FileCommand::SetAttributes { change, .. } => change.mode.map_or(Ok(()), check_mode),
            FileCommand::Truncate { size, .. } => check_size(*size),
            FileCommand::Reserve { blocks } => check(1..=limits::RESERVED_BLOCKS_MAX, *blocks),
            FileCommand::Attach { extents, size, .. } => {
                check_size(*size)?;
                check_extents(extents, size.div_ceil(BLOCK_BYTES as u64))
            }
            FileCommand::GiveBack { runs } => {
                check(0..=limits::FILE_EXTENTS_MAX as u64, runs.len() as u64)?;
                if runs.iter().any(|run| run.count == 0) { Err(FileError::Malformed) } else { Ok(()) }
            }
            FileCommand::Nothing
            | FileCommand::Stat { .. }
            | FileCommand::ReadDirectory { .. }
            | FileCommand::ReadLink { .. }
            | FileCommand::Map { .. }
            | FileCommand::StatFileSystem => Ok(()),
        }
    }
}

fn check(range: std::ops::RangeInclusive<u64>, number: u64) -> Result<(), FileError> {
    if range.contains(&number) { Ok(()) } else { Err(FileError::Malformed) }
}

fn check_name(name: &Bytes) -> Result<(), FileError> {
    if name.len() > limits::FILE_NAME_BYTES_MAX {
        return Err(FileError::NameTooLong);
    }
    let is_special = name.is_empty() || *name == b"."[..] || *name == b".."[..];
    if is_special || name.iter().any(|byte| matches!(byte, 0 | b'/')) {
        return Err(FileError::InvalidName);
    }
    Ok(())
}

fn check_target(target: &Bytes) -> Result<(), FileError> {
    if target.len() > limits::SYMBOLIC_LINK_BYTES_MAX {
        return Err(FileError::NameTooLong);
    }
    if target.is_empty() || target.contains(&0) { Err(FileError::InvalidName) } else { Ok(()) }
}

fn check_mode(mode: u16) -> Result<(), FileError> {
    check(0..=0o7777, u64::from(mode))
}

fn check_size(size: u64) -> Result<(), FileError> {
    if size > limits::FILE_BYTES_MAX { Err(FileError::TooLarge) } else { Ok(()) }
}

/// Extents are not empty, ascend, do not overlap, and end at `end` at the latest.
fn check_extents(extents: &[FileExtent], end: u64) -> Result<(), FileError> {
    check(0..=limits::FILE_EXTENTS_MAX as u64, extents.len() as u64)?;
    let mut next = 0;
    for extent in extents {
        let behind = extent.at.checked_add(extent.blocks.count).filter(|behind| *behind <= end);
        let is_sound = extent.blocks.count > 0 && extent.at >= next;
        next = behind.filter(|_| is_sound).ok_or(FileError::Malformed)?;
    }
    Ok(())
}

wire! {
    /// Why a command is not executed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
    pub enum FileError {
        #[error("the file was removed: look it up again by its name")]
        Stale = 1,
        /// The directory does not have the name, or was removed itself.
        #[error("no such file or directory")]
        NoSuchName = 2,
        #[error("a file of that name exists already: choose another name, or remove it")]
        Exists = 3,
        #[error("it is not a directory")]
        NotADirectory = 4,
        #[error("it is a directory")]
        IsADirectory = 5,
        #[error("it is not a regular file")]
        NotAFile = 6,
        #[error("it is not a symbolic link")]
        NotALink = 7,
        #[error("a directory can't have a second name: make a symbolic link instead")]
        LinkToDirectory = 8,
        #[error("the directory is not empty: remove its entries first")]
        NotEmpty = 9,
        #[error("a directory can't be moved into itself or into a directory below it")]
        IntoItself = 10,
        /// A directory can't be moved because its new parent is more than [`limits::DIRECTORY_DEPTH_MAX`] levels deep.
        #[error("the directory is too deep in the tree: move it to a higher one")]
        TooDeep = 11,
        /// A name or target is longer than [`limits::FILE_NAME_BYTES_MAX`] or [`limits::SYMBOLIC_LINK_BYTES_MAX`].
        #[error("the name is too long: a name may have 255 bytes, and the target of a symbolic link 4095")]
        NameTooLong = 12,
        #[error("the name is invalid: it must not be empty, nor `.` or `..`, nor contain a slash or a zero byte")]
        InvalidName = 13,
        /// See [`limits::LINKS_MAX`].
        #[error("the file has as many names, or the directory as many directories, as it may have")]
        TooManyLinks = 14,
        /// See [`limits::FILE_BYTES_MAX`].
        #[error("the file would be longer than a file may be")]
        TooLarge = 15,
        /// No blocks are free, or the metadata has no space. Removing still works.
        #[error("the file system is full: remove files")]
        NoSpace = 16,
        /// The directory has as many names with the hash of this one as it may have.
        #[error("the directory can't hold this name beside similar ones: choose another name")]
        DirectoryFull = 17,
        #[error("the blocks do not belong to this host: reserve blocks first")]
        NotAllotted = 18,
        #[error("metadata of the file system is damaged: check the file system")]
        Lost = 19,
        #[error("the metadata server has too many requests under way: try again later")]
        Busy = 20,
        #[error("the command is malformed")]
        Malformed = 21,
        /// The host is not served.
        #[error(transparent)]
        Rejected(rejection: Rejection) = 22,
    }
}
