//! `braid bench locks`: the experiment of the device-atomics paper and its authors' contention benchmark, on real devices.
//!
//! | module | what |
//! | --- | --- |
//! | `workers` | starts and directs the processes that acquire locks |
//! | `worker` | one of these processes |
//! | `drive` | acquires locks |

mod drive;
mod worker;
mod workers;

use crate::arguments::{BenchArray, ScratchArguments, seed_of_now};
use crate::load::Target;
use crate::prelude::*;
use crate::settings::{ArraySettings, LoadSettings, Settings, Through, VolumeSettings};
use crate::test_bed::TestBed;
use braid_benchkit::locking::{Habit, LockOwner, Strategy, Unlock, Work};
use braid_benchkit::plot::{Axis, PlotKind, plots_of};
use braid_benchkit::rows::Row;
use braid_benchkit::statistics::Estimate;
use braid_benchkit::tables::{tables, text};
use braid_terminal::output;
use drive::{Objects, forget_who_waits};
use worker::WorkerSetup;
use workers::{Driven, WorkerPool};

/// Measure locks that devices keep as attributes of objects, compared with locks of a lock server
///
/// Processes of this machine, each a host of its own, repeatedly choose a random object, lock it
/// (compare-and-swap with truncated binary exponential back-off), write 256 bytes to it, and unlock
/// it. This is measured for each number of objects and several numbers of devices, also with the
/// unlock combined with the write, and with all steps in one request. There are two comparisons. The
/// lock manager is one more device: it keeps all locks and nothing else, and commits each change. The
/// lock server keeps locks in memory and commits nothing: with it, hosts write blocks of 4 KiB to a
/// volume of ordering server-lock.
///
/// With --contention it measures eight strategies of waiting for one lock, with three kinds of work
/// while the lock is held. docs/device-atomics.md describes the experiments.
///
/// Examples:
///   braid bench locks
///   braid bench locks --devices 1,2,4 --processes 40 --objects 1,100,5000 --out plots
///   braid bench locks --contention --processes 1,5,25 --json
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Arguments {
    /// Measure eight strategies of waiting for one lock instead
    #[arg(long)]
    contention: bool,
    #[command(flatten)]
    scratch: ScratchArguments,
    /// Devices that hold the objects, one series for each number [default: 1,2,5,10]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=64))]
    devices: Vec<u16>,
    /// Processes; with --contention one point for each number [default: 10; 1,2,5,10,25]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=256))]
    processes: Vec<u16>,
    /// Objects that are locked, one point for each number [default: 1,2,5,10,20,50,100,200,500]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=100_000))]
    objects: Vec<u32>,
    /// Locks acquired by each process in a run
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    locks: u32,
    /// Runs of each point
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Random seed for the choice of objects [default: a new one each time]
    #[arg(long)]
    seed: Option<u64>,
    /// A folder for plots and results, which must not exist yet
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Act as the worker of this number (internal)
    #[arg(long, hide = true)]
    worker: Option<u64>,
    /// Die with this process, which must be the parent (internal)
    #[arg(long, hide = true, env = crate::CHILD_OF)]
    child_of: Option<u32>,
}

const THROUGHPUT: Axis = Axis { name: "throughput_ops", title: "throughput (operations/s)" };

/// How results are presented.
struct Figure {
    /// The name in files.
    name: &'static str,
    title: &'static str,
    x: Axis,
    /// The plots in each panel, one for each of these.
    plots: &'static [PlotKind],
    /// The metrics in the table on the terminal.
    metrics: &'static [&'static str],
}

/// The presentation of the first experiment.
const BY_OBJECTS: Figure = Figure {
    name: "locks",
    title: "Locks in devices and at a lock server",
    x: Axis { name: "objects", title: "objects that are locked" },
    plots: &[PlotKind { logarithmic_x: true, ..PlotKind::of("", THROUGHPUT) }],
    metrics: &["throughput_ops", "latency_p50_ms", "latency_p99_ms", "delayed_fraction"],
};

/// The presentation of the contention experiment.
const BY_PROCESSES: Figure = Figure {
    name: "contention",
    title: "Ways of waiting for a lock",
    x: Axis { name: "processes", title: "processes" },
    plots: &[
        PlotKind::of("", Axis { name: "efficiency", title: "efficiency (2 / requests per lock)" }),
        PlotKind::of("-throughput", THROUGHPUT),
    ],
    metrics: &["efficiency", "throughput_ops", "latency_p99_ms"],
};

/// A point of a plot.
struct Spot {
    panel: &'static str,
    series: String,
    x: u64,
    processes: u16,
    task: Task,
}

/// What each process does at a point.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Task {
    objects: u64,
    locks: u64,
    /// None for the lock server.
    devices: Option<(Habit, u16)>,
}

