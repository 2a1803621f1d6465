//! `braid bench atomics`: measures atomic operations of devices on attributes of objects.

use super::arguments::{BenchArray, ClientArguments, KindArguments};
use super::settings::name_of;
use super::test_bed::TestBed;
use crate::prelude::*;
use braid_base::{DeviceId, ObjectId};
use braid_client::recipes::directory::{Changed, Directory};
use braid_client::recipes::{Answer, Next, Procedure};
use braid_machine::{HostSuccess, ObjectsRequest};
use braid_terminal::output;
use braid_wire::{
    Action, ActionResult, AttributeName, CommandResult, ObjectCommand, ObjectRequest, SetAttribute, Undefined, When,
};
use futures_util::future::try_join_all;

/// Measure atomic operations on the attributes of a device's objects
///
/// One host in this process sends requests to one device, with one request in flight per client. Each
/// client has its own attribute, so that clients never conflict. Every operation is durable when it
/// is answered, and every answer is checked. The bench creates a scratch array and removes it. With
/// --array it measures device 0 of your running array instead, on an object that it creates and
/// removes.
///
/// Examples:
///   braid bench atomics                             all kinds, 32 in flight
///   braid bench atomics swap --clients 1            the latency of a single compare-and-swap
///   braid bench atomics swap add --seconds 10 --json
///   braid bench atomics insert --clients 8 --fill 1000000   insertions into a directory of a million names
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Arguments {
    #[command(flatten)]
    of_kinds: KindArguments<Kind>,
    /// Names in the directory before insertions are measured
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    fill: u64,
    /// Size of a value in bytes
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(8..=65_536))]
    bytes: u32,
}

/// The operations that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// Compare-and-swap, which always succeeds
    Swap,
    /// Fetch-and-add, returning the original value
    Add,
    /// Set an attribute
    Set,
    /// Get an attribute
    Get,
    /// Lock by compare-and-swap, then write 256 bytes and unlock in one request: two round trips
    Lock,
    /// The same in one request: lock, and if the lock was free, write and unlock
    LockAtOnce,
    /// Insert names into a directory that all clients share
    Insert,
}

/// Names inserted concurrently to fill a directory.
const FILLERS: u64 = 256;
/// The measured device. On the page of each kind, each client has the attribute of its number.
const DEVICE: DeviceId = DeviceId(0);
const WRITTEN: usize = 256;
const PATIENCE: Duration = Duration::from_secs(30);

pub struct Run {
    pub kind: String,
    pub latencies: Histogram<u64>,
    /// Requests to devices or servers, each with its answer.
    pub round_trips: u64,
    pub seconds: f64,
}

/// The time in which operations count.
#[derive(Clone, Copy)]
pub struct Counted {
    from: Instant,
    until: Instant,
}

/// Measures, reports, and removes what was created.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let BenchArray { choice, array, .. } = arguments.of_kinds.scratch.place(common, Some(1)).await?;
    let mut runs = Vec::new();
    let measure = async |test_bed: &mut TestBed| {
        test_bed.bring_up(&array, 0).await?;
        let session = Session::start(test_bed.control(), "bench").await?;
        let outcome = measure_all(session.client(), &arguments, &mut runs).await;
        session.end().await;
        outcome
    };
    let outcome = crate::on_test_bed(choice, 0, measure).await;
    crate::conclude(common, outcome, runs.len(), || as_json(&arguments, &runs), || as_text(&arguments, &runs))
}

async fn measure_all(client: &HostClient, arguments: &Arguments, runs: &mut Vec<Run>) -> Result<(), Failure> {
    let created = ask(client, DEVICE, vec![ObjectCommand::new(ObjectId(0), Action::Create)]).await?;
    let [CommandResult { action: ActionResult::Created { object }, .. }] = created[..] else {
        return Err(unexpected(&created));
    };
    if arguments.of_kinds.kinds().contains(&Kind::Insert) && arguments.fill > 0 {
        fill(client, object, arguments.fill).await?;
    }
    let measure = async |kind| measure(client, object, kind, arguments).await;
    arguments.of_kinds.measure_each(runs, measure).await?;
    ask(client, DEVICE, vec![ObjectCommand::new(object, Action::Remove)]).await.map(|_| ())
}

async fn measure(client: &HostClient, object: ObjectId, kind: Kind, arguments: &Arguments) -> Result<Run, Failure> {
    let counted = Counted::after(&arguments.of_kinds.load);
    let drive = async |number: u32| {
        let (name, bytes) = (AttributeName::new(kind as u32 + 1, number), arguments.bytes as usize);
        let driven = Driven { client: client.clone(), object, name, bytes };
        driven.set(Bytes::new()).await?;
        counted.repeat(async |count| driven.once(kind, count).await).await
    };
    let all = try_join_all((0..u32::from(arguments.of_kinds.load.clients)).map(drive)).await?;
    Ok(Run::of(name_of(kind), all, arguments.of_kinds.load.seconds))
}

