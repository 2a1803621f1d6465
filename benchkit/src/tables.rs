//! Rows as tables, for the terminal and for pages.

use crate::rows::{Row, lookup};
use braid_base::text_table::table;

/// Marks numbers of arrays that did not keep up.
pub const FELL_BEHIND: &str = " >";
/// The meaning of that mark, printed below tables.
pub const FELL_BEHIND_MEANS: &str =
    "> The array did not keep up in some replication: this is what it does when saturated.";

/// True if any number is marked with [`FELL_BEHIND`].
pub fn fell_behind(blocks: &[Block]) -> bool {
    let marked = |cell: &Cell| matches!(cell, Cell::Number { ours, .. } if ours.ends_with(FELL_BEHIND));
    blocks.iter().flat_map(|block| block.lines.iter().flatten()).any(marked)
}

/// One block of a table: a metric, its columns, and a line of cells for each point.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// Panel and metric.
    pub title: String,
    /// The heading of the lines, then the series.
    pub heads: Vec<String>,
    /// The lines, each with as many cells as `heads`.
    pub lines: Vec<Vec<Cell>>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// The heading of a line.
    Head(String),
    /// Nothing was measured.
    Empty,
    /// A number and, if it is known, that of the paper.
    Number {
        /// The measured value with its confidence interval.
        ours: String,
        /// The paper's value, and the difference between the two.
        paper: Option<(String, String)>,
    },
}

/// The tables of an experiment, with the paper's numbers beside the measured ones: a block for each metric or, if all points have the
/// same horizontal value, one block with all metrics.
pub fn tables(metrics: &[&str], x_title: &str, rows: &[Row]) -> Vec<Block> {
    let mut blocks = Vec::new();
    for panel in distinct(rows.iter().map(|row| row.panel.clone())) {
        let of =
            |metric: &str| rows.iter().filter(|row| row.panel == panel && row.metric == metric).collect::<Vec<_>>();
        let series = distinct(metrics.iter().flat_map(|metric| of(metric)).map(|row| row.series.clone()));
        let cells = |metric: &str, x: f64| {
            let cell = |series: &String| {
                let kept_up = lookup(rows, &panel, series, x, "kept_up").is_none_or(|row| row.ours == 1.0);
                lookup(rows, &panel, series, x, metric).map_or(Cell::Empty, |row| cell_of(row, kept_up))
            };
            series.iter().map(cell).collect::<Vec<_>>()
        };
        let heads = |first: &str| std::iter::once(first.to_string()).chain(series.iter().cloned()).collect();
        let mut places: Vec<(f64, Option<String>)> = Vec::new();
        for row in rows.iter().filter(|row| row.panel == panel) {
            if !places.iter().any(|(x, _)| *x == row.x) {
                places.push((row.x, row.label.clone()));
            }
        }
        if let [(x, _)] = places[..] {
            let line = |metric: &&str| {
                std::iter::once(Cell::Head(title(metric).to_string())).chain(cells(metric, x)).collect()
            };
            let lines = metrics.iter().map(line).collect();
            blocks.push(Block { title: format!("{x} {x_title}"), heads: heads(""), lines });
            continue;
        }
        for metric in metrics {
            let line = |(x, label): &(f64, Option<String>)| {
                let head = Cell::Head(label.clone().unwrap_or_else(|| format!("{x}")));
                std::iter::once(head).chain(cells(metric, *x)).collect()
            };
            let title =
                if panel.is_empty() { title(metric).to_string() } else { format!("{panel}: {}", title(metric)) };
            blocks.push(Block { title, heads: heads(x_title), lines: places.iter().map(line).collect() });
        }
    }
    blocks
}

fn cell_of(row: &Row, kept_up: bool) -> Cell {
    let paper = row.paper.map(|paper| {
        let difference = row.difference.map(|part| format!("{:+.1} %", 100.0 * part));
        (figure(&row.metric, paper), difference.unwrap_or_default())
    });
    // Peaks are determined apart from this point.
    let mark = if kept_up || row.metric.starts_with("peak") { "" } else { FELL_BEHIND };
    Cell::Number { ours: ours(row) + mark, paper }
}

