//! The worker processes of the experiment: starts them, makes them acquire locks concurrently, and adds up their results.

use super::Task;
use super::worker::{Account, Order, WorkerSetup};
use crate::atomics::histogram;
use crate::prelude::*;
use crate::test_bed::spawn;
use braid_admin::parent_process::{THIS_PROGRAM, this_program};
use braid_benchkit::locking::Counts;
use braid_control::ControlPlane;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// How long a worker may take to connect.
const READY_WAIT: Duration = Duration::from_secs(60);
const END_WAIT: Duration = Duration::from_secs(10);
/// The average time per lock after which a worker is considered stuck.
const LOCK_WAIT: Duration = Duration::from_secs(2);
/// The minimal time after which a worker is considered stuck.
const RUN_WAIT: Duration = Duration::from_secs(60);

/// The workers. They are killed when this is dropped.
pub struct WorkerPool {
    members: Vec<Member>,
    patience: Duration,
}

struct Member {
    child: Child,
    orders: ChildStdin,
    accounts: BufReader<ChildStdout>,
}

/// The result of a run.
pub struct Driven {
    /// From the start of the first lock to the end of the last.
    pub elapsed: Duration,
    /// Latencies of locks, from the first attempt to the end, in nanoseconds.
    pub latencies: Histogram<u64>,
    /// The sum over all workers; with a lock server, only the number of locks.
    pub counts: Counts,
}

impl WorkerPool {
    /// Starts this many workers, and waits until they are ready.
    pub async fn start(
        control: &ControlPlane,
        locks: u32,
        setup: &WorkerSetup,
        count: u64,
    ) -> Result<WorkerPool, Failure> {
        let patience = RUN_WAIT.max(LOCK_WAIT * locks);
        let mut workers = WorkerPool { members: Vec::new(), patience };
        for number in 0..count {
            workers.members.push(Member::start(control, number)?);
        }
        for member in &mut workers.members {
            member.tell(setup).await;
        }
        for member in &mut workers.members {
            let said = member.heard(READY_WAIT).await?;
            if said["ready"] != true {
                return Err(member.failure(&said).await);
            }
        }
        Ok(workers)
    }

    /// Has this many of them execute one run.
    pub async fn run(&mut self, count: usize, task: Task, seed: u64) -> Result<Driven, Failure> {
        let mut seeds = Rng::new(seed);
        let members = &mut self.members[..count];
        let begun = Instant::now();
        for member in &mut *members {
            member.tell(&Order { task, seed: seeds.next_u64() }).await;
        }
        let mut driven = Driven { elapsed: Duration::ZERO, latencies: histogram(), counts: Counts::default() };
        for member in members {
            let said = member.heard(self.patience).await?;
            let Ok(account) = serde_json::from_value::<Account>(said.clone()) else {
                return Err(member.failure(&said).await);
            };
            driven.counts += account.counts;
            for (latency, count) in account.latencies {
                driven.latencies.record_n(latency, count).expect("the histogram grows as needed");
            }
        }
        driven.elapsed = begun.elapsed();
        Ok(driven)
    }

    pub async fn end(self) {
        let ending = self.members.into_iter().map(|Member { mut child, orders, accounts }| {
            drop((orders, accounts));
            tokio::task::spawn_local(async move { drop(tokio::time::timeout(END_WAIT, child.wait()).await) })
        });
        for ended in ending.collect::<Vec<_>>() {
            let _ = ended.await;
        }
    }
}

impl Member {
    fn start(control: &ControlPlane, number: u64) -> Result<Member, Failure> {
        let mut command = Command::from(this_program());
        command.args(["bench", "locks", "--worker", &number.to_string(), "--json"]);
        command.arg("--array").arg(control.place());
        let (mut child, accounts) = spawn(command, Path::new(THIS_PROGRAM), Stdio::piped())?;
        let orders = child.stdin.take().expect("standard input is a pipe");
        Ok(Member { child, orders, accounts })
    }

    async fn tell(&mut self, what: &impl Serialize) {
        let line = serde_json::to_string(what).expect("it is JSON") + "\n";
        // If the worker has ended, the reason is read from its output.
        let _ = self.orders.write_all(line.as_bytes()).await;
    }

    async fn heard(&mut self, patience: Duration) -> Result<Value, Failure> {
        let mut line = String::new();
        match tokio::time::timeout(patience, self.accounts.read_line(&mut line)).await {
            Ok(read) => read?,
            Err(_) => {
                let message = format!("a process of the bench printed nothing for {patience:?}");
                return Err(Failure::unreachable("process-stuck", message));
            }
        };
        Ok(serde_json::from_str(&line).unwrap_or_default())
    }

    /// The failure for an unexpected output line.
    async fn failure(&mut self, said: &Value) -> Failure {
        let status = tokio::time::timeout(END_WAIT, self.child.wait()).await.ok().and_then(Result::ok);
        let silent = || Failure::failed("process-ended", format!("a process of the bench ended with {status:?}"));
        Failure::from_json(said, status.and_then(|status| status.code())).unwrap_or_else(silent)
    }
}
