//! Files: a file system of the array, mounted by this program (`docs/files.md`).

mod directories;
mod error;
mod file;
mod locks;
mod metadata;
mod mount;
mod names;
mod open;
mod path;
mod trees;

pub use directories::{DirEntry, ReadDir};
pub use error::FilesError;
pub use file::File;
pub use locks::{LockKind, LockOwner};
pub use metadata::{FileSystemSpace, Metadata};
pub(crate) use mount::Mount;
pub use open::OpenOptions;

use crate::array::Array;
use braid_wire::Owner;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

/// How often a path is resolved again because what it named was removed meanwhile.
const ATTEMPTS_MAX: usize = 16;

/// A mounted file system. [`Array::files`] mounts it. Clones share the mount, and can be used by several tasks and threads at once.
///
/// Each change of names and attributes is atomic, and durable when the call returns, for all mounts. Paths begin at the root of the file
/// system, with or without a slash. Symbolic links are followed, unless a method says otherwise.
///
/// Permission bits and owners are kept, but not enforced: whoever can mount a file system may do everything in it.
///
/// Each call ends within the deadline of its handle ([`Files::within`]). Calls that are made of several steps have it for each of their
/// steps; their documentation says so.
#[derive(Clone, Debug)]
pub struct Files {
    array: Array,
    mount: Mount,
    /// The owner of what is created.
    owner: Owner,
    /// The number of the last owner of locks.
    last_lock_owner: Arc<AtomicU64>,
}

impl Files {
    pub(crate) fn new(array: Array, mount: Mount) -> Files {
        let owner = Owner { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() };
        Files { array, mount, owner, last_lock_owner: Arc::default() }
    }

    /// The same mount with another deadline for calls. It is not capped.
    pub fn within(&self, deadline: Duration) -> Files {
        Files { array: self.array.within(deadline), ..self.clone() }
    }

    /// The deadline of calls.
    pub fn deadline(&self) -> Duration {
        self.array.deadline()
    }

    /// The same mount; what is created through this handle belongs to this user and group. By default these are the effective ones of the
    /// process.
    pub fn owned_by(&self, uid: u32, gid: u32) -> Files {
        Files { owner: Owner { uid, gid }, ..self.clone() }
    }

    /// The generation of the mount's host: a number that no other start of a host of this array ever has.
    pub fn generation(&self) -> u32 {
        self.array.generation()
    }

    /// A new owner of advisory locks ([`File::lock`]).
    pub fn lock_owner(&self) -> LockOwner {
        LockOwner(self.last_lock_owner.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Unmounts the file system: operations in progress are finished, files are closed, locks and reserved blocks are given back. From then
    /// on, calls on this and all other handles of the mount end with [`FilesError::Closed`].
    ///
    /// When the last handle is dropped, the file system is unmounted in the background. If the process ends before that is done, other
    /// mounts wait for its locks until the array fences it, which takes some seconds.
    pub async fn close(&self) {
        self.array.close().await;
    }

    /// Runs an operation on the host's thread, within the deadline. It ends early if the caller drops the future.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, FilesError>> + Send + 'static,
    ) -> Result<T, FilesError> {
        let waited = self.array.deadline();
        let limited =
            async move { tokio::time::timeout(waited, work).await.unwrap_or(Err(FilesError::TimedOut { waited })) };
        on_thread(&self.mount.runtime, limited).await
    }

    /// Runs an operation on a path. If what the path named is removed meanwhile, the path is resolved again.
    async fn at_path<T, F>(
        &self,
        path: impl AsRef<Path>,
        operation: impl Fn(Mount, PathBuf) -> F + Send + 'static,
    ) -> Result<T, FilesError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, FilesError>> + Send,
    {
        let (mount, path) = (self.mount.clone(), path.as_ref().to_path_buf());
        self.run(async move {
            for _ in 0..ATTEMPTS_MAX {
                match operation(mount.clone(), path.clone()).await {
                    Err(FilesError::Stale) => {}
                    outcome => return outcome,
                }
            }
            Err(FilesError::NotFound)
        })
        .await
    }
}

/// Runs an operation on the host's thread, and ends it if the wait is dropped.
async fn on_thread<T: Send + 'static>(
    thread: &Handle,
    work: impl Future<Output = Result<T, FilesError>> + Send + 'static,
) -> Result<T, FilesError> {
    let mut task = JoinSet::new();
    task.spawn_on(work, thread);
    // This fails only if the thread has ended, and the task with it.
    task.join_next().await.and_then(Result::ok).unwrap_or(Err(FilesError::Closed))
}