/// Measures, reports, and removes what was created.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    if let Some(number) = arguments.worker {
        return worker::run(number, arguments.child_of, common).await;
    }
    let spots = arguments.spots();
    let used: Vec<(Habit, u16)> = spots.iter().filter_map(|spot| spot.task.devices).collect();
    let lock_manager = used.iter().any(|(habit, _)| habit.keeper == LockOwner::OneDevice);
    let devices = used.iter().map(|(_, devices)| *devices).max().unwrap_or(1) + u16::from(lock_manager);
    let BenchArray { choice, array, .. } = arguments.scratch.place(common, Some(devices)).await?;
    if array.devices < devices {
        let message = format!("the array has {} devices, but {devices} were requested", array.devices);
        return Err(Failure::usage("too-few-devices", message));
    }
    if let Some(out) = arguments.out.as_ref().filter(|out| out.exists()) {
        return Err(Failure::usage("exists", format!("{} already exists: choose another folder", out.display())));
    }
    let seed = arguments.seed.unwrap_or_else(seed_of_now);
    let mut runs: Vec<Vec<Driven>> = spots.iter().map(|_| Vec::new()).collect();
    let outcome = crate::on_test_bed(choice, seed, async |test_bed: &mut TestBed| {
        measure_all(test_bed, &array, devices, (&arguments, seed), &spots, &mut runs).await
    })
    .await;
    let measured = spots.iter().zip(&runs).filter(|(_, runs)| !runs.is_empty());
    let rows: Vec<Row> = measured.flat_map(|(spot, runs)| rows_of(spot, runs)).collect();
    let runs = runs.iter().map(Vec::len).sum();
    let figure = if arguments.contention { &BY_PROCESSES } else { &BY_OBJECTS };
    let json = json!({"schema": 2, "name": figure.name, "devices": array.devices, "in_process": array.nodes == 1,
        "locks_per_process": arguments.locks, "rounds": arguments.rounds, "seed": seed, "rows": rows});
    if let Some(out) = arguments.out.as_ref().filter(|_| runs > 0) {
        write(out, figure, &rows, &json).map_err(|error| Failure::from(error).of(out.display()))?;
    }
    crate::conclude(common, outcome, runs, || json, || text(&tables(figure.metrics, figure.x.title, &rows)))
}

impl Arguments {
    /// All points to be measured.
    fn spots(&self) -> Vec<Spot> {
        if self.contention { self.by_processes() } else { self.by_objects() }
    }

    fn by_objects(&self) -> Vec<Spot> {
        let devices = if self.devices.is_empty() { &[1, 2, 5, 10][..] } else { &self.devices };
        let objects = if self.objects.is_empty() { &[1, 2, 5, 10, 20, 50, 100, 200, 500][..] } else { &self.objects };
        let (strategy, work) = (Strategy::BinaryExponential, Work::Write);
        let habit = |keeper, unlock| Habit { keeper, strategy, work, unlock, write_bytes: 256 };
        let named = |count: u16, more: &str| match count {
            1 => format!("1 device{more}"),
            count => format!("{count} devices{more}"),
        };
        let apart = |count: &u16| (named(*count, ""), Some((habit(LockOwner::Devices, Unlock::Apart), *count)));
        let mut lines: Vec<(String, Option<(Habit, u16)>)> = devices.iter().map(apart).collect();
        let few = devices[0];
        lines.push((named(few, " with one-trip unlock"), Some((habit(LockOwner::Devices, Unlock::WithWrite), few))));
        lines.push((named(few, " with one request"), Some((habit(LockOwner::Devices, Unlock::OneRequest), few))));
        lines.push((named(few, " and a lock manager"), Some((habit(LockOwner::OneDevice, Unlock::Apart), few))));
        lines.push(("lock server in memory".to_string(), None));
        let processes = self.processes.first().copied().unwrap_or(10);
        let line = |(series, devices): (String, Option<(Habit, u16)>)| {
            objects.iter().map(move |objects| Spot {
                panel: "",
                series: series.clone(),
                x: u64::from(*objects),
                processes,
                task: Task { objects: u64::from(*objects), locks: self.locks.into(), devices },
            })
        };
        lines.into_iter().flat_map(line).collect()
    }

    fn by_processes(&self) -> Vec<Spot> {
        let processes = if self.processes.is_empty() { &[1, 2, 5, 10, 25][..] } else { &self.processes };
        let works = [
            ("no work", Work::None, 1),
            ("a sleep of 1 to 600 us", Work::Sleep, 1),
            ("a request to another device", Work::GetElsewhere, 2),
        ];
        let mut spots = Vec::new();
        for (panel, work, devices) in works {
            for strategy in Strategy::ALL {
                let habit = Habit { keeper: LockOwner::Devices, strategy, work, unlock: Unlock::Apart, write_bytes: 0 };
                spots.extend(processes.iter().map(|processes| Spot {
                    panel,
                    series: strategy.name().to_string(),
                    x: u64::from(*processes),
                    processes: *processes,
                    task: Task { objects: 1, locks: self.locks.into(), devices: Some((habit, devices)) },
                }));
            }
        }
        spots
    }
}

