//! A worker process of the experiment: a host that acquires locks when it is told to. For each run it reads a line of JSON, and writes one.

use super::Task;
use super::drive::{Locking, Objects};
use crate::prelude::*;
use braid_admin::parent_process;
use braid_benchkit::locking::Counts;
use braid_terminal::output;

/// The first input line: what is locked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkerSetup {
    pub objects: Objects,
    /// The volume whose hosts use the lock server.
    pub volume: String,
}

/// Each following input line: one run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Order {
    pub task: Task,
    /// The random seed for the choice of objects.
    pub seed: u64,
}

/// The result of a run: each output line after the first, which announces that the process is ready.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Account {
    /// Pairs of a latency (nanoseconds from the first attempt to the end) and the number of locks with that latency.
    pub latencies: Vec<(u64, u64)>,
    pub counts: Counts,
}

impl Account {
    fn of(latencies: &Histogram<u64>, counts: Counts) -> Account {
        let steps = latencies.iter_recorded();
        Account { latencies: steps.map(|step| (step.value_iterated_to(), step.count_at_value())).collect(), counts }
    }
}

/// Executes runs until its input ends.
pub async fn run(number: u64, parent: Option<u32>, common: &Common) -> Result<ExitCode, Failure> {
    parent_process::die_with(parent)?;
    let session = Session::start(&common.control(), "bench").await?;
    let outcome = work(number, &session).await;
    session.end().await;
    outcome.map(|()| ExitCode::SUCCESS)
}

async fn work(number: u64, session: &Session) -> Result<(), Failure> {
    let Some(line) = heard().await? else { return Ok(()) };
    let WorkerSetup { objects, volume } = serde_json::from_str(&line).map_err(not_understood)?;
    let volume = session.take_in(&volume).await?.id;
    let locking = Locking::new(number, session.client().clone(), objects, volume);
    say(&json!({"ready": true}));
    while let Some(line) = heard().await? {
        let order: Order = serde_json::from_str(&line).map_err(not_understood)?;
        let (latencies, counts) = locking.run(order.task, order.seed).await?;
        say(&json!(Account::of(&latencies, counts)));
    }
    Ok(())
}

fn say(line: &serde_json::Value) {
    output::print(true, || line.clone(), String::new);
}

/// The next input line; none at the end of the input. The host keeps running meanwhile.
async fn heard() -> Result<Option<String>, Failure> {
    let read = || std::io::stdin().lines().next().transpose();
    Ok(tokio::task::spawn_blocking(read).await.expect("it does not panic")?)
}

fn not_understood(error: serde_json::Error) -> Failure {
    Failure::failed("internal", format!("can't parse the bench's input: {error}"))
}
