//! Connecting to an array: a host on its own thread, and handles that send requests to it.

use crate::error::Error;
use crate::files::{Files, FilesError, Mount};
use crate::space::Space;
use crate::volume::Volume;
use braid_base::{FileSystemId, Generation};
use braid_control::{ControlPlane, Moment};
use braid_layout::VolumeDescription;
use braid_machine::{HostOutcome, HostRequest, HostSuccess, VolumeRequest};
use braid_session::{DROPPED_END_WAIT, Session, SessionError, Spaces, VolumeRegistry};
use braid_shell::HostClient;
use braid_wire::ObjectFailure;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::LocalSet;

/// The default deadline of calls: as long as a host tries.
const DEADLINE: Duration = Duration::from_secs(30);
/// The default folder of the array, the same as that of the command `braid`.
const DIR: &str = "./braid-data";

/// The most spaces that a host's lease names.
const SPACES_MAX: usize = 16;

/// Which array to connect to, and how.
///
/// ```
/// use braid_client::ArrayOptions;
/// use std::time::Duration;
/// let options = ArrayOptions::at("/srv/array").name("inventory").deadline(Duration::from_secs(5));
/// assert_eq!(options.name, "inventory");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayOptions {
    /// The array's folder, or the file `array.json` in it.
    pub dir: PathBuf,
    /// A name for this host, which `braid status` shows.
    pub name: String,
    /// The deadline of calls. It is capped at 30 s, since no host tries for longer.
    pub deadline: Duration,
}

impl Default for ArrayOptions {
    /// The array in the folder that the environment variable `BRAID_ARRAY` names, or else in `./braid-data`; with the name `client` and a
    /// deadline of 30 s.
    fn default() -> ArrayOptions {
        let dir = std::env::var_os("BRAID_ARRAY").map_or_else(|| PathBuf::from(DIR), PathBuf::from);
        ArrayOptions { dir, name: "client".to_string(), deadline: DEADLINE }
    }
}

impl ArrayOptions {
    /// Options for the array in this folder; otherwise the defaults.
    pub fn at(dir: impl Into<PathBuf>) -> ArrayOptions {
        ArrayOptions { dir: dir.into(), ..ArrayOptions::default() }
    }

    /// The same options with another host name.
    pub fn name(self, name: impl Into<String>) -> ArrayOptions {
        ArrayOptions { name: name.into(), ..self }
    }

    /// The same options with another deadline.
    pub fn deadline(self, deadline: Duration) -> ArrayOptions {
        ArrayOptions { deadline, ..self }
    }
}

/// A connection to an array, through a host that runs on its own thread. Clones share the host.
///
/// The host ends when [`Array::close`] is called, or in the background when the last handle is dropped. If the process ends immediately
/// after that, the array considers the host dead 15 leases after the last renewal. Acknowledged writes are not lost by that.
#[derive(Clone, Debug)]
pub struct Array {
    inner: Arc<Inner>,
    deadline: Duration,
}

#[derive(Debug)]
struct Inner {
    control: ControlPlane,
    generation: Generation,
    client: HostClient,
    registry: VolumeRegistry,
    mounted: Option<FileSystemId>,
    /// The array was told that programs lock ranges.
    wants_lock_servers: AtomicBool,
    spaces: Spaces,
    /// The runtime of the host's thread.
    runtime: Handle,
    /// Asks the host to end. The host also ends when this is dropped.
    end: mpsc::Sender<oneshot::Sender<()>>,
}

impl Array {
    /// Starts a host of the array, which must be up (`braid up`). One host for each process is enough.
    ///
    /// # Errors
    /// [`Error::Array`] if the array is not up, or its folder cannot be used; [`Error::TimedOut`] after the deadline.
    pub async fn connect(options: ArrayOptions) -> Result<Array, Error> {
        Array::start(options, None).await
    }

    /// Mounts the file system of this name, through a host of the array of its own. Clones of what it returns share the mount.
    ///
    /// # Errors
    /// [`FilesError::Array`] if there is no such file system, or no host can be started; [`FilesError::TimedOut`] after the deadline.
    pub async fn files(&self, file_system: &str) -> Result<Files, FilesError> {
        let dir = self.inner.control.place().to_path_buf();
        let options = ArrayOptions { dir, name: format!("files {file_system}"), deadline: self.deadline };
        Files::mount(options, file_system).await
    }

