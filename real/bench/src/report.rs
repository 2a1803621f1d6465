//! The report: a table for display, and all metrics for programs.

use super::figures::{Figures, METRICS};
use super::settings::Settings;
use braid_benchkit::statistics::{Interval, VALUES_MIN, median, median_interval};
use braid_terminal::output::table;
use serde_json::{Value, json};

/// All results of a bench.
pub struct Report {
    /// Duration of each run, in seconds.
    pub seconds: f64,
    /// Warm-up before each run, in seconds.
    pub warm_up: f64,
    /// The random seed of the operations.
    pub seed: u64,
    /// How B differs from A, if there is a B.
    pub versus: Option<String>,
    /// One series for each path of requests.
    pub series: Vec<Series>,
}

/// Runs that belong together: of one side, or of two alternating sides.
pub struct Series {
    /// A, and B if there is one.
    pub sides: Vec<Settings>,
    /// In order of time.
    pub runs: Vec<Run>,
}

pub struct Run {
    /// The index of the side.
    pub side: usize,
    /// Runs with the same number are compared.
    pub pair: usize,
    pub figures: Figures,
}

impl Series {
    /// Removes the runs of pairs, or rounds, of which one is missing.
    pub fn keep_complete(&mut self) {
        let Series { sides, runs } = self;
        let has_all = |pair: usize| runs.iter().filter(|run| run.pair == pair).count() == sides.len();
        let complete: Vec<bool> = runs.iter().map(|run| has_all(run.pair)).collect();
        let mut complete = complete.into_iter();
        runs.retain(|_| complete.next() == Some(true));
    }
}

/// One metric over all pairs.
pub struct Comparison {
    a: f64,
    b: f64,
    /// The median of B/A; none if an A is zero.
    pub ratio: Option<f64>,
    /// The confidence interval of the median of B/A; none if there are too few pairs.
    pub interval: Option<Interval>,
    pairs: usize,
}

const SIDES: [&str; 2] = ["a", "b"];

impl Report {
    /// Removes what an interruption has left incomplete: pairs of which one side is missing, and series without runs. Returns the number of
    /// runs that remain.
    pub fn keep_complete(&mut self) -> usize {
        self.series.iter_mut().for_each(Series::keep_complete);
        self.series.retain(|series| !series.runs.is_empty());
        self.series.iter().map(|series| series.runs.len()).sum()
    }

    /// The results for programs.
    pub fn json(&self) -> Value {
        let series = self.series.iter().map(|series| {
            let runs = series
                .runs
                .iter()
                .map(|run| json!({"side": SIDES[run.side], "pair": run.pair, "figures": run.figures.to_json()}));
            let summary = METRICS.iter().enumerate().filter_map(|(metric, described)| {
                let found = series.compare(metric)?;
                let interval = found
                    .interval
                    .map(|interval| json!({"low": interval.low, "high": interval.high, "coverage": interval.coverage}));
                let (name, pairs) = (described.name.to_string(), found.pairs);
                Some((
                    name,
                    json!({"a": found.a, "b": found.b, "ratio": found.ratio, "interval": interval, "pairs": pairs}),
                ))
            });
            let settings =
                SIDES.iter().zip(&series.sides).map(|(side, settings)| (side.to_string(), settings.to_json()));
            json!({
                "settings": settings.collect::<serde_json::Map<_, _>>(),
                "runs": runs.collect::<Vec<_>>(),
                "summary": self.versus.as_ref().map(|_| summary.collect::<serde_json::Map<_, _>>()),
            })
        });
        json!({
            "schema": 2,
            "version": env!("CARGO_PKG_VERSION"),
            "seed": self.seed,
            "seconds": self.seconds,
            "warm_up": self.warm_up,
            "versus": self.versus,
            "series": series.collect::<Vec<_>>(),
        })
    }

    /// The results for display.
    pub fn text(&self) -> String {
        let first = &self.series[0];
        let mut text = format!("{}\n", first.sides[0]);
        text += &format!("{} s each, after {} s to warm up; seed {}\n", self.seconds, self.warm_up, self.seed);
        match &self.versus {
            None => text += &format!("\n{}", self.single()),
            Some(versus) => {
                text += &format!("A is the above; B has {versus}; A and B alternated\n");
                for series in &self.series {
                    text += &format!("\n{}", series.comparison());
                }
            }
        }
        text
    }

    /// A table with a column for each series.
    fn single(&self) -> String {
        let names = self.series.iter().map(|series| series.sides[0].load.through.name().to_string());
        let mut rows = vec![[String::new()].into_iter().chain(names).collect::<Vec<_>>()];
        for (metric, described) in METRICS.iter().enumerate() {
            let values: Vec<_> = self.series.iter().map(|series| series.median(0, metric)).collect();
            if values.iter().any(Option::is_some) {
                let cells = values.into_iter().map(number);
                rows.push([described.label.to_string()].into_iter().chain(cells).collect());
            }
        }
        table(&right(rows))
    }
}

impl Series {
    fn values(&self, side: usize, metric: usize) -> Vec<f64> {
        self.runs.iter().filter(|run| run.side == side).filter_map(|run| run.figures.value(metric)).collect()
    }

