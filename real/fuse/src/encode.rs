//! Answers and notifications for the kernel. Each is one write to `/dev/fuse`: a header, at most two structures, and data, which is not
//! copied.

use crate::SpaceStatus;
use crate::abi::{
    Attr, AttrOut, Dirent, EntryOut, FileLock, GetxattrOut, InitOut, InvalInodeOut, LseekOut, OpenOut, OutHeader,
    StatfsOut, StoreOut, WriteOut, flag, notification,
};
use braid_base::{BLOCK_BYTES, InodeId, limits};
use braid_wire::{FileAttributes, FileTime, FileType, SpecialType};
use bytes::Bytes;
use rustix::io::Errno;
use std::io::IoSlice;
use zerocopy::{Immutable, IntoBytes};

/// The header and the structures of the longest answer: that to CREATE.
const HEAD_BYTES_MAX: usize = size_of::<OutHeader>() + size_of::<EntryOut>() + size_of::<OpenOut>();
/// The system writes no more buffers at once (IOV_MAX).
const BUFFERS_MAX: usize = 1024;
const NANOSECONDS: i64 = 1_000_000_000;
/// The unit of `st_blocks`.
const SECTOR_BYTES: u64 = 512;

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Error(Errno),
    /// Success, without a result.
    Done,
    Init(InitOut),
    /// An inode by its name.
    Entry(FileAttributes),
    Attributes(FileAttributes),
    /// By this handle.
    Opened(u64),
    Created(FileAttributes, u64),
    DirectoryOpened,
    /// So many bytes.
    Written(u32),
    /// Where data or a hole is.
    Found(u64),
    /// How long the names of extended attributes are: there are none.
    NoAttributes,
    Status(SpaceStatus),
    Lock(FileLock),
    /// The target of a symbolic link, or what was read.
    Data(Vec<Bytes>),
    /// Encoded by [`Listing`].
    Directory(Vec<u8>),
}

/// An answer or a notification as bytes.
#[derive(Clone, Debug)]
pub struct Frame {
    head: [u8; HEAD_BYTES_MAX],
    head_length: usize,
    data: Vec<Bytes>,
}

impl Frame {
    pub fn answer(unique: u64, reply: Reply) -> Frame {
        let mut frame = Frame::new(OutHeader { len: 0, error: 0, unique });
        match reply {
            Reply::Error(error) => {
                frame = Frame::new(OutHeader { len: 0, error: -error.raw_os_error(), unique });
            }
            Reply::Done => {}
            Reply::Init(init) => frame.push(&init),
            Reply::Entry(attributes) => frame.push(&entry(&attributes)),
            Reply::Attributes(attributes) => frame.push(&AttrOut { attr: attr(&attributes), ..AttrOut::default() }),
            Reply::Opened(handle) => frame.push(&opened(handle)),
            Reply::Created(attributes, handle) => {
                frame.push(&entry(&attributes));
                frame.push(&opened(handle));
            }
            Reply::DirectoryOpened => frame.push(&OpenOut::default()),
            Reply::Written(length) => frame.push(&WriteOut { size: length, padding: 0 }),
            Reply::Found(offset) => frame.push(&LseekOut { offset }),
            Reply::NoAttributes => frame.push(&GetxattrOut::default()),
            Reply::Status(status) => frame.push(&statfs(&status)),
            Reply::Lock(lock) => frame.push(&lock),
            Reply::Data(data) => frame.data = data,
            Reply::Directory(entries) => frame.data = vec![entries.into()],
        }
        frame.finish()
    }

    /// The kernel drops what it has cached of an inode: pages of these bytes, and the attributes. A negative offset means the attributes
    /// alone.
    pub fn invalidate_inode(inode: InodeId, offset: i64, length: i64) -> Frame {
        let mut frame = Frame::notification(notification::INVAL_INODE);
        frame.push(&InvalInodeOut { ino: inode.0, off: offset, len: length });
        frame.finish()
    }

    /// The kernel takes a byte into its cache. If it is behind the end of the file, as the kernel knows it, the file is as long now.
    pub fn store_byte(inode: InodeId, offset: u64, byte: u8) -> Frame {
        let mut frame = Frame::notification(notification::STORE);
        frame.push(&StoreOut { nodeid: inode.0, offset, size: 1, padding: 0 });
        frame.data = vec![Bytes::copy_from_slice(&[byte])];
        frame.finish()
    }

    pub fn slices(&self) -> Vec<IoSlice<'_>> {
        let head = IoSlice::new(&self.head[..self.head_length]);
        std::iter::once(head).chain(self.data.iter().map(|data| IoSlice::new(data))).collect()
    }

    pub fn len(&self) -> usize {
        self.head_length + self.data.iter().map(Bytes::len).sum::<usize>()
    }

    fn notification(code: u32) -> Frame {
        Frame::new(OutHeader { len: 0, error: code as i32, unique: 0 })
    }

    fn new(header: OutHeader) -> Frame {
        let mut frame = Frame { head: [0; HEAD_BYTES_MAX], head_length: 0, data: Vec::new() };
        frame.push(&header);
        frame
    }

    fn push<T: IntoBytes + Immutable>(&mut self, structure: &T) {
        let end = self.head_length + size_of::<T>();
        self.head[self.head_length..end].copy_from_slice(structure.as_bytes());
        self.head_length = end;
    }

    /// Sets the length, which the header begins with.
    fn finish(mut self) -> Frame {
        if self.data.len() >= BUFFERS_MAX {
            self.data = vec![self.data.concat().into()];
        }
        let length = u32::try_from(self.len()).expect("a read is shorter than 4 GiB");
        self.head[..4].copy_from_slice(&length.to_ne_bytes());
        self
    }
}