    /// Starts a host, which mounts a file system if it is given one.
    async fn start(options: ArrayOptions, file_system: Option<String>) -> Result<Array, Error> {
        let (tell, started) = oneshot::channel();
        let ArrayOptions { dir, name, deadline } = options;
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            let thread = std::thread::Builder::new().name(name.to_string());
            thread.spawn(work).map(|_| ()).map_err(|error| setup_failed(dir.clone(), error))
        };
        let (host, ready) = std::sync::mpsc::sync_channel(1);
        let control = ControlPlane::at(&dir);
        spawn("braid-host", Box::new(move || run(control, name, file_system, host)))?;
        // The host's thread blocks while another process holds the array's folder, and the caller may not be on an executor: so a second
        // thread watches the deadline. A host that starts too late finds that its handle was dropped, and ends.
        let watch = move || {
            let _ = tell.send(match ready.recv_timeout(deadline) {
                Ok(started) => started,
                Err(RecvTimeoutError::Timeout) => Err(Error::TimedOut { waited: deadline }),
                Err(RecvTimeoutError::Disconnected) => Err(Error::Closed),
            });
        };
        spawn("braid-connect", Box::new(watch))?;
        let inner = started.await.unwrap_or(Err(Error::Closed))?;
        Ok(Array { inner: Arc::new(inner), deadline })
    }

    /// The objects of a device. Whether the array has the device is checked by the first request ([`Error::NoSuchDevice`]).
    pub fn device(&self, device: u16) -> Space {
        Space::on_device(self.clone(), device)
    }

    /// The objects of an attribute volume: a volume that stores copies of attributes on several devices, and so survives the loss of one.
    /// All its objects exist from the beginning; they cannot be created or removed, and contain no bytes
    /// ([`ObjectFailure::NotInAttributeVolume`]).
    ///
    /// # Errors
    /// [`Error::NoSuchVolume`]; [`ObjectFailure::NotAnAttributeVolume`] if the volume contains blocks.
    pub async fn attribute_volume(&self, name: &str) -> Result<Space, Error> {
        Ok(Space::on_attribute_volume(self.clone(), self.describe(name, true).await?.id))
    }

    /// Opens the volume of this name.
    ///
    /// # Errors
    /// [`Error::NoSuchVolume`]; [`Error::IsAnAttributeVolume`] if the volume contains attributes.
    pub async fn volume(&self, name: &str) -> Result<Volume, Error> {
        Ok(Volume::new(self.clone(), self.describe(name, false).await?))
    }

    /// The same array with another deadline for calls.
    pub fn within(&self, deadline: Duration) -> Array {
        Array { deadline, ..self.clone() }
    }

    /// The deadline of calls.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// The generation of this host: a number that no other start of a host of this array ever has. It is suitable for naming the holder of
    /// a lock.
    pub fn generation(&self) -> u32 {
        self.inner.generation.0
    }

    /// Disconnects gracefully: operations in progress are finished, devices are told that nothing follows, and the array forgets the host.
    /// From then on, calls on this and all other handles of the host end with [`Error::Closed`].
    pub async fn close(&self) {
        let (ended, end) = oneshot::channel();
        // If another handle has just closed it, the channel is closed already.
        if self.inner.end.send(ended).await.is_ok() {
            let _ = end.await;
        }
    }

    /// Sends the host a request that contains its own deadline.
    pub(crate) async fn call(&self, request: impl Into<HostRequest>) -> HostOutcome {
        self.inner.client.call(request).await
    }

    /// Sends the host a request without a deadline of its own, and waits for the handle's deadline.
    pub(crate) async fn call_within(&self, request: VolumeRequest) -> Result<HostSuccess, Error> {
        let client = self.inner.client.clone();
        self.in_time(async move { client.call(request).await.map_err(Error::from) }).await
    }

    /// The present description of a volume, which the host takes in. The kind of the volume must be as expected, since writing blocks would
    /// overwrite the attributes of an attribute volume, and vice versa.
    pub(crate) async fn describe(&self, name: &str, attribute_volume: bool) -> Result<VolumeDescription, Error> {
        let (inner, name) = (self.inner.clone(), name.to_string());
        self.in_time(async move {
            let description = inner.control.describe().await.map_err(SessionError::from)?;
            let found = braid_description::find_for_programs(&description, &name).map_err(SessionError::from)?;
            match found.attribute_volume {
                found if found == attribute_volume => Ok(inner.registry.take_in(&inner.control, &name).await?),
                true => Err(Error::IsAnAttributeVolume),
                false => Err(Error::Object(ObjectFailure::NotAnAttributeVolume)),
            }
        })
        .await
    }

    /// Sleeps for `span`, on whatever executor the caller runs.
    pub(crate) async fn sleep(&self, span: Duration) -> Result<(), Error> {
        self.on_thread(async move {
            tokio::time::sleep(span).await;
            Ok(())
        })
        .await
    }

    /// A program locks ranges of this space: the host's lease says so, for people.
    pub(crate) fn note_space(&self, space: &str) {
        let mut spaces = self.inner.spaces.lock().expect("nobody panics with it");
        if spaces.len() < SPACES_MAX {
            spaces.insert(space.to_string());
        }
    }

    /// Makes sure that the array runs its lock servers.
    pub(crate) async fn want_lock_servers(&self) -> Result<(), Error> {
        if self.inner.wants_lock_servers.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let inner = self.inner.clone();
        self.on_thread(async move {
            if inner.control.describe().await.map_err(SessionError::from)?.locks_ranges {
                return Ok(());
            }
            let want = inner.control.update(|description| {
                description.locks_ranges = true;
                Ok::<(), SessionError>(())
            });
            want.await.map_err(Error::from)
        })
        .await
    }

    /// A generation that no host has had, and none will have. It is higher than all that were given before.
    pub(crate) async fn unused_generation(&self) -> Result<u32, Error> {
        let inner = self.inner.clone();
        self.in_time(async move {
            let (leases, role) = (inner.control.leases(), "fencing token".to_string());
            let generation = leases.take_generation(role, Moment::now()).await.map_err(SessionError::from)?;
            leases.release(generation).await.map_err(SessionError::from)?;
            Ok(generation.0)
        })
        .await
    }

    /// Runs a future on the host's thread, for nobody.
    pub(crate) fn in_background(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.inner.runtime.spawn(work);
    }

    /// Runs a future on the host's thread until the handle's deadline.
    async fn in_time<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let waited = self.deadline;
        let limited =
            async move { tokio::time::timeout(waited, work).await.unwrap_or(Err(Error::TimedOut { waited })) };
        self.on_thread(limited).await
    }

    /// Runs a future on the host's thread, which has timers. If the returned future is dropped, the work continues there.
    pub(crate) async fn on_thread<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        // This fails only if the thread has ended, and the work with it.
        self.inner.runtime.spawn(work).await.unwrap_or(Err(Error::Closed))
    }
}

