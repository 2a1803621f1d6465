//! Unmounting. Root uses the system call, others the program `fusermount3` of libfuse.

use crate::fusermount;
use crate::mount_points::{MountPoint, resolve};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::process::geteuid;
use std::io;
use std::path::{Path, PathBuf};

/// Why a directory can't be unmounted.
#[derive(Debug, thiserror::Error)]
pub enum UnmountError {
    #[error("no file system of an array is mounted on {}", directory.display())]
    NotMounted { directory: PathBuf },
    #[error("programs use files in {}", directory.display())]
    InUse { directory: PathBuf },
    #[error("unmounting {} is not permitted: only who has mounted it may, and root", directory.display())]
    NotPermitted { directory: PathBuf },
    #[error("can't unmount {}", directory.display())]
    Io { directory: PathBuf, source: io::Error },
}

/// How to mount and to unmount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    SystemCalls,
    Fusermount,
}

impl Method {
    /// The one that this process may use.
    pub fn of_this_process() -> Method {
        if geteuid().is_root() { Method::SystemCalls } else { Method::Fusermount }
    }
}

/// Unmounts a file system of an array, which any process may serve, or none. `force`: also if programs use it; then the directory is free
/// at once, and the rest follows when they end. Returns the directory without symbolic links.
pub fn unmount(directory: &Path, force: bool) -> Result<PathBuf, UnmountError> {
    let failed = |source| UnmountError::Io { directory: directory.to_path_buf(), source };
    let not_mounted = || UnmountError::NotMounted { directory: directory.to_path_buf() };
    let found = match resolve(directory) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(not_mounted()),
        Err(error) => return Err(failed(error)),
    };
    if !MountPoint::at(&found).map_err(failed)?.is_some_and(|mounted| mounted.is_ours()) {
        return Err(not_mounted());
    }
    match detach(Method::of_this_process(), &found, force) {
        Ok(()) => Ok(found),
        Err(error) => Err(match Errno::from_io_error(&error) {
            Some(Errno::BUSY) => UnmountError::InUse { directory: found },
            Some(Errno::PERM | Errno::ACCESS) => UnmountError::NotPermitted { directory: found },
            // Somebody else was faster.
            Some(Errno::INVAL) => not_mounted(),
            _ => failed(error),
        }),
    }
}

/// Unmounts what is on a directory. `lazily`: if programs use it, its directory is free all the same, and the rest follows when they end.
pub fn detach(method: Method, directory: &Path, lazily: bool) -> io::Result<()> {
    match method {
        Method::Fusermount => fusermount::unmount(directory, lazily),
        Method::SystemCalls => match rustix::mount::unmount(directory, UnmountFlags::NOFOLLOW) {
            Err(Errno::BUSY) if lazily => {
                Ok(rustix::mount::unmount(directory, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH)?)
            }
            unmounted => Ok(unmounted?),
        },
    }
}