/// Entries of a directory, as many as there is room for.
#[derive(Debug)]
pub struct Listing {
    entries: Vec<u8>,
    room: usize,
}

impl Listing {
    pub fn new(room: usize) -> Listing {
        Listing { entries: Vec::with_capacity(room), room }
    }

    /// How many more entries there can be room for.
    pub fn most(&self) -> usize {
        (self.room - self.entries.len()) / padded(size_of::<Dirent>() + 1)
    }

    /// Adds an entry; the list continues after its cookie. False if there is no room.
    pub fn push(&mut self, inode: InodeId, cookie: u64, file_type: FileType, name: &[u8]) -> bool {
        let length = padded(size_of::<Dirent>() + name.len());
        if self.entries.len() + length > self.room {
            return false;
        }
        let end = self.entries.len() + length;
        let kind = type_bits(file_type) >> 12;
        let entry = Dirent { ino: inode.0, off: cookie, namelen: name.len() as u32, kind };
        self.entries.extend_from_slice(entry.as_bytes());
        self.entries.extend_from_slice(name);
        self.entries.resize(end, 0);
        true
    }

    pub fn finish(self) -> Vec<u8> {
        self.entries
    }
}

/// The length of a directory entry with its padding.
fn padded(length: usize) -> usize {
    length.next_multiple_of(8)
}

/// The kernel caches neither the name nor the attributes: all of their times are zero.
fn entry(attributes: &FileAttributes) -> EntryOut {
    EntryOut { nodeid: attributes.inode.0, attr: attr(attributes), ..EntryOut::default() }
}

fn attr(attributes: &FileAttributes) -> Attr {
    let (atime, atimensec) = time(attributes.atime);
    let (mtime, mtimensec) = time(attributes.mtime);
    let (ctime, ctimensec) = time(attributes.ctime);
    Attr {
        ino: attributes.inode.0,
        size: attributes.size,
        blocks: attributes.blocks.saturating_mul(BLOCK_BYTES as u64 / SECTOR_BYTES),
        atime,
        mtime,
        ctime,
        atimensec,
        mtimensec,
        ctimensec,
        mode: type_bits(attributes.file_type) | u32::from(attributes.mode),
        nlink: attributes.links,
        uid: attributes.owner.uid,
        gid: attributes.owner.gid,
        rdev: attributes.device,
        blksize: BLOCK_BYTES as u32,
        flags: 0,
    }
}

fn time(time: FileTime) -> (i64, u32) {
    (time.0.div_euclid(NANOSECONDS), time.0.rem_euclid(NANOSECONDS) as u32)
}

/// A time that a request sets. One that is too far in the past or in the future becomes the first or last one that files can have.
pub fn file_time(seconds: i64, nanoseconds: u32) -> FileTime {
    let time = i128::from(seconds) * i128::from(NANOSECONDS) + i128::from(nanoseconds);
    FileTime(time.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64)
}

/// The bits of a mode that are the file's type.
pub fn type_bits(file_type: FileType) -> u32 {
    match file_type {
        FileType::Regular => 0o100_000,
        FileType::Directory => 0o040_000,
        FileType::SymbolicLink => 0o120_000,
        FileType::Special(SpecialType::Fifo) => 0o010_000,
        FileType::Special(SpecialType::Socket) => 0o140_000,
        FileType::Special(SpecialType::CharacterDevice) => 0o020_000,
        FileType::Special(SpecialType::BlockDevice) => 0o060_000,
    }
}

/// The kernel caches no bytes, and passes writes on side by side.
fn opened(handle: u64) -> OpenOut {
    let open_flags = flag::FOPEN_DIRECT_IO | flag::FOPEN_PARALLEL_DIRECT_WRITES;
    OpenOut { fh: handle, open_flags, padding: 0 }
}

fn statfs(SpaceStatus { status, free_inodes }: &SpaceStatus) -> StatfsOut {
    // There is no table of inodes. If the metadata servers do not tell their room, there may be as many as there are free blocks.
    let free_inodes = free_inodes.unwrap_or(status.free);
    StatfsOut {
        blocks: status.blocks,
        bfree: status.free,
        bavail: status.free,
        files: status.inodes.saturating_add(free_inodes),
        ffree: free_inodes,
        bsize: BLOCK_BYTES as u32,
        namelen: limits::FILE_NAME_BYTES_MAX as u32,
        frsize: BLOCK_BYTES as u32,
        ..StatfsOut::default()
    }
}
