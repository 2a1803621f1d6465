//! `braid bench orderings`: compares the orderings, as in figure 6 of the shared-array paper.

use super::arguments::{ArrayArguments, BenchArray, LengthArguments, RunArguments, Span, seconds};
use super::figures::{Figures, METRICS};
use super::report::{number, ratio_cells, right};
use super::series::Series;
use super::settings::{LoadSettings, Settings, Through, VolumeSettings};
use super::test_bed::TestBed;
use super::{announce_runs, conclude, measure_series};
use crate::prelude::*;
use braid_base::units::format_size;
use braid_benchkit::statistics::VALUES_MIN;
use braid_terminal::arguments::ordering;
use serde_json::Map;

/// Compare the orderings: latency, throughput, messages and delays of each, and their ratios to
/// `none`
///
/// Creates a volume for each ordering on one array, and runs operations on them in turn (none,
/// server-lock, …; each round begins with another ordering), from several hosts, each in its own
/// process (with --nodes, in that of the bench). Every host reads and writes the whole volume,
/// evenly distributed. Every read is checked, also with `none`: if hosts conflict, `none` corrupts
/// only parity, which is needed only when a device fails.
///
/// Each round gives one ratio to `none` for each ordering. The bench reports the medians of the
/// ratios, with the interval that contains the true median with 95 % confidence.
/// docs/benchmarking.md explains the metrics, docs/orderings.md the orderings.
///
/// Examples:
///   braid bench orderings                                four hosts, 70 % reads of 4 KiB
///   braid bench orderings --hosts 8 --reads 50 --size 64MiB
///   braid bench orderings --ordering timestamp --ordering device-lock --rounds 20
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Arguments {
    #[command(flatten)]
    array: ArrayArguments,
    /// Usable size of each volume: the smaller, the more often hosts conflict
    #[arg(long, value_parser = size, default_value = "256MiB", help_heading = "Array")]
    size: u64,
    /// Compare this ordering with `none`; may be given more than once [default: all]
    #[arg(long = "ordering", value_parser = ordering(), value_name = "ORDERING", help_heading = "Array")]
    orderings: Vec<Ordering>,

    /// Hosts
    #[arg(long, default_value_t = 4, help_heading = "Load")]
    hosts: u16,
    /// Percentage of operations that are reads; the others are writes
    #[arg(long, value_name = "PERCENT", default_value_t = 70, help_heading = "Load")]
    reads: u8,
    #[command(flatten)]
    lengths: LengthArguments,
    /// Operations in flight per host
    #[arg(long, default_value_t = 4, help_heading = "Load")]
    depth: u16,
    /// Duration of a run, in seconds
    #[arg(long, default_value_t = 3.0, value_parser = seconds, help_heading = "Load")]
    seconds: f64,
    #[command(flatten)]
    runs: RunArguments,
    /// Runs of each ordering
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000), help_heading = "Load")]
    rounds: u16,
}

/// The columns of figure 6, with their headings here.
const COLUMNS: [(&str, &str); 7] = [
    ("operations_per_second", "ops/s"),
    ("latency_mean_us", "mean µs"),
    ("latency_p50_us", "p50 µs"),
    ("latency_p99_us", "p99 µs"),
    ("messages_per_operation", "messages/op"),
    ("lock_messages_per_operation", "of locks"),
    ("delayed_percent", "delayed %"),
];

/// The metrics for which ratios to `none` are reported.
const COMPARED: [(&str, &str); 2] =
    [("operations_per_second", "ops/s to none"), ("latency_mean_us", "latency to none")];

struct Comparison {
    seed: u64,
    span: Span,
    /// Its first side is `none`.
    series: Series<Settings, Figures>,
}

/// Measures, reports, and removes what was created.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let BenchArray { choice, array, layout, unit } = arguments.array.place(common).await?;
    let through = if arguments.array.nodes.is_some_and(|nodes| nodes > 0) { Through::Direct } else { Through::Hosts };
    let side = |ordering: Ordering| Settings {
        array: array.clone(),
        volume: VolumeSettings { ordering, ..VolumeSettings::new(layout, unit, arguments.size) },
        load: LoadSettings {
            reads: arguments.reads,
            block_max: arguments.lengths.longest(),
            depth: arguments.depth,
            clients: arguments.hosts,
            ..LoadSettings::new(through, arguments.lengths.block)
        },
    };
    let sides: Vec<Settings> = chosen(&arguments.orderings).into_iter().map(side).collect();
    sides.iter().try_for_each(Settings::check)?;
    let seed = arguments.runs.seed();
    let span = arguments.runs.span(arguments.seconds);
    let mut comparison = Comparison { seed, span, series: Series::new(sides) };
    let (rounds, series) = (usize::from(arguments.rounds), &mut comparison.series);
    announce_runs(rounds * series.sides.len(), span, arguments.size * series.sides.len() as u64);
    let series = std::slice::from_mut(series);
    let measure = async |test_bed: &mut TestBed| measure_series(test_bed, series, rounds, true, span, seed).await;
    let outcome = crate::on_test_bed(choice, seed, measure).await;
    // Ratios need all orderings of a round.
    let runs = comparison.series.keep_complete();
    conclude(common, outcome, runs, || comparison.json(), || comparison.text())
}