impl Files {
    /// Mounts the file system of this name, for a program that uses nothing else of the array: see [`Array::files`].
    ///
    /// # Errors
    /// The same as those of [`Array::files`].
    pub async fn mount(options: ArrayOptions, file_system: &str) -> Result<Files, FilesError> {
        let array = Array::start(options, Some(file_system.to_string())).await?;
        let inner = &array.inner;
        let file_system = inner.mounted.expect("its host has mounted it");
        let mount = Mount { client: inner.client.clone(), file_system, runtime: inner.runtime.clone() };
        Ok(Files::new(array, mount))
    }
}

/// The body of the host's thread.
fn run(control: ControlPlane, name: String, file_system: Option<String>, tell: SyncSender<Result<Inner, Error>>) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = tell.send(Err(setup_failed(control.place().to_path_buf(), error)));
            return;
        }
    };
    let handle = runtime.handle().clone();
    LocalSet::new().block_on(&runtime, async move {
        let started = async {
            braid_session::require_up(&control).await?;
            match file_system {
                None => Ok((Session::start(&control, &name).await?, None)),
                Some(mounted) => {
                    let (session, mounted) = Session::mount(&control, &name, &mounted, None, None).await?;
                    Ok::<_, SessionError>((session, Some(mounted)))
                }
            }
        };
        let (session, mounted) = match started.await {
            Ok(session) => session,
            Err(error) => {
                let _ = tell.send(Err(error.into()));
                return;
            }
        };
        let (end, mut ending) = mpsc::channel(1);
        let inner = Inner {
            control,
            generation: session.generation(),
            client: session.client().clone(),
            registry: session.registry().clone(),
            mounted,
            wants_lock_servers: AtomicBool::new(false),
            spaces: session.view().spaces().clone(),
            runtime: handle,
            end,
        };
        if tell.send(Ok(inner)).is_err() {
            return session.leave().await;
        }
        let asked = ending.recv().await;
        ending.close();
        match asked {
            Some(asked) => {
                session.end().await;
                let _ = asked.send(());
            }
            // All handles were dropped, and nobody waits.
            None => session.end_within(DROPPED_END_WAIT).await,
        }
        // Other handles that called `close` meanwhile.
        while let Ok(asked) = ending.try_recv() {
            let _ = asked.send(());
        }
    });
    runtime.shutdown_background();
}

fn setup_failed(dir: PathBuf, source: std::io::Error) -> Error {
    let error = braid_control::ControlError::File { doing: "start a host for", path: dir, source };
    Error::Array(Arc::new(error.into()))
}
