//! Requests of the kernel, decoded. A request is one read of `/dev/fuse`: a header, a structure, and names or data. Names and data are
//! parts of the request's buffer.

use crate::abi::{
    BatchForgetIn, CreateIn, FileLock, FlushIn, ForgetIn, ForgetOne, FsyncIn, GetattrIn, GetxattrIn, InHeader, InitIn,
    InterruptIn, LinkIn, LkIn, LseekIn, MkdirIn, MknodIn, OpenIn, ReadIn, ReleaseIn, Rename2In, RenameIn, SetattrIn,
    WriteIn, flag, opcode,
};
use bytes::{Buf, Bytes};
use zerocopy::{FromBytes, IntoBytes};

/// A request. Its header says who asks, and for which inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub header: InHeader,
    pub operation: Operation,
}

/// What a request asks for. Structures have the kernel's names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The first request: the version and the features of the kernel.
    Init { major: u32, minor: u32, flags: u32 },
    /// The inode that has this name.
    Lookup(Bytes),
    /// Inodes beside that of the header.
    Forget(Vec<u64>),
    /// By this open file. None: the kernel has none at hand, also for `fstat`.
    GetAttributes(Option<u64>),
    /// Those that are marked as valid.
    SetAttributes(SetattrIn),
    /// The target of a symbolic link.
    ReadLink,
    /// A new one, with this target.
    SymbolicLink { name: Bytes, target: Bytes },
    /// A new inode of the type in the mode, which may be a device.
    MakeNode { mode: u32, device: u32, name: Bytes },
    /// A new one, which is empty.
    MakeDirectory { mode: u32, name: Bytes },
    /// Removes a name that is not a directory's.
    Unlink(Bytes),
    /// Removes the name of an empty directory.
    RemoveDirectory(Bytes),
    /// Moves a name.
    Rename { new_parent: u64, flags: u32, name: Bytes, new_name: Bytes },
    /// Gives this inode a further name.
    Link { inode: u64, name: Bytes },
    /// With these flags.
    Open(u32),
    /// Creates a regular file, and opens it.
    Create { flags: u32, mode: u32, name: Bytes },
    /// Reads bytes. `for_pages`: the kernel keeps what it reads in its cache of pages.
    Read { handle: u64, offset: u64, length: u32, for_pages: bool },
    /// Writes bytes. `loses_privileges`: those who execute the file must not have its owner's privileges afterwards, nor its group's.
    Write { handle: u64, offset: u64, flags: u32, loses_privileges: bool, data: Bytes },
    /// To the next bytes that are in no hole, or to the next hole.
    Seek(LseekIn),
    /// What is free.
    StatFileSystem,
    /// A descriptor of this handle is closed: the owner's locks end.
    Flush { handle: u64, owner: u64 },
    /// The last descriptor of this handle is closed.
    Release(u64),
    /// The bytes of this handle.
    Sync(u64),
    /// The names of extended attributes, which have this room. Zero: only their length is asked for.
    ListAttributes(u32),
    /// To list it.
    OpenDirectory,
    /// The entries after this one, as many as have room.
    ReadDirectory { offset: u64, room: u32 },
    /// The list is closed.
    ReleaseDirectory,
    /// The names of a directory, which are durable.
    SyncDirectory,
    /// Whether another owner has a lock that conflicts.
    TestLock(LockRequest),
    /// Locks or unlocks. `waits`: until no other owner has a lock that conflicts.
    SetLock { lock: LockRequest, waits: bool },
    /// The program of the request with this number has had a signal.
    Interrupt(u64),
    /// The file system is unmounted.
    Destroy,
    /// A request that is not served. The kernel does without.
    Unknown,
}

/// A lock on bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRequest {
    pub handle: u64,
    pub owner: u64,
    pub lock: FileLock,
    /// See [`FUSE_LK_FLOCK`](crate::abi::flag::FUSE_LK_FLOCK).
    pub flags: u32,
}

