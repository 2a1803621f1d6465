//! The files of an array: each operation is one request to the client of the file system (`braid_files`), which wraps a host.
//!
//! A host that is fenced serves nothing any more, and its locks are lost. [`HostFiles::replace_host`] goes on with another one. Files that
//! were opened before stay dead: a program that had locked one of them must not go on as if it still had. Requests about names wait for the
//! next host; those that change nothing are made again there.
//!
//! When a program is interrupted, its request is abandoned, and its outcome is awaited. So a lock that was granted nevertheless is known.
//! Signals need not end a program, and programs don't expect EINTR of files. So only waits for locks are abandoned at once, and others when
//! the signal has waited for as long as most outages take, or when the program is ending. What ends a lock or closes a file is never
//! abandoned.

use crate::errno::of_host;
use crate::operations::result_in;
use crate::terms::{Caller, OpenFile, Result};
use braid_base::FileSystemId;
use braid_machine::{FileHandle, FilesRequest, FilesSuccess, HostError, HostOutcome, HostSuccess, MountRequest};
use braid_shell::{ClientSession, HostClient};
use braid_wire::{FileCommand, FileResult};
use rustix::io::Errno;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// The number of a handle's host is above the handle.
const HANDLE_BITS: u32 = FileHandle::BITS;

/// How long requests wait for the next host.
const HOST_WAIT: Duration = Duration::from_secs(60);

/// How long an interrupted request that does not wait for a lock may go on.
const INTERRUPTED_WAIT: Duration = Duration::from_secs(15);

/// A file system of an array. Clones are the same.
#[derive(Clone, Debug)]
pub struct HostFiles {
    file_system: FileSystemId,
    host: watch::Sender<Current>,
    pub(crate) room: InodeRoom,
    /// How long programs wait for bytes while devices are missing; none: without limit.
    pub(crate) limit: Option<Duration>,
    /// Devices are missing that requests of the host need.
    pub(crate) lacks_devices: Arc<AtomicBool>,
}

/// Tells how many more inodes find room beside so many, if that is known. It may wait for files.
#[derive(Clone)]
pub struct InodeRoom(pub Arc<dyn Fn(u64) -> FreeInodes + Send + Sync>);

/// The free inodes, once that is known.
pub type FreeInodes = Pin<Box<dyn Future<Output = Option<u64>> + Send>>;

impl std::fmt::Debug for InodeRoom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("InodeRoom")
    }
}

/// The host that serves, or that has been lost.
#[derive(Clone, Debug)]
struct Current {
    /// None after it was lost.
    client: Option<HostClient>,
    /// How many hosts there were before.
    start: u16,
}

#[derive(Clone, Debug)]
pub(crate) struct Host {
    client: HostClient,
    start: u16,
}

impl Host {
    /// The number of a file that is open on this host.
    pub(crate) fn open_file(&self, handle: FileHandle) -> OpenFile {
        assert!(handle.0 >> HANDLE_BITS == 0, "a host opens fewer files than that");
        OpenFile(u64::from(self.start) << HANDLE_BITS | handle.0)
    }
}

impl HostFiles {
    /// The client must be one of a host that has mounted this file system.
    pub fn new(file_system: FileSystemId, client: HostClient) -> HostFiles {
        let host = watch::channel(Current { client: Some(client), start: 0 }).0;
        let room = InodeRoom(Arc::new(|_| Box::pin(async { None })));
        HostFiles { file_system, host, room, limit: None, lacks_devices: Arc::default() }
    }

    /// The same with what tells the room for inodes.
    pub fn with_room(self, room: InodeRoom) -> HostFiles {
        HostFiles { room, ..self }
    }

    /// The same, on which programs wait for bytes for so long while devices are missing; none: without limit.
    pub fn with_patience(self, limit: Option<Duration>) -> HostFiles {
        HostFiles { limit, ..self }
    }

