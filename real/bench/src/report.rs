//! The report: a table for display, and all metrics for programs.

use super::figures::{Figures, METRICS};
use super::series::{Comparison, Run, Series};
use super::settings::{Settings, name_of};
use crate::prelude::*;
use braid_benchkit::statistics::VALUES_MIN;

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
    pub series: Vec<Series<Settings, Figures>>,
}

const SIDES: [&str; 2] = ["a", "b"];

impl Report {
    /// Removes what an interruption has left incomplete: pairs of which one side is missing, and series without runs. Returns the number of
    /// runs that remain.
    pub fn keep_complete(&mut self) -> usize {
        let runs = self.series.iter_mut().map(Series::keep_complete).sum();
        self.series.retain(|series| !series.runs.is_empty());
        runs
    }

    /// The results for programs.
    pub fn json(&self) -> Value {
        let series = self.series.iter().map(|series| {
            let run = |run: &Run<Figures>| {
                json!({"side": SIDES[run.side], "pair": run.round, "figures": run.figures.to_json()})
            };
            let summary = METRICS.iter().enumerate().filter_map(|(metric, described)| {
                let Comparison { own, other, ratio } = series.compare(1, 0, |figures| figures.value(metric))?;
                let (median, interval, pairs) = (ratio.median, ratio.interval, ratio.rounds);
                let found = json!({"a": other, "b": own, "ratio": median, "interval": interval, "pairs": pairs});
                Some((described.name.to_string(), found))
            });
            let settings =
                SIDES.iter().zip(&series.sides).map(|(side, settings)| (side.to_string(), settings.to_json()));
            json!({
                "settings": settings.collect::<serde_json::Map<_, _>>(),
                "runs": series.runs.iter().map(run).collect::<Vec<_>>(),
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
                    text += &format!("\n{}", comparison(series));
                }
            }
        }
        text
    }

    /// A table with a column for each series.
    fn single(&self) -> String {
        let names = self.series.iter().map(|series| name_of(series.sides[0].load.through));
        let mut rows = vec![[String::new()].into_iter().chain(names).collect::<Vec<_>>()];
        for (metric, described) in METRICS.iter().enumerate() {
            let values: Vec<_> =
                self.series.iter().map(|series| series.median(0, |figures| figures.value(metric))).collect();
            if values.iter().any(Option::is_some) {
                let cells = values.into_iter().map(number);
                rows.push([described.label.to_string()].into_iter().chain(cells).collect());
            }
        }
        table(&right(rows))
    }
}

/// A table of B compared with A.
fn comparison(series: &Series<Settings, Figures>) -> String {
    let names: Vec<_> = series.sides.iter().map(|side| name_of(side.load.through)).collect();
    let title = if names[0] == names[1] { format!("through {}", names[0]) } else { "medians".to_string() };
    let mut rows = vec![[title.as_str(), "A", "B", "B/A", "from", "to"].map(str::to_string).to_vec()];
    let (mut coverage, mut pairs) = (None, 0);
    for (metric, described) in METRICS.iter().enumerate() {
        let Some(found) = series.compare(1, 0, |figures| figures.value(metric)) else { continue };
        let medians = [found.other, found.own].map(|median| number(Some(median)));
        rows.push([described.label.to_string()].into_iter().chain(medians).chain(ratio_cells(found.ratio)).collect());
        coverage = coverage.or(found.ratio.interval.map(|interval| interval.coverage));
        pairs = found.ratio.rounds;
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

pub fn ratio_cells(ratio: Ratio) -> [String; 3] {
    let (low, high) = ratio.interval.map(|interval| (interval.low, interval.high)).unzip();
    [ratio.median, low, high].map(|value| value.map_or("-".to_string(), |value| format!("{value:.3}")))
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

    #[test]
    fn numbers_have_the_digits_that_tell_something() {
        let texts = [None, Some(0.0), Some(0.01234), Some(1.234), Some(12.34), Some(1234.5)].map(number);
        assert_eq!(texts, ["-", "0", "0.0123", "1.23", "12.3", "1234"]);
    }
}
