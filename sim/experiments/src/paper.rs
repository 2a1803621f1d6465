//! Every number that the shared-array paper states about what is measured here, with the figure that it stands in.

use braid_wire::Ordering;

/// A number of the paper.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stated {
    /// In which experiment it is compared.
    pub experiment: &'static str,
    /// Which protocol.
    pub series: Ordering,
    /// At which point; any, if none.
    pub x: f64,
    /// What of it.
    pub metric: &'static str,
    /// The number.
    pub value: f64,
}

const FIGURE_6: &str = "shared-array-fig6";
/// Other readings of the same baseline: whatever is read, figure 6 is what it is compared with.
const ASSUMPTIONS: &str = "shared-array-assumptions";

const fn stated(experiment: &'static str, series: Ordering, x: f64, metric: &'static str, value: f64) -> Stated {
    Stated { experiment, series, x, metric, value }
}

/// All of them. Figure 6 is a table; of the other figures the scan has the ends of the axes only.
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
    // The ends of the horizontal axis are the throughputs of the least and of the greatest load.
    stated("shared-array-fig10-left", Ordering::None, 4.0, "throughput_ops", 149.9),
    stated("shared-array-fig10-left", Ordering::None, 36.0, "throughput_ops", 1350.0),
    // The upper end of the vertical axis; device locks send most where writes are most.
    stated("shared-array-fig10-right", Ordering::DeviceLock, 10.0, "messages_per_op", 15.62),
    // Section 4.7: "the fraction of operations restarted jumps … to 17%".
    stated("shared-array-fig12", Ordering::DeviceLock, 58.0, "restarts_per_op", 0.17),
];

/// What the paper states of a series at a point.
pub fn stated_value(experiment: &str, series: Ordering, x: f64, metric: &str) -> Option<f64> {
    let (experiment, x) = if experiment == ASSUMPTIONS { (FIGURE_6, 16.0) } else { (experiment, x) };
    let found = |stated: &&Stated| {
        stated.experiment == experiment && stated.series == series && stated.x == x && stated.metric == metric
    };
    STATED.iter().find(found).map(|stated| stated.value)
}

/// What follows from figure 6: of a protocol, the ratio of its metric to the unprotected one's, or the difference.
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
    fn nothing_is_stated_twice() {
        for (index, one) in STATED.iter().enumerate() {
            let same = |other: &&Stated| {
                (other.experiment, other.series, other.x, other.metric)
                    == (one.experiment, one.series, one.x, one.metric)
            };
            assert!(!STATED[..index].iter().any(|other| same(&other)), "{one:?}");
        }
    }
}
