//! A monitor, device, lock server or metadata server in a process of its own (`braid monitord`, `braid device serve`, `braid lockd` or
//! `braid mds`), which dies with this process.

use super::{Assignment, Running, STOP_WAIT};
use braid_admin::failure::Failure;
use braid_admin::parent_process::this_program;
use braid_shell::{Address, Budget};
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};

pub struct ServerProcess {
    child: Child,
    /// Its standard output: after the announcement that it serves, the reason for its end, if it reports one.
    output: BufReader<ChildStdout>,
    name: String,
}

impl ServerProcess {
    /// Starts the process, and waits until it serves.
    pub async fn start(assignment: &Assignment, listen: &Address) -> Result<(ServerProcess, Running), Failure> {
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
        command.arg("--array").arg(assignment.folder().dir());
        command.args(["--memory", &Budget::process().limit().to_string()]);
        let mut child = command
            .args(["--json", "--listen", &listen.to_string(), "--child-of", &std::process::id().to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            // The signals of a terminal are for this process, which ends its daemons in their order.
            .process_group(0)
            .spawn()?;
        let pid = child.id().expect("it was just started");
        let mut output = BufReader::new(child.stdout.take().expect("standard output is a pipe"));
        let mut line = String::new();
        output.read_line(&mut line).await?;
        let said: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
        let address = said.get("address").and_then(|address| address.as_str()).and_then(|text| text.parse().ok());
        let Some(address) = address else {
            let status = child.wait().await?;
            if let Some(failure) = Failure::from_json(&said, status.code()) {
                return Err(failure.of(name));
            }
            // It ended without an announcement, or wrote something else.
            return Err(Failure::failed("device-ended", format!("{name} ended before it served: {status}"))
                .hint("its own messages are on standard error"));
        };
        Ok((ServerProcess { child, output, name }, Running { address, pid }))
    }

    /// Returns when the process ends.
    pub async fn ended(&mut self) -> Failure {
        let (status, how) = match self.child.wait().await {
            Ok(status) => (status.code(), status.to_string()),
            Err(error) => (None, error.to_string()),
        };
        let mut line = String::new();
        if self.output.read_line(&mut line).await.is_ok()
            && let Ok(said) = serde_json::from_str(&line)
            && let Some(failure) = Failure::from_json(&said, status)
        {
            return failure.of(&self.name);
        }
        Failure::failed("device-ended", format!("{} ended: {how}", self.name))
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