    /// Notes whether devices are missing that requests of the host need.
    pub fn note_lack(&self, lacks_devices: bool) {
        self.lacks_devices.store(lacks_devices, Ordering::Relaxed);
    }

    /// The host serves nothing any more. Files that are open fail with EIO from now on; other requests wait for the next host.
    pub fn lose_host(&self) {
        self.host.send_if_modified(|current| current.client.take().is_some());
    }

    pub async fn lost(&self) {
        let mut host = self.host.subscribe();
        // The sender is here.
        let _ = host.wait_for(|current| current.client.is_none()).await;
    }

    /// Goes on with another host. Files that are open fail with EIO from now on.
    ///
    /// # Panics
    ///
    /// After 65,535 hosts.
    pub fn replace_host(&self, client: HostClient) {
        self.host.send_modify(|current| {
            let start = current.start.checked_add(1).expect("a process has few hosts");
            *current = Current { client: Some(client), start };
        });
    }

    /// The host that serves. If it was lost, the next one is awaited.
    async fn host(&self, by: &Caller) -> Result<Host> {
        let mut host = self.host.subscribe();
        let serving = |current: &Current| Some(Host { client: current.client.clone()?, start: current.start });
        if let Some(host) = serving(&host.borrow()) {
            return Ok(host);
        }
        tokio::select! {
            found = timeout(HOST_WAIT, host.wait_for(|current| current.client.is_some())) => {
                found.ok().and_then(|found| serving(&*found.ok()?)).ok_or(Errno::IO)
            }
            () = interrupted(by, Some(INTERRUPTED_WAIT)) => Err(Errno::INTR),
        }
    }

    /// The host that serves, when there is one.
    pub(crate) async fn next_host(&self) -> Option<Host> {
        let mut host = self.host.subscribe();
        let current = host.wait_for(|current| current.client.is_some()).await.ok()?;
        Some(Host { client: current.client.clone()?, start: current.start })
    }

    /// Returns when another host serves.
    pub(crate) async fn until_replaced(&self, host: &Host) {
        let mut current = self.host.subscribe();
        // The sender is here.
        let _ = current.wait_for(|current| current.start != host.start).await;
    }

    /// The handle of an open file, if it is one of this host.
    pub(crate) fn handle_of(&self, host: &Host, file: OpenFile) -> Option<FileHandle> {
        (file.0 >> HANDLE_BITS == u64::from(host.start)).then_some(FileHandle(file.0 & ((1 << HANDLE_BITS) - 1)))
    }

    /// Makes a request that no program waits for.
    pub(crate) async fn ask(&self, host: &Host, request: FilesRequest) -> std::result::Result<FilesSuccess, HostError> {
        self.call(&Caller::default(), host, request).await
    }

    /// Makes a request about an open file.
    pub(crate) async fn call_file(
        &self,
        by: &Caller,
        file: OpenFile,
        request: impl FnOnce(FileHandle) -> FilesRequest,
    ) -> Result<FilesSuccess> {
        let Current { client, start } = self.host.borrow().clone();
        let host = Host { client: client.ok_or(Errno::IO)?, start };
        let handle = self.handle_of(&host, file).ok_or(Errno::IO)?;
        self.call(by, &host, request(handle)).await.map_err(|error| of_host(&error))
    }

    /// Makes a request that names no open file. Returns the host that has answered, too.
    pub(crate) async fn call_any(&self, by: &Caller, request: FilesRequest) -> Result<(Host, FilesSuccess)> {
        loop {
            let host = self.host(by).await?;
            match self.call(by, &host, request.clone()).await {
                // The outcome of a change is not known.
                Err(HostError::Fenced | HostError::Disconnecting | HostError::Stopped) if is_repeatable(&request) => {
                    self.lose(&host);
                }
                outcome => return outcome.map(|success| (host, success)).map_err(|error| of_host(&error)),
            }
        }
    }