async fn measure_all(
    test_bed: &mut TestBed,
    array: &ArraySettings,
    devices: u16,
    (arguments, seed): (&Arguments, u64),
    spots: &[Spot],
    runs: &mut [Vec<Driven>],
) -> Result<(), Failure> {
    let most = |of: fn(&Spot) -> u64| spots.iter().map(of).max().unwrap_or(1);
    let processes = most(|spot| spot.processes.into());
    // If each process has an object of its own, there are as many objects as processes.
    let objects = most(|spot| spot.task.objects).max(processes);
    let settings = volume_of_a_lock_server(array, devices, objects);
    settings.check()?;
    test_bed.bring_up(array, settings.volume.bytes).await?;
    let (site, _) = test_bed.make_volume(&settings).await?;
    let targets = test_bed.open(site, Through::Direct, 1).await?;
    let Some(Target::Host { client, .. }) = targets.first() else { unreachable!("it was opened directly") };
    let made = Objects::make(client, devices, objects).await?;
    let setup = WorkerSetup { objects: made.clone(), volume: test_bed.name(site).to_string() };
    let mut workers = WorkerPool::start(test_bed.control(), arguments.locks, &setup, processes).await?;
    let progress = output::steps(spots.len() as u64 * u64::from(arguments.rounds));
    let (mut seeds, rounds) = (Rng::new(seed), usize::from(arguments.rounds));
    let what = format!("{rounds} rounds of {} points", spots.len());
    braid_terminal::tell!(
        "{what}: the first shows how long the others take; Ctrl-C ends them early, with the figures so far"
    );
    for round in 0..rounds {
        let (seed, begun) = (seeds.next_u64(), Instant::now());
        for (spot, runs) in spots.iter().zip(&mut *runs) {
            progress.set_message(format!("measuring {} at {}", spot.series, spot.x));
            forget_who_waits(client, &made).await?;
            runs.push(workers.run(spot.processes.into(), spot.task, seed).await?);
            progress.inc(1);
        }
        if round == 0 && rounds > 1 {
            crate::announce(&format!("the other {} rounds", rounds - 1), rounds - 1, begun.elapsed(), "");
        }
    }
    workers.end().await;
    made.remove(client).await?;
    test_bed.close(targets).await;
    Ok(())
}

/// A volume with one block for each object, on all the devices in turn.
fn volume_of_a_lock_server(array: &ArraySettings, devices: u16, objects: u64) -> Settings {
    let block = BLOCK_BYTES as u64;
    let bytes = objects.max(256).next_multiple_of(devices.into()) * block;
    let volume = VolumeSettings::new(RaidLevel::Raid0 { data: devices.into() }, block, bytes);
    Settings {
        array: array.clone(),
        volume: VolumeSettings { ordering: Ordering::ServerLock, ..volume },
        load: LoadSettings::new(Through::Direct, block),
    }
}

fn rows_of(spot: &Spot, runs: &[Driven]) -> Vec<Row> {
    let row = |metric: &str, reading: &dyn Fn(&Driven) -> f64| {
        let estimate = Estimate::of(&runs.iter().map(reading).collect::<Vec<_>>());
        Row::new(spot.panel, &spot.series, spot.x as f64, metric, estimate)
    };
    let quantile = |of: f64| move |run: &Driven| run.latencies.value_at_quantile(of) as f64 / 1e6;
    let mut rows = vec![
        row("throughput_ops", &|run| run.counts.locks as f64 / run.elapsed.as_secs_f64()),
        row("latency_p50_ms", &quantile(0.5)),
        row("latency_p99_ms", &quantile(0.99)),
    ];
    // Messages from hosts to a lock server are not counted here.
    if spot.task.devices.is_some() {
        rows.push(row("delayed_fraction", &|run| run.counts.delayed as f64 / run.counts.locks as f64));
        rows.push(row("requests_per_lock", &|run| run.counts.requests as f64 / run.counts.locks as f64));
        rows.push(row("efficiency", &|run| 2.0 * run.counts.locks as f64 / run.counts.requests as f64));
    }
    rows
}

fn write(dir: &Path, figure: &Figure, rows: &[Row], json: &serde_json::Value) -> std::io::Result<()> {
    std::fs::create_dir_all(dir)?;
    let text = serde_json::to_string_pretty(json).expect("it is JSON") + "\n";
    std::fs::write(dir.join(format!("{}.json", figure.name)), text)?;
    for plot in plots_of(figure.title, figure.x, figure.plots, rows) {
        std::fs::write(dir.join(format!("{}{}.svg", figure.name, plot.suffix)), plot.svg)?;
    }
    Ok(())
}
