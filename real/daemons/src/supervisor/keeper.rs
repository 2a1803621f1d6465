//! A keeper: the task that keeps one daemon or node running. It starts it, notices its end, reports both, and starts it again after a
//! back-off.

use super::assignment::{Assignment, Ended, Wanted};
use super::contract::{Kept, Report, Running};
use super::{process, task};
use braid_admin::failure::Failure;
use braid_base::{Backoff, NodeId};
use braid_control::event_texts::Crash;
use braid_shell::Address;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};

/// How long a daemon may take to open its store and listen. A lock server may wait for two leases of one that was before it.
const START_WAIT: Duration = Duration::from_secs(180);
/// The first back-off before a daemon is restarted; it doubles up to [`BACKOFF_MAX`].
const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// A daemon that ran for so long resets the back-off. A metadata server that takes over from one that was killed needs a lease to serve: it
/// must not count as one that fails at its start.
const STEADY: Duration = Duration::from_secs(3);
/// A daemon that crashes in the same way at each start is recorded once in this time.
const CRASH_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// A started daemon or node, or a device of this node.
enum Started {
    Process(Box<process::ChildProcess>),
    Task(task::DeviceTask),
}

impl Started {
    async fn start(
        assignment: &Assignment,
        in_task: bool,
        listen: &Address,
        reporter: &mpsc::Sender<Report>,
    ) -> Result<(Self, Running), Ended> {
        if in_task {
            let (task, running) = task::DeviceTask::start(assignment, listen).await?;
            return Ok((Started::Task(task), running));
        }
        let (process, running) = process::ChildProcess::start(assignment, listen, reporter).await?;
        Ok((Started::Process(Box::new(process)), running))
    }

    /// Returns when the daemon ends, which is not expected, with the reason.
    async fn ended(&mut self) -> Ended {
        match self {
            Started::Process(process) => process.ended().await,
            Started::Task(task) => task.ended().await.into(),
        }
    }

    async fn stop(self) {
        match self {
            Started::Process(process) => process.stop().await,
            Started::Task(task) => task.stop().await,
        }
    }
}

