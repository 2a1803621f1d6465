//! One process of the experiment: a host of its own, which takes locks when it is told to. It hears a line of JSON for each run, and says one.

use super::drive::{Locking, Objects};
use super::{Arguments, Spot};
use braid_admin::failure::Failure;
use braid_benchkit::locking::Counts;
use braid_session::Session;
use braid_terminal::Common;
use braid_terminal::output;
use braid_terminal::signals;
use hdrhistogram::Histogram;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::process::ExitCode;

/// Where it is all about. The first line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkerSetup {
    /// The objects to lock.
    pub objects: Objects,
    /// The volume whose hosts lock it at a lock server.
    pub volume: String,
}

/// One run. Each line after that.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Order {
    /// Which of the spots that the command line asks for.
    pub spot: usize,
    /// Decides which objects it chooses.
    pub seed: u64,
}

/// What came of it. A line, after the one which says that the process is ready.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Account {
    /// Nanoseconds that a lock took from the first attempt to the end, and how many took so long.
    pub latencies: Vec<(u64, u64)>,
    locks: u64,
    requests: u64,
    refused: u64,
    delayed: u64,
}

impl Account {
    fn of(latencies: &Histogram<u64>, counts: Counts) -> Account {
        let Counts { locks, requests, refused, delayed } = counts;
        let latencies = latencies.iter_recorded();
        let latencies = latencies.map(|step| (step.value_iterated_to(), step.count_at_value())).collect();
        Account { latencies, locks, requests, refused, delayed }
    }

    /// How often it did what.
    pub fn counts(&self) -> Counts {
        Counts { locks: self.locks, requests: self.requests, refused: self.refused, delayed: self.delayed }
    }
}

/// Does what it is told until nobody is there to tell.
pub async fn run(number: u64, arguments: &Arguments, common: &Common) -> Result<ExitCode, Failure> {
    if let Some(parent) = arguments.child_of
        && !signals::heed_death_of(parent, Signal::KILL)?
    {
        return Err(Failure::failed("orphaned", "the process that started this one is gone"));
    }
    let spots = arguments.spots();
    let session = Session::start(&common.folder(), "bench").await?;
    let outcome = work(number, &spots, arguments.locks.into(), &session).await;
    session.end().await;
    outcome.map(|()| ExitCode::SUCCESS)
}

async fn work(number: u64, spots: &[Spot], locks: u64, session: &Session) -> Result<(), Failure> {
    let Some(line) = heard().await? else { return Ok(()) };
    let WorkerSetup { objects, volume } = serde_json::from_str(&line).map_err(not_understood)?;
    let volume = session.take_in(&volume).await?.id;
    let locking = Locking::new(number, session.client().clone(), objects, volume)?;
    say(&json!({"ready": true}));
    while let Some(line) = heard().await? {
        let order: Order = serde_json::from_str(&line).map_err(not_understood)?;
        let spot = spots.get(order.spot).ok_or_else(|| Failure::failed("internal", "there is no such spot"))?;
        let (latencies, counts) = locking.run(spot, locks, order.seed).await?;
        say(&json!(Account::of(&latencies, counts)));
    }
    Ok(())
}

fn say(line: &serde_json::Value) {
    output::print(true, || line.clone(), String::new);
}

/// The next line, unless there is none. The host goes on meanwhile.
async fn heard() -> Result<Option<String>, Failure> {
    let read = || std::io::stdin().lines().next().transpose();
    Ok(tokio::task::spawn_blocking(read).await.expect("it does not panic")?)
}

fn not_understood(error: serde_json::Error) -> Failure {
    Failure::failed("internal", format!("the bench was not understood: {error}"))
}