    /// Makes a request about an inode. A program that asks through a file that is dead gets an error, also if the inode is alive.
    pub(crate) async fn call_through(
        &self,
        by: &Caller,
        through: Option<OpenFile>,
        request: FilesRequest,
    ) -> Result<FilesSuccess> {
        match through {
            Some(file) => self.call_file(by, file, |_| request).await,
            None => self.call_any(by, request).await.map(|(_, success)| success),
        }
    }

    pub(crate) async fn command(&self, by: &Caller, command: FileCommand) -> Result<FileResult> {
        let (_, success) = self.call_any(by, FilesRequest::Command(command)).await?;
        Ok(result_in(success))
    }

    /// A command about names.
    pub(crate) async fn of_names(&self, by: &Caller, command: FileCommand) -> Result<FilesSuccess> {
        self.call_of_names(by, FilesRequest::Command(command)).await.map(|(_, success)| success)
    }

    /// A request about names. There is no name in a directory that is gone.
    pub(crate) async fn call_of_names(&self, by: &Caller, request: FilesRequest) -> Result<(Host, FilesSuccess)> {
        match self.call_any(by, request).await {
            Err(Errno::STALE) => Err(Errno::NOENT),
            outcome => outcome,
        }
    }

    async fn call(
        &self,
        by: &Caller,
        host: &Host,
        request: FilesRequest,
    ) -> std::result::Result<FilesSuccess, HostError> {
        let session = AbandonedOnDrop(Some(host.client.session()));
        let wait = wait_after_interruption(&request);
        let request = MountRequest::Files { file_system: self.file_system, request };
        match session.call(by, request, wait).await {
            Ok(HostSuccess::Files(success)) => Ok(success),
            Ok(other) => unreachable!("a host answers a request about files as such, not with {other:?}"),
            Err(error) => {
                if matches!(error, HostError::Fenced) {
                    self.lose(host);
                }
                Err(error)
            }
        }
    }

    /// A host is lost, if it is still the one that serves.
    fn lose(&self, host: &Host) {
        self.host.send_if_modified(|current| current.start == host.start && current.client.take().is_some());
    }
}

/// How long a request goes on after its program was interrupted; none if it is not abandoned.
fn wait_after_interruption(request: &FilesRequest) -> Option<Duration> {
    match request {
        FilesRequest::Lock { wait: true, .. } => Some(Duration::ZERO),
        FilesRequest::Unlock { .. } | FilesRequest::ReleaseOwner { .. } | FilesRequest::Close { .. } => None,
        _ => Some(INTERRUPTED_WAIT),
    }
}

/// True if the request may be made again on another host: it changes nothing, or opens a file.
fn is_repeatable(request: &FilesRequest) -> bool {
    match request {
        FilesRequest::Command(command) => command.only_asks(),
        request => matches!(request, FilesRequest::Open { .. }),
    }
}

/// A request whose caller goes away, because the mount ends, is abandoned.
struct AbandonedOnDrop(Option<ClientSession>);

impl AbandonedOnDrop {
    /// `wait`: how long the request goes on after an interruption.
    async fn call(mut self, by: &Caller, request: MountRequest, wait: Option<Duration>) -> HostOutcome {
        let session = self.0.clone().expect("it is taken at the end");
        let mut outcome = std::pin::pin!(session.call(request));
        let outcome = tokio::select! {
            biased;
            outcome = &mut outcome => outcome,
            () = interrupted(by, wait) => {
                session.abandon();
                outcome.await
            }
        };
        self.0 = None;
        outcome
    }
}

/// Returns so long after the program was interrupted, or when it is ending.
async fn interrupted(by: &Caller, wait: Option<Duration>) {
    let Some(wait) = wait else { return std::future::pending().await };
    by.interruption.wait().await;
    // It returns in any case.
    let _ = timeout(wait, by.interruption.ending()).await;
}

impl Drop for AbandonedOnDrop {
    fn drop(&mut self) {
        if let Some(session) = &self.0 {
            session.abandon();
        }
    }
}
