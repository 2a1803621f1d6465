//! A monitor, device, lock server, metadata server or node in a process of its own (`braid monitord`, `braid device serve`, `braid lockd`,
//! `braid mds` or `braid node`), which dies with this process.
//!
//! The process says on standard output, a JSON object a line: that it serves, and why it ends. A node also says what becomes of each of
//! its devices, and when its host has ended.

use super::assignment::{Assignment, Ended, What};
use super::contract::{Kept, Report, Running, STOP_WAIT};
use super::nodes::HostsEnd;
use braid_admin::failure::Failure;
use braid_admin::parent_process::{PANICKED, this_program};
use braid_base::{DeviceId, NodeId};
use braid_control::HOLDER;
use braid_control::event_texts::Crash;
use braid_shell::{Address, Budget};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;

pub struct ChildProcess {
    child: Child,
    output: Lines<BufReader<ChildStdout>>,
    name: String,
    pid: u32,
    /// What a node needs besides.
    node: Option<NodeProcess>,
}

struct NodeProcess {
    /// While it is open, the node's devices serve, even if the node has been asked to end.
    stdin: Option<ChildStdin>,
    hosts_end: HostsEnd,
    devices: BTreeSet<DeviceId>,
    reporter: mpsc::Sender<Report>,
    /// The node itself, and where its NBD server listens.
    itself: (Kept, Address),
    /// Why its NBD server does not serve.
    not_serving: Option<Failure>,
}