/// Why bytes are no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Not even a header: there is nothing to answer.
    #[error("a request of {length} bytes has no header")]
    NoHeader { length: usize },
    /// The header states another length.
    #[error("a request of {length} bytes states another length")]
    Length { unique: u64, length: usize },
    #[error("request {opcode} is malformed")]
    Malformed { unique: u64, opcode: u32 },
}

impl DecodeError {
    /// The number of the request, if it can be answered.
    pub fn unique(&self) -> Option<u64> {
        match self {
            DecodeError::NoHeader { .. } => None,
            DecodeError::Length { unique, .. } | DecodeError::Malformed { unique, .. } => Some(*unique),
        }
    }
}

pub fn decode(request: &Bytes) -> Result<Request, DecodeError> {
    let length = request.len();
    let Ok((header, _)) = InHeader::read_from_prefix(request) else { return Err(DecodeError::NoHeader { length }) };
    let InHeader { unique, opcode, .. } = header;
    if header.len as usize != length {
        return Err(DecodeError::Length { unique, length });
    }
    let mut body = Body(request.slice(size_of::<InHeader>()..));
    match operation(opcode, &mut body) {
        Some(operation) => Ok(Request { header, operation }),
        None => Err(DecodeError::Malformed { unique, opcode }),
    }
}

/// The operation of a request; none if it is malformed.
fn operation(opcode: u32, body: &mut Body) -> Option<Operation> {
    let operation = match opcode {
        opcode::INIT => body.init()?,
        opcode::FORGET => body.structure::<ForgetIn>().map(|_| Operation::Forget(Vec::new()))?,
        opcode::BATCH_FORGET => {
            let BatchForgetIn { count, .. } = body.structure()?;
            let others = (0..count).map(|_| body.structure::<ForgetOne>().map(|one| one.nodeid));
            Operation::Forget(others.collect::<Option<_>>()?)
        }
        opcode::STATFS => Operation::StatFileSystem,
        opcode::INTERRUPT => Operation::Interrupt(body.structure::<InterruptIn>()?.unique),
        opcode::DESTROY => Operation::Destroy,
        opcode::LOOKUP..=opcode::LINK | opcode::RENAME2 => return named(opcode, body),
        _ => return open_file(opcode, body),
    };
    Some(operation)
}

/// Requests about names and attributes.
fn named(opcode: u32, body: &mut Body) -> Option<Operation> {
    let operation = match opcode {
        opcode::LOOKUP => Operation::Lookup(body.last_name()?),
        opcode::GETATTR => {
            let GetattrIn { getattr_flags, fh, .. } = body.structure()?;
            Operation::GetAttributes((getattr_flags & flag::FUSE_GETATTR_FH != 0).then_some(fh))
        }
        opcode::SETATTR => Operation::SetAttributes(body.structure()?),
        opcode::READLINK => Operation::ReadLink,
        opcode::SYMLINK => Operation::SymbolicLink { name: body.name()?, target: body.last_name()? },
        opcode::MKNOD => {
            let MknodIn { mode, rdev, .. } = body.structure()?;
            Operation::MakeNode { mode, device: rdev, name: body.last_name()? }
        }
        opcode::MKDIR => Operation::MakeDirectory { mode: body.structure::<MkdirIn>()?.mode, name: body.last_name()? },
        opcode::UNLINK => Operation::Unlink(body.last_name()?),
        opcode::RMDIR => Operation::RemoveDirectory(body.last_name()?),
        opcode::RENAME => {
            let RenameIn { newdir } = body.structure()?;
            Operation::Rename { new_parent: newdir, flags: 0, name: body.name()?, new_name: body.last_name()? }
        }
        opcode::RENAME2 => {
            let Rename2In { newdir, flags, .. } = body.structure()?;
            Operation::Rename { new_parent: newdir, flags, name: body.name()?, new_name: body.last_name()? }
        }
        opcode::LINK => Operation::Link { inode: body.structure::<LinkIn>()?.oldnodeid, name: body.last_name()? },
        _ => Operation::Unknown,
    };
    Some(operation)
}

