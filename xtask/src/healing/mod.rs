//! `cargo xtask healing`: measures how fast an array heals, and the effect on its users.

mod copy;
mod rounds;

use crate::compare::array::Array;
use crate::compare::fio::{Fio, Target};
use crate::compare::progress::Progress;
use crate::compare::{RoundArguments, measure_in, size, space_for};
use crate::prelude::*;
use rounds::Rounds;

const PACKAGES: [Package; 1] = [("fio", "/usr/bin/fio")];

/// Measure how an array heals
///
/// Everything lies on one file system: an array of five devices with a volume that was filled first, and a file of the same
/// size. Each round measures, in an order that changes from round to round:
///
///   idle     a device is replaced by an empty one and rebuilt, without any other load; for comparison, without an array, with direct
///            I/O and synced: the same amounts read and written, with the same number of requests in flight; and a copy
///   clients  4 KiB random reads, and 4 KiB random writes, 32 in flight, through NBD: without other activity, while a
///            device is rebuilt with the default throttle, and while that rebuild is paused: this shows the effect of the rebuild
///            without the cost of a missing device
///   unavailable
///            under a thousand 4 KiB random writes a second, a device is suspended for ten seconds: the time from its resumption
///            until it is in again, and the amount it was sent, relative to the amount written to it meanwhile
///
/// Prints the medians of six rounds, in which clients run for 4 s, the median of the ratios of each round, and the 95 % confidence
/// interval of that median.
///
/// Examples:
///   cargo xtask healing                                 six rounds in ./braid-healing
///   cargo xtask healing --quick                         a quick check that it works; its results mean little
///   cargo xtask healing --only unavailable --rounds 3   one part of it
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Arguments {
    /// A folder on the disk to be measured; created if it does not exist
    #[arg(long, default_value = "./braid-healing")]
    dir: PathBuf,
    #[command(flatten)]
    rounds: RoundArguments,
    /// Measure only this part; may be given more than once
    #[arg(long, value_name = "NAME")]
    only: Vec<Part>,
    /// Bytes of the volume [default: 4GiB; with --quick 1GiB]
    #[arg(long, value_parser = size)]
    size: Option<u64>,
}

/// The parts of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// A rebuild without other load, compared with a copy
    Idle,
    /// The speed of clients while a device is rebuilt
    Clients,
    /// A device that is suspended for ten seconds
    Unavailable,
}

/// One figure of one round.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// The name of the figure.
    pub what: &'static str,
    pub round: u32,
    /// The measured value.
    pub found: f64,
    /// The value it is compared with.
    pub beside: f64,
}

/// The presentation of a figure.
struct Row {
    what: &'static str,
    /// What is required, if anything.
    wanted: &'static str,
    found: &'static str,
    beside: &'static str,
}

const ROWS: [Row; 11] = [
    Row { what: rounds::IDLE, wanted: "at least 0.7", found: "MiB/s rebuilt", beside: "MiB/s" },
    Row { what: rounds::IDLE_COPY, wanted: "", found: "MiB/s rebuilt", beside: "MiB/s" },
    Row { what: rounds::READS, wanted: "at least 0.85", found: "reads/s meanwhile", beside: "reads/s otherwise" },
    Row { what: rounds::READS_PAUSED, wanted: "", found: "reads/s meanwhile", beside: "reads/s paused" },
    Row { what: rounds::READS_P99, wanted: "at most 2", found: "ms meanwhile", beside: "ms otherwise" },
    Row { what: rounds::WRITES, wanted: "at least 0.85", found: "writes/s meanwhile", beside: "writes/s otherwise" },
    Row { what: rounds::WRITES_PAUSED, wanted: "", found: "writes/s meanwhile", beside: "writes/s paused" },
    Row { what: rounds::WRITES_P99, wanted: "at most 2", found: "ms meanwhile", beside: "ms otherwise" },
    Row { what: rounds::PACE, wanted: "", found: "MiB/s", beside: "" },
    Row { what: rounds::BACK, wanted: "at most 5", found: "s until it is in", beside: "" },
    Row { what: rounds::SENT, wanted: "at most 2", found: "MiB sent", beside: "MiB written to it" },
];

/// Measures, and prints the results.
pub fn run(arguments: &Arguments) -> Result<()> {
    let quick = arguments.rounds.quick;
    let (count, seconds) = (arguments.rounds.rounds(6, 1), arguments.rounds.seconds(4));
    let size = arguments.size.unwrap_or(if quick { 1 << 30 } else { 4 << 30 });
    packages::install(&PACKAGES, "the measurement needs")?;
    let program = arguments.rounds.program()?;
    // A node is suspended as a whole.
    let wanted = |part| match arguments.only.as_slice() {
        [] => part != Part::Unavailable || arguments.rounds.nodes == 0,
        only => only.contains(&part),
    };
    let measure = |folder: &Path, interrupt: &Interrupt, figures: &mut Vec<Figure>| {
        let progress = Progress::new()?;
        let fio = Fio { folder, seconds, size, interrupt };
        let mut array = Array::new(&program, folder, size, interrupt);
        array.start(arguments.rounds.nodes)?;
        progress.say(&format!("filling the volume: {}", format_size(size)));
        fio.fill(&Target::Nbd(array.uri()?))?;
        array.settle()?;
        let mut rounds = Rounds::new(&fio)?;
        for round in 0..count {
            let mut parts = vec![Part::Idle, Part::Clients, Part::Unavailable];
            parts.retain(|part| wanted(*part));
            for part in parts {
                progress.say(&format!("round {} of {}: {part:?}", round + 1, count));
                match part {
                    Part::Idle => rounds.idle(round, &array, figures)?,
                    Part::Clients => rounds.clients(round, &array, figures)?,
                    Part::Unavailable => rounds.unavailable(round, &array, figures)?,
                }
            }
        }
        array.stop()
    };
    let json = arguments.rounds.json.as_deref();
    measure_in(&arguments.dir, space_for(size), json, |folder, interrupt| {
        let mut figures = Vec::new();
        let outcome = measure(folder, interrupt, &mut figures);
        (outcome, (!figures.is_empty()).then(|| (text_of(&figures), json_of(&figures))))
    })
}

fn text_of(figures: &[Figure]) -> String {
    let mut rows = Vec::new();
    for row in &ROWS {
        let of_row: Vec<&Figure> = figures.iter().filter(|figure| figure.what == row.what).collect();
        let all = |of: fn(&Figure) -> f64| of_row.iter().map(|figure| of(figure)).collect::<Vec<f64>>();
        let Some(found) = median(&all(|figure| figure.found)) else { continue };
        let beside = median(&all(|figure| figure.beside)).unwrap_or_default();
        let ratio = Ratio::of(of_row.iter().map(|figure| (figure.found, figure.beside)));
        let beside = if row.beside.is_empty() { String::new() } else { format!("{beside:.1} {}", row.beside) };
        let found = format!("{found:.1} {}", row.found);
        // A figure without a reference has no ratio.
        let ratio = if row.beside.is_empty() { ratio.spread() } else { ratio.to_string() };
        rows.push([row.what.to_string(), found, beside, ratio, row.wanted.to_string()]);
    }
    titled(["", "found", "beside", "ratio [95 %]", "wanted"], rows)
}

fn json_of(figures: &[Figure]) -> Value {
    let figures = figures.iter().map(
        |figure| json!({"figure": figure.what, "round": figure.round, "value": figure.found, "reference": figure.beside}),
    );
    json!({"schema": 2, "figures": figures.collect::<Vec<_>>()})
}
