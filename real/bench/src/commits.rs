//! `braid bench commits`: files created per second that concern two metadata servers each, by commit protocol and grouping.

use super::arguments::{BenchArray, ScratchArguments, seconds};
use super::series::{Comparison, Series, Turn, in_rounds};
use super::test_bed::TestBed;
use crate::prelude::*;
use braid_admin::shards::{Grouping, Protocol};
use braid_client::{ArrayOptions, Files, FilesError};
use braid_session::{HEARTBEAT, cpu_micros};
use braid_terminal::output::{self};
use futures_util::future::try_join_all;

/// Measure durable operations on two metadata servers: files created per second, by commit protocol
///
/// Creates a file system for each grouping, in which no inode is in the shard of its name, so that each
/// creation is a part of a transaction of two metadata servers, and is durable on both when it is
/// answered. One program mounts them and keeps creations in flight in one of them, in directories of
/// all shards. All settings are measured in turns, in each round in another order; the ratios are those
/// of a round's runs, so that other activity on the machine affects both sides. The first setting is the
/// one that the others are compared with. A setting is a commit protocol (prn, prc, ep, 1pc), and may
/// have a grouping (none, log, operations) behind a slash. The bench creates a scratch array and removes
/// it. With --array it measures your running array instead, on file systems that it creates and deletes.
///
/// Examples:
///   braid bench commits
///   braid bench commits --sides 1pc/none,1pc/log,1pc/operations --pairs 10 --seconds 5
///   braid bench commits --array /srv/a --servers 4 --json
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Arguments {
    #[command(flatten)]
    scratch: ScratchArguments,
    /// Metadata servers
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(2..=8))]
    servers: u8,
    /// The settings: commit protocols with or without groupings
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = side, default_value = "prn,prc,ep,1pc")]
    sides: Vec<Side>,
    /// Creations in flight
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    creates: u16,
    /// Seconds of each run, after half a second that does not count
    #[arg(long, default_value_t = 3.0, value_parser = seconds)]
    seconds: f64,
    /// Runs of each setting
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pairs: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Side {
    protocol: Protocol,
    grouping: Grouping,
}

/// The file system of a grouping.
struct Place {
    grouping: Grouping,
    name: String,
    files: Files,
    directories: Vec<String>,
}

/// The time until all servers have seen a new setting: they look with each heartbeat.
const FOLLOWED: Duration = HEARTBEAT.saturating_mul(3);
const WARM_UP: Duration = Duration::from_millis(500);
/// The room for metadata: 64 MiB for each server.
const BYTES_OF_SERVER: u64 = 256 << 20;

/// The figures of a run.
#[derive(Clone, Copy)]
struct Created {
    per_second: f64,
    /// CPU time of this process for a creation, in microseconds.
    cpu_micros: f64,
}

type Measured = Series<Side, Created>;

/// Measures, reports, and removes what was created.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let place = arguments.scratch.place(common, None).await?;
    let mut measured = Series::new(arguments.sides.clone());
    let measure = async |test_bed: &mut TestBed| measure_all(test_bed, &place, &arguments, &mut measured).await;
    let outcome = crate::on_test_bed(place.choice.clone(), 0, measure).await;
    // Ratios need all settings of a round.
    let runs = measured.keep_complete();
    crate::conclude(common, outcome, runs, || as_json(&arguments, &measured), || as_text(&arguments, &measured))
}

async fn measure_all(
    test_bed: &mut TestBed,
    place: &BenchArray,
    arguments: &Arguments,
    measured: &mut Measured,
) -> Result<(), Failure> {
    let bytes = BYTES_OF_SERVER * u64::from(arguments.servers);
    test_bed.bring_up(&place.array, 2 * bytes * Grouping::ALL.len() as u64).await?;
    let servers = arguments.servers.to_string();
    let mut places = Vec::new();
    for grouping in Grouping::ALL {
        if arguments.sides.iter().all(|side| side.grouping != grouping) {
            continue;
        }
        let options = ["--servers", &servers, "--placement", "spread", "--grouping", grouping.name()];
        let name = test_bed.make_file_system(place.layout, bytes, &options).await?;
        let files = Files::mount(ArrayOptions::at(test_bed.control().place()).name("bench"), &name).await?;
        let directories = make_directories(&files, arguments.servers).await?;
        places.push(Place { grouping, name, files, directories });
    }
    let rounds = usize::from(arguments.pairs);
    let runs = rounds * measured.sides.len();
    let counted = Duration::from_secs_f64(arguments.seconds);
    crate::announce(&format!("{runs} runs"), runs, FOLLOWED + WARM_UP + counted, "");
    let progress = output::progress(runs as u64, "runs");
    let measure = async |Turn { side, round, index, .. }: Turn<'_, Side>| {
        let place = places.iter().find(|place| place.grouping == side.grouping).expect("each has one");
        let Place { name, files, directories, .. } = place;
        test_bed.set_commit_protocol(name, side.protocol.name()).await?;
        tokio::time::sleep(FOLLOWED).await;
        let prefix = format!("{round}-{index}");
        create_for(files, directories, &format!("{prefix}-w"), arguments.creates, WARM_UP).await?;
        let (cpu, begun) = (cpu_micros(), Instant::now());
        let created = create_for(files, directories, &prefix, arguments.creates, counted).await?;
        let per_second = created as f64 / begun.elapsed().as_secs_f64();
        Ok(Created { per_second, cpu_micros: (cpu_micros() - cpu) as f64 / created.max(1) as f64 })
    };
    in_rounds(std::slice::from_mut(measured), rounds, &progress, measure).await?;
    for place in &places {
        place.files.close().await;
    }
    Ok(())
}

