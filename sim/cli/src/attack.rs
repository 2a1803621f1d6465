//! The command `braid sim attack`: runs one seed after another until a run fails or enough have been run.

use crate::failure::{Exit, Failure};
use crate::history::HistoryFile;
use braid_check::FileHistory;
use braid_cluster::attack::{Attack, Outcome};
use braid_cluster::{Choices, Kind, Report};
use braid_layout::Atomicity;
use braid_ordering::Ordering;
use braid_terminal::{Common, output};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

/// Attack simulated arrays with every kind of fault, and check that no data is lost and the order of operations is right
///
/// Each run simulates a whole array: its layout, hosts, faults and their times are drawn from a seed. Messages are lost,
/// duplicated, late and reordered; hosts, devices and lock servers crash at any step, restart repeatedly, stall and are cut
/// off; disks lose unsynced writes, are slow or full, and become corrupt; clocks jump and run fast or slow. Then all
/// faults end and the array must come to rest: every operation is answered, no transaction is undecided, parity is right,
/// the history of all hosts is serializable, and no acknowledged write is lost.
///
/// A failing run ends the attack with exit status 4 and prints the command that repeats the run. Without --seed each attack
/// uses new random seeds, and prints them. Kinds of faults, for --only, --also and --without:
///   host-crash device-crash server-crash blackout flap stall slow-node cut clock-step clock-rate clock-leap
///   common-leap slow-disk full-disk disk-error large-sectors page-cache corruption unreadable misdirected replace migrate
///   chore fence objects attribute-volumes volumes parallel-raid calm reconnect disconnect dead damage-degraded record-damage
///   reorder create-delete add-remove file-systems take-over files shards silent-hosts suspend
///   store-outage nodes ranges leaders
/// `misdirected` (a write lands in the wrong place, and the disk reports success) exceeds the fault model: name it with --also
/// to see its effects. docs/fault-model.md describes every kind.
///
/// Examples:
///   braid sim attack                                   a thousand runs, about two minutes
///   braid sim attack --time 5m --ordering callback-lock
///   braid sim attack --seed 0 --runs 300 --only device-crash,corruption
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Arguments {
    /// The first seed; each further run uses the next number [default: random, and printed]
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Number of runs [default: 1000, or as many as --time allows]
    #[arg(long, value_name = "N")]
    runs: Option<u64>,
    /// Start no further run after this time, such as 90s, 5m or 1h
    #[arg(long, value_name = "T", value_parser = braid_terminal::arguments::span)]
    time: Option<Duration>,
    #[command(flatten)]
    chosen: Chosen,
    /// Number of concurrent runs [default: the number of cores]
    #[arg(long, value_name = "N")]
    threads: Option<NonZero<usize>>,
    /// Continue after a failure, and report all failures
    #[arg(long)]
    keep_going: bool,
    /// Write the histories of file systems to this file, as JSON lines (docs/histories.md)
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
}

/// The options that override the seed. `attack` and `replay` share them, since they are part of a run's identity.
#[derive(clap::Args)]
pub struct Chosen {
    /// The ordering of all volumes, instead of the orderings that the seeds give
    #[arg(long, value_name = "NAME", value_parser = braid_terminal::arguments::ordering())]
    ordering: Option<Ordering>,
    /// The part of an interrupted hostwrite that may remain: all or nothing (implied), or any part (consistent)
    #[arg(long, value_name = "NAME")]
    atomicity: Option<Atomicity>,
    /// Only these kinds of faults, separated by commas (faults of messages remain)
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    only: Vec<Kind>,
    /// These kinds, too, which runs have only on request
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    also: Vec<Kind>,
    /// All kinds except these
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    without: Vec<Kind>,
}

impl Chosen {
    pub fn choices(self) -> Choices {
        let Chosen { ordering, atomicity, only, also, without } = self;
        Choices { ordering, atomicity, only, also, without }
    }
}

