//! Requests to the client of a mounted file system.

use super::error::FilesError;
use super::locks::LockOwner;
use braid_base::{Backoff, FileSystemId, InodeId};
use braid_machine::{AdvisoryOwner, FileHandle, FilesRequest, FilesSuccess, HostSuccess, MountRequest};
use braid_shell::HostClient;
use braid_wire::{FileAttributes, FileCommand, FileResult, NewInode, Owner};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// The pauses between attempts while the host has too many operations under way.
const BUSY_PAUSE_MIN: Duration = Duration::from_millis(1);
const BUSY_PAUSE_MAX: Duration = Duration::from_millis(100);

/// A mounted file system, for code that runs on the thread of its host. Its requests have no deadlines of their own.
#[derive(Clone, Debug)]
pub(crate) struct Mount {
    pub client: HostClient,
    pub file_system: FileSystemId,
    /// The runtime of the host's thread.
    pub runtime: Handle,
}

/// An open file of the mount. It is closed when this is dropped.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub mount: Mount,
    pub inode: InodeId,
    pub handle: FileHandle,
    /// The owners that may have locks through it.
    owners: Mutex<BTreeSet<LockOwner>>,
    is_closed: AtomicBool,
}

impl Mount {
    pub async fn ask(&self, request: FilesRequest) -> Result<FilesSuccess, FilesError> {
        let mut pause = Backoff::new(BUSY_PAUSE_MIN, BUSY_PAUSE_MAX);
        loop {
            let request = MountRequest::Files { file_system: self.file_system, request: request.clone() };
            match self.client.call(request).await.map_err(FilesError::from) {
                Ok(HostSuccess::Files(success)) => return Ok(success),
                Ok(_) => return Err(FilesError::ProtocolError),
                // Nothing has happened.
                Err(FilesError::Busy) => tokio::time::sleep(pause.next_wait()).await,
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes a request whose success says nothing more.
    pub async fn ask_for_nothing(&self, request: FilesRequest) -> Result<(), FilesError> {
        self.ask(request).await.map(|_| ())
    }

    pub async fn command(&self, command: FileCommand) -> Result<FileResult, FilesError> {
        expected!(self.ask(FilesRequest::Command(command)).await?, FilesSuccess::Result(result) => result)
    }

    /// Executes a command whose result is attributes.
    async fn attributes(&self, command: FileCommand) -> Result<FileAttributes, FilesError> {
        expected!(self.command(command).await?, FileResult::Attributes(attributes) => attributes)
    }

    pub async fn lookup(&self, parent: InodeId, name: Bytes) -> Result<FileAttributes, FilesError> {
        self.attributes(FileCommand::Lookup { parent, name }).await
    }

    pub async fn stat(&self, inode: InodeId) -> Result<FileAttributes, FilesError> {
        self.attributes(FileCommand::Stat { inode }).await
    }

    pub async fn read_link(&self, inode: InodeId) -> Result<Bytes, FilesError> {
        expected!(self.command(FileCommand::ReadLink { inode }).await?, FileResult::Target(target) => target)
    }

    /// Creates an inode. Returns its attributes, and whether it is new.
    pub async fn create(
        &self,
        (parent, name): (InodeId, Bytes),
        node: NewInode,
        exclusive: bool,
        (owner, mode): (Owner, u16),
    ) -> Result<(FileAttributes, bool), FilesError> {
        let create = FileCommand::Create { parent, name, node, exclusive, owner, mode };
        expected!(self.command(create).await?, FileResult::Created { attributes, is_new } => (attributes, is_new))
    }

    /// Opens a file. If this future is dropped, the file is closed.
    pub async fn open(&self, inode: InodeId) -> Result<(OpenFile, FileAttributes), FilesError> {
        let (tell, opened) = oneshot::channel();
        let mount = self.clone();
        // The request is executed even if nobody waits for it any more.
        self.runtime.spawn(async move {
            let opened = match mount.ask(FilesRequest::Open { inode }).await {
                Ok(FilesSuccess::Opened { handle, attributes }) => {
                    let (owners, is_closed) = (Mutex::default(), AtomicBool::new(false));
                    Ok((OpenFile { mount, inode, handle, owners, is_closed }, attributes))
                }
                Ok(_) => Err(FilesError::ProtocolError),
                Err(error) => Err(error),
            };
            let _ = tell.send(opened);
        });
        opened.await.unwrap_or(Err(FilesError::Closed))
    }
}

impl OpenFile {
    /// Notes that this owner may have locks through the open file, unless that is closed.
    pub fn note_owner(&self, owner: LockOwner) -> Result<(), FilesError> {
        let mut owners = self.owners();
        if self.is_closed.load(Ordering::SeqCst) {
            return Err(FilesError::NotOpen);
        }
        owners.insert(owner);
        Ok(())
    }

    /// Releases the locks, and closes the file. Only the first call has an effect.
    pub async fn close(&self) -> Result<(), FilesError> {
        let owners = {
            let mut owners = self.owners();
            if self.is_closed.swap(true, Ordering::SeqCst) {
                return Ok(());
            }
            std::mem::take(&mut *owners)
        };
        close(&self.mount, self.handle, owners).await
    }

    fn owners(&self) -> MutexGuard<'_, BTreeSet<LockOwner>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if !*self.is_closed.get_mut() {
            let (mount, handle, owners) = (self.mount.clone(), self.handle, std::mem::take(&mut *self.owners()));
            // A host that has ended has closed it.
            self.mount.runtime.spawn(async move { close(&mount, handle, owners).await });
        }
    }
}

async fn close(mount: &Mount, handle: FileHandle, owners: BTreeSet<LockOwner>) -> Result<(), FilesError> {
    for owner in owners {
        let owner = AdvisoryOwner(owner.0);
        mount.ask_for_nothing(FilesRequest::ReleaseOwner { handle, owner }).await?;
    }
    mount.ask_for_nothing(FilesRequest::Close { handle }).await
}
