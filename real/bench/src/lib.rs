//! `braid bench`: measures the speed and the cost of operations, and compares settings or builds.
//!
//! | module | what |
//! | --- | --- |
//! | `prelude` | imports that most modules share |
//! | `arguments` | arguments that two of the commands share |
//! | `settings` | what is measured, and how the other side of a comparison differs |
//! | `test_bed` | arrays, volumes, connections to them, and their removal |
//! | `load` | performs operations on a volume |
//! | `content` | the expected content of a volume: every read is checked |
//! | `figures` | the metrics of a run |
//! | `series` | runs of several sides in rounds, and their comparison |
//! | `report` | output of the results |
//! | `atomics` | `braid bench atomics`: attributes of objects |
//! | `commits` | `braid bench commits`: operations on two metadata servers, by commit protocol |
//! | `files` | `braid bench files`: files, compared with a volume |
//! | `locks` | `braid bench locks`: the experiment of the device-atomics paper |
//! | `ranges` | `braid bench ranges`: locks of ranges |
//! | `orderings` | `braid bench orderings`: compares all orderings |

mod arguments;
mod atomics;
mod commits;
mod content;
mod figures;
mod files;
mod load;
mod locks;
mod orderings;
mod prelude;
mod ranges;
mod report;
mod series;
mod settings;
mod test_bed;

pub use test_bed::CHILD_OF;

use arguments::{ArrayArguments, BenchArray, LengthArguments, RunArguments, Span, seconds};
use braid_admin::failure::Failure;
use braid_base::Rng;
use braid_base::units::format_size;
use braid_layout::SitePolicy;
use braid_machine::rough;
use braid_ordering::{Atomicity, Ordering};
use braid_session::HEARTBEAT;
use braid_session::cpu_micros;
use braid_terminal::Common;
use braid_terminal::arguments::{atomicity, ordering, parity_site, size};
use braid_terminal::output;
use braid_terminal::signals::Signals;
use figures::Figures;
use load::{drive, fill};
use report::Report;
use series::{Series, Turn, in_rounds};
use settings::{Change, LoadSettings, Pattern, Settings, Through, VolumeSettings, name_of};
use std::process::ExitCode;
use std::time::Duration;
use test_bed::{ArrayChoice, Site, TestBed};

