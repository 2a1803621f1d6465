//! The numbers that the shared-array paper states about quantities measured here, each with its figure.

use braid_ordering::Ordering;

/// A number from the paper.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stated {
    /// The experiment in which it is compared.
    pub experiment: &'static str,
    pub series: Ordering,
    /// The horizontal value of the point.
    pub x: f64,
    pub metric: &'static str,
    pub value: f64,
}

const FIGURE_6: &str = "shared-array-fig6";
/// The experiment with other readings of the baseline, which are compared with figure 6.
const ASSUMPTIONS: &str = "shared-array-assumptions";

const fn stated(experiment: &'static str, series: Ordering, x: f64, metric: &'static str, value: f64) -> Stated {
    Stated { experiment, series, x, metric, value }
}

/// All numbers. Figure 6 is a table; for the other figures the scan shows only the ends of the axes.
pub const STATED: &[Stated] = &[
    stated(FIGURE_6, Ordering::ServerLock, 16.0, "latency_ms", 49.0),
    stated(FIGURE_6, Ordering::CallbackLock, 16.0, "latency_ms", 41.0),
    stated(FIGURE_6, Ordering::DeviceLock, 16.0, "latency_ms", 33.0),
    stated(FIGURE_6, Ordering::Timestamp, 16.0, "latency_ms", 32.8),
    stated(FIGURE_6, Ordering::None, 16.0, "latency_ms", 29.71),
    stated(FIGURE_6, Ordering::ServerLock, 16.0, "throughput_ops", 599.6),
    stated(FIGURE_6, Ordering::CallbackLock, 16.0, "throughput_ops", 599.6),
    stated(FIGURE_6, Ordering::DeviceLock, 16.0, "throughput_ops", 600.2),
    stated(FIGURE_6, Ordering::Timestamp, 16.0, "throughput_ops", 599.7),
    stated(FIGURE_6, Ordering::None, 16.0, "throughput_ops", 600.4),
    stated(FIGURE_6, Ordering::ServerLock, 16.0, "messages_per_op", 10.67),
    stated(FIGURE_6, Ordering::CallbackLock, 16.0, "messages_per_op", 9.57),
    stated(FIGURE_6, Ordering::DeviceLock, 16.0, "messages_per_op", 11.86),
    stated(FIGURE_6, Ordering::Timestamp, 16.0, "messages_per_op", 7.79),
    stated(FIGURE_6, Ordering::None, 16.0, "messages_per_op", 6.68),
    stated(FIGURE_6, Ordering::ServerLock, 16.0, "delayed_fraction", 0.0062),
    stated(FIGURE_6, Ordering::CallbackLock, 16.0, "delayed_fraction", 0.33),
    stated(FIGURE_6, Ordering::DeviceLock, 16.0, "delayed_fraction", 0.0031),
    stated(FIGURE_6, Ordering::Timestamp, 16.0, "delayed_fraction", 0.0016),
    stated(FIGURE_6, Ordering::None, 16.0, "delayed_fraction", 0.0),
    stated(FIGURE_6, Ordering::ServerLock, 16.0, "peak_ops", 600.0),
    stated(FIGURE_6, Ordering::CallbackLock, 16.0, "peak_ops", 899.3),
    stated(FIGURE_6, Ordering::DeviceLock, 16.0, "peak_ops", 1275.1),
    stated(FIGURE_6, Ordering::Timestamp, 16.0, "peak_ops", 1274.7),
    stated(FIGURE_6, Ordering::None, 16.0, "peak_ops", 1349.5),
    // The ends of the horizontal axis are the throughputs of the smallest and of the largest load.
    stated("shared-array-fig10-left", Ordering::None, 4.0, "throughput_ops", 149.9),
    stated("shared-array-fig10-left", Ordering::None, 36.0, "throughput_ops", 1350.0),
    // The upper end of the vertical axis; device locks send the most messages at the largest share of writes.
    stated("shared-array-fig10-right", Ordering::DeviceLock, 10.0, "messages_per_op", 15.62),
    // Section 4.7: "the fraction of operations restarted jumps … to 17%".
    stated("shared-array-fig12", Ordering::DeviceLock, 58.0, "restarts_per_op", 0.17),
];

/// The number that the paper states for a series at a point.
pub fn stated_value(experiment: &str, series: Ordering, x: f64, metric: &str) -> Option<f64> {
    let (experiment, x) = if experiment == ASSUMPTIONS { (FIGURE_6, 16.0) } else { (experiment, x) };
    let found = |stated: &&Stated| {
        stated.experiment == experiment && stated.series == series && stated.x == x && stated.metric == metric
    };
    STATED.iter().find(found).map(|stated| stated.value)
}

/// A number derived from figure 6: the ratio of a protocol's metric to that of the unprotected protocol, or the difference.
pub fn derived_value(experiment: &str, series: Ordering, metric: &str) -> Option<f64> {
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
    let (own, none) = (of(series, name)?, of(Ordering::None, name)?);
    Some(if is_ratio { own / none } else { own - none })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure_6_is_complete() {
        for series in Ordering::ALL {
            for metric in ["latency_ms", "throughput_ops", "messages_per_op", "delayed_fraction", "peak_ops"] {
                assert!(stated_value(FIGURE_6, series, 16.0, metric).is_some(), "{series} {metric}");
            }
        }
    }

    #[test]
    fn ratios_are_those_that_the_paper_speaks_of() {
        let rounded = |series, metric| (derived_value(FIGURE_6, series, metric).unwrap() * 100.0).round() / 100.0;
        use Ordering::{CallbackLock, DeviceLock, ServerLock, Timestamp};
        let of = |metric| [ServerLock, CallbackLock, DeviceLock, Timestamp].map(|series| rounded(series, metric));
        assert_eq!(of("latency_ratio"), [1.65, 1.38, 1.11, 1.10]);
        assert_eq!(of("peak_ratio"), [0.44, 0.67, 0.94, 0.94]);
        assert_eq!(of("extra_messages"), [3.99, 2.89, 5.18, 1.11]);
    }

    #[test]
    fn other_readings_are_compared_with_figure_6() {
        for x in [0.0, 3.0] {
            assert_eq!(stated_value(ASSUMPTIONS, Ordering::Timestamp, x, "latency_ms"), Some(32.8));
        }
        assert_eq!(derived_value("scale", Ordering::Timestamp, "latency_ratio"), None);
    }

    #[test]
    fn no_figure_is_stated_twice() {
        for (index, one) in STATED.iter().enumerate() {
            let same = |other: &&Stated| {
                (other.experiment, other.series, other.x, other.metric)
                    == (one.experiment, one.series, one.x, one.metric)
            };
            assert!(!STATED[..index].iter().any(|other| same(&other)), "{one:?}");
        }
    }
}
