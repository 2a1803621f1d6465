//! The numbers that the papers state about quantities measured here, as in their tables.

/// A table of a paper, or the numbers of a figure.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// The experiment in which the numbers are compared.
    pub experiment: &'static str,
    /// The horizontal value of the points; none if the numbers hold for all.
    pub x: Option<f64>,
    pub metrics: &'static [&'static str],
    /// Each series, with its number for each metric.
    pub series: &'static [(&'static str, &'static [f64])],
}

const FIGURE_6: &str = "shared-array-fig6";
/// The experiment with other readings of the baseline, which are compared with figure 6.
const ASSUMPTIONS: &str = "shared-array-assumptions";
const COMMITS: &str = "one-phase-commit-fig6";
const COMMIT_ASSUMPTIONS: &str = "one-phase-commit-assumptions";

/// All numbers. Figure 6 of the shared-array paper is a table; for its other figures the scan shows only the ends of the axes. Figure 6 of the
/// one-phase-commit paper has no horizontal axis.
pub const TABLES: &[Table] = &[
    table(
        FIGURE_6,
        Some(16.0),
        &["latency_ms", "throughput_ops", "messages_per_op", "delayed_fraction", "peak_ops"],
        &[
            ("server-lock", &[49.0, 599.6, 10.67, 0.0062, 600.0]),
            ("callback-lock", &[41.0, 599.6, 9.57, 0.33, 899.3]),
            ("device-lock", &[33.0, 600.2, 11.86, 0.0031, 1275.1]),
            ("timestamp", &[32.8, 599.7, 7.79, 0.0016, 1274.7]),
            ("none", &[29.71, 600.4, 6.68, 0.0, 1349.5]),
        ],
    ),
    // The ends of the horizontal axis are the throughputs of the smallest and of the largest load.
    table("shared-array-fig10-left", Some(4.0), &["throughput_ops"], &[("none", &[149.9])]),
    table("shared-array-fig10-left", Some(36.0), &["throughput_ops"], &[("none", &[1350.0])]),
    // The upper end of the vertical axis; device locks send the most messages at the largest share of writes.
    table("shared-array-fig10-right", Some(10.0), &["messages_per_op"], &[("device-lock", &[15.62])]),
    // Section 4.7: "the fraction of operations restarted jumps … to 17%".
    table("shared-array-fig12", Some(58.0), &["restarts_per_op"], &[("device-lock", &[0.17])]),
    table(
        "one-phase-commit-table1",
        None,
        &["forced_writes", "unforced_writes", "critical_writes", "protocol_messages", "critical_messages"],
        &[
            ("prn", &[5.0, 1.0, 4.0, 4.0, 4.0]),
            ("prc", &[4.0, 1.0, 3.0, 3.0, 2.0]),
            ("ep", &[4.0, 1.0, 3.0, 1.0, 0.0]),
            ("1pc", &[3.0, 1.0, 2.0, 1.0, 0.0]),
        ],
    ),
    table(COMMITS, None, &["throughput_ops"], &[("prn", &[15.0]), ("prc", &[15.0]), ("ep", &[16.0]), ("1pc", &[24.0])]),
    // "PrC and the EP can gain only 0.39% and 6.60%"; 1PC "more than 55%", and 24 of 15 is 1.6.
    table(COMMITS, None, &["throughput_ratio"], &[("prc", &[1.0039]), ("ep", &[1.066]), ("1pc", &[1.6])]),
];

const fn table(
    experiment: &'static str,
    x: Option<f64>,
    metrics: &'static [&'static str],
    series: &'static [(&'static str, &'static [f64])],
) -> Table {
    Table { experiment, x, metrics, series }
}

impl Table {
    /// Each number with its series and its metric.
    pub fn numbers(&self) -> impl Iterator<Item = (&'static str, &'static str, f64)> {
        let Table { metrics, series, .. } = *self;
        let of = move |(series, values): &(&'static str, &'static [f64])| {
            let series = *series;
            metrics.iter().zip(*values).map(move |(metric, value)| (series, *metric, *value))
        };
        series.iter().flat_map(of)
    }
}

/// The number that a paper states for a series at a point.
pub fn stated_value(experiment: &str, series: &str, x: f64, metric: &str) -> Option<f64> {
    let (experiment, x) = match experiment {
        ASSUMPTIONS => (FIGURE_6, 16.0),
        COMMIT_ASSUMPTIONS => (COMMITS, x),
        other => (other, x),
    };
    let tables = TABLES.iter().filter(|table| table.experiment == experiment && table.x.is_none_or(|at| at == x));
    tables.flat_map(Table::numbers).find(|stated| (stated.0, stated.1) == (series, metric)).map(|stated| stated.2)
}

/// A number derived from figure 6 of the shared-array paper: the ratio of a protocol's metric to that of the unprotected protocol, or the
/// difference.
pub fn derived_value(experiment: &str, series: &str, metric: &str) -> Option<f64> {
    if ![FIGURE_6, ASSUMPTIONS].contains(&experiment) {
        return None;
    }
    let of = |series, metric| stated_value(FIGURE_6, series, 16.0, metric);
    let (name, is_ratio) = match metric {
        "latency_ratio" => ("latency_ms", true),
        "peak_ratio" => ("peak_ops", true),
        "extra_messages" => ("messages_per_op", false),
        _ => return None,
    };
    let (own, none) = (of(series, name)?, of("none", name)?);
    Some(if is_ratio { own / none } else { own - none })
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_ordering::Ordering;
    use std::collections::BTreeSet;

    #[test]
    fn every_table_is_complete_and_no_number_is_stated_twice() {
        let mut stated = BTreeSet::new();
        for table in TABLES {
            assert!(table.series.iter().all(|(_, values)| values.len() == table.metrics.len()), "{table:?}");
            for (series, metric, _) in table.numbers() {
                let place = (table.experiment, table.x.map(f64::to_bits), series, metric);
                assert!(stated.insert(place), "{place:?}");
            }
        }
        for series in Ordering::ALL {
            assert!(stated_value(FIGURE_6, series.name(), 16.0, "latency_ms").is_some(), "{series}");
        }
    }

    #[test]
    fn ratios_are_those_that_the_paper_speaks_of() {
        let rounded = |series, metric| (derived_value(FIGURE_6, series, metric).unwrap() * 100.0).round() / 100.0;
        let protocols = ["server-lock", "callback-lock", "device-lock", "timestamp"];
        let of = |metric| protocols.map(|series| rounded(series, metric));
        assert_eq!(of("latency_ratio"), [1.65, 1.38, 1.11, 1.10]);
        assert_eq!(of("peak_ratio"), [0.44, 0.67, 0.94, 0.94]);
        assert_eq!(of("extra_messages"), [3.99, 2.89, 5.18, 1.11]);
    }

    #[test]
    fn other_readings_are_compared_with_figure_6() {
        for x in [0.0, 3.0] {
            assert_eq!(stated_value(ASSUMPTIONS, "timestamp", x, "latency_ms"), Some(32.8));
            assert_eq!(stated_value(COMMIT_ASSUMPTIONS, "1pc", x, "throughput_ratio"), Some(1.6));
        }
        assert_eq!(derived_value("scale", "timestamp", "latency_ratio"), None);
    }
}