/// Keeps what is wanted running, until nothing is.
pub(super) async fn keep(mut wanted: watch::Receiver<Wanted>, in_task: bool, reporter: mpsc::Sender<Report>) {
    // The port of an earlier start.
    let mut port = Address::loopback(0);
    let mut backoff = Backoff::new(BACKOFF_MIN, BACKOFF_MAX);
    let mut recorded: Option<(Instant, String)> = None;
    loop {
        // A dropped sender is an instruction to end, too.
        let is_over = wanted.has_changed().is_err();
        let Some(assignment) = wanted.borrow_and_update().clone().filter(|_| !is_over) else { return };
        let (kept, begun) = (assignment.kept(), Instant::now());
        let starting = async {
            let listen = assignment.listen(&port)?;
            Started::start(&assignment, in_task, &listen, &reporter).await
        };
        let starting = tokio::time::timeout(START_WAIT, starting);
        let started = tokio::select! {
            started = starting => started.unwrap_or_else(|_| {
                let message = format!("{kept} did not serve within {START_WAIT:?}");
                Err(Failure::unreachable("device-slow", message).into())
            }),
            // Dropping an unfinished start kills its process or task.
            _ = wanted.changed() => continue,
        };
        let Ended { failure, crash, down } = match started {
            Ok((mut server, running)) => {
                port = running.address.clone();
                let _ = reporter.send(Report { of: kept, state: Ok(running), crash: None, runs: None }).await;
                let ended = tokio::select! {
                    ended = server.ended() => ended,
                    _ = wanted.changed() => {
                        // It has a copy of the node's `HostsEnd`; the end of the node waits until there is none.
                        drop(assignment);
                        server.stop().await;
                        continue;
                    }
                };
                if begun.elapsed() > STEADY {
                    backoff.reset();
                }
                ended
            }
            Err(ended) => {
                // If the port was the problem, another one will do: hosts look up addresses.
                port = Address::loopback(0);
                ended
            }
        };
        let is_same = |crash: &Crash| recorded.as_ref().is_some_and(|(_, how)| *how == crash.how);
        let lately = || recorded.as_ref().is_some_and(|(at, _)| at.elapsed() < CRASH_AGAIN_AFTER);
        let crash = crash.filter(|crash| begun.elapsed() > STEADY || !is_same(crash) || !lately());
        if let Some(crash) = &crash {
            recorded = Some((Instant::now(), crash.how.clone()));
        }
        let failure = assignment.explain(failure);
        for device in down {
            let of = Kept::Daemon(NodeId::Device(device));
            let _ = reporter.send(Report { of, state: Err(failure.clone()), crash: None, runs: None }).await;
        }
        let _ = reporter.send(Report { of: kept, state: Err(failure), crash, runs: None }).await;
        if assignment.lacks_file().is_some() {
            // Every attempt would fail in the same way.
            tokio::select! {
                () = assignment.await_file() => {}
                _ = wanted.changed() => {}
            }
            continue;
        }
        let mut longer = backoff;
        tokio::select! {
            () = tokio::time::sleep(longer.next_wait()) => backoff = longer,
            _ = wanted.changed() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::assignment::{NO_FILE, What};
    use super::super::contract::Tuning;
    use super::*;
    use braid_base::{ArrayId, DeviceId};
    use braid_control::ControlPlane;
    use std::path::PathBuf;

    /// The assignment of a device in a new folder, and its file, which does not exist.
    fn assignment(test: &str) -> (PathBuf, PathBuf, Assignment) {
        let dir = std::env::temp_dir().join(format!("braid-supervisor-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (id, file) = (DeviceId(2), dir.join("device-2.braid"));
        let what = What::Device { array: ArrayId([7; 16]), id, file: file.clone(), listen: None };
        (dir.clone(), file, Assignment { control: ControlPlane::at(&dir), tuning: Tuning::default(), what })
    }

    #[tokio::test]
    async fn a_disk_that_is_in_use_does_not_stop_the_thread_of_its_node() {
        let (dir, file, assignment) = assignment("in-use");
        let other = std::fs::File::create(&file).unwrap();
        other.lock().unwrap();
        let listen = Address::loopback(0);
        let both = async {
            tokio::select! {
                biased;
                started = task::DeviceTask::start(&assignment, &listen) => Some(started.err()),
                () = tokio::time::sleep(BACKOFF_MIN) => None,
            }
        };
        let started = tokio::task::LocalSet::new().run_until(both).await;
        assert!(started.is_none(), "the start waits for the disk, and the thread goes on: {started:?}");
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[tokio::test]
    async fn a_device_without_its_file_is_started_when_the_file_is_there() {
        let (dir, file, assignment) = assignment("no-file");
        let killed = assignment.explain(Failure::failed("ended", "signal: 9 (SIGKILL)"));
        assert!(killed.code == NO_FILE && killed.message.ends_with("device-2.braid is gone"), "{killed}");
        let (_sender, wanted) = watch::channel(Some(assignment));
        let (reporter, mut reports) = mpsc::channel(10);
        let local = tokio::task::LocalSet::new();
        local.spawn_local(keep(wanted, true, reporter));
        let watched = async {
            let missing = reports.recv().await.unwrap().state.unwrap_err();
            assert_eq!(missing.code, NO_FILE);
            // Several back-offs would have passed.
            let again = tokio::time::timeout(BACKOFF_MIN * 10, reports.recv()).await;
            assert!(again.is_err(), "nothing is tried: {again:?}");
            std::fs::write(&file, b"something else").unwrap();
            let other = reports.recv().await.unwrap().state.unwrap_err();
            assert_ne!(other.code, NO_FILE);
        };
        local.run_until(watched).await;
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
