//! Means of independent replications, and medians of values of any distribution, each with its confidence interval.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// A mean and the half width of its 95 % confidence interval, which is missing if there is only one value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub mean: f64,
    /// The half width of the 95 % confidence interval.
    pub ci95: Option<f64>,
}

impl Estimate {
    /// The estimate from independent values, of which there must be at least one.
    pub fn of(values: &[f64]) -> Estimate {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        if values.len() < 2 {
            return Estimate { mean, ci95: None };
        }
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let student = StudentsT::new(0.0, 1.0, count - 1.0).expect("two values have a degree of freedom");
        Estimate { mean, ci95: Some(student.inverse_cdf(0.975) * (variance / count).sqrt()) }
    }
}

/// A confidence interval that contains the true median with probability [`CONFIDENCE`] or more, for any distribution.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The lower end: one of the values.
    pub low: f64,
    /// The upper end: one of the values.
    pub high: f64,
    /// The probability that the true median is within the interval; at least [`CONFIDENCE`].
    pub coverage: f64,
}

/// The ratio of two sides that were measured in the same rounds: the median of the ratios of each round, so that other activity on the machine
/// affects both.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// None without rounds, or if a reference is zero: to leave out that round would bias the result.
    pub median: Option<f64>,
    /// None if there are too few rounds.
    pub interval: Option<Interval>,
    pub rounds: usize,
}

impl Ratio {
    /// The ratio from the value and the reference of each round.
    pub fn of(rounds: impl IntoIterator<Item = (f64, f64)>) -> Ratio {
        let ratios: Vec<Option<f64>> =
            rounds.into_iter().map(|(value, reference)| (reference > 0.0).then(|| value / reference)).collect();
        let rounds = ratios.len();
        let ratios: Vec<f64> = ratios.into_iter().collect::<Option<_>>().unwrap_or_default();
        Ratio { median: median(&ratios), interval: median_interval(&ratios), rounds }
    }

    /// Only the interval, for readers; nothing if there is none.
    pub fn spread(&self) -> String {
        self.interval.map_or(String::new(), |ends| format!(" [{:.2} to {:.2}]", ends.low, ends.high))
    }
}

/// The ratio with its interval, for readers.
impl std::fmt::Display for Ratio {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2}{}", self.median.unwrap_or_default(), self.spread())
    }
}

/// The minimal coverage of an interval.
pub const CONFIDENCE: f64 = 0.95;
/// With fewer values, not even the interval from the smallest to the largest has this coverage.
pub const VALUES_MIN: usize = 6;

/// The middle value, or the mean of the two in the middle; none if there are no values.
pub fn median(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values);
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        length if length.is_multiple_of(2) => Some((sorted[half - 1] + sorted[half]) / 2.0),
        _ => Some(sorted[half]),
    }
}

/// The narrowest interval between two values, of equal rank from below and above, that has the required coverage. By order statistics: each
/// value is below the true median with probability one half, so the number of values below it has a binomial distribution. None if
/// there are fewer than [`VALUES_MIN`] values.
pub fn median_interval(values: &[f64]) -> Option<Interval> {
    let sorted = sorted(values);
    let mut found = None;
    // The probability that fewer than `rank` values are below the median, and the probability that exactly that many are.
    let (mut fewer, mut exactly) = (0.0, 0.5f64.powi(sorted.len() as i32));
    for rank in 1..=sorted.len() / 2 {
        fewer += exactly;
        exactly *= (sorted.len() - rank + 1) as f64 / rank as f64;
        let coverage = 1.0 - 2.0 * fewer;
        if coverage < CONFIDENCE {
            break;
        }
        found = Some(Interval { low: sorted[rank - 1], high: sorted[sorted.len() - rank], coverage });
    }
    found
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::Rng;

    #[test]
    fn intervals_are_those_of_students_table() {
        let estimate = Estimate::of(&[10.0, 12.0, 14.0, 16.0, 18.0]);
        assert_eq!(estimate.mean, 14.0);
        // t(4, 0.975) = 2.776, standard deviation 3.1623.
        assert!((estimate.ci95.unwrap() - 2.7764 * 10f64.sqrt() / 5f64.sqrt()).abs() < 1e-3);
        assert_eq!(Estimate::of(&[3.0]), Estimate { mean: 3.0, ci95: None });
    }

    fn up_to(count: u32) -> Vec<f64> {
        (1..=count).map(f64::from).collect()
    }

    #[test]
    fn the_median_is_in_the_middle_whatever_the_order() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[7.0]), Some(7.0));
        assert_eq!(median(&[9.0, 1.0, 5.0]), Some(5.0));
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
    }

    /// Ranks and coverages are those in tables of the binomial distribution.
    #[test]
    fn the_interval_is_the_one_of_the_tables() {
        let expected =
            [(6, 1, 0.96875), (8, 1, 0.9921875), (9, 2, 0.9609375), (10, 2, 0.978515625), (20, 6, 0.958610535)];
        for (count, rank, coverage) in expected {
            let interval = median_interval(&up_to(count)).expect("enough values");
            assert_eq!((interval.low, interval.high), (f64::from(rank), f64::from(count + 1 - rank)), "{count}");
            assert!((interval.coverage - coverage).abs() < 1e-9, "{count}: {interval:?}");
        }
    }

    #[test]
    fn of_too_few_values_no_interval_is_claimed() {
        assert_eq!(median_interval(&up_to(VALUES_MIN as u32 - 1)), None);
        assert!(median_interval(&up_to(VALUES_MIN as u32)).is_some());
        assert_eq!(median_interval(&[]), None);
    }

    #[test]
    fn the_interval_covers_the_true_median_as_often_as_it_says() {
        let mut rng = Rng::new(1);
        let (rounds, mut covered) = (4000, 0);
        for _ in 0..rounds {
            // Highly asymmetric, with median 1/4.
            let values: Vec<f64> = (0..10).map(|_| (rng.below(1 << 30) as f64 / (1u64 << 30) as f64).powi(2)).collect();
            let interval = median_interval(&values).expect("enough values");
            covered += u32::from(interval.low <= 0.25 && 0.25 <= interval.high);
        }
        let share = f64::from(covered) / f64::from(rounds);
        assert!((share - 0.9785).abs() < 0.01, "{share}");
    }
}
