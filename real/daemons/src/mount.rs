//! The daemon of one mount: a host of the array that serves a file system to the programs of this machine, in a directory.
//!
//! If its host is fenced, the mount goes on with a new one: files that were open answer errors, all else goes on.

use braid_admin::failure::Failure;
use braid_admin::file_systems;
use braid_admin::metadata_room::MetadataRoom;
use braid_base::{FileSystemId, Generation, InodeId};
use braid_control::{ControlPlane, Event, FileSystemState, WhenUnavailable, event_texts, shell_word};
use braid_fuse::{HostFiles, InodeRoom, Mount, MountError};
use braid_machine::{FilesRequest, MountRequest};
use braid_recording::RecordingRequest;
use braid_session::{HEARTBEAT, Session, SessionError, require_up};
use braid_wire::FileCommand;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How long the metadata server may take to answer first.
const SERVED_WAIT: Duration = Duration::from_secs(30);
/// How long the host may take to end.
const END_WAIT: Duration = Duration::from_secs(10);
/// The same, if the array does not serve it any more.
const LOST_END_WAIT: Duration = Duration::from_secs(2);
/// How often it is looked whether devices are missing.
const LACK_INTERVAL: Duration = Duration::from_millis(250);
/// The wait before the next attempt to start a host.
const START_PAUSE: Duration = Duration::from_secs(1);

/// A file system that is mounted in a directory, and not served yet.
pub struct MountDaemon {
    mount: Mount,
    hosts: Hosts,
}

/// The host of a mount, and those that replace it.
struct Hosts {
    control: ControlPlane,
    name: String,
    id: FileSystemId,
    directory: PathBuf,
    files: HostFiles,
    /// None while one is being replaced.
    session: Option<Session>,
    /// The generation of the host, or of the one that is being replaced.
    current: watch::Sender<Generation>,
}

/// The room for inodes, as the leases of the metadata servers tell it.
fn room(control: &ControlPlane, name: &str) -> InodeRoom {
    let (control, name) = (control.clone(), name.to_string());
    InodeRoom(Arc::new(move |inodes| {
        let (control, name) = (control.clone(), name.clone());
        Box::pin(async move { Some(MetadataRoom::look_up(&control, &name).await?.free_inodes(inodes)) })
    }))
}

impl MountDaemon {
    /// Mounts a file system of a running array in an empty directory; its first host is recorded if that is asked for. `unavailable` overrides what
    /// the file system says about missing devices. Errors: `no-such-file-system`, `not-up`, `file-system-not-served`, and those of [`failure_of`].
    pub async fn open(
        control: &ControlPlane,
        name: &str,
        directory: &Path,
        unavailable: Option<WhenUnavailable>,
        recording: Option<RecordingRequest>,
    ) -> Result<MountDaemon, Failure> {
        let description = control.describe().await?;
        let setting = unavailable.unwrap_or(file_systems::find(&description, name)?.unavailable());
        require_up(control).await?;
        let mount_name = braid_fuse::mount_name(name, description.array);
        let directory = braid_fuse::check(directory, &mount_name).map_err(failure_of)?;
        let (session, id) = start_host(control, name, &directory, recording).await?;
        let mounted = async {
            await_answer(&session, name, id).await?;
            let files = HostFiles::new(id, session.client().clone()).with_room(room(control, name));
            let files = files.with_patience(setting.limit());
            let mount = braid_fuse::mount(&directory, &mount_name, files.clone()).map_err(failure_of)?;
            Ok((files, mount))
        };
        match mounted.await {
            Ok((files, mount)) => {
                let (control, name) = (control.clone(), name.to_string());
                let current = watch::channel(session.generation()).0;
                let hosts = Hosts { control, name, id, directory, files, session: Some(session), current };
                Ok(MountDaemon { mount, hosts })
            }
            Err(failure) => {
                session.end_within(END_WAIT).await;
                Err(failure)
            }
        }
    }

    /// The directory, without symbolic links.
    pub fn directory(&self) -> &Path {
        self.mount.directory()
    }

    pub fn generation(&self) -> Generation {
        self.hosts.session.as_ref().expect("it is replaced only while it is served").generation()
    }

    /// Serves the file system until it is unmounted, by anybody, or deleted. When `stop` completes, it is unmounted: programs may go on to use
    /// files that they have open, but only for some seconds.
    pub async fn serve(self, stop: impl Future<Output = ()>) -> Result<(), Failure> {
        let MountDaemon { mount, mut hosts } = self;
        let gone = await_deletion(hosts.control.clone(), hosts.id);
        let asked = await_request(hosts.control.clone(), hosts.current.subscribe());
        let stop = async {
            tokio::select! {
                () = stop => {}
                () = gone => {}
                () = asked => {}
            }
        };
        let ended = tokio::select! {
            ended = mount.run(stop) => ended,
            never = hosts.keep() => match never {},
        };
        if let Some(session) = hosts.session.take() {
            session.end_within(END_WAIT).await;
        }
        ended.map_err(|error| {
            let source = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
            Failure::failed("mount-failed", format!("{error}{source}"))
        })
    }
}

