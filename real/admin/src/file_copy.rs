//! Copies files and trees: from a file system of the array to another place in one, or from or to this machine. Directories, regular files and
//! symbolic links are copied, with their permission bits.

use crate::failure::Failure;
use braid_client::{Bytes, File, FileType, Files, FilesError, Metadata, OpenOptions};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::{JoinHandle, JoinSet};

/// Bytes are copied in parts of this size.
/// The bits of a mode that are copied. A copy belongs to whoever makes it, so programs in it must not run as their owner or group.
const COPIED: u16 = 0o1777;
const PART_BYTES: usize = 4 << 20;
/// How many parts of a file are read or written at a time.
const PARTS_MAX: usize = 4;
/// How many files of a tree are copied at a time.
const FILES_MAX: usize = 16;

/// A place of files.
#[derive(Clone, Debug)]
pub enum Place {
    /// On this machine.
    Local(PathBuf),
    /// In a file system of the array.
    Mounted(Files, PathBuf),
}

/// How far a copy is.
#[derive(Debug, Default)]
pub struct CopyProgress {
    /// Bytes of the files that were found so far.
    pub found: AtomicU64,
    /// Bytes that were copied.
    pub bytes: AtomicU64,
    pub files: AtomicU64,
    pub directories: AtomicU64,
    pub links: AtomicU64,
    /// Named pipes, sockets and device files in trees, which are not copied: to read them is to use them.
    pub skipped: AtomicU64,
}

/// Which file it is, whatever its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Identity {
    Local { device: u64, inode: u64 },
    Mounted { inode: u64 },
}

struct Found {
    identity: Identity,
    kind: FileType,
    is_special: bool,
    mode: u16,
    length: u64,
}

/// Copies a file, or with `recursive` a tree. If `to` is a directory, the copy gets the name of `from` in it. After an error, a part may be
/// copied.
pub async fn copy(from: Place, to: Place, recursive: bool, progress: Arc<CopyProgress>) -> Result<(), Failure> {
    let found = from.look(!recursive).await?;
    let is_directory = to.look(true).await.is_ok_and(|target| target.kind == FileType::Directory);
    let to = match from.path().file_name() {
        Some(name) if is_directory => to.join(&name.to_os_string()),
        _ => to,
    };
    match found.kind {
        FileType::Directory if !recursive => {
            Err(Failure::usage("is-a-directory", "it is a directory").of(&from).hint("copy it with -r"))
        }
        FileType::Directory if to.lies_in(&from, found.identity).await => {
            Err(Failure::usage("into-itself", "a directory can't be copied into itself").of(&to))
        }
        FileType::Directory => copy_tree(from, to, found.mode, progress).await,
        _ => copy_one(from, to, found, progress).await,
    }
}

