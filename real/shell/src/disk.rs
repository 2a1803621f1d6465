//! The disk of a machine: a file or a whole disk that is locked, and is read and written with direct I/O where the file system
//! supports it.
//!
//! [`Disk`] itself performs one command after the other, which is what tools need. A running machine has many commands in flight, through
//! an [`Engine`]: [`uring`] if the kernel supports io_uring, otherwise [`threads`].

mod engine;
mod read_buffer;
#[cfg(test)]
mod tests;
mod threads;
mod uring;

pub(crate) use engine::Engine;
pub use engine::EngineChoice;

use braid_base::AlignedBuffer;
use braid_machine::{DiskCommand, DiskError, DiskResult};
use bytes::{Buf, Bytes};
use rustix::fs::{FallocateFlags, FlockOperation, OFlags, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags};
use std::fs::File;
use std::io::{self, IoSlice, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Offsets and lengths of all disk commands are multiples of this.
const SECTOR_BYTES: usize = 512;
/// The block size of most file systems and disks.
const PAGE_BYTES: u32 = 4096;
/// The mode of a new file: it contains users' data.
const FILE_MODE: u32 = 0o600;
/// What group and others need in order to change a file.
const WRITE_OF_OTHERS: u32 = 0o022;
/// How long the end of an engine waits for its commands, and how often it looks.
const DRAIN_MAX: Duration = Duration::from_millis(200);
const DRAIN_PAUSE: Duration = Duration::from_millis(1);
/// The most buffers that the kernel accepts in one write.
const PARTS_MAX: usize = 1024;

/// How to open a disk.
#[derive(Clone, Copy, Debug)]
pub struct DiskOptions {
    /// Creates a sparse file of this many bytes, which is private to its owner; fails if the file exists.
    pub create: Option<u64>,
    /// Uses direct I/O (bypasses the page cache) where the file system supports it.
    pub direct: bool,
    /// Allows writing.
    pub write: bool,
}

impl Default for DiskOptions {
    fn default() -> Self {
        DiskOptions { create: None, direct: true, write: true }
    }
}

/// Why a disk can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum DiskOpenError {
    /// Another process has the disk open.
    #[error("{path} is in use, by another process or as a mounted disk: stop that use first")]
    InUse { path: PathBuf },
    /// A directory, a pipe, or the like.
    #[error("{path} is neither a file nor a disk")]
    NotADisk { path: PathBuf },
    /// A file that is to be written, and that other users can change.
    #[error("{path} can be changed by other users (mode {mode:04o})")]
    WritableByOthers { path: PathBuf, mode: u32 },
    /// The system reported an error.
    #[error("can't open {path}")]
    System { path: PathBuf, source: io::Error },
}

/// An open, locked disk.
#[derive(Debug)]
pub struct Disk {
    file: File,
    /// The file behind it, if it is a loop device: that is locked, too, so that nobody uses the file itself as a disk.
    _behind: Option<File>,
    path: PathBuf,
    size: u64,
    whole_disk: bool,
    /// The alignment of memory that direct I/O requires; none where the page cache is used.
    memory_alignment: Option<usize>,
}