    /// The median of a metric of one side; none if it is unknown.
    pub fn median(&self, side: usize, metric: usize) -> Option<f64> {
        median(&self.values(side, metric))
    }

    /// Compares B with A.
    fn compare(&self, metric: usize) -> Option<Comparison> {
        self.compare_with_first(1, metric)
    }

    /// Compares a side with the first one. None unless both have values.
    pub fn compare_with_first(&self, other: usize, metric: usize) -> Option<Comparison> {
        let (a, b) = (self.median(0, metric)?, self.median(other, metric)?);
        let of = |side: usize, pair: usize| {
            self.runs.iter().find(|run| (run.side, run.pair) == (side, pair)).and_then(|run| run.figures.value(metric))
        };
        let pairs = self.runs.iter().filter(|run| run.side == 0).map(|run| run.pair);
        let ratios: Vec<Option<f64>> =
            pairs.map(|pair| Some(of(other, pair)? / of(0, pair).filter(|a| *a > 0.0)?)).collect();
        let pairs = ratios.len();
        // Dropping pairs without a ratio would bias the result.
        let ratios: Vec<f64> = ratios.into_iter().collect::<Option<_>>().unwrap_or_default();
        Some(Comparison { a, b, ratio: median(&ratios), interval: median_interval(&ratios), pairs })
    }

    fn comparison(&self) -> String {
        let names: Vec<_> = self.sides.iter().map(|side| side.load.through.name()).collect();
        let title = if names[0] == names[1] { format!("through {}", names[0]) } else { "medians".to_string() };
        let mut rows = vec![[title.as_str(), "A", "B", "B/A", "from", "to"].map(str::to_string).to_vec()];
        let (mut coverage, mut pairs) = (None, 0);
        for (metric, described) in METRICS.iter().enumerate() {
            let Some(found) = self.compare(metric) else { continue };
            let ratio = |value: Option<f64>| value.map_or("-".to_string(), |value| format!("{value:.3}"));
            let ends = found.interval.map(|interval| [interval.low, interval.high]);
            rows.push(vec![
                described.label.to_string(),
                number(Some(found.a)),
                number(Some(found.b)),
                ratio(found.ratio),
                ratio(ends.map(|ends| ends[0])),
                ratio(ends.map(|ends| ends[1])),
            ]);
            coverage = coverage.or(found.interval.map(|interval| interval.coverage));
            pairs = found.pairs;
        }
        let of_pairs = format!("Medians of {pairs} pairs, each ratio within its own pair.");
        let surely = match coverage {
            Some(coverage) => format!(
                "{of_pairs} The true median of B/A lies between `from` and `to`\nwith {:.1} % confidence (order statistics): if 1 lies between them, too, no difference is shown.\n",
                coverage * 100.0
            ),
            None => {
                format!("{of_pairs} Too few pairs for confidence intervals: use at least {VALUES_MIN}, or better 10.\n")
            }
        };
        table(&right(rows)) + &surely
    }
}

/// A number with three significant digits or so.
pub fn number(value: Option<f64>) -> String {
    match value {
        None => "-".to_string(),
        Some(0.0) => "0".to_string(),
        Some(value) if value >= 100.0 => format!("{value:.0}"),
        Some(value) if value >= 10.0 => format!("{value:.1}"),
        Some(value) if value >= 1.0 => format!("{value:.2}"),
        Some(value) => format!("{value:.4}"),
    }
}

/// Right-aligns all columns except the first.
pub fn right(mut rows: Vec<Vec<String>>) -> Vec<Vec<String>> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    for column in 1..columns {
        let widest = rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        for row in &mut rows {
            row[column] = format!("{:>widest$}", row[column]);
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(values: &[(f64, f64)]) -> Series {
        let of = |side: usize, pair: usize, value: f64| Run { side, pair, figures: Figures::of_first(value) };
        let runs = values.iter().enumerate().flat_map(|(pair, (a, b))| [of(1, pair, *b), of(0, pair, *a)]);
        Series { sides: Vec::new(), runs: runs.collect() }
    }

    #[test]
    fn each_ratio_is_taken_within_its_pair() {
        // The machine becomes slower over time, but B is always ten per cent faster than its A.
        let values: Vec<_> = (1..=10).map(|speed| (f64::from(speed), f64::from(speed) * 1.1)).collect();
        let found = series(&values).compare(0).unwrap();
        let near = |value: f64| (value - 1.1).abs() < 1e-9;
        let interval = found.interval.unwrap();
        assert!(near(found.ratio.unwrap()) && near(interval.low) && near(interval.high));
        assert_eq!((found.a, found.pairs), (5.5, 10));
    }

    #[test]
    fn a_base_of_zero_gives_no_ratio() {
        let found = series(&[(0.0, 1.0), (1.0, 1.0)]).compare(0).unwrap();
        assert_eq!((found.ratio, found.interval, found.b), (None, None, 1.0));
        assert!(series(&[(1.0, 1.0)]).compare(1).is_none(), "an unknown metric is not compared");
    }

    #[test]
    fn numbers_have_the_digits_that_tell_something() {
        let texts = [None, Some(0.0), Some(0.01234), Some(1.234), Some(12.34), Some(1234.5)].map(number);
        assert_eq!(texts, ["-", "0", "0.0123", "1.23", "12.3", "1234"]);
    }
}