async fn copy_tree(from: Place, to: Place, mode: u16, progress: Arc<CopyProgress>) -> Result<(), Failure> {
    let (mut directories, mut copies) = (vec![(from, to, mode)], JoinSet::new());
    while let Some((from, to, mode)) = directories.pop() {
        to.create_directory(mode).await.map_err(|failure| failure.of(&to))?;
        progress.directories.fetch_add(1, Ordering::Relaxed);
        for name in from.list().await.map_err(|failure| failure.of(&from))? {
            let (from, to) = (from.join(&name), to.join(&name));
            let found = from.look(false).await?;
            if found.kind == FileType::Directory {
                directories.push((from, to, found.mode));
                continue;
            }
            if found.is_special {
                progress.skipped.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            if copies.len() == FILES_MAX {
                joined(copies.join_next().await)?;
            }
            copies.spawn(copy_one(from, to, found, progress.clone()));
        }
    }
    while let Some(copied) = copies.join_next().await {
        joined(Some(copied))?;
    }
    Ok(())
}

/// Copies a file or a symbolic link.
async fn copy_one(from: Place, to: Place, found: Found, progress: Arc<CopyProgress>) -> Result<(), Failure> {
    if found.kind == FileType::SymbolicLink {
        let target = from.read_link().await.map_err(|failure| failure.of(&from))?;
        to.create_link(&target).await.map_err(|failure| failure.of(&to))?;
        progress.links.fetch_add(1, Ordering::Relaxed);
        return Ok(());
    }
    if to.is_same(&from, found.identity).await {
        return Err(Failure::failed("same-file", format!("{from} and {to} are the same file")));
    }
    progress.found.fetch_add(found.length, Ordering::Relaxed);
    let mut source = from.open().await.map_err(|failure| failure.of(&from))?;
    let mut target = to.create(found.mode).await.map_err(|failure| failure.of(&to))?;
    while let Some(part) = source.next().await.map_err(|failure| failure.of(&from))? {
        let length = part.len() as u64;
        target.write(part).await.map_err(|failure| failure.of(&to))?;
        progress.bytes.fetch_add(length, Ordering::Relaxed);
    }
    target.close().await.map_err(|failure| failure.of(&to))?;
    source.close().await.map_err(|failure| failure.of(&from))?;
    progress.files.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

impl Place {
    fn path(&self) -> &Path {
        match self {
            Place::Local(path) | Place::Mounted(_, path) => path,
        }
    }

    fn join(&self, name: &OsString) -> Place {
        match self {
            Place::Local(path) => Place::Local(path.join(name)),
            Place::Mounted(files, path) => Place::Mounted(files.clone(), path.join(name)),
        }
    }

    /// True if this is the file `identity` of the place `other`. A copy to it would truncate what is to be read.
    async fn is_same(&self, other: &Place, identity: Identity) -> bool {
        self.is_beside(other) && self.look(true).await.is_ok_and(|found| found.identity == identity)
    }

    /// True if the place is in the directory `identity` of the place `other`, or would be if it were created. Paths do not tell: they may
    /// contain links and `..`.
    async fn lies_in(&self, other: &Place, identity: Identity) -> bool {
        if !self.is_beside(other) {
            return false;
        }
        let mut above = None;
        for path in self.path().ancestors() {
            let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
            let found = self.at(path.to_path_buf());
            if found.look(true).await.is_ok_and(|found| found.kind == FileType::Directory) {
                above = Some(found);
                break;
            }
        }
        let mut last = None;
        while let Some(directory) = above.take()
            && let Ok(found) = directory.look(true).await
            && last != Some(found.identity)
        {
            if found.identity == identity {
                return true;
            }
            last = Some(found.identity);
            above = Some(directory.join(&OsString::from("..")));
        }
        false
    }

    /// True if both are in one file system, or both on this machine.
    fn is_beside(&self, other: &Place) -> bool {
        match (self, other) {
            (Place::Local(_), Place::Local(_)) => true,
            (Place::Mounted(files, _), Place::Mounted(others, _)) => files.generation() == others.generation(),
            _ => false,
        }
    }

    fn at(&self, path: PathBuf) -> Place {
        match self {
            Place::Local(_) => Place::Local(path),
            Place::Mounted(files, _) => Place::Mounted(files.clone(), path),
        }
    }

    async fn look(&self, follows: bool) -> Result<Found, Failure> {
        let found = match self {
            Place::Local(path) => {
                let metadata = if follows { std::fs::metadata(path) } else { std::fs::symlink_metadata(path) };
                metadata.map(Found::from).map_err(Failure::from)
            }
            Place::Mounted(files, path) if follows => {
                files.metadata(path).await.map(Found::from).map_err(Failure::from)
            }
            Place::Mounted(files, path) => files.symlink_metadata(path).await.map(Found::from).map_err(Failure::from),
        };
        found.map_err(|failure| failure.of(self))
    }

    async fn list(&self) -> Result<Vec<OsString>, Failure> {
        let mut names = Vec::new();
        match self {
            Place::Local(path) => {
                for entry in std::fs::read_dir(path)? {
                    names.push(entry?.file_name());
                }
            }
            Place::Mounted(files, path) => {
                let mut entries = files.read_dir(path).await?;
                while let Some(entry) = entries.next().await? {
                    names.push(entry.file_name().to_os_string());
                }
            }
        }
        Ok(names)
    }

    async fn create_directory(&self, mode: u16) -> Result<(), Failure> {
        match self {
            Place::Local(path) => match std::fs::create_dir(path) {
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
                outcome => Ok(outcome?),
            },
            Place::Mounted(files, path) => match files.create_dir(path).await {
                Err(FilesError::Exists) if files.metadata(path).await?.is_dir() => Ok(()),
                Ok(()) => Ok(files.set_permissions(path, mode).await?),
                outcome => Ok(outcome?),
            },
        }
    }

    async fn read_link(&self) -> Result<PathBuf, Failure> {
        match self {
            Place::Local(path) => Ok(std::fs::read_link(path)?),
            Place::Mounted(files, path) => Ok(files.read_link(path).await?),
        }
    }

    async fn create_link(&self, target: &Path) -> Result<(), Failure> {
        match self {
            Place::Local(path) => {
                if path.is_symlink() {
                    std::fs::remove_file(path)?;
                }
                Ok(std::os::unix::fs::symlink(target, path)?)
            }
            Place::Mounted(files, path) => {
                if files.symlink_metadata(path).await.is_ok_and(|found| found.file_type() == FileType::SymbolicLink) {
                    files.remove_file(path).await?;
                }
                Ok(files.symlink(target, path).await?)
            }
        }
    }

    async fn open(&self) -> Result<Source, Failure> {
        match self {
            Place::Local(path) => Ok(Source::Local(tokio::fs::File::open(path).await?)),
            Place::Mounted(files, path) => {
                let file = files.open(path, OpenOptions::new().read(true)).await?;
                Ok(Source::Mounted { file, next: 0, parts: VecDeque::new() })
            }
        }
    }

    async fn create(&self, mode: u16) -> Result<Target, Failure> {
        match self {
            Place::Local(path) => {
                let mut options = tokio::fs::OpenOptions::new();
                options.write(true).create(true).truncate(true).mode(u32::from(mode));
                Ok(Target::Local(options.open(path).await?))
            }
            Place::Mounted(files, path) => {
                let options = OpenOptions::new().write(true).create(true).truncate(true).mode(mode);
                Ok(Target::Mounted { file: files.open(path, options).await?, end: 0, parts: JoinSet::new() })
            }
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.path().display().fmt(f)
    }
}

impl From<std::fs::Metadata> for Found {
    fn from(metadata: std::fs::Metadata) -> Found {
        let file_type = metadata.file_type();
        let kind = match () {
            () if file_type.is_dir() => FileType::Directory,
            () if file_type.is_symlink() => FileType::SymbolicLink,
            () => FileType::Regular,
        };
        let identity = Identity::Local { device: metadata.dev(), inode: metadata.ino() };
        let is_special = !(file_type.is_dir() || file_type.is_symlink() || file_type.is_file());
        Found { identity, kind, is_special, mode: metadata.mode() as u16 & COPIED, length: metadata.len() }
    }
}

impl From<Metadata> for Found {
    fn from(metadata: Metadata) -> Found {
        let identity = Identity::Mounted { inode: metadata.inode() };
        let is_special = matches!(metadata.file_type(), FileType::Special(_));
        Found {
            identity,
            kind: metadata.file_type(),
            is_special,
            mode: metadata.mode() & COPIED,
            length: metadata.len(),
        }
    }
}

/// A file that is being read from its beginning to its end.
enum Source {
    Local(tokio::fs::File),
    Mounted {
        file: File,
        /// Where the next part to read begins.
        next: u64,
        /// Parts that are being read, in order.
        parts: VecDeque<JoinHandle<Result<Bytes, FilesError>>>,
    },
}

impl Source {
    /// The next bytes; none at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        let data = match self {
            Source::Local(file) => {
                let mut data = Vec::new();
                file.take(PART_BYTES as u64).read_to_end(&mut data).await?;
                Bytes::from(data)
            }
            Source::Mounted { file, next, parts } => {
                while parts.len() < PARTS_MAX {
                    let (file, at) = (file.clone(), *next);
                    parts.push_back(tokio::spawn(async move { file.read_at(at, PART_BYTES).await }));
                    *next += PART_BYTES as u64;
                }
                let part = parts.pop_front().expect("parts are being read");
                part.await.unwrap_or(Err(FilesError::Closed))?
            }
        };
        Ok(Some(data).filter(|data| !data.is_empty()))
    }

    async fn close(self) -> Result<(), Failure> {
        match self {
            Source::Local(_) => Ok(()),
            Source::Mounted { file, parts, .. } => {
                parts.iter().for_each(JoinHandle::abort);
                Ok(file.close().await?)
            }
        }
    }
}

/// A file that is being written from its beginning to its end.
enum Target {
    Local(tokio::fs::File),
    Mounted {
        file: File,
        /// The bytes so far.
        end: u64,
        /// Parts that are being written.
        parts: JoinSet<Result<(), Failure>>,
    },
}

impl Target {
    async fn write(&mut self, data: Bytes) -> Result<(), Failure> {
        match self {
            Target::Local(file) => file.write_all(&data).await?,
            Target::Mounted { file, end, parts } => {
                if parts.len() == PARTS_MAX {
                    joined(parts.join_next().await)?;
                }
                let (file, at) = (file.clone(), *end);
                *end += data.len() as u64;
                parts.spawn(async move { Ok(file.write_at(at, data).await?) });
            }
        }
        Ok(())
    }

    async fn close(self) -> Result<(), Failure> {
        match self {
            Target::Local(mut file) => Ok(file.flush().await?),
            Target::Mounted { file, mut parts, .. } => {
                while let Some(written) = parts.join_next().await {
                    joined(Some(written))?;
                }
                Ok(file.close().await?)
            }
        }
    }
}

fn joined(outcome: Option<Result<Result<(), Failure>, tokio::task::JoinError>>) -> Result<(), Failure> {
    outcome.map_or(Ok(()), |outcome| outcome.expect("copying does not panic"))
}