impl Disk {
    /// Opens and locks the file or disk.
    pub fn open(path: &Path, options: &DiskOptions) -> Result<Disk, DiskOpenError> {
        let system = |source| DiskOpenError::System { path: path.into(), source };
        let there = path.metadata().map(|facts| facts.file_type()).ok();
        // Before it is opened: that would wait for the other end of a pipe.
        if there.is_some_and(|kind| !kind.is_file() && !kind.is_block_device()) {
            return Err(DiskOpenError::NotADisk { path: path.into() });
        }
        let mut open = File::options();
        open.read(true).write(options.write).create_new(options.create.is_some()).mode(FILE_MODE);
        if options.write && there.is_some_and(|kind| kind.is_block_device()) {
            // Prevents writing to a disk that is mounted, or is part of another device.
            open.custom_flags(OFlags::EXCL.bits() as i32);
        }
        let mut file = open.open(path).map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::BUSY) => DiskOpenError::InUse { path: path.into() },
            _ => system(error),
        })?;
        let facts = file.metadata().map_err(system)?;
        let (kind, mode) = (facts.file_type(), facts.mode() & 0o7777);
        // A raw disk has the mode that the system gives it.
        if options.write && kind.is_file() && mode & WRITE_OF_OTHERS != 0 {
            return Err(DiskOpenError::WritableByOthers { path: path.into(), mode });
        }
        let lock = |file: &File, path: &Path, how| match rustix::fs::flock(file, how) {
            Err(Errno::WOULDBLOCK) => Err(DiskOpenError::InUse { path: path.into() }),
            locked => locked.map_err(|error| system(error.into())),
        };
        // Against other processes, and against other openers in this process.
        lock(&file, path, FlockOperation::NonBlockingLockExclusive)?;
        let mut behind = None;
        if kind.is_block_device()
            && let Some((path, is_part)) = file_behind(facts.rdev())
            // It may be out of reach of this process.
            && let Ok(file) = File::open(&path)
        {
            let shared = FlockOperation::NonBlockingLockShared;
            lock(&file, &path, if is_part { shared } else { FlockOperation::NonBlockingLockExclusive })?;
            behind = Some(file);
        }
        if let Some(size) = options.create {
            file.set_len(size).map_err(system)?;
            sync_name(&file, path).map_err(system)?;
        }
        let size = file.seek(SeekFrom::End(0)).map_err(system)?;
        let whole_disk = kind.is_block_device();
        let mut disk = Disk { file, _behind: behind, path: path.into(), size, whole_disk, memory_alignment: None };
        if options.direct {
            disk.go_direct();
        }
        Ok(disk)
    }

    /// The size in bytes of the file or disk when it was opened.
    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The size in bytes of the unit that the storage below writes at once, as far as known: a power loss during a write may damage the
    /// other sectors of that unit. For a file it is the page size of the file system; the disk below may write smaller units, which is
    /// harmless.
    pub fn physical_sector(&self) -> u32 {
        let of_disk = || rustix::fs::ioctl_blkpbszget(&self.file).ok().filter(|bytes| bytes.is_power_of_two());
        let bytes = if self.whole_disk { of_disk() } else { None };
        bytes.map_or(PAGE_BYTES, |bytes| bytes.clamp(SECTOR_BYTES as u32, PAGE_BYTES))
    }

    /// True if direct I/O is used.
    pub fn is_direct(&self) -> bool {
        self.memory_alignment.is_some()
    }

    /// Performs one command.
    pub fn perform(&self, command: DiskCommand) -> DiskResult {
        match command {
            DiskCommand::Read { offset, length } => {
                let mut buffer = AlignedBuffer::zeroed(length);
                let done = self.read(offset, &mut buffer);
                DiskResult::Read(done.map(|()| buffer.freeze()).map_err(|error| self.error("read", offset, error)))
            }
            DiskCommand::Write { offset, data, durable } => {
                let done = self.write(offset, self.writable(data), durable);
                DiskResult::Done(done.map_err(|error| self.error("write", offset, error)))
            }
            DiskCommand::Sync => {
                let done = retry(|| rustix::fs::fdatasync(&self.file));
                DiskResult::Done(done.map_err(|error| self.error("sync", 0, error)))
            }
            DiskCommand::Reserve { offset, length } => {
                let done = match self.needs_no_reserve(offset, length) {
                    true => Ok(()),
                    false => retry(|| rustix::fs::fallocate(&self.file, FallocateFlags::empty(), offset, length)),
                };
                DiskResult::Done(done.map_err(|error| self.error("reserve", offset, error)))
            }
        }
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Errno> {
        let mut filled = 0;
        while filled < buffer.len() {
            let count = retry(|| rustix::io::pread(&self.file, &mut buffer[filled..], offset + filled as u64))?;
            filled += count;
            if self.ends_after(count, filled)? {
                break;
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, mut parts: Vec<Bytes>, durable: bool) -> Result<(), Errno> {
        let flags = if durable { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
        let mut offset = offset;
        while !parts.is_empty() {
            let slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
            let count = retry(|| rustix::io::pwritev2(&self.file, &slices, offset, flags))?;
            offset += count as u64;
            self.advance(&mut parts, count)?;
        }
        Ok(())
    }

    /// After a read of `count` bytes, `filled` in total: returns whether the file ends here, so that the rest of the buffer is zeros.
    fn ends_after(&self, count: usize, filled: usize) -> Result<bool, Errno> {
        // With direct I/O, the kernel stops within a sector only at the end of the file.
        let ends = count == 0 || (self.is_direct() && !filled.is_multiple_of(SECTOR_BYTES));
        if ends && self.whole_disk { Err(Errno::IO) } else { Ok(ends) }
    }

    /// Removes `count` written bytes from the front of `parts`.
    fn advance(&self, parts: &mut Vec<Bytes>, count: usize) -> Result<(), Errno> {
        if count == 0 || (self.is_direct() && !count.is_multiple_of(SECTOR_BYTES)) {
            return Err(Errno::IO);
        }
        let mut left = count;
        let whole = parts.iter().take_while(|part| {
            let fits = part.len() <= left;
            left -= if fits { part.len() } else { 0 };
            fits
        });
        let whole = whole.count();
        parts.drain(..whole);
        if let Some(first) = parts.first_mut() {
            first.advance(left);
        }
        Ok(())
    }

    /// The same bytes in buffers that this disk accepts, none of them empty: the given ones if possible, otherwise copies.
    fn writable(&self, mut data: Vec<Bytes>) -> Vec<Bytes> {
        data.retain(|part| !part.is_empty());
        let aligned = |part: &Bytes| match self.memory_alignment {
            None => true,
            Some(align) => part.as_ptr().addr().is_multiple_of(align) && part.len().is_multiple_of(SECTOR_BYTES),
        };
        if data.len() <= PARTS_MAX && data.iter().all(aligned) {
            return data;
        }
        let mut joined = AlignedBuffer::with_capacity(data.iter().map(Bytes::len).sum());
        data.iter().for_each(|part| joined.append(part));
        vec![joined.freeze()]
    }

    /// True if space need not be allocated: a whole disk has its space, while a file may have holes.
    fn needs_no_reserve(&self, offset: u64, length: u64) -> bool {
        length == 0 || (self.whole_disk && offset.saturating_add(length) <= self.size)
    }

    /// Logs a failure, and converts it to the error that the machine sees.
    fn error(&self, what: &str, offset: u64, error: Errno) -> DiskError {
        let path = self.path.display();
        match error {
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => {
                tracing::warn!("{path}: can't {what} at byte {offset}: {error}");
                DiskError::NoSpace
            }
            Errno::OPNOTSUPP if what == "reserve" => {
                tracing::error!(
                    "{path}: this file system can't reserve space: move the file to ext4, xfs, btrfs or tmpfs"
                );
                DiskError::Failed
            }
            _ => {
                tracing::error!("{path}: can't {what} at byte {offset}: {error}");
                DiskError::Failed
            }
        }
    }

    /// Switches to direct I/O if this file supports it with sector granularity; otherwise logs that it does not.
    fn go_direct(&mut self) {
        let flags = rustix::fs::fcntl_getfl(&self.file).unwrap_or(OFlags::empty());
        let alignment = direct_memory_alignment(&self.file);
        if let Some(alignment) = alignment
            && rustix::fs::fcntl_setfl(&self.file, flags | OFlags::DIRECT).is_ok()
        {
            let mut sector = AlignedBuffer::zeroed(SECTOR_BYTES);
            if rustix::io::pread(&self.file, &mut sector[..], 0).is_ok() {
                self.memory_alignment = Some(alignment);
                return;
            }
        }
        // Clearing the flag can't fail; if it did, the first read would report an error.
        let _ = rustix::fs::fcntl_setfl(&self.file, flags);
        tracing::info!(
            "{}: direct I/O is not supported with sector granularity: using the page cache",
            self.path.display()
        );
    }
}

/// Makes a new file and its name durable, so that it survives a power loss.
fn sync_name(file: &File, path: &Path) -> io::Result<()> {
    file.sync_all()?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// The file behind the loop device with this number, or behind its partition with this number; and whether only a part of the file shows there.
pub fn file_behind(number: u64) -> Option<(PathBuf, bool)> {
    let own = PathBuf::from(format!("/sys/dev/block/{}:{}", rustix::fs::major(number), rustix::fs::minor(number)));
    let is_partition = own.join("partition").exists();
    // That is a link: `..` of a partition is its disk.
    let folder = if is_partition { own.join("../loop") } else { own.join("loop") };
    let text = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
    let file = text("backing_file")?;
    let is_cut = ["offset", "sizelimit"].iter().any(|name| text(name).is_some_and(|bytes| bytes.trim() != "0"));
    Some((file.trim_end_matches('\n').into(), is_partition || is_cut))
}

/// The alignment of memory that direct I/O on this file requires; none if direct I/O requires offsets aligned to more than sectors, or is
/// known to be unsupported.
fn direct_memory_alignment(file: &File) -> Option<usize> {
    let known = rustix::fs::statx(file, c"", rustix::fs::AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    match known {
        Ok(facts) if StatxFlags::from_bits_retain(facts.stx_mask).contains(StatxFlags::DIOALIGN) => {
            let (memory, sector) = (facts.stx_dio_mem_align as usize, facts.stx_dio_offset_align as usize);
            (memory > 0 && memory <= AlignedBuffer::ALIGNMENT && SECTOR_BYTES.is_multiple_of(sector.max(1)))
                .then_some(memory)
        }
        // An older kernel does not tell: assume the strictest alignment, and let the trial read decide.
        _ => Some(AlignedBuffer::ALIGNMENT),
    }
}

fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR | Errno::AGAIN) => {}
            other => return other,
        }
    }
}
