//! A monitor, device, lock server or metadata server in a process of its own (`braid monitord`, `braid device serve`, `braid lockd` or
//! `braid mds`), which dies with this process.

use super::{Assignment, Ended, Running, STOP_WAIT};
use braid_admin::failure::Failure;
use braid_admin::parent_process::{PANICKED, this_program};
use braid_control::event_texts::Crash;
use braid_shell::{Address, Budget};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};

pub struct ServerProcess {
    child: Child,
    /// Its standard output: after the announcement that it serves, the reason for its end, if it reports one.
    output: BufReader<ChildStdout>,
    name: String,
    pid: u32,
}

impl ServerProcess {
    /// Starts the process, and waits until it serves.
    pub async fn start(assignment: &Assignment, listen: &Address) -> Result<(ServerProcess, Running), Ended> {
        let name = assignment.name();
        let mut command = Command::from(this_program());
        match assignment {
            Assignment::Monitor { spare_after, .. } => {
                let spare_after = spare_after.map(|span| format!("{}s", span.as_secs()));
                command.arg("monitord").args(spare_after.iter().flat_map(|span| ["--spare-after", span]))
            }
            Assignment::Device { array, id, file, object_memory, .. } => {
                let object_memory = object_memory.map(|bytes| bytes.to_string());
                command
                    .args(["device", "serve", "--array-id", &array.to_string(), "--id", &id.0.to_string()])
                    .arg(file);
                command.args(object_memory.iter().flat_map(|bytes| ["--object-memory", bytes]))
            }
            Assignment::LockServer { id, .. } => command.args(["lockd", "--id", &id.0.to_string()]),
            Assignment::MetadataServer { name, shard, .. } => {
                let shard = shard.map(|shard| shard.to_string());
                command.args(["mds", name]).args(shard.iter().flat_map(|shard| ["--shard", shard]))
            }
        };
        command.arg("--array").arg(assignment.control().place());
        command.args(["--memory", &Budget::process().limit().to_string()]);
        let mut child = command
            .args(["--json", "--listen", &listen.to_string(), "--child-of", &std::process::id().to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            // The signals of a terminal are for this process, which ends its daemons in their order.
            .process_group(0)
            .spawn()
            .map_err(Failure::from)?;
        let pid = child.id().expect("it was just started");
        let mut output = BufReader::new(child.stdout.take().expect("standard output is a pipe"));
        let mut line = String::new();
        output.read_line(&mut line).await.map_err(Failure::from)?;
        let said: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
        let address = said.get("address").and_then(|address| address.as_str()).and_then(|text| text.parse().ok());
        let Some(address) = address else {
            let status = child.wait().await.map_err(Failure::from)?;
            let reported = Failure::from_json(&said, status.code());
            let crash = crash(pid, status, reported.as_ref());
            // It ended without an announcement, or wrote something else.
            let failure = reported.map(|failure| failure.of(&name)).unwrap_or_else(|| {
                Failure::failed("device-ended", format!("{name} ended before it served: {status}"))
                    .hint("its own messages are on standard error")
            });
            return Err(Ended { failure, crash });
        };
        Ok((ServerProcess { child, output, name, pid }, Running { address, pid }))
    }

    /// Returns when the process ends.
    pub async fn ended(&mut self) -> Ended {
        let status = match self.child.wait().await {
            Ok(status) => status,
            Err(error) => return Failure::failed("device-ended", format!("{} ended: {error}", self.name)).into(),
        };
        let mut line = String::new();
        let said = match self.output.read_line(&mut line).await {
            Ok(_) => serde_json::from_str(&line).unwrap_or_default(),
            Err(_) => serde_json::Value::Null,
        };
        let reported = Failure::from_json(&said, status.code());
        let crash = crash(self.pid, status, reported.as_ref());
        let failure = match reported {
            Some(failure) => failure.of(&self.name),
            None => Failure::failed("device-ended", format!("{} ended: {status}", self.name)),
        };
        Ended { failure, crash }
    }

    /// Asks the process to end, and kills it after a while.
    pub async fn stop(mut self) {
        let pid = self.child.id().and_then(|pid| rustix::process::Pid::from_raw(pid as i32));
        if let Some(pid) = pid {
            // The process may have ended meanwhile; its PID is not reused until it is waited for.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        if tokio::time::timeout(STOP_WAIT, self.child.wait()).await.is_err() {
            tracing::warn!("{} did not end within {STOP_WAIT:?}, and is killed", self.name);
            let _ = self.child.kill().await;
        }
    }
}

/// How a process crashed that ended with `status` and reported this failure. None if it ended in order.
fn crash(pid: u32, status: ExitStatus, reported: Option<&Failure>) -> Option<Box<Crash>> {
    let panic = reported.filter(|failure| failure.code == PANICKED).map(|failure| failure.message.clone());
    let has_crashed = status.signal().is_some() || panic.is_some();
    has_crashed.then(|| {
        let (signal, exit_status) = (status.signal(), status.code());
        Box::new(Crash { pid, signal, exit_status, how: panic.unwrap_or_else(|| status.to_string()) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_crashed_if_a_signal_ended_it_or_it_panicked() {
        let (killed, panicked, failed) =
            (ExitStatus::from_raw(9), ExitStatus::from_raw(101 << 8), ExitStatus::from_raw(1 << 8));
        let panic = Failure::failed(PANICKED, "panicked at there: that");
        let full = Failure::failed("no-space", "it is full");
        let how =
            |status, reported| crash(7, status, reported).map(|crash| (crash.signal, crash.exit_status, crash.how));
        assert_eq!(how(killed, None), Some((Some(9), None, killed.to_string())));
        assert_eq!(how(panicked, Some(&panic)), Some((None, Some(101), "panicked at there: that".into())));
        assert_eq!(how(failed, Some(&full)), None);
        assert_eq!(how(ExitStatus::from_raw(0), None), None);
    }
}
