//! The way to an array: a host on a thread of its own, and handles that ask it.

use crate::error::Error;
use crate::space::Space;
use crate::volume::Volume;
use braid_base::Generation;
use braid_control::ArrayFolder;
use braid_layout::VolumeDescription;
use braid_machine::{HostOutcome, HostRequest, HostSuccess};
use braid_session::{Session, SessionError, VolumeRegistry};
use braid_shell::HostClient;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::LocalSet;

/// How long a call may take, unless its handle says otherwise: as long as a host tries.
const DEADLINE: Duration = Duration::from_secs(30);
/// Where arrays lie, unless told otherwise; as for the command `braid`.
const DIR: &str = "./braid-data";

/// Which array, and how to use it.
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
    /// What this host is there for, as `braid status` shows it.
    pub name: String,
    /// How long calls may take; longer than 30 s is 30 s, since no host tries for longer.
    pub deadline: Duration,
}

impl Default for ArrayOptions {
    /// The array that the environment variable `BRAID_ARRAY` names, or else that in `./braid-data`.
    fn default() -> ArrayOptions {
        let dir = std::env::var_os("BRAID_ARRAY").map_or_else(|| PathBuf::from(DIR), PathBuf::from);
        ArrayOptions { dir, name: "client".to_string(), deadline: DEADLINE }
    }
}

impl ArrayOptions {
    /// For the array in this folder.
    pub fn at(dir: impl Into<PathBuf>) -> ArrayOptions {
        ArrayOptions { dir: dir.into(), ..ArrayOptions::default() }
    }

    /// The same, with this name.
    pub fn name(self, name: impl Into<String>) -> ArrayOptions {
        ArrayOptions { name: name.into(), ..self }
    }

    /// The same, with this deadline.
    pub fn deadline(self, deadline: Duration) -> ArrayOptions {
        ArrayOptions { deadline, ..self }
    }
}

/// An array, through a host that runs on a thread of its own. Clones are of the same host.
///
/// The host goes when [`Array::close`] was called, or when the last handle is gone: then it does so in the background, and a
/// process that ends at once leaves a host that the array takes for dead after a minute. Nothing that was answered is lost by that.
#[derive(Clone, Debug)]
pub struct Array {
    inner: Arc<Inner>,
    deadline: Duration,
}

#[derive(Debug)]
struct Inner {
    folder: ArrayFolder,
    generation: Generation,
    client: HostClient,
    registry: VolumeRegistry,
    /// Of the host's thread.
    runtime: Handle,
    /// Asks the host to end. When this is gone it ends, too.
    end: mpsc::Sender<oneshot::Sender<()>>,
}

impl Array {
    /// Starts a host of the array, which must be up (`braid up`). One for each process is enough.
    pub async fn connect(options: ArrayOptions) -> Result<Array, Error> {
        let (tell, started) = oneshot::channel();
        let ArrayOptions { dir, name, deadline } = options;
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            let thread = std::thread::Builder::new().name(name.to_string());
            thread.spawn(work).map(|_| ()).map_err(|error| setup_failed(dir.clone(), error))
        };
        let (host, ready) = std::sync::mpsc::sync_channel(1);
        let folder = ArrayFolder::at(&dir);
        spawn("braid-host", Box::new(move || run(folder, name, host)))?;
        // The host's thread stands still while others have the array's folder, and this one may be no executor's. A host that comes too
        // late finds itself unwanted, and goes.
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

    /// The objects on a device.
    pub fn device(&self, device: u16) -> Space {
        Space::on_device(self.clone(), device)
    }

    /// The objects on an attribute volume: a volume of its own that keeps attributes on several devices, and so outlives one. All its objects are
    /// there from the first, none is made or removed, and none holds bytes ([`Error::NotInAttributeVolume`]).
    pub async fn attribute_volume(&self, name: &str) -> Result<Space, Error> {
        Ok(Space::on_attribute_volume(self.clone(), self.describe(name, true).await?.id))
    }