impl ChildProcess {
    /// Starts the process, and waits until it serves.
    pub async fn start(
        assignment: &Assignment,
        listen: &Address,
        reporter: &mpsc::Sender<Report>,
    ) -> Result<(ChildProcess, Running), Ended> {
        let name = assignment.kept().to_string();
        let mut command = command(assignment);
        command.arg("--array").arg(assignment.control.place());
        command.args(["--memory", &Budget::process().limit().to_string()]);
        command.args(["--json", "--listen", &listen.to_string(), "--child-of", &std::process::id().to_string()]);
        if let Some(cluster) = assignment.control.cluster() {
            command.env(HOLDER, cluster.holder().to_string());
        }
        let hosts_end = match &assignment.what {
            What::Node { hosts_end, .. } => Some(hosts_end.clone()),
            _ => None,
        };
        let mut child = command
            .stdin(if hosts_end.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            // The signals of a terminal are for this process, which ends its daemons in their order.
            .process_group(0)
            .spawn()
            .map_err(Failure::from)?;
        let pid = child.id().expect("it was just started");
        let output = BufReader::new(child.stdout.take().expect("standard output is a pipe")).lines();
        let stdin = child.stdin.take();
        let node = hosts_end.map(|hosts_end| NodeProcess {
            stdin,
            hosts_end,
            devices: BTreeSet::new(),
            reporter: reporter.clone(),
            itself: (assignment.kept(), listen.clone()),
            not_serving: None,
        });
        let mut process = ChildProcess { child, output, name, pid, node };
        let said = process.says().await.map_err(Failure::from)?;
        let address = said.get("address").and_then(Value::as_str).and_then(|text| text.parse().ok());
        let address = address.or_else(|| process.node.as_ref()?.not_serving.as_ref().map(|_| listen.clone()));
        let Some(address) = address else {
            let status = process.child.wait().await.map_err(Failure::from)?;
            // It ended without an announcement, or wrote something else.
            let otherwise = || {
                Failure::failed("device-ended", format!("{} ended before it served: {status}", process.name))
                    .hint("its own messages are on standard error")
            };
            return Err(process.end_with(&said, status, otherwise));
        };
        Ok((process, Running { address, pid }))
    }

    /// The next line that is not about a device of a node; nothing once it is over.
    async fn says(&mut self) -> std::io::Result<Value> {
        while let Some(line) = self.output.next_line().await? {
            let said: Value = serde_json::from_str(&line).unwrap_or_default();
            match (device_said(&said), &mut self.node) {
                (Some((device, state)), Some(node)) => {
                    let is_up = state.is_ok();
                    let of = Kept::Daemon(NodeId::Device(device));
                    let _ = node.reporter.send(Report { of, state, crash: None, runs: None }).await;
                    if is_up {
                        node.devices.insert(device)
                    } else {
                        node.devices.remove(&device)
                    };
                }
                (None, Some(node)) if said.get(NOT_SERVING).is_some() => {
                    node.not_serving = Failure::from_json(&said, None);
                    return Ok(said);
                }
                _ => return Ok(said),
            }
        }
        Ok(Value::Null)
    }

    /// Returns when the process ends.
    pub async fn ended(&mut self) -> Ended {
        if self.node.as_ref().is_some_and(|node| node.not_serving.is_some()) {
            self.report_service().await;
        }
        // Its output ends with it.
        let mut last = Value::Null;
        while let Ok(said) = self.says().await
            && !said.is_null()
        {
            // Another process has asked the node to end. Its devices end, too, so that all of it is started again.
            if said.get(HOST_ENDED).is_some()
                && let Some(node) = &mut self.node
            {
                drop(node.stdin.take());
            }
            if said.get("address").is_some()
                && let Some(node) = &mut self.node
            {
                node.not_serving = None;
            }
            if said.get(NOT_SERVING).is_some() || said.get("address").is_some() {
                self.report_service().await;
            }
            last = said;
        }
        let status = match self.child.wait().await {
            Ok(status) => status,
            Err(error) => return Failure::failed("device-ended", format!("{} ended: {error}", self.name)).into(),
        };
        self.end_with(&last, status, || Failure::failed("device-ended", format!("{} ended: {status}", self.name)))
    }

    /// Reports whether a node serves NBD clients. Its devices serve in any case.
    async fn report_service(&self) {
        let Some(NodeProcess { reporter, itself: (of, address), not_serving, .. }) = &self.node else { return };
        let state = match not_serving {
            Some(failure) => Err(failure.clone()),
            None => Ok(Running { address: address.clone(), pid: self.pid }),
        };
        let _ = reporter.send(Report { of: *of, state, crash: None, runs: Some(self.pid) }).await;
    }

    /// How the process ended, which `said` this last.
    fn end_with(&self, said: &Value, status: ExitStatus, otherwise: impl FnOnce() -> Failure) -> Ended {
        let reported = Failure::from_json(said, status.code());
        let crash = crash(self.pid, status, reported.as_ref());
        let failure = reported.map_or_else(otherwise, |failure| failure.of(&self.name));
        let down = self.node.as_ref().map(|node| node.devices.clone()).unwrap_or_default();
        Ended { failure, crash, down }
    }

    /// Asks the process to end, and kills it after a while. The devices of a node end after the hosts of all nodes.
    pub async fn stop(mut self) {
        let pid = self.child.id().and_then(|pid| rustix::process::Pid::from_raw(pid as i32));
        if let Some(pid) = pid {
            // The process may have ended meanwhile; its PID is not reused until it is waited for.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        if let Some(mut node) = self.node.take() {
            // Nobody reads the reports of its devices any more.
            if tokio::time::timeout(STOP_WAIT, self.says_of_its_host()).await.is_err() {
                tracing::warn!("the host of {} did not end within {STOP_WAIT:?}", self.name);
            }
            node.hosts_end.await_others().await;
            drop(node.stdin.take());
        }
        if tokio::time::timeout(STOP_WAIT, self.child.wait()).await.is_err() {
            tracing::warn!("{} did not end within {STOP_WAIT:?}, and is killed", self.name);
            let _ = self.child.kill().await;
        }
    }

    /// Returns when the process says that its host has ended, or has ended itself.
    async fn says_of_its_host(&mut self) {
        while let Ok(said) = self.says().await
            && !said.is_null()
            && said.get(HOST_ENDED).is_none()
        {}
    }
}

/// The command line, but for what all of them are told.
fn command(assignment: &Assignment) -> Command {
    let mut command = Command::from(this_program());
    let object_memory = assignment.tuning.object_memory.map(|bytes| bytes.to_string());
    match &assignment.what {
        What::Monitor => {
            let spare_after = assignment.tuning.spare_after.map(|span| format!("{}s", span.as_secs()));
            command.arg("monitord").args(spare_after.iter().flat_map(|span| ["--spare-after", span]))
        }
        What::Device { array, id, file, .. } => {
            command.args(["device", "serve", "--array-id", &array.to_string(), "--id", &id.0.to_string()]).arg(file);
            command.args(object_memory.iter().flat_map(|bytes| ["--object-memory", bytes]))
        }
        What::LockServer(id) => command.args(["lockd", "--id", &id.0.to_string()]),
        What::MetadataServer { name, shard, .. } => {
            let shard = shard.map(|shard| shard.to_string());
            command.args(["mds", name]).args(shard.iter().flat_map(|shard| ["--shard", shard]))
        }
        What::Node { share, unavailable, .. } => {
            let unavailable = unavailable.map(|setting| setting.to_string());
            command.args(["node", "--share", &share.to_string()]);
            command.args(unavailable.iter().flat_map(|setting| ["--unavailable", setting]));
            command.args(assignment.tuning.tcp.then_some("--tcp"));
            command.args(object_memory.iter().flat_map(|bytes| ["--object-memory", bytes]))
        }
    };
    command
}

/// The key by which a node says that its host has ended.
pub const HOST_ENDED: &str = "host_ended";

/// The key by which a node says that its NBD server can't serve yet.
const NOT_SERVING: &str = "not_serving";

/// What a node says while its NBD server can't serve.
pub fn say_not_serving(failure: &Failure) -> Value {
    let Failure { code, message, hint, .. } = failure;
    json!({NOT_SERVING: true, "error": {"code": code, "message": message, "hint": hint}})
}

/// What a node says of one of its devices.
pub fn say_of_device(device: DeviceId, state: &Result<Running, Failure>) -> Value {
    match state {
        Ok(running) => json!({"device": device.0, "serves_at": running.address.to_string(), "pid": running.pid}),
        Err(Failure { code, message, hint, exit }) => {
            json!({"device": device.0, "status": *exit as i32, "error": {"code": code, "message": message, "hint": hint}})
        }
    }
}

/// The reverse of [`say_of_device`].
fn device_said(said: &Value) -> Option<(DeviceId, Result<Running, Failure>)> {
    let number = |key: &str| said.get(key).and_then(Value::as_u64);
    let device = DeviceId(number("device")?.try_into().ok()?);
    let state = match said.get("serves_at").and_then(Value::as_str) {
        Some(address) => Ok(Running { address: address.parse().ok()?, pid: number("pid")? as u32 }),
        None => Err(Failure::from_json(said, number("status").map(|status| status as i32))?),
    };
    Some((device, state))
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
    fn a_report_of_a_node_on_a_device_is_read_as_it_is_written() {
        let running = Running { address: Address::loopback(7), pid: 42 };
        let failure = Failure::unreachable("no-such-file", "its file is gone").hint("look for it");
        for state in [Ok(running), Err(failure)] {
            let (device, said) = device_said(&say_of_device(DeviceId(3), &state)).unwrap();
            assert_eq!((device, format!("{said:?}")), (DeviceId(3), format!("{state:?}")));
        }
        assert!(device_said(&json!({"ready": true, "address": "127.0.0.1:7"})).is_none());
    }

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
