//! Errors of the array's folder. Each says what to do about it.

use crate::MonitorRole;
use crate::paths::DESCRIPTION;
use crate::private_files::Distrust;
use braid_base::Generation;
use braid_leader_client::AskError;
use std::collections::BTreeMap;
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
    #[error("{} has schema {found}, this release knows up to {known}: use a newer release", .file.display())]
    NewerSchema { file: PathBuf, found: u64, known: u64 },
    #[error("{} can't be parsed ({reason}); it was left unchanged: correct it or restore a copy", .file.display())]
    Damaged { file: PathBuf, reason: String },
    /// The counter of generations is missing. Starting again at zero could give two hosts the same generation.
    #[error(
        "{} is missing: run `braid monitor recover`, which recreates it above every generation known to the devices",
        .file.display()
    )]
    GenerationsMissing { file: PathBuf },
    #[error("all host generations of this array have been used")]
    GenerationsExhausted,
    #[error("{} for more than {seconds} s", holds(.holder.as_ref(), .file))]
    Locked { file: PathBuf, holder: Option<LockHolder>, seconds: u64 },
    #[error("other processes have changed the array's description all the time for {seconds} s: try again")]
    Contended { seconds: u64 },
    #[error("the array in {} is up already{}", .dir.display(), .pid.map(|pid| format!(" (process {pid})")).unwrap_or_default())]
    AlreadyUp { dir: PathBuf, pid: Option<u32> },
    #[error("the lease of host {generation} expired, and the host was fenced: start it again")]
    LeaseLost { generation: Generation },
    /// The host has a lease that is not over, and its renewal can't be written. The host goes on: if its lease ends, it can read that.
    #[error("host {generation} can't renew its lease, and goes on while the devices serve it: {source}")]
    Unrenewed { generation: Generation, source: Box<ControlError> },
    /// None of the monitors of an array on several machines answers for it.
    #[error("{why}; monitors: {}", .monitors.iter().map(|(name, role)| format!("{name} {role}")).collect::<Vec<_>>().join(", "))]
    NoLeader { monitors: BTreeMap<String, MonitorRole>, why: AskError },
    /// The leading monitor of an array on several machines.
    #[error(transparent)]
    Leader(#[from] AskError),
    /// The description contradicts itself.
    #[error("{}: {reason}", .file.display())]
    Inconsistent { file: PathBuf, reason: String },
    /// A file or folder that this process must not use.
    #[error("{} {distrust}", .path.display())]
    Untrusted { path: PathBuf, distrust: Distrust },
    #[error("can't {doing} {}: {source}", .path.display())]
    File { doing: &'static str, path: PathBuf, source: std::io::Error },
}

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
