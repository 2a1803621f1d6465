//! Keeps the devices of an array running: each has a keeper, which starts it, notices its end, and starts it again.
//!
//! A device runs in a process of its own, or in a task of this one ([`Placement`]). Its address stays the same from start
//! to start wherever the port can be had again.

mod fence;
mod process;
mod task;

pub use fence::keep_fenced;

use crate::failure::Failure;
use braid_base::{ArrayId, DeviceId};
use braid_control::{ArrayDescription, DeviceEntry, RunningDaemon};
use braid_shell::Address;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// How long a device may take to open its store and listen.
const START_WAIT: Duration = Duration::from_secs(60);
/// How long a device may take to end.
const STOP_WAIT: Duration = Duration::from_secs(10);
/// The first wait before a device that ended is started again; doubles up to [`BACKOFF_MAX`].
const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// A device that ran so long has shown that it can run.
const STEADY: Duration = Duration::from_secs(10);

/// Where a device runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// In a process of its own, that can be killed without the others.
    Process,
    /// In a task of this process, in the thread of the host: messages between them cost no system calls.
    Task,
}

/// What a keeper says of its device.
#[derive(Clone, Debug)]
pub struct Report {
    /// Which device.
    pub id: DeviceId,
    /// Where and how it runs, or why it does not.
    pub state: Result<Running, Failure>,
}

/// A device that serves.
#[derive(Clone, Debug)]
pub struct Running {
    /// Where.
    pub address: Address,
    /// In which process.
    pub pid: u32,
}

/// What a keeper needs to start its device.
#[derive(Clone, Debug)]
struct Assignment {
    array: ArrayId,
    id: DeviceId,
    file: PathBuf,
}

/// The keepers of all devices of an array.
pub struct Keepers {
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
    reports: mpsc::Receiver<Report>,
}

impl Keepers {
    /// Starts every device of the array. What becomes of them is told by [`Keepers::report`].
    pub fn start(folder: &Path, description: &ArrayDescription, placement: Placement) -> Keepers {
        let (stop, stopped) = watch::channel(false);
        let (reporter, reports) = mpsc::channel(description.devices.len().max(1));
        let mut tasks = JoinSet::new();
        for DeviceEntry { id, file, .. } in &description.devices {
            let assignment = Assignment { array: description.array, id: DeviceId(*id), file: folder.join(file) };
            tasks.spawn_local(keep(assignment, placement, stopped.clone(), reporter.clone()));
        }
        Keepers { stop, tasks, reports }
    }

    /// The next thing that happens to a device.
    pub async fn report(&mut self) -> Report {
        self.reports.recv().await.expect("keepers report until they are stopped")
    }

    /// Ends all devices, and returns when they have ended.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        self.reports.close();
        while self.tasks.join_next().await.is_some() {}
    }
}

/// One start of a device, wherever it runs.
enum Started {
    Process(process::DeviceProcess),
    Task(task::DeviceTask),
}

impl Started {
    async fn start(
        assignment: &Assignment,
        placement: Placement,
        listen: &Address,
    ) -> Result<(Self, Running), Failure> {
        match placement {
            Placement::Process => {
                let (process, running) = process::DeviceProcess::start(assignment, listen).await?;
                Ok((Started::Process(process), running))
            }
            Placement::Task => {
                let (task, running) = task::DeviceTask::start(assignment, listen).await?;
                Ok((Started::Task(task), running))
            }
        }
    }

    /// Ends when the device does, which it is not expected to.
    async fn ended(&mut self) -> Failure {
        match self {
            Started::Process(process) => process.ended().await,
            Started::Task(task) => task.ended().await,
        }
    }

    async fn stop(self) {
        match self {
            Started::Process(process) => process.stop().await,
            Started::Task(task) => task.stop().await,
        }
    }
}

async fn keep(
    assignment: Assignment,
    placement: Placement,
    mut stop: watch::Receiver<bool>,
    reporter: mpsc::Sender<Report>,
) {
    let id = assignment.id;
    let any = Address::loopback(0);
    let mut listen = any.clone();
    let mut backoff = BACKOFF_MIN;
    let mut stopped = std::pin::pin!(async move {
        // The sender's end is an end, too.
        let _ = stop.wait_for(|stop| *stop).await;
    });
    loop {
        let begun = Instant::now();
        let starting = tokio::time::timeout(START_WAIT, Started::start(&assignment, placement, &listen));
        let started = tokio::select! {
            started = starting => started.unwrap_or_else(|_| {
                let message = format!("device {id} did not begin to serve within {START_WAIT:?}");
                Err(Failure::unreachable("device-slow", message))
            }),
            // A start that is cut short takes its process or task with it.
            () = &mut stopped => return,
        };
        let failure = match started {
            Ok((mut device, running)) => {
                listen = running.address.clone();
                let _ = reporter.send(Report { id, state: Ok(running) }).await;
                let failure = tokio::select! {
                    failure = device.ended() => failure,
                    () = &mut stopped => return device.stop().await,
                };
                if begun.elapsed() > STEADY {
                    backoff = BACKOFF_MIN;
                }
                failure
            }
            Err(failure) => {
                // If it was the port, another will do: hosts look up where devices are.
                listen = any.clone();
                failure
            }
        };
        let _ = reporter.send(Report { id, state: Err(failure) }).await;
        tokio::select! {
            () = tokio::time::sleep(backoff) => {}
            () = &mut stopped => return,
        }
        backoff = (backoff * 2).min(BACKOFF_MAX);
    }
}

impl Report {
    /// As others are told of it.
    pub fn entry(&self, before: Option<&RunningDaemon>) -> RunningDaemon {
        let restarts = before.map_or(0, |before| before.restarts);
        match &self.state {
            Ok(running) => RunningDaemon {
                id: self.id.0,
                address: running.address.to_string(),
                pid: Some(running.pid),
                restarts,
                down: None,
            },
            Err(failure) => RunningDaemon {
                id: self.id.0,
                address: before.map(|before| before.address.clone()).unwrap_or_default(),
                pid: None,
                restarts: restarts + 1,
                down: Some(failure.message.clone()),
            },
        }
    }
}