impl Hosts {
    /// Replaces the host whenever it is lost.
    async fn keep(&mut self) -> Infallible {
        loop {
            if let Some(session) = &self.session {
                tokio::select! {
                    loss = session.lost() => tracing::warn!("the host of this mount is lost, and another one starts: {loss}"),
                    () = self.files.lost() => tracing::warn!("the host of this mount is fenced, and another one starts"),
                    never = watch_for_lack(session, &self.files) => match never {},
                }
            }
            self.files.lose_host();
            self.files.note_lack(false);
            let before = self.session.take();
            let old = before.as_ref().map(Session::generation);
            if let Some(session) = before {
                session.end_within(LOST_END_WAIT).await;
            }
            let session = self.next().await;
            let new = session.generation();
            self.current.send_replace(new);
            self.files.replace_host(session.client().clone());
            self.session = Some(session);
            if let Some(old) = old {
                self.record(event_texts::mount_replaced(&self.name, &self.directory.to_string_lossy(), old, new)).await;
            }
        }
    }

    async fn next(&self) -> Session {
        loop {
            match start_host(&self.control, &self.name, &self.directory, None).await {
                Ok((session, id)) if id == self.id => return session,
                Ok((session, _)) => {
                    tracing::error!("file system {} is another one now", self.name);
                    session.leave().await;
                }
                Err(error) => tracing::error!("can't start a host; trying again: {error}"),
            }
            tokio::time::sleep(START_PAUSE).await;
        }
    }

    async fn record(&self, event: Event) {
        if let Err(error) = self.control.record(vec![event]).await {
            tracing::warn!("can't record an event: {error}");
        }
    }
}

/// Tells the mount whether devices are missing that its requests need.
async fn watch_for_lack(session: &Session, files: &HostFiles) -> Infallible {
    loop {
        files.note_lack(session.view().waiting().is_some_and(|waiting| !waiting.devices.is_empty()));
        tokio::time::sleep(LACK_INTERVAL).await;
    }
}

/// The role of the host of a mount, as its lease states it.
fn role(name: &str, directory: &Path) -> String {
    format!("mount {name} {}", directory.display())
}

async fn start_host(
    control: &ControlPlane,
    name: &str,
    directory: &Path,
    recording: Option<RecordingRequest>,
) -> Result<(Session, FileSystemId), SessionError> {
    Session::mount(control, &role(name, directory), name, Some(directory.to_path_buf()), recording).await
}

/// Waits until the metadata server answers.
async fn await_answer(session: &Session, name: &str, file_system: FileSystemId) -> Result<(), Failure> {
    let request = FilesRequest::Command(FileCommand::Stat { inode: InodeId::ROOT });
    let asked = session.client().call(MountRequest::Files { file_system, request });
    match tokio::time::timeout(SERVED_WAIT, asked).await {
        Ok(answered) => answered.map(|_| ()).map_err(Failure::from),
        Err(_) => {
            let message = format!("the metadata server of {name} has not answered within {SERVED_WAIT:?}");
            Err(Failure::unreachable("file-system-not-served", message).hint("`braid fs status` shows what it does"))
        }
    }
}

/// Returns when the file system is being deleted.
async fn await_deletion(control: ControlPlane, id: FileSystemId) {
    loop {
        control.changed(HEARTBEAT).await;
        let Ok(description) = control.describe().await else { continue };
        let is_ours = |entry: &&braid_control::FileSystemEntry| entry.id() == id;
        let entry = description.file_systems.iter().find(is_ours);
        if entry.is_none_or(|entry| entry.state != FileSystemState::Ready) {
            return;
        }
    }
}

/// Returns when the present host is asked to end by the control plane, as processes of other machines and containers do that.
async fn await_request(control: ControlPlane, current: watch::Receiver<Generation>) {
    loop {
        let generation = *current.borrow();
        if control.leases().is_asked_to_end(generation).await.is_ok_and(|is_asked| is_asked) {
            return;
        }
        tokio::time::sleep(HEARTBEAT).await;
    }
}

pub fn failure_of(error: MountError) -> Failure {
    let source = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
    let message = format!("{error}{source}");
    match error {
        MountError::NoDevice { .. } => Failure::unreachable("no-fuse", message)
            .hint("`modprobe fuse` loads it; a container needs `--device /dev/fuse --cap-add SYS_ADMIN`"),
        MountError::NoDirectory { directory } => Failure::unreachable("no-such-directory", message)
            .hint(format!("create it with `mkdir -p {}`", shell_word(&directory))),
        MountError::NotADirectory { .. } => Failure::usage("not-a-directory", message),
        MountError::NotEmpty { .. } => Failure::usage("directory-not-empty", message)
            .hint("name an empty directory, or move away what it contains"),
        MountError::InUse { directory } => Failure::failed("already-mounted", message)
            .hint(format!("name another directory; `findmnt {}` shows what is mounted there", shell_word(&directory))),
        MountError::Dead { .. } => Failure::failed("stale-mount", message),
        MountError::InvalidName { .. } => Failure::usage("bad-name", message),
        MountError::NotPermitted => {
            Failure::failed("mount-not-permitted", message).hint("a container needs `--cap-add SYS_ADMIN`")
        }
        MountError::NoFusermount => Failure::failed("no-fusermount", message),
        MountError::Fusermount { .. } | MountError::Io { .. } => Failure::failed("mount-failed", message),
    }
}