impl Counted {
    /// After the warm-up.
    pub fn after(load: &ClientArguments) -> Counted {
        let from = Instant::now() + Duration::from_secs_f64(load.warm_up);
        Counted { from, until: from + Duration::from_secs_f64(load.seconds) }
    }

    /// Performs numbered operations, one after the other, which return the round trips that they took. Returns the latencies in nanoseconds
    /// of those that began in the time, and their round trips.
    pub async fn repeat(
        self,
        mut once: impl AsyncFnMut(u64) -> Result<u64, Failure>,
    ) -> Result<(Histogram<u64>, u64), Failure> {
        let (mut latencies, mut round_trips) = (histogram(), 0);
        for count in 0.. {
            let begun = Instant::now();
            if begun >= self.until {
                break;
            }
            let trips = once(count).await?;
            if begun >= self.from {
                latencies.record(begun.elapsed().as_nanos() as u64).expect("the histogram grows as needed");
                round_trips += trips;
            }
        }
        Ok((latencies, round_trips))
    }
}

/// Inserts this many names, many concurrently.
async fn fill(client: &HostClient, object: ObjectId, names: u64) -> Result<(), Failure> {
    let progress = output::progress(names, "filling the directory");
    let fill = async |filler: u64| {
        for number in (filler..names).step_by(FILLERS as usize) {
            insert(client, object, format!("filled-{number}")).await?;
            progress.inc(1);
        }
        Ok::<(), Failure>(())
    };
    try_join_all((0..FILLERS).map(fill)).await.map(|_| ())
}

/// Inserts a new name. Returns the number of round trips.
async fn insert(client: &HostClient, object: ObjectId, name: String) -> Result<u64, Failure> {
    let mut insertion = Directory::new(object).insert(name.into(), object);
    let (mut answer, mut trips, mut rng) = (Answer::None, 0, Rng::new(1));
    loop {
        match insertion.resume(braid_shell::now().time, &mut rng, answer) {
            Next::Ask { request, .. } => {
                trips += 1;
                answer = Answer::Results(ask(client, DEVICE, request.commands).await?);
            }
            Next::Sleep(span) => {
                tokio::time::sleep(span).await;
                answer = Answer::None;
            }
            Next::Done(Ok(Changed::Inserted)) => return Ok(trips),
            other => return Err(Failure::failed("wrong-answer", format!("a name could not be inserted: {other:?}"))),
        }
    }
}

struct Driven {
    client: HostClient,
    object: ObjectId,
    name: AttributeName,
    bytes: usize,
}

impl Driven {
    /// Performs one operation. Returns the number of round trips.
    async fn once(&self, kind: Kind, count: u64) -> Result<u64, Failure> {
        let (number, data) = (u64::from(self.name.number), Bytes::from(vec![count as u8; WRITTEN]));
        let write = Action::Write { offset: number * WRITTEN as u64, data };
        let unlocks = SetAttribute { name: self.name, value: Bytes::new() };
        let write_and_unlock = ObjectCommand { sets: vec![unlocks], ..ObjectCommand::new(self.object, write) };
        match kind {
            Kind::Swap => {
                let before = if count == 0 { Bytes::new() } else { self.value(count) };
                self.ask_to_swap(before, self.value(count + 1)).await.map(|()| 1)
            }
            Kind::Add => {
                let add = Action::FetchAndAdd { name: self.name, add: 1, original: true };
                let results = self.ask(vec![ObjectCommand::new(self.object, add)]).await?;
                let counted = results[0].action == ActionResult::Added { original: Some(count as i64) };
                if counted { Ok(1) } else { Err(unexpected(&results)) }
            }
            Kind::Set => self.set(self.value(count)).await.map(|()| 1),
            Kind::Get => {
                let get = ObjectCommand { gets: vec![self.name], ..ObjectCommand::new(self.object, Action::Nothing) };
                self.ask(vec![get]).await.map(|_| 1)
            }
            Kind::Lock => {
                self.ask_to_swap(Bytes::new(), self.value(count + 1)).await?;
                self.ask(vec![write_and_unlock]).await.map(|_| 2)
            }
            Kind::LockAtOnce => {
                let lock = self.swap(Bytes::new(), self.value(count + 1));
                let use_it = ObjectCommand { when: When::IfSwapped, ..write_and_unlock };
                let results = self.ask(vec![lock, use_it]).await?;
                if results[1].action == ActionResult::Done { Ok(1) } else { Err(unexpected(&results)) }
            }
            Kind::Insert => insert(&self.client, self.object, format!("by-{number}-{count}")).await,
        }
    }