/// Measure an array: operations per second, latency, and what each operation costs
///
/// Creates a scratch array, runs operations on a volume of it, and removes everything afterwards,
/// also after Ctrl-C. With --array it measures your running array instead (the variable BRAID_ARRAY
/// alone is ignored), on a volume that it creates and deletes; existing volumes are not touched.
/// `direct` uses a host in this process, `nbd` the NBD servers of the array's nodes. Every read is
/// compared with what was written.
///
/// With --versus it compares two sides: A has the settings of the other options, and B differs from A
/// in the settings that --versus names. The sides alternate (A B, B A, …), so that other activity on
/// the machine affects both. Each pair gives one ratio. A comparison of equal settings, such as
/// --versus ordering=timestamp, shows the size of random differences. docs/benchmarking.md explains
/// the metrics.
///
/// Examples:
///   braid bench                                         4 KiB random reads, 32 in flight, directly and through NBD
///   braid bench --reads 0 --size 4GiB --seconds 20      random writes
///   braid bench --reads 0 --block 1MiB --pattern sequential --depth 4 --through nbd
///   braid bench --reads 70 --versus ordering=none       the cost of concurrency control
///   braid bench --reads 0 --parity-site originator --versus atomicity=consistent
///                                                       the cost of atomic writes, if hosts compute the parity
///   braid bench --through direct --versus through=nbd   the cost of NBD
///   braid bench --versus binary=/path/to/other/braid    compare with another build, through NBD
///   braid bench --array /srv/a --clients 4 --json       four hosts on your own array, JSON output
///   braid bench atomics                                 compare-and-swap and other operations on attributes of objects
///   braid bench locks                                   locks kept by devices, compared with a lock server
///   braid bench ranges                                  locks of ranges, by lock servers and within a host
///   braid bench files                                   names and bytes of files, compared with a volume
///   braid bench commits                                 operations on two metadata servers, by commit protocol
///   braid bench orderings                               compare all five orderings
#[derive(clap::Args)]
#[command(verbatim_doc_comment, args_conflicts_with_subcommands = true)]
pub struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    array: ArrayArguments,
    /// The ordering of the volume, which serializes concurrent hosts: docs/orderings.md
    #[arg(long, value_parser = ordering(), default_value = "timestamp", help_heading = "Array")]
    ordering: Ordering,
    /// The atomicity of writes across failures: docs/invariants.md
    #[arg(long, value_parser = atomicity(), default_value = "implied", value_name = "KIND", help_heading = "Array")]
    atomicity: Atomicity,
    /// Where parity is computed: docs/parallel-raid.md
    #[arg(long, value_parser = parity_site(), default_value = "adaptive", value_name = "SITE", help_heading = "Array")]
    parity_site: SitePolicy,
    /// Usable size of the volume
    #[arg(long, value_parser = size, default_value = "1GiB", help_heading = "Array")]
    size: u64,
    /// Don't write the whole volume first. Then many reads return unwritten blocks, and many writes allocate space
    #[arg(long, help_heading = "Array")]
    no_fill: bool,

    /// How requests reach the array; may be given twice [default: both]
    #[arg(long, value_enum, help_heading = "Load")]
    through: Vec<Through>,
    /// Percentage of operations that are reads; the others are writes
    #[arg(long, value_name = "PERCENT", default_value_t = 100, help_heading = "Load")]
    reads: u8,
    #[command(flatten)]
    lengths: LengthArguments,
    /// The sequence of offsets
    #[arg(long, value_enum, default_value = "random", help_heading = "Load")]
    pattern: Pattern,
    /// Operations in flight per client
    #[arg(long, default_value_t = 32, help_heading = "Load")]
    depth: u16,
    /// Clients, each with its own host or its own connection to the NBD server
    #[arg(long, default_value_t = 1, help_heading = "Load")]
    clients: u16,
    /// Duration of a run, in seconds
    #[arg(long, default_value_t = 5.0, value_parser = seconds, help_heading = "Load")]
    seconds: f64,
    #[command(flatten)]
    runs: RunArguments,

    /// Compare with a second side that differs in this setting; may be given more than once: through, ordering, atomicity, parity-site,
    /// layout, unit, size, processes, nodes, devices, binary, reads, block, block-max, pattern, depth, clients
    #[arg(long, value_name = "SETTING=VALUE", help_heading = "Comparison")]
    versus: Vec<Change>,
    /// Runs of each side
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000), help_heading = "Comparison")]
    pairs: u16,
}

#[derive(clap::Subcommand)]
enum Command {
    Orderings(orderings::Arguments),
    Atomics(atomics::Arguments),
    Locks(locks::Arguments),
    Ranges(ranges::Arguments),
    Files(files::Arguments),
    Commits(commits::Arguments),
}

/// The wait before counters are read. Commits are sent with later messages, and a server publishes its counters with its lease.
const SETTLE: Duration = HEARTBEAT.saturating_add(Duration::from_millis(100));

/// Measures, reports, and removes what was created.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    match arguments.command {
        Some(Command::Orderings(arguments)) => return orderings::run(arguments, common).await,
        Some(Command::Atomics(arguments)) => return atomics::run(arguments, common).await,
        Some(Command::Locks(arguments)) => return locks::run(arguments, common).await,
        Some(Command::Ranges(arguments)) => return ranges::run(arguments, common).await,
        Some(Command::Files(arguments)) => return files::run(arguments, common).await,
        Some(Command::Commits(arguments)) => return commits::run(arguments, common).await,
        None => {}
    }
    let (place, base) = arguments.base(common).await?;
    let series = arguments.series(&base, matches!(place, ArrayChoice::Given(_)))?;
    let seed = arguments.runs.seed();
    let mut report = arguments.report(series, seed);
    let (span, filled) = (arguments.runs.span(arguments.seconds), !arguments.no_fill);
    let pairs = if arguments.versus.is_empty() { 1 } else { usize::from(arguments.pairs) };
    let runs: usize = report.series.iter().map(|series| series.sides.len() * pairs).sum();
    announce_runs(runs, span, if filled { arguments.size } else { 0 });
    let series = &mut report.series;
    let measure = async |test_bed: &mut TestBed| measure_series(test_bed, series, pairs, filled, span, seed).await;
    let outcome = on_test_bed(place, seed, measure).await;
    let runs = report.keep_complete();
    conclude(common, outcome, runs, || report.json(), || report.text())
}