/// Requests about open files and directories.
fn open_file(opcode: u32, body: &mut Body) -> Option<Operation> {
    let operation = match opcode {
        opcode::OPEN => Operation::Open(body.structure::<OpenIn>()?.flags),
        opcode::CREATE => {
            let CreateIn { flags, mode, .. } = body.structure()?;
            Operation::Create { flags, mode, name: body.last_name()? }
        }
        opcode::READ => {
            let ReadIn { fh, offset, size, read_flags, .. } = body.structure()?;
            // Only what a program itself reads has an owner.
            let for_pages = read_flags & flag::FUSE_READ_LOCKOWNER == 0;
            Operation::Read { handle: fh, offset, length: size, for_pages }
        }
        opcode::WRITE => {
            let WriteIn { fh, offset, size, write_flags, flags, .. } = body.structure()?;
            let data = std::mem::take(&mut body.0);
            if data.len() != size as usize {
                return None;
            }
            let loses_privileges = write_flags & flag::FUSE_WRITE_KILL_SUIDGID != 0;
            Operation::Write { handle: fh, offset, flags, loses_privileges, data }
        }
        opcode::FLUSH => {
            let FlushIn { fh, lock_owner, .. } = body.structure()?;
            Operation::Flush { handle: fh, owner: lock_owner }
        }
        opcode::RELEASE => Operation::Release(body.structure::<ReleaseIn>()?.fh),
        opcode::FSYNC => Operation::Sync(body.structure::<FsyncIn>()?.fh),
        opcode::LSEEK => Operation::Seek(body.structure()?),
        opcode::LISTXATTR => Operation::ListAttributes(body.structure::<GetxattrIn>()?.size),
        opcode::OPENDIR => body.structure::<OpenIn>().map(|_| Operation::OpenDirectory)?,
        opcode::READDIR => {
            let ReadIn { offset, size, .. } = body.structure()?;
            Operation::ReadDirectory { offset, room: size }
        }
        opcode::RELEASEDIR => body.structure::<ReleaseIn>().map(|_| Operation::ReleaseDirectory)?,
        opcode::FSYNCDIR => body.structure::<FsyncIn>().map(|_| Operation::SyncDirectory)?,
        opcode::GETLK => Operation::TestLock(body.lock()?),
        opcode::SETLK => Operation::SetLock { lock: body.lock()?, waits: false },
        opcode::SETLKW => Operation::SetLock { lock: body.lock()?, waits: true },
        _ => Operation::Unknown,
    };
    Some(operation)
}

/// What follows the header, as far as it is not decoded yet.
struct Body(Bytes);

impl Body {
    fn structure<T: FromBytes>(&mut self) -> Option<T> {
        let (structure, _) = T::read_from_prefix(&self.0).ok()?;
        self.0.advance(size_of::<T>());
        Some(structure)
    }

    /// A name or a target, which ends with a zero byte.
    fn name(&mut self) -> Option<Bytes> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let name = self.0.split_to(end);
        self.0.advance(1);
        Some(name)
    }

    /// A name that nothing follows.
    fn last_name(&mut self) -> Option<Bytes> {
        self.name().filter(|_| self.0.is_empty())
    }

    fn lock(&mut self) -> Option<LockRequest> {
        let LkIn { fh, owner, lk, lk_flags, .. } = self.structure()?;
        (lk.start <= lk.end).then_some(LockRequest { handle: fh, owner, lock: lk, flags: lk_flags })
    }

    /// The first request has grown with the versions of the protocol, and may grow further.
    fn init(&mut self) -> Option<Operation> {
        let mut init = InitIn::default();
        let length = self.0.len().min(size_of::<InitIn>());
        init.as_mut_bytes()[..length].copy_from_slice(&self.0[..length]);
        // The two versions are there in any case.
        let is_whole = length >= 8 && (init.major != crate::abi::MAJOR || length >= 16);
        is_whole.then_some(Operation::Init { major: init.major, minor: init.minor, flags: init.flags })
    }
}
