//! An array that a program administers. It is identified by its folder. Its events are a stream, as printed by `braid events --follow`.

use crate::failure::{Exit, Failure};
use braid_base::ArrayId;
use braid_control::{ControlPlane, EventCursor, NotTold};
pub use braid_control::{Event, EventKind};
use braid_session::{HEARTBEAT, Session, hosts_ended, require_up};
use rustix::process::Signal;
use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::task::LocalSet;

/// An array that is administered, identified by its folder. It keeps nothing open: each operation runs a host of its own for as long as it
/// takes. Operations must be awaited on a tokio `LocalSet`, such as the one made by [`wait`].
#[derive(Clone, Debug)]
pub struct Array {
    control: ControlPlane,
}

impl Array {
    /// The array with this folder (or with the `array.json` in it). Nothing is read: the operations report it if there is no array.
    pub fn at(path: impl AsRef<Path>) -> Array {
        Array::of(ControlPlane::at(path.as_ref()))
    }

    /// The array in a folder.
    pub fn of(control: ControlPlane) -> Array {
        Array { control }
    }

    pub fn control(&self) -> &ControlPlane {
        &self.control
    }

    /// The events of the array: those in the log, oldest first, followed by new ones.
    pub async fn events(&self) -> Result<Events, Failure> {
        self.control.require_array().await?;
        let (events, cursor) = self.control.events().await?;
        Ok(Events::after(self.control.clone(), cursor, events))
    }

    pub async fn events_from_now(&self) -> Result<Events, Failure> {
        self.control.require_array().await?;
        let (_, cursor) = self.control.events().await?;
        Ok(Events::after(self.control.clone(), cursor, Vec::new()))
    }

    /// Stops the process that runs the array (`braid up`): its NBD server, then its devices. Acknowledged writes are durable in any case.
    /// Waits for at most `patience`; then the error is `still-up`. If the array is not up, it is `not-up`. Returns the array's id.
    pub async fn down(&self, patience: Duration) -> Result<ArrayId, Failure> {
        let control = &self.control;
        let description = control.describe().await?;
        let not_up = || Failure::not_up(control);
        let running = control.running().await?.ok_or_else(not_up)?;
        if running.supervisor == 0 {
            return Err(Failure::failed("starting", "the array is being started").hint("try again in a moment"));
        }
        let supervisor = running.supervisor();
        supervisor.signal(Signal::TERM).map_err(|why| match why {
            NotTold::Ended => not_up(),
            NotTold::Elsewhere => Failure::failed("runs-elsewhere", format!("the array is run by {supervisor}"))
                .hint("run `braid down` there, or end that process with SIGTERM there"),
            NotTold::Refused => Failure::failed("not-permitted", format!("{supervisor} can't be told to end"))
                .hint("run `braid down` as its user, or as root"),
        })?;
        let pid = running.supervisor;
        let has_ended = async || Ok(control.running().await?.is_none_or(|now| now.supervisor != pid));
        if await_until(control, patience, has_ended).await? {
            return Ok(description.array);
        }
        Err(Failure::failed("still-up", format!("process {pid} has not ended yet"))
            .hint(format!("its devices are crash-safe: if it hangs, `kill -9 {pid}` loses no data")))
    }

    /// Runs an operation with a host of its own, which has the role `what` in the array's status. If the array is not up, the error is
    /// `not-up`.
    pub async fn with_host<T>(
        &self,
        what: &str,
        work: impl AsyncFnOnce(&Session) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        require_up(&self.control).await?;
        let session = Session::start(&self.control, what).await?;
        let outcome = outcome_of(&session, work(&session).await).await;
        session.end().await;
        outcome
    }
}

/// The outcome of a host's operation; if the operation timed out because the host was fenced, that is the error instead.
pub async fn outcome_of<T>(session: &Session, outcome: Result<T, Failure>) -> Result<T, Failure> {
    match &outcome {
        // The host checks its lease twice a second.
        Err(failure) if failure.exit == Exit::Unreachable => {
            let lost = tokio::time::timeout(HEARTBEAT * 2, session.lost()).await;
            lost.map_or(outcome, |loss| Err(loss.into()))
        }
        _ => outcome,
    }
}

/// Runs operations in this thread until they complete, on a new runtime and `LocalSet`.
pub fn wait<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = LocalSet::new().block_on(&runtime, async {
        let outcome = work.await;
        // What was given up has dropped its hosts.
        hosts_ended().await;
        outcome
    });
    // Background work must not keep the program from ending.
    runtime.shutdown_background();
    outcome
}

/// The interval at which the log is read.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The events of an array in the order of its log. The log is bounded: a stream that is not read for a long time may miss events that the
/// log no longer contains.
#[derive(Debug)]
pub struct Events {
    control: ControlPlane,
    cursor: EventCursor,
    read: VecDeque<Event>,
}

impl Events {
    /// First the events in `read`, then those after `cursor`.
    pub fn after(control: ControlPlane, cursor: EventCursor, read: Vec<Event>) -> Events {
        Events { control, cursor, read: read.into() }
    }

    /// The next event, for which it waits without a limit. Dropping the future loses no event.
    pub async fn next(&mut self) -> Result<Event, Failure> {
        loop {
            if let Some(event) = self.read.pop_front() {
                return Ok(event);
            }
            self.read_on().await?;
            if self.read.is_empty() {
                self.control.changed(LOOK_EVERY).await;
            }
        }
    }

    /// The events in the log that were not returned yet; none if there are none now.
    pub async fn pending(&mut self) -> Result<Vec<Event>, Failure> {
        self.read_on().await?;
        Ok(self.read.drain(..).collect())
    }

    /// All events that have come since the last were returned; waits until there is one. Dropping this future loses no event.
    pub async fn next_batch(&mut self) -> Result<Vec<Event>, Failure> {
        loop {
            let come = self.pending().await?;
            if !come.is_empty() {
                return Ok(come);
            }
            self.control.changed(LOOK_EVERY).await;
        }
    }

    async fn read_on(&mut self) -> Result<(), Failure> {
        let (events, cursor) = self.control.events_since(self.cursor).await?;
        self.cursor = cursor;
        self.read.extend(events);
        Ok(())
    }
}

const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// Looks at the array again and again, until `is_so`; false if it is not so within `limit`.
pub(crate) async fn await_until(
    control: &ControlPlane,
    limit: Duration,
    is_so: impl AsyncFn() -> Result<bool, Failure>,
) -> Result<bool, Failure> {
    let begun = Instant::now();
    while !is_so().await? {
        if begun.elapsed() > limit {
            return Ok(false);
        }
        control.changed(LOOK_PAUSE).await;
    }
    Ok(true)
}
