//! A device in a task of this process, in the same thread as the host of its node.

use super::assignment::{Assignment, What};
use super::contract::{Running, STOP_WAIT};
use crate::daemon::MonitorAt;
use crate::device::DeviceDaemon;
use braid_admin::device_file::{DeviceFile, Expected};
use braid_admin::failure::Failure;
use braid_shell::Address;
use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinSet, spawn_blocking};

/// The task. It ends at once when dropped.
pub struct DeviceTask {
    stop: oneshot::Sender<()>,
    /// The task alone.
    task: JoinSet<Failure>,
    name: String,
}

impl DeviceTask {
    /// Starts the task, and waits until it serves.
    pub async fn start(assignment: &Assignment, listen: &Address) -> Result<(DeviceTask, Running), Failure> {
        let name = assignment.kept().to_string();
        let (stop, stopped) = oneshot::channel::<()>();
        let (serving, served) = oneshot::channel();
        let (assignment, listen) = (assignment.clone(), listen.clone());
        let mut task = JoinSet::new();
        task.spawn_local(async move {
            let told = |address: &Address| {
                let _ = serving.send(address.clone());
            };
            let stopped = async {
                // The sender is dropped if the supervisor has ended.
                let _ = stopped.await;
            };
            let outcome = async {
                let Assignment { control, tuning, what } = assignment;
                let What::Device { array, id, file, .. } = what else { unreachable!("a node runs devices alone") };
                let expected = Expected { array: Some(array), id: Some(id) };
                // A disk that hangs, or is in use, would stop the whole node.
                let opened =
                    spawn_blocking(move || DeviceFile::open(&file, expected)).await.expect("it does not panic");
                let device = DeviceDaemon::new(opened?, tuning.object_memory);
                device.serve(&listen, MonitorAt::Control(control), false, told, stopped).await
            };
            outcome.await.err().unwrap_or_else(|| Failure::failed("device-ended", "it was stopped"))
        });
        match served.await {
            Ok(address) => Ok((DeviceTask { stop, task, name }, Running { address, pid: std::process::id() })),
            Err(_) => Err(how_it_ended(&name, task.join_next().await)),
        }
    }

    /// Returns when the task ends.
    pub async fn ended(&mut self) -> Failure {
        how_it_ended(&self.name, self.task.join_next().await)
    }

    pub async fn stop(self) {
        let DeviceTask { stop, mut task, name } = self;
        drop(stop);
        if tokio::time::timeout(STOP_WAIT, task.join_next()).await.is_err() {
            tracing::warn!("{name} did not end within {STOP_WAIT:?}");
        }
    }
}

fn how_it_ended(name: &str, ended: Option<Result<Failure, JoinError>>) -> Failure {
    match ended {
        Some(Ok(failure)) => failure.of(name),
        _ => Failure::failed("device-ended", format!("{name} panicked")),
    }
}
