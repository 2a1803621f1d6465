//! Errors of the array's folder. Each says what to do about it.

use crate::paths::DESCRIPTION;
use crate::private_files::Distrust;
use braid_base::Generation;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Why the control plane could not carry out a request.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error("there is no array in {}", .dir.display())]
    NoArray { dir: PathBuf },
    #[error("there is already an array in {}", .dir.display())]
    ArrayExists { dir: PathBuf },
    /// Addresses of sockets are text, and so are the files that contain them.
    #[error("the path of the folder is not UTF-8: {}", .dir.display())]
    NotText { dir: PathBuf },
    /// The file was written by a later release.
    #[error("{} has schema {found}, this release knows up to {known}: use a newer release", .file.display())]
    NewerSchema {
        file: PathBuf,
        /// The schema of the file.
        found: u64,
        /// The latest schema of this release.
        known: u64,
    },
    /// The content of the file is not valid.
    #[error("{} can't be parsed ({reason}); it was left unchanged: correct it or restore a copy", .file.display())]
    Damaged {
        file: PathBuf,
        /// The parser's message.
        reason: String,
    },
    /// The counter of generations is missing. Starting again at zero could give two hosts the same generation.
    #[error(
        "{} is missing: run `braid monitor recover`, which recreates it above every generation known to the devices",
        .file.display()
    )]
    GenerationsMissing { file: PathBuf },
    #[error("all host generations of this array have been used")]
    GenerationsExhausted,
    /// Another process has held the lock of the folder for too long.
    #[error("{} for more than {seconds} s", holds(.holder.as_ref(), .file))]
    Locked {
        file: PathBuf,
        /// The process that holds it, if the system tells.
        holder: Option<LockHolder>,
        /// How long we waited.
        seconds: u64,
    },
    /// Other processes have changed the description again and again.
    #[error("other processes have changed the array's description all the time for {seconds} s: try again")]
    Contended {
        /// How long it was tried.
        seconds: u64,
    },
    /// `braid up` is already running on this folder.
    #[error("the array in {} is up already{}", .dir.display(), .pid.map(|pid| format!(" (process {pid})")).unwrap_or_default())]
    AlreadyUp {
        dir: PathBuf,
        /// The process that runs it, if known.
        pid: Option<u32>,
    },
    /// The host's lease expired, and the host was fenced.
    #[error("the lease of host {generation} expired, and the host was fenced: start it again")]
    LeaseLost { generation: Generation },
    /// The host has a lease that is not over, and its renewal can't be written. The host goes on: if its lease ends, it can read that.
    #[error("host {generation} can't renew its lease, and goes on while the devices serve it: {source}")]
    Unrenewed { generation: Generation, source: Box<ControlError> },
    /// The description contradicts itself.
    #[error("{}: {reason}", .file.display())]
    Inconsistent { file: PathBuf, reason: String },
    /// A file or folder that this process must not use.
    #[error("{} {distrust}", .path.display())]
    Untrusted { path: PathBuf, distrust: Distrust },
    /// The operating system reported an error.
    #[error("can't {doing} {}: {source}", .path.display())]
    File {
        /// The action that failed.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        source: std::io::Error,
    },
}

/// A process that holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    pub pid: u32,
    /// Its program and first arguments.
    pub command: String,
    /// True if it is stopped, and releases nothing before it is resumed.
    pub is_stopped: bool,
}

impl std::fmt::Display for LockHolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {} ({})", self.pid, self.command)
    }
}

/// Who holds a lock, as the beginning of a sentence.
pub(crate) fn holds(holder: Option<&LockHolder>, file: &Path) -> String {
    let stopped = if holder.is_some_and(|holder| holder.is_stopped) { "is stopped, and " } else { "" };
    let who = holder.map_or("another process".to_string(), LockHolder::to_string);
    format!("{who} {stopped}has held the lock {}", file.display())
}

/// True if the file system there has a limit of its inodes, and none is left.
pub(crate) fn lacks_inodes(path: &Path) -> bool {
    rustix::fs::statvfs(path).is_ok_and(|found| found.f_files > 0 && found.f_favail == 0)
}

/// The system says that there is no space, which is misleading.
const NO_INODES: &str = "its file system has no inodes left";

impl ControlError {
    pub(crate) fn file<E: Into<std::io::Error>>(doing: &'static str, path: &Path) -> impl FnOnce(E) -> ControlError {
        let path = path.to_path_buf();
        move |source| {
            let source = source.into();
            // A folder of the array is a file, or the folder was to be created where a file is.
            if matches!(source.kind(), ErrorKind::NotADirectory | ErrorKind::AlreadyExists)
                && let Some(file) = path.ancestors().find(|above| above.is_file())
                && file.with_file_name(DESCRIPTION).exists()
            {
                return ControlError::Inconsistent { file: file.to_path_buf(), reason: "it must be a folder".into() };
            }
            let folder = if path.is_dir() { &path } else { path.parent().unwrap_or(&path) };
            let source = match source.kind() {
                ErrorKind::StorageFull if lacks_inodes(folder) => std::io::Error::new(source.kind(), NO_INODES),
                _ => source,
            };
            ControlError::File { doing, path, source }
        }
    }
}
