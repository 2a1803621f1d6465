//! A device in a thread of this process, with a runtime of its own.

use super::{Assignment, Running, STOP_WAIT};
use crate::device::{DeviceFile, Expected};
use crate::failure::Failure;
use braid_shell::Address;
use tokio::sync::oneshot;

/// The thread of a device.
pub struct DeviceThread {
    stop: Option<oneshot::Sender<()>>,
    ended: oneshot::Receiver<Failure>,
    name: String,
}

impl DeviceThread {
    /// Starts it, and waits until it serves.
    pub async fn start(assignment: &Assignment, listen: &Address) -> Result<(DeviceThread, Running), Failure> {
        let name = format!("device {}", assignment.id);
        let (stop, stopped) = oneshot::channel();
        let (serving, served) = oneshot::channel();
        let (ending, mut ended) = oneshot::channel();
        let (assignment, listen) = (assignment.clone(), listen.clone());
        std::thread::Builder::new().name(name.clone()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let outcome = runtime.map_err(Failure::from).and_then(|runtime| {
                let expected = Expected { array: Some(assignment.array), id: Some(assignment.id) };
                let file = DeviceFile::open(&assignment.file, expected)?;
                runtime.block_on(file.serve(
                    &listen,
                    false,
                    |address| {
                        let _ = serving.send(address.clone());
                    },
                    async {
                        // Dropped: whoever started us has gone.
                        let _ = stopped.await;
                    },
                ))
            });
            let failure = outcome.err().unwrap_or_else(|| Failure::failed("device-ended", "it was stopped"));
            let _ = ending.send(failure);
        })?;
        match served.await {
            Ok(address) => {
                let running = Running { address, pid: std::process::id() };
                Ok((DeviceThread { stop: Some(stop), ended, name }, running))
            }
            Err(_) => Err(match (&mut ended).await {
                Ok(failure) => failure.of(name),
                Err(_) => Failure::failed("device-ended", format!("{name} ended before it served")),
            }),
        }
    }

    /// Ends when the thread does.
    pub async fn ended(&mut self) -> Failure {
        match (&mut self.ended).await {
            Ok(failure) => failure.of(&self.name),
            Err(_) => Failure::failed("device-ended", format!("{} panicked", self.name)),
        }
    }

    /// Asks the thread to end.
    pub async fn stop(mut self) {
        drop(self.stop.take());
        if tokio::time::timeout(STOP_WAIT, &mut self.ended).await.is_err() {
            tracing::warn!("{} did not end within {STOP_WAIT:?}", self.name);
        }
    }
}