    fn swap(&self, compare: Bytes, swap: Bytes) -> ObjectCommand {
        let (name, undefined) = (self.name, Undefined::IsEmpty);
        ObjectCommand::new(self.object, Action::CompareAndSwap { name, compare, swap, undefined, original: false })
    }

    /// Fails unless the value was the one to compare with.
    async fn ask_to_swap(&self, compare: Bytes, swap: Bytes) -> Result<(), Failure> {
        let results = self.ask(vec![self.swap(compare, swap)]).await?;
        let swapped = matches!(results[0].action, ActionResult::Compared { swapped: true, .. });
        if swapped { Ok(()) } else { Err(unexpected(&results)) }
    }

    async fn set(&self, value: Bytes) -> Result<(), Failure> {
        let sets = vec![SetAttribute { name: self.name, value }];
        self.ask(vec![ObjectCommand { sets, ..ObjectCommand::new(self.object, Action::Nothing) }]).await.map(|_| ())
    }

    async fn ask(&self, commands: Vec<ObjectCommand>) -> Result<Vec<CommandResult>, Failure> {
        ask(&self.client, DEVICE, commands).await
    }

    fn value(&self, count: u64) -> Bytes {
        let mut value = vec![0; self.bytes];
        value[..8].copy_from_slice(&count.to_be_bytes());
        value.into()
    }
}

/// Has a device execute commands.
pub async fn ask(
    client: &HostClient,
    device: DeviceId,
    commands: Vec<ObjectCommand>,
) -> Result<Vec<CommandResult>, Failure> {
    let request = ObjectRequest { commands };
    match client.call(ObjectsRequest::Execute { device, request, patience: PATIENCE }).await? {
        HostSuccess::Objects(results) => Ok(results),
        other => panic!("a request for objects brings {other:?}"),
    }
}

pub fn unexpected(results: &[CommandResult]) -> Failure {
    Failure::failed("wrong-answer", format!("the device gave an invalid answer: {results:?}"))
}

/// A histogram of nanoseconds; all have the same form.
pub fn histogram() -> Histogram<u64> {
    Histogram::new(3).expect("three digits are possible")
}

impl Run {
    /// The sum of what clients did in so many seconds.
    pub fn of(kind: String, clients: Vec<(Histogram<u64>, u64)>, seconds: f64) -> Run {
        let mut run = Run { kind, latencies: histogram(), round_trips: 0, seconds };
        for (latencies, round_trips) in clients {
            run.latencies.add(latencies).expect("all histograms have the same form");
            run.round_trips += round_trips;
        }
        run
    }

    fn per_second(&self) -> f64 {
        self.latencies.len() as f64 / self.seconds
    }

    fn microseconds(&self, quantile: f64) -> f64 {
        self.latencies.value_at_quantile(quantile) as f64 / 1e3
    }
}

fn as_json(arguments: &Arguments, runs: &[Run]) -> Value {
    json!({ "schema": 2, "clients": arguments.of_kinds.load.clients, "bytes": arguments.bytes, "seconds": arguments.of_kinds.load.seconds, "runs": of_runs(runs) })
}

pub fn of_runs(runs: &[Run]) -> Vec<Value> {
    runs.iter()
        .map(|run| {
            json!({
                "kind": run.kind,
                "operations": run.latencies.len(),
                "per_second": run.per_second(),
                "round_trips": run.round_trips,
                "latency_p50_us": run.microseconds(0.5),
                "latency_p99_us": run.microseconds(0.99),
            })
        })
        .collect()
}

fn as_text(arguments: &Arguments, runs: &[Run]) -> String {
    format!("{}\n{} clients, values of {} bytes\n", table_of(runs), arguments.of_kinds.load.clients, arguments.bytes)
}

pub fn table_of(runs: &[Run]) -> String {
    let heads = ["kind", "per second", "round trips", "p50 µs", "p99 µs"];
    let of_run = |run: &Run| {
        [
            run.kind.clone(),
            format!("{:.0}", run.per_second()),
            format!("{:.1}", run.round_trips as f64 / (run.latencies.len() as f64).max(1.0)),
            format!("{:.0}", run.microseconds(0.5)),
            format!("{:.0}", run.microseconds(0.99)),
        ]
    };
    titled(heads, runs.iter().map(of_run))
}