/// The orderings to measure: `none` first, because the ratios are relative to it; then the others in the paper's order.
fn chosen(named: &[Ordering]) -> Vec<Ordering> {
    let wanted = |ordering: &Ordering| *ordering == Ordering::None || named.is_empty() || named.contains(ordering);
    Ordering::ALL.into_iter().filter(wanted).collect()
}

impl Comparison {
    /// The results for programs.
    fn json(&self) -> Value {
        let series = &self.series;
        let orderings = series.sides.iter().enumerate().map(|(side, settings)| {
            let medians = METRICS.iter().enumerate().map(|(metric, described)| {
                (described.name.to_string(), json!(series.median(side, |figures| figures.value(metric))))
            });
            let ratios = COMPARED.iter().filter_map(|(name, _)| {
                let ratio = series.compare(side, 0, |figures| figures.value(metric(name)))?.ratio;
                Some((name.to_string(), json!({"ratio": ratio.median, "interval": ratio.interval})))
            });
            let runs = series.of_side(side);
            json!({
                "ordering": settings.volume.ordering.name(),
                "medians": medians.collect::<Map<_, _>>(),
                "ratios": ratios.collect::<Map<_, _>>(),
                "runs": runs.map(|run| json!({"round": run.round, "figures": run.figures.to_json()})).collect::<Vec<_>>(),
            })
        });
        json!({
            "schema": 2,
            "version": env!("CARGO_PKG_VERSION"),
            "seed": self.seed,
            "seconds": self.span.counted.as_secs_f64(),
            "warm_up": self.span.warm_up.as_secs_f64(),
            "rounds": series.rounds(),
            "settings": series.sides[0].to_json(),
            "orderings": orderings.collect::<Vec<_>>(),
        })
    }

    /// The results for display.
    fn text(&self) -> String {
        let series = &self.series;
        let load = &series.sides[0].load;
        let LoadSettings { through, reads, depth, clients, .. } = load;
        let place = if *through == Through::Direct { "in this process" } else { "processes of their own" };
        let Settings { array, volume, .. } = &series.sides[0];
        let (devices, layout, bytes, lengths) =
            (array.devices, volume.layout, format_size(volume.bytes), load.lengths());
        let mut text = format!("{devices} devices, {layout}, volumes of {bytes}; {clients} hosts, {place}, ");
        text += &format!("{depth} in flight of each; {reads} % reads, {lengths}\n");
        let (rounds, counted, warm_up) = (series.rounds(), self.span.counted, self.span.warm_up);
        let [counted, warm_up] = [counted, warm_up].map(|span| span.as_secs_f64());
        text +=
            &format!("medians of {rounds} runs of {counted} s, after {warm_up} s to warm up; seed {}\n\n", self.seed);
        let heads = std::iter::once("ordering").chain(COLUMNS.iter().map(|(_, head)| *head));
        let mut rows = vec![heads.map(str::to_string).collect::<Vec<_>>()];
        for (side, settings) in series.sides.iter().enumerate() {
            let cells =
                COLUMNS.iter().map(|(name, _)| number(series.median(side, |figures| figures.value(metric(name)))));
            rows.push(std::iter::once(settings.volume.ordering.to_string()).chain(cells).collect());
        }
        text += &table(&right(rows));
        text += "\n";
        let heads = COMPARED.iter().flat_map(|(_, head)| [*head, "from", "to"]);
        let mut rows = vec![std::iter::once("ordering").chain(heads).map(str::to_string).collect::<Vec<_>>()];
        for (side, settings) in series.sides.iter().enumerate().skip(1) {
            let cells = COMPARED.iter().flat_map(|(name, _)| {
                let found = series.compare(side, 0, |figures| figures.value(metric(name)));
                ratio_cells(found.map_or(Ratio::of([]), |found| found.ratio))
            });
            rows.push(std::iter::once(settings.volume.ordering.to_string()).chain(cells).collect());
        }
        text += &table(&right(rows));
        if series.rounds() < VALUES_MIN {
            text += &format!("Too few rounds for confidence intervals: use at least {VALUES_MIN}, or better 10.\n");
        }
        text
    }
}

fn metric(name: &str) -> usize {
    METRICS.iter().position(|metric| metric.name == name).expect("it is one of the metrics")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unprotected_one_is_always_there_and_first() {
        assert_eq!(chosen(&[]), Ordering::ALL);
        let two = [Ordering::Timestamp, Ordering::DeviceLock];
        assert_eq!(chosen(&two), [Ordering::None, Ordering::DeviceLock, Ordering::Timestamp]);
    }

    #[test]
    fn reported_values_are_measured() {
        for (name, _) in COLUMNS.iter().chain(&COMPARED) {
            assert!(METRICS[metric(name)].name == *name);
        }
    }
}
