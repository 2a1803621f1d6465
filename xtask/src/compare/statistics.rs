//! Medians and their confidence intervals, for any distribution of the values.

/// The median; none if there are no values.
pub fn median(figures: &[f64]) -> Option<f64> {
    let sorted = sorted(figures);
    let upper = *sorted.get(sorted.len() / 2)?;
    Some(if sorted.len() % 2 == 1 { upper } else { (sorted[sorted.len() / 2 - 1] + upper) / 2.0 })
}

/// An interval between two of the values that contains the true median with 95 % confidence or more. It requires six values.
///
/// The interval from the k-th smallest to the k-th greatest of n values misses the median only if fewer than k values lie on one side of
/// it; each value lies on either side with probability one half.
pub fn interval(figures: &[f64]) -> Option<(f64, f64)> {
    let (sorted, n) = (sorted(figures), figures.len() as i32);
    let (mut outside, mut term, mut k) = (0.0, 0.5f64.powi(n), 0);
    // `term` is the probability of exactly k values below the median, `outside` that of fewer than k on either side.
    while k < n / 2 && outside + 2.0 * term <= 0.05 {
        outside += 2.0 * term;
        term *= f64::from(n - k) / f64::from(k + 1);
        k += 1;
    }
    let k = k as usize;
    (k > 0).then(|| (sorted[k - 1], sorted[sorted.len() - k]))
}

fn sorted(figures: &[f64]) -> Vec<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_between_the_two_middle_ones() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 10.0]), Some(3.0));
    }

    /// The ranks are those in tables for the sign test.
    #[test]
    fn the_interval_takes_the_ranks_of_the_tables() {
        let ranks = |n: u32| interval(&(1..=n).rev().map(f64::from).collect::<Vec<_>>());
        assert_eq!(ranks(1), None);
        assert_eq!(ranks(5), None);
        assert_eq!(ranks(6), Some((1.0, 6.0)));
        assert_eq!(ranks(8), Some((1.0, 8.0)));
        assert_eq!(ranks(9), Some((2.0, 8.0)));
        assert_eq!(ranks(10), Some((2.0, 9.0)));
        assert_eq!(ranks(20), Some((6.0, 15.0)));
    }
}