pub fn execute(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let choices = arguments.chosen.choices();
    let seed = arguments.seed.unwrap_or_else(drawn_seed);
    let runs = arguments.runs.or(arguments.time.is_none().then_some(1_000));
    let begun = Instant::now();
    let until = arguments.time.map(|time| begun + time);
    let attack = Attack { seed, runs, until, choices, threads: arguments.threads, keep_going: arguments.keep_going };
    if !common.json {
        output::print(false, || json!(null), || format!("seeds from {seed} on{}\n", attack.choices));
    }
    let bar = bar_of(runs, arguments.time);
    let histories = arguments.history.as_deref().map(HistoryFile::create).transpose()?;
    let on_history = |seed, history: &FileHistory| {
        if let Some(file) = &histories {
            file.add(seed, history);
        }
    };
    let on_end = |ended, failed| {
        match runs {
            Some(_) => bar.set_position(ended),
            None => bar.set_position(begun.elapsed().as_secs()),
        }
        bar.set_message(format!("{ended} runs, {failed} failed"));
    };
    let outcome = attack.run_with(on_end, on_history);
    bar.finish_and_clear();
    histories.map_or(Ok(()), HistoryFile::end)?;
    let took = begun.elapsed();
    output::print(common.json, || to_json(&attack, &outcome, took), || text(&attack, &outcome, took));
    Ok(if outcome.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(Exit::DataLost as u8) })
}

fn text(attack: &Attack, outcome: &Outcome, took: Duration) -> String {
    let mut text = format!("{}\n", outcome.sum);
    for failure in &outcome.failures {
        let (reproduce, replay) = failure.commands(&attack.choices);
        text.push_str(&format!("\n{failure}\nreproduce:  {reproduce}\nreplay:     {replay}\n"));
    }
    let failed = outcome.failures.len();
    text.push_str(&format!("\n{} in {:.0} s, {failed} failed\n", counted(outcome), took.as_secs_f64()));
    text
}

fn counted(outcome: &Outcome) -> String {
    let runs = outcome.sum.runs + outcome.failures.len() as u64;
    if runs == 1 { "1 run".to_string() } else { format!("{runs} runs") }
}

fn to_json(attack: &Attack, outcome: &Outcome, took: Duration) -> Value {
    let failure = |failure: &braid_cluster::Failure| {
        let (reproduce, replay) = failure.commands(&attack.choices);
        json!({"check": failure.check, "seed": failure.seed, "ordering": failure.ordering.name(),
               "at_seconds": failure.at.0 as f64 / 1e9, "event": failure.event, "details": failure.details,
               "reproduce": reproduce, "replay": replay})
    };
    json!({"schema": 2, "seed": attack.seed, "took_seconds": took.as_secs_f64(), "sum": report_json(&outcome.sum),
           "failures": outcome.failures.iter().map(failure).collect::<Vec<_>>()})
}

/// The figures of a report, by name.
pub fn report_json(report: &Report) -> Value {
    let Report { network, disks, .. } = report;
    let ignored: BTreeMap<String, u64> =
        report.ignored.iter().map(|(why, count)| (format!("{why:?}"), *count)).collect();
    let list = |counts: Vec<(&'static str, u64)>| counts.into_iter().collect::<BTreeMap<_, _>>();
    json!({
        "runs": report.runs, "simulated_seconds": report.simulated.as_secs_f64(), "events": report.events,
        "digest": format!("{:016x}", report.digest), "operations": report.done, "unknown": report.unknown,
        "slowest_seconds": report.slowest.as_secs_f64(), "faults": report.faults,
        "messages": {"sent": network.sent, "lost": network.lost, "cut": network.cut, "doubled": network.doubled,
                     "damaged": network.damaged, "late": network.delayed, "overtaken": network.reordered},
        "disks": {"crashes": disks.crashes, "lost": disks.lost, "torn": disks.torn, "kept": disks.kept,
                  "corrupt": disks.rotten, "unreadable": disks.unreadable, "misdirected": disks.misdirected,
                  "refused": disks.refused, "failed": disks.failed},
        "hosts": list(report.hosts.list()), "lock_servers": list(report.lock_servers.list()), "stores": report.stores,
        "files": report.of("files"), "files_unjudged": report.files_unjudged,
        "ignored": ignored, "search_steps": report.search_steps, "unjudged": report.unjudged,
    })
}

/// A random seed, short enough to be typed.
fn drawn_seed() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_nanos() as u64 % 1_000_000 * 1_000
}

fn bar_of(runs: Option<u64>, time: Option<Duration>) -> ProgressBar {
    match runs {
        Some(runs) => bar(runs, "{wide_bar} {eta} left: {msg}"),
        None => bar(time.map_or(0, |time| time.as_secs()), "{wide_bar} {pos} of {len} s: {msg}"),
    }
}

/// A bar of this length.
pub fn bar(length: u64, template: &str) -> ProgressBar {
    let bar = ProgressBar::new(length);
    bar.set_style(ProgressStyle::with_template(template).expect("the template is valid"));
    bar
}