/// A metric's title with its unit.
fn title(metric: &str) -> &str {
    match metric {
        "latency_ms" => "mean latency (ms)",
        "latency_p50_ms" => "median latency (ms)",
        "latency_p99_ms" => "latency of the 99th percentile (ms)",
        "throughput_ops" => "throughput (operations/s)",
        "messages_per_op" => "messages per operation",
        "callbacks_per_op" => "callbacks per operation",
        "delayed_fraction" => "operations delayed",
        "restarts_per_op" => "restarts per operation",
        "disk_utilization" => "disks busy",
        "lock_server_utilization" => "lock server busy",
        "peak_ops" => "peak throughput (operations/s)",
        "peak_hosts" => "hosts at the peak",
        "requests_per_lock" => "requests per lock",
        "efficiency" => "efficiency (2 / requests per lock)",
        "throughput_ratio" => "throughput, ratio to the first column",
        "latency_ratio" => "latency, ratio to none",
        "peak_ratio" => "peak, ratio to none",
        "extra_messages" => "messages per operation above none",
        other => other,
    }
}

pub fn text(blocks: &[Block]) -> String {
    let mut text = String::new();
    for block in blocks {
        text.push_str(&format!("{}\n", block.title));
        let cell = |cell: &Cell| match cell {
            Cell::Head(head) => head.clone(),
            Cell::Empty => String::new(),
            Cell::Number { ours, paper: None } => ours.clone(),
            Cell::Number { ours, paper: Some((paper, difference)) } if difference.is_empty() => {
                format!("{ours} [{paper}]")
            }
            Cell::Number { ours, paper: Some((paper, difference)) } => format!("{ours} [{paper}, {difference}]"),
        };
        let rows = block.lines.iter().map(|line| line.iter().map(cell).collect());
        let rows: Vec<Vec<String>> = std::iter::once(block.heads.clone()).chain(rows).collect();
        table(&rows).lines().for_each(|line| text.push_str(&format!("  {line}\n")));
        text.push('\n');
    }
    if fell_behind(blocks) {
        text.push_str(&format!("{FELL_BEHIND_MEANS}\n\n"));
    }
    text
}

/// A number with its confidence interval, with a sensible number of digits.
fn ours(row: &Row) -> String {
    match row.ci95 {
        Some(ci95) => format!("{} ±{}", figure(&row.metric, row.ours), figure(&row.metric, ci95)),
        None => figure(&row.metric, row.ours),
    }
}

/// A metric's number for readers: fractions as percentages.
fn figure(metric: &str, value: f64) -> String {
    let digits = |value: f64| match value.abs() {
        at_least if at_least >= 100.0 => 1,
        at_least if at_least >= 1.0 || at_least == 0.0 => 2,
        _ => 3,
    };
    match metric {
        "delayed_fraction" | "disk_utilization" | "lock_server_utilization" => format!("{:.2} %", 100.0 * value),
        "peak_hosts" => format!("{value:.0}"),
        _ => format!("{value:.*}", digits(value)),
    }
}

fn distinct(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut seen: Vec<String> = Vec::new();
    for name in names {
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Estimate;

    fn row(series: &str, x: f64, ours: f64, paper: Option<f64>) -> Row {
        let difference = paper.map(|paper| ours / paper - 1.0);
        let estimate = Estimate { mean: ours, ci95: Some(0.5) };
        Row { paper, difference, ..Row::new("", series, x, "latency_ms", estimate) }
    }

    #[test]
    fn tables_have_ours_beside_theirs() {
        let rows =
            [row("none", 4.0, 20.0, None), row("timestamp", 4.0, 33.0, Some(30.0)), row("none", 8.0, 150.0, None)];
        let shown = text(&tables(&["latency_ms"], "hosts", &rows));
        let expected = "mean latency (ms)\n  hosts  none          timestamp\n  4      20.00 ±0.500  33.00 ±0.500 [30.00, +10.0 %]\n  8      150.0 ±0.500\n\n";
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_row_that_fell_behind_is_marked_and_explained() {
        let kept_up = Row { metric: "kept_up".to_string(), ..row("none", 8.0, 0.5, None) };
        let rows = [row("none", 4.0, 20.0, None), row("none", 8.0, 150.0, None), kept_up];
        let shown = text(&tables(&["latency_ms"], "hosts", &rows));
        assert!(shown.contains("4      20.00 ±0.500\n"), "{shown}");
        assert!(shown.contains("8      150.0 ±0.500 >\n") && shown.contains(FELL_BEHIND_MEANS), "{shown}");
    }

    #[test]
    fn an_experiment_at_one_place_has_one_table() {
        let rows = [row("none", 16.0, 20.0, None), row("timestamp", 16.0, 33.0, Some(30.0))];
        let blocks = tables(&["latency_ms", "peak_ops"], "hosts", &rows);
        assert_eq!(blocks.len(), 1);
        assert_eq!(blocks[0].heads, ["", "none", "timestamp"]);
        assert_eq!(
            blocks[0].lines[1],
            [Cell::Head("peak throughput (operations/s)".to_string()), Cell::Empty, Cell::Empty]
        );
    }
}