    /// A volume.
    pub async fn volume(&self, name: &str) -> Result<Volume, Error> {
        Ok(Volume::new(self.clone(), self.describe(name, false).await?))
    }

    /// The same array, where calls may take so long.
    pub fn within(&self, deadline: Duration) -> Array {
        Array { deadline, ..self.clone() }
    }

    /// How long calls may take.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Names this start of this host: no other ever had this number in the array, or will. Good for saying who holds a lock.
    pub fn generation(&self) -> u32 {
        self.inner.generation.0
    }

    /// Says goodbye: what is under way ends, devices learn that nothing more will come, and the array forgets the host. Calls on this
    /// and all other handles end with [`Error::Closed`] from now on.
    pub async fn close(&self) {
        let (ended, end) = oneshot::channel();
        // If somebody else has just closed it, there is nobody to ask any more.
        if self.inner.end.send(ended).await.is_ok() {
            let _ = end.await;
        }
    }

    /// Asks the host something that has a deadline of its own.
    pub(crate) async fn call(&self, request: HostRequest) -> HostOutcome {
        self.inner.client.call(request).await
    }

    /// The same of what has none.
    pub(crate) async fn call_within(&self, request: HostRequest) -> Result<HostSuccess, Error> {
        let (client, waited) = (self.inner.client.clone(), self.deadline);
        self.on_thread(async move {
            match tokio::time::timeout(waited, client.call(request)).await {
                Ok(outcome) => outcome.map_err(Error::from),
                Err(_) => Err(Error::TimedOut { waited }),
            }
        })
        .await
    }

    /// A volume as it is now, which the host knows from then on. What is in an attribute volume, blocks would overwrite; and what is not one, attributes.
    pub(crate) async fn describe(&self, name: &str, attribute_volume: bool) -> Result<VolumeDescription, Error> {
        let (inner, name, waited) = (self.inner.clone(), name.to_string(), self.deadline);
        self.on_thread(async move {
            let described = async {
                let description = inner.folder.describe().map_err(SessionError::from)?;
                match braid_session::find(&description, &name)?.attribute_volume {
                    found if found == attribute_volume => Ok(inner.registry.take_in(&inner.folder, &name).await?),
                    true => Err(Error::IsAnAttributeVolume),
                    false => Err(Error::NotAnAttributeVolume),
                }
            };
            tokio::time::timeout(waited, described).await.unwrap_or(Err(Error::TimedOut { waited }))
        })
        .await
    }

    /// Waits for a while, whatever executor runs the caller.
    pub(crate) async fn sleep(&self, span: Duration) -> Result<(), Error> {
        self.on_thread(async move {
            tokio::time::sleep(span).await;
            Ok(())
        })
        .await
    }

    /// Runs something on the host's thread, where there are timers. Dropped before, it goes on there.
    async fn on_thread<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        // It fails only if the thread is gone, and its work with it.
        self.inner.runtime.spawn(work).await.unwrap_or(Err(Error::Closed))
    }
}

/// The host's thread.
fn run(folder: ArrayFolder, name: String, tell: SyncSender<Result<Inner, Error>>) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = tell.send(Err(setup_failed(folder.dir().to_path_buf(), error)));
            return;
        }
    };
    let handle = runtime.handle().clone();
    LocalSet::new().block_on(&runtime, async move {
        let started = async {
            braid_session::require_up(&folder)?;
            Session::start(&folder, &name).await
        };
        let session = match started.await {
            Ok(session) => session,
            Err(error) => {
                let _ = tell.send(Err(error.into()));
                return;
            }
        };
        let (end, mut ending) = mpsc::channel(1);
        let inner = Inner {
            folder,
            generation: session.generation(),
            client: session.client().clone(),
            registry: session.registry().clone(),
            runtime: handle,
            end,
        };
        if tell.send(Ok(inner)).is_err() {
            return session.leave();
        }
        let asked = ending.recv().await;
        ending.close();
        session.end().await;
        if let Some(asked) = asked {
            let _ = asked.send(());
        }
        // Others who asked meanwhile.
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