/// Measures on a test bed until it is done, or the bench is asked to end. Then it removes what was created.
async fn on_test_bed(
    place: ArrayChoice,
    seed: u64,
    measure: impl AsyncFnOnce(&mut TestBed) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut signals = Signals::catch()?;
    let mut test_bed = TestBed::new(place, seed);
    let outcome = tokio::select! {
        outcome = measure(&mut test_bed) => outcome,
        () = signals.asked_to_end() => Err(Failure::failed("interrupted", "the bench was interrupted before it was done")),
    };
    test_bed.tidy().await;
    outcome
}

/// Reports what a bench has measured. If it was interrupted after some runs, their figures are reported, and the status says that it is not all.
fn conclude(
    common: &Common,
    outcome: Result<(), Failure>,
    runs: usize,
    json: impl FnOnce() -> serde_json::Value,
    text: impl FnOnce() -> String,
) -> Result<ExitCode, Failure> {
    let is_partial = outcome.as_ref().is_err_and(|failure| failure.code == "interrupted") && runs > 0;
    if is_partial {
        braid_terminal::tell!("the bench was interrupted: these are the figures of {runs} runs");
    } else {
        outcome?;
    }
    output::print(common.json, json, text);
    Ok(if is_partial { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Says how long so many runs of volumes take, after this many bytes are written.
fn announce_runs(runs: usize, span: Span, filled: u64) {
    let filling = match filled {
        0 => String::new(),
        bytes => format!(", and before that the time to write {}", format_size(bytes)),
    };
    announce(&format!("{runs} runs"), runs, span.warm_up + span.counted + 2 * SETTLE, &filling);
}

/// Says how long it takes to measure so often. `more` is what else takes time.
fn announce(what: &str, runs: usize, each: Duration, more: &str) {
    let took = rough(each.saturating_mul(u32::try_from(runs).unwrap_or(u32::MAX)));
    braid_terminal::tell!("{what} take about {took}{more}; Ctrl-C ends them early, with the figures so far");
}

impl Arguments {
    /// The array to measure, and the settings of side A except how requests reach the array.
    async fn base(&self, common: &Common) -> Result<(ArrayChoice, Settings), Failure> {
        let BenchArray { choice, array, layout, unit } = self.array.place(common).await?;
        let Arguments { ordering, atomicity, parity_site, size: bytes, reads, pattern, depth, clients, .. } = *self;
        let volume = VolumeSettings { layout, unit, ordering, atomicity, parity_site, bytes };
        let (through, block, block_max) = (Through::Direct, self.lengths.block, self.lengths.longest());
        let load = LoadSettings { through, reads, block, block_max, pattern, depth, clients };
        Ok((choice, Settings { array, volume, load }))
    }

    /// A report without runs.
    fn report(&self, series: Vec<Vec<Settings>>, seed: u64) -> Report {
        let changes: Vec<String> = self.versus.iter().map(Change::to_string).collect();
        Report {
            seconds: self.seconds,
            warm_up: self.runs.warm_up,
            seed,
            versus: (!changes.is_empty()).then(|| changes.join(", ")),
            series: series.into_iter().map(Series::new).collect(),
        }
    }

    fn series(&self, base: &Settings, given: bool) -> Result<Vec<Vec<Settings>>, Failure> {
        let differs = |setting: &str| self.versus.iter().any(|change| change.setting() == setting);
        let ways = match self.through.as_slice() {
            // Another build can only be used through NBD; if --versus sets the path of requests, A uses the other one.
            [] if differs("binary") => vec![Through::Nbd],
            [] if self.versus.iter().any(|change| change.to_string() == "through=direct") => vec![Through::Nbd],
            [] if differs("through") => vec![Through::Direct],
            [] => vec![Through::Direct, Through::Nbd],
            ways => ways.to_vec(),
        };
        if differs("through") && ways.len() > 1 {
            return Err(
                Failure::usage("usage", "--versus through=… needs a single other side").hint("give --through once")
            );
        }
        let mut series = Vec::new();
        for through in ways {
            let a = Settings { load: LoadSettings { through, ..base.load.clone() }, ..base.clone() };
            let mut sides = vec![a.clone()];
            if !self.versus.is_empty() {
                let mut b = a.clone();
                for change in &self.versus {
                    change.apply(&mut b).map_err(|message| Failure::usage("usage", message))?;
                }
                if given && b.array != a.array {
                    let message = "an existing array can be compared only with respect to its volumes and the load";
                    return Err(Failure::usage("usage", message)
                        .hint("without --array, the bench creates an array for each side"));
                }
                sides.push(b);
            }
            sides.iter().try_for_each(Settings::check)?;
            series.push(sides);
        }
        Ok(series)
    }
}

/// Measures the volumes of some series in rounds. The sides of a round perform the same operations.
async fn measure_series(
    test_bed: &mut TestBed,
    all: &mut [Series<Settings, Figures>],
    rounds: usize,
    filled: bool,
    span: Span,
    seed: u64,
) -> Result<(), Failure> {
    let sides: Vec<_> = all.iter().map(|series| series.sides.clone()).collect();
    let sites = prepare(test_bed, filled, &sides).await?;
    let progress = output::steps(sides.iter().map(|sides| (sides.len() * rounds) as u64).sum());
    let mut seeds = Rng::new(seed);
    let seeds: Vec<u64> = (0..rounds).map(|_| seeds.next_u64()).collect();
    let measure = async |turn: Turn<'_, Settings>| {
        let Settings { volume, load, .. } = turn.side;
        let (round, what) = (turn.round + 1, format!("{} through {}", volume.ordering, name_of(load.through)));
        progress.set_message(match sides[turn.series].len() {
            1 => format!("measuring {what}"),
            _ => format!("round {round} of {rounds}: side {}, {what}", turn.index + 1),
        });
        measure(test_bed, sites[turn.series][turn.index], load, span, seeds[turn.round]).await
    };
    in_rounds(all, rounds, &progress, measure).await
}

/// Creates all arrays and volumes first, so that only the runs alternate. Returns where each side of each series is measured.
async fn prepare(test_bed: &mut TestBed, filled: bool, series: &[Vec<Settings>]) -> Result<Vec<Vec<Site>>, Failure> {
    let starting = output::steps(0);
    starting.set_message("creating arrays and volumes");
    let mut kinds: Vec<&VolumeSettings> = Vec::new();
    for side in series.iter().flatten() {
        if !kinds.contains(&&side.volume) {
            kinds.push(&side.volume);
        }
    }
    let bytes = kinds.iter().map(|volume| volume.bytes).sum();
    for side in series.iter().flatten() {
        test_bed.bring_up(&side.array, bytes).await?;
    }
    starting.finish_and_clear();
    let mut sites = Vec::new();
    for sides in series {
        let mut found = Vec::new();
        for side in sides {
            let (site, new) = test_bed.make_volume(side).await?;
            if new && filled {
                let through = if side.array.binary.is_some() { Through::Nbd } else { Through::Direct };
                let targets = test_bed.open(site, through, 1).await?;
                let progress = output::bytes(side.volume.bytes, "filling the volume");
                fill(&targets[0], &test_bed.content(site), &progress).await?;
                test_bed.close(targets).await;
            }
            found.push(site);
        }
        sites.push(found);
    }
    Ok(sites)
}

/// One run: with a warm-up, and idle before and after, so that the difference of the counters is exactly that of this run.
async fn measure(
    test_bed: &mut TestBed,
    site: Site,
    load: &LoadSettings,
    span: Span,
    seed: u64,
) -> Result<Figures, Failure> {
    let targets = test_bed.open(site, load.through, load.clients).await?;
    let content = test_bed.content(site);
    drive(&targets, load, &content, !seed, span.warm_up).await?;
    tokio::time::sleep(SETTLE).await;
    let before = test_bed.snapshot(site).await?;
    let cpu_before = cpu_micros();
    let driven = drive(&targets, load, &content, seed, span.counted).await?;
    let cpu = cpu_micros() - cpu_before;
    tokio::time::sleep(SETTLE).await;
    let after = test_bed.snapshot(site).await?;
    test_bed.close(targets).await;
    Figures::new(&driven, &before, &after, cpu)
}
