//! An array, as programs administer it: by its folder.

use crate::creation::{self, CreateOptions};
use crate::events::Events;
use crate::failure::{Exit, Failure};
use crate::snapshot::SnapshotReader;
use crate::status::Status;
use braid_base::ArrayId;
use braid_control::ArrayFolder;
use braid_session::{HEARTBEAT, Session, require_up};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::task::LocalSet;

/// An array that is administered, by its folder. It holds nothing open: each operation is a host of its own, for as long as it takes.
/// Operations must be awaited on a tokio `LocalSet`, such as [`wait`](crate::wait) makes.
#[derive(Clone, Debug)]
pub struct Array {
    folder: ArrayFolder,
}

/// What hosts that administer an array are called in its status.
const WHAT: &str = "admin";
/// The wait before another look whether the supervisor has ended.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

impl Array {
    /// The array whose folder (or `array.json` in it) this is. Whether there is one is found out by the operations.
    pub fn at(path: impl AsRef<Path>) -> Array {
        Array::of(ArrayFolder::at(path.as_ref()))
    }

    /// The array of a folder.
    pub fn of(folder: ArrayFolder) -> Array {
        Array { folder }
    }

    /// Makes an array: its folder and the files of its devices, as `asked`. Nothing runs yet: `braid up --dir PATH` runs it, and makes its first
    /// volumes. If the folder holds an array already that differs from `asked`, that is the error `arguments-differ`.
    pub fn create(path: impl AsRef<Path>, asked: &CreateOptions) -> Result<Array, Failure> {
        asked.creation()?;
        let folder = ArrayFolder::at(path.as_ref());
        // Held until the array is made: no other may make or run it meanwhile.
        let _supervision = folder.supervise()?;
        creation::open_or_create(&folder, asked)?;
        Ok(Array { folder })
    }

    /// The array's folder.
    pub fn folder(&self) -> &ArrayFolder {
        &self.folder
    }

    /// The array's status. Devices that don't answer within three seconds count as silent. It is no error if the array is not up.
    pub async fn status(&self) -> Result<Status, Failure> {
        let mut reader = SnapshotReader::new(self.folder.clone(), WHAT);
        let look = reader.look().await;
        reader.leave();
        Ok(Status::of(&look?))
    }

    /// What has happened to the array, from the oldest event that is known to the latest, and then what happens from now on.
    pub fn events(&self) -> Result<Events, Failure> {
        self.folder.describe()?;
        let (events, cursor) = self.folder.events()?;
        Ok(Events::after(self.folder.clone(), cursor, events))
    }

    /// What happens to the array from now on.
    pub fn events_from_now(&self) -> Result<Events, Failure> {
        self.folder.describe()?;
        let (_, cursor) = self.folder.events()?;
        Ok(Events::after(self.folder.clone(), cursor, Vec::new()))
    }

    /// Ends what runs the array (`braid up`): its NBD server, then its devices. Acknowledged writes are durable anyway. Waits for at most
    /// `patience`; then that is the error `still-up`. `not-up` if nothing runs it. The array's id.
    pub async fn down(&self, patience: Duration) -> Result<ArrayId, Failure> {
        let folder = &self.folder;
        let description = folder.describe()?;
        let not_up = || Failure::not_up(folder);
        let running = folder.running()?.ok_or_else(not_up)?;
        let pid = Pid::from_raw(running.supervisor as i32).filter(|_| running.supervisor > 1);
        let starting = || Failure::failed("starting", "the array is just being started").hint("try again in a moment");
        // The process is named by a descriptor, and only then asked whether it is still the one: a number may be
        // given to another process in between.
        let process = pidfd_open(pid.ok_or_else(starting)?, PidfdFlags::empty()).map_err(|_| not_up())?;
        if folder.running()?.map(|running| running.supervisor) != Some(running.supervisor) {
            return Err(not_up());
        }
        pidfd_send_signal(&process, Signal::TERM).map_err(std::io::Error::from)?;
        let begun = Instant::now();
        while folder.running()?.is_some_and(|now| now.supervisor == running.supervisor) {
            if begun.elapsed() > patience {
                let hint =
                    format!("its devices are crash-safe: if it hangs, `kill -9 {}` loses nothing", running.supervisor);
                let message = format!("process {} has not ended yet", running.supervisor);
                return Err(Failure::failed("still-up", message).hint(hint));
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
        Ok(description.array)
    }

    /// Does something by way of a host of its own, called `what` in the array's status. `not-up` if nothing runs the array.
    pub async fn with_host<T>(
        &self,
        what: &str,
        work: impl AsyncFnOnce(&Session) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        require_up(&self.folder)?;
        let session = Session::start(&self.folder, what).await?;
        let outcome = outcome_of(&session, work(&session).await).await;
        session.end().await;
        outcome
    }
}

/// What an operation of a host has come to; or that the host was fenced, if that is why nothing has answered.
pub async fn outcome_of<T>(session: &Session, outcome: Result<T, Failure>) -> Result<T, Failure> {
    match &outcome {
        // It looks at its lease twice a second.
        Err(failure) if failure.exit == Exit::Unreachable => {
            let lost = tokio::time::timeout(HEARTBEAT * 2, session.lost()).await;
            lost.map_or(outcome, |loss| Err(loss.into()))
        }
        _ => outcome,
    }
}

/// Runs operations to their end in this thread, on a runtime and a `LocalSet` of their own.
pub fn wait<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = LocalSet::new().block_on(&runtime, work);
    // Nothing that is still running may keep a program from ending.
    runtime.shutdown_background();
    outcome
}