/// Directories in all shards: that of the root, and the others.
async fn make_directories(files: &Files, servers: u8) -> Result<Vec<String>, Failure> {
    let mut directories = Vec::new();
    for number in 0..servers {
        // With `spread`, a directory is never where its parent is.
        for path in [format!("/{number}"), format!("/{number}/inner")] {
            files.create_dir(&path).await?;
            directories.push(path);
        }
    }
    Ok(directories)
}

/// Creates files until the time is over, with `depth` creations in flight. Returns how many.
async fn create_for(
    files: &Files,
    directories: &[String],
    prefix: &str,
    depth: u16,
    span: Duration,
) -> Result<u64, Failure> {
    let end = Instant::now() + span;
    let create = async |worker: u16| {
        let directory = &directories[usize::from(worker) % directories.len()];
        let mut created = 0;
        while Instant::now() < end {
            files.create_file(format!("{directory}/{prefix}-{worker}-{created}")).await?;
            created += 1;
        }
        Ok::<u64, FilesError>(created)
    };
    Ok(try_join_all((0..depth).map(create)).await?.into_iter().sum())
}

impl Side {
    fn name(self) -> String {
        format!("{}/{}", self.protocol, self.grouping)
    }
}

fn side(text: &str) -> Result<Side, String> {
    let (protocol, grouping) = text.split_once('/').unwrap_or((text, Grouping::Operations.name()));
    let side = Protocol::from_name(protocol).zip(Grouping::from_name(grouping));
    side.map(|(protocol, grouping)| Side { protocol, grouping })
        .ok_or_else(|| "write prn, prc, ep or 1pc, and behind a slash none, log or operations".to_string())
}

fn compared(measured: &Measured, side: usize) -> Comparison {
    measured.compare(side, 0, |created| Some(created.per_second)).expect("all sides have runs")
}

fn as_json(arguments: &Arguments, measured: &Measured) -> Value {
    let sides = measured.sides.iter().enumerate().map(|(index, side)| {
        let Comparison { own, ratio, .. } = compared(measured, index);
        json!({
            "commit_protocol": side.protocol.name(),
            "grouping": side.grouping.name(),
            "per_second": own,
            "runs": measured.values(index, |created| Some(created.per_second)),
            "client_cpu_us": measured.median(index, |created| Some(created.cpu_micros)),
            "ratio": ratio.median.unwrap_or(0.0),
            "ratio_low": ratio.interval.map(|interval| interval.low),
            "ratio_high": ratio.interval.map(|interval| interval.high),
        })
    });
    json!({
        "schema": 2,
        "servers": arguments.servers,
        "in_flight": arguments.creates,
        "seconds": arguments.seconds,
        "sides": sides.collect::<Vec<_>>(),
    })
}

fn as_text(arguments: &Arguments, measured: &Measured) -> String {
    let titles = ["setting", "created/s", "lowest", "highest", "client CPU µs", "ratio", "95 %"];
    let of_side = |(index, side): (usize, &Side)| {
        let Comparison { own, ratio, .. } = compared(measured, index);
        let rates = measured.values(index, |created| Some(created.per_second));
        let cpu = measured.median(index, |created| Some(created.cpu_micros)).unwrap_or(0.0);
        let (lowest, highest) =
            rates.iter().fold((f64::INFINITY, 0.0f64), |(low, high), rate| (low.min(*rate), high.max(*rate)));
        let [own, lowest, highest, cpu] = [own, lowest, highest, cpu].map(|value| format!("{value:.0}"));
        let interval = ratio.interval.map_or(String::new(), |it| format!("{:.2} to {:.2}", it.low, it.high));
        [side.name(), own, lowest, highest, cpu, format!("{:.2}", ratio.median.unwrap_or(0.0)), interval]
    };
    let Arguments { servers, creates, seconds, .. } = arguments;
    let (first, pairs) = (measured.sides[0].name(), measured.rounds());
    format!(
        "files created on two of {servers} metadata servers each, {creates} in flight, {pairs} runs of {seconds} s; ratios to {first}\n{}",
        titled(titles, measured.sides.iter().enumerate().map(of_side))
    )
}
