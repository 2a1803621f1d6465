//! Advisory locks on ranges of bytes. They keep out only programs that ask for them.

use super::error::FilesError;
use super::file::File;
use super::on_thread;
use braid_machine::{AdvisoryOwner, FilesRequest, FilesSuccess, HostError, MountRequest};
use braid_shell::ClientSession;
use braid_wire::LockMode;
use std::ops::Range;
use std::pin::pin;

/// Who holds advisory locks: for example a task or a connection. [`Files::lock_owner`](super::Files::lock_owner) makes one. Locks of the
/// same owner never conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockOwner(pub(super) u64);

/// Whether other owners may have the lock at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Other owners may have shared locks on the same bytes.
    Shared,
    /// No other owner may have a lock on the same bytes.
    Exclusive,
}

impl File {
    /// Locks bytes of the file, and waits until no other owner, on any mount, has a conflicting lock. To lock all that may follow, end at
    /// `u64::MAX`. The lock replaces those that the owner has on these bytes.
    ///
    /// Locks end with [`File::unlock`], when the open file is closed or dropped, and when the mount ends or is fenced. If this future is
    /// dropped, the owner may have the lock or not.
    ///
    /// # Errors
    /// [`FilesError::TimedOut`]: the owner has got no lock within the deadline, and does not wait any more. [`FilesError::Deadlock`]: it would
    /// wait for an owner that waits for it.
    pub async fn lock(&self, owner: LockOwner, range: Range<u64>, kind: LockKind) -> Result<(), FilesError> {
        let request = self.lock_request(owner, range, kind, true)?;
        let (mount, waited) = (&self.open.mount, self.files.deadline());
        let (request, pending) =
            (MountRequest::Files { file_system: mount.file_system, request }, Pending(mount.client.session()));
        on_thread(&mount.runtime, async move {
            let mut asked = pin!(pending.0.call(request));
            let outcome = match tokio::time::timeout(waited, &mut asked).await {
                Ok(outcome) => outcome,
                Err(_) => {
                    pending.0.abandon();
                    // It may have been granted at the last moment.
                    asked.await
                }
            };
            match outcome {
                Ok(_) => Ok(()),
                Err(HostError::Abandoned) => Err(FilesError::TimedOut { waited }),
                Err(error) => Err(error.into()),
            }
        })
        .await
    }

    /// Locks bytes as [`File::lock`], but does not wait.
    ///
    /// # Errors
    /// [`FilesError::Locked`].
    pub async fn try_lock(&self, owner: LockOwner, range: Range<u64>, kind: LockKind) -> Result<(), FilesError> {
        let request = self.lock_request(owner, range, kind, false)?;
        self.ask(request).await.map(|_| ())
    }

    /// Releases the locks of an owner on these bytes.
    ///
    /// # Errors
    /// [`FilesError::TimedOut`] while no metadata server answers; the locks are released when one does.
    pub async fn unlock(&self, owner: LockOwner, range: Range<u64>) -> Result<(), FilesError> {
        check(&range)?;
        let (handle, owner) = (self.open.handle, AdvisoryOwner(owner.0));
        self.ask(FilesRequest::Unlock { handle, owner, range }).await.map(|_| ())
    }

    /// True if another owner, on any mount, has a lock that conflicts with this one.
    ///
    /// # Errors
    /// [`FilesError::TimedOut`] while no metadata server answers.
    pub async fn is_locked(&self, owner: LockOwner, range: Range<u64>, kind: LockKind) -> Result<bool, FilesError> {
        check(&range)?;
        let (handle, owner, mode) = (self.open.handle, AdvisoryOwner(owner.0), mode(kind));
        let test = FilesRequest::TestLock { handle, owner, range, mode };
        expected!(self.ask(test).await?, FilesSuccess::Tested { is_locked } => is_locked)
    }

    fn lock_request(
        &self,
        owner: LockOwner,
        range: Range<u64>,
        kind: LockKind,
        wait: bool,
    ) -> Result<FilesRequest, FilesError> {
        check(&range)?;
        self.open.note_owner(owner)?;
        let (handle, owner) = (self.open.handle, AdvisoryOwner(owner.0));
        Ok(FilesRequest::Lock { handle, owner, range, mode: mode(kind), wait })
    }
}

fn check(range: &Range<u64>) -> Result<(), FilesError> {
    if range.is_empty() { Err(FilesError::InvalidArgument) } else { Ok(()) }
}

fn mode(kind: LockKind) -> LockMode {
    match kind {
        LockKind::Shared => LockMode::Shared,
        LockKind::Exclusive => LockMode::Exclusive,
    }
}

/// A request that nobody waits for any more when this is dropped.
struct Pending(ClientSession);

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.abandon();
    }
}
